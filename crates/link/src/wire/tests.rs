//! Parsers accept or refuse arbitrary bytes without a panic, and written messages round-trip.

use std::time::Duration;

use bentpipe_flow::{Host, OpenDatagrams, ResetCode, Target};
use bentpipe_schedule::Class;
use bentpipe_units::BitRate;
use proptest::prelude::*;

use super::codec::Reader;
use super::curve::{Back, Curve, MAX_KNOTS};
use bentpipe_coding::Span;

use super::down::Down;
use super::frame::{self, Carried, Fragment, Frame, Packet, Repair, Slide, Symbol};
use super::header::DataHeader;
use super::lane::Lane;
use super::report::{LaneReport, MAX_PACKET_RUNS, MAX_RUNS, Report};
use crate::lease::{Demand, Grant};

/// Bytes as a fuzzer would find them: the tags of frames are frequent.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![0u8..0x20, any::<u8>(), Just(0x80), Just(0xff)];
    prop::collection::vec(byte, 0..300)
}

fn lane_report() -> impl Strategy<Value = LaneReport> {
    let runs = prop::collection::vec((1u64..1 << 40, 1u64..1 << 40), 0..MAX_RUNS / 2);
    (0usize..Lane::ALL.len(), any::<u64>(), 0u64..1 << 50, runs, any::<bool>()).prop_map(
        |(lane, largest, base, steps, truncated)| {
            let mut from = base;
            let run = |(gap, length)| {
                let start = from + gap;
                from = start + length;
                (start, from)
            };
            let runs = steps.into_iter().map(run).collect();
            let held = vec![(base, 3), (base + 1, 1)];
            LaneReport { lane: Lane::ALL[lane], largest, base, runs, truncated, held }
        },
    )
}

fn report() -> impl Strategy<Value = Report> {
    let lanes = prop::collection::vec(lane_report(), 0..=Lane::ALL.len());
    let runs = prop::collection::vec((1u64..1 << 40, 1u64..1 << 40), 1..=MAX_PACKET_RUNS);
    let counts = (any::<u64>(), any::<u64>());
    (any::<u8>(), 1u64 << 50..u64::MAX, any::<u32>(), runs, counts, lanes).prop_map(
        |(path, largest, age_us, steps, (late_by, marked), mut lanes)| {
            lanes.iter_mut().for_each(|lane| lane.largest = lane.largest.min(largest));
            let age = Duration::from_micros(age_us.into());
            let mut above = largest + 1 + steps[0].0;
            let run = |(gap, length)| {
                let end = above - gap;
                above = end - length;
                (above, end)
            };
            let packets = steps.into_iter().map(run).collect();
            let arrived = age * 3;
            Report { path, largest, age, arrived, late_by, marked, packets, lanes }
        },
    )
}

fn grant() -> impl Strategy<Value = Grant> {
    (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
        |(sequence, answers, bps, ms)| {
            let (rate, lifetime) = (BitRate::from_bps(bps), Duration::from_millis(ms));
            Grant { sequence, answers, rate, lifetime }
        },
    )
}

fn demand() -> impl Strategy<Value = Demand> {
    (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
        |(number, follows, waiting_bytes, bps)| Demand {
            number,
            follows,
            waiting_bytes,
            useful: BitRate::from_bps(bps),
        },
    )
}

fn content<'a>(carried: &Carried<'a>) -> &'a [u8] {
    match carried {
        Carried::Symbol(symbol) => symbol.content,
        Carried::Repair(repair) => repair.content,
        Carried::Fragment(fragment) => fragment.content,
    }
}

