//! One proxy as a pure state machine. Inputs are the time and the data from its near side and from
//! the link. Outputs are datagrams and events for the near side.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;
use std::time::Duration;

use bytes::Bytes;

use super::packet::{MAX_BYTES, MAX_RANGES, MAX_REPORTED_FLOWS, Packet, Piece, Report};
use super::sending::Sending;

/// Sends a report after this many packets, or this long after the first unreported one.
const REPORT_EVERY: u32 = 2;
const REPORT_AFTER: Duration = Duration::from_millis(10);
/// Maximum ended flows that are remembered, so that a late packet does not reopen one.
const MAX_ENDED: usize = 8192;
/// Maximum concurrent flows. Each may buffer a window of received data: 2.8 GB if all of them do.
pub const MAX_FLOWS: usize = 4096;

/// Limits of the proxy, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum bytes from the near side, over all flows, that have not been confirmed to have
    /// crossed the link: 4 MB of memory.
    pub buffer: usize,
    /// Maximum bytes in flight on the link, and maximum bytes of each flow that the other proxy
    /// buffers.
    pub window: usize,
    /// Sources are told to stop when less than this is free in the buffer.
    pub reserve: usize,
}

/// Event for the near side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A new flow to this destination.
    Open(u32, SocketAddrV4),
    /// Bytes for the near side.
    Bytes(u32, Bytes),
    /// End of the data.
    End(u32),
    /// The flow has ended; reset its connection.
    Reset(u32),
}

