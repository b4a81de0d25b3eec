//! REPORT: what the receiver of one path has received. The latest report wins.
//!
//! ```text
//! path u8 · largest packet varint · age of it in us varint · its arrival in us varint
//! · late by (packets) varint · packets marked varint
//! · received up to the largest varint · gaps varint
//!   · per gap, newest first: missing packets varint · received packets varint
//! · lanes u8 · per lane:
//!   lane u8 · largest packet on the lane varint · base varint · flags u8 · runs varint
//!   · per run: gap varint (missing symbols) · length varint (received symbols)
//!   · groups varint · per group: first missing symbol above base varint · equations varint
//! ```
//!
//! Packets show the sender what the path loses, and when. Symbols show it what is still needed.

use std::time::Duration;

use super::codec::{Malformed, Reader, put_varint};
use super::lane::Lane;

/// Maximum number of runs in a report, over all lanes. Each is two numbers of one to three bytes.
/// Those of a lane sum to no more than 2^18, so that few can be long: all take 800 bytes at most.
pub const MAX_RUNS: usize = 192;

/// Maximum number of runs of packets in a report: at four bytes each, 256 bytes. They take more
/// only if thousands of packets are missing between them; [`Report::shorten`] ensures that they
/// fit.
pub const MAX_PACKET_RUNS: usize = 64;
/// Maximum number of groups of equations in a report for a lane.
pub const MAX_GROUPS: usize = 8;
/// Maximum number of equations in a group: a decoder holds no more for a whole lane.
pub const MAX_EQUATIONS: u64 = bentpipe_coding::MAX_SPAN as u64;

const TRUNCATED: u8 = 0x01;

/// State of one path, and of every lane with received symbols on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Path of the report.
    pub path: u8,
    /// The largest packet number received.
    pub largest: u64,
    /// Time since its arrival, for the sender's round-trip estimate.
    pub age: Duration,
    /// Time of its arrival on the receiver's clock. The excess of a packet's delay over others' is
    /// its queueing delay, whatever the two clocks.
    pub arrived: Duration,
    /// Largest number of packets by which a recent late packet was overtaken.
    pub late_by: u64,
    /// Recently received packets as half-open ranges, newest first; the first ends at `largest +
    /// 1`. Packets between the ranges are missing; nothing is known of packets before the last
    /// range.
    pub packets: Vec<(u64, u64)>,
    /// Number of received packets marked Congestion Experienced (RFC 3168).
    pub marked: u64,
    /// One entry for each lane in use, in lane order.
    pub lanes: Vec<LaneReport>,
}

/// Received symbols of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    /// The lane.
    pub lane: Lane,
    /// The largest number of a packet with a symbol of this lane.
    pub largest: u64,
    /// Number below which every symbol has arrived.
    pub base: u64,
    /// Received runs above `base`, ascending, as half-open ranges.
    pub runs: Vec<(u64, u64)>,
    /// The runs are incomplete: nothing is known of symbols above the last run.
    pub truncated: bool,
    /// Equations held for missing symbols, as (lowest missing symbol, independent equations) of
    /// each connected group, ascending.
    pub held: Vec<(u64, u64)>,
}

