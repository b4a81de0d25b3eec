//! One connection: a sending and a receiving half, and their beginning and end.
//!
//! A connection begins with the air gateway's SYN, which names the target and carries the first
//! bytes. The ground gateway answers with acknowledgements and data. A FIN ends one direction, a
//! reset both. A reset is repeated until it is confirmed, because the peer may have nothing to send
//! that would trigger another one. A half that is not read any more says so in every
//! acknowledgement until the peer has finished.

mod receiver;
mod scoreboard;
mod sender;
mod timer;

#[cfg(test)]
mod trace_tests;

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_link::{Read, Write};

use crate::pool::Pool;
use crate::segment::{Ack, Data, Kind, Opening, Segment, max_header_bytes};
use crate::settings::Buffers;
use receiver::Receiver;
use sender::Sender;

/// Maximum number of duplicate acknowledgements that wait to be sent. Each takes one packet off the
/// sender's pipe, so they are merged only beyond this number.
const MAX_WAITING_ACKS: usize = 256;
/// Maximum number of tries of a reset that is not confirmed.
const RESET_TRIES: u32 = 8;
/// Time in timeouts that a finished connection stays, to acknowledge a repeated FIN.
const LINGER_TIMEOUTS: u32 = 3;
/// Maximum idle time of a connection that its owner has left, or whose SYN never arrived.
const ABANDONED_LIFETIME: Duration = Duration::from_secs(120);

/// A smaller window has no room for a full packet, so the peer treats it as closed.
const CLOSED_WINDOW_BYTES: u64 = 1500;

/// Parameters of the association that a connection gets for each transmission.
#[derive(Debug, Clone, Copy)]
pub struct TransmitParams {
    /// Congestion window in packets.
    pub window: u32,
    /// Size of a segment in a full packet, bytes.
    pub segment_bytes: usize,
}

/// The peer violated the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation;

/// One connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    sender: Sender,
    receiver: Receiver,
    buffers: Buffers,
    /// Content of the SYN, for retransmissions.
    opening: Option<Opening>,
    /// `true` if the SYN has arrived, or this end sends it.
    begun: bool,
    /// Acknowledgements with SACK blocks that wait to be sent, each as of the arrival of a packet.
    acks: VecDeque<Ack>,
    ack_due: bool,
    probe_due: bool,
    /// End of the advertised window as last reported to the peer.
    advertised_edge: u64,
    stop: Option<ResetCode>,
    peer_stop: Option<ResetCode>,
    /// Reset code, if either side has reset the connection.
    broken: Option<ResetCode>,
    resetting: Option<Resetting>,
    confirm_reset: bool,
    released: bool,
    /// Number of open connections when this one began, itself included.
    found_live: u32,
    moved_at: Duration,
}

/// A reset that is not confirmed.
#[derive(Debug, Clone, Copy)]
struct Resetting {
    tries: u32,
    at: Duration,
}

impl Connection {
    /// Creates the air gateway's end of a connection to `opening`. The peer has room for `window`
    /// bytes.
    pub fn open(id: u64, opening: Opening, window: u64, made: InitialState) -> Self {
        let sender = Sender::new(true, window, made.rtt);
        Self::new(id, sender, Receiver::new(1, made.buffers.receive), Some(opening), made)
    }

    /// Creates the ground gateway's end of a connection from which something has arrived.
    pub fn accept(id: u64, made: InitialState) -> Self {
        let sender = Sender::new(false, 0, made.rtt);
        Self::new(id, sender, Receiver::new(0, made.buffers.receive), None, made)
    }

    fn new(
        id: u64,
        sender: Sender,
        receiver: Receiver,
        opening: Option<Opening>,
        made: InitialState,
    ) -> Self {
        Self {
            id,
            sender,
            receiver,
            buffers: made.buffers,
            begun: opening.is_some(),
            opening,
            acks: VecDeque::new(),
            ack_due: false,
            probe_due: false,
            advertised_edge: 0,
            stop: None,
            peer_stop: None,
            broken: None,
            resetting: None,
            confirm_reset: false,
            released: false,
            found_live: made.found_live,
            moved_at: made.now,
        }
    }

