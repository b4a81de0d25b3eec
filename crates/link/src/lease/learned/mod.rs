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
mod jump;
mod loss;
mod train;

use std::time::Duration;

use bentpipe_units::BitRate;

use super::Observation;
use super::delay::Delay;
use arrivals::Arrivals;
pub use arrivals::Knot;
use loss::{Excess, LossRounds};
use train::{Measured, Train};

/// Packets that may be unreported before a rate is known (RFC 9002, section 7.2).
const INITIAL_PACKETS: u64 = 10;
/// A full packet, for purposes where its true size does not matter.
const PACKET_BYTES: u64 = 1500;
/// Bytes between the first and the last packet of a first estimate.
const MIN_FIRST_BYTES: u64 = 3 * 1200;
/// Ratio of sending to arrival rate from which on packets arrived at the bottleneck's rate.
const STRETCHED: f64 = 1.05;
/// Share of the capacity at which data is sent, so that a small queue drains.
const CRUISE: f64 = 0.99;
/// Share after a queue.
const AFTER_QUEUE: f64 = 0.97;
/// Share after losses beyond the channel's.
const AFTER_CUT: f64 = 0.985;
/// Share between the first estimate and its confirmation.
const UNCONFIRMED: f64 = 0.9;
/// Gain of a train, and of the next one after a success.
const GAIN: f64 = 1.25;
const GAIN_AFTER_SUCCESS: f64 = 2.0;
/// Share of the capacity after a train, while its queue drains.
const REST: f64 = 0.75;
/// Part of a train's queue that drains in that rest. The rest of it drains slowly.
const REST_PART: f64 = 0.75;
/// Round trips between the beginnings of two trains …
const TRAIN_EVERY: f64 = 1.75;
/// … and their number without an answer after which a train is given up.
const TRAIN_PATIENCE: u32 = 3;
/// Minimum time between two trains on short paths.
const MIN_TRAIN_EVERY: Duration = Duration::from_millis(150);
/// Weight of a train's result if the capacity is known.
const TRAIN_WEIGHT: f64 = 0.7;
/// Queue that is tolerated, in time …
const MIN_BUDGET: Duration = Duration::from_millis(15);
/// … in packet times …
const BUDGET_PACKETS: f64 = 2.5;
/// … and in mean differences between the delays of two arrivals.
const BUDGET_JITTERS: f64 = 4.0;
/// Time and packets over which the arrival rate in a queue is measured.
const QUEUE_SPAN: Duration = Duration::from_millis(60);
const QUEUE_PACKETS: u64 = 12;
/// Round trips of data that may be unreported. Reports come eight times in a round trip, and one
/// may be lost.
const MAX_IN_FLIGHT: f64 = 1.22;
/// The same on short paths, for timers.
const IN_FLIGHT_SLACK: Duration = Duration::from_millis(60);
/// Maximum wait for a report that permits more data, in round trips.
const HOLD: f64 = 1.5;
/// Packets that are sent after that without a report.
const PROBE_PACKETS: u64 = 2;
/// Ratio of two capacities that is worth a line in the log.
const NEWS: f64 = 1.25;
/// Idle time after which the rate has to be confirmed, with ever fewer packets.
const CONFIRM_AFTER: Duration = Duration::from_secs(60);
/// Length of a packet that uses the rate.
const BUSY_BYTES: usize = 500;
/// Maximum wait of data for a drain.
const MAX_DRAIN: Duration = Duration::from_secs(10);
/// Weight of a new difference in the mean.
const JITTER_WEIGHT: f64 = 1.0 / 32.0;
/// Round trips within which losses beyond the channel's come again if there is a policer.
const AGAIN_ROUND_TRIPS: u32 = 20;
/// Trains in a row with losses beyond the channel's that show a policer.
const LOSSY_TRAINS: u32 = 2;
/// Wait after a policer was found, in round trips; each further one doubles it …
const POLICED_ROUND_TRIPS: u32 = 8;
/// … up to this.
const MAX_POLICED_WAIT: Duration = Duration::from_secs(240);
/// Minimum round trip; below it, timers and scheduling look like queues.
const MIN_UNIT: Duration = Duration::from_millis(20);

