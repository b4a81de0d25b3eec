//! Passengers' traffic under either engine: streams and steady datagrams in any class, in both
//! directions at once, with their arrival times.
//!
//! An experiment gets [`Traffic`] over a link from an engine, opens its passengers' flows, advances
//! the time and reads the results. In `sim`, the traffic uses the transport alone in virtual time.
//! In `emu`, it uses the gateways between real kernels ([`emu`]).

pub mod emu;

use std::time::Duration;

use bentpipe_channel as channel;
use bentpipe_link::{Class, Counters, Limits, PerClass};

/// Index of the direction towards the aircraft, in everything with two directions.
pub const DOWN: usize = 0;
/// Index of the direction from the aircraft.
pub const UP: usize = 1;

/// Limits of each class, for data sent by the ground and by the air.
pub type ClassLimits = [PerClass<Limits>; 2];

/// Number of bytes of a stream that does not end.
pub const ENDLESS: u64 = u64::MAX;
/// Size of a request, like a browser's short ones. It is sent with the flow's opening.
pub const REQUEST_BYTES: u64 = 200;

/// Description of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Carry {
    /// Class of the stream.
    pub class: Class,
    /// Passenger.
    pub passenger: u32,
    /// Bytes from the aircraft: a request, or an upload.
    pub up: u64,
    /// Bytes towards the aircraft, sent once all bytes from it have arrived. If those are
    /// [`ENDLESS`], sent at once.
    pub down: u64,
}

/// Progress of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    pub(crate) down: u64,
    /// Bytes that arrived, towards the aircraft and from it.
    pub got: [u64; 2],
    /// Time at which it was opened.
    pub opened_at: Duration,
    pub(crate) heard_at: Option<Duration>,
    pub(crate) answered_at: Option<Duration>,
    first_at: Option<Duration>,
    done_at: Option<Duration>,
}

/// Description of datagrams at a constant interval, the same in both directions.
#[derive(Debug, Clone)]
pub struct Talk {
    /// Class of the datagrams.
    pub class: Class,
    /// Passenger.
    pub passenger: u32,
    /// Interval between two datagrams of one direction.
    pub gap: Duration,
    /// Lengths of their payloads, at least eight bytes each.
    pub sizes: Vec<usize>,
    /// Delay of the first datagram after the flow has reached the ground.
    pub phase: Duration,
}

/// Sending time of a datagram, and its delay if it arrived.
pub type Transit = (Duration, Option<Duration>);

/// Sending time and delay of datagrams that arrived before all datagrams sent after them. The link
/// keeps the order, so these include every datagram that the link did not lose. A datagram
/// recovered from repair packets counts only if it arrived before the next one.
pub fn in_order(transits: &[Transit]) -> Vec<(Duration, Duration)> {
    let mut next_came = Duration::MAX;
    let mut in_order = Vec::new();
    for &(left, transit) in transits.iter().rev() {
        let Some(transit) = transit else { continue };
        if left + transit <= next_came {
            next_came = left + transit;
            in_order.push((left, transit));
        }
    }
    in_order.reverse();
    in_order
}

/// Counters of both ends and of the link so far, each for both directions.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    /// Time of the snapshot.
    pub at: Duration,
    /// Counters of the senders of each direction: the hub's session, and the air's.
    pub sent: [Counters; 2],
    /// Counters of the link.
    pub link: [channel::Counters; 2],
}

/// Both gateways' ends of a link, with all traffic between them.
pub trait Traffic {
    /// Time since the run began.
    fn now(&self) -> Duration;
    /// Opens a stream. Returns its number.
    fn open(&mut self, carry: Carry) -> usize;
    /// Progress of a stream so far.
    fn course(&self, stream: usize) -> Course;
    /// Begins to send datagrams at a constant interval. Returns the number of the talk.
    fn talk(&mut self, talk: Talk) -> usize;
    /// Returns `true` if the flow of this talk has reached the ground.
    fn has_begun(&self, talk: usize) -> bool;
    /// Sending time and delay of each datagram sent so far in direction `way`, in order.
    fn transits(&self, talk: usize, way: usize) -> Vec<Transit>;
    /// Moves to the next moment at which anything happens, but at most to `end`.
    fn step(&mut self, end: Duration);
    /// Counters so far. Those of a session that has ended are zero.
    fn counted(&mut self) -> Counted;
    /// IP bytes charged to a class so far, in each direction: its new data, and the repair packets,
    /// retransmissions and headers that it caused.
    fn class_bytes(&mut self, class: Class) -> [u64; 2];
}

/// Passage of time in any kind of traffic.
pub trait Passing: Traffic {
    /// Advances the time by `length`.
    fn pass(&mut self, length: Duration) {
        let end = self.now() + length;
        while self.now() < end {
            self.step(end);
        }
    }

    /// Advances the time until `done`. Returns `false` if that takes longer than `limit`.
    fn wait(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now() + limit;
        while !done(self) {
            if self.now() >= end {
                return false;
            }
            self.step(end);
        }
        true
    }
}

impl<T: Traffic + ?Sized> Passing for T {}

impl Counted {
    /// Fraction of packets lost on the link since `before`, in each direction.
    pub fn lost_since(&self, before: &Self) -> [f64; 2] {
        [DOWN, UP].map(|way| {
            let (after, before) = (&self.link[way], &before.link[way]);
            let lost = after.lost.packets - before.lost.packets;
            let through = after.delivered.packets - before.delivered.packets;
            lost as f64 / (lost + through).max(1) as f64
        })
    }
}

impl Course {
    pub(crate) fn new(carry: &Carry, opened_at: Duration) -> Self {
        Self {
            down: carry.down,
            got: [0; 2],
            opened_at,
            heard_at: None,
            answered_at: None,
            first_at: None,
            done_at: None,
        }
    }

    /// Records the arrival of `bytes` at `now`. Returns `true` if these complete the stream's data
    /// towards the aircraft.
    pub(crate) fn came(&mut self, way: usize, bytes: u64, now: Duration) -> bool {
        self.got[way] += bytes;
        if way == UP || self.got[DOWN] == 0 {
            return false;
        }
        self.first_at.get_or_insert(now);
        let is_new = self.done_at.is_none() && self.got[DOWN] >= self.down;
        if is_new {
            self.done_at = Some(now);
        }
        is_new
    }

    /// Returns `true` if all data towards the aircraft has arrived.
    pub fn is_done(&self) -> bool {
        self.done_at.is_some()
    }

    /// Time from the opening to the last byte on the aircraft.
    pub fn took(&self) -> Option<Duration> {
        Some(self.done_at? - self.opened_at)
    }

    /// Delay of the first bytes: of the response from the ground to the aircraft, and of the
    /// opening to the ground.
    pub fn first_transits(&self) -> [Option<Duration>; 2] {
        let down = self.first_at.zip(self.answered_at).map(|(came, left)| came - left);
        [down, self.heard_at.map(|heard| heard - self.opened_at)]
    }
}