    /// Content of the SYN, once it has arrived.
    pub fn opening(&self) -> Option<&Opening> {
        self.opening.as_ref()
    }

    /// Returns `true` if the connection counts as open for the division of the bandwidth.
    pub fn is_live(&self) -> bool {
        self.begun && self.broken.is_none() && !self.is_complete()
    }

    /// Number of open connections when this one began.
    pub fn found_live(&self) -> u32 {
        self.found_live
    }

    /// Returns `true` if the peer must answer something that was sent.
    pub fn awaits_answer(&self) -> bool {
        self.resetting.is_some() || (self.broken.is_none() && self.sender.awaits_answer())
    }

    /// Number after the peer's FIN, once both directions are finished and everything has arrived.
    pub fn received_all(&self) -> Option<u64> {
        self.is_complete().then(|| self.receiver.ack().number)
    }

    /// Number of timeouts so far.
    pub fn timeouts(&self) -> u64 {
        self.sender.timeouts()
    }

    /// Round trip of the sending half.
    pub fn round_trip(&self) -> Duration {
        self.sender.timer().round_trip()
    }

    /// Accepts bytes to send, as many as there is room for (the blocking write of section V.B).
    pub fn write(&mut self, data: &[u8], pool: &mut Pool) -> Write {
        if let Some(code) = self.broken {
            return Write::Reset(code);
        }
        if let Some(code) = self.peer_stop {
            return Write::Stopped(code);
        }
        let held = self.sender.held_bytes();
        let free = self.buffers.send.saturating_sub(held).min(data.len());
        let taken = if pool.admits(held, free) { free } else { reserved(held).min(free) };
        if taken == 0 || self.sender.is_finishing() {
            return Write::Blocked;
        }
        pool.take(taken);
        self.sender.write(&data[..taken]);
        Write::Taken(taken)
    }

    /// Moves received bytes into `buffer`.
    pub fn read(&mut self, buffer: &mut [u8], pool: &mut Pool) -> Read {
        if let Some(code) = self.broken {
            return Read::Reset(code);
        }
        match self.receiver.read(buffer, pool) {
            0 if self.receiver.is_finished() => Read::Finished,
            0 => Read::Blocked,
            taken => {
                self.ack_due |= self.should_report_window();
                Read::Taken(taken)
            }
        }
    }

    /// Ends the sending direction.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// Asks the peer to stop sending.
    pub fn stop_reading(&mut self, code: ResetCode, pools: &mut Pools) {
        if self.broken.is_none() && !self.receiver.is_finished() && self.stop.is_none() {
            self.stop = Some(code);
            self.receiver.discard(&mut pools.receive);
            self.ack_due = true;
        }
    }

    /// Resets both directions.
    pub fn reset(&mut self, code: ResetCode, pools: &mut Pools, now: Duration) {
        if self.broken.is_none() && !self.is_complete() {
            self.resetting = Some(Resetting { tries: 0, at: now });
            self.break_off(code, pools);
        }
    }

    /// Releases the connection of a dropped owner. A finished direction completes, an unfinished
    /// one is reset.
    pub fn release(&mut self, pools: &mut Pools, now: Duration) {
        self.released = true;
        self.moved_at = now;
        if self.sender.is_finishing() {
            self.stop_reading(ResetCode::Aborted, pools);
        } else {
            self.reset(ResetCode::Aborted, pools, now);
        }
    }

    /// Ends the connection with its association.
    pub fn lose(&mut self, pools: &mut Pools) {
        if self.broken.is_none() && !self.is_complete() {
            self.break_off(ResetCode::Aborted, pools);
        }
        self.resetting = None;
    }