/// Learns the rate of one direction of a path.
#[derive(Debug)]
pub struct Learner {
    cap: BitRate,
    delay: Delay,
    arrivals: Arrivals,
    loss: LossRounds,
    /// Bits per second that the path carries; `None` before the first estimate.
    capacity_bps: Option<f64>,
    /// A train has confirmed the first estimate.
    is_confirmed: bool,
    /// Share of the capacity in use outside of trains.
    share: f64,
    phase: Phase,
    /// A train that is being sent or that awaits its reports.
    train: Option<Train>,
    next_gain: f64,
    train_at: Duration,
    policed_wait: Duration,
    /// Time at which losses lowered the capacity.
    cut_at: Option<Duration>,
    /// Trains in a row that lost more than the channel.
    lossy_trains: u32,
    /// Packets sent before this say nothing about the present rate.
    settled_at: Duration,
    /// End of a drain, until a packet sent since is reported.
    drained_at: Option<Duration>,
    queue: Duration,
    jitter_s: f64,
    unit: Duration,
    /// Bytes since the newest reported packet.
    unreported_bytes: u64,
    /// Time at which too many packets were unreported.
    held_at: Option<Duration>,
    /// Bytes that may be sent until arrivals confirm the rate.
    unconfirmed_bytes: Option<u64>,
    last_sent: Duration,
    /// Bytes of padding that may still be sent.
    padding: u64,
    /// Capacity that was logged last.
    told_bps: f64,
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
    /// Creates a learner that knows nothing, never exceeds `cap`, and may send `padding` bytes before
    /// there is data. [`Self::on_round_trip`] replaces `rtt`, the first guess.
    pub fn new(cap: BitRate, padding: u64, rtt: Duration, now: Duration) -> Self {
        Self {
            cap,
            delay: Delay::default(),
            arrivals: Arrivals::default(),
            loss: LossRounds::new(),
            capacity_bps: None,
            is_confirmed: false,
            share: CRUISE,
            phase: Phase::Cruising,
            train: None,
            next_gain: GAIN,
            train_at: Duration::ZERO,
            policed_wait: Duration::ZERO,
            cut_at: None,
            lossy_trains: 0,
            settled_at: Duration::ZERO,
            drained_at: None,
            queue: Duration::ZERO,
            jitter_s: 0.0,
            unit: rtt.max(MIN_UNIT),
            unreported_bytes: 0,
            held_at: None,
            unconfirmed_bytes: None,
            last_sent: now,
            padding,
            told_bps: 0.0,
        }
    }

    /// Notes the round trip of the handshake.
    pub fn on_round_trip(&mut self, rtt: Duration) {
        if self.delay.rtt().is_none() {
            self.unit = rtt.max(MIN_UNIT);
        }
    }

    /// Sending rate at `now`.
    pub fn rate(&self, now: Duration) -> BitRate {
        let Some(capacity) = self.capacity_bps else { return self.cap };
        let share = match (&self.train, self.phase) {
            (Some(train), _) if train.is_sent_at(now) => train.gain,
            (_, Phase::Resting(until)) if now < until => REST,
            _ => self.share,
        };
        BitRate::from_bps((share * capacity) as u64).min(self.cap)
    }

    /// The capacity, if it is known.
    pub fn capacity(&self) -> Option<BitRate> {
        self.capacity_bps.map(|bps| BitRate::from_bps(bps as u64).min(self.cap))
    }

    /// Returns `true` if data must wait for a report or for a queue to drain.
    pub fn holds_data(&self) -> bool {
        matches!(self.phase, Phase::Draining(_)) || self.held_at.is_some()
    }

    /// Returns `true` if padding should be sent where no data waits: before the first estimate, and
    /// in the train that confirms it.
    pub fn wants_padding(&self) -> bool {
        let is_train_due = self.train.is_none_or(|train| !train.is_filled());
        self.padding > 0 && !self.is_confirmed && is_train_due
    }

    /// Takes the capacity if it differs by a quarter from the one taken last.
    pub fn take_news(&mut self) -> Option<BitRate> {
        let capacity = self.capacity_bps.filter(|_| self.is_confirmed)?;
        let ratio = capacity / self.told_bps.max(1.0);
        if (1.0 / NEWS..NEWS).contains(&ratio) {
            return None;
        }
        self.told_bps = capacity;
        self.capacity()
    }

    /// Queueing delay in the newest report.
    pub fn queue(&self) -> Duration {
        self.queue
    }

    /// Returns `true` if the last losses were the channel's own, so that they say how many repairs
    /// are needed.
    pub fn are_losses_the_channels(&self) -> bool {
        self.queue <= self.budget() && !self.loss.is_in_excess()
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self) -> Option<Duration> {
        let drained = match self.phase {
            Phase::Draining(until) => Some(until),
            _ => None,
        };
        let held = self.held_at.map(|at| at + self.unit.mul_f64(HOLD));
        [drained, held].into_iter().flatten().min()
    }

