//! The sending half of the datagram lane, whose symbols are useless once they are late.
//!
//! - A symbol has a lifetime, which counts from the time its datagrams were handed over.
//! - Repairs protect it for its lifetime.
//! - It is retransmitted if it would still arrive in time. The earliest retransmission arrives one
//!   and a half round trips after the symbol was sent.
//! - Expired symbols are given up: the base moves past them. If reports show that the receiver
//!   still waits, a SLIDE tells it.
//! - There are no probes: a sender of datagrams repeats its request, or does not care.

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_coding::{MAX_SPAN, PREFIX_BYTES, Span, encode};
use bentpipe_schedule::{Class, PerClass};

use super::Lane;
use super::in_flight::InFlight;
use super::limits::{MAX_AHEAD, SLOT_BYTES, repair_key};
use super::paced_repair::PacedRepair;
use super::protected_range::{LossCounts, RepairPolicy, State};
use super::sender::{Due, Lost, Sender};
use crate::wire::frame::Slide;
use crate::wire::header::PacketId;
use crate::wire::report::LaneReport;

/// Number of symbols that a receiver keeps for repairs of this lane: twice the longest span.
pub const KEPT_SYMBOLS: usize = 2 * MAX_SPAN;

/// One-way delays until the retransmission of a lost symbol arrives: it is sent after a round trip,
/// and arrives half a round trip later.
const ONE_WAYS_TO_RETRANSMIT: u32 = 3;

/// Minimum wait for the outcome of an expired symbol, in one-way delays: eight round trips …
const ONE_WAYS_PATIENCE: u32 = 16;
/// … but not less than this. A peer that reports nothing makes us keep only what was sent within
/// that time.
const MIN_PATIENCE: Duration = Duration::from_secs(5);

/// A symbol to be sent for the first time.
#[derive(Debug)]
pub struct NewSymbol {
    pub content: Vec<u8>,
    /// Number of datagrams in it.
    pub datagrams: u32,
    /// Class of the datagrams, which pays for the symbol.
    pub class: Class,
    /// Time at which the last of them expires.
    pub expires: Duration,
}

#[derive(Debug)]
struct Slot {
    content: Vec<u8>,
    datagrams: u32,
    class: Class,
    expires: Duration,
    last_packet: PacketId,
    state: State,
}

impl Slot {
    fn is_useful(&self, now: Duration) -> bool {
        self.state != State::Reported && now < self.expires
    }

    /// Returns `true` if the symbol would arrive in time if it were sent now.
    fn is_in_time(&self, now: Duration, one_way: Duration) -> bool {
        now + one_way <= self.expires
    }
}

/// The sending half of the datagram lane.
#[derive(Debug, Default)]
pub struct DatagramSender {
    base: u64,
    slots: VecDeque<Slot>,
    in_flight: InFlight,
    lost: VecDeque<u64>,
    paced_repair: PacedRepair,
    retained_bytes: usize,
    /// One-way delay to the peer.
    one_way: Duration,
    /// Number below which the peer waits for nothing.
    peer_base: u64,
    /// A SLIDE should be sent.
    slides: bool,
    /// Packet of the last SLIDE, until a report could show its effect.
    slide_sent_in: Option<PacketId>,
    abandoned: u64,
}

impl DatagramSender {
    /// Sets the one-way delay to the peer.
    pub fn tune(&mut self, one_way: Duration) {
        self.one_way = one_way;
    }

    /// Number of the next new symbol.
    pub fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Bytes held for symbols that are unreported or needed for repairs, with bookkeeping.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Number of datagrams given up so far.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Returns `true` if the peer would accept the next new symbol.
    pub fn has_room(&self) -> bool {
        self.next_number() - self.peer_base < MAX_AHEAD / 2
    }

