//! Loss by cause: the channel's own, or beyond it.

use std::time::Duration;

use crate::lease::Observation;
use crate::lease::baseline::Baseline;

/// Losses beyond the channel's in one round that are congestion at once.
const SEVERE: f64 = 0.10;
/// Loss of the channel that is assumed before it is known.
const PRIOR: f64 = 0.02;
/// Maximum loss of the channel; anything beyond is an outage. A peer that reports losses that did
/// not happen is sent at most 1 / (1 − 0.7) = 3.3 times what arrives.
const MAX_CHANNEL: f64 = 0.7;
/// Round trips of our own clock after which a round ends, whatever the peer's clock says.
const MAX_ROUND_TRIPS: u32 = 2;
/// Share of the capacity from which on losses may be congestion.
const BUSY: f64 = 0.5;
/// Share of the loss before the rate was lowered at which the loss persists.
const PERSISTS: f64 = 0.6;
/// Rounds in a row in which it persists if it is the channel's. A policer's bucket may have passed
/// so much that the rate after the first is too high still.
const PERSISTENT_ROUNDS: u32 = 3;
/// Rounds after that in which losses may be a policer's: they do not raise the channel's …
const DOUBTFUL_ROUNDS: u32 = 20;
/// … and together they are congestion if they are this much beyond it …
const MODERATE: f64 = 0.02;
/// … in this number of packets.
const MODERATE_PACKETS: u64 = 240;
/// Losses beyond the channel's that end a round at once, because more is dropped than arrives …
const DROPPED: f64 = 0.5;
/// … in this number of packets.
const DROPPED_PACKETS: u64 = 64;
/// They arrive over at least this time. A shorter one has no rate.
const MIN_DROPPED_SPAN: Duration = Duration::from_millis(5);
/// Minimum number of packets in a round.
const MIN_PACKETS: u64 = 16;
/// Packets that prove a loss, because it is not learned while others keep a queue.
const PROVING_PACKETS: f64 = 500.0;
/// Number of consecutive lost packets, and their share of the losses, that make an outage.
const OUTAGE_PACKETS: u64 = 16;
const OUTAGE_SHARE: f64 = 0.5;
/// Standard deviations of the channel's losses that are not chance.
const SIGMAS: f64 = 3.0;
/// Number of losses in a train that may be chance in any case.
const TRAIN_LOSSES: f64 = 3.0;

/// Counts losses in rounds of a round trip.
#[derive(Debug)]
pub struct LossRounds {
    baseline: Baseline,
    round: Option<Round>,
    /// Reports about packets sent before this do not count.
    skip_until: Duration,
    previous_sent_at: Duration,
    is_in_excess: bool,
    /// The last rounds, if the capacity was lowered because of them.
    severe: Option<Severe>,
    /// Rounds after the capacity was lowered.
    doubtful: Option<Doubtful>,
}

/// Rounds whose losses may be a policer's.
#[derive(Debug, Clone, Copy, Default)]
struct Doubtful {
    rounds: u32,
    packets: u64,
    lost: u64,
}

/// Rounds in a row with about the same loss, each at a lower rate.
#[derive(Debug, Clone, Copy)]
struct Severe {
    loss: f64,
    rounds: u32,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    /// Beginning, on the peer's clock and on ours.
    arrived_at: Duration,
    began: Duration,
    packets: u64,
    lost: u64,
    longest_run: u64,
    bytes: u64,
    /// The newest packets of all reports found no queue.
    empty: bool,
    /// Some packets were sent faster than the capacity.
    has_train: bool,
}

/// Packets of a report.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The newest found no queue.
    pub is_empty: bool,
    /// It may belong to a train.
    pub is_train: bool,
}

/// Losses beyond the channel's own.
#[derive(Debug, Clone, Copy)]
pub struct Excess {
    /// Rate at which packets arrived ÷ (1 − p).
    pub capacity_bps: f64,
}

impl LossRounds {
    pub fn new() -> Self {
        let mut baseline = Baseline::new();
        baseline.restart(); // known after two rounds
        Self {
            baseline,
            round: None,
            skip_until: Duration::ZERO,
            previous_sent_at: Duration::ZERO,
            is_in_excess: false,
            severe: None,
            doubtful: None,
        }
    }

    /// Share of packets that the channel loses.
    pub fn channel(&self) -> f64 {
        if self.baseline.is_known() { self.baseline.loss().min(MAX_CHANNEL) } else { PRIOR }
    }