    fn break_off(&mut self, code: ResetCode, pools: &mut Pools) {
        self.broken = Some(code);
        pools.send.give_back(self.sender.held_bytes());
        self.receiver.clear(&mut pools.receive);
        self.sender = Sender::new(false, 0, self.sender.timer().round_trip());
        self.acks.clear();
        self.ack_due = false;
    }

    /// Handles a segment of the peer. `window` is the congestion window in packets.
    pub fn receive(
        &mut self,
        segment: &Segment<'_>,
        window: u32,
        pools: &mut Pools,
        now: Duration,
    ) -> Result<(), Violation> {
        self.moved_at = now;
        if let Kind::Reset { code, ask } = segment.kind {
            self.resetting = None; // both sides have reset it, or ours is confirmed
            self.confirm_reset |= ask;
            if self.broken.is_none() {
                self.break_off(code, pools);
            }
            return Ok(());
        }
        if self.broken.is_some() {
            return Ok(()); // a reset is in flight
        }
        let before = self.sender.held_bytes();
        self.sender.acknowledge(&segment.ack, window, now).map_err(|_| Violation)?;
        pools.send.give_back(before - self.sender.held_bytes());
        if let Some(code) = segment.stop.filter(|_| self.peer_stop.is_none()) {
            self.peer_stop = Some(code);
            let before = self.sender.held_bytes();
            self.sender.abandon();
            pools.send.give_back(before - self.sender.held_bytes());
        }
        match &segment.kind {
            Kind::Data(data) => self.take_data(data, pools)?,
            Kind::Plain { ask: true } => self.ack_due = true,
            Kind::Plain { ask: false } | Kind::Reset { .. } => {}
        }
        Ok(())
    }

    fn take_data(&mut self, data: &Data<'_>, pools: &mut Pools) -> Result<(), Violation> {
        if let Some(opening) = &data.syn {
            if self.begun && self.opening.as_ref() != Some(opening) {
                return Err(Violation);
            }
            self.begun = true;
            self.opening = Some(opening.clone());
        }
        self.receiver.take(data, &mut pools.receive);
        let ack = self.receiver.ack();
        if ack.blocks.is_empty() {
            self.ack_due = true;
        } else {
            if self.acks.len() == MAX_WAITING_ACKS {
                self.acks.pop_back();
            }
            self.acks.push_back(ack);
        }
        Ok(())
    }

    /// Appends the next segment to `out`, if one may be sent now.
    pub fn transmit(&mut self, terms: TransmitParams, now: Duration, out: &mut Vec<u8>) -> bool {
        if let Some(code) = self.broken {
            return self.transmit_reset(code, now, out);
        }
        if let Some(ack) = self.acks.pop_front() {
            return self.put(ack, Kind::Plain { ask: false }, out);
        }
        if std::mem::take(&mut self.probe_due) {
            return self.put(self.receiver.ack(), Kind::Plain { ask: true }, out);
        }
        let (id, opening) = (self.id, self.opening.as_ref());
        let syn_bytes = opening.and_then(Opening::encoded_len).unwrap_or_default();
        let room = |seq| {
            let syn_bytes = if seq == 0 { syn_bytes } else { 0 };
            terms.segment_bytes.saturating_sub(max_header_bytes(id, seq) + syn_bytes)
        };
        match self.sender.next(terms.window, room, now) {
            Some(packet) => {
                let syn = self.opening.clone().filter(|_| packet.syn);
                let payload = &packet.payload[..];
                let data = Data { seq: packet.start, syn, fin: packet.fin, payload };
                // SACK blocks are sent alone, because a retransmitted packet has no room for them.
                let ack = Ack { blocks: Vec::new(), ..self.receiver.ack() };
                self.put(ack, Kind::Data(data), out)
            }
            None if self.ack_due => self.put(self.receiver.ack(), Kind::Plain { ask: false }, out),
            None => false,
        }
    }

