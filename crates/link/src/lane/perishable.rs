//! The sender's half of the datagram lane: symbols that are of no use once they are late.
//!
//! A symbol is looked after for its lifetime, which counts from when its datagrams were handed over:
//! as long it is protected by repairs, and it is sent again where it would still come in time, which
//! is a round trip and a half after it left at the earliest. What is over by then is given up: the
//! base slides over it, and a SLIDE tells the receiver when its reports show that it still waits.
//! Nothing is probed for: who sent a datagram asks again himself, or does not care.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_coding::{MAX_SPAN, PREFIX_BYTES, Span, encode};
use bentpipe_schedule::Class;

use super::flight::Flight;
use super::recv::MAX_AHEAD;
use super::segment::{Census, Rule, State};
use super::send::repair_key;
use super::sender::{Due, Lost, Sender};
use super::shield::Shield;
use super::{Lane, SLOT_BYTES};
use crate::wire::frame::Slide;
use crate::wire::report::LaneReport;

/// Symbols that a receiver keeps for repairs of this lane: what a span may reach, twice.
pub const KEPT_SYMBOLS: usize = 2 * MAX_SPAN;

/// One-way delays until a lost symbol that is sent again arrives: it left a round trip ago, and
/// arrives half a round trip later.
const ONE_WAYS_TO_COME_AGAIN: u32 = 3;

/// Least time for which the fate of an expired symbol is awaited, eight round trips …
const ONE_WAYS_UNTOLD: u32 = 16;
/// … this long. Who reports nothing of it makes us keep no more than what was sent in that time.
const LEAST_UNTOLD: Duration = Duration::from_secs(5);

/// A symbol as it is made.
#[derive(Debug)]
pub struct Fresh {
    pub content: Vec<u8>,
    /// Number of datagrams in it.
    pub datagrams: u32,
    /// Theirs, which pays for the symbol.
    pub class: Class,
    /// End of the last of their lifetimes.
    pub expires: Duration,
}

#[derive(Debug)]
struct Slot {
    content: Vec<u8>,
    datagrams: u32,
    class: Class,
    expires: Duration,
    last_packet: u64,
    state: State,
}

impl Slot {
    fn is_of_use(&self, now: Duration) -> bool {
        self.state != State::Reported && now < self.expires
    }

    /// Returns `true` if it would arrive in time if it left now.
    fn is_in_time(&self, now: Duration, one_way: Duration) -> bool {
        now + one_way <= self.expires
    }
}

/// The lane.
#[derive(Debug, Default)]
pub struct Perishable {
    base: u64,
    slots: VecDeque<Slot>,
    flight: Flight,
    lost: VecDeque<u64>,
    shield: Shield,
    retained_bytes: usize,
    /// One-way delay to the peer.
    one_way: Duration,
    /// Below it the peer waits for nothing.
    peer_base: u64,
    /// A SLIDE should leave.
    slides: bool,
    /// The packet that carried the last SLIDE, until a report could tell what came of it.
    told_in: Option<u64>,
    abandoned: u64,
}

impl Perishable {
    /// Tells how long a packet takes to the peer.
    pub fn tune(&mut self, one_way: Duration) {
        self.one_way = one_way;
    }

    /// The number that the next new symbol will have.
    pub fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Bytes held for symbols that nothing is known of or that repairs need, bookkeeping included.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Datagrams that were given up, of all so far.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Returns `true` if the peer would accept the next new symbol.
    pub fn has_room(&self) -> bool {
        self.next_number() - self.peer_base < MAX_AHEAD / 2
    }

    /// Takes a new symbol that leaves in `packet`, and gives up the oldest where more than
    /// `most_bytes` would be held. Returns its number.
    pub fn push(
        &mut self,
        fresh: Fresh,
        packet: u64,
        most_bytes: usize,
        now: Duration,
        rule: &Rule,
    ) -> u64 {
        let number = self.next_number();
        let Fresh { content, datagrams, class, expires } = fresh;
        self.retained_bytes += content.len() + SLOT_BYTES;
        self.slots.push_back(Slot {
            content,
            datagrams,
            class,
            expires,
            last_packet: packet,
            state: State::InFlight,
        });
        self.flight.sent(number, packet);
        self.settle(now);
        while self.retained_bytes > most_bytes && self.slots.len() > 1 {
            self.pop();
        }
        let lifetime = expires.saturating_sub(now);
        let comes_again = lifetime >= self.one_way * ONE_WAYS_TO_COME_AGAIN;
        self.shield.pushed(number + 1, class, lifetime, comes_again, now, rule);
        number
    }

