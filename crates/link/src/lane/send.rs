//! The scoreboard: symbols that were sent and not yet reported, and what to send for them.
//!
//! A symbol is *lost* once a report names a later packet of its lane and not the symbol. That is
//! judged by packet, so a retransmission that is lost again is found the same way, one round trip
//! after it was sent. Lost symbols of bulk under backlog are sent again, oldest first. Those that end
//! a burst are left to the [`Guard`]'s repairs, most of which leave before any loss is known. When
//! nobody reports at all, a probe follows.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_coding::{PREFIX_BYTES, Span, encode};

use super::flight::Flight;
use super::guard::Guard;
use super::recv::MAX_AHEAD;
use super::segment::{Census, Rule, State};
use super::sender::{Due, Lost};
use super::steady::Steady;
use crate::Class;
use crate::wire::report::LaneReport;

/// Number of the oldest symbols that are sent again after a probe timeout without a report.
const PROBE_SYMBOLS: usize = 2;

/// From so many losses of one symbol on, it is sent twice. Few are lost so often, and those few hold
/// up all that follow: at 40 % one symbol in forty, where otherwise one of the 8,000 in the window of
/// a long path is lost ten times in a row and empties the window.
const COPIED_FROM: u8 = 4;

/// Bookkeeping charged for each retained symbol beside its content.
pub const SLOT_BYTES: usize = 64;

#[derive(Debug)]
struct Slot {
    content: Vec<u8>,
    last_packet: u64,
    state: State,
    /// Number of times it was queued as lost.
    losses: u8,
    /// Class that pays when it is sent again.
    class: Class,
}

/// The sender's half of a lane.
#[derive(Debug)]
pub struct SendLane {
    base: u64,
    slots: VecDeque<Slot>,
    flight: Flight,
    lost: VecDeque<u64>,
    /// Second copies, which follow all that is lost: one burst should not take both.
    copies: VecDeque<u64>,
    guard: Guard,
    steady: Steady,
    /// Burst end that is not protected yet: its class, and its time.
    ended: Option<(Class, Duration)>,
    protected_below: u64,
    retained_bytes: usize,
    /// Reported symbols keep their contents while no more than so many follow them, since a repair
    /// of a span needs all of it.
    kept_symbols: u64,
    kept_bytes: usize,
    last_sent: Duration,
}

impl SendLane {
    pub fn new(kept_symbols: usize) -> Self {
        Self {
            base: 0,
            slots: VecDeque::new(),
            flight: Flight::default(),
            lost: VecDeque::new(),
            copies: VecDeque::new(),
            guard: Guard::default(),
            steady: Steady::default(),
            ended: None,
            protected_below: 0,
            retained_bytes: 0,
            kept_symbols: kept_symbols as u64,
            kept_bytes: 0,
            last_sent: Duration::ZERO,
        }
    }

    /// The number that the next new symbol will have.
    pub fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Bytes that wait to be reported, bookkeeping included.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Contents of reported symbols that repairs may still need.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    pub fn is_clear(&self) -> bool {
        self.slots.is_empty()
    }

    /// Time at which a packet of the lane last left.
    pub fn last_sent(&self) -> Duration {
        self.last_sent
    }

    /// Retains a new symbol that leaves in `packet`, and of which `class` pays; returns its number.
    pub fn push(&mut self, content: Vec<u8>, class: Class, packet: u64, now: Duration) -> u64 {
        let number = self.next_number();
        self.retained_bytes += content.len() + SLOT_BYTES;
        let state = State::InFlight;
        self.slots.push_back(Slot { content, last_packet: packet, state, losses: 0, class });
        self.flight.sent(number, packet);
        self.last_sent = now;
        if let Some(index) = self.slots.len().checked_sub(self.kept_symbols as usize + 1) {
            self.let_go(index);
            // A repair needs every content of its span: what begins earlier is sent again itself.
            for (start, end) in self.guard.expire(self.base, self.base + index as u64 + 1) {
                self.queue_missing(start, end);
            }
        }
        number
    }

    /// A burst of `class` ended with the newest symbol: it wants to be protected.
    pub fn ended(&mut self, class: Class, now: Duration) {
        self.ended.get_or_insert((class, now));
    }

    /// Returns `true` if the burst's end should be protected now: nothing more of the lane follows,
    /// or it has waited so long that the repairs of later symbols would come late for it.
    pub fn wants_protection(&self, more_follows: bool, now: Duration, rule: &Rule) -> bool {
        self.ended.is_some_and(|(_, since)| !more_follows || since + rule.delay <= now)
    }

