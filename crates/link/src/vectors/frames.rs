//! Vectors: varints, every frame, a report, and a repair of three symbols.

use std::time::Duration;

use bentpipe_coding::{Span, encode};
use bentpipe_flow::{Claim, Host, OpenDatagrams, ResetCode, Service, Target};
use bentpipe_schedule::Class;
use bentpipe_units::BitRate;

use super::Vectors;
use crate::lane::Lane;
use crate::lease::{Demand, Grant};
use crate::wire::codec::{Reader, put_varint};
use crate::wire::curve::{Back, Curve};
use crate::wire::down::Down;
use crate::wire::frame::{self, Frame, PADDING, Packet, Slide};
use crate::wire::report::{LaneReport, Report};

type Put<'a> = &'a dyn Fn(&mut Vec<u8>);

fn bytes(put: Put<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out);
    out
}

#[test]
fn varints() {
    let mut out =
        Vectors::new("varints.txt", "Values and their spelling, named by the value in decimal.");
    for value in [0, 1, 127, 128, 300, 16_383, 16_384, 1 << 32, 1 << 56, u64::MAX] {
        let spelled = bytes(&|out| put_varint(out, value));
        assert_eq!(Reader::new(&spelled).varint(), Ok(value));
        out.put(&value.to_string(), &spelled);
    }
    out.note("\nNone of these is a varint: not the shortest form, past 64 bits, cut short.");
    for (name, wrong) in
        [("longer", &[0x80, 0x00][..]), ("past_64_bits", &[0xff; 10]), ("cut", &[0x80])]
    {
        assert!(Reader::new(wrong).varint().is_err());
        out.put(name, wrong);
    }
    out.check();
}

