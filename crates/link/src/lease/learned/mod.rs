//! A learned rate: what the path carries, from the arrival times of our own packets.
//!
//! ```text
//!           ten packets            their spacing at the peer
//!  Unknown ─────────────► wait ────────────────────────────► Cruising: 0.99 × capacity
//!                                                             │  ▲
//!                     with data waiting, every 1.75 round     │  │ what arrived of it is the
//!                     trips a train 1.25 × as fast, then      ▼  │ capacity
//!                     a short rest
//!                                                            Train
//!  Cruising ── queue beyond the budget ──► Draining: capacity = arrival rate, no data ──► Cruising
//!  Cruising ── loss beyond the channel's ► capacity = what arrived ÷ (1 − p)
//! ```
//!
//! Three signals stay apart:
//!
//! - **Capacity** is the arrival rate of packets that were sent faster than they arrived.
//! - **Queue** is the growth of the one-way delay over its minimum. A jump between two packets is
//!   not a queue, because a queue grows at a rate; then the path has changed.
//! - **Loss** beyond the channel's own is a policer or a full queue. The channel's own lowers nothing.
//!
//! The rate never rises above what the peer received, except in trains. Silence and idle time
//! change nothing. After a long idle time, the first packets are few until their arrivals confirm
//! the rate.

mod arrivals;
mod channel;
mod competition;
mod cross_traffic;
mod first;
mod flight;
mod grant_test;
mod grants;
mod group;
mod jump;
mod loss;
mod packets;
mod policer;
mod queue;
mod reactions;
mod resume;
mod siblings;
mod trace;
mod train;
mod trains;

#[cfg(test)]
mod bottleneck_tests;

use std::time::Duration;

use bentpipe_units::BitRate;

use super::Observation;
pub use arrivals::ArrivalSample;
use arrivals::Arrivals;
pub use channel::Channel;
use cross_traffic::{CrossTraffic, MIN_NOISE, Verdict};
use flight::Flight;
use grants::Grants;
use loss::LossRounds;
use packets::bytes_in;
use policer::Policer;
use queue::{AfterDrain, Queue};
pub use resume::Earlier;
use resume::Resume;
use siblings::Siblings;
pub use trace::Trace as QueueTrace;
use train::Measured;
use trains::Trains;

/// Weight of a train's result if the capacity is known.
const TRAIN_WEIGHT: f64 = 0.7;
/// Share of the capacity at which data is sent, so that a small queue drains.
const CRUISE: f64 = 0.99;
/// Share after a queue.
const AFTER_QUEUE: f64 = 0.97;
/// Ratio of two capacities that is worth a line in the log.
const NEWS: f64 = 1.25;
/// Length of a packet that uses the rate.
const BUSY_BYTES: usize = 500;
/// Minimum round trip; below it, timers and scheduling look like queues.
const MIN_RTT: Duration = Duration::from_millis(20);

/// Learns the rate of one direction of a path.
#[derive(Debug)]
pub struct Learner {
    cap: BitRate,
    arrivals: Arrivals,
    queue: Queue,
    loss: LossRounds,
    trains: Trains,
    policer: Policer,
    flight: Flight,
    cross_traffic: CrossTraffic,
    grants: Grants,
    resume: Resume,
    siblings: Siblings,
    /// Bits per second that the path carries; `None` before the first estimate.
    capacity_bps: Option<f64>,
    /// A train has confirmed the first estimate.
    is_confirmed: bool,
    /// Share of the capacity in use outside of trains.
    share: f64,
    phase: Phase,
    /// Packets sent before this say nothing about the present rate.
    settled_at: Duration,
    /// End of the last pause for a drain.
    resumed_at: Duration,
    rtt: Duration,
    last_sent: Duration,
    /// Bytes of padding that may still be sent.
    padding: u64,
    /// Some may be sent at the beginning.
    is_padded: bool,
    /// Capacity that was logged last.
    logged_bps: f64,
    /// Time of the last measurement of the capacity.
    measured_at: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Cruising,
    /// Less is sent until then, because a train's queue drains.
    Resting(Duration),
    /// No data is sent until then.
    Draining(Duration),
}

