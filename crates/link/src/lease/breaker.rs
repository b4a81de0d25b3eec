//! The breaker: what protects others when a lease is wrong.
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
//! How long a queue is borne goes by how packets arrive. At half of the rate at which they were sent or less,
//! this side sends too much: one round trip. At a rate in between, it may be that others begin, whose growing
//! queue stretches ours too: two of that. Nearly as they were sent, the queue is hardly of this side's making:
//! four, so that others have the time to let it go, but two where it is longer than a round trip.
//!
//! The first packets after a drain, or after a pause in which all of ours came, find no queue of ours.
//! Where they find a long one all the same, the queue is others', or the way is longer. For a minute then
//! a long queue alone is no reason to trip; packets that arrive much further apart than they were sent are
//! one, and too much loss always is. And where neither was seen at the trip, giving way helped nobody, and
//! the lease is used again: probes in others' queue fail, and this side would be left with what it had
//! given way to.
//!
//! A probe is a train of ordinary packets at twice the rate for a quarter of a round trip. Into a
//! link that cannot carry it, it puts no more than 0.18 RTT of queue, and what the last of it waits
//! longer than the first tells so. Where no data waits there is nothing to probe for.

use std::time::Duration;

use bentpipe_units::BitRate;

use super::baseline::Baseline;
use super::delay::Delay;
use super::deliveries::Deliveries;
use super::others::Others;
use super::probe::{Probe, Verdict};
use super::{IDLE_GRANT, Observation};

/// A queue of this part of a round trip is one too long.
const QUEUE_PART: u32 = 4;
/// One of this part, found when nothing of ours is on the way, is others': above a radio's jitter.
const OTHERS_PART: u32 = 8;
/// One of this part counts as empty.
const EMPTY_PART: u32 = 20;
/// Shorter round trips count as this long: below, timers and scheduling look like queues.
const LEAST_UNIT: Duration = Duration::from_millis(100);
/// After a trip this part of what arrives is used, so that what is left of the queue drains.
const CAUTION: f64 = 0.85;
/// From the beginning of a probe to that of the next, after one that failed, in round trips …
const PROBE_EVERY: u32 = 3;
/// … and after too much loss, so that the loss at the lower rate is known.
const FIRST_PROBE_AFTER_LOSS: u32 = 4;
/// A probe lasts this part of a round trip …
const PROBE_PART: u32 = 4;
/// … and for so many packets at least.
const LEAST_PROBE_PACKETS: u64 = 8;
/// Nobody reported on a probe for so many round trips: it says nothing.
const PROBE_PATIENCE: u32 = 4;
/// A lease this much better than the one that failed is tried at once.
const BETTER_LEASE: f64 = 1.25;
/// However much is in flight, data waits no longer than this: 10 Mbit at 256 kbit/s are 40 s.
const MOST_DRAIN: Duration = Duration::from_secs(40);
/// After too much loss, what arrived over so many round trips counts: the rounds that showed it
/// took longer, and losses in bursts want more than one.
const ARRIVALS: u32 = 2;
/// This side may send too much where packets arrive at less than this part of the rate at which they were
/// sent: others' standing queue takes a few per cent of it.
const OUTPACED: f64 = 0.8;
/// It surely does where they arrive at this part or less: others who begin double what they send in a
/// round trip, and stretch what was sent in one by less than another, as long as the queue holds no more than
/// a round trip.
const FAR_OUTPACED: f64 = 0.5;
/// A queue is borne for so many round trips where others may just be beginning. Of this side's own making, of
/// a lease of twice what there is, it is three and a half by the time that the drain begins.
const DOUBTFUL_ROUNDS: u32 = 2;
/// The same where packets arrive nearly as they were sent: at a lease a quarter too high, one and a half.
const PATIENT_ROUNDS: u32 = 4;
/// This side has not given way to a queue that went while it sent so much of its rate: its own goes only
/// where it sends less than the link carries.
const STEADY: f64 = 0.9;
/// A full packet, where its true size does not matter.
const PACKET_BYTES: u64 = 1500;

/// Breaker between a lease and the pacer.
#[derive(Debug)]
pub struct Breaker {
    delay: Delay,
    baseline: Baseline,
    deliveries: Deliveries,
    /// Since when, on the peer's clock, every packet found a queue too long.
    over_since: Option<Duration>,
    /// Since when, on the peer's clock, packets arrived so much slower than they were sent that others may
    /// be the reason, or this side.
    stretched_since: Option<Duration>,
    queue: Duration,
    unit: Duration,
    others: Others,
    /// Nothing of ours was on the way at this time, and no packet that was sent since is reported.
    alone: Option<Duration>,
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
    /// The lease that failed.
    lease: BitRate,
    by_loss: bool,
    /// It failed because this side sent too much, whoever else did.
    outpaced: bool,
    /// Data began again, and no packet sent since was reported.
    resumed: Option<Duration>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Resting { probe_at: Duration },
    Probing(Probe),
}

impl Breaker {
    /// Closed: the lease is used.
    pub fn new() -> Self {
        Self {
            delay: Delay::default(),
            baseline: Baseline::new(),
            deliveries: Deliveries::default(),
            over_since: None,
            stretched_since: None,
            queue: Duration::ZERO,
            unit: LEAST_UNIT,
            others: Others::default(),
            alone: None,
            state: State::Closed,
            trips: 0,
        }
    }

    /// Rate that may be used, of a lease of `lease`.
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

    /// The queue that the last reported packet found.
    pub fn queue(&self) -> Duration {
        self.queue
    }