    /// Stores a new symbol that is sent in `packet`, and gives up the oldest symbols if more than
    /// `max_bytes` would be held. Returns its number.
    pub fn push(
        &mut self,
        fresh: NewSymbol,
        packet: PacketId,
        max_bytes: usize,
        now: Duration,
        policy: &RepairPolicy,
    ) -> u64 {
        let number = self.next_number();
        let NewSymbol { content, datagrams, class, expires } = fresh;
        self.retained_bytes += content.len() + SLOT_BYTES;
        self.slots.push_back(Slot {
            content,
            datagrams,
            class,
            expires,
            last_packet: packet,
            state: State::InFlight,
        });
        self.in_flight.sent(number, packet);
        self.settle(now);
        while self.retained_bytes > max_bytes && self.slots.len() > 1 {
            self.pop();
        }
        let lifetime = expires.saturating_sub(now);
        let is_retransmitted = lifetime >= self.one_way * ONE_WAYS_TO_RETRANSMIT;
        self.paced_repair.pushed(number + 1, class, lifetime, is_retransmitted, now, policy);
        number
    }

    /// Notes that no datagram waits after the newest symbol.
    pub fn ended(&mut self, now: Duration) {
        self.paced_repair.ended(now);
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn due(&self) -> Option<Duration> {
        self.paced_repair.due()
    }

    /// Prepares the repairs that are due by `now`. `waiting` says that datagrams wait for the link.
    pub fn handle_timeout(&mut self, waiting: bool, now: Duration, policy: &mut RepairPolicy) {
        self.settle(now);
        let (base, slots) = (self.base, &self.slots);
        let start = first_useful(base, slots, now);
        self.paced_repair
            .flush(start, waiting, now, policy, |start, end| counts(base, slots, now, start, end));
    }

    /// Makes the next report count as new, because packets of this lane or another were judged.
    pub fn mark_stale(&mut self) {
        self.in_flight.mark_stale();
    }

    /// Handles a report whose newest packet is `newest`. Returns the number of symbols newly found
    /// lost, or `None` if the report names symbols that were never sent.
    pub fn report(
        &mut self,
        report: &LaneReport,
        newest: PacketId,
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
            news |= self.note_reported(start, end);
        }
        self.peer_base = self.peer_base.max(report.base);
        // A report without news changes nothing except what the peer has to be told.
        let found =
            if self.in_flight.covers_more(PacketId { number: report.largest, ..newest }) || news {
                self.judge(report, newest.path, late_by, now, policy)
            } else {
                0
            };
        self.settle(now);
        // A SLIDE sent after the newest reported packet, or on another path, had no chance yet.
        let had_chance =
            |packet: PacketId| packet.path == newest.path && packet.number <= newest.number;
        if self.slide_sent_in.is_none_or(had_chance) {
            self.slides = self.peer_base < self.base;
            self.slide_sent_in = None;
        }
        Some(found)
    }

    /// Finds losses and plans repairs after a report. Returns the number of symbols found lost.
    fn judge(
        &mut self,
        report: &LaneReport,
        path: u8,
        late_by: u64,
        now: Duration,
        policy: &mut RepairPolicy,
    ) -> usize {
        let judged = PacketId { path, number: report.largest.saturating_sub(late_by) };
        let found = self.find_lost(report, judged);
        let (base, slots) = (self.base, &self.slots);
        let start = first_useful(base, slots, now);
        let count = |start, end| counts(base, slots, now, start, end);
        let short = self.paced_repair.review(start, judged, &report.held, now, policy, count);
        self.queue(short, now);
        found
    }

    /// Records the outcome of the packet that last carried symbol `number`.
    pub fn on_outcome(&mut self, number: u64, packet: PacketId, lost: bool) {
        let index = number.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        let Some(slot) = index.and_then(|index| self.slots.get_mut(index)) else { return };
        if !lost {
            slot.state = State::Reported;
            self.in_flight.forget(number, slot.last_packet);
        } else if slot.last_packet == packet && slot.state == State::InFlight {
            slot.state = State::Missing;
            self.in_flight.landed(number, packet);
            self.in_flight.mark_stale();
        }
    }