    /// Ends waits that are over.
    pub fn handle_timeout(&mut self, now: Duration) {
        if matches!(self.phase, Phase::Draining(until) if until <= now) {
            self.phase = Phase::Cruising;
        }
        if self.held_at.is_some_and(|at| at + self.unit.mul_f64(HOLD) <= now) {
            self.held_at = None;
            self.unreported_bytes =
                self.window_bytes().saturating_sub(PROBE_PACKETS * PACKET_BYTES);
        }
    }

    /// Notes the end of an outage: its losses say nothing about the rate.
    pub fn on_peer_returned(&mut self, now: Duration) {
        self.loss.skip_until(now);
        self.settled_at = now;
        self.train = None;
        self.held_at = None;
        self.unreported_bytes = 0;
    }

    /// Counts an MTU probe, which does not use the rate.
    pub fn sent_probe(&mut self, bytes: usize) {
        self.unreported_bytes += bytes as u64;
    }

    /// Counts a packet of `bytes` with data.
    pub fn sent(&mut self, bytes: usize, now: Duration) {
        let idle = now.saturating_sub(self.last_sent);
        // A keep-alive or a probe does not use the rate.
        if bytes < BUSY_BYTES {
            return;
        }
        self.last_sent = now;
        self.padding = self.padding.saturating_sub(bytes as u64);
        self.unreported_bytes += bytes as u64;
        if let Some(capacity) = self.capacity_bps {
            self.begin_confirmation(capacity, idle, now);
            self.follow_train(bytes, now);
        }
        let window = self.window_bytes();
        if self.unreported_bytes >= window && self.held_at.is_none() {
            self.held_at = Some(now);
        }
    }

    /// Bytes that may be unreported.
    fn window_bytes(&self) -> u64 {
        let Some(capacity) = self.capacity_bps else { return INITIAL_PACKETS * PACKET_BYTES };
        let rtt = self.delay.rtt().unwrap_or(self.unit);
        let time = rtt.mul_f64(MAX_IN_FLIGHT).max(rtt + IN_FLIGHT_SLACK);
        let window = bytes_in(capacity, time) + INITIAL_PACKETS * PACKET_BYTES;
        self.unconfirmed_bytes.map_or(window, |most| most.min(window))
    }

    /// Limits the first packets after a long idle time.
    fn begin_confirmation(&mut self, capacity: f64, idle: Duration, now: Duration) {
        if idle <= CONFIRM_AFTER {
            return;
        }
        let trip = bytes_in(capacity, self.unit);
        let most = (trip as f64 * CONFIRM_AFTER.div_duration_f64(idle)) as u64;
        self.unconfirmed_bytes = Some(most.max(INITIAL_PACKETS * PACKET_BYTES));
        self.train = Some(Train::new(now, self.unit, 1.0, capacity));
        self.settled_at = now;
    }

    /// Begins a train if one is due, counts its bytes, and rests after it.
    fn follow_train(&mut self, bytes: usize, now: Duration) {
        let Some(capacity) = self.capacity_bps else { return };
        if matches!(self.phase, Phase::Resting(until) if until <= now) {
            self.phase = Phase::Cruising;
        }
        if self.train.is_none() && self.train_at <= now && self.phase == Phase::Cruising {
            let gain = self.next_gain.min(self.cap.bps() as f64 / capacity);
            if gain > 1.0 {
                self.train =
                    Some(Train::new(now, self.train_length(gain * capacity), gain, capacity));
            }
        }
        let Some(train) = &mut self.train else { return };
        train.sent(bytes, now);
        let rest = train.rest(now, 1.0 - REST);
        if let Some(rest) = rest.filter(|_| self.is_confirmed) {
            self.phase = Phase::Resting(now + rest.mul_f64(REST_PART));
        }
    }

    /// Length of a train at `rate_bps`.
    fn train_length(&self, rate_bps: f64) -> Duration {
        let jitter = Duration::from_secs_f64((6.0 * self.jitter_s / (GAIN - 1.0)).min(0.2));
        train::length(self.unit, rate_bps).max(jitter)
    }