    fn transmit_reset(&mut self, code: ResetCode, now: Duration, out: &mut Vec<u8>) -> bool {
        let mut kind = Kind::Reset { code, ask: true };
        match &mut self.resetting {
            _ if std::mem::take(&mut self.confirm_reset) => kind = Kind::Reset { code, ask: false },
            Some(resetting) if resetting.at <= now && resetting.tries < RESET_TRIES => {
                resetting.at = now + self.sender.timer().timeout() * (1 << resetting.tries.min(4));
                resetting.tries += 1;
            }
            _ => return false,
        }
        let segment = Segment { connection: self.id, ack: Ack::default(), stop: None, kind };
        segment.put(out)
    }

    fn put(&mut self, ack: Ack, kind: Kind<'_>, out: &mut Vec<u8>) -> bool {
        self.advertised_edge = self.advertised_edge.max(ack.number + ack.window);
        self.ack_due = false;
        Segment { connection: self.id, ack, stop: self.stop, kind }.put(out)
    }

    /// Returns `true` if the peer should learn of an opened window: by a quarter of the buffer, or
    /// by any amount if the window was closed.
    fn should_report_window(&self) -> bool {
        let ack = self.receiver.ack();
        let opened = (ack.number + ack.window).saturating_sub(self.advertised_edge);
        let closed = self.advertised_edge.saturating_sub(ack.number) < CLOSED_WINDOW_BYTES;
        opened >= self.buffers.receive as u64 / 4 || (closed && opened > 0)
    }

    /// Time at which [`Self::on_timeout`] should be called.
    pub fn deadline(&self) -> Option<Duration> {
        let forgotten = self.forget_at();
        let other = match self.resetting {
            Some(resetting) => Some(resetting.at).filter(|_| resetting.tries < RESET_TRIES),
            None if self.broken.is_some() => None,
            None => self.sender.deadline(),
        };
        forgotten.into_iter().chain(other).min()
    }

    /// Handles due timers.
    pub fn on_timeout(&mut self, now: Duration) {
        if self.broken.is_none() {
            self.probe_due |= self.sender.on_timeout(now);
        }
    }

    /// Returns `true` if the connection can be forgotten.
    pub fn is_over(&self, now: Duration) -> bool {
        self.forget_at().is_some_and(|at| at <= now)
    }

    /// Time at which the connection can be forgotten, if nothing moves until then.
    fn forget_at(&self) -> Option<Duration> {
        if !self.released && self.begun && self.opening.is_some() {
            return None; // its owner has it, or will get it
        }
        if self.broken.is_some() && !self.confirm_reset {
            let unconfirmed = self.resetting.filter(|resetting| resetting.tries < RESET_TRIES);
            return Some(unconfirmed.map_or(self.moved_at, |_| self.moved_at + ABANDONED_LIFETIME));
        }
        let linger = self.sender.timer().timeout() * LINGER_TIMEOUTS;
        let stays = if self.is_complete() { linger } else { ABANDONED_LIFETIME };
        Some(self.moved_at + stays)
    }

    /// Returns `true` if both directions are finished, and the peer knows that ours is.
    fn is_complete(&self) -> bool {
        self.sender.is_done() && self.receiver.is_finished()
    }
}

/// Initial state of a connection.
#[derive(Debug, Clone, Copy)]
pub struct InitialState {
    /// Buffers.
    pub buffers: Buffers,
    /// Assumed round trip.
    pub rtt: Duration,
    /// Number of open connections, this one included.
    pub found_live: u32,
    /// Present time.
    pub now: Duration,
}

/// Memory of all connections.
#[derive(Debug)]
pub struct Pools {
    /// Bytes to be sent or acknowledged.
    pub send: Pool,
    /// Bytes to be read.
    pub receive: Pool,
}

fn reserved(held: usize) -> usize {
    crate::RESERVE_BYTES.saturating_sub(held)
}
