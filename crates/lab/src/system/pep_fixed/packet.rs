//! Packet format between the two proxies: a datagram with bytes of one flow, or a report of
//! received packets. Integers are in network byte order.

use std::net::SocketAddrV4;

use bytes::{Buf, BufMut, Bytes};

/// Maximum bytes of a flow in one packet. With the headers of IP, UDP and this protocol, a packet
/// has at most 1,496 bytes.
pub const MAX_BYTES: usize = 1440;
/// Maximum number ranges in a report, which has at most 1,300 bytes.
pub const MAX_RANGES: usize = 48;
/// Maximum flows in a report.
pub const MAX_REPORTED_FLOWS: usize = 40;

const DATA: u8 = 1;
const REPORT: u8 = 2;

const OPEN: u8 = 1;
const END: u8 = 2;
const RESET: u8 = 4;

/// Bytes of a flow, with changes of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub flow: u32,
    /// Offset of `bytes` in its direction.
    pub offset: u64,
    /// Destination of the flow, in its first piece.
    pub open: Option<SocketAddrV4>,
    /// `true` if no data follows `bytes`.
    pub end: bool,
    /// `true` if the flow is reset.
    pub reset: bool,
    pub bytes: Bytes,
}

/// Report of received packets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Received packet numbers as ranges (first, last), newest range first.
    pub ranges: Vec<(u64, u64)>,
    /// Bytes delivered to the near side, by flow.
    pub delivered: Vec<(u32, u64)>,
}

/// A datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// A piece, under a packet number that is used once.
    Data(u64, Piece),
    Report(Report),
}

impl Packet {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_BYTES + 32);
        match self {
            Self::Data(number, piece) => {
                out.put_u8(DATA);
                out.put_u64(*number);
                out.put_u32(piece.flow);
                out.put_u64(piece.offset);
                let flag = |is_set, flag| if is_set { flag } else { 0 };
                let open = flag(piece.open.is_some(), OPEN);
                out.put_u8(open | flag(piece.end, END) | flag(piece.reset, RESET));
                if let Some(target) = piece.open {
                    out.put_u32(target.ip().to_bits());
                    out.put_u16(target.port());
                }
                out.put_slice(&piece.bytes);
            }
            Self::Report(report) => {
                out.put_u8(REPORT);
                out.put_u8(report.ranges.len() as u8);
                for (first, last) in &report.ranges {
                    out.put_u64(*first);
                    out.put_u64(*last);
                }
                for (flow, bytes) in &report.delivered {
                    out.put_u32(*flow);
                    out.put_u64(*bytes);
                }
            }
        }
        out
    }

    /// Returns `None` if the datagram is not a valid packet.
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let mut rest = datagram;
        match take(&mut rest, 1)?.get_u8() {
            DATA => {
                let mut head = take(&mut rest, 21)?;
                let (number, flow) = (head.get_u64(), head.get_u32());
                let (offset, flags) = (head.get_u64(), head.get_u8());
                let open = if flags & OPEN != 0 {
                    let mut target = take(&mut rest, 6)?;
                    Some(SocketAddrV4::new(target.get_u32().into(), target.get_u16()))
                } else {
                    None
                };
                let (end, reset) = (flags & END != 0, flags & RESET != 0);
                let bytes = Bytes::copy_from_slice(rest);
                offset.checked_add(bytes.len() as u64)?;
                Some(Self::Data(number, Piece { flow, offset, open, end, reset, bytes }))
            }
            REPORT => {
                let count = take(&mut rest, 1)?.get_u8().into();
                let mut report = Report::default();
                for _ in 0..count {
                    let mut range = take(&mut rest, 16)?;
                    report.ranges.push((range.get_u64(), range.get_u64()));
                }
                while !rest.is_empty() {
                    let mut flow = take(&mut rest, 12)?;
                    report.delivered.push((flow.get_u32(), flow.get_u64()));
                }
                Some(Self::Report(report))
            }
            _ => None,
        }
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(bytes)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_read_back_and_no_part_of_one_panics() {
        let piece = Piece {
            flow: 7,
            offset: 1 << 40,
            open: Some("198.18.3.2:443".parse().unwrap()),
            end: true,
            reset: false,
            bytes: Bytes::from(vec![5; MAX_BYTES]),
        };
        let report = Report {
            ranges: vec![(9, u64::MAX); MAX_RANGES],
            delivered: vec![(1, 2); MAX_REPORTED_FLOWS],
        };
        for packet in [Packet::Data(3, piece), Packet::Report(report)] {
            let bytes = packet.encode();
            assert!(bytes.len() <= 1472, "{}", bytes.len());
            assert_eq!(Packet::decode(&bytes).as_ref(), Some(&packet));
            for end in 0..bytes.len() {
                assert_ne!(Packet::decode(&bytes[..end]).as_ref(), Some(&packet));
            }
        }
        assert_eq!(Packet::decode(&[9, 9]), None);
    }
}