    /// Handles a report with the arrivals in it, oldest first.
    pub fn observe(&mut self, seen: &Observation, knots: &[Knot]) {
        let new = self.arrivals.add(knots);
        self.unit = self.delay.rtt().unwrap_or(seen.rtt).max(MIN_UNIT);
        self.unreported_bytes = seen.in_flight_bytes;
        self.held_at = self.held_at.filter(|_| self.unreported_bytes >= self.window_bytes());
        self.note_jitter(&new);
        if jump::is_jump(&self.arrivals, self.budget()) {
            self.delay.restart();
        }
        let least = self.note_queue(&new, seen);
        let excess =
            self.loss.judged(seen, self.queue <= self.budget(), self.unit, self.capacity_bps);
        if self.capacity_bps.is_none() {
            return self.begin(seen);
        }
        if let Some(train) = self.train.as_mut().filter(|train| seen.sent_at >= train.from) {
            train.reported(seen.judged, seen.lost);
        }
        if let Some(measured) = self.train_result(seen) {
            self.take(measured, seen);
        }
        match (least, excess) {
            (_, Some(excess)) => self.cut(excess, seen),
            (Some(least), None) if least > self.budget() => self.drain(seen),
            _ => {}
        }
    }

    /// Takes the first estimate from packets that arrived further apart than they were sent.
    fn begin(&mut self, seen: &Observation) {
        let Some(passage) = self.arrivals.train(MIN_FIRST_BYTES, STRETCHED) else { return };
        self.capacity_bps = Some(passage.arrived_bps);
        self.share = UNCONFIRMED;
        self.held_at = None;
        self.settled_at = seen.now;
        self.next_gain = GAIN_AFTER_SUCCESS;
        self.train_at = seen.now;
        self.train = None;
    }

    /// Mean difference between the delays of two arrivals.
    fn note_jitter(&mut self, new: &[Knot]) {
        for pair in new.windows(2) {
            let sent = pair[1].sent.saturating_sub(pair[0].sent).as_secs_f64();
            let arrived = pair[1].arrived.saturating_sub(pair[0].arrived).as_secs_f64();
            // A pause, or an outage, is not jitter.
            let difference = (arrived - sent).abs().min(0.1);
            self.jitter_s += JITTER_WEIGHT * (difference - self.jitter_s);
        }
    }

    /// Queue that is tolerated.
    fn budget(&self) -> Duration {
        let packet_s = self.capacity_bps.map_or(0.0, |bps| 8.0 * PACKET_BYTES as f64 / bps);
        let others = (BUDGET_PACKETS * packet_s).max(BUDGET_JITTERS * self.jitter_s);
        MIN_BUDGET.max(Duration::from_secs_f64(others.min(1.0)))
    }

    /// Notes the queue that the new arrivals found. Returns the shortest that says something about
    /// the present rate.
    fn note_queue(&mut self, new: &[Knot], seen: &Observation) -> Option<Duration> {
        let mut least: Option<Duration> = None;
        for knot in new.iter().skip(usize::from(new.len() > 1)) {
            let queue = self.delay.sample(knot.sent, knot.arrived, seen.rtt, seen.now);
            self.queue = queue;
            let own = self.train.as_ref().map_or(Duration::ZERO, |train| train.queue_at(knot.sent));
            if knot.sent >= self.settled_at {
                let rest = queue.saturating_sub(own);
                least = Some(least.map_or(rest, |least| least.min(rest)));
            }
        }
        let is_first = self.drained_at.is_some_and(|at| seen.sent_at >= at);
        if is_first {
            self.drained_at = None;
        }
        if is_first && least.is_some_and(|least| least > self.budget()) {
            // It is not ours, or the path is longer.
            self.delay.restart();
            for knot in new {
                self.queue = self.delay.sample(knot.sent, knot.arrived, seen.rtt, seen.now);
            }
            return None;
        }
        least
    }

    /// Result of a train that is reported.
    fn train_result(&mut self, seen: &Observation) -> Option<Measured> {
        let train = self.train.as_ref()?;
        if train.gain <= 1.0 && train.confirms(&self.arrivals) {
            let measured = train.result(&self.arrivals, &self.loss);
            self.train = None;
            return measured;
        }
        if seen.sent_at < train.until() {
            let given_up = seen.now > train.until() + self.unit * TRAIN_PATIENCE;
            if given_up {
                self.train = None;
            }
            return None;
        }
        let measured = train.result(&self.arrivals, &self.loss);
        self.train_at = (train.from + self.train_interval()).max(seen.now);
        self.train = None;
        measured
    }

    fn train_interval(&self) -> Duration {
        self.unit.mul_f64(TRAIN_EVERY).max(MIN_TRAIN_EVERY)
    }

