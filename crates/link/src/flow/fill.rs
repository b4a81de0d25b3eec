//! Contents of the next symbol, chosen at the moment its packet is sent.

use std::time::Duration;

use bentpipe_schedule::PerClass;

use super::scheduling::sent;
use super::state::{Flow, Stream};
use super::{FlowTable, PacketCharge};
use crate::Class;
use crate::lane::Lane;
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame;

/// Room below which a symbol counts as full: a STREAM header and a few bytes.
const MIN_ROOM: usize = 32;
/// Room for an OPEN with the longest name, or for all other control frames of one flow.
const CONTROL_ROOM: usize = 300;
/// Room for an OPEN to an address with the longest claim after it.
const CLAIM_ROOM: usize = 330;

/// Description of a filled symbol of streams and control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Class of the burst that ended with the symbol, if one did: all that a flow had to send for now,
    /// or the most favoured control frames.
    pub ended: Option<Class>,
    /// Charge of its packet.
    pub charge: PacketCharge,
}

/// A symbol that is being filled.
struct Symbol<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
    /// Bytes of each class.
    paid: PerClass<usize>,
}

impl Symbol<'_> {
    fn room(&self) -> usize {
        self.end - self.out.len()
    }

    /// Appends frames of `class`. Returns their length.
    fn put(&mut self, class: Class, put: impl FnOnce(&mut Vec<u8>)) -> usize {
        let before = self.out.len();
        put(self.out);
        let bytes = self.out.len() - before;
        self.paid[class] += bytes;
        bytes
    }
}

impl FlowTable {
    /// Fills a symbol of `lane` with up to `room` bytes of frames.
    pub fn fill(&mut self, lane: Lane, room: usize, out: &mut Vec<u8>, now: Duration) -> Content {
        self.openings.clear();
        let end = out.len() + room;
        let mut symbol = Symbol { out, end, paid: PerClass::default() };
        let leads = lane == Lane::Urgent && self.control_leads(now);
        if leads {
            self.fill_control(&mut symbol, now);
        }
        let mut ended = PacketCharge::best_of(&symbol.paid);
        let (mut newcomer, mut paths) = (None, None);
        while symbol.room() >= MIN_ROOM {
            let turn = self.next_turn(now).filter(|(_, other)| *other == lane);
            let Some((id, _)) = turn else { break };
            let is_new = self.next_is_new(now);
            let Some(flow) = self.flows.get(id) else { break };
            let (class, passenger) = (flow.state().class, flow.state().passenger);
            // A passenger who has just begun does not wait for others' bytes to fill the packet.
            if newcomer.is_some_and(|newcomer| newcomer != passenger) && !is_new {
                break;
            }
            newcomer = newcomer.or(is_new.then_some(passenger));
            // The choice of paths, for copies and retransmissions too, is that of the whole symbol.
            let choice = self.limits.classes[class].paths;
            if *paths.get_or_insert(choice) != choice {
                break;
            }
            if flow.is_opening() {
                let needed = if flow.state().control.claim { CLAIM_ROOM } else { CONTROL_ROOM };
                if symbol.room() < needed {
                    break;
                }
                self.fill_opening(id, &mut symbol, now);
                ended = Some(ended.map_or(class, |other| other.min(class)));
                continue;
            }
            if !self.fill_stream(id, &mut symbol, now) {
                break;
            }
            self.control.had_turn();
            let stream = self.flows.stream(id);
            if !stream.is_some_and(|stream| self.bursts.continues(stream, lane, now)) {
                ended = self.bursts.end((passenger, class), lane).or(ended);
            }
        }
        Content { ended, charge: PacketCharge::of_symbol(&symbol.paid) }
    }

    /// Puts the flow's opening in its turn, with its first data if there is any.
    fn fill_opening(&mut self, id: u64, symbol: &mut Symbol<'_>, now: Duration) {
        self.control.had_turn();
        let Some(flow) = self.flows.get_mut(id) else { return };
        let turn = flow.state().turn;
        let class = flow.state().class;
        let bytes = symbol.put(class, |out| flow.put_control(id, out));
        if let Some(turn) = turn {
            self.turns.scheduler_mut().spent(turn, bytes, now);
        }
        self.openings.push(id);
        if flow.is_datagrams() {
            self.fill_first_datagram(id, class, symbol, now);
            self.refresh(id, now);
            return;
        }
        self.refresh(id, now);
        if self.flows.stream(id).is_some_and(|stream| stream.send.is_ready()) {
            self.fill_stream(id, symbol, now);
        }
        self.remove_if_over(id);
    }

