//! One proxy as a value: what comes from its near side and from the link goes in with the time, and
//! datagrams and words to the near side come out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;
use std::time::Duration;

use bytes::Bytes;

use super::packet::{MOST_BYTES, MOST_FLOWS, MOST_RANGES, Packet, Piece, Report};
use super::sending::Sending;

/// A report leaves after so many packets, or so long after one.
const REPORT_EVERY: u32 = 2;
const REPORT_AFTER: Duration = Duration::from_millis(10);
/// Numbers of flows that are over and remembered, so that no straggler opens one again.
const MOST_ENDED: usize = 8192;
/// Flows at once. What each may hold of what came is the window: 2.8 GB, were all of them to.
pub const MAX_FLOWS: usize = 4096;

/// Its bounds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes that all flows together may hold from the near side before they are known to have
    /// crossed the link: 4 MB of memory.
    pub buffer: usize,
    /// Bytes that may be in flight on the link, and that the other proxy may hold of each flow.
    pub window: usize,
    /// Once less than this is free of the buffer, sources are told to stop.
    pub reserve: usize,
}

/// Event for the near side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A flow wants to go there.
    Open(u32, SocketAddrV4),
    /// Bytes for the near side.
    Bytes(u32, Bytes),
    /// Nothing more follows.
    End(u32),
    /// The flow is over; its connection is to be reset.
    Reset(u32),
}

/// One proxy.
#[derive(Debug)]
pub struct Half {
    bounds: Bounds,
    sending: Sending,
    flows: BTreeMap<u32, Flow>,
    ended: BTreeSet<u32>,
    /// Flows that may have something to send, each once, in turn.
    turns: VecDeque<u32>,
    resets_to_send: VecDeque<u32>,
    events: VecDeque<Event>,
    buffered: usize,
    stopped: bool,
    resets: u64,
    /// Numbers that came, as stretches by their first.
    came: BTreeMap<u64, u64>,
    unreported: u32,
    report_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct Flow {
    /// Destination of the flow, until it has been sent.
    open: Option<SocketAddrV4>,
    pending: VecDeque<Bytes>,
    /// Taken from the near side, and not known to have crossed.
    held: usize,
    sent: u64,
    /// Bytes sent that have left the other proxy.
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

    /// Returns `true` while sources are stopped: from the beginning of the reserve until half is
    /// free again.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Flows reset because the buffer was full.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A connection of the near side becomes `flow`, which goes to `target`.
    pub fn open(&mut self, flow: u32, target: SocketAddrV4) {
        self.flows.insert(flow, Flow { open: Some(target), ..Flow::default() });
        self.turns.push_back(flow);
    }

    /// The near side's bytes, which its kernel has acknowledged. Where the buffer cannot hold them,
    /// the flow that holds most of it is reset.
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

    /// The near side has ended.
    pub fn near_ended(&mut self, flow: u32) {
        if let Some(state) = self.flows.get_mut(&flow) {
            state.near_ended = true;
            self.turn(flow);
        }
    }

    /// The near side's connection broke.
    pub fn broke(&mut self, flow: u32) {
        self.break_off(flow);
        self.note_level();
    }

    /// So many bytes have been handed to the near side.
    pub fn handed(&mut self, flow: u32, bytes: usize, now: Duration) {
        if let Some(state) = self.flows.get_mut(&flow) {
            state.handed += bytes as u64;
            self.report_at.get_or_insert(now + REPORT_AFTER);
        }
    }

    /// A datagram of the other proxy's.
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
            // Nobody waits for what is left of a flow that is over, but for word of that.
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

    /// Takes what a packet holds; `false` where it cannot be taken yet.
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
            // Its first packet may still be under way: it must not open it again.
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
        let ranges = self.came.iter().rev().take(MOST_RANGES).map(|(a, b)| (*a, *b)).collect();
        let mut delivered = Vec::new();
        for (flow, state) in &mut self.flows {
            if state.handed > state.told && delivered.len() < MOST_FLOWS {
                state.told = state.handed;
                delivered.push((*flow, state.handed));
            }
        }
        if self.flows.values().any(|state| state.handed > state.told) {
            // The rest goes at once with the next.
            self.report_at = Some(Duration::ZERO);
        }
        Packet::Report(Report { ranges, delivered }).encode()
    }

    /// A packet of this number came.
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
        if self.came.len() > MOST_RANGES {
            self.came.pop_first();
        }
    }

    /// `flow` is over, and the other proxy is told.
    fn break_off(&mut self, flow: u32) {
        if self.forget(flow) {
            self.resets_to_send.push_back(flow);
        }
    }

    fn forget(&mut self, flow: u32) -> bool {
        self.ended.insert(flow);
        if self.ended.len() > MOST_ENDED {
            self.ended.pop_first();
        }
        let Some(state) = self.flows.remove(&flow) else { return false };
        self.buffered = self.buffered.saturating_sub(state.held);
        true
    }

    /// Both directions of `flow` may be done with.
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
    /// Next piece to send, no further ahead of the delivered bytes than `window`.
    fn next_piece(&mut self, flow: u32, window: u64) -> Option<Piece> {
        let (open, offset) = (self.open.take(), self.sent);
        let room = (self.delivered + window).saturating_sub(self.sent).min(MOST_BYTES as u64);
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

    /// Puts in order what came, and hands on what has no gap before it.
    fn take(&mut self, piece: Piece, flow: u32, events: &mut VecDeque<Event>) {
        let end = piece.offset + piece.bytes.len() as u64;
        if piece.end {
            self.far_end = Some(end);
        }
        // Pieces are cut once and sent again as they are, so the same offset is the same piece.
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
