//! Circuit breaker (RFC 8084), which protects other senders if a lease is wrong.
//!
//! ```text
//!            queue > RTT/4 over one RTT, two or four, or too much loss
//!   Closed ─────────────────────────────────────────────► Draining: no data
//!     ▲                                                       │ the excess is gone
//!     │ a probe at the lease succeeds, or a                    ▼
//!     └──── better lease was given ──────────────────── Limited: 0.85 × what arrives ÷ (1−p)
//!                                                          every 3 RTT a probe at twice that,
//!                                                          at once again while probes succeed
//! ```
//!
//! The time for which a long queue is tolerated depends on the delivery rate relative to the
//! sending rate:
//!
//! | delivery | likely reason | tolerated |
//! |---|---|---|
//! | half of the sending rate or less | this side sends too much | one round trip |
//! | in between | other senders begin, and their growing queue stretches ours | two round trips |
//! | nearly the sending rate | the queue is mostly others' | four, or two if the queue exceeds a round trip |
//!
//! The first packets after a drain, or after a pause in which all of ours arrived, find no queue of
//! ours. If they find a long queue, it is others' or the path is longer. For a minute then a long
//! queue alone is not a reason to trip. Packets that arrive much further apart than they were sent
//! are a reason, and too much loss always is. If neither was seen at the trip, giving way helped
//! nobody and the lease is used again: probes fail in others' queue, and this side would be left
//! with a fraction of its rate.
//!
//! A probe is a train of ordinary packets at twice the rate for a quarter of a round trip. On a
//! link that cannot carry it, it causes at most 0.18 RTT of queue, which shows as additional delay
//! of its last packets. There is no probe without waiting data.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::baseline::Baseline;
use super::cross_traffic::CrossTraffic;
use super::delay::Delay;
use super::delivery_rate::DeliveryRate;
use super::probe::{Probe, ProbeResult};
use super::{IDLE_GRANT, Observation};

/// Divisor of a round trip for the longest tolerated queue.
const QUEUE_PART: u32 = 4;
/// Divisor of a round trip for a queue that is others' if nothing of ours is in flight: above a
/// radio's jitter.
const OTHERS_PART: u32 = 8;
/// Divisor of a round trip for a queue that counts as empty.
const EMPTY_PART: u32 = 20;
/// Minimum round trip; below it, timers and scheduling look like queues.
const MIN_UNIT: Duration = Duration::from_millis(100);
/// Share of the delivery rate that is used after a trip, so that the rest of the queue drains.
const CAUTION: f64 = 0.85;
/// Round trips between the beginning of a failed probe and the next probe …
const PROBE_EVERY: u32 = 3;
/// … and after too much loss, so that the loss at the lower rate is known.
const FIRST_PROBE_AFTER_LOSS: u32 = 4;
/// Divisor of a round trip for the length of a probe …
const PROBE_PART: u32 = 4;
/// … and its minimum number of packets.
const MIN_PROBE_PACKETS: u64 = 8;
/// Round trips without a report after which a probe is given up without a result.
const PROBE_PATIENCE: u32 = 4;
/// Factor by which a lease must exceed the failed one to be tried at once.
const BETTER_LEASE: f64 = 1.25;
/// Maximum wait of data for a drain, whatever is in flight: 10 Mbit at 256 kbit/s are 40 s.
const MAX_DRAIN: Duration = Duration::from_secs(40);
/// Round trips over which arrivals count after too much loss: the rounds that showed it took
/// longer, and losses in bursts need more than one.
const ARRIVALS: u32 = 2;
/// Share of the sending rate below which this side may be sending too much. CrossTraffic' standing queue
/// takes a few per cent of the rate.
const OUTPACED: f64 = 0.8;
/// Share of the sending rate at or below which this side surely sends too much. Other senders at
/// their beginning double what they send in a round trip. They stretch one round trip's packets by
/// less than another, as long as the queue holds no more than a round trip.
const FAR_OUTPACED: f64 = 0.5;
/// Round trips for which a queue is tolerated if other senders may be beginning. With a lease of
/// twice the capacity, this side's own queue is three and a half round trips when the drain begins.
const DOUBTFUL_ROUNDS: u32 = 2;
/// Round trips if packets arrive nearly as they were sent: with a lease a quarter too high, one and
/// a half.
const PATIENT_ROUNDS: u32 = 4;
/// Drains in a row that each find a long queue gone, after which it is examined longer: it may be the wait
/// for slots on request (DAMA), which a pause ends …
const EMPTY_DRAINS: u32 = 2;
/// … with at most this time between two of them.
const DRAINS_WITHIN: Duration = Duration::from_secs(120);
/// Maximum wait for slots, in round trips.
const MAX_REQUEST: f64 = 1.15;
/// Share of the sending rate at which all of it arrives.
const ALL: f64 = 0.98;
/// Share of its rate that this side must have sent while a queue disappeared, to prove that the
/// queue was others': its own disappears only if it sends less than the link carries.
const STEADY: f64 = 0.9;
/// A full packet, for purposes where its true size does not matter.
const PACKET_BYTES: u64 = 1500;