    /// SLIDE for the peer now, if one is due.
    pub fn slide(&self) -> Option<Slide> {
        self.slides.then_some(Slide { lane: Lane::Datagram, base: self.base })
    }

    /// Notes that the SLIDE was sent in `packet`.
    pub fn slid(&mut self, packet: PacketId) {
        self.slides = false;
        self.slide_sent_in = Some(packet);
    }

    /// Forgets that a SLIDE is under way on `path`, because nothing arrives there.
    pub fn forget_slide_on(&mut self, path: u8) {
        self.slide_sent_in = self.slide_sent_in.filter(|packet| packet.path != path);
    }

    /// Marks symbols as arrived. Returns `true` if that was unknown of any.
    fn note_reported(&mut self, start: u64, end: u64) -> bool {
        let news = self.in_flight.unreported(start.max(self.base), end);
        for &number in &news {
            let slot = &mut self.slots[(number - self.base) as usize];
            slot.state = State::Reported;
            self.in_flight.forget(number, slot.last_packet);
        }
        !news.is_empty()
    }

    fn find_lost(&mut self, report: &LaneReport, judged: PacketId) -> usize {
        let overtaken = self.in_flight.overtaken(judged, report.covers_below());
        for &number in &overtaken {
            let slot = &mut self.slots[(number - self.base) as usize];
            slot.state = State::Missing;
            self.in_flight.landed(number, slot.last_packet);
        }
        overtaken.len()
    }

    /// Retransmits the oldest `max` missing symbols of those that would arrive in time.
    fn queue(&mut self, max: u32, now: Duration) {
        let one_way = self.one_way;
        let missing = self
            .slots
            .iter_mut()
            .zip(self.base..)
            .filter(|(slot, _)| slot.state == State::Missing && slot.is_in_time(now, one_way));
        for (slot, number) in missing.take(max as usize) {
            slot.state = State::Queued;
            let at = self.lost.partition_point(|&queued| queued < number);
            self.lost.insert(at, number);
        }
    }

    /// Drops arrived symbols, and expired symbols that did not arrive. An expired symbol that may
    /// have arrived waits a while for a report.
    fn settle(&mut self, now: Duration) {
        let patience = (self.one_way * ONE_WAYS_PATIENCE).max(MIN_PATIENCE);
        while self.slots.front().is_some_and(|slot| match slot.state {
            State::Reported => true,
            State::InFlight => now >= slot.expires + patience,
            State::Missing | State::Queued => now >= slot.expires,
        }) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        let Some(slot) = self.slots.pop_front() else { return };
        self.in_flight.forget(self.base, slot.last_packet);
        self.base += 1;
        self.retained_bytes -= slot.content.len() + SLOT_BYTES;
        if slot.state != State::Reported {
            self.abandoned += u64::from(slot.datagrams);
        }
    }

    /// Place in the queue and number of the oldest symbol to retransmit of the classes in `allowed`
    /// that would arrive in time.
    fn next_queued(&mut self, allowed: &PerClass<bool>, now: Duration) -> Option<(usize, u64)> {
        let (base, one_way) = (self.base, self.one_way);
        while let Some(&number) = self.lost.front() {
            let index = number.checked_sub(base);
            if let Some(slot) = index.and_then(|index| self.slots.get_mut(index as usize))
                && slot.state == State::Queued
            {
                if slot.is_in_time(now, one_way) {
                    break;
                }
                slot.state = State::Missing;
            }
            self.lost.pop_front();
        }
        let is_allowed = |&(_, number): &(usize, u64)| {
            let slot = number.checked_sub(base).and_then(|at| self.slots.get(at as usize));
            slot.is_some_and(|slot| {
                slot.state == State::Queued && slot.is_in_time(now, one_way) && allowed[slot.class]
            })
        };
        self.lost.iter().copied().enumerate().find(is_allowed)
    }

