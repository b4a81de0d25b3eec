//! One connection: a sending and a receiving half, and how it begins and ends.
//!
//! A connection begins with the air's SYN, which names the target and carries the first bytes; the
//! ground answers with acknowledgements and content of its own. A FIN ends one direction. A reset
//! ends both: it is repeated until it is confirmed, since the peer may have nothing to send that
//! would call for another. A half that nobody reads any more says so in everything it
//! acknowledges, until the peer has finished.

mod receiver;
mod scoreboard;
mod sender;
mod timer;

#[cfg(test)]
mod trace_tests;

use std::collections::VecDeque;
use std::time::Duration;

use bentpipe_link::{Read, ResetCode, Write};

use crate::pool::Pool;
use crate::segment::{Ack, Data, Kind, Opening, Segment, most_header_bytes};
use crate::settings::Buffers;
use receiver::Receiver;
use sender::Sender;

/// Duplicate acknowledgements that wait to be sent: each takes one packet off the sender's pipe, so
/// they are not put together until there are this many.
const MAX_WAITING_ACKS: usize = 256;
/// A reset that is never confirmed is repeated so often.
const RESET_TRIES: u32 = 8;
/// A finished connection stays for so many timeouts, to acknowledge a FIN that comes again.
const LINGER_TIMEOUTS: u32 = 3;
/// A connection that its owner has left, or whose SYN never came, is forgotten when nothing moved
/// for so long.
const ABANDONED_LIFETIME: Duration = Duration::from_secs(120);

/// A window smaller than this holds no full packet: the peer takes it for closed.
const CLOSED_WINDOW_BYTES: u64 = 1500;

/// State of the association that a connection gets whenever it may send.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The congestion window in packets.
    pub window: u32,
    /// Bytes of a segment in a full packet.
    pub segment_bytes: usize,
}

/// The peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation;

/// One connection.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    sender: Sender,
    receiver: Receiver,
    buffers: Buffers,
    /// Content of the SYN, repeated when it is sent again.
    opening: Option<Opening>,
    /// The SYN has come, or this end sends it.
    begun: bool,
    /// Acknowledgements with SACK blocks that wait to be sent, each as it was when a packet came.
    acks: VecDeque<Ack>,
    ack_due: bool,
    probe_due: bool,
    /// The number behind the last one that the peer was told there is room for.
    told_edge: u64,
    stop: Option<ResetCode>,
    peer_stop: Option<ResetCode>,
    /// Reset code, if either side broke it off.
    broken: Option<ResetCode>,
    resetting: Option<Resetting>,
    confirm_reset: bool,
    released: bool,
    /// The connections that were open when this one began, itself included.
    found_live: u32,
    moved_at: Duration,
}

/// A reset of ours that was not confirmed yet.
#[derive(Debug, Clone, Copy)]
struct Resetting {
    tries: u32,
    at: Duration,
}

impl Connection {
    /// The air's end of a connection it opens to `opening`, to a peer with room for `window` bytes.
    pub fn open(id: u64, opening: Opening, window: u64, made: Made) -> Self {
        let sender = Sender::new(true, window, made.rtt);
        Self::new(id, sender, Receiver::new(1, made.buffers.receive), Some(opening), made)
    }

    /// The ground's end of a connection of which something came.
    pub fn accept(id: u64, made: Made) -> Self {
        let sender = Sender::new(false, 0, made.rtt);
        Self::new(id, sender, Receiver::new(0, made.buffers.receive), None, made)
    }

