//! Traffic of passengers, under either engine: streams and steady datagrams in any class, both ways
//! at once, and the times of arrival.
//!
//! An experiment asks an [`Engine`] for [`Traffic`] over a link, opens what its passengers would, lets
//! time pass and looks. In `sim` that is the transport alone in virtual time
//! ([`crate::sim::traffic`]); in `emu` these are the gateways between real kernels ([`emu`]).

pub mod call;
pub mod emu;
mod engine;

use std::time::Duration;

use bentpipe_channel as channel;
use bentpipe_link::{Class, Counters};

pub use engine::{ClassLimits, Emulator, Engine, EngineError};

/// Index of the direction towards the aircraft, in everything with two directions.
pub const DOWN: usize = 0;
/// And from it.
pub const UP: usize = 1;

/// As many bytes as there is time for.
pub const ENDLESS: u64 = u64::MAX;
/// A request as long as a browser's short ones; it travels with the flow's opening.
pub const REQUEST_BYTES: u64 = crate::sim::tunnel::REQUEST_BYTES;

/// Bytes of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Carry {
    /// As what.
    pub class: Class,
    /// Passenger.
    pub passenger: u32,
    /// Bytes from the aircraft: a request, or an upload.
    pub up: u64,
    /// Bytes towards it, sent once all from it have come; at once where those are [`ENDLESS`].
    pub down: u64,
}

/// Progress of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Course {
    pub(crate) down: u64,
    /// Bytes that came, towards the aircraft and from it.
    pub got: [u64; 2],
    /// Time at which it was opened.
    pub opened_at: Duration,
    pub(crate) heard_at: Option<Duration>,
    pub(crate) answered_at: Option<Duration>,
    first_at: Option<Duration>,
    done_at: Option<Duration>,
}

/// Datagrams at a steady pace: what is sent, the same both ways.
#[derive(Debug, Clone)]
pub struct Talk {
    /// As what.
    pub class: Class,
    /// Passenger.
    pub passenger: u32,
    /// Between two datagrams of one direction.
    pub gap: Duration,
    /// Their payloads' lengths, at least eight each.
    pub sizes: Vec<usize>,
    /// The first leaves so long after the flow has reached the ground.
    pub phase: Duration,
}

/// Sending time of a datagram, and its delay, if it arrived at all.
pub type Transit = (Duration, Option<Duration>);

/// Those that came before all that left after them. The link keeps the order, so whatever it did not
/// lose is among them; what a repair brought back is only where that came before the next.
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

/// Counters of both ends and the link so far, each towards the aircraft and from it.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    /// Time of the count.
    pub at: Duration,
    /// Counters of the senders of each direction: the hub's session, and the air's.
    pub sent: [Counters; 2],
    /// The link.
    pub link: [channel::Counters; 2],
}

/// Both gateways' ends of a link with all that goes over it.
pub trait Traffic {
    /// The time since the run began.
    fn now(&self) -> Duration;
    /// Opens a stream; returns its number.
    fn open(&mut self, carry: Carry) -> usize;
    /// Progress of a stream so far.
    fn course(&self, stream: usize) -> Course;
    /// Begins to send datagrams at a steady pace; returns their number.
    fn talk(&mut self, talk: Talk) -> usize;
    /// Returns `true` if such a flow has reached the ground.
    fn has_begun(&self, talk: usize) -> bool;
    /// Sending time and delay of each datagram sent so far, in order: towards the aircraft or from
    /// it.
    fn transits(&self, talk: usize, way: usize) -> Vec<Transit>;
    /// Moves to the next moment at which anything happens, but no further than `end`.
    fn step(&mut self, end: Duration);
    /// Counters so far; zero for a session that is gone.
    fn counted(&mut self) -> Counted;
    /// IP bytes that a class has paid for so far, each way: its new data, and the repairs,
    /// retransmissions and headers that it caused.
    fn class_bytes(&mut self, class: Class) -> [u64; 2];
}

/// Passage of time in any traffic.
pub trait Passing: Traffic {
    /// Lets time pass.
    fn pass(&mut self, length: Duration) {
        let end = self.now() + length;
        while self.now() < end {
            self.step(end);
        }
    }

    /// Lets time pass until `done`; `false` when that took longer than `limit`.
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
    /// The share of packets that the link lost since `before`, each way.
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

    /// So many bytes more came at `now`; `true` when all are there that were to come to the
    /// aircraft, and were not before.
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

    /// All that was to come to the aircraft is there.
    pub fn is_done(&self) -> bool {
        self.done_at.is_some()
    }

    /// From the opening to the last byte on the aircraft.
    pub fn took(&self) -> Option<Duration> {
        Some(self.done_at? - self.opened_at)
    }

    /// Delay of its first bytes: the answer's from the ground to the aircraft, and the opening's to
    /// the ground.
    pub fn first_transits(&self) -> [Option<Duration>; 2] {
        let down = self.first_at.zip(self.answered_at).map(|(came, left)| came - left);
        [down, self.heard_at.map(|heard| heard - self.opened_at)]
    }
}