#[test]
fn frames() {
    let mut out = Vectors::new("frames.txt", "Frames, each with its tag.");
    out.note("\nIn the uncoded part.");
    let challenge = [1, 2, 3, 4, 5, 6, 7, 8];
    let demand = Demand {
        number: 9,
        follows: 4,
        waiting_bytes: 300_000,
        useful: BitRate::from_bps(512_000),
    };
    let grant = Grant {
        sequence: 5,
        answers: 9,
        rate: BitRate::from_bps(256_000),
        lifetime: Duration::from_secs(6),
    };
    let back = |packets, us| Back { packets, time: Duration::from_micros(us) };
    let curve = Curve(vec![back(1, 600), back(7, 4_200)]);
    let uncoded: [(&str, Put<'_>); 16] = [
        ("demand", &|out| frame::put_demand(out, &demand)),
        ("lease", &|out| frame::put_grant(out, &grant)),
        ("curve_of_2_knots", &|out| frame::put_curve(out, &curve)),
        ("padding", &|out| out.push(PADDING)),
        ("challenge", &|out| frame::put_challenge(out, &challenge)),
        ("response", &|out| frame::put_response(out, &challenge)),
        ("ping", &|out| frame::put_ping(out)),
        ("standby", &|out| frame::put_standby(out)),
        ("volume_5000000", &|out| out.extend(frame::volume(5_000_000))),
        ("down_of_paths_1_and_3", &|out| frame::put_down(out, Down { number: 7, paths: 0b1010 })),
        ("close", &|out| frame::put_close(out)),
        ("slide_datagrams_to_70000", &|out| {
            frame::put_slide(out, Slide { lane: Lane::Datagram, base: 70_000 });
        }),
        ("symbol_datagrams_9_of_flow_4", &|out| {
            frame::put_symbol_head(out, Lane::Datagram, 9);
            frame::put_datagram(out, 4, b"bytes", true);
        }),
        ("symbol_urgent_300_empty", &|out| frame::put_symbol_head(out, Lane::Urgent, 300)),
        ("symbol_bulk_5_with_credit", &|out| {
            frame::put_symbol_head(out, Lane::Bulk, 5);
            frame::put_credit(out, 3, 65_536);
        }),
        ("fragment_of_1400_at_700_first_in_packet_1000", &|out| {
            frame::put_fragment_head(out, 1000, 1400, 700);
            out.extend(b"bytes");
        }),
    ];
    for (name, put) in uncoded {
        let bytes = bytes(put);
        assert!(Packet::parse(&bytes).is_ok(), "{name}");
        out.put(name, &bytes);
    }
    put_symbol_frames(&mut out);
    out.check();
}

/// Puts every frame in a symbol.
fn put_symbol_frames(out: &mut Vectors) {
    out.note("\nIn a symbol.");
    let named = |target: &str| -> Target { target.parse().expect("it is a target") };
    let resolver = Target { host: Host::Service(Service::Resolver), port: 53 };
    let opened = |target: Target| {
        let mut encoded = Vec::new();
        target.encode(&mut encoded).expect("its name is short");
        bytes(&|out| frame::put_open(out, 3, Class::BestEffort, 17, 65_536, &encoded))
    };
    let claim = Claim::new("www.gov.uk", Class::Assured).expect("its name is short");
    let datagrams = |protocol: u8, source: u16, target: Target| {
        let (class, passenger) = (Class::BestEffort, 17);
        let open = OpenDatagrams { target, protocol, source, class, passenger };
        bytes(&|out| crate::wire::open::put(&open, 4, out).expect("its name is short"))
    };
    let symbols = [
        ("open_name", opened(named("example.org:443"))),
        ("open_ipv4", opened(named("192.0.2.7:443"))),
        ("open_ipv6", opened(named("[2001:db8::7]:443"))),
        ("open_resolver", opened(resolver.clone())),
        ("stream_to_the_end", bytes(&|out| stream(out, 0, false, None))),
        ("stream_with_length", bytes(&|out| stream(out, 1000, false, Some(5)))),
        ("stream_fin", bytes(&|out| stream(out, 1000, true, None))),
        ("stream_fin_with_length", bytes(&|out| stream(out, 1000, true, Some(5)))),
        ("credit", bytes(&|out| frame::put_credit(out, 3, 1 << 20))),
        ("reset_forbidden", bytes(&|out| frame::put_reset(out, 3, ResetCode::Forbidden))),
        ("open_datagrams_udp", datagrams(17, 50_000, named("192.0.2.7:443"))),
        ("open_datagrams_udp_name", datagrams(17, 50_000, named("example.org:443"))),
        ("open_datagrams_echo_ipv6", datagrams(58, 0, named("[2001:db8::7]:0"))),
        ("open_datagrams_resolver", datagrams(17, 0, resolver)),
        ("datagram_to_the_end", bytes(&|out| frame::put_datagram(out, 4, b"bytes", true))),
        ("datagram_with_length", bytes(&|out| frame::put_datagram(out, 4, b"bytes", false))),
        ("stop_aborted", bytes(&|out| frame::put_stop(out, 3, ResetCode::Aborted))),
        ("claim_assured", bytes(&|out| frame::put_claim(out, 3, &claim))),
        ("class_assured", bytes(&|out| frame::put_class(out, 3, Class::Assured))),
    ];
    for (name, bytes) in symbols {
        let mut reader = Reader::new(&bytes);
        assert!(Frame::parse(&mut reader).is_ok() && reader.is_empty(), "{name}");
        out.put(name, &bytes);
    }
}

fn stream(out: &mut Vec<u8>, offset: u64, fin: bool, length: Option<u64>) {
    frame::put_stream_head(out, 3, offset, fin, length);
    out.extend(b"bytes");
}

fn report() -> Report {
    let urgent = LaneReport {
        lane: Lane::Urgent,
        largest: 990,
        base: 40,
        runs: Vec::new(),
        truncated: false,
        held: Vec::new(),
    };
    let bulk = LaneReport {
        lane: Lane::Bulk,
        largest: 1000,
        base: 700,
        runs: vec![(702, 710), (713, 714)],
        truncated: true,
        held: vec![(700, 1), (710, 2)],
    };
    Report {
        path: 0,
        largest: 1000,
        age: Duration::from_micros(2500),
        arrived: Duration::from_micros(90_000_000),
        late_by: 3,
        marked: 7,
        packets: vec![(995, 1001), (980, 993), (970, 979)],
        lanes: vec![urgent, bulk],
    }
}

#[test]
fn reports() {
    let mut out = Vectors::new(
        "report.txt",
        "A REPORT with its tag: packets 970-978, 980-992 and 995-1000 came, 7 of all so far marked.",
    );
    out.note(
        "Urgent: all below 40. Bulk: all below 700, 702-709 and 713, more that is not named; of 700-701 \
         one\nequation is held, of 710-712 two.",
    );
    out.note(&format!("{:?}", report()));
    let written = bytes(&|out| frame::put_report(out, &report()));
    assert_eq!(Packet::parse(&written).map(|packet| packet.report), Ok(Some(report())));
    out.put("report", &written);
    out.check();
}

#[test]
fn a_repair_of_three_symbols() {
    let mut out = Vectors::new(
        "repair.txt",
        "Three symbols of the bulk lane, 7 to 9, and the plaintext of packet 0x12345, their repair.",
    );
    let contents = [
        bytes(&|out| stream(out, 0, false, None)),
        bytes(&|out| frame::put_credit(out, 3, 65_536)),
        bytes(&|out| frame::put_reset(out, 4, ResetCode::Timeout)),
    ];
    for (number, content) in (7..).zip(&contents) {
        out.put(&format!("content_{number}"), content);
        let mut plaintext = bytes(&|out| frame::put_symbol_head(out, Lane::Bulk, number));
        plaintext.extend(content);
        out.put(&format!("plaintext_{number}"), &plaintext);
    }
    let packet = 0x12345;
    let key = crate::lane::repair_key(packet.into());
    let sources: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let span = Span::new(7, 3).expect("it is short");
    let plaintext = bytes(&|out| {
        frame::put_repair_head(out, Lane::Bulk, span);
        encode(key, &sources, out);
    });
    let mut coefficients = [0; 3];
    bentpipe_coding::coefficients(key, &mut coefficients);
    out.put("key", &key.to_be_bytes());
    out.put("coefficients", &coefficients);
    out.put("plaintext_repair", &plaintext);
    out.check();
}
