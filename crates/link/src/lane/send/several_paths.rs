//! Calls about a lane whose symbols go on several paths.

use std::time::Duration;

use bentpipe_coding::{PREFIX_BYTES, Span, encode};
use bentpipe_schedule::PerClass;

use super::{SendLane, Slot, State, counts, repair_key};
use crate::lane::protected_range::RepairPolicy;
use crate::wire::header::PacketId;

impl SendLane {
    /// Ends the burst on one path, while others still send symbols of it: those below `end` can be
    /// protected.
    pub fn ended_on_path(&mut self, end: u64, now: Duration) {
        let last = end.checked_sub(self.base + 1).and_then(|index| self.slots.get(index as usize));
        if let Some(class) = last.map(|slot| slot.class) {
            self.is_partial = self.ended.is_none();
            self.ended.get_or_insert((class, now));
        }
    }

    /// Returns `true` if the last burst was protected although some of it had not been sent yet.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns `true` if a symbol below `end` has not been reported.
    pub fn is_open_below(&self, end: u64) -> bool {
        self.base < end
    }

    /// Number of symbols that were sent after the last protection.
    pub fn unprotected(&self) -> u64 {
        self.next_number() - self.protected_below.max(self.base)
    }

    /// Returns `true` if symbols below `end` were sent after the last protection, and are unreported.
    pub fn is_unprotected(&self, end: u64) -> bool {
        end > self.protected_below.max(self.base)
    }

    /// Number of repairs to send now.
    pub fn repairs_ready(&self) -> u64 {
        self.burst_repair.repairs_ready()
    }

    /// Takes the symbols in flight on `path` for lost, because nothing arrives there, and plans new
    /// repairs for them.
    pub fn lose_path(&mut self, path: u8, now: Duration, policy: &mut RepairPolicy) {
        self.burst_repair.forget_repairs_on(path);
        let (base, slots) = (self.base, &self.slots);
        self.burst_repair.flush(now, policy, |start, end| counts(base, slots, start, end));
        for number in self.in_flight.on_path(path) {
            self.queue(number);
        }
        self.in_flight.mark_stale();
    }

    /// Returns `true` if a symbol or a repair is in flight on `path`.
    pub fn is_in_flight_on(&self, path: u8) -> bool {
        self.in_flight.is_on_path(path) || self.burst_repair.is_on_path(path)
    }

    /// Returns `true` if a probe has something to send: an unreported symbol that does not wait for a
    /// path of its class. `carried` are the classes that some path carries.
    pub fn has_probe(&self, carried: &PerClass<bool>) -> bool {
        let waits = |slot: &Slot| slot.state == State::Queued && !carried[slot.class];
        self.slots.iter().any(|slot| slot.state != State::Reported && !waits(slot))
    }

    /// Content of a symbol that no report has named.
    pub fn content_of(&self, number: u64) -> Option<&[u8]> {
        let slot = self.slots.get(usize::try_from(number.checked_sub(self.base)?).ok()?)?;
        (slot.state != State::Reported).then_some(&slot.content[..])
    }

    /// Returns `true` if another repair of `span` can be made and may help: the content of each symbol
    /// is still held, and one is unreported.
    fn is_repairable(&self, span: Span) -> bool {
        let kept_from = self.next_number().saturating_sub(self.kept_symbols);
        span.first >= self.base.max(kept_from)
            && self.span(span).any(|slot| slot.state != State::Reported)
    }

    /// Length of the coded bytes of another repair of `span`, unless it would not help.
    pub fn repair_len(&self, span: Span) -> Option<usize> {
        let longest = self.is_repairable(span).then(|| self.span(span).map(|it| it.content.len()));
        longest.map(|lens| PREFIX_BYTES + lens.max().unwrap_or(0))
    }

    /// Appends another repair of `span`, to be sent in `packet` besides the planned ones.
    pub fn repair_again(&self, span: Span, packet: PacketId, out: &mut Vec<u8>) {
        if self.is_repairable(span) {
            let sources: Vec<&[u8]> = self.span(span).map(|slot| &slot.content[..]).collect();
            encode(repair_key(packet), &sources, out);
        }
    }

    /// Returns `true` if a symbol that the next repair protects was last sent on `path`.
    pub fn repairs_symbols_of(&self, path: u8) -> bool {
        let Some(range) = self.burst_repair.ready() else { return false };
        let from = range.start.max(self.base);
        let mut slots =
            (from..range.end).filter_map(|at| self.slots.get((at - self.base) as usize));
        slots.any(|slot| slot.state != State::Reported && slot.last_packet.path == path)
    }

    /// Bytes of symbols that wait for retransmission, or of the repairs that are ready.
    pub fn queued_bytes(&self) -> usize {
        let bytes_of = |number: &u64| {
            let slot = number.checked_sub(self.base).and_then(|at| self.slots.get(at as usize));
            slot.filter(|slot| slot.state == State::Queued).map_or(0, |slot| slot.content.len())
        };
        self.lost.iter().map(bytes_of).sum()
    }
}