/// Circuit breaker between a lease and the pacer.
#[derive(Debug)]
pub struct Breaker {
    delay: Delay,
    baseline: Baseline,
    deliveries: DeliveryRate,
    /// Time, on the peer's clock, since which every packet found too long a queue.
    over_since: Option<Duration>,
    /// Time, on the peer's clock, since which packets arrived much slower than they were sent.
    stretched_since: Option<Duration>,
    queue: Duration,
    unit: Duration,
    others: CrossTraffic,
    /// Time at which nothing of ours was in flight, until a packet sent since is reported.
    alone: Option<Duration>,
    /// Drains in a row that found the queue gone, and the last one.
    empty_drains: u32,
    emptied_at: Duration,
    state: State,
    trips: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed,
    Draining { capacity_bps: f64, until: Duration, then: Limited },
    Limited(Limited),
}

#[derive(Debug, Clone, Copy)]
struct Limited {
    rate: BitRate,
    /// Lease that failed.
    lease: BitRate,
    by_loss: bool,
    /// It failed because this side sent too much.
    outpaced: bool,
    /// Time at which data began again, until a packet sent since is reported.
    resumed: Option<Duration>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Resting { probe_at: Duration },
    Probing(Probe),
}

impl Breaker {
    /// Creates a closed breaker, which uses the lease.
    pub fn new() -> Self {
        Self {
            delay: Delay::default(),
            baseline: Baseline::new(),
            deliveries: DeliveryRate::default(),
            over_since: None,
            stretched_since: None,
            queue: Duration::ZERO,
            unit: MIN_UNIT,
            others: CrossTraffic::default(),
            alone: None,
            empty_drains: 0,
            emptied_at: Duration::ZERO,
            state: State::Closed,
            trips: 0,
        }
    }

    /// Rate that may be used of a lease of `lease`.
    pub fn rate(&mut self, lease: BitRate, now: Duration) -> BitRate {
        let limited = match &self.state {
            State::Closed => return lease,
            State::Draining { then, .. } => return then.rate.min(lease),
            State::Limited(limited) => limited,
        };
        let better = lease.bps() as f64 > limited.lease.bps() as f64 * BETTER_LEASE;
        if better || limited.rate >= lease {
            self.state = State::Closed;
            self.over_since = None;
            return lease;
        }
        match limited.phase {
            Phase::Probing(probe) if now < probe.until => probe.rate.min(lease),
            _ => limited.rate,
        }
    }

    /// Returns `true` if data must wait.
    pub fn holds_data(&self) -> bool {
        matches!(self.state, State::Draining { .. })
    }

    /// Number of trips.
    pub fn trips(&self) -> u64 {
        self.trips
    }

