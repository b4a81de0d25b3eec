//! Memory of all streams of a session: bytes to be sent, received bytes, and the credit that bounds
//! them.

use std::time::Duration;

use bentpipe_schedule::PerClass;

use super::limits::FlowLimits;
use super::state::{FlowMap, Stream};
use super::writers::Writers;
use super::{Pool, Pressure, Read, Violation, Write};

/// Pieces of all flows that wait for earlier bytes, from which on only each lane's oldest missing
/// symbol is accepted: at about 100 bytes of bookkeeping each, 6.5 MB. A correct peer never causes
/// twice as many.
const MANY_PIECES: usize = 1 << 16;

/// Parts of a flow's reserve for what it sends: unsent bytes and unreported symbols.
pub const RESERVE_PARTS: u64 = 2;

/// Minimum increase for which a writer that waits for memory is woken: most of a packet. Smaller
/// ones would wake many writers for each packet that is sent.
const MIN_INCREASE: u64 = 1 << 10;
/// Minimum number of such increases in the pool; a small pool has smaller ones. A flow is lent a 64th
/// of what is free, so that a writer is woken as soon as a 16th of a small pool is free.
const MIN_INCREASES: u64 = 1024;
/// Maximum number of waiting passengers that are considered for one wake-up. The pool lends a quarter
/// to a passenger, so that no more than four are at their limit.
const MAX_CONSIDERED: usize = 8;

/// Memory for bytes that wait to be sent.
#[derive(Debug)]
pub struct SendMemory {
    /// Unsent bytes that every flow may hold. The shares of all flows are half of the memory.
    share: u64,
    /// Unsent bytes that every flow may hold while memory is short: half of its reserve.
    short_share: u64,
    /// Maximum unsent bytes of one flow.
    flow_buffer: u64,
    /// Memory beyond the shares.
    pool: Pool,
    /// Shortage of memory that other sessions use too.
    pressure: Pressure,
    unsent_bytes: usize,
    unsent: PerClass<u64>,
    /// Writers that wait for memory that other flows' bytes occupy.
    writers: Writers,
    min_increase: u64,
}

impl SendMemory {
    pub fn new(limits: &FlowLimits) -> Self {
        let flows = limits.max_flows.max(1) as u64;
        let share = (limits.send_memory / 2 / flows).min(limits.flow_send_buffer);
        let shared = limits.send_memory - share * flows;
        Self {
            share,
            short_share: share.min(limits.reserve / RESERVE_PARTS).max(1),
            flow_buffer: limits.flow_send_buffer,
            pool: Pool::new(shared),
            pressure: Pressure::default(),
            unsent_bytes: 0,
            unsent: PerClass::default(),
            writers: Writers::default(),
            min_increase: (shared / MIN_INCREASES).clamp(1, MIN_INCREASE),
        }
    }

    pub fn set_pressure(&mut self, pressure: &Pressure) {
        self.pool.set_pressure(pressure.clone());
        self.pressure = pressure.clone();
    }

    /// Unsent bytes of all flows.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Unsent bytes of each class.
    pub fn unsent(&self) -> &PerClass<u64> {
        &self.unsent
    }

    /// Writes as much of `data` to the stream as there is memory for. A writer that is blocked by
    /// other flows' bytes waits for [`Self::next_writer`].
    pub fn write(&mut self, id: u64, stream: &mut Stream, data: &[u8]) -> Write {
        let written =
            stream.send.write(data, usize::try_from(self.room(stream)).unwrap_or(usize::MAX));
        match written {
            Write::Taken(bytes) => self.unsent_bytes += bytes,
            Write::Blocked if (stream.send.unsent_bytes() as u64) < self.flow_buffer => {
                let passenger = stream.state.passenger;
                stream.waits.get_or_insert_with(|| self.writers.add(passenger, id));
                if self.pressure.is_on() {
                    self.pressure.refuse();
                }
            }
            _ => {}
        }
        self.settle(stream);
        written
    }

    /// Bytes that the stream's writer may add now.
    fn room(&self, stream: &Stream) -> u64 {
        let want = self.flow_buffer - self.share;
        let offer = self.pool.offer(stream.state.passenger, want, stream.lent_send_bytes);
        let share = if self.pressure.is_on() { self.short_share } else { self.share };
        let allowed = share + offer.max(stream.lent_send_bytes);
        allowed.saturating_sub(stream.send.unsent_bytes() as u64)
    }

    /// Accounts for `bytes` that the stream sent or discarded. Returns `true` if it gave memory back
    /// to the pool.
    pub fn free(&mut self, stream: &mut Stream, bytes: usize) -> bool {
        self.unsent_bytes -= bytes;
        self.settle(stream)
    }

    /// The waiting writer to be woken next, if there is memory for it. While memory is short, each
    /// flow's own bytes make room for its writer.
    pub fn next_writer(&mut self, flows: &FlowMap) -> Option<u64> {
        let considered = if self.pressure.is_on() { 0 } else { MAX_CONSIDERED };
        for _ in 0..considered {
            let id = self.writers.next()?;
            if flows.stream(id).is_some_and(|stream| self.has_room(stream)) {
                return Some(id);
            }
        }
        None
    }

    /// Returns `true` if the stream's writer may add enough to be woken for it.
    pub fn has_room(&self, stream: &Stream) -> bool {
        let wanted = self.flow_buffer.saturating_sub(stream.send.unsent_bytes() as u64);
        self.room(stream) >= self.min_increase.min(wanted)
    }