    /// Time at which [`Self::handle_timeout`] has something to do.
    pub fn next_timeout(&self) -> Option<Duration> {
        match self.state {
            State::Draining { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Lets data go on where it has waited long enough.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.next_timeout().is_some_and(|until| until <= now) {
            self.resume(now);
        }
    }

    /// A packet of `bytes` with data left. It may be the first of a probe.
    pub fn sent(&mut self, bytes: usize, lease: BitRate, now: Duration) {
        let (unit, queue) = (self.unit, self.queue);
        let State::Limited(limited) = &mut self.state else { return };
        match &mut limited.phase {
            Phase::Resting { probe_at } if *probe_at <= now => {
                let rate = BitRate::from_bps(limited.rate.bps().saturating_mul(2)).min(lease);
                let packets = rate.time_for(LEAST_PROBE_PACKETS * PACKET_BYTES);
                let length = (unit / PROBE_PART).max(packets);
                let mut probe = Probe::new(now, length, rate, queue);
                probe.sent_bytes = bytes as u64;
                limited.phase = Phase::Probing(probe);
            }
            Phase::Probing(probe) if now < probe.until => probe.sent_bytes += bytes as u64,
            _ => {}
        }
    }

    /// Learns from a report.
    pub fn observe(&mut self, seen: &Observation, lease: BitRate) {
        let Observation { now, rtt, sent_at, arrived, judged, lost, .. } = *seen;
        self.queue = self.delay.sample(sent_at, arrived, rtt, now);
        self.unit = self.delay.rtt().unwrap_or(rtt).max(LEAST_UNIT);
        self.deliveries.note(seen, self.unit * ARRIVALS);
        self.check_way(seen);
        self.check_pause(seen, lease);
        match &self.state {
            State::Draining { capacity_bps, .. } => {
                // In flight with nothing queued is what fits into a round trip.
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
        if too_long && self.is_enough(stood, arrived, now) {
            self.trip(false, seen, lease);
        } else if excess_loss {
            self.trip(true, seen, lease);
        }
    }

    /// Returns `true` if this side went on sending at its rate up to the last reported packet.
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

    /// Returns `true` if a queue that is too long, and `stood` until `arrived`, has been tolerated
    /// for long enough.
    fn is_enough(&self, stood: Duration, arrived: Duration, now: Duration) -> bool {
        if self.part() <= FAR_OUTPACED {
            return stood >= self.unit;
        }
        if let Some(since) = self.stretched_since {
            return stood.min(arrived.saturating_sub(since)) >= self.unit * DOUBTFUL_ROUNDS;
        }
        let longer = self.queue > self.unit;
        let rounds = if longer { DOUBTFUL_ROUNDS } else { PATIENT_ROUNDS };
        stood >= self.unit * rounds && !self.others.are_known(now)
    }

    /// Notes since when packets arrive much slower than they were sent.
    fn note_stretch(&mut self, arrived: Duration) {
        let since = self.stretched_since.unwrap_or(arrived);
        self.stretched_since = (self.part() < OUTPACED).then_some(since);
    }

    /// As what part of the rate at which it was sent the last round trip's arrived, known losses aside.
    fn part(&self) -> f64 {
        self.deliveries.part(self.unit).unwrap_or(1.0) / (1.0 - self.baseline.loss())
    }

    fn trip(&mut self, by_loss: bool, seen: &Observation, lease: BitRate) {
        let span = if by_loss { self.unit * ARRIVALS } else { self.unit };
        let Some(delivery_bps) = self.deliveries.bps(span) else { return };
        let capacity_bps = delivery_bps / (1.0 - self.baseline.loss());
        let rate = BitRate::from_bps((CAUTION * capacity_bps) as u64).max(IDLE_GRANT).min(lease);
        let full = capacity_bps * self.rtt().as_secs_f64();
        let excess = (8.0 * seen.in_flight_bytes as f64 - full).max(0.0);
        let drain = Duration::try_from_secs_f64(1.5 * excess / capacity_bps).unwrap_or(MOST_DRAIN);
        let until = seen.now + (drain + self.unit).min(MOST_DRAIN);
        let phase = Phase::Resting { probe_at: until };
        let outpaced = self.part() < OUTPACED;
        let then = Limited { rate, lease, by_loss, outpaced, resumed: None, phase };
        tracing::info!(by_loss, queue = ?self.queue, %rate, %lease, "the breaker trips");
        self.trips += 1;
        self.others.given_way();
        if by_loss {
            self.baseline.begin_anew();
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

    /// Looks at what the first packet after a drain found.
    fn check_way(&mut self, seen: &Observation) {
        let State::Limited(limited) = &mut self.state else { return };
        if limited.resumed.is_none_or(|at| seen.sent_at < at) {
            return;
        }
        limited.resumed = None;
        if self.queue <= self.unit / OTHERS_PART {
            return;
        }
        if !limited.by_loss && !limited.outpaced {
            self.state = State::Closed;
        }
        self.others.found(seen.now);
        self.delay.begin_anew();
        self.queue = self.delay.sample(seen.sent_at, seen.arrived, seen.rtt, seen.now);
    }

    /// Looks at what the first packets found that left when less than one was on the way. Those of half a
    /// round trip make no queue of an eighth by themselves, unless they arrive much further apart than they were sent.
    fn check_pause(&mut self, seen: &Observation, lease: BitRate) {
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
        match probe.verdict(excess_loss) {
            Verdict::Succeeded => {
                limited.rate = probe.rate;
                limited.phase = Phase::Resting { probe_at: seen.now };
                if limited.rate >= lease {
                    self.state = State::Closed;
                }
            }
            Verdict::Failed => {
                let probe_at = (probe.from + unit * PROBE_EVERY).max(seen.now);
                limited.phase = Phase::Resting { probe_at };
            }
            Verdict::Nothing => limited.phase = Phase::Resting { probe_at: seen.now },
        }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
