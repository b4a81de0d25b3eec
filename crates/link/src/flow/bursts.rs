//! Bursts: a stream's bytes between two pauses, and the passenger's bytes that follow their end.
//!
//! A page is many short streams, each with an end. Repair packets for each end would take link
//! capacity from the page itself. While a round trip of the passenger's bytes follows, reports
//! reveal in time what was lost of the earlier bytes, and nothing is protected yet: the burst's end
//! is *deferred*. Bytes of another class do not count, because that class may wait at its ceiling.

use std::collections::BTreeMap;
use std::time::Duration;

use super::send::URGENT_BYTES;
use super::state::{Owner, SendableBytes, Stream};
use crate::Class;
use crate::lane::Lane;

/// Sendable bytes of all streams, and the burst ends that wait for them.
#[derive(Debug)]
pub struct Bursts {
    /// Only owners that have sendable bytes.
    sendable: BTreeMap<Owner, SendableBytes>,
    /// Owner of the last deferred burst end in each lane. One is enough: when it is due, everything
    /// in the lane that is unreported is protected.
    deferred: [Option<Owner>; Lane::RELIABLE.len()],
    /// Bytes in flight to the peer while the link is full.
    in_flight_bytes: u64,
    /// Pause after which a stream's burst is a new one: a round trip.
    pause: Duration,
}

impl Default for Bursts {
    fn default() -> Self {
        Self {
            sendable: BTreeMap::new(),
            deferred: Default::default(),
            in_flight_bytes: u64::MAX,
            pause: Duration::from_secs(1),
        }
    }
}

impl Bursts {
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Sets the pause that ends a burst.
    pub fn set_pause(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Sets the number of bytes that are sent within a round trip.
    pub fn set_in_flight(&mut self, bytes: u64) {
        self.in_flight_bytes = bytes;
    }

    /// Lane of the bytes that the stream would send now.
    pub fn lane(&self, stream: &Stream, now: Duration) -> Lane {
        let state = &stream.state;
        let is_urgent = state.class <= Class::Network || state.control.open.is_some();
        if is_urgent || stream.send.is_short(now, self.pause) { Lane::Urgent } else { Lane::Bulk }
    }

    /// Returns `true` if enough of the stream's burst follows for reports to reveal in time what was
    /// lost of it in `lane`, so that nothing has to be protected yet.
    pub fn continues(&self, stream: &Stream, lane: Lane, now: Duration) -> bool {
        let unsent = stream.send.unsent_bytes();
        if self.lane(stream, now) != lane {
            return unsent as u64 >= self.in_flight_bytes;
        }
        // Bulk that waits for credit waits for missing bytes, which reports reveal.
        stream.send.is_ready() || (lane == Lane::Bulk && unsent > 0)
    }

    /// Bytes that could be sent now in the urgent lane.
    pub fn urgent_bytes(&self) -> u64 {
        self.sendable.values().map(|bytes| bytes[Lane::Urgent as usize]).sum()
    }

    /// Notes that a burst of `owner` ended in `lane`. Returns the class to protect now; `None` if
    /// the end is deferred.
    pub fn end(&mut self, owner: Owner, lane: Lane) -> Option<Class> {
        if !self.is_backlogged(owner, lane) {
            return Some(owner.1);
        }
        if let Some(deferred) = self.deferred.get_mut(lane as usize) {
            *deferred = Some(owner);
        }
        None
    }

    /// The class whose deferred burst end in `lane` is now due, because less than one round trip of
    /// its owner's data follows.
    pub fn take_due(&mut self, lane: Lane) -> Option<Class> {
        let owner = self.deferred.get(lane as usize).copied().flatten()?;
        if self.is_backlogged(owner, lane) {
            return None;
        }
        self.deferred[lane as usize] = None;
        Some(owner.1)
    }

    /// Returns `true` if so much of the owner's data follows in `lane` that reports reveal losses
    /// of the earlier packets in time.
    fn is_backlogged(&self, owner: Owner, lane: Lane) -> bool {
        let bytes = self.sendable.get(&owner).and_then(|bytes| bytes.get(lane as usize));
        bytes.copied().unwrap_or(0) >= self.in_flight_bytes.max(1)
    }

    /// Counts what the stream could send now, in place of what it could before.
    pub fn count(&mut self, stream: &mut Stream, now: Duration) {
        let owner = (stream.state.passenger, stream.state.class);
        let counted = (owner, sendable(stream, now, self.pause));
        if counted != stream.counted_sendable {
            let before = std::mem::replace(&mut stream.counted_sendable, counted);
            self.take(before);
            self.add(counted);
        }
    }

    /// Forgets a stream that is removed.
    pub fn remove(&mut self, stream: &Stream) {
        self.take(stream.counted_sendable);
    }

    fn add(&mut self, (owner, bytes): (Owner, SendableBytes)) {
        if bytes != SendableBytes::default() {
            let sum = self.sendable.entry(owner).or_default();
            sum.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
        }
    }

    /// Takes away what was added before.
    fn take(&mut self, (owner, bytes): (Owner, SendableBytes)) {
        let Some(sum) = self.sendable.get_mut(&owner) else { return };
        sum.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum -= bytes);
        if *sum == SendableBytes::default() {
            self.sendable.remove(&owner);
        }
    }
}

/// Bytes that the stream could send, by lane.
fn sendable(stream: &Stream, now: Duration, pause: Duration) -> SendableBytes {
    if !stream.state.opened || stream.state.ended.is_some() {
        return SendableBytes::default();
    }
    let all = stream.send.next_len(usize::MAX).0 as u64;
    let urgent = match stream.state.class <= Class::Network {
        true => all,
        false => all.min(URGENT_BYTES.saturating_sub(stream.send.burst_bytes(now, pause))),
    };
    [urgent, all - urgent]
}