/// One proxy.
#[derive(Debug)]
pub struct Half {
    bounds: Bounds,
    sending: Sending,
    flows: BTreeMap<u32, Flow>,
    ended: BTreeSet<u32>,
    /// Flows that may have something to send. Each appears once; they take turns.
    turns: VecDeque<u32>,
    resets_to_send: VecDeque<u32>,
    events: VecDeque<Event>,
    buffered: usize,
    stopped: bool,
    resets: u64,
    /// Received packet numbers as ranges, keyed by the first number of each.
    came: BTreeMap<u64, u64>,
    unreported: u32,
    report_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct Flow {
    /// Destination of the flow, until it is sent.
    open: Option<SocketAddrV4>,
    pending: VecDeque<Bytes>,
    /// Bytes from the near side that have not been confirmed to have crossed.
    held: usize,
    sent: u64,
    /// Sent bytes that the other proxy has delivered.
    delivered: u64,
    near_ended: bool,
    end_sent: bool,
    end_came: bool,
    early: BTreeMap<u64, Bytes>,
    next: u64,
    far_end: Option<u64>,
    far_ended: bool,
    handed: u64,
    told: u64,
}

impl Half {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            sending: Sending::new(bounds.window),
            flows: BTreeMap::new(),
            ended: BTreeSet::new(),
            turns: VecDeque::new(),
            resets_to_send: VecDeque::new(),
            events: VecDeque::new(),
            buffered: 0,
            stopped: false,
            resets: 0,
            came: BTreeMap::new(),
            unreported: 0,
            report_at: None,
        }
    }

    /// Returns `true` while sources are stopped: from the time the free space falls below the
    /// reserve until half of the buffer is free again.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Number of flows reset because the buffer was full.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Registers a connection of the near side as `flow` to `target`.
    pub fn open(&mut self, flow: u32, target: SocketAddrV4) {
        self.flows.insert(flow, Flow { open: Some(target), ..Flow::default() });
        self.turns.push_back(flow);
    }

    /// Takes bytes from the near side, which its kernel has already acknowledged. If the buffer
    /// cannot hold them, the flow that holds most of it is reset.
    pub fn took(&mut self, flow: u32, bytes: Bytes) {
        let Some(state) = self.flows.get_mut(&flow) else { return };
        state.held += bytes.len();
        self.buffered += bytes.len();
        state.pending.push_back(bytes);
        self.turn(flow);
        while self.buffered > self.bounds.buffer
            && let Some(largest) = self.flows.iter().max_by_key(|(_, flow)| flow.held)
        {
            let largest = *largest.0;
            self.resets += 1;
            self.break_off(largest);
            self.events.push_back(Event::Reset(largest));
        }
        self.note_level();
    }

    /// Records that the near side has ended.
    pub fn near_ended(&mut self, flow: u32) {
        if let Some(state) = self.flows.get_mut(&flow) {
            state.near_ended = true;
            self.turn(flow);
        }
    }

    /// Records that the near side's connection broke.
    pub fn broke(&mut self, flow: u32) {
        self.break_off(flow);
        self.note_level();
    }

    /// Records that `bytes` were delivered to the near side.
    pub fn handed(&mut self, flow: u32, bytes: usize, now: Duration) {
        if let Some(state) = self.flows.get_mut(&flow) {
            state.handed += bytes as u64;
            self.report_at.get_or_insert(now + REPORT_AFTER);
        }
    }

    /// Handles a datagram from the other proxy.
    pub fn datagram(&mut self, datagram: &[u8], now: Duration) {
        match Packet::decode(datagram) {
            Some(Packet::Data(number, piece)) => {
                let is_taken = self.piece(piece);
                if is_taken {
                    self.note(number);
                    self.unreported += 1;
                    self.report_at.get_or_insert(now + REPORT_AFTER);
                }
            }
            Some(Packet::Report(report)) => self.report(&report, now),
            None => {}
        }
    }

    /// The next datagram to send.
    pub fn transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.unreported >= REPORT_EVERY || self.report_at.is_some_and(|at| at <= now) {
            return Some(self.make_report());
        }
        if !self.sending.has_room() {
            return None;
        }
        let piece = self.next_piece()?;
        let number = self.sending.sent(piece.clone(), now);
        Some(Packet::Data(number, piece).encode())
    }

    /// Time at which [`Self::timeout`] should be called.
    pub fn timeout_at(&self) -> Option<Duration> {
        [self.sending.timeout_at(), self.report_at].into_iter().flatten().min()
    }

    pub fn timeout(&mut self, now: Duration) {
        self.sending.timeout(now);
    }

    fn next_piece(&mut self) -> Option<Piece> {
        while let Some(lost) = self.sending.take_lost() {
            // Lost pieces of an ended flow need no retransmission, except a reset.
            if lost.reset || self.flows.contains_key(&lost.flow) {
                return Some(lost);
            }
        }
        if let Some(flow) = self.resets_to_send.pop_front() {
            let (bytes, offset) = (Bytes::new(), 0);
            return Some(Piece { flow, offset, open: None, end: false, reset: true, bytes });
        }
        while let Some(flow) = self.turns.pop_front() {
            let window = self.bounds.window as u64;
            let Some(state) = self.flows.get_mut(&flow) else { continue };
            if let Some(piece) = state.next_piece(flow, window) {
                self.turn(flow);
                return Some(piece);
            }
        }
        None
    }

    /// Takes the contents of a packet. Returns `false` if it cannot be taken yet.
    fn piece(&mut self, piece: Piece) -> bool {
        let flow = piece.flow;
        if let Some(target) = piece.open
            && !self.flows.contains_key(&flow)
            && !self.ended.contains(&flow)
            && self.flows.len() < MAX_FLOWS
        {
            self.flows.insert(flow, Flow::default());
            self.events.push_back(Event::Open(flow, target));
        }
        if piece.reset {
            // The first packet of this flow may still be in flight. It must not reopen the flow.
            if self.forget(flow) {
                self.events.push_back(Event::Reset(flow));
            }
            self.note_level();
            return true;
        }
        let Some(state) = self.flows.get_mut(&flow) else { return self.ended.contains(&flow) };
        let end = piece.offset.saturating_add(piece.bytes.len() as u64);
        if end > state.handed + self.bounds.window as u64 {
            return false;
        }
        state.take(piece, flow, &mut self.events);
        self.finish(flow);
        true
    }

    fn report(&mut self, report: &Report, now: Duration) {
        for &(flow, delivered) in &report.delivered {
            if let Some(state) = self.flows.get_mut(&flow) {
                state.delivered = state.delivered.max(delivered);
                self.turn(flow);
            }
        }
        for piece in self.sending.reported(&report.ranges, now) {
            let Some(state) = self.flows.get_mut(&piece.flow) else { continue };
            state.held = state.held.saturating_sub(piece.bytes.len());
            self.buffered = self.buffered.saturating_sub(piece.bytes.len());
            state.end_came |= piece.end;
            self.finish(piece.flow);
        }
        self.note_level();
    }

    fn make_report(&mut self) -> Vec<u8> {
        (self.unreported, self.report_at) = (0, None);
        let ranges = self.came.iter().rev().take(MAX_RANGES).map(|(a, b)| (*a, *b)).collect();
        let mut delivered = Vec::new();
        for (flow, state) in &mut self.flows {
            if state.handed > state.told && delivered.len() < MAX_REPORTED_FLOWS {
                state.told = state.handed;
                delivered.push((*flow, state.handed));
            }
        }
        if self.flows.values().any(|state| state.handed > state.told) {
            // The rest follows at once in another report.
            self.report_at = Some(Duration::ZERO);
        }
        Packet::Report(Report { ranges, delivered }).encode()
    }

    /// Records that the packet with this number arrived.
    fn note(&mut self, number: u64) {
        let (mut first, mut last) = (number, number);
        if let Some((&before, &end)) = self.came.range(..=number).next_back()
            && end.saturating_add(1) >= number
        {
            (first, last) = (before, end.max(number));
        }
        if let Some(end) = last.checked_add(1).and_then(|next| self.came.remove(&next)) {
            last = end;
        }
        self.came.insert(first, last);
        if self.came.len() > MAX_RANGES {
            self.came.pop_first();
        }
    }

    /// Ends `flow` and sends a reset to the other proxy.
    fn break_off(&mut self, flow: u32) {
        if self.forget(flow) {
            self.resets_to_send.push_back(flow);
        }
    }

    fn forget(&mut self, flow: u32) -> bool {
        self.ended.insert(flow);
        if self.ended.len() > MAX_ENDED {
            self.ended.pop_first();
        }
        let Some(state) = self.flows.remove(&flow) else { return false };
        self.buffered = self.buffered.saturating_sub(state.held);
        true
    }

    /// Removes `flow` if both its directions have ended.
    fn finish(&mut self, flow: u32) {
        if self.flows.get(&flow).is_some_and(|state| state.end_came && state.far_ended) {
            self.forget(flow);
        }
    }

    fn turn(&mut self, flow: u32) {
        if !self.turns.contains(&flow) {
            self.turns.push_back(flow);
        }
    }

    fn note_level(&mut self) {
        let Bounds { buffer, reserve, .. } = self.bounds;
        if self.buffered + reserve > buffer {
            self.stopped = true;
        } else if self.buffered <= buffer / 2 {
            self.stopped = false;
        }
    }
}