impl Learner {
    /// Changes the rate that is never exceeded.
    pub fn set_cap(&mut self, cap: BitRate) {
        self.cap = cap;
    }

    /// Creates a learner that never exceeds `cap`, may send `padding` bytes before there is data, and
    /// knows at most the rate of an `earlier` session. [`Self::on_round_trip`] replaces `rtt`, the
    /// first guess.
    pub fn new(
        cap: BitRate,
        padding: u64,
        earlier: Option<Earlier>,
        rtt: Duration,
        now: Duration,
    ) -> Self {
        Self {
            cap,
            arrivals: Arrivals::default(),
            queue: Queue::default(),
            loss: LossRounds::new(),
            trains: Trains::new(),
            policer: Policer::default(),
            flight: Flight::default(),
            cross_traffic: CrossTraffic::default(),
            grants: Grants::default(),
            resume: Resume::new(earlier),
            siblings: Siblings::default(),
            capacity_bps: None,
            is_confirmed: false,
            share: CRUISE,
            phase: Phase::Cruising,
            settled_at: Duration::ZERO,
            resumed_at: Duration::ZERO,
            rtt: rtt.max(MIN_RTT),
            last_sent: now,
            padding,
            is_padded: padding > 0,
            logged_bps: 0.0,
            measured_at: Duration::ZERO,
        }
    }

    /// Notes the round trip of the handshake.
    pub fn on_round_trip(&mut self, rtt: Duration) {
        if self.queue.rtt().is_none() {
            self.rtt = rtt.max(MIN_RTT);
        }
    }

    /// Sending rate at `now`.
    pub fn rate(&self, now: Duration) -> BitRate {
        let Some(capacity) = self.capacity_bps else { return self.cap };
        if let Some(bps) = self.cross_traffic.rate_bps() {
            return BitRate::from_bps(bps as u64).min(self.cap);
        }
        if let Some(bps) = self.grants.rate_bps(now) {
            return BitRate::from_bps(bps as u64).min(self.cap);
        }
        if let Some(bps) = self.flight.unconfirmed_bps(self.rtt) {
            return BitRate::from_bps(bps as u64).min(self.cap);
        }
        let share = match (self.trains.gain_at(now), self.phase) {
            (Some(gain), _) => gain,
            (_, Phase::Resting(until)) if now < until => trains::REST,
            _ => self.share,
        };
        BitRate::from_bps((share * capacity) as u64).min(self.cap)
    }

    /// The capacity, if it is known.
    pub fn capacity(&self) -> Option<BitRate> {
        self.capacity_bps.map(|bps| BitRate::from_bps(bps as u64).min(self.cap))
    }

    /// The capacity that a train confirmed, and the time of its last measurement.
    pub fn confirmed(&self) -> Option<(BitRate, Duration)> {
        Some((self.capacity().filter(|_| self.is_confirmed)?, self.measured_at))
    }

    /// Returns `true` if the first data is sent before anything showed the channel's loss.
    pub fn is_loss_unknown(&self) -> bool {
        !self.is_padded && !self.is_confirmed
    }

    /// Returns `true` while others keep a queue.
    pub fn competes(&self) -> bool {
        self.cross_traffic.is_present()
    }

    /// Returns `true` if data must wait for a report or for a queue to drain.
    pub fn holds_data(&self) -> bool {
        matches!(self.phase, Phase::Draining(_)) || self.flight.is_held()
    }

    /// Returns `true` if padding should be sent when no data waits: before the first estimate, and
    /// in the train that confirms it.
    pub fn wants_padding(&self) -> bool {
        self.padding > 0 && !self.is_confirmed && self.trains.wants_packets()
    }

    /// Takes the capacity if it differs by a quarter from the one taken last.
    pub fn take_news(&mut self) -> Option<BitRate> {
        let capacity = self.capacity_bps.filter(|_| self.is_confirmed)?;
        let ratio = capacity / self.logged_bps.max(1.0);
        if (1.0 / NEWS..NEWS).contains(&ratio) {
            return None;
        }
        self.logged_bps = capacity;
        self.capacity()
    }

    /// Queueing delay in the newest report.
    pub fn queue(&self) -> Duration {
        self.queue.newest()
    }

