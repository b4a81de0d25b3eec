//! Figures and traffic that all parts use.

use std::time::Duration;

use bentpipe_link::Class;

use crate::experiment::choice::Choice;
use crate::result::{Sample, Samples};
use crate::traffic::{Carry, DOWN, ENDLESS, REQUEST_BYTES, Talk, Traffic, UP, in_order};

/// Round trips until bulk is steady.
const WARM_ROUND_TRIPS: u32 = 30;

/// Minimum time until bulk is steady.
const MIN_WARM: Duration = Duration::from_secs(20);

/// Time after which a packet in flight at the end has arrived or is lost: twice the longest
/// lifetime that a class gives its datagrams.
pub(super) const AFTERWARDS: Duration = Duration::from_secs(20);

/// Interval between two packets of a probe, as in RRUL's VoIP-like probes.
pub(super) const PROBE_GAP: Duration = Duration::from_millis(20);

/// Payload of a probe: 20 ms of G.711 (RFC 3551, section 4.5.14) and RTP's header.
const PROBE_BYTES: usize = 172;

/// Size of a full packet on the radio, as the unit for waiting times.
const PACKET_BYTES: u64 = 1500;

impl Choice {
    /// Time after which new bulk is steady.
    pub(super) fn warm(&self) -> Duration {
        (self.profile.link.rtt() * WARM_ROUND_TRIPS).max(MIN_WARM)
    }

    /// A probe that lasts for a whole run. Its packets follow those of another probe after `phase`.
    pub(super) fn probe(&self, class: Class, passenger: u32, phase: Duration) -> Talk {
        let length = self.warm() + 2 * self.length; // some are measured twice
        let packets = (length.as_nanos() / PROBE_GAP.as_nanos()) as usize;
        let sizes = vec![PROBE_BYTES; packets];
        Talk { class, passenger, gap: PROBE_GAP, sizes, phase }
    }

    /// Propagation delay without queues: towards the aircraft, and from it.
    pub(super) fn propagation(&self) -> [Duration; 2] {
        [self.profile.link.forward.mean_delay(), self.profile.link.return_.mean_delay()]
    }

    /// Serialization time of two full packets, in each direction.
    pub(super) fn two_packets(&self) -> [f64; 2] {
        [&self.profile.link.forward, &self.profile.link.return_]
            .map(|way| way.rate().map_or(0.0, |rate| rate.time_for(2 * PACKET_BYTES).as_secs_f64()))
    }

    /// Waiting times of a probe's packets sent between two moments.
    pub(super) fn waits(
        &self,
        cabin: &dyn Traffic,
        talk: usize,
        way: usize,
        from: Duration,
        to: Duration,
    ) -> Samples {
        let transits = cabin.transits(talk, way).into_iter();
        let sent = transits.filter(|(left, _)| (from..to).contains(left));
        Samples(sent.map(|(_, transit)| wait(transit, self.propagation()[way])).collect())
    }

    /// p95 of these waiting times over the packets that arrived in order. These are the packets
    /// that the link did not lose, which only waited for their turn.
    pub(super) fn p95_in_order(
        &self,
        cabin: &dyn Traffic,
        talk: usize,
        way: usize,
        from: Duration,
        to: Duration,
    ) -> Option<f64> {
        let sent = in_order(&cabin.transits(talk, way));
        let sent = sent.into_iter().filter(|(left, _)| (from..to).contains(left));
        let waits: Samples =
            sent.map(|(_, it)| it.saturating_sub(self.propagation()[way]).as_secs_f64()).collect();
        waits.known(0.95)
    }
}

/// Delay beyond propagation. A lost packet counts as infinitely late.
pub(super) fn wait(transit: Option<Duration>, propagation: Duration) -> Sample {
    transit.map_or(Sample::Cut(0.0), |transit| {
        Sample::Finished(transit.saturating_sub(propagation).as_secs_f64())
    })
}

/// Fraction of packets that never arrived.
pub(super) fn left(samples: &Samples) -> f64 {
    let never = samples.0.iter().filter(|sample| matches!(sample, Sample::Cut(_))).count();
    never as f64 / samples.len().max(1) as f64
}

/// 95th percentile of the waiting times of packets that the link did not lose at first, for a loss
/// of `lost`. A packet recovered from repair packets arrives later than the others, so the packets
/// in question are the smallest 1 − `lost` of all.
pub(super) fn p95_at_first(samples: &Samples, lost: f64) -> Option<f64> {
    samples.known(0.95 * (1.0 - lost))
}

/// Figure of one run as a sample.
pub(super) fn of_run(figure: Option<f64>) -> Sample {
    figure.map_or(Sample::Cut(0.0), Sample::Finished)
}

/// Description of an endless download.
pub(super) fn bulk_down(class: Class, passenger: u32) -> Carry {
    Carry { class, passenger, up: REQUEST_BYTES, down: ENDLESS }
}

/// Bytes received on these streams so far, towards the aircraft and from it.
pub(super) fn got(cabin: &dyn Traffic, streams: &[usize]) -> [u64; 2] {
    let sum = |way: usize| streams.iter().map(|&number| cabin.course(number).got[way]).sum();
    [sum(DOWN), sum(UP)]
}

pub(super) const WAYS: [(&str, usize); 2] = [("down", DOWN), ("up", UP)];