    /// Notes that the stream's writer is woken. Returns `true` if it was blocked.
    pub fn woken(&mut self, stream: &mut Stream) -> bool {
        if let Some(place) = stream.waits.take() {
            self.writers.remove(place);
        }
        stream.send.take_blocked()
    }

    /// Forgets a stream that is removed.
    pub fn remove(&mut self, stream: &Stream) {
        let (class, counted) = stream.counted_unsent;
        self.unsent[class] -= counted;
        if let Some(place) = stream.waits {
            self.writers.remove(place);
        }
    }

    /// Accounts for the stream's unsent bytes. Returns `true` if it gave memory back to the pool.
    fn settle(&mut self, stream: &mut Stream) -> bool {
        let unsent = stream.send.unsent_bytes() as u64;
        let class = stream.state.class;
        let (before, counted) = std::mem::replace(&mut stream.counted_unsent, (class, unsent));
        self.unsent[before] -= counted;
        self.unsent[class] += unsent;
        let lent = unsent.saturating_sub(self.share);
        let before = std::mem::replace(&mut stream.lent_send_bytes, lent);
        self.pool.settle(stream.state.passenger, before, lent);
        lent < before
    }
}

/// Memory for received bytes, lent to the peer as credit.
#[derive(Debug)]
pub struct ReceiveMemory {
    /// Credit that every flow may always use.
    reserve: u64,
    /// Memory beyond the reserves.
    pool: Pool,
    /// Window that fills the link towards us: eight bandwidth-delay products.
    window: u64,
    /// Pieces of all flows that wait for earlier bytes.
    pieces: usize,
    /// Received bytes of all flows that have not been read yet.
    bytes: u64,
}

impl ReceiveMemory {
    pub fn new(limits: &FlowLimits) -> Self {
        let flows = limits.max_flows.max(1) as u64;
        let shared = limits.receive_memory.saturating_sub(flows * limits.reserve);
        let (reserve, pool) = (limits.reserve, Pool::new(shared));
        Self { reserve, pool, window: reserve, pieces: 0, bytes: 0 }
    }

    pub fn set_pressure(&mut self, pressure: &Pressure) {
        self.pool.set_pressure(pressure.clone());
    }

    /// Sets the window that fills the link towards us.
    pub fn set_window(&mut self, window: u64) {
        self.window = window.max(self.reserve);
    }

    /// Received bytes of all flows that have not been read yet.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns `true` if so many pieces wait for earlier bytes that only the oldest symbols should
    /// be accepted.
    pub fn is_fragmented(&self) -> bool {
        self.pieces >= MANY_PIECES
    }

    /// Gives a new stream its first credit.
    pub fn open(&mut self, stream: &mut Stream) {
        let passenger = stream.state.passenger;
        let lent = self.pool.offer(passenger, self.window - self.reserve, 0);
        self.pool.settle(passenger, 0, lent);
        stream.recv.grant(self.reserve + lent);
        stream.lent_credit = lent;
    }

    /// Inserts received bytes. Returns `true` if there is something new to read.
    pub fn insert(
        &mut self,
        stream: &mut Stream,
        offset: u64,
        data: &[u8],
        fin: bool,
        now: Duration,
    ) -> Result<bool, Violation> {
        let (pieces, bytes) = (stream.recv.pieces(), stream.recv.held_bytes());
        let news = stream.recv.insert(offset, data, fin, now)?;
        self.bytes = self.bytes - bytes + stream.recv.held_bytes();
        self.pieces = self.pieces - pieces + stream.recv.pieces();
        if self.pieces > 2 * MANY_PIECES {
            return Err(Violation("flows in too many pieces"));
        }
        Ok(news)
    }

    /// Reads bytes that are in order.
    pub fn read(&mut self, stream: &mut Stream, out: &mut [u8], now: Duration) -> Read {
        let before = stream.recv.held_bytes();
        let read = stream.recv.read(out, now);
        self.bytes = self.bytes - before + stream.recv.held_bytes();
        read
    }

    /// Discards what was received on the stream, and what is yet to come.
    pub fn stop(&mut self, stream: &mut Stream) {
        self.pieces -= stream.recv.pieces();
        self.bytes -= stream.recv.held_bytes();
        stream.recv.stop();
    }

    /// Takes back credit that the stream no longer needs, and lends more if its reader keeps up.
    /// Returns `true` if the peer should be told.
    pub fn adjust(&mut self, stream: &mut Stream) -> bool {
        let passenger = stream.state.passenger;
        let wants = stream.recv.wants_credit() && stream.state.ended.is_none();
        let lent = if wants { stream.recv.window().saturating_sub(self.reserve) } else { 0 };
        // A window shrinks as its bytes are read; it never grows by itself.
        let lent = lent.min(stream.lent_credit);
        self.pool.settle(passenger, stream.lent_credit, lent);
        stream.lent_credit = lent;
        if !wants {
            return false;
        }
        let offer = self.pool.offer(passenger, self.window - self.reserve, lent).max(lent);
        let window = self.reserve + offer;
        let grows = window >= stream.recv.window() + window / 4;
        if grows {
            stream.recv.grant(window);
            self.pool.settle(passenger, lent, offer);
            stream.lent_credit = offer;
        }
        grows
    }

    /// Takes back all credit of a stream that is removed.
    pub fn remove(&mut self, stream: &Stream) {
        self.pool.settle(stream.state.passenger, stream.lent_credit, 0);
    }
}