impl Flow {
    /// Next piece to send, at most `window` bytes ahead of the delivered bytes.
    fn next_piece(&mut self, flow: u32, window: u64) -> Option<Piece> {
        let (open, offset) = (self.open.take(), self.sent);
        let room = (self.delivered + window).saturating_sub(self.sent).min(MAX_BYTES as u64);
        let mut bytes = Bytes::new();
        if room > 0
            && let Some(mut front) = self.pending.pop_front()
        {
            bytes = front.split_to(front.len().min(room as usize));
            if !front.is_empty() {
                self.pending.push_front(front);
            }
        }
        self.sent += bytes.len() as u64;
        let end = self.near_ended && self.pending.is_empty() && !self.end_sent;
        self.end_sent |= end;
        let is_piece = open.is_some() || end || !bytes.is_empty();
        is_piece.then_some(Piece { flow, offset, open, end, reset: false, bytes })
    }

    /// Orders received pieces, and delivers those without a gap before them.
    fn take(&mut self, piece: Piece, flow: u32, events: &mut VecDeque<Event>) {
        let end = piece.offset + piece.bytes.len() as u64;
        if piece.end {
            self.far_end = Some(end);
        }
        // Pieces are retransmitted unchanged, so the same offset means the same piece.
        if piece.offset >= self.next && !piece.bytes.is_empty() {
            self.early.insert(piece.offset, piece.bytes);
        }
        while let Some(bytes) = self.early.remove(&self.next) {
            self.next += bytes.len() as u64;
            events.push_back(Event::Bytes(flow, bytes));
        }
        if self.far_end == Some(self.next) && !self.far_ended {
            self.far_ended = true;
            events.push_back(Event::End(flow));
        }
    }
}

#[cfg(test)]
mod tests;