    /// Uses the result of a train.
    fn take(&mut self, measured: Measured, seen: &Observation) {
        let Some(capacity) = self.capacity_bps else { return };
        self.unconfirmed_bytes = None;
        let Measured { bps, gain, succeeded, polices } = measured;
        tracing::debug!(?measured, capacity, "a train");
        if polices {
            // Once may be chance.
            self.lossy_trains += 1;
            if self.lossy_trains >= LOSSY_TRAINS {
                self.wait_for_policer(seen.now);
            }
            self.next_gain = GAIN;
            return;
        }
        self.lossy_trains = 0;
        if gain <= 1.0 {
            // The first packets after an idle time: only a lower capacity is news.
            if !succeeded {
                self.capacity_bps = Some(bps);
                self.share = AFTER_QUEUE;
            }
            return;
        }
        let weight = if self.is_confirmed && !succeeded { TRAIN_WEIGHT } else { 1.0 };
        self.capacity_bps = Some(capacity + weight * (bps - capacity));
        self.is_confirmed = true;
        self.share = CRUISE;
        let is_policed = self.is_policed(seen.now);
        self.next_gain = if succeeded && !is_policed { GAIN_AFTER_SUCCESS } else { GAIN };
        if succeeded {
            let wait = if is_policed { self.unit * POLICED_ROUND_TRIPS } else { Duration::ZERO };
            self.train_at = seen.now + wait;
        }
    }

    /// Lowers the capacity to what arrives in a queue, and lets the queue drain.
    fn drain(&mut self, seen: &Observation) {
        let Some(capacity) = self.capacity_bps else { return };
        let packets = Duration::from_secs_f64((QUEUE_PACKETS * PACKET_BYTES * 8) as f64 / capacity);
        let Some(passage) = self.arrivals.last(QUEUE_SPAN.max(packets)) else { return };
        let arrived = passage.arrived_bps.min(capacity);
        self.capacity_bps = Some(arrived);
        self.share = AFTER_QUEUE;
        self.train = None;
        self.next_gain = GAIN;
        let rtt = self.delay.rtt().unwrap_or(self.unit);
        let fits = bytes_in(arrived, rtt);
        let excess = seen.in_flight_bytes.saturating_sub(fits);
        let wait = Duration::from_secs_f64(8.0 * excess as f64 / arrived).min(MAX_DRAIN);
        let until = seen.now + wait;
        tracing::debug!(queue = ?self.queue, arrived, ?wait, "a queue");
        self.phase = Phase::Draining(until);
        self.settled_at = until;
        self.drained_at = Some(until);
        self.train_at = until + self.train_interval();
    }

    /// Lowers the capacity because more was lost than the channel loses.
    fn cut(&mut self, excess: Excess, seen: &Observation) {
        let Some(capacity) = self.capacity_bps else { return };
        tracing::debug!(?excess, capacity, "losses beyond the channel's");
        self.capacity_bps = Some(excess.capacity_bps.min(capacity));
        self.is_confirmed = true;
        self.share = AFTER_CUT;
        self.train = None;
        self.settled_at = seen.now;
        self.loss.skip_until(seen.now);
        self.next_gain = GAIN;
        self.train_at = seen.now + self.train_interval();
        // Once may be chance, or somebody else's burst.
        let again = self.unit * AGAIN_ROUND_TRIPS + self.policed_wait * 2;
        if self.cut_at.is_some_and(|at| seen.now < at + again) {
            self.wait_for_policer(seen.now);
        }
        self.cut_at = Some(seen.now);
    }

    /// Returns `true` if losses have answered higher rates lately.
    fn is_policed(&self, now: Duration) -> bool {
        let lately = self.policed_wait * 2;
        self.cut_at.is_some_and(|at| now < at + lately)
    }

    /// Waits before the next train, because losses answered the last one.
    fn wait_for_policer(&mut self, now: Duration) {
        if !self.is_policed(now) {
            self.policed_wait = Duration::ZERO;
        }
        let least = self.unit * POLICED_ROUND_TRIPS;
        self.policed_wait = (self.policed_wait * 2).clamp(least, MAX_POLICED_WAIT.max(least));
        self.train_at = now + self.policed_wait;
        self.next_gain = GAIN;
        self.cut_at = Some(now);
    }
}

/// Bytes at `bps` in `time`.
fn bytes_in(bps: f64, time: Duration) -> u64 {
    (bps * time.as_secs_f64() / 8.0) as u64
}