    /// Nothing more waits behind the newest symbol.
    pub fn ended(&mut self, now: Duration) {
        self.shield.ended(now);
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn due(&self) -> Option<Duration> {
        self.shield.due()
    }

    /// Repairs that are due by `now` get ready; `waiting` says that datagrams wait for the link.
    pub fn handle_timeout(&mut self, waiting: bool, now: Duration, rule: &mut Rule) {
        self.settle(now);
        let (base, slots) = (self.base, &self.slots);
        let start = first_of_use(base, slots, now);
        self.shield
            .flush(start, waiting, now, rule, |start, end| census(base, slots, now, start, end));
    }

    /// Returns `true` if a retransmission or a repair waits.
    pub fn has_queued(&mut self, now: Duration) -> bool {
        self.peek(now).is_some() || self.peek_repair(now).is_some()
    }

    /// Packets of this lane or another have been judged: the next report is thought over, even if it
    /// says nothing new of the lane.
    pub fn think_again(&mut self) {
        self.flight.think_again();
    }

    /// Believes a report whose newest packet is `newest`. Returns how many symbols were newly found
    /// lost, or `None` when it names symbols that were never sent.
    pub fn report(
        &mut self,
        report: &LaneReport,
        newest: u64,
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
            news |= self.note_reported(start, end);
        }
        self.peer_base = self.peer_base.max(report.base);
        // What says nothing new changes nothing but what the peer has to be told.
        let found = if self.flight.tells_more(report.largest) || news {
            self.judge(report, late_by, now, rule)
        } else {
            0
        };
        self.settle(now);
        // The one that has just left had no chance yet.
        if self.told_in.is_none_or(|packet| packet <= newest) {
            self.slides = self.peer_base < self.base;
            self.told_in = None;
        }
        Some(found)
    }

    /// Draws conclusions from what a report says; returns how many symbols were found lost.
    fn judge(
        &mut self,
        report: &LaneReport,
        late_by: u64,
        now: Duration,
        rule: &mut Rule,
    ) -> usize {
        let found = self.find_lost(report, late_by);
        let (base, slots) = (self.base, &self.slots);
        let start = first_of_use(base, slots, now);
        let judged = report.largest.saturating_sub(late_by);
        let count = |start, end| census(base, slots, now, start, end);
        let short = self.shield.review(start, judged, &report.held, rule, count);
        self.queue(short, now);
        found
    }

    /// Records the fate of the packet that carried symbol `number` last.
    pub fn fate(&mut self, number: u64, packet: u64, lost: bool) {
        let index = number.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        let Some(slot) = index.and_then(|index| self.slots.get_mut(index)) else { return };
        if !lost {
            slot.state = State::Reported;
            self.flight.forget(number, slot.last_packet);
        } else if slot.last_packet == packet && slot.state == State::InFlight {
            slot.state = State::Missing;
            self.flight.landed(number, packet);
            self.flight.think_again();
        }
    }

    /// Message for the peer now: the number below which nothing will arrive any more.
    pub fn slide(&self) -> Option<Slide> {
        self.slides.then_some(Slide { lane: Lane::Datagram, base: self.base })
    }

    /// The SLIDE leaves in `packet`.
    pub fn slid(&mut self, packet: u64) {
        self.slides = false;
        self.told_in = Some(packet);
    }

    /// Those symbols have come; whether that was unknown of any.
    fn note_reported(&mut self, start: u64, end: u64) -> bool {
        let news = self.flight.unreported(start.max(self.base), end);
        for &number in &news {
            let slot = &mut self.slots[(number - self.base) as usize];
            slot.state = State::Reported;
            self.flight.forget(number, slot.last_packet);
        }
        !news.is_empty()
    }

    fn find_lost(&mut self, report: &LaneReport, late_by: u64) -> usize {
        let before = report.largest.saturating_sub(late_by);
        let overtaken = self.flight.overtaken(before, report.covers_below());
        for &number in &overtaken {
            let slot = &mut self.slots[(number - self.base) as usize];
            slot.state = State::Missing;
            self.flight.landed(number, slot.last_packet);
        }
        overtaken.len()
    }

