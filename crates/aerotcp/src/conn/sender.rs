//! Sending half of a connection: AeroTCP's error control (section V.D) in a window that losses
//! never reduce (section V.C).

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::scoreboard::{AckResult, Packet, Scoreboard};
use super::timer::Timer;
use crate::segment::Ack;

/// Section V.D: "After timeout, two copies of the dropped packet are sent".
const COPIES_AFTER_TIMEOUT: usize = 2;

/// The peer acknowledged data that was never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeverSent;

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    board: Scoreboard,
    unsent: VecDeque<u8>,
    /// Oldest unacknowledged number.
    acknowledged: u64,
    /// Next number to be sent for the first time.
    next: u64,
    /// End of the peer's advertised window.
    edge: u64,
    opens: bool,
    finish: Finish,
    recovery: Option<Recovery>,
    timer: Timer,
    /// Copies of the oldest packet that must be sent after a timeout.
    copies: VecDeque<Packet>,
    /// Time of the last probe of the peer's closed window.
    asked_at: Option<Duration>,
    timeouts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    No,
    Wanted,
    Sent,
}

/// Super fast recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// An acknowledgement of this number ends the recovery: "all data that was outstanding when
    /// fast recovery was entered".
    pub point: u64,
    /// "The estimated number of packets outstanding in the path".
    pub pipe: u32,
}

impl Sender {
    /// Creates a half. If it `opens`, its first packet is a SYN. The peer has room for `window`
    /// bytes.
    pub fn new(opens: bool, window: u64, rtt: Duration) -> Self {
        let first = u64::from(!opens);
        Self {
            board: Scoreboard::default(),
            unsent: VecDeque::new(),
            acknowledged: first,
            next: first,
            // The window counts bytes, and the SYN is not a byte.
            edge: 1 + window,
            opens,
            finish: Finish::No,
            recovery: None,
            timer: Timer::new(rtt),
            copies: VecDeque::new(),
            asked_at: None,
            timeouts: 0,
        }
    }

    /// Appends data to send.
    pub fn write(&mut self, data: &[u8]) {
        if self.finish == Finish::No {
            self.unsent.extend(data);
        }
    }

    /// Queues the FIN after all written data.
    pub fn finish(&mut self) {
        if self.finish == Finish::No {
            self.finish = Finish::Wanted;
        }
    }

    /// Drops unsent data and queues the FIN, because the peer has stopped reading.
    pub fn abandon(&mut self) {
        self.unsent.clear();
        self.finish();
    }

    /// Returns `true` if the FIN was requested.
    pub fn is_finishing(&self) -> bool {
        self.finish != Finish::No
    }

    /// Returns `true` if everything, the FIN included, is acknowledged.
    pub fn is_done(&self) -> bool {
        self.finish == Finish::Sent && self.board.oldest().is_none()
    }

    /// Number of unacknowledged bytes.
    pub fn held_bytes(&self) -> usize {
        self.unsent.len() + self.board.bytes()
    }

    /// Returns `true` if something that must be acknowledged is in flight.
    pub fn awaits_answer(&self) -> bool {
        self.board.oldest().is_some() || self.asked_at.is_some()
    }

    /// Super fast recovery, while it lasts.
    #[cfg(test)]
    pub fn recovery(&self) -> Option<Recovery> {
        self.recovery
    }

    /// Retransmission timer with the measured or assumed round trip.
    pub fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Number of timeouts so far.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// Handles an acknowledgement. `window` is the congestion window in packets.
    pub fn acknowledge(&mut self, ack: &Ack, window: u32, now: Duration) -> Result<(), NeverSent> {
        if ack.number > self.next || ack.blocks.iter().any(|block| block.end > self.next) {
            return Err(NeverSent);
        }
        if ack.number < self.acknowledged {
            return Ok(()); // reordered
        }
        // The SYN takes no room.
        self.edge = self.edge.max(ack.number.max(1) + ack.window);
        self.asked_at = None;
        let advanced = self.board.acknowledge(ack.number);
        let mut reported = AckResult::default();
        for block in &ack.blocks {
            let news = self.board.sack(*block);
            reported.arrived += news.arrived;
            reported.sent_at = reported.sent_at.max(news.sent_at);
        }
        if let Some(sent_at) = reported.sent_at.max(advanced.sent_at) {
            self.timer.sample(now.saturating_sub(sent_at));
        }
        if ack.number > self.acknowledged {
            self.acknowledged = ack.number;
            self.timer.reset_back_off();
            self.copies.retain(|packet| packet.start >= ack.number);
            self.leave_or_go_on();
        } else if !ack.blocks.is_empty() {
            self.duplicate(reported.arrived > 0, window);
        }
        Ok(())
    }

    /// Handles an acknowledgement that advances.
    fn leave_or_go_on(&mut self) {
        let Some(recovery) = &mut self.recovery else { return };
        if self.acknowledged >= recovery.point {
            // The recovery acknowledgement. The window does not change.
            self.recovery = None;
        } else {
            // "For partial ACKs, the sender decrements pipe by two packets rather than one": the
            // original, which was still counted, and its retransmission.
            recovery.pipe = recovery.pipe.saturating_sub(2);
        }
    }

