//! Delays and losses of one train.

use super::Packet;

/// Evidence for a change of loss within a train, as a difference of logarithmic likelihoods. Chance alone exceeds it
/// in about one train of 50. Such a train is followed by one that refutes it.
const MIN_EVIDENCE: f64 = 6.0;

/// Fewest packets after a change of loss.
const MIN_LATE: usize = 20;

/// Smallest increase of loss that counts. A policer that drops less is found by the next train.
const MIN_INCREASE: f64 = 0.25;

/// Smallest growth of delay that counts, in microseconds, and as a part of the time of sending.
const MIN_GROWTH_US: f64 = 10_000.0;
const MIN_GROWTH_PART: f64 = 0.08;

/// Smallest queue that counts, in packets and in microseconds.
const MIN_QUEUE: f64 = 2.5;
const MIN_QUEUE_US: f64 = 3000.0;

/// Part of its largest growth at which a delay still grows: the queue is not full yet.
const GROWING: (f64, f64) = (0.1, 0.8);

/// Fewest packets of which a slope is taken.
const MIN_SLOPE: usize = 24;

/// A train, prepared.
pub(super) struct Reading<'p> {
    packets: &'p [Packet],
    /// Delay above the train's smallest one in microseconds, of each packet that arrived.
    delays: Vec<Option<f64>>,
    /// Packet from which on more are lost, with the losses before and after.
    onset: Option<(usize, f64, f64)>,
}

impl<'p> Reading<'p> {
    /// Prepares a train. `None` if fewer than ten packets arrived.
    pub fn of(packets: &'p [Packet]) -> Option<Self> {
        let delay = |packet: &Packet| {
            packet.arrived_us.map(|arrived| f64::from(arrived) - f64::from(packet.sent_us))
        };
        let raw: Vec<Option<f64>> = packets.iter().map(delay).collect();
        let known: Vec<f64> = raw.iter().copied().flatten().collect();
        if known.len() < 10 {
            return None;
        }
        let base = known.iter().copied().fold(f64::INFINITY, f64::min);
        let delays = raw.iter().map(|delay| delay.map(|delay| delay - base)).collect();
        Some(Self { packets, delays, onset: onset(packets) })
    }

    /// Share of packets that were lost before the onset.
    pub fn loss_before(&self) -> f64 {
        match self.onset {
            Some((_, before, _)) => before,
            None => loss(self.packets),
        }
    }

    /// Packet from which on more are lost.
    pub fn onset(&self) -> Option<usize> {
        self.onset.map(|(at, ..)| at)
    }

    /// Increase of the smallest delay until the last packets, those from `from` on alone.
    pub fn growth_us(&self, from: usize) -> f64 {
        let late: Vec<f64> = self.delays[from..].iter().copied().flatten().collect();
        let last = late.iter().rev().take(late.len().div_ceil(4));
        last.copied().reduce(f64::min).unwrap_or(0.0)
    }

    /// Delay that nineteen of twenty packets do not exceed, in microseconds.
    pub fn spread_us(&self) -> f64 {
        let mut delays: Vec<f64> = self.delays.iter().copied().flatten().collect();
        delays.sort_by(f64::total_cmp);
        delays.get(delays.len() * 19 / 20).copied().unwrap_or(0.0)
    }

    /// Returns `true` if packets wait longer and longer, more than by `noise_us`.
    pub fn waits(&self, noise_us: f64) -> bool {
        let span = self.packets.last().map_or(0.0, |last| f64::from(last.sent_us));
        self.growth_us(0) > MIN_GROWTH_US.max(noise_us).max(MIN_GROWTH_PART * span)
    }

    /// Returns `true` if packets from `from` on wait in a queue of some packets at `rate_bps`, for more than
    /// `noise_us`.
    pub fn queued(&self, from: usize, rate_bps: f64, noise_us: f64) -> bool {
        let service_us = f64::from(self.packets[from].bytes) * 8e6 / rate_bps;
        self.growth_us(from) > (MIN_QUEUE * service_us).max(noise_us).max(MIN_QUEUE_US)
    }

    /// Share of packets from `from` on that were lost.
    pub fn loss_from(&self, from: usize) -> f64 {
        loss(&self.packets[from..])
    }

    /// Rate of arrival in the later half, with `loss` added, in bits per second.
    pub fn late_rate(&self, loss: f64) -> Option<f64> {
        let arrived: Vec<(f64, f64)> = self
            .packets
            .iter()
            .filter_map(|packet| Some((f64::from(packet.arrived_us?), f64::from(packet.bytes))))
            .collect();
        let late = &arrived[arrived.len() / 2..];
        rate(late.first()?.0, late.last()?.0, late[1..].iter().map(|(_, bytes)| bytes).sum(), loss)
    }

    /// Rate that passed after the onset, with `loss` added, in bits per second.
    pub fn passed_rate(&self, loss: f64) -> Option<f64> {
        let (at, ..) = self.onset?;
        let passed: Vec<&Packet> =
            self.packets[at..].iter().filter(|packet| packet.arrived_us.is_some()).collect();
        let bytes = passed.iter().skip(1).map(|packet| f64::from(packet.bytes)).sum();
        let (first, last) = (passed.first()?, passed.last()?);
        rate(f64::from(first.sent_us), f64::from(last.sent_us), bytes, loss)
    }

    /// Rate of a queue that fills, from the slope of arrivals over bytes. Losses after the queue do not matter.
    pub fn queue_rate(&self) -> Option<f64> {
        let points: Vec<(f64, f64)> = self.filling().collect();
        if points.len() < MIN_SLOPE {
            return None;
        }
        let n = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
        let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        (covariance > 0.0).then(|| 8e6 * variance / covariance)
    }