    /// The oldest `most` that are missing are sent again, of those that would come in time.
    fn queue(&mut self, most: u32, now: Duration) {
        let one_way = self.one_way;
        let missing = self
            .slots
            .iter_mut()
            .zip(self.base..)
            .filter(|(slot, _)| slot.state == State::Missing && slot.is_in_time(now, one_way));
        for (slot, number) in missing.take(most as usize) {
            slot.state = State::Queued;
            let at = self.lost.partition_point(|&queued| queued < number);
            self.lost.insert(at, number);
        }
    }

    /// Lets go of what has come, and of what did not come and is over. Of what is over and may have
    /// come a report will tell, or none ever does.
    fn settle(&mut self, now: Duration) {
        let untold = (self.one_way * ONE_WAYS_UNTOLD).max(LEAST_UNTOLD);
        while self.slots.front().is_some_and(|slot| match slot.state {
            State::Reported => true,
            State::InFlight => now >= slot.expires + untold,
            State::Missing | State::Queued => now >= slot.expires,
        }) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        let Some(slot) = self.slots.pop_front() else { return };
        self.flight.forget(self.base, slot.last_packet);
        self.base += 1;
        self.retained_bytes -= slot.content.len() + SLOT_BYTES;
        if slot.state != State::Reported {
            self.abandoned += u64::from(slot.datagrams);
        }
    }

    fn span(&self, span: Span) -> impl Iterator<Item = &Slot> {
        let start = (span.first - self.base) as usize;
        self.slots.range(start..start + usize::from(span.count))
    }
}

impl Sender for Perishable {
    fn peek(&mut self, now: Duration) -> Option<Lost> {
        while let Some(&number) = self.lost.front() {
            let index = number.checked_sub(self.base);
            if let Some(slot) = index.and_then(|index| self.slots.get_mut(index as usize))
                && slot.state == State::Queued
            {
                if slot.is_in_time(now, self.one_way) {
                    return Some(Lost { number, len: slot.content.len(), class: slot.class });
                }
                slot.state = State::Missing;
            }
            self.lost.pop_front();
        }
        None
    }

    fn take(&mut self, packet: u64, now: Duration) -> Option<(u64, &[u8])> {
        let Lost { number, .. } = self.peek(now)?;
        self.lost.pop_front();
        let slot = self.slots.get_mut((number - self.base) as usize)?;
        (slot.state, slot.last_packet) = (State::InFlight, packet);
        self.flight.sent(number, packet);
        Some((number, &slot.content))
    }

    fn repair_class(&mut self, now: Duration) -> Option<Class> {
        self.peek_repair(now).map(|due| due.class)
    }

    fn peek_repair(&mut self, now: Duration) -> Option<Due> {
        let class = self.shield.ready()?;
        let from = self.slots.len().saturating_sub(MAX_SPAN);
        let mut of_use = (from..self.slots.len()).filter(|&index| self.slots[index].is_of_use(now));
        let first = of_use.next();
        let span = first.and_then(|first| {
            let last = of_use.next_back().unwrap_or(first);
            Span::new(self.base + first as u64, (last - first + 1) as u16)
        });
        if span.is_none() {
            self.shield.give_up();
        }
        let longest = self.span(span?).map(|slot| slot.content.len()).max().unwrap_or(0);
        Some(Due { span: span?, len: PREFIX_BYTES + longest, class })
    }

    fn take_repair(&mut self, span: Span, packet: u64, _: Duration, out: &mut Vec<u8>) {
        let sources: Vec<&[u8]> = self.span(span).map(|slot| &slot.content[..]).collect();
        encode(repair_key(packet), &sources, out);
        self.shield.sent(packet);
    }

    fn give_up_repair(&mut self) {
        self.shield.give_up();
    }
}

/// The oldest symbol that is of use, or the next one to come.
fn first_of_use(base: u64, slots: &VecDeque<Slot>, now: Duration) -> u64 {
    let index = slots.iter().position(|slot| slot.is_of_use(now));
    base + index.unwrap_or(slots.len()) as u64
}

fn census(base: u64, slots: &VecDeque<Slot>, now: Duration, start: u64, end: u64) -> Census {
    let (start, end) = (start.max(base), end.max(base));
    let range = (start - base) as usize..(end.max(start) - base) as usize;
    let of_use = slots.range(range).filter(|slot| slot.is_of_use(now));
    Census::of(of_use.map(|slot| slot.state))
}

#[cfg(test)]
mod tests;
