//! Repairs for the ends of bursts, and the times of the next ones.
//!
//! A [`ProtectedRange`] is a range of at most [`MAX_SPAN`] symbols that ended a flow's burst. While
//! some of it may still be missing, the range asks for as many repairs as
//! [`Need`](crate::redundancy::Need) computes. Symbols outside every range are bulk under backlog,
//! which are only retransmitted after a report shows them missing.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_coding::MAX_SPAN;
use bentpipe_schedule::Class;

use super::paced_source::AccruedRepairs;
use super::protected_range::{LossCounts, ProtectedRange, RepairPolicy};
use crate::wire::header::PacketId;

/// Maximum number of ranges of a lane: 16 × 512 symbols.
const MAX_RANGES: usize = 16;

/// The protected ranges of one lane, ascending.
#[derive(Debug, Default)]
pub struct BurstRepair {
    ranges: VecDeque<ProtectedRange>,
    /// The last report asked for more repairs than planned, for a range whose repairs were still
    /// being sent.
    asks_for_more: bool,
}

impl BurstRepair {
    /// Returns `true` if the repair of a symbol is left to repair packets.
    pub fn covers(&self, number: u64) -> bool {
        let behind = self.ranges.partition_point(|range| range.end <= number);
        self.ranges.get(behind).is_some_and(|range| range.start <= number)
    }

    /// Returns `true` if the last report has to be considered again.
    pub fn asks_for_more(&self) -> bool {
        self.asks_for_more
    }

    /// Extends protection over `base..end` on behalf of `class`. Returns ranges whose protection is
    /// given up for it.
    pub fn extend(&mut self, base: u64, end: u64, class: Class) -> Vec<(u64, u64)> {
        if let Some(last) = self.ranges.back_mut() {
            last.start = last.start.max(base.min(last.end));
            if end - last.start <= MAX_SPAN as u64 {
                last.extend(end);
                last.class = class;
                return Vec::new();
            }
        }
        let mut start = self.ranges.back().map_or(base, |last| last.end).max(base);
        // Reports take care of what exceeds all ranges, which is the oldest part.
        start = start.max(end.saturating_sub((MAX_RANGES * MAX_SPAN) as u64));
        let mut given_up = Vec::new();
        while start < end {
            let stop = end.min(start + MAX_SPAN as u64);
            if self.ranges.len() == MAX_RANGES {
                given_up.extend(self.ranges.pop_front().map(|old| (old.start, old.end)));
            }
            self.ranges.push_back(ProtectedRange::new(start, stop, class));
            start = stop;
        }
        given_up
    }

    /// Gives up ranges that begin before `oldest`, and returns them. All symbols below `base` have
    /// arrived.
    pub fn expire(&mut self, base: u64, oldest: u64) -> Vec<(u64, u64)> {
        let mut given_up = Vec::new();
        while let Some(first) = self.ranges.front()
            && first.start.max(base) < oldest
        {
            given_up.extend(self.ranges.pop_front().map(|old| (old.start, old.end)));
        }
        given_up
    }

    /// Drops ranges with no missing symbol and no symbol in flight.
    pub fn settle(&mut self, counts: impl Fn(u64, u64) -> LossCounts) {
        self.ranges.retain(|it| counts(it.start, it.end) != LossCounts::default());
    }

    /// Plans the repairs that the ranges need now: some at once, the rest later.
    pub fn flush(
        &mut self,
        now: Duration,
        policy: &mut RepairPolicy,
        counts: impl Fn(u64, u64) -> LossCounts,
    ) {
        for range in &mut self.ranges {
            let repairs = range.need(now, policy, &counts);
            range.plan(repairs, now, policy);
        }
    }

    /// Plans repairs for a paced source that goes on: some for the newest symbols, and the flush
    /// later.
    pub fn accrue(&mut self, accrued: &AccruedRepairs) {
        if let Some(range) = self.ranges.back_mut() {
            range.accrue(accrued);
        }
    }

    /// Stops counting the repairs in flight, because the peer is silent.
    pub fn forget_repairs(&mut self) {
        for range in &mut self.ranges {
            range.forget_repairs();
        }
    }

    /// Stops counting the repairs in flight on `path`, because nothing arrives there.
    pub fn forget_repairs_on(&mut self, path: u8) {
        for range in &mut self.ranges {
            range.forget_repairs_on(path);
        }
    }

    /// Returns `true` if a repair is in flight on `path`.
    pub fn is_on_path(&self, path: u8) -> bool {
        self.ranges.iter().any(|range| range.is_on_path(path))
    }

    /// Time at which [`Self::flush_rest`] should be called.
    pub fn due(&self) -> Option<Duration> {
        self.ranges.iter().filter_map(|range| range.due).min()
    }

    /// Plans the next parts of second halves that are due.
    pub fn flush_rest(
        &mut self,
        now: Duration,
        policy: &mut RepairPolicy,
        counts: impl Fn(u64, u64) -> LossCounts,
    ) {
        for range in &mut self.ranges {
            if range.due.is_some_and(|due| due <= now) {
                let needed = range.need(now, policy, &counts);
                range.next_part(needed, now, policy);
            }
        }
    }

    /// Updates the plans after a report judged packets of a path up to `largest`. Returns ranges that are
    /// given up.
    pub fn review(
        &mut self,
        largest: PacketId,
        held: &[(u64, u64)],
        now: Duration,
        policy: &mut RepairPolicy,
        counts: impl Fn(u64, u64) -> LossCounts,
    ) -> Vec<(u64, u64)> {
        let mut given_up = Vec::new();
        self.asks_for_more = false;
        self.ranges.retain_mut(|range| {
            if counts(range.start, range.end) == LossCounts::default() {
                return false;
            }
            range.take_report(largest, held);
            let repairs = range.need(now, policy, &counts);
            if range.due.is_some() || repairs <= range.ready {
                self.asks_for_more |= repairs > range.ready;
                range.ready = range.ready.min(repairs);
                return true;
            }
            if range.is_stuck(&counts) {
                given_up.push((range.start, range.end));
                return false;
            }
            range.plan(repairs, now, policy);
            true
        });
        given_up
    }

    /// The range whose repair is next.
    pub fn ready(&self) -> Option<&ProtectedRange> {
        self.ranges.iter().find(|range| range.ready > 0)
    }

    /// Number of repairs to send now.
    pub fn repairs_ready(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.ready)).sum()
    }

    /// Notes that the repair of the ready range was sent in `packet`.
    pub fn sent(&mut self, packet: PacketId) {
        if let Some(range) = self.ranges.iter_mut().find(|range| range.ready > 0) {
            range.sent(packet);
        }
    }

    /// Gives up the ready range, which cannot be repaired, and returns it.
    pub fn give_up(&mut self) -> Option<(u64, u64)> {
        let at = self.ranges.iter().position(|range| range.ready > 0)?;
        self.ranges.remove(at).map(|range| (range.start, range.end))
    }
}
