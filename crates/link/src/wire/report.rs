//! REPORT: what the receiver of one path has, the latest wins.
//!
//! ```text
//! path u8 · largest packet varint · age of it in us varint · its arrival in us varint
//! · packets received varint · late by (packets) varint · lanes u8 · per lane:
//!   lane u8 · largest packet on the lane varint · base varint · flags u8 · runs varint
//!   · per run: gap varint (missing symbols) · length varint (received symbols)
//! ```

use std::time::Duration;

use super::codec::{Malformed, Reader, put_varint};
use crate::lane::Lane;

/// Most runs one report names, over all lanes: at the 6 bytes that the farthest of them take, they
/// fill 1,152 bytes, which fits beside the rest of a report in the smallest packet there is.
pub const MAX_RUNS: usize = 192;

const TRUNCATED: u8 = 0x01;

/// The state of one path, and of every lane that has received something on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The path that is reported on.
    pub path: u8,
    /// The largest packet number received.
    pub largest: u64,
    /// How long ago it came, for the sender's round-trip estimate.
    pub age: Duration,
    /// When it came, on the receiver's own clock: how much later than others a packet came than it
    /// was sent is its queueing delay in this direction, whatever the two clocks say.
    pub arrived: Duration,
    /// How many packets were received in all.
    pub received: u64,
    /// By how many packets the latest of the late packets came behind a later one.
    pub late_by: u64,
    /// One entry for each lane in use, in lane order.
    pub lanes: Vec<LaneReport>,
}

/// Which symbols of a lane are here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    /// The lane.
    pub lane: Lane,
    /// The largest packet number that carried a symbol of this lane.
    pub largest: u64,
    /// Every symbol below is here.
    pub base: u64,
    /// Received runs above `base`, rising, as half-open ranges.
    pub runs: Vec<(u64, u64)>,
    /// The runs stop short of what was received; nothing is said of symbols above the last run.
    pub truncated: bool,
}

impl Report {
    /// Appends the frame's body.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(self.path);
        put_varint(out, self.largest);
        put_varint(out, u64::try_from(self.age.as_micros()).unwrap_or(u64::MAX));
        put_varint(out, u64::try_from(self.arrived.as_micros()).unwrap_or(u64::MAX));
        put_varint(out, self.received);
        put_varint(out, self.late_by);
        out.push(self.lanes.len() as u8);
        for lane in &self.lanes {
            lane.put(out);
        }
    }

    /// Reads the frame's body.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let path = reader.u8()?;
        let largest = reader.varint()?;
        let age = Duration::from_micros(reader.varint()?);
        let arrived = Duration::from_micros(reader.varint()?);
        let received = reader.varint()?;
        let late_by = reader.varint()?;
        let count = reader.u8()?;
        if usize::from(count) > Lane::ALL.len() {
            return Err(Malformed);
        }
        let lanes = (0..count).map(|_| LaneReport::parse(reader)).collect::<Result<_, _>>()?;
        Ok(Self { path, largest, age, arrived, received, late_by, lanes })
    }
}

impl LaneReport {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.lane as u8);
        put_varint(out, self.largest);
        put_varint(out, self.base);
        out.push(if self.truncated { TRUNCATED } else { 0 });
        put_varint(out, self.runs.len() as u64);
        let mut from = self.base;
        for &(start, end) in &self.runs {
            put_varint(out, start - from);
            put_varint(out, end - start);
            from = end;
        }
    }

    fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let lane = Lane::from_wire(reader.u8()?).ok_or(Malformed)?;
        let largest = reader.varint()?;
        let base = reader.varint()?;
        let truncated = match reader.u8()? {
            0 => false,
            TRUNCATED => true,
            _ => return Err(Malformed),
        };
        let count = reader.varint()?;
        if count > MAX_RUNS as u64 {
            return Err(Malformed);
        }
        let mut runs = Vec::with_capacity(count as usize);
        let mut from = base;
        for _ in 0..count {
            let (gap, length) = (reader.varint()?, reader.varint()?);
            if gap == 0 || length == 0 {
                return Err(Malformed);
            }
            let start = from.checked_add(gap).ok_or(Malformed)?;
            from = start.checked_add(length).ok_or(Malformed)?;
            runs.push((start, from));
        }
        Ok(Self { lane, largest, base, runs, truncated })
    }

    /// The first symbol number that this report says nothing of.
    pub fn covers_below(&self) -> u64 {
        match self.runs.last() {
            _ if !self.truncated => u64::MAX,
            Some(&(_, end)) => end,
            None => self.base,
        }
    }
}
