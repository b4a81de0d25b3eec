//! The sending half of a reliable lane: a scoreboard of unreported symbols, and what to send for
//! them.
//!
//! A symbol is *lost* once a report names a later packet of its lane and not the symbol. Because
//! this is judged by packet, the loss of a retransmission is found in the same way, one round trip
//! after it was sent.
//!
//! - Lost symbols of bulk under backlog are retransmitted, oldest first.
//! - Lost symbols that end a burst are left to [`BurstRepair`], most of whose repairs are sent
//!   before any loss is known.
//! - If the peer reports nothing at all, a probe follows.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_coding::{PREFIX_BYTES, Span, encode};
use bentpipe_schedule::PerClass;

use super::burst_repair::BurstRepair;
use super::in_flight::InFlight;
use super::limits::{MAX_AHEAD, SLOT_BYTES, repair_key};
use super::paced_source::PacedSource;
use super::protected_range::{LossCounts, RepairPolicy, State};
use super::sender::{Due, Lost, Sender};
use crate::Class;
use crate::spare;
use crate::wire::header::PacketId;
use crate::wire::report::LaneReport;

/// Number of the oldest symbols retransmitted after a probe timeout without a report.
const PROBE_SYMBOLS: usize = 2;

/// Number of losses of one symbol from which on it is sent twice. Few symbols are lost so often,
/// and those hold up all later ones. At 40 % loss one symbol in forty is sent twice; otherwise one
/// of the 8,000 in the window of a long path is lost ten times in a row and empties the window.
const COPIED_FROM: u8 = 4;

#[derive(Debug)]
struct Slot {
    content: Vec<u8>,
    last_packet: PacketId,
    state: State,
    /// Number of times it was queued as lost.
    losses: u8,
    /// Class that pays for a retransmission.
    class: Class,
}

/// The sending half of a reliable lane.
#[derive(Debug)]
pub struct SendLane {
    base: u64,
    slots: VecDeque<Slot>,
    in_flight: InFlight,
    lost: VecDeque<u64>,
    /// Second copies, sent after all lost symbols, so that one burst does not take both copies.
    copies: VecDeque<u64>,
    burst_repair: BurstRepair,
    paced_source: PacedSource,
    /// Class and time of a burst end that is not protected yet.
    ended: Option<(Class, Duration)>,
    protected_below: u64,
    /// The last burst was protected although some of it had not been sent yet.
    is_partial: bool,
    retained_bytes: usize,
    /// Number of symbols after which a reported symbol's content is freed. A repair needs the
    /// contents of its whole span.
    kept_symbols: u64,
    kept_bytes: usize,
    last_sent: Duration,
}

impl SendLane {
    pub fn new(kept_symbols: usize) -> Self {
        Self {
            base: 0,
            slots: VecDeque::new(),
            in_flight: InFlight::default(),
            lost: VecDeque::new(),
            copies: VecDeque::new(),
            burst_repair: BurstRepair::default(),
            paced_source: PacedSource::default(),
            ended: None,
            protected_below: 0,
            is_partial: false,
            retained_bytes: 0,
            kept_symbols: kept_symbols as u64,
            kept_bytes: 0,
            last_sent: Duration::ZERO,
        }
    }

    /// Number of the next new symbol.
    pub fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Returns `true` if the peer has reported the symbol `number`.
    pub fn is_reported(&self, number: u64) -> bool {
        let index = number.checked_sub(self.base);
        let slot = index.map(|index| self.slots.get(index as usize));
        slot.is_none_or(|slot| slot.is_some_and(|slot| slot.state == State::Reported))
    }

    /// Bytes of unreported symbols, with bookkeeping.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Bytes of reported symbols that repairs may still need.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Time at which a packet of the lane was last sent.
    pub fn last_sent(&self) -> Duration {
        self.last_sent
    }

