//! Parsing of arbitrary bytes, for the fuzz target and a property test.

use super::codec::Reader;
use super::frame::{Carried, Frame, Packet};
use super::header::DataHeader;
use super::report::{MAX_EQUATIONS, Report};

/// Parses arbitrary bytes as a datagram and as its plaintext: a packet with its symbol, and frames.
/// Panics if a parser breaks a guarantee.
pub fn fuzz(bytes: &[u8]) {
    if let Ok((header, sealed)) = DataHeader::parse(bytes) {
        let mut again = Vec::new();
        header.put(&mut again);
        assert_eq!([&again, sealed].concat(), bytes, "a header has two encodings");
    }
    if let Ok(packet) = Packet::parse(bytes) {
        if let Some(report) = &packet.report {
            check(report);
        }
        match &packet.carried {
            Some(Carried::Symbol(symbol)) => {
                assert!(bytes.ends_with(symbol.content), "a symbol does not fill its packet");
                frames(symbol.content);
            }
            Some(Carried::Repair(repair)) => {
                assert!(bytes.ends_with(repair.content), "a repair does not fill its packet");
            }
            Some(Carried::Fragment(fragment)) => {
                assert!(fragment.offset + fragment.content.len() <= fragment.total);
            }
            None => {}
        }
    }
    frames(bytes);
}

/// Checks that a report is in order and round-trips.
fn check(report: &Report) {
    let mut above = report.largest + 1;
    for (index, &(start, end)) in report.packets.iter().enumerate() {
        assert!(start < end && end <= above && (index == 0 || end < above), "packets out of order");
        above = start;
    }
    for lane in &report.lanes {
        assert!(lane.largest <= report.largest, "a lane is ahead of its path");
        assert!(lane.held.iter().all(|&(_, equations)| equations <= MAX_EQUATIONS));
        let mut below = lane.base;
        for &(start, end) in &lane.runs {
            assert!(below < start && start < end, "runs out of order");
            below = end;
        }
    }
    let mut again = Vec::new();
    report.put(&mut again);
    let read = Report::parse(&mut Reader::new(&again));
    assert_eq!(read.as_ref(), Ok(report), "a report does not round-trip");
}

/// Reads frames until one is malformed. None reaches beyond the end.
fn frames(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let before = reader.rest().len();
        let Ok(frame) = Frame::parse(&mut reader) else { break };
        assert!(reader.rest().len() < before, "a frame of no bytes");
        match frame {
            Frame::Stream { offset, data, .. } => {
                assert!(offset.checked_add(data.len() as u64).is_some(), "a stream without end");
            }
            Frame::OpenDatagrams { flow, open } => {
                let mut again = Vec::new();
                assert!(
                    crate::wire::open::put(&open, flow, &mut again).is_ok(),
                    "a target without an encoding"
                );
                let read = Frame::parse(&mut Reader::new(&again));
                assert_eq!(
                    read,
                    Ok(Frame::OpenDatagrams { flow, open }),
                    "an opening does not read back"
                );
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_packet_breaks_a_parser(
            bytes in prop::collection::vec(prop_oneof![0u8..0x20, any::<u8>(), Just(0x80)], 0..300),
        ) {
            super::fuzz(&bytes);
        }
    }
}