    /// Returns `true` if the last losses were the channel's own, so that they say how many repairs
    /// are needed.
    pub fn are_losses_the_channels(&self) -> bool {
        self.queue.newest() <= self.budget() && !self.loss.is_in_excess()
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self) -> Option<Duration> {
        let drained = match self.phase {
            Phase::Draining(until) => Some(until),
            _ => None,
        };
        let held = self.flight.next_timeout(self.rtt);
        [drained, held].into_iter().flatten().min()
    }

    /// Ends waits that are over.
    pub fn handle_timeout(&mut self, now: Duration) {
        if matches!(self.phase, Phase::Draining(until) if until <= now) {
            self.phase = Phase::Cruising;
        }
        let window = self.window_bytes();
        self.flight.handle_timeout(self.rtt, window, now);
    }

    /// Notes the end of an outage: its losses say nothing about the rate.
    pub fn on_peer_returned(&mut self, now: Duration) {
        self.loss.skip_until(now);
        self.settled_at = now;
        self.trains.give_up();
        self.flight.clear();
        self.cross_traffic.leave(now);
    }

    /// Counts an MTU probe, which does not use the rate.
    pub fn sent_probe(&mut self, bytes: usize) {
        self.flight.probe(bytes);
    }

    /// Counts a packet of `bytes` with data.
    pub fn sent(&mut self, bytes: usize, now: Duration) {
        let idle = now.saturating_sub(self.last_sent);
        // A keep-alive or a probe does not use the rate.
        if bytes < BUSY_BYTES {
            return;
        }
        self.last_sent = now;
        self.siblings.sent(bytes);
        self.padding = self.padding.saturating_sub(bytes as u64);
        if let Some(capacity) = self.capacity_bps {
            if self.flight.begin_confirmation(idle, bytes_in(capacity, self.rtt)) {
                self.trains.confirm(self.rtt, capacity, now);
                self.settled_at = now;
            }
            self.follow_train(capacity, bytes, now);
        }
        let window = self.window_bytes();
        self.flight.sent(bytes, window, now);
    }

    /// Bytes that may be unreported.
    fn window_bytes(&self) -> u64 {
        let alone = || flight::window(self.capacity_bps, self.loaded_rtt());
        let test = self.grants.window_bytes(self.rtt);
        self.cross_traffic.window_bytes().or(test).unwrap_or_else(alone)
    }

    /// Round trip of data without a queue.
    fn loaded_rtt(&self) -> Duration {
        self.queue.rtt().unwrap_or(self.rtt) + self.queue.grant_delay()
    }

    /// Begins a train if one is due, counts its bytes, and rests after it.
    fn follow_train(&mut self, capacity: f64, bytes: usize, now: Duration) {
        if matches!(self.phase, Phase::Resting(until) if until <= now) {
            self.phase = Phase::Cruising;
        }
        if self.phase == Phase::Cruising
            && !self.cross_traffic.is_present()
            && !self.grants.are_tested()
            && self.siblings.is_turn()
        {
            let max_gain = self.cap.bps() as f64 / capacity;
            let jitter_s = self.queue.jitter_s();
            let gains = (self.siblings.train_gain(), max_gain);
            self.trains.begin_if_due(capacity, gains, self.rtt, jitter_s, now);
        }
        let rest = self.trains.sent(bytes, now);
        if let Some(rest) = rest.filter(|_| self.is_confirmed) {
            self.phase = Phase::Resting(now + rest);
        }
    }