impl Report {
    /// Appends the frame's body.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(self.path);
        put_varint(out, self.largest);
        put_varint(out, u64::try_from(self.age.as_micros()).unwrap_or(u64::MAX));
        put_varint(out, u64::try_from(self.arrived.as_micros()).unwrap_or(u64::MAX));
        put_varint(out, self.late_by);
        put_varint(out, self.marked);
        self.put_packets(out);
        out.push(self.lanes.len() as u8);
        for lane in &self.lanes {
            lane.put(out);
        }
    }

    /// Removes the highest runs of symbols and the oldest runs of packets until the body takes at
    /// most `room` bytes. With only the newest run it takes at most 431 bytes.
    pub fn shorten(&mut self, room: usize) {
        let mut body = Vec::new();
        loop {
            body.clear();
            self.put(&mut body);
            let lane = self.lanes.iter_mut().max_by_key(|lane| lane.runs.len());
            let longest = lane.filter(|lane| lane.runs.len() >= self.packets.len().max(1));
            if body.len() <= room {
                return;
            } else if let Some(lane) = longest {
                lane.runs.pop();
                lane.truncated = true;
            } else if self.packets.len() > 1 {
                self.packets.pop();
            } else {
                return;
            }
        }
    }

    /// Reads the frame's body.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let path = reader.u8()?;
        let largest = reader.varint()?;
        let age = Duration::from_micros(reader.varint()?);
        let arrived = Duration::from_micros(reader.varint()?);
        let late_by = reader.varint()?;
        let marked = reader.varint()?;
        let packets = Self::parse_packets(largest, reader)?;
        let count = reader.u8()?;
        if usize::from(count) > Lane::ALL.len() {
            return Err(Malformed);
        }
        let lanes = (0..count).map(|_| LaneReport::parse(largest, reader));
        let lanes = lanes.collect::<Result<_, _>>()?;
        Ok(Self { path, largest, age, arrived, late_by, marked, packets, lanes })
    }

    fn put_packets(&self, out: &mut Vec<u8>) {
        let mut runs = self.packets.iter();
        let mut above = runs.next().map_or(self.largest, |&(start, end)| {
            put_varint(out, end - start);
            start
        });
        put_varint(out, runs.len() as u64);
        for &(start, end) in runs {
            put_varint(out, above - end);
            put_varint(out, end - start);
            above = start;
        }
    }

    fn parse_packets(largest: u64, reader: &mut Reader<'_>) -> Result<Vec<(u64, u64)>, Malformed> {
        let mut end = largest.checked_add(1).ok_or(Malformed)?;
        let first = reader.varint()?;
        let gaps = reader.varint()?;
        if first == 0 || gaps >= MAX_PACKET_RUNS as u64 {
            return Err(Malformed);
        }
        let mut start = end.checked_sub(first).ok_or(Malformed)?;
        let mut runs = vec![(start, end)];
        for _ in 0..gaps {
            let (missing, received) = (reader.varint()?, reader.varint()?);
            if missing == 0 || received == 0 {
                return Err(Malformed);
            }
            end = start.checked_sub(missing).ok_or(Malformed)?;
            start = end.checked_sub(received).ok_or(Malformed)?;
            runs.push((start, end));
        }
        Ok(runs)
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
        put_varint(out, self.held.len() as u64);
        let mut from = self.base;
        for &(first, equations) in &self.held {
            put_varint(out, first - from);
            put_varint(out, equations);
            from = first;
        }
    }

    /// Reads one lane's part. `newest` is the largest packet of the report.
    fn parse(newest: u64, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let lane = Lane::from_wire(reader.u8()?).ok_or(Malformed)?;
        let largest = reader.varint()?;
        if largest > newest {
            return Err(Malformed);
        }
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
        let held = Self::parse_held(base, reader)?;
        Ok(Self { lane, largest, base, runs, truncated, held })
    }

    fn parse_held(base: u64, reader: &mut Reader<'_>) -> Result<Vec<(u64, u64)>, Malformed> {
        let count = reader.varint()?;
        if count > MAX_GROUPS as u64 {
            return Err(Malformed);
        }
        let mut from = base;
        let mut group = || {
            from = from.checked_add(reader.varint()?).ok_or(Malformed)?;
            let equations = reader.varint()?;
            if equations > MAX_EQUATIONS { Err(Malformed) } else { Ok((from, equations)) }
        };
        (0..count).map(|_| group()).collect()
    }

    /// The first symbol number that this report says nothing about.
    pub fn covers_below(&self) -> u64 {
        match self.runs.last() {
            _ if !self.truncated => u64::MAX,
            Some(&(_, end)) => end,
            None => self.base,
        }
    }
}