    /// Stores a new symbol that is sent in `packet`, paid by `class`. Returns its number.
    pub fn push(&mut self, content: Vec<u8>, class: Class, packet: PacketId, now: Duration) -> u64 {
        let number = self.next_number();
        self.retained_bytes += content.len() + SLOT_BYTES;
        let state = State::InFlight;
        self.slots.push_back(Slot { content, last_packet: packet, state, losses: 0, class });
        self.in_flight.sent(number, packet);
        self.last_sent = now;
        if let Some(index) = self.slots.len().checked_sub(self.kept_symbols as usize + 1) {
            self.free_content(index);
            // A repair needs every content of its span, so that ranges with freed contents are
            // retransmitted.
            for (start, end) in self.burst_repair.expire(self.base, self.base + index as u64 + 1) {
                self.queue_missing(start, end);
            }
        }
        number
    }

    /// Notes that a burst of `class` ended with the newest symbol and should be protected.
    pub fn ended(&mut self, class: Class, now: Duration) {
        self.is_partial = false;
        self.ended.get_or_insert((class, now));
    }

    /// Returns `true` if the burst's end should be protected now: no symbol of the lane follows, or
    /// the repairs of later symbols would be too late for it.
    pub fn wants_protection(
        &self,
        more_follows: bool,
        now: Duration,
        policy: &RepairPolicy,
    ) -> bool {
        self.ended.is_some_and(|(_, since)| !more_follows || since + policy.delay <= now)
    }

    /// Plans repairs for all unreported symbols, if repairs are used.
    pub fn protect(&mut self, now: Duration, policy: &mut RepairPolicy) {
        let Some((class, _)) = self.ended.take().filter(|_| policy.coded) else { return };
        let end = self.next_number();
        let oldest = self.base.max(end.saturating_sub(self.kept_symbols));
        for (start, end) in self.burst_repair.extend(oldest, end, class) {
            self.queue_missing(start, end);
        }
        let symbols = end - std::mem::replace(&mut self.protected_below, end);
        let accrued = match self.is_partial {
            true => None,
            false => self.paced_source.ended(symbols, class, policy.loss, now),
        };
        if let Some(accrued) = accrued {
            return self.burst_repair.accrue(&accrued);
        }
        let (base, slots) = (self.base, &self.slots);
        self.burst_repair.flush(now, policy, |start, end| counts(base, slots, start, end));
    }

    /// Time at which [`Self::protect_again`] should be called.
    pub fn repairs_due(&self) -> Option<Duration> {
        self.burst_repair.due()
    }

    /// Plans the second half of a flush that is due.
    pub fn protect_again(&mut self, now: Duration, policy: &mut RepairPolicy) {
        let (base, slots) = (self.base, &self.slots);
        self.burst_repair.flush_rest(now, policy, |start, end| counts(base, slots, start, end));
    }

    /// Returns `true` if a burst's end waits for its protection.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns `true` if a retransmission or a repair of the classes in `carried` waits.
    pub fn has_queued(&mut self, carried: &PerClass<bool>) -> bool {
        self.next_queued(carried).is_some()
            || self.burst_repair.ready().is_some_and(|range| carried[range.class])
            || self.ended.is_some()
    }

    /// Returns `true` if the peer would accept the next new symbol.
    pub fn has_room(&self) -> bool {
        (self.slots.len() as u64) < MAX_AHEAD / 2
    }

    /// Number of the next symbol to retransmit.
    fn settle(&mut self) -> Option<u64> {
        for queue in [&mut self.lost, &mut self.copies] {
            while let Some(&number) = queue.front() {
                let index = number.checked_sub(self.base);
                if index.is_some_and(|index| self.slots[index as usize].state == State::Queued) {
                    return Some(number);
                }
                queue.pop_front();
            }
        }
        None
    }

    /// The next symbol to retransmit of the classes in `allowed`: `true` if it is in the first queue,
    /// its place there, and its number.
    fn next_queued(&mut self, allowed: &PerClass<bool>) -> Option<(bool, usize, u64)> {
        self.settle()?;
        let is_allowed = |&(_, number): &(usize, u64)| {
            let slot = number.checked_sub(self.base).and_then(|at| self.slots.get(at as usize));
            slot.is_some_and(|slot| slot.state == State::Queued && allowed[slot.class])
        };
        for (is_first, queue) in [(true, &self.lost), (false, &self.copies)] {
            let mut queued = queue.iter().copied().enumerate();
            if let Some((place, number)) = queued.find(is_allowed) {
                return Some((is_first, place, number));
            }
        }
        None
    }

