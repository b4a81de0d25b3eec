//! CURVE: arrival times of the packets before the newest one of a report.
//!
//! ```text
//! knots u8 · per knot, newest first: packets back varint · time back in us varint
//! ```
//!
//! The first knot counts back from the largest packet of the REPORT in the same packet and from its
//! arrival, each other one from the knot before it. A sender that learns its rate reads from them
//! how fast the path passed what it sent.

use std::time::Duration;

use super::codec::{Malformed, Reader, put_varint};

/// Maximum number of knots: at three or four bytes each, some 60 bytes.
pub const MAX_KNOTS: usize = 16;

/// Maximum length of a frame from our recorder: a tag, a count, and for each knot at most four bytes
/// of packets and four of time, which suffice for a minute.
pub const MAX_CURVE_BYTES: usize = 2 + MAX_KNOTS * 8;

/// Knots, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Curve(pub Vec<Back>);

/// Distance of a knot from the next newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Back {
    /// Number of packets, at least 1.
    pub packets: u64,
    /// Time between the arrivals.
    pub time: Duration,
}

impl Curve {
    /// Appends the frame's body, with at most [`MAX_KNOTS`] knots.
    pub fn put(&self, out: &mut Vec<u8>) {
        let knots = &self.0[..self.0.len().min(MAX_KNOTS)];
        out.push(knots.len() as u8);
        for knot in knots {
            put_varint(out, knot.packets);
            put_varint(out, u64::try_from(knot.time.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// Reads the frame's body.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = usize::from(reader.u8()?);
        if count > MAX_KNOTS {
            return Err(Malformed);
        }
        let knots = (0..count).map(|_| {
            let packets = reader.varint()?;
            let time = Duration::from_micros(reader.varint()?);
            if packets == 0 { Err(Malformed) } else { Ok(Back { packets, time }) }
        });
        Ok(Self(knots.collect::<Result<_, _>>()?))
    }

    /// Packets and arrivals, oldest first. The newest is `largest`, which arrived at `arrived`.
    pub fn points(&self, largest: u64, arrived: Duration) -> Vec<(u64, Duration)> {
        let mut points = vec![(largest, arrived)];
        for knot in &self.0 {
            let (packet, at) = points[points.len() - 1];
            let Some(packet) = packet.checked_sub(knot.packets) else { break };
            points.push((packet, at.saturating_sub(knot.time)));
        }
        points.reverse();
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(packets: u64, us: u64) -> Back {
        Back { packets, time: Duration::from_micros(us) }
    }

    #[test]
    fn a_curve_survives_the_wire_and_leads_back_from_the_newest_packet() {
        let curve = Curve(vec![back(1, 600), back(7, 4_200)]);
        let mut out = Vec::new();
        curve.put(&mut out);
        assert_eq!(out.len(), 1 + 2 * 3);
        let mut reader = Reader::new(&out);
        assert_eq!(Curve::parse(&mut reader).as_ref(), Ok(&curve));
        assert!(reader.is_empty());
        let at = |us| Duration::from_micros(us);
        assert_eq!(
            curve.points(20, at(9_000)),
            [(12, at(4_200)), (19, at(8_400)), (20, at(9_000))]
        );
        // A packet before the first does not exist.
        assert_eq!(curve.points(5, at(9_000)), [(4, at(8_400)), (5, at(9_000))]);
    }

    #[test]
    fn too_many_knots_or_none_between_two_are_malformed() {
        assert_eq!(Curve::parse(&mut Reader::new(&[17])), Err(Malformed));
        assert_eq!(Curve::parse(&mut Reader::new(&[1, 0, 5])), Err(Malformed));
        assert_eq!(Curve::parse(&mut Reader::new(&[1, 1])), Err(Malformed));
    }
}