    /// Repairs for all that is unreported become due, where there are any.
    pub fn protect(&mut self, now: Duration, rule: &mut Rule) {
        let Some((class, _)) = self.ended.take().filter(|_| rule.coded) else { return };
        let end = self.next_number();
        let oldest = self.base.max(end.saturating_sub(self.kept_symbols));
        for (start, end) in self.guard.extend(oldest, end, class) {
            self.queue_missing(start, end);
        }
        let symbols = end - std::mem::replace(&mut self.protected_below, end);
        if let Some(accrued) = self.steady.ended(symbols, class, rule.loss, now) {
            return self.guard.accrue(&accrued);
        }
        let (base, slots) = (self.base, &self.slots);
        self.guard.flush(now, rule, |start, end| census(base, slots, start, end));
    }

    /// Time at which [`Self::protect_again`] should be called.
    pub fn repairs_due(&self) -> Option<Duration> {
        self.guard.due()
    }

    /// The second half of a flush is due.
    pub fn protect_again(&mut self, now: Duration, rule: &mut Rule) {
        let (base, slots) = (self.base, &self.slots);
        self.guard.flush_rest(now, rule, |start, end| census(base, slots, start, end));
    }

    /// Class of the waiting repair, if there is one.
    pub fn repair_class(&self) -> Option<Class> {
        self.guard.ready().map(|segment| segment.class)
    }

    /// Returns `true` if a lost symbol waits to be sent again.
    pub fn has_lost(&mut self) -> bool {
        self.settle().is_some()
    }

    /// Returns `true` if a retransmission, or a repair, waits.
    pub fn has_queued(&mut self) -> bool {
        self.has_lost() || self.repair_class().is_some() || self.ended.is_some()
    }

    /// Returns `true` if the peer would accept the next new symbol.
    pub fn has_room(&self) -> bool {
        (self.slots.len() as u64) < MAX_AHEAD / 2
    }

    /// Symbol that [`Self::take`] would give.
    pub fn peek(&mut self) -> Option<Lost> {
        let number = self.settle()?;
        let slot = &self.slots[(number - self.base) as usize];
        Some(Lost { number, len: slot.content.len(), class: slot.class })
    }

    /// The first in the queue that still has to be sent.
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

    /// Takes the oldest lost symbol, as leaving in `packet`.
    pub fn take(&mut self, packet: u64, now: Duration) -> Option<(u64, &[u8])> {
        let number = self.settle()?;
        // Nothing that still has to be sent is left in the first queue when its second copy's turn
        // comes.
        let is_first = self.lost.pop_front().is_some();
        let slot = &mut self.slots[(number - self.base) as usize];
        if is_first && slot.losses >= COPIED_FROM {
            self.copies.push_back(number);
        } else {
            slot.state = State::InFlight;
            self.flight.sent(number, packet);
        }
        if !is_first {
            self.copies.pop_front();
        }
        slot.last_packet = packet;
        self.last_sent = now;
        Some((number, &slot.content))
    }

    /// Repair that [`Self::take_repair`] would make.
    pub fn peek_repair(&self) -> Option<Due> {
        let segment = self.guard.ready()?;
        let from = segment.start.max(self.base);
        let open =
            |number: &u64| self.slots[(number - self.base) as usize].state != State::Reported;
        let first = (from..segment.end).find(open)?;
        let last = (first..segment.end).rev().find(open)?;
        let span = Span::new(first, (last - first + 1) as u16)?;
        let longest = self.span(span).map(|slot| slot.content.len()).max().unwrap_or(0);
        Some(Due { span, len: PREFIX_BYTES + longest, class: segment.class })
    }

    /// Appends the repair of `span`, as [`Self::peek_repair`] gave it, as leaving in `packet`.
    pub fn take_repair(&mut self, span: Span, packet: u64, now: Duration, out: &mut Vec<u8>) {
        let sources: Vec<&[u8]> = self.span(span).map(|slot| &slot.content[..]).collect();
        encode(repair_key(packet), &sources, out);
        self.guard.sent(packet);
        self.last_sent = now;
    }

    fn span(&self, span: Span) -> impl Iterator<Item = &Slot> {
        let start = (span.first - self.base) as usize;
        self.slots.range(start..start + usize::from(span.count))
    }

    /// The next repair would not fit into a packet: its symbols are sent again one by one.
    pub fn give_up_repair(&mut self) {
        if let Some((start, end)) = self.guard.give_up() {
            self.queue_missing(start, end);
        }
    }

    /// Packets of this lane or another have been judged: the next report is thought over, even if it
    /// says nothing new of the lane.
    pub fn think_again(&mut self) {
        self.flight.think_again();
    }

