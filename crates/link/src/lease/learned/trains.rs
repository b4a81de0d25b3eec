//! Times and gains of trains, and the train that is being sent or that awaits its reports.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::loss::LossRounds;
use super::train::{self, Measured, Train};
use crate::lease::Observation;

/// Gain of a train, and of the next one after a success.
pub const GAIN: f64 = 1.25;
pub const GAIN_AFTER_SUCCESS: f64 = 2.0;
/// Round trips between the beginnings of two trains …
const EVERY: f64 = 1.75;
/// … their minimum distance on short paths …
const MIN_EVERY: Duration = Duration::from_millis(150);
/// … and the number of round trips without an answer after which a train is given up.
const PATIENCE: u32 = 3;
/// Lengthening of trains by jitter, in mean differences of delay at a gain of 1 …
const JITTERS: f64 = 6.0;
/// … and its maximum, in seconds.
const MAX_JITTER_S: f64 = 0.2;
/// Share of the capacity after a train, while its queue drains.
pub const REST: f64 = 0.75;
/// Part of a train's queue that drains in that rest. The rest of it drains slowly.
const REST_PART: f64 = 0.75;

/// The schedule of trains.
#[derive(Debug)]
pub struct Trains {
    current: Option<Train>,
    next_gain: f64,
    next_at: Duration,
}

/// Interval of trains on a path with this round trip.
pub fn interval(rtt: Duration) -> Duration {
    rtt.mul_f64(EVERY).max(MIN_EVERY)
}

impl Trains {
    pub fn new() -> Self {
        Self { current: None, next_gain: GAIN, next_at: Duration::ZERO }
    }

    /// Gain of the train that is sent at `now`.
    pub fn gain_at(&self, now: Duration) -> Option<f64> {
        self.current.as_ref().filter(|train| train.is_sent_at(now)).map(|train| train.gain)
    }

    /// Returns `true` if the next train, or the present one, may have more packets.
    pub fn wants_packets(&self) -> bool {
        self.current.is_none_or(|train| !train.is_filled())
    }

    /// Returns `true` if a packet sent at `sent` may belong to a train or precede its result.
    pub fn has(&self, sent: Duration) -> bool {
        self.current.is_some_and(|train| sent >= train.from)
    }

    /// Largest queue that the train itself may cause for a packet sent at `sent`.
    pub fn queue_at(&self, sent: Duration) -> Duration {
        self.current.as_ref().map_or(Duration::ZERO, |train| train.queue_at(sent))
    }

    /// Begins a train that only confirms `capacity_bps`.
    pub fn confirm(&mut self, length: Duration, capacity_bps: f64, now: Duration) {
        self.current = Some(Train::new(now, length, 1.0, capacity_bps));
    }

    /// Begins a train if one is due. Its rate is at least `min_gain` times the capacity, and at most
    /// `max_gain` times.
    pub fn begin_if_due(
        &mut self,
        capacity_bps: f64,
        (min_gain, max_gain): (f64, f64),
        rtt: Duration,
        jitter_s: f64,
        now: Duration,
    ) {
        let gain = self.next_gain.max(min_gain).min(max_gain);
        if self.current.is_some() || now < self.next_at || gain <= 1.0 {
            return;
        }
        let jitter = Duration::from_secs_f64((JITTERS * jitter_s / (GAIN - 1.0)).min(MAX_JITTER_S));
        let length = train::length(rtt, gain * capacity_bps).max(jitter);
        self.current = Some(Train::new(now, length, gain, capacity_bps));
    }

    /// Counts a packet of the present train. Returns the time to rest if the train is over.
    pub fn sent(&mut self, bytes: usize, now: Duration) -> Option<Duration> {
        let train = self.current.as_mut()?;
        train.sent(bytes, now);
        train.rest(now, 1.0 - REST).map(|rest| rest.mul_f64(REST_PART))
    }

    /// Counts a report, and returns the result of a train that is reported.
    pub fn reported(
        &mut self,
        seen: &Observation,
        arrivals: &Arrivals,
        loss: &LossRounds,
        rtt: Duration,
    ) -> Option<Measured> {
        let train = self.current.as_mut()?;
        if seen.sent_at >= train.from {
            train.reported(seen.judged, seen.lost);
        }
        let train = *train;
        if train.gain <= 1.0 && train.confirms(arrivals) {
            self.current = None;
            return train.result(arrivals, loss);
        }
        if seen.sent_at < train.until() {
            if seen.now > train.until() + rtt * PATIENCE {
                self.current = None;
            }
            return None;
        }
        self.next_at = (train.from + interval(rtt)).max(seen.now);
        self.current = None;
        train.result(arrivals, loss)
    }

    /// Gives the present train up.
    pub fn give_up(&mut self) {
        self.current = None;
    }

    /// Schedules the next train.
    pub fn next_at(&mut self, at: Duration) {
        self.next_at = at;
    }

    /// The next train asks for little more than the present rate.
    pub fn be_careful(&mut self) {
        self.next_gain = GAIN;
    }

    /// The next train asks for much more than the present rate.
    pub fn be_bold(&mut self) {
        self.next_gain = GAIN_AFTER_SUCCESS;
    }
}
