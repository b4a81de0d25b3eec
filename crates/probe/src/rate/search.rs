//! The order of trains, and the finding.

use super::plan::{MAX_TRAFFIC, Plan, STAGES};
use super::reading::Reading;
use super::{Limit, Packet};

/// Speed of the last train as a multiple of the rate: a queue fills gently, and a policer drops two of three packets.
const QUEUE_FACTOR: f64 = 1.3;
const POLICER_FACTOR: f64 = 3.0;

/// Smallest share of a train that a policer drops at that speed.
const MIN_POLICED: f64 = 0.5;

/// Smallest bucket of a shaper: packets, and part of the bytes from which it is recognized.
const MIN_BUCKET_PACKETS: f64 = 4.0;
const MIN_BUCKET_PART: f64 = 0.06;

/// Share of a train without onset that may be lost by chance, above that of earlier trains.
const MAX_CHANCE: f64 = 0.25;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this train.
    Send(Plan),
    /// The search is over.
    Done(Limit),
}

/// The search for the limit of a direction.
#[derive(Debug, Default)]
pub struct Search {
    /// Trains of the search that were not too fast.
    passed: usize,
    /// Their loss.
    loss: Option<f64>,
    /// Their largest delay, by chance.
    noise_us: f64,
    /// Rate at which the last of them arrived.
    arrived_bps: f64,
    limited: Option<Limited>,
    spent_us: u64,
    end: Option<Limit>,
}

/// The first train that was too fast.
#[derive(Clone, Debug)]
struct Limited {
    packets: Vec<Packet>,
    bps: u32,
    /// Packets wait.
    waits: bool,
    /// Rate, roughly.
    rate_bps: f64,
    /// Bytes that passed at once, roughly.
    burst_bytes: f64,
}

impl Search {
    /// Returns the next step. A search has at most six trains, which last 3 s together.
    pub fn next(&self) -> Next {
        if let Some(limit) = self.end {
            return Next::Done(limit);
        }
        let plan = match &self.limited {
            None => match STAGES.get(self.passed) {
                Some(stage) => Plan::stage(*stage),
                None => return Next::Done(Limit::None { at_least_bps: self.arrived_bps as u64 }),
            },
            Some(limited) => {
                let factor = if limited.waits { QUEUE_FACTOR } else { POLICER_FACTOR };
                Plan::last(limited.rate_bps as u64, factor, limited.burst_bytes as u64, limited.bps)
            }
        };
        if self.spent_us + plan.time_us() > MAX_TRAFFIC {
            return Next::Done(Limit::Unknown);
        }
        Next::Send(plan)
    }

    /// Adds the train that [`Self::next`] asked for.
    pub fn add(&mut self, plan: Plan, packets: &[Packet]) {
        self.spent_us += plan.time_us();
        let Some(reading) = Reading::of(packets) else {
            self.end = Some(Limit::Unknown);
            return;
        };
        match self.limited.take() {
            None => self.stage(plan, packets, &reading),
            Some(limited) => self.last(plan, limited, &reading),
        }
    }

    fn stage(&mut self, plan: Plan, packets: &[Packet], reading: &Reading<'_>) {
        let waits = reading.waits(self.noise_us);
        let base = self.loss.unwrap_or(0.0);
        let thinned = reading.onset().is_some() || reading.loss_before() > base + MAX_CHANCE;
        if !waits && !thinned {
            self.pass(reading);
            self.passed += 1;
            return;
        }
        let loss = self.loss.unwrap_or(reading.loss_before());
        let rate = if waits { reading.queue_rate() } else { reading.passed_rate(loss) };
        let Some(rate_bps) = rate.or_else(|| reading.late_rate(loss)) else {
            self.end = Some(Limit::Unknown);
            return;
        };
        let burst =
            if waits { reading.shaper_burst(rate_bps) } else { reading.policer_burst(rate_bps) };
        let (packets, bps) = (packets.to_vec(), plan.steady.bps);
        let burst_bytes = burst.unwrap_or(0.0).max(0.0);
        self.limited = Some(Limited { packets, bps, waits, rate_bps, burst_bytes });
    }

    /// Notes a train that was not too fast.
    fn pass(&mut self, reading: &Reading<'_>) {
        self.loss = Some(reading.loss_before());
        self.noise_us = self.noise_us.max(reading.spread_us());
        self.arrived_bps = reading.late_rate(0.0).unwrap_or(0.0);
    }

    fn last(&mut self, plan: Plan, limited: Limited, reading: &Reading<'_>) {
        let steady = usize::from(plan.drain.count);
        // The bucket may have held more than was drained.
        let from = reading.onset().unwrap_or(0).max(steady);
        let policed = reading.loss_from(from) >= MIN_POLICED;
        if reading.queued(from, limited.rate_bps, self.noise_us) {
            let loss = self.loss.unwrap_or(0.0);
            let rate = reading.queue_rate().or_else(|| reading.late_rate(loss));
            self.end = Some(rate.map_or(Limit::Unknown, |rate| queue(&limited, rate)));
        } else if !policed {
            // Chance had dropped packets of the earlier train. The search goes on above this one.
            self.pass(reading);
            let above = STAGES.iter().position(|stage| stage.bps > plan.steady.bps);
            self.passed = above.unwrap_or(STAGES.len());
        } else {
            self.end = Some(match reading.policed_rate(from) {
                Some(rate) => policer(&limited, rate),
                None => Limit::Unknown,
            });
        }
    }
}

/// A policer, by the first train that was too fast.
fn policer(limited: &Limited, rate: f64) -> Limit {
    let burst = Reading::of(&limited.packets).and_then(|first| first.policer_burst(rate));
    Limit::Policer {
        rate_bps: rate as u64,
        burst_bytes: burst.unwrap_or(limited.burst_bytes) as u64,
    }
}

/// A slow link or a shaper, by the first train that was too fast.
fn queue(limited: &Limited, rate: f64) -> Limit {
    let rate_bps = rate as u64;
    let Some(first) = Reading::of(&limited.packets) else { return Limit::Unknown };
    let burst = first.shaper_burst(rate).unwrap_or(0.0);
    let packet = limited.packets.first().map_or(0.0, |packet| f64::from(packet.bytes));
    let sent: f64 = limited.packets.iter().map(|packet| f64::from(packet.bytes)).sum();
    if burst > (MIN_BUCKET_PACKETS * packet).max(MIN_BUCKET_PART * sent) {
        Limit::Shaper { rate_bps, burst_bytes: burst as u64 }
    } else {
        Limit::SlowLink { rate_bps }
    }
}