    fn span(&self, span: Span) -> impl Iterator<Item = &Slot> {
        let start = (span.first - self.base) as usize;
        self.slots.range(start..start + usize::from(span.count))
    }

    /// Makes the next report count as new, because packets of this lane or another were judged.
    pub fn mark_stale(&mut self) {
        self.in_flight.mark_stale();
    }

    /// Handles a report of `path`: forgets arrived symbols and finds lost ones, with an allowance of
    /// `late_by` packets of reordering. Returns the number of symbols newly found lost, or `None`
    /// if the report names symbols that were never sent.
    pub fn report(
        &mut self,
        report: &LaneReport,
        path: u8,
        late_by: u64,
        now: Duration,
        policy: &mut RepairPolicy,
    ) -> Option<usize> {
        let end = report.runs.last().map_or(report.base, |&(_, end)| end);
        if end > self.next_number() {
            return None;
        }
        let below = std::iter::once((self.base, report.base));
        let mut news = false;
        for (start, end) in below.chain(report.runs.iter().copied()) {
            for number in self.in_flight.unreported(start, end) {
                self.forget(number);
                news = true;
            }
        }
        self.advance();
        // A report without news changes nothing, however often it is repeated.
        news |= self.in_flight.covers_more(PacketId { path, number: report.largest });
        if !news && !self.burst_repair.asks_for_more() {
            return Some(0);
        }
        let judged = PacketId { path, number: report.largest.saturating_sub(late_by) };
        let found = self.find_lost(report, judged);
        let (base, slots) = (self.base, &self.slots);
        let count = |start: u64, end: u64| counts(base, slots, start, end);
        let given_up = self.burst_repair.review(judged, &report.held, now, policy, count);
        for (start, end) in given_up {
            self.queue_missing(start, end);
        }
        Some(found)
    }

    /// Records the outcome of the packet that last carried symbol `number`, for symbols beyond a
    /// truncated report.
    pub fn on_outcome(&mut self, number: u64, packet: PacketId, lost: bool) {
        let Some(index) = number.checked_sub(self.base) else { return };
        if !lost {
            self.forget(number);
            self.advance();
        } else if let Some(slot) = self.slots.get_mut(index as usize)
            && slot.last_packet == packet
            && slot.state == State::InFlight
        {
            self.in_flight.mark_stale();
            self.lose(number);
        }
    }

    /// Drops the plans of ranges that have arrived completely, after a report.
    pub fn settle_repairs(&mut self) {
        let (base, slots) = (self.base, &self.slots);
        self.burst_repair.settle(|start, end| counts(base, slots, start, end));
    }

    fn advance(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.state == State::Reported) {
            self.free_content(0);
            self.slots.pop_front();
            self.base += 1;
        }
    }

    fn forget(&mut self, number: u64) {
        let next = self.next_number();
        let index = (number - self.base) as usize;
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.state != State::Reported {
            slot.state = State::Reported;
            self.in_flight.forget(number, slot.last_packet);
            self.retained_bytes -= slot.content.len() + SLOT_BYTES;
            self.kept_bytes += slot.content.len();
            if number + self.kept_symbols < next {
                self.free_content(index);
            }
        }
    }

    /// Frees the content of a reported symbol.
    fn free_content(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.state == State::Reported {
            self.kept_bytes -= slot.content.len();
            spare::give_content(std::mem::take(&mut slot.content));
        }
    }

    fn find_lost(&mut self, report: &LaneReport, judged: PacketId) -> usize {
        let overtaken = self.in_flight.overtaken(judged, report.covers_below());
        for &number in &overtaken {
            self.lose(number);
        }
        overtaken.len()
    }

    fn lose(&mut self, number: u64) {
        let kept = number + self.kept_symbols >= self.next_number();
        if kept && self.burst_repair.covers(number) {
            let slot = &mut self.slots[(number - self.base) as usize];
            slot.state = State::Missing;
            self.in_flight.landed(number, slot.last_packet);
        } else {
            self.queue(number);
        }
    }

    fn queue(&mut self, number: u64) {
        let slot = &mut self.slots[(number - self.base) as usize];
        slot.state = State::Queued;
        self.in_flight.landed(number, slot.last_packet);
        slot.losses = slot.losses.saturating_add(1);
        let at = self.lost.partition_point(|&queued| queued < number);
        self.lost.insert(at, number);
    }

    fn queue_missing(&mut self, start: u64, end: u64) {
        for number in start.max(self.base)..end {
            if self.slots[(number - self.base) as usize].state == State::Missing {
                self.queue(number);
            }
        }
    }

    /// Handles a probe timeout without a report. Retransmits the oldest symbols, because any report
    /// they cause reveals the outcome of everything sent before them. Plans new repairs, spread
    /// over time, because a burst that took all the previous ones may still go on.
    pub fn probe(&mut self, carried: &PerClass<bool>, now: Duration, policy: &mut RepairPolicy) {
        self.burst_repair.forget_repairs();
        let (base, slots) = (self.base, &self.slots);
        self.burst_repair.flush(now, policy, |start, end| counts(base, slots, start, end));
        self.probe_oldest(carried);
    }

    /// Retransmits the oldest symbols, except those that wait for a path of their class.
    pub fn probe_oldest(&mut self, carried: &PerClass<bool>) {
        let mut queued = 0;
        for index in 0..self.slots.len() {
            if queued == PROBE_SYMBOLS {
                break;
            }
            let slot = &self.slots[index];
            match slot.state {
                State::InFlight | State::Missing => {
                    self.queue(self.base + index as u64);
                    queued += 1;
                }
                State::Queued => queued += usize::from(carried[slot.class]),
                State::Reported => {}
            }
        }
    }
}