    /// Counts a report beside others, who keep a queue. Returns the loss that is certainly the
    /// channel's.
    pub fn beside_others(&mut self, seen: &Observation) -> f64 {
        self.baseline.judged_in_queue(seen.judged, seen.lost);
        self.baseline.proven_loss(PROVING_PACKETS)
    }

    /// Upper limit of that share.
    fn max_channel(&self) -> f64 {
        let known = || self.baseline.max_loss().clamp(PRIOR, MAX_CHANNEL);
        if self.baseline.is_known() { known() } else { PRIOR }
    }

    /// Returns `true` if the last round lost more.
    pub fn is_in_excess(&self) -> bool {
        self.is_in_excess
    }

    /// Returns `true` if a train lost more than the channel explains.
    pub fn exceeds(&self, packets: u64, lost: u64) -> bool {
        let (packets, lost, channel) = (packets as f64, lost as f64, self.max_channel());
        let is_known = self.baseline.is_known();
        let expected = if is_known { channel } else { channel + SEVERE } * packets;
        let chance = (expected * (1.0 - channel) * self.baseline.burst()).sqrt();
        lost > expected + (SIGMAS * chance).max(TRAIN_LOSSES)
    }

    /// Ignores packets sent before `at`.
    pub fn skip_until(&mut self, at: Duration) {
        self.skip_until = at;
        self.round = None;
        self.baseline.skip_round();
    }

    /// Counts a report. Only what was sent at a good part of `capacity_bps` can be too much.
    pub fn judged(
        &mut self,
        seen: &Observation,
        kind: Kind,
        rtt: Duration,
        capacity_bps: Option<f64>,
    ) -> Option<Excess> {
        let is_old = self.previous_sent_at < self.skip_until;
        self.previous_sent_at = self.previous_sent_at.max(seen.sent_at);
        if is_old {
            return None;
        }
        let beginning = Round::beginning(seen);
        let round = self.round.get_or_insert(beginning);
        // The first report of a round only marks its beginning.
        if seen.arrived > round.arrived_at || seen.now > round.began {
            round.add(seen, kind);
        }
        let round = *round;
        let span = seen.arrived.saturating_sub(round.arrived_at);
        // The peer's clock may be wrong, but not long.
        let span = span.max(seen.now.saturating_sub(round.began) / MAX_ROUND_TRIPS);
        let is_over = span >= rtt && round.packets >= MIN_PACKETS;
        let is_dropped = span >= MIN_DROPPED_SPAN && round.is_dropped(self.max_channel());
        if !is_over && !is_dropped {
            return None;
        }
        self.round = Some(beginning);
        let sent_bps = 8.0 * round.bytes as f64 / span.as_secs_f64();
        let is_busy = capacity_bps.is_some_and(|capacity| sent_bps >= BUSY * capacity);
        let excess = self.excess(round, is_busy, seen.now);
        self.is_in_excess = excess.is_some();
        let loss = excess?;
        Some(Excess { capacity_bps: sent_bps * (1.0 - loss) / (1.0 - self.channel()) })
    }

    /// Returns a loss that is congestion, or teaches it if less was sent and as much is lost.
    fn congested_or_the_channels(&mut self, loss: f64) -> Option<f64> {
        let before = self.severe.filter(|before| loss >= PERSISTS * before.loss);
        let rounds = before.map_or(1, |before| before.rounds + 1);
        if rounds < PERSISTENT_ROUNDS {
            self.severe = Some(Severe { loss, rounds });
            self.doubtful = Some(Doubtful::default());
            return Some(loss);
        }
        self.baseline.restart();
        (self.severe, self.doubtful) = (None, None);
        None
    }