    /// Handles a report with the arrivals in it, oldest first.
    pub fn observe(&mut self, seen: &Observation, samples: &[ArrivalSample]) {
        let new = self.arrivals.add(samples);
        self.rtt = self.queue.rtt().unwrap_or(seen.rtt).max(MIN_RTT);
        if self.flight.is_held() {
            self.cross_traffic.limited(seen.now);
        }
        self.relax_after_cut(seen.now);
        let window = self.window_bytes();
        self.flight.reported(seen.judged_bytes, seen.in_flight_bytes, window);
        self.queue.note_path(&new, &self.arrivals, self.capacity_bps);
        let least = self.note_queue(&new, seen);
        if self.cross_traffic.is_present() {
            return self.compete(seen);
        }
        let is_short = self.queue.newest() <= self.budget();
        let is_train = self.trains.has(seen.sent_at);
        let kind = loss::Kind { is_empty: is_short, is_train };
        let excess = self.loss.judged(seen, kind, self.rtt, self.capacity_bps);
        if self.capacity_bps.is_none() {
            return self.begin(seen);
        }
        if self.grants.are_tested() {
            return match excess {
                Some(excess) => self.cut(excess, seen),
                None => self.follow_test(seen),
            };
        }
        if let Some(measured) = self.trains.reported(seen, &self.arrivals, &self.loss, self.rtt) {
            self.take(measured, seen);
        }
        match (least, excess) {
            (_, Some(excess)) => self.cut(excess, seen),
            (Some(least), None) if least > self.budget() => self.drain(seen.now),
            _ => {}
        }
    }

    /// Queue that is tolerated.
    fn budget(&self) -> Duration {
        self.queue.budget(self.capacity_bps)
    }

    /// Difference of two queues that is chance.
    fn noise(&self) -> Duration {
        Duration::from_secs_f64(2.0 * self.queue.jitter_s()).max(MIN_NOISE)
    }

    /// Notes the queue that the new arrivals found. Returns the shortest that says something about
    /// the present rate.
    fn note_queue(&mut self, new: &[ArrivalSample], seen: &Observation) -> Option<Duration> {
        let trains = &self.trains;
        let least = self.queue.note(new, seen, self.settled_at, |sent| trains.queue_at(sent));
        let budget = self.queue.budget(self.cross_traffic.peak_bps().or(self.capacity_bps));
        match self.queue.after_drain(seen, self.rtt) {
            AfterDrain::None => least,
            AfterDrain::First(found) if self.cross_traffic.is_present() => {
                if self.cross_traffic.was_all_ours(found, self.rtt, seen.now) {
                    self.leave(seen.now);
                }
                None
            }
            AfterDrain::All(_) if self.cross_traffic.is_present() => None,
            AfterDrain::First(_) | AfterDrain::Some => None,
            AfterDrain::All(found) => {
                let verdict = self.cross_traffic.judge(found, budget, self.noise(), seen.now);
                tracing::debug!(?found, ?verdict, "after a drain");
                match verdict {
                    Verdict::Ours => {
                        self.look_for_grants(found, seen.now);
                        return least;
                    }
                    Verdict::Unclear => return least,
                    Verdict::LongerPath => self.queue.restart(new, seen),
                    Verdict::Others => self.begin_to_compete(seen),
                }
                self.grants.explained();
                None
            }
        }
    }

    /// Uses the result of a train.
    fn take(&mut self, measured: Measured, seen: &Observation) {
        let Some(capacity) = self.capacity_bps else { return };
        self.flight.confirmed();
        self.measured_at = seen.now;
        let Measured { bps, gain, succeeded, polices } = measured;
        tracing::debug!(?measured, capacity, "a train");
        if polices {
            if let Some(at) = self.policer.train_lost(capacity, self.rtt, seen.now) {
                self.trains.next_at(at);
            }
            return self.trains.be_careful();
        }
        self.policer.train_passed();
        if gain <= 1.0 {
            // The first packets after an idle time: only a lower capacity is news.
            if !succeeded {
                self.capacity_bps = Some(bps);
                self.share = AFTER_QUEUE;
            }
            return;
        }
        // Beside siblings, a train that is not carried takes its arrivals from theirs.
        let bps = if self.siblings.are_there && !succeeded { bps.min(capacity) } else { bps };
        let weight = if self.is_confirmed && !succeeded { TRAIN_WEIGHT } else { 1.0 };
        self.capacity_bps = Some(capacity + weight * (bps - capacity));
        self.cross_traffic.note_capacity(capacity, seen.now);
        self.is_confirmed = true;
        self.share = CRUISE;
        self.trains.be_careful();
        if succeeded {
            if !self.policer.is_suspected(seen.now) {
                self.trains.be_bold();
            }
            let wait = self.policer.wait_after_success(self.rtt, seen.now);
            self.trains.next_at(seen.now + wait);
        }
    }
}