impl Sender for SendLane {
    fn peek(&mut self, allowed: &PerClass<bool>, _: Duration) -> Option<Lost> {
        let (_, _, number) = self.next_queued(allowed)?;
        let slot = &self.slots[(number - self.base) as usize];
        Some(Lost { number, len: slot.content.len(), class: slot.class })
    }

    fn take(
        &mut self,
        allowed: &PerClass<bool>,
        packet: PacketId,
        now: Duration,
    ) -> Option<(u64, &[u8])> {
        // When a second copy's turn comes, the first queue has only symbols of other classes.
        let (is_first, place, number) = self.next_queued(allowed)?;
        if is_first {
            self.lost.remove(place)
        } else {
            self.copies.remove(place)
        };
        let slot = &mut self.slots[(number - self.base) as usize];
        if is_first && slot.losses >= COPIED_FROM {
            self.copies.push_back(number);
        } else {
            slot.state = State::InFlight;
            self.in_flight.sent(number, packet);
        }
        slot.last_packet = packet;
        self.last_sent = now;
        Some((number, &slot.content))
    }

    fn repair_class(&mut self, _: Duration) -> Option<Class> {
        self.burst_repair.ready().map(|range| range.class)
    }

    fn peek_repair(&mut self, _: Duration) -> Option<Due> {
        let range = self.burst_repair.ready()?;
        let from = range.start.max(self.base);
        let open =
            |number: &u64| self.slots[(number - self.base) as usize].state != State::Reported;
        let first = (from..range.end).find(open)?;
        let last = (first..range.end).rev().find(open)?;
        let span = Span::new(first, (last - first + 1) as u16)?;
        let longest = self.span(span).map(|slot| slot.content.len()).max().unwrap_or(0);
        Some(Due { span, len: PREFIX_BYTES + longest, class: range.class })
    }

    fn take_repair(&mut self, span: Span, packet: PacketId, now: Duration, out: &mut Vec<u8>) {
        let sources: Vec<&[u8]> = self.span(span).map(|slot| &slot.content[..]).collect();
        encode(repair_key(packet), &sources, out);
        self.burst_repair.sent(packet);
        self.last_sent = now;
    }

    fn give_up_repair(&mut self) {
        if let Some((start, end)) = self.burst_repair.give_up() {
            self.queue_missing(start, end);
        }
    }
}

fn counts(base: u64, slots: &VecDeque<Slot>, start: u64, end: u64) -> LossCounts {
    let (start, end) = (start.max(base), end.max(base));
    let range = (start - base) as usize..(end - base) as usize;
    LossCounts::of(slots.range(range).map(|slot| slot.state))
}

mod several_paths;
#[cfg(test)]
mod tests;