    /// Handles an acknowledgement that does not advance.
    fn duplicate(&mut self, anything_new: bool, window: u32) {
        match &mut self.recovery {
            // The first duplicate is enough, "since out-of-order delivery in satellite channel is
            // impossible". Pipe starts as the window. The dropped packet is subtracted here, and
            // added when it is retransmitted.
            None => {
                let pipe = window.saturating_sub(1);
                self.recovery = Some(Recovery { point: self.next, pipe });
            }
            Some(recovery) if anything_new => recovery.pipe = recovery.pipe.saturating_sub(1),
            Some(_) => {}
        }
    }

    /// Takes the packet to send now, if one may be sent. `window` is the congestion window in
    /// packets, and `room` returns the space for the payload of a packet that begins at a number.
    pub fn next(
        &mut self,
        window: u32,
        room: impl FnOnce(u64) -> usize,
        now: Duration,
    ) -> Option<Packet> {
        if let Some(copy) = self.copies.pop_front() {
            return Some(copy);
        }
        if self.under_way() < window {
            // "It retransmits the next packet from the list of packets inferred to be missing"; "if
            // there are no such packets and the receiver's advertised window is sufficiently large,
            // the sender sends a new packet".
            let hole = self.recovery.and_then(|_| self.board.take_hole(now));
            if let Some(packet) = hole.or_else(|| self.new_packet(room, now)) {
                if let Some(recovery) = &mut self.recovery {
                    recovery.pipe += 1;
                }
                return Some(packet);
            }
        }
        if self.is_blocked() && self.asked_at.is_none() {
            self.asked_at = Some(now); // the first probe follows a timeout
        }
        None
    }

    /// Estimated number of packets in the path.
    fn under_way(&self) -> u32 {
        let outstanding = u32::try_from(self.board.len()).unwrap_or(u32::MAX);
        self.recovery.map_or(outstanding, |recovery| recovery.pipe)
    }

    fn wants_syn(&self) -> bool {
        self.opens && self.next == 0
    }

    fn has_new_packet(&self) -> bool {
        let bytes = !self.unsent.is_empty() && self.edge > self.next.max(1);
        let ends = self.unsent.is_empty() && self.finish == Finish::Wanted;
        self.wants_syn() || bytes || ends
    }

    fn new_packet(&mut self, room: impl FnOnce(u64) -> usize, now: Duration) -> Option<Packet> {
        if !self.has_new_packet() {
            return None;
        }
        let (start, syn) = (self.next, self.wants_syn());
        let within_window = self.edge.saturating_sub(start.max(1));
        let most = u64::try_from(room(start)).unwrap_or(u64::MAX).min(within_window);
        let bytes = self.unsent.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let payload: Bytes = self.unsent.drain(..bytes).collect();
        let fin = self.unsent.is_empty() && self.finish == Finish::Wanted;
        if fin {
            self.finish = Finish::Sent;
        }
        let packet = Packet::new(start, syn, fin, payload, now);
        self.next = packet.end;
        self.board.push(packet.clone());
        Some(packet)
    }

    /// Returns `true` if data waits, nothing is in flight, and the peer has no room.
    fn is_blocked(&self) -> bool {
        self.board.oldest().is_none() && !self.unsent.is_empty() && !self.has_new_packet()
    }

    /// Time at which [`Self::on_timeout`] should be called.
    ///
    /// The timer runs for the oldest packet, from its last transmission. If several retransmissions
    /// were lost, each is overdue as soon as the one before has arrived.
    pub fn deadline(&self) -> Option<Duration> {
        let since = match self.board.oldest() {
            Some(oldest) => Some(oldest.sent_at),
            None => self.asked_at.filter(|_| self.is_blocked()),
        };
        since.map(|since| since + self.timer.timeout())
    }

    /// Handles a timeout: the oldest packet will be sent twice. Returns `true` if nothing is in
    /// flight and the peer's closed window should be probed.
    pub fn on_timeout(&mut self, now: Duration) -> bool {
        if self.deadline().is_none_or(|at| at > now) {
            return false;
        }
        let overdue = now.saturating_sub(self.timer.timeout());
        self.timer.back_off();
        // "Retransmit timeouts as the recovery method of last resort": like TCP's, which assumes
        // that everything outstanding is lost. Here only overdue packets are, and the window stays.
        // Pipe is counted again. It counts one of the two copies, because nothing would subtract
        // the other.
        self.board.give_up(overdue);
        self.copies.clear();
        let Some(packet) = self.board.send_oldest_again(now) else {
            self.asked_at = Some(now);
            return true;
        };
        self.timeouts += 1;
        self.copies.extend(std::iter::repeat_n(packet, COPIES_AFTER_TIMEOUT));
        let pipe = u32::try_from(self.board.sent_since(overdue)).unwrap_or(u32::MAX);
        let point = self.recovery.map_or(self.next, |recovery| recovery.point);
        self.recovery = Some(Recovery { point, pipe });
        false
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