    /// Bytes that passed a queue of `rate_bps` without waiting: those sent until a packet left, less what the rate
    /// serves in that time.
    pub fn shaper_burst(&self, rate_bps: f64) -> Option<f64> {
        median(self.filling().map(|(bytes, left_us)| bytes - rate_bps * left_us / 8e6).collect())
    }

    /// Bytes that passed a policer of `rate_bps` before its bucket was empty.
    pub fn policer_burst(&self, rate_bps: f64) -> Option<f64> {
        let before = &self.packets[..self.onset()?];
        let sent: f64 = before.iter().map(|packet| f64::from(packet.bytes)).sum();
        let last = before.last()?;
        Some((sent - rate_bps * f64::from(last.sent_us) / 8e6).max(f64::from(last.bytes)))
    }

    /// Bytes sent until each packet of a queue that fills, and the time at which it left, in microseconds.
    fn filling(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let most = self.delays.iter().copied().flatten().fold(0.0, f64::max);
        let (low, high) = (GROWING.0 * most, GROWING.1 * most);
        let end = self.delays.iter().position(|delay| delay.is_some_and(|delay| delay > high));
        let mut sent = 0.0;
        self.packets.iter().zip(&self.delays).take(end.unwrap_or(self.packets.len())).filter_map(
            move |(packet, delay)| {
                sent += f64::from(packet.bytes);
                let delay = (*delay).filter(|delay| *delay >= low)?;
                Some((sent, f64::from(packet.sent_us) + delay))
            },
        )
    }

    /// Rate of a policer that lets packets from `from` on pass at regular intervals: their number, with those counted
    /// that were lost later, because they leave a gap of several intervals. `None` if the intervals are those of
    /// chance.
    pub fn policed_rate(&self, from: usize) -> Option<f64> {
        let passed: Vec<f64> = self.packets[from..]
            .iter()
            .filter(|packet| packet.arrived_us.is_some())
            .map(|packet| f64::from(packet.sent_us))
            .collect();
        let bits = 8e6 * f64::from(self.packets[from].bytes);
        let gaps: Vec<f64> = passed.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let total: f64 = gaps.iter().sum();
        if gaps.len() < MIN_SLOPE || total <= 0.0 {
            return None;
        }
        // Intervals differ by one packet of the train. Longer gaps are left out at first.
        let usual = 1.5 * median(gaps.clone())?;
        let single: Vec<f64> = gaps.iter().copied().filter(|gap| *gap <= usual).collect();
        let mut rate = bits * single.len() as f64 / single.iter().sum::<f64>();
        for _ in 0..8 {
            let served: f64 = gaps.iter().map(|gap| (gap * rate / bits).round().max(1.0)).sum();
            rate = served * bits / total;
        }
        let short = gaps.iter().filter(|gap| **gap * rate / bits < 0.5).count();
        (short * 10 <= gaps.len()).then_some(rate)
    }
}

fn rate(from_us: f64, to_us: f64, bytes: f64, loss: f64) -> Option<f64> {
    let passed = to_us - from_us;
    (passed > 0.0 && bytes > 0.0).then(|| bytes * 8e6 / passed / (1.0 - loss.min(0.9)))
}

fn loss(packets: &[Packet]) -> f64 {
    let lost = packets.iter().filter(|packet| packet.arrived_us.is_none()).count();
    lost as f64 / packets.len().max(1) as f64
}

/// The most likely packet from which on more are lost, if chance does not explain it.
fn onset(packets: &[Packet]) -> Option<(usize, f64, f64)> {
    let all = packets.iter().filter(|packet| packet.arrived_us.is_none()).count();
    let likelihood = |lost: usize, of: usize| {
        let (lost, of) = (lost as f64, of as f64);
        let term = |part: f64| if part > 0.0 { part * (part / of).ln() } else { 0.0 };
        if of > 0.0 { term(lost) + term(of - lost) } else { 0.0 }
    };
    let one = likelihood(all, packets.len());
    let mut before = 0;
    let mut best: Option<(f64, usize, (f64, f64))> = None;
    for (at, packet) in packets.iter().enumerate() {
        let (early, late) = (at, packets.len() - at);
        let evidence = likelihood(before, early) + likelihood(all - before, late) - one;
        let shares = (before as f64 / early.max(1) as f64, (all - before) as f64 / late as f64);
        let increases = early >= 3 && late >= MIN_LATE && shares.1 >= shares.0 + MIN_INCREASE;
        let better = best.is_none_or(|(most, ..)| evidence > most);
        if increases && evidence > MIN_EVIDENCE && better {
            best = Some((evidence, at, shares));
        }
        before += usize::from(packet.arrived_us.is_none());
    }
    let (_, at, (before, after)) = best?;
    is_regular(&packets[at..]).then_some((at, before, after))
}

/// Returns `true` if losses are spread evenly, as a policer or a full queue does it. Losses of a radio come in bursts.
fn is_regular(packets: &[Packet]) -> bool {
    let lost: Vec<bool> = packets.iter().map(|packet| packet.arrived_us.is_none()).collect();
    let losses = lost.iter().filter(|lost| **lost).count();
    let pairs = |kind: bool| lost.windows(2).filter(|pair| **pair == [kind; 2]).count();
    let passes = lost.len() - losses;
    if losses <= passes { pairs(true) * 3 <= losses } else { pairs(false) * 4 <= passes }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