    /// Content of a symbol that would still help.
    pub fn content_of(&self, number: u64) -> Option<&[u8]> {
        let slot = self.slots.get(usize::try_from(number.checked_sub(self.base)?).ok()?)?;
        (slot.state != State::Reported).then_some(&slot.content[..])
    }

    /// Length of the coded bytes of another repair of `span`, unless it would not help.
    pub fn repair_len(&self, span: Span) -> Option<usize> {
        if span.first < self.base || self.span(span).all(|slot| slot.state == State::Reported) {
            return None;
        }
        let longest = self.span(span).map(|slot| slot.content.len()).max().unwrap_or(0);
        Some(PREFIX_BYTES + longest)
    }

    /// Appends another repair of `span`, to be sent in `packet` besides the planned ones.
    pub fn repair_again(&self, span: Span, packet: PacketId, out: &mut Vec<u8>) {
        if span.first >= self.base {
            let sources: Vec<&[u8]> = self.span(span).map(|slot| &slot.content[..]).collect();
            encode(repair_key(packet), &sources, out);
        }
    }

    fn span(&self, span: Span) -> impl Iterator<Item = &Slot> {
        let start = (span.first - self.base) as usize;
        self.slots.range(start..start + usize::from(span.count))
    }
}

impl Sender for DatagramSender {
    fn peek(&mut self, allowed: &PerClass<bool>, now: Duration) -> Option<Lost> {
        let (_, number) = self.next_queued(allowed, now)?;
        let slot = self.slots.get((number - self.base) as usize)?;
        Some(Lost { number, len: slot.content.len(), class: slot.class })
    }

    fn take(
        &mut self,
        allowed: &PerClass<bool>,
        packet: PacketId,
        now: Duration,
    ) -> Option<(u64, &[u8])> {
        let (place, number) = self.next_queued(allowed, now)?;
        self.lost.remove(place);
        let slot = self.slots.get_mut((number - self.base) as usize)?;
        (slot.state, slot.last_packet) = (State::InFlight, packet);
        self.in_flight.sent(number, packet);
        Some((number, &slot.content))
    }

    fn repair_class(&mut self, now: Duration) -> Option<Class> {
        self.peek_repair(now).map(|due| due.class)
    }

    fn peek_repair(&mut self, now: Duration) -> Option<Due> {
        let class = self.paced_repair.ready()?;
        let from = self.slots.len().saturating_sub(MAX_SPAN);
        let mut useful = (from..self.slots.len()).filter(|&index| self.slots[index].is_useful(now));
        let first = useful.next();
        let span = first.and_then(|first| {
            let last = useful.next_back().unwrap_or(first);
            Span::new(self.base + first as u64, (last - first + 1) as u16)
        });
        if span.is_none() {
            self.paced_repair.give_up();
        }
        let longest = self.span(span?).map(|slot| slot.content.len()).max().unwrap_or(0);
        Some(Due { span: span?, len: PREFIX_BYTES + longest, class })
    }

    fn take_repair(&mut self, span: Span, packet: PacketId, _: Duration, out: &mut Vec<u8>) {
        let sources: Vec<&[u8]> = self.span(span).map(|slot| &slot.content[..]).collect();
        encode(repair_key(packet), &sources, out);
        self.paced_repair.sent(packet);
    }

    fn give_up_repair(&mut self) {
        self.paced_repair.give_up();
    }
}

/// The oldest useful symbol, or the next one to be made.
fn first_useful(base: u64, slots: &VecDeque<Slot>, now: Duration) -> u64 {
    let index = slots.iter().position(|slot| slot.is_useful(now));
    base + index.unwrap_or(slots.len()) as u64
}

fn counts(base: u64, slots: &VecDeque<Slot>, now: Duration, start: u64, end: u64) -> LossCounts {
    let (start, end) = (start.max(base), end.max(base));
    let range = (start - base) as usize..(end.max(start) - base) as usize;
    let useful = slots.range(range).filter(|slot| slot.is_useful(now));
    LossCounts::of(useful.map(|slot| slot.state))
}

#[cfg(test)]
mod tests;