    /// Queueing delay of the last reported packet.
    pub fn queue(&self) -> Duration {
        self.queue
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self) -> Option<Duration> {
        match self.state {
            State::Draining { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Resumes data that has waited long enough.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.next_timeout().is_some_and(|until| until <= now) {
            self.resume(now);
        }
    }

    /// Counts a packet of `bytes` with data. It may be the first of a probe.
    pub fn sent(&mut self, bytes: usize, lease: BitRate, now: Duration) {
        let (unit, queue) = (self.unit, self.queue);
        let State::Limited(limited) = &mut self.state else { return };
        match &mut limited.phase {
            Phase::Resting { probe_at } if *probe_at <= now => {
                let rate = BitRate::from_bps(limited.rate.bps().saturating_mul(2)).min(lease);
                let packets = rate.time_for(MIN_PROBE_PACKETS * PACKET_BYTES);
                let length = (unit / PROBE_PART).max(packets);
                let mut probe = Probe::new(now, length, rate, queue);
                probe.sent_bytes = bytes as u64;
                limited.phase = Phase::Probing(probe);
            }
            Phase::Probing(probe) if now < probe.until => probe.sent_bytes += bytes as u64,
            _ => {}
        }
    }

    /// Handles a report.
    pub fn observe(&mut self, seen: &Observation, lease: BitRate) {
        let Observation { now, rtt, sent_at, arrived, judged, lost, .. } = *seen;
        self.queue = self.delay.sample(sent_at, arrived, rtt, now);
        self.unit = self.delay.rtt().unwrap_or(rtt).max(MIN_UNIT);
        self.deliveries.note(seen, self.unit * ARRIVALS);
        self.check_after_drain(seen);
        self.check_after_pause(seen, lease);
        match &self.state {
            State::Draining { capacity_bps, .. } => {
                // Data in flight without a queue is what fits into a round trip.
                let full = capacity_bps * self.rtt().as_secs_f64() / 8.0;
                if seen.in_flight_bytes as f64 <= full {
                    self.resume(now);
                }
                return;
            }
            State::Limited(_) => self.judge_probe(seen, lease),
            State::Closed => {}
        }
        self.note_stretch(arrived);
        let too_long = self.queue > self.unit / QUEUE_PART;
        let since = if too_long { *self.over_since.get_or_insert(arrived) } else { Duration::MAX };
        if !too_long {
            self.over_since = None;
        }
        let empty = self.queue < self.unit / EMPTY_PART;
        let excess_loss = self.baseline.judged(judged, lost, empty, self.unit, now);
        let stood = arrived.saturating_sub(since);
        if self.others.are_known(now) {
            let is_steady = self.is_steady(lease);
            self.others.note(too_long, too_long && stood >= self.unit, is_steady, now);
        }
        if too_long && self.is_tolerated_enough(stood, arrived, now) {
            self.trip(false, seen, lease);
        } else if excess_loss {
            self.trip(true, seen, lease);
        }
    }

    /// Returns `true` if this side kept sending at its rate up to the last reported packet.
    fn is_steady(&self, lease: BitRate) -> bool {
        let rate = match &self.state {
            State::Closed => lease,
            State::Draining { then: limited, .. } | State::Limited(limited) => limited.rate,
        };
        self.deliveries.sending_bps().unwrap_or(0.0) >= STEADY * rate.bps() as f64
    }

    fn rtt(&self) -> Duration {
        self.delay.rtt().unwrap_or(self.unit)
    }

    /// Returns `true` if too long a queue, which `stood` until `arrived`, has been tolerated for
    /// long enough.
    fn is_tolerated_enough(&mut self, stood: Duration, arrived: Duration, now: Duration) -> bool {
        if self.examines_requests(now) {
            if stood < self.unit * PATIENT_ROUNDS {
                return false;
            }
            if self.relative_rate() >= ALL {
                self.others.found(now);
                return false;
            }
            return true;
        }
        if self.relative_rate() <= FAR_OUTPACED {
            return stood >= self.unit;
        }
        if let Some(since) = self.stretched_since {
            return stood.min(arrived.saturating_sub(since)) >= self.unit * DOUBTFUL_ROUNDS;
        }
        let longer = self.queue > self.unit;
        let rounds = if longer { DOUBTFUL_ROUNDS } else { PATIENT_ROUNDS };
        stood >= self.unit * rounds && !self.others.are_known(now)
    }

    /// Returns `true` if the queue may be the wait for slots, and is examined.
    fn examines_requests(&self, now: Duration) -> bool {
        self.empty_drains >= EMPTY_DRAINS
            && self.queue <= self.unit.mul_f64(MAX_REQUEST)
            && !self.others.are_known(now)
    }

    /// Notes that a drain found no queue.
    fn note_empty(&mut self, now: Duration) {
        let is_row = now < self.emptied_at + DRAINS_WITHIN;
        self.empty_drains = if is_row { self.empty_drains + 1 } else { 1 };
        self.emptied_at = now;
    }

    /// Notes since when packets arrive much slower than they were sent.
    fn note_stretch(&mut self, arrived: Duration) {
        let since = self.stretched_since.unwrap_or(arrived);
        self.stretched_since = (self.relative_rate() < OUTPACED).then_some(since);
    }

    /// Delivery rate of the last round trip relative to its sending rate, without known losses.
    fn relative_rate(&self) -> f64 {
        self.deliveries.relative_rate(self.unit).unwrap_or(1.0) / (1.0 - self.baseline.loss())
    }

    fn trip(&mut self, by_loss: bool, seen: &Observation, lease: BitRate) {
        let span = if by_loss { self.unit * ARRIVALS } else { self.unit };
        let Some(delivery_bps) = self.deliveries.bps(span) else { return };
        let capacity_bps = delivery_bps / (1.0 - self.baseline.loss());
        let rate = BitRate::from_bps((CAUTION * capacity_bps) as u64).max(IDLE_GRANT).min(lease);
        let full = capacity_bps * self.rtt().as_secs_f64();
        let excess = (8.0 * seen.in_flight_bytes as f64 - full).max(0.0);
        let drain = Duration::try_from_secs_f64(1.5 * excess / capacity_bps).unwrap_or(MAX_DRAIN);
        let until = seen.now + (drain + self.unit).min(MAX_DRAIN);
        let phase = Phase::Resting { probe_at: until };
        let outpaced = self.relative_rate() < OUTPACED;
        let then = Limited { rate, lease, by_loss, outpaced, resumed: None, phase };
        tracing::info!(by_loss, queue = ?self.queue, %rate, %lease, "the breaker trips");
        if self.examines_requests(seen.now) {
            self.empty_drains = 0;
        }
        self.trips += 1;
        self.others.given_way();
        if by_loss {
            self.baseline.restart();
        }
        self.state = State::Draining { capacity_bps, until, then };
        if excess <= 0.0 {
            self.resume(seen.now);
        }
    }

    fn resume(&mut self, now: Duration) {
        let State::Draining { mut then, .. } = self.state else { return };
        let rest = if then.by_loss { FIRST_PROBE_AFTER_LOSS } else { PROBE_EVERY };
        then.phase = Phase::Resting { probe_at: now + self.unit * rest };
        then.resumed = Some(now);
        self.state = State::Limited(then);
        self.over_since = None;
        self.baseline.skip_round();
    }

    /// Evaluates the queue that the first packet after a drain found.
    fn check_after_drain(&mut self, seen: &Observation) {
        let State::Limited(limited) = &mut self.state else { return };
        if limited.resumed.is_none_or(|at| seen.sent_at < at) {
            return;
        }
        limited.resumed = None;
        if self.queue <= self.unit / OTHERS_PART {
            if !limited.by_loss {
                self.note_empty(seen.now);
                if self.empty_drains == EMPTY_DRAINS {
                    // Only the lease itself shows whether slots are granted for it.
                    self.state = State::Closed;
                }
            }
            return;
        }
        if !limited.by_loss && !limited.outpaced {
            self.state = State::Closed;
        }
        self.others.found(seen.now);
        self.delay.restart();
        self.queue = self.delay.sample(seen.sent_at, seen.arrived, seen.rtt, seen.now);
    }

    /// Evaluates the queue that the first packets found that were sent with less than one in
    /// flight. Those of half a round trip cause no queue of an eighth by themselves, unless they
    /// arrive much further apart than they were sent.
    fn check_after_pause(&mut self, seen: &Observation, lease: BitRate) {
        let found_alone = self.alone.is_some_and(|at| seen.sent_at >= at);
        let are_first = lease.time_for(seen.judged_bytes) <= self.unit / 2;
        if found_alone && are_first && self.queue > self.unit / OTHERS_PART {
            self.others.found(seen.now);
        }
        if seen.in_flight_bytes < PACKET_BYTES {
            self.alone = Some(seen.now);
        } else if found_alone {
            self.alone = None;
        }
    }

    fn judge_probe(&mut self, seen: &Observation, lease: BitRate) {
        let (unit, queue, known) = (self.unit, self.queue, self.baseline.is_known());
        let State::Limited(limited) = &mut self.state else { return };
        let Phase::Probing(probe) = &mut limited.phase else { return };
        if seen.sent_at < probe.from {
            probe.queue_before = queue;
            if seen.now > probe.until + unit * PROBE_PATIENCE {
                limited.phase = Phase::Resting { probe_at: seen.now };
            }
            return;
        }
        probe.reported(seen.judged, seen.lost, queue);
        if seen.sent_at < probe.until {
            return;
        }
        let excess_loss = known && self.baseline.fails_probe(probe.judged, probe.lost);
        match probe.result(excess_loss) {
            ProbeResult::Succeeded => {
                limited.rate = probe.rate;
                limited.phase = Phase::Resting { probe_at: seen.now };
                if limited.rate >= lease {
                    self.state = State::Closed;
                }
            }
            ProbeResult::Failed => {
                let probe_at = (probe.from + unit * PROBE_EVERY).max(seen.now);
                limited.phase = Phase::Resting { probe_at };
            }
            ProbeResult::Nothing => limited.phase = Phase::Resting { probe_at: seen.now },
        }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