    /// Puts the first datagram next to the opening of its flow, if it fits.
    fn fill_first_datagram(
        &mut self,
        id: u64,
        class: Class,
        symbol: &mut Symbol<'_>,
        now: Duration,
    ) {
        let Some(flow) = self.flows.datagrams_mut(id) else { return };
        let scheduler = self.turns.scheduler_mut();
        if let Some(len) = self.datagrams.next_len(flow, scheduler, now)
            && frame::datagram_len(id, len) <= symbol.room()
            && let Some((first, _)) = self.datagrams.pop(flow, scheduler, now)
        {
            let bytes = symbol.put(class, |out| frame::put_datagram(out, id, &first.item, false));
            self.datagrams.counts.sent += 1;
            if let Some(turn) = flow.state.turn {
                scheduler.spent_datagram(turn, bytes, first.waited, now);
                scheduler.record_payload(turn, sent(len));
            }
        }
    }

    /// Puts control frames.
    fn fill_control(&mut self, symbol: &mut Symbol<'_>, now: Duration) {
        let before = symbol.out.len();
        // The class of a flow that was never accepted is unknown.
        let class = Class::default();
        while symbol.room() >= 2 * MAX_VARINT_BYTES
            && let Some((id, code)) = self.control.next_refusal()
        {
            symbol.put(class, |out| frame::put_reset(out, id, code));
        }
        let refused = symbol.out.len() - before;
        if refused > 0 {
            self.charge(class, refused, now);
        }
        while symbol.room() >= CONTROL_ROOM
            && let Some(id) = self.control.next(&mut self.flows)
        {
            let Some(flow) = self.flows.get_mut(id) else { continue };
            let class = flow.state().class;
            let bytes = symbol.put(class, |out| flow.put_control(id, out));
            if bytes > 0 {
                self.charge(class, bytes, now);
            }
            self.remove_if_over(id);
        }
        self.control.led(symbol.out.len() - before);
    }

    /// Puts one STREAM frame of the flow. Returns `false` if there was nothing to put.
    fn fill_stream(&mut self, id: u64, symbol: &mut Symbol<'_>, now: Duration) -> bool {
        let Some(stream) = self.flows.stream_mut(id) else { return false };
        let header = frame::stream_head_len(id, stream.send.offset());
        let Some(without_length) = symbol.room().checked_sub(header) else { return false };
        let (mut len, mut fin) = stream.send.next_len(without_length);
        // A frame that does not reach the symbol's end has a length, of at most three bytes.
        let fills = len == without_length;
        if !fills && len + 3 > without_length {
            (len, fin) = stream.send.next_len(without_length - 3);
        }
        if len == 0 && !fin {
            return false;
        }
        let length = (!fills).then_some(len as u64);
        let class = stream.state.class;
        let bytes = symbol.put(class, |out| {
            frame::put_stream_head(out, id, stream.send.offset(), fin, length);
            stream.send.take(len, fin, out, now, self.bursts.pause());
        });
        stream.state.active = now;
        if let Some(turn) = stream.state.turn {
            self.turns.scheduler_mut().spent(turn, bytes, now);
            self.turns.scheduler_mut().record_payload(turn, sent(len));
        }
        self.wake_writer(id);
        self.free_unsent(id, len);
        self.refresh(id, now);
        self.remove_if_over(id);
        true
    }
}

impl Flow {
    /// Puts all control frames that wait.
    fn put_control(&mut self, id: u64, out: &mut Vec<u8>) {
        match self {
            Self::Stream(stream) => stream.put_control(id, out),
            Self::Datagrams(datagrams) => {
                let control = std::mem::take(&mut datagrams.state.control);
                if let Some(opening) = control.open {
                    out.extend_from_slice(&opening);
                    datagrams.state.opened = true;
                }
                if let Some(code) = control.reset {
                    frame::put_reset(out, id, code);
                }
            }
        }
    }
}

impl Stream {
    fn put_control(&mut self, id: u64, out: &mut Vec<u8>) {
        let control = std::mem::take(&mut self.state.control);
        let (class, passenger) = (self.state.class, self.state.passenger);
        if let Some(target) = control.open {
            frame::put_open(out, id, class, passenger, self.recv.limit(), &target);
            self.state.opened = true;
            if let Some(claim) = self.claim.as_ref().filter(|_| control.claim) {
                frame::put_claim(out, id, claim);
            }
        } else if control.credit {
            frame::put_credit(out, id, self.recv.limit());
        }
        if let Some(class) = self.confirmed.filter(|_| control.class) {
            frame::put_class(out, id, class);
        }
        if let Some(code) = control.stop {
            frame::put_stop(out, id, code);
        }
        if let Some(code) = control.reset {
            frame::put_reset(out, id, code);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