    /// Loss of a round, if it is beyond the channel's. Otherwise the round teaches the channel's.
    fn excess(&mut self, round: Round, is_busy: bool, now: Duration) -> Option<f64> {
        if round.is_outage() {
            return None;
        }
        let (packets, losses) = (round.packets as f64, round.lost as f64);
        let (loss, channel) = (losses / packets, self.max_channel());
        let chance = (channel * (1.0 - channel) * packets * self.baseline.burst()).sqrt();
        let is_severe =
            is_busy && loss > channel + SEVERE && losses > channel * packets + SIGMAS * chance;
        if is_severe {
            return self.congested_or_the_channels(loss);
        }
        // A policer may have dropped packets of a train.
        if round.has_train {
            self.severe = None;
            return None;
        }
        if let Some(doubtful) = &mut self.doubtful {
            doubtful.add(round);
            let sum = *doubtful;
            if sum.rounds >= DOUBTFUL_ROUNDS {
                self.doubtful = None;
            } else if is_busy && sum.exceeds(channel, self.baseline.burst()) {
                return self.congested_or_the_channels(sum.loss());
            }
            if loss > channel {
                return None;
            }
        }
        self.severe = None;
        let (packets, losses) = (round.packets, round.lost);
        let alarm = self.baseline.judged(packets, losses, round.empty, Duration::ZERO, now);
        if alarm {
            self.baseline.restart();
        }
        (alarm && is_busy).then_some(loss)
    }
}

impl Doubtful {
    fn add(&mut self, round: Round) {
        self.rounds += 1;
        self.packets += round.packets;
        self.lost += round.lost;
    }

    fn loss(&self) -> f64 {
        self.lost as f64 / self.packets.max(1) as f64
    }

    /// Returns `true` if more is lost than a loss of `channel` explains.
    fn exceeds(&self, channel: f64, burst: f64) -> bool {
        let packets = self.packets as f64;
        let chance = (channel * (1.0 - channel) * packets * burst).sqrt();
        self.packets >= MODERATE_PACKETS
            && self.loss() > channel + MODERATE
            && self.lost as f64 > channel * packets + SIGMAS * chance
    }
}

impl Round {
    fn beginning(seen: &Observation) -> Self {
        Self {
            arrived_at: seen.arrived,
            began: seen.now,
            packets: 0,
            lost: 0,
            longest_run: 0,
            bytes: 0,
            empty: true,
            has_train: false,
        }
    }

    fn add(&mut self, seen: &Observation, kind: Kind) {
        self.packets += seen.judged;
        self.lost += seen.lost;
        self.bytes += seen.judged_bytes;
        self.longest_run = self.longest_run.max(seen.longest_loss);
        self.empty &= kind.is_empty;
        self.has_train |= kind.is_train;
    }

    /// Returns `true` if far more is lost than the `channel` loses, but not in an outage.
    fn is_dropped(&self, channel: f64) -> bool {
        let most = (channel + DROPPED) * self.packets as f64;
        self.packets >= DROPPED_PACKETS && self.lost as f64 > most && !self.is_outage()
    }

    /// Returns `true` if everything was lost for a while.
    fn is_outage(&self) -> bool {
        self.longest_run >= OUTAGE_PACKETS
            && self.longest_run as f64 >= OUTAGE_SHARE * self.lost as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    const REPORT_EVERY: Duration = Duration::from_millis(75);
    const PACKETS: u64 = 20;
    /// Rate of the packets of a report.
    const SENT_BPS: f64 = 8.0 * 1500.0 * PACKETS as f64 / 0.075;

    /// First excess, and the number of reports until then, if each loses `lost` packets with at most
    /// `longest_loss` in a row.
    fn excess(lost: u64, longest_loss: u64) -> Option<(u32, Excess)> {
        let mut loss = LossRounds::new();
        (1..=20).find_map(|report| {
            let now = Duration::from_secs(1) + REPORT_EVERY * report;
            let seen = Observation {
                now,
                rtt: RTT,
                sent_at: now - RTT,
                arrived: now - RTT / 2,
                judged: PACKETS,
                lost,
                judged_bytes: 1500 * PACKETS,
                in_flight_bytes: 0,
                longest_loss,
            };
            let kind = Kind { is_empty: true, is_train: false };
            loss.judged(&seen, kind, RTT, Some(SENT_BPS)).map(|excess| (report, excess))
        })
    }

    #[test]
    fn a_round_that_loses_most_of_its_packets_is_over_at_once() {
        let (reports, excess_of_nine_tenths) = excess(18, 9).unwrap();
        assert_eq!(reports, 5, "one begins the round, four have 80 packets");
        let carried = excess_of_nine_tenths.capacity_bps / SENT_BPS;
        assert!((0.1..0.11).contains(&carried), "{carried}");
        let (reports, _) = excess(8, 4).unwrap();
        assert_eq!(reports, 9, "a round trip after the first");
        assert!(excess(20, 200).is_none(), "an outage");
    }
}
