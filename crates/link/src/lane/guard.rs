//! Symbols of a lane that repairs protect, and the times of the next repairs.
//!
//! A *segment* is a range of at most [`MAX_SPAN`] symbols that ended a flow's burst. While some of it
//! may still be missing, the segment asks for as many repairs as
//! [`Need`](crate::redundancy::Need) computes. Symbols outside every segment are bulk under backlog, and
//! are only sent again when they are reported missing.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_coding::MAX_SPAN;
use bentpipe_schedule::Class;

use super::segment::{Census, Rule, Segment};
use super::steady::Accrued;

/// Segments of a lane at once: 16 × 512 symbols.
const MAX_SEGMENTS: usize = 16;

/// The segments of one lane, rising.
#[derive(Debug, Default)]
pub struct Guard {
    segments: VecDeque<Segment>,
    /// The last report asked for more than is planned, of a segment whose repairs were still leaving.
    asks_for_more: bool,
}

impl Guard {
    /// Returns `true` if a symbol is left to repairs.
    pub fn covers(&self, number: u64) -> bool {
        let behind = self.segments.partition_point(|segment| segment.end <= number);
        self.segments.get(behind).is_some_and(|segment| segment.start <= number)
    }

    /// Returns `true` if the last report has to be considered again.
    pub fn asks_for_more(&self) -> bool {
        self.asks_for_more
    }

    /// Extends protection over everything from `base` below `end`, as `class` asks. Returns ranges
    /// that are given up for it.
    pub fn extend(&mut self, base: u64, end: u64, class: Class) -> Vec<(u64, u64)> {
        if let Some(last) = self.segments.back_mut() {
            last.start = last.start.max(base.min(last.end));
            if end - last.start <= MAX_SPAN as u64 {
                last.extend(end);
                last.class = class;
                return Vec::new();
            }
        }
        let mut start = self.segments.back().map_or(base, |last| last.end).max(base);
        // More than all segments can hold is left to reports; it is the older part.
        start = start.max(end.saturating_sub((MAX_SEGMENTS * MAX_SPAN) as u64));
        let mut given_up = Vec::new();
        while start < end {
            let stop = end.min(start + MAX_SPAN as u64);
            if self.segments.len() == MAX_SEGMENTS {
                given_up.extend(self.segments.pop_front().map(|old| (old.start, old.end)));
            }
            self.segments.push_back(Segment::new(start, stop, class));
            start = stop;
        }
        given_up
    }

    /// Gives up segments that begin before `oldest`, as ranges; all below `base` has come.
    pub fn expire(&mut self, base: u64, oldest: u64) -> Vec<(u64, u64)> {
        let mut given_up = Vec::new();
        while let Some(first) = self.segments.front()
            && first.start.max(base) < oldest
        {
            given_up.extend(self.segments.pop_front().map(|old| (old.start, old.end)));
        }
        given_up
    }

    /// Drops segments of which nothing is missing or under way.
    pub fn settle(&mut self, census: impl Fn(u64, u64) -> Census) {
        self.segments.retain(|it| census(it.start, it.end) != Census::default());
    }

    /// Asks for what the segments need now: some at once, the rest later.
    pub fn flush(&mut self, now: Duration, rule: &mut Rule, census: impl Fn(u64, u64) -> Census) {
        for segment in &mut self.segments {
            let repairs = segment.need(rule, &census);
            segment.plan(repairs, now, rule);
        }
    }

    /// A steady sparse source goes on: some repairs for what is newest, and the flush later.
    pub fn accrue(&mut self, accrued: &Accrued) {
        if let Some(segment) = self.segments.back_mut() {
            segment.accrue(accrued);
        }
    }

    /// Nothing is heard of the repairs in flight: they count no more.
    pub fn forget_repairs(&mut self) {
        for segment in &mut self.segments {
            segment.forget_repairs();
        }
    }

    /// Time at which [`Self::flush_rest`] should be called.
    pub fn due(&self) -> Option<Duration> {
        self.segments.iter().filter_map(|segment| segment.due).min()
    }

    /// The next parts of second halves are due.
    pub fn flush_rest(
        &mut self,
        now: Duration,
        rule: &mut Rule,
        census: impl Fn(u64, u64) -> Census,
    ) {
        for segment in &mut self.segments {
            if segment.due.is_some_and(|due| due <= now) {
                let needed = segment.need(rule, &census);
                segment.next_part(needed, now, rule);
            }
        }
    }

    /// A report judged packets up to `largest`: counts anew. Returns ranges that are given up.
    pub fn review(
        &mut self,
        largest: u64,
        held: &[(u64, u64)],
        now: Duration,
        rule: &mut Rule,
        census: impl Fn(u64, u64) -> Census,
    ) -> Vec<(u64, u64)> {
        let mut given_up = Vec::new();
        self.asks_for_more = false;
        self.segments.retain_mut(|segment| {
            if census(segment.start, segment.end) == Census::default() {
                return false;
            }
            segment.take_report(largest, held);
            let repairs = segment.need(rule, &census);
            if segment.due.is_some() || repairs <= segment.ready {
                self.asks_for_more |= repairs > segment.ready;
                segment.ready = segment.ready.min(repairs);
                return true;
            }
            if segment.is_stuck(&census) {
                given_up.push((segment.start, segment.end));
                return false;
            }
            segment.plan(repairs, now, rule);
            true
        });
        given_up
    }

    /// The segment whose repair goes next.
    pub fn ready(&self) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.ready > 0)
    }

    /// The ready segment's repair left in `packet`.
    pub fn sent(&mut self, packet: u64) {
        if let Some(segment) = self.segments.iter_mut().find(|segment| segment.ready > 0) {
            segment.sent(packet);
        }
    }

    /// The ready segment cannot be repaired: it is given up, as a range of symbols.
    pub fn give_up(&mut self) -> Option<(u64, u64)> {
        let at = self.segments.iter().position(|segment| segment.ready > 0)?;
        self.segments.remove(at).map(|segment| (segment.start, segment.end))
    }
}