proptest! {
    #[test]
    fn whatever_comes_is_parsed_or_refused(bytes in bytes()) {
        let _ = DataHeader::parse(&bytes);
        let _ = Report::parse(&mut Reader::new(&bytes));
        match Packet::parse(&bytes).ok().and_then(|packet| packet.carried) {
            Some(Carried::Symbol(symbol)) => prop_assert!(bytes.ends_with(symbol.content)),
            Some(Carried::Repair(repair)) => {
                prop_assert!(bytes.ends_with(repair.content));
                prop_assert_eq!(Span::new(repair.span.first, repair.span.count), Some(repair.span));
            }
            Some(Carried::Fragment(fragment)) => prop_assert!(bytes.ends_with(fragment.content)),
            None => {}
        }
        let mut reader = Reader::new(&bytes);
        while !reader.is_empty() && Frame::parse(&mut reader).is_ok() {}
    }

    #[test]
    fn whatever_parses_as_a_report_is_in_order(bytes in bytes()) {
        if let Ok(report) = Report::parse(&mut Reader::new(&bytes)) {
            for lane in &report.lanes {
                let mut below = lane.base;
                for &(start, end) in &lane.runs {
                    prop_assert!(below < start && start < end);
                    below = end;
                }
            }
        }
    }

    #[test]
    fn a_report_that_does_not_fit_names_less(report in report(), room in 431usize..1300) {
        let (mut shorter, mut body) = (report.clone(), Vec::new());
        shorter.shorten(room);
        shorter.put(&mut body);
        prop_assert!(body.len() <= room, "{} of {room}", body.len());
        prop_assert_eq!(Report::parse(&mut Reader::new(&body)), Ok(shorter.clone()));
        prop_assert!(!shorter.packets.is_empty());
        prop_assert!(report.packets.starts_with(&shorter.packets));
        for (lane, whole) in shorter.lanes.iter().zip(&report.lanes) {
            prop_assert!(whole.runs.starts_with(&lane.runs));
            let is_marked = lane.truncated || lane.runs.len() == whole.runs.len();
            prop_assert!(is_marked, "a truncated report is not marked");
        }
        body.clear();
        report.put(&mut body);
        prop_assert!(body.len() > room || shorter == report, "it fitted unchanged");
    }

    #[test]
    fn packets_read_back(
        report in prop::option::of(report()),
        curve in prop::option::of(prop::collection::vec((1u64.., any::<u64>()), 0..=MAX_KNOTS)),
        grant in prop::option::of(grant()),
        demand in prop::option::of(demand()),
        slide in prop::option::of((0usize..Lane::ALL.len(), any::<u64>())),
        challenge: Option<[u8; 8]>,
        response: Option<[u8; 8]>,
        ping: bool,
        standby: bool,
        volume: Option<u64>,
        down: Option<(u8, u8)>,
        close: bool,
        padding in 0usize..40,
        fragment in prop::option::of((any::<u64>(), 0usize..30_000, 1usize..30_000)),
        carried in prop::option::of((0usize..Lane::ALL.len(), 0..u64::MAX - 512, 0u16..=512, bytes())),
    ) {
        let mut out = Vec::new();
        if let Some(report) = &report { frame::put_report(&mut out, report) }
        if let Some(grant) = &grant { frame::put_grant(&mut out, grant) }
        let back = |(packets, us)| Back { packets, time: Duration::from_micros(us) };
        let curve = curve.map(|knots| Curve(knots.into_iter().map(back).collect()));
        if let Some(curve) = &curve { frame::put_curve(&mut out, curve) }
        if let Some(demand) = &demand { frame::put_demand(&mut out, demand) }
        let slide = slide.map(|(lane, base)| Slide { lane: Lane::ALL[lane], base });
        if let Some(slide) = slide { frame::put_slide(&mut out, slide) }
        if let Some(challenge) = &challenge { frame::put_challenge(&mut out, challenge) }
        if let Some(response) = &response { frame::put_response(&mut out, response) }
        if ping { frame::put_ping(&mut out) }
        if standby { frame::put_standby(&mut out) }
        if let Some(volume) = volume { out.extend(frame::volume(volume)) }
        let down = down.map(|(number, paths)| Down { number, paths });
        if let Some(down) = down { frame::put_down(&mut out, down) }
        if close { frame::put_close(&mut out) }
        out.resize(out.len() + padding, frame::PADDING);
        let before = out.len();
        let carried = carried.as_ref().map(|(lane, number, count, content)| {
            let (lane, number) = (Lane::ALL[*lane], *number);
            match Span::new(number, *count) {
                None if fragment.is_some() && !content.is_empty() => {
                    let (first, offset, more) = fragment.unwrap_or_default();
                    let total = offset + content.len() + more;
                    frame::put_fragment_head(&mut out, first, total, offset);
                    Carried::Fragment(Fragment { first, total, offset, content })
                }
                None => {
                    frame::put_symbol_head(&mut out, lane, number);
                    Carried::Symbol(Symbol { lane, number, content })
                }
                Some(span) => {
                    frame::put_repair_head(&mut out, lane, span);
                    Carried::Repair(Repair { lane, span, content })
                }
            }
        });
        let head = match &carried {
            None => 0,
            Some(Carried::Symbol(symbol)) => frame::symbol_head_len(symbol.number),
            Some(Carried::Repair(repair)) => frame::repair_head_len(repair.span),
            Some(Carried::Fragment(fragment)) => {
                let max = frame::fragment_head_len(fragment.first, fragment.total);
                max.min(out.len() - before)
            }
        };
        prop_assert_eq!(out.len() - before, head);
        out.extend_from_slice(carried.as_ref().map_or(&[], content));
        let packet = Packet { report, curve, grant, demand, slide, challenge, response, ping, standby, volume, down, close, carried };
        prop_assert_eq!(Packet::parse(&out), Ok(packet));
    }

    #[test]
    fn frames_read_back(
        flow: u64, limit: u64, passenger: u32, code in 0usize..ResetCode::ALL.len(), class in 0usize..Class::ALL.len(),
        offset in 0..=u64::MAX / 2, fin: bool, data in prop::collection::vec(any::<u8>(), 0..100), port: u16,
        protocol: u8, source: u16,
    ) {
        let (code, class) = (ResetCode::ALL[code], Class::ALL[class]);
        let target = Target { host: Host::Name("origin.example".into()), port };
        let (mut encoded, mut out) = (Vec::new(), Vec::new());
        target.encode(&mut encoded).unwrap();
        frame::put_open(&mut out, flow, class, passenger, limit, &encoded);
        frame::put_credit(&mut out, flow, limit);
        frame::put_reset(&mut out, flow, code);
        frame::put_stop(&mut out, flow, code);
        let claim = bentpipe_flow::Claim::new("www.gov.uk", class).unwrap();
        frame::put_claim(&mut out, flow, &claim);
        frame::put_class(&mut out, flow, class);
        let open = OpenDatagrams { target: target.clone(), protocol, source, class, passenger };
        crate::wire::open::put(&open, flow, &mut out).unwrap();
        frame::put_datagram(&mut out, flow, &data, false);
        frame::put_stream_head(&mut out, flow, offset, fin, Some(data.len() as u64));
        out.extend_from_slice(&data);
        let before = out.len();
        frame::put_stream_head(&mut out, flow, offset, fin, None);
        prop_assert_eq!(out.len() - before, frame::stream_head_len(flow, offset));
        out.extend_from_slice(&data);
        let stream = Frame::Stream { flow, offset, fin, data: &data };
        let expected = [
            Frame::Open { flow, class, passenger, credit: limit, target },
            Frame::Credit { flow, limit },
            Frame::Reset { flow, code },
            Frame::Stop { flow, code },
            Frame::Claim { flow, claim },
            Frame::Class { flow, class },
            Frame::OpenDatagrams { flow, open },
            Frame::Datagram { flow, payload: &data },
            stream.clone(),
            stream,
        ];
        let mut reader = Reader::new(&out);
        for frame in expected {
            prop_assert_eq!(Frame::parse(&mut reader), Ok(frame));
        }
        prop_assert!(reader.is_empty());
        let mut last = Vec::new();
        frame::put_datagram(&mut last, flow, &data, true);
        prop_assert_eq!(last.len(), frame::datagram_head_len(flow) + data.len());
        let read = Frame::parse(&mut Reader::new(&last));
        prop_assert_eq!(read, Ok(Frame::Datagram { flow, payload: &data }));
    }

    #[test]
    fn a_report_cut_short_is_refused(report in report(), cut: prop::sample::Index) {
        let mut out = Vec::new();
        report.put(&mut out);
        prop_assert_eq!(Report::parse(&mut Reader::new(&out)), Ok(report));
        let cut = cut.index(out.len());
        prop_assert!(Report::parse(&mut Reader::new(&out[..cut])).is_err());
    }
}