    /// Believes a report: forgets what has come, finds what is missing. `late_by` packets of
    /// reordering are waited for. Returns how many symbols were newly found lost, or `None` when
    /// the report names symbols that were never sent.
    pub fn report(
        &mut self,
        report: &LaneReport,
        late_by: u64,
        now: Duration,
        rule: &mut Rule,
    ) -> Option<usize> {
        let end = report.runs.last().map_or(report.base, |&(_, end)| end);
        if end > self.next_number() {
            return None;
        }
        let below = std::iter::once((self.base, report.base));
        let mut news = false;
        for (start, end) in below.chain(report.runs.iter().copied()) {
            for number in self.flight.unreported(start, end) {
                self.forget(number);
                news = true;
            }
        }
        self.advance();
        // What says nothing new changes nothing, however often it is said.
        news |= self.flight.tells_more(report.largest);
        if !news && !self.guard.asks_for_more() {
            return Some(0);
        }
        let found = self.find_lost(report, late_by);
        let (base, slots) = (self.base, &self.slots);
        let judged = report.largest.saturating_sub(late_by);
        let count = |start: u64, end: u64| census(base, slots, start, end);
        let given_up = self.guard.review(judged, &report.held, now, rule, count);
        for (start, end) in given_up {
            self.queue_missing(start, end);
        }
        Some(found)
    }

    /// The packet that carried symbol `number` last is known to have come, or to be lost; for
    /// symbols that a truncated report does not reach.
    pub fn fate(&mut self, number: u64, packet: u64, lost: bool) {
        let Some(index) = number.checked_sub(self.base) else { return };
        if !lost {
            self.forget(number);
            self.advance();
        } else if let Some(slot) = self.slots.get_mut(index as usize)
            && slot.last_packet == packet
            && slot.state == State::InFlight
        {
            self.flight.think_again();
            self.lose(number);
        }
    }

    /// A report is done with: segments of which all has come need no more repairs.
    pub fn settle_repairs(&mut self) {
        let (base, slots) = (self.base, &self.slots);
        self.guard.settle(|start, end| census(base, slots, start, end));
    }

    fn advance(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.state == State::Reported) {
            self.let_go(0);
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
            self.flight.forget(number, slot.last_packet);
            self.retained_bytes -= slot.content.len() + SLOT_BYTES;
            self.kept_bytes += slot.content.len();
            if number + self.kept_symbols < next {
                self.let_go(index);
            }
        }
    }

    /// Frees the content of a reported symbol.
    fn let_go(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.state == State::Reported {
            self.kept_bytes -= slot.content.len();
            slot.content = Vec::new();
        }
    }

    fn find_lost(&mut self, report: &LaneReport, late_by: u64) -> usize {
        let before = report.largest.saturating_sub(late_by);
        let overtaken = self.flight.overtaken(before, report.covers_below());
        for &number in &overtaken {
            self.lose(number);
        }
        overtaken.len()
    }

    fn lose(&mut self, number: u64) {
        let kept = number + self.kept_symbols >= self.next_number();
        if kept && self.guard.covers(number) {
            let slot = &mut self.slots[(number - self.base) as usize];
            slot.state = State::Missing;
            self.flight.landed(number, slot.last_packet);
        } else {
            self.queue(number);
        }
    }

    fn queue(&mut self, number: u64) {
        let slot = &mut self.slots[(number - self.base) as usize];
        slot.state = State::Queued;
        self.flight.landed(number, slot.last_packet);
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

    /// Nobody has answered for a probe timeout: sends the oldest symbols again, since whatever
    /// report they cause tells the fate of all that left before them; and repairs anew, spread over
    /// time, since what took all of the last may be a burst that still goes on.
    pub fn probe(&mut self, now: Duration, rule: &mut Rule) {
        self.guard.forget_repairs();
        let (base, slots) = (self.base, &self.slots);
        self.guard.flush(now, rule, |start, end| census(base, slots, start, end));
        self.probe_oldest();
    }

    /// Sends the oldest symbols again.
    pub fn probe_oldest(&mut self) {
        let mut queued = 0;
        for index in 0..self.slots.len() {
            if queued == PROBE_SYMBOLS {
                break;
            }
            match self.slots[index].state {
                State::InFlight | State::Missing => {
                    self.queue(self.base + index as u64);
                    queued += 1;
                }
                State::Queued => queued += 1,
                State::Reported => {}
            }
        }
    }
}

/// The key of the repair in `packet`: RFC 8681 gives it 16 bits.
pub fn repair_key(packet: u64) -> u16 {
    packet as u16
}

fn census(base: u64, slots: &VecDeque<Slot>, start: u64, end: u64) -> Census {
    let (start, end) = (start.max(base), end.max(base));
    let range = (start - base) as usize..(end - base) as usize;
    Census::of(slots.range(range).map(|slot| slot.state))
}

#[cfg(test)]
mod tests;