    fn new(
        id: u64,
        sender: Sender,
        receiver: Receiver,
        opening: Option<Opening>,
        made: Made,
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
            told_edge: 0,
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

    /// Returns `true` if it takes part in the sharing of the bandwidth.
    pub fn is_live(&self) -> bool {
        self.begun && self.broken.is_none() && !self.is_complete()
    }

    /// The connections that were open when this one began.
    pub fn found_live(&self) -> u32 {
        self.found_live
    }

    /// Returns `true` if the peer has to answer something that was sent.
    pub fn awaits_answer(&self) -> bool {
        self.resetting.is_some() || (self.broken.is_none() && self.sender.awaits_answer())
    }

    /// The number behind the peer's FIN, once everything has come and both directions are over.
    pub fn received_all(&self) -> Option<u64> {
        self.is_complete().then(|| self.receiver.ack().number)
    }

    /// Timeouts so far.
    pub fn timeouts(&self) -> u64 {
        self.sender.timeouts()
    }

    /// The sending half's round trip.
    pub fn round_trip(&self) -> Duration {
        self.sender.timer().round_trip()
    }

    /// Takes bytes to send, as many as there is room for: the blocking write of section V.B.
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

    /// Moves what has come into `buffer`.
    pub fn read(&mut self, buffer: &mut [u8], pool: &mut Pool) -> Read {
        if let Some(code) = self.broken {
            return Read::Reset(code);
        }
        match self.receiver.read(buffer, pool) {
            0 if self.receiver.is_finished() => Read::Finished,
            0 => Read::Blocked,
            taken => {
                self.ack_due |= self.should_tell_window();
                Read::Taken(taken)
            }
        }
    }

    /// Ends the sending direction.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// Tells the peer to send no more.
    pub fn stop_reading(&mut self, code: ResetCode, pools: &mut Pools) {
        if self.broken.is_none() && !self.receiver.is_finished() && self.stop.is_none() {
            self.stop = Some(code);
            self.receiver.discard(&mut pools.receive);
            self.ack_due = true;
        }
    }

    /// Ends both directions at once.
    pub fn reset(&mut self, code: ResetCode, pools: &mut Pools, now: Duration) {
        if self.broken.is_none() && !self.is_complete() {
            self.resetting = Some(Resetting { tries: 0, at: now });
            self.break_off(code, pools);
        }
    }

    /// The owner has gone: what it finished goes on, what it did not is reset.
    pub fn release(&mut self, pools: &mut Pools, now: Duration) {
        self.released = true;
        self.moved_at = now;
        if self.sender.is_finishing() {
            self.stop_reading(ResetCode::Aborted, pools);
        } else {
            self.reset(ResetCode::Aborted, pools, now);
        }
    }

    /// The association is over.
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

    /// Takes a segment of the peer's; `window` is the congestion window in packets.
    pub fn receive(
        &mut self,
        segment: &Segment<'_>,
        window: u32,
        pools: &mut Pools,
        now: Duration,
    ) -> Result<(), Violation> {
        self.moved_at = now;
        if let Kind::Reset { code, ask } = segment.kind {
            self.resetting = None; // both have broken it off, or ours is confirmed
            self.confirm_reset |= ask;
            if self.broken.is_none() {
                self.break_off(code, pools);
            }
            return Ok(());
        }
        if self.broken.is_some() {
            return Ok(()); // a reset is on its way
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
    pub fn transmit(&mut self, terms: Terms, now: Duration, out: &mut Vec<u8>) -> bool {
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
            terms.segment_bytes.saturating_sub(most_header_bytes(id, seq) + syn_bytes)
        };
        match self.sender.next(terms.window, room, now) {
            Some(packet) => {
                let syn = self.opening.clone().filter(|_| packet.syn);
                let payload = &packet.payload[..];
                let data = Data { seq: packet.start, syn, fin: packet.fin, payload };
                // SACK blocks travel alone: a packet sent again would have no room for them.
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
        self.told_edge = self.told_edge.max(ack.number + ack.window);
        self.ack_due = false;
        Segment { connection: self.id, ack, stop: self.stop, kind }.put(out)
    }

    /// Returns `true` if the peer should learn of a window that has opened since the last report:
    /// by a quarter of the buffer, or by anything if the window was closed.
    fn should_tell_window(&self) -> bool {
        let ack = self.receiver.ack();
        let opened = (ack.number + ack.window).saturating_sub(self.told_edge);
        let closed = self.told_edge.saturating_sub(ack.number) < CLOSED_WINDOW_BYTES;
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

    /// Does what is due.
    pub fn on_timeout(&mut self, now: Duration) {
        if self.broken.is_none() {
            self.probe_due |= self.sender.on_timeout(now);
        }
    }

    /// Returns `true` if it can be forgotten.
    pub fn is_over(&self, now: Duration) -> bool {
        self.forget_at().is_some_and(|at| at <= now)
    }

    /// Time at which it can be forgotten, if nothing moves until then.
    fn forget_at(&self) -> Option<Duration> {
        if !self.released && self.begun && self.opening.is_some() {
            return None; // its owner still has it, or is yet to be given it
        }
        if self.broken.is_some() && !self.confirm_reset {
            let unconfirmed = self.resetting.filter(|resetting| resetting.tries < RESET_TRIES);
            return Some(unconfirmed.map_or(self.moved_at, |_| self.moved_at + ABANDONED_LIFETIME));
        }
        let linger = self.sender.timer().timeout() * LINGER_TIMEOUTS;
        let stays = if self.is_complete() { linger } else { ABANDONED_LIFETIME };
        Some(self.moved_at + stays)
    }

    /// Both directions have finished, and the peer knows of ours.
    fn is_complete(&self) -> bool {
        self.sender.is_done() && self.receiver.is_finished()
    }
}

/// Initial state of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// Its buffers.
    pub buffers: Buffers,
    /// The round trip to assume.
    pub rtt: Duration,
    /// The connections that are open, itself included.
    pub found_live: u32,
    /// The time.
    pub now: Duration,
}

/// Memory of all connections together.
#[derive(Debug)]
pub struct Pools {
    /// To be sent, or to be acknowledged.
    pub send: Pool,
    /// To be read.
    pub receive: Pool,
}

fn reserved(held: usize) -> usize {
    crate::RESERVE_BYTES.saturating_sub(held)
}
