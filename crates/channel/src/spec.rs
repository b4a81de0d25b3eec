//! Links with checked values, on which [`crate::Direction`] runs.

use std::time::Duration;

use bentpipe_units::{BitRate, ByteSize, Ratio, Span};
use serde::Deserialize;

use crate::aqm::AqmSpec;
use crate::bucket::{PolicerSpec, ShaperSpec};
use crate::demand::DemandSpec;
use crate::error::SpecError;
use crate::jitter::JitterSpec;
use crate::loss::{LossSpec, frame_loss};
use crate::mahimahi;
use crate::outage::{OutagePolicy, OutageSpec};
use crate::queue::Queue;
use crate::raw::{Order, RateTable, RawDirection, RawLink};
use crate::reordering::ReorderingSpec;
use crate::scalar::ScalarOr;
use crate::series::{Varying, nanos};

/// Minimum default queue: ten full packets (15 kB), however short the link.
const MIN_DEFAULT_QUEUE_BYTES: u64 = 10 * 1500;
/// Minimum MTU of an IPv6 link (RFC 8200 section 5).
const MIN_MTU_BYTES: usize = 1280;

/// Both directions of a link.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawLink")]
pub struct LinkSpec {
    /// From the ground to the aircraft or terminal: the downlink.
    pub forward: DirectionSpec,
    /// From the aircraft or terminal to the ground: the uplink. Its key is `return`.
    pub return_: DirectionSpec,
}

/// Direction of a link. The crate's page documents its format.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawDirection")]
pub struct DirectionSpec {
    /// Above zero in the long run; `None` means unlimited.
    pub(crate) rate: Option<Varying<BitRate>>,
    pub(crate) delay: Varying<Span>,
    pub(crate) jitter: Option<JitterSpec>,
    pub(crate) order: Order,
    pub(crate) reordering: Option<ReorderingSpec>,
    /// Before the shaper and the queue.
    pub(crate) policer: Option<PolicerSpec>,
    /// Before the queue. Excludes `aqm`.
    pub(crate) shaper: Option<ShaperSpec>,
    /// `None` exactly when the rate is: then nothing waits.
    pub(crate) queue_bytes: Option<u64>,
    /// Drop-tail if `None`. Requires a rate, and excludes a demand and an ECN threshold.
    pub(crate) aqm: Option<AqmSpec>,
    /// An ECN-capable packet that finds more than this queued is marked. Requires a rate.
    pub(crate) mark_above_bytes: Option<u64>,
    pub(crate) loss: LossSpec,
    pub(crate) ber: Varying<Ratio>,
    /// Maximum IP packet length; `None` means any.
    pub(crate) mtu_bytes: Option<usize>,
    /// Held outages and a demand exclude each other, and both require a rate.
    pub(crate) outages: Option<OutageSpec>,
    pub(crate) demand: Option<DemandSpec>,
}

impl LinkSpec {
    /// Round-trip time without queues: both delays with their mean jitter. Excludes transmission,
    /// slots and outages.
    pub fn rtt(&self) -> Duration {
        self.forward.mean_delay() + self.return_.mean_delay()
    }
}

impl DirectionSpec {
    /// Creates a direction with constant values and a queue of one bandwidth-delay product, with
    /// the round trip taken as twice `delay`. `None` as rate means unlimited.
    ///
    /// # Panics
    ///
    /// If the rate is zero. Use an outage for a link that carries nothing.
    pub fn fixed(rate: Option<BitRate>, delay: Duration, loss: Ratio) -> Self {
        assert!(rate != Some(BitRate::from_bps(0)), "a direction needs a rate above zero");
        let queue_bytes = rate.map(|rate| default_queue(rate, 2 * delay));
        Self {
            rate: rate.map(Varying::Constant),
            delay: Varying::Constant(Span::new(delay)),
            jitter: None,
            order: Order::Kept,
            reordering: None,
            policer: None,
            shaper: None,
            queue_bytes,
            aqm: None,
            mark_above_bytes: None,
            loss: ScalarOr::Scalar(loss).into(),
            ber: Varying::Constant(Ratio::ZERO),
            mtu_bytes: None,
            outages: None,
            demand: None,
        }
    }

    /// Replaces the bit-error rate, for sweeps over it.
    pub fn with_ber(self, ber: Ratio) -> Self {
        Self { ber: Varying::Constant(ber), ..self }
    }

    /// Replaces all losses, bit errors included, by the mean loss `mean`, for sweeps over both
    /// parameters. Losses are independent if `burst` is 1, otherwise in bursts of `burst` packet
    /// times on average (Gilbert and Elliott). Fails if such bursts cannot lose so much, or if the
    /// direction has no rate to define a packet time.
    pub fn with_loss(self, mean: Ratio, burst: f64) -> Result<Self, SpecError> {
        let loss = LossSpec::of(mean, burst)?;
        if loss.needs_packet_time() && self.rate.is_none() {
            let why = "comes in bursts of time, but without a `rate` a packet has none".into();
            return Err(SpecError::new("loss", why));
        }
        Ok(Self { loss, ber: Varying::Constant(Ratio::ZERO), ..self })
    }

    /// Replaces the MTU: IP packets longer than `mtu_bytes` are dropped.
    pub fn with_mtu(self, mtu_bytes: Option<usize>) -> Self {
        Self { mtu_bytes, ..self }
    }

    /// Long-run mean rate; `None` means unlimited.
    pub fn rate(&self) -> Option<BitRate> {
        self.rate.as_ref().map(mean_rate)
    }

    /// Rate at `at`, the time since the run began; `None` means unlimited. Zero in a pause of a
    /// series.
    pub fn rate_at(&self, at: Duration) -> Option<BitRate> {
        self.rate.as_ref().map(|rate| rate.at(nanos(at)))
    }

    /// Lowest of the rate, the policer's and the shaper's at `at`: the rate that a long transfer
    /// can have. `None` means unlimited.
    pub fn sustained_rate_at(&self, at: Duration) -> Option<BitRate> {
        let policed = self.policer.map(|policer| policer.rate);
        let shaped = self.shaper.map(|shaper| shaper.rate);
        [self.rate_at(at), policed, shaped].into_iter().flatten().min()
    }

    /// Mean delay of a packet that meets no queue, jitter included.
    pub fn mean_delay(&self) -> Duration {
        mean_delay(&self.delay, self.jitter)
    }

    /// Maximum queue; `None` if nothing waits because the rate is unlimited.
    pub fn queue(&self) -> Option<ByteSize> {
        self.queue_bytes.map(ByteSize::from_bytes)
    }

    /// Queue above which ECN-capable packets are marked; `None` if none are.
    pub fn ecn_threshold(&self) -> Option<ByteSize> {
        self.mark_above_bytes.map(ByteSize::from_bytes)
    }

    /// Long-run share of packets of `bytes` lost outside outages, to the loss process and to bit
    /// errors.
    pub fn mean_loss(&self, bytes: usize) -> f64 {
        let errors = self.ber.mean(|ber| frame_loss(ber.get(), bytes));
        1.0 - (1.0 - self.loss.mean()) * (1.0 - errors)
    }
}

impl RawLink {
    /// Checks the values and returns the link. `read_trace` returns the text of a trace by its file
    /// name, or the reason why it cannot.
    pub fn check(
        self,
        mut read_trace: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<LinkSpec, SpecError> {
        let rtt = self.forward.mean_delay() + self.return_.mean_delay();
        let forward = self.forward.check(rtt, &mut read_trace);
        let return_ = self.return_.check(rtt, &mut read_trace);
        Ok(LinkSpec {
            forward: forward.map_err(|error| error.within("forward"))?,
            return_: return_.map_err(|error| error.within("return"))?,
        })
    }
}

impl RawDirection {
    /// Checks the values and returns the direction. Bandwidth-delay products refer to `rtt`.
    pub fn check(
        self,
        rtt: Duration,
        read_trace: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<DirectionSpec, SpecError> {
        check_aqm(&self)?;
        let delay = self.delay();
        let rate = self.rate.map(|rate| checked_rate(rate, read_trace)).transpose()?;
        if let Some(demand) = &self.demand {
            check_demand(demand, rate.as_ref(), self.outages.as_ref())?;
        }
        let wait = self.demand.map_or(Duration::ZERO, |demand| demand.max_wait());
        let mean = rate.as_ref().map(mean_rate);
        let queue_bytes = checked_queue(self.queue, mean, rtt + wait)?;
        let mark_above_bytes = checked_threshold(self.ecn_threshold, mean, rtt + wait)?;
        if mark_above_bytes.zip(queue_bytes).is_some_and(|(mark, queue)| mark >= queue) {
            let why = "is not below the `queue`: packets would be dropped before any is marked";
            return Err(SpecError::new("ecn-threshold", why.into()));
        }
        let reordering = self.reordering.map(ReorderingSpec::check).transpose()?;
        let policer = self.policer.map(PolicerSpec::check).transpose()?;
        let shaper = self.shaper.map(|shaper| shaper.check(rtt)).transpose()?;
        check_held(self.outages.as_ref(), rate.is_some())?;
        let loss = self.loss.unwrap_or(ScalarOr::Scalar(Ratio::ZERO)).into();
        if LossSpec::needs_packet_time(&loss) && rate.is_none() {
            let why = "comes in bursts of time, but without a `rate` a packet has none: write \
                       packet-time = \"1 ms\", or clock = \"packets\"";
            return Err(SpecError::new("loss", why.into()));
        }
        let ber = self.ber.map_or(Varying::Constant(Ratio::ZERO), Varying::from);
        let mtu_bytes = self.mtu.map(|mtu| mtu as usize);
        if mtu_bytes.is_some_and(|mtu| mtu < MIN_MTU_BYTES) {
            let why = "is too small: every IPv6 path carries packets of 1280 bytes";
            return Err(SpecError::new("mtu", why.into()));
        }
        let Self { jitter, order, aqm, outages, demand, .. } = self;
        Ok(DirectionSpec {
            rate,
            delay,
            jitter,
            order,
            reordering,
            policer,
            shaper,
            queue_bytes,
            aqm,
            mark_above_bytes,
            loss,
            ber,
            mtu_bytes,
            outages,
            demand,
        })
    }

    fn delay(&self) -> Varying<Span> {
        match &self.delay {
            None => Varying::Constant(Span::new(Duration::ZERO)),
            Some(delay) => delay.clone().into(),
        }
    }

    fn mean_delay(&self) -> Duration {
        mean_delay(&self.delay(), self.jitter)
    }
}

impl TryFrom<RawLink> for LinkSpec {
    type Error = SpecError;

    fn try_from(raw: RawLink) -> Result<Self, SpecError> {
        raw.check(no_traces)
    }
}

impl TryFrom<RawDirection> for DirectionSpec {
    type Error = SpecError;

    /// Treats a single direction as one half of a symmetric link.
    fn try_from(raw: RawDirection) -> Result<Self, SpecError> {
        let rtt = 2 * raw.mean_delay();
        raw.check(rtt, no_traces)
    }
}

fn no_traces(_: &str) -> Result<String, String> {
    Err("names a trace file, which can be read only for a profile loaded from a file".into())
}

fn checked_rate(
    raw: ScalarOr<BitRate, RateTable>,
    mut read_trace: impl FnMut(&str) -> Result<String, String>,
) -> Result<Varying<BitRate>, SpecError> {
    let rate = match raw {
        ScalarOr::Scalar(rate) => Varying::Constant(rate),
        ScalarOr::Table(RateTable::Series(series)) => Varying::Series(series),
        ScalarOr::Table(RateTable::Mahimahi(file)) => {
            let trace = read_trace(&file).map_err(|why| SpecError::new("rate", why))?;
            Varying::Series(mahimahi::rate(&trace).map_err(|error| error.within("rate"))?)
        }
    };
    if rate.mean(|rate| rate.bps() as f64) > 0.0 {
        return Ok(rate);
    }
    let why = "is zero in the end, so packets would wait for ever: give it a rate, and \
               write the time without one as an outage";
    Err(SpecError::new("rate", why.into()))
}

fn checked_queue(
    raw: Option<Queue>,
    rate: Option<BitRate>,
    rtt: Duration,
) -> Result<Option<u64>, SpecError> {
    let Some(rate) = rate else {
        let why = "has a length, but without a `rate` nothing waits: give a rate or remove it";
        return match raw {
            Some(_) => Err(SpecError::new("queue", why.into())),
            None => Ok(None),
        };
    };
    Ok(Some(match raw {
        None => default_queue(rate, rtt),
        Some(queue) => queue.bytes(rate, rtt),
    }))
}

fn checked_threshold(
    raw: Option<Queue>,
    rate: Option<BitRate>,
    rtt: Duration,
) -> Result<Option<u64>, SpecError> {
    let Some(raw) = raw else { return Ok(None) };
    let why = "speaks of a queue, but without a `rate` nothing waits: give a rate or remove it";
    let rate = rate.ok_or_else(|| SpecError::new("ecn-threshold", why.into()))?;
    Ok(Some(raw.bytes(rate, rtt)))
}

fn check_aqm(raw: &RawDirection) -> Result<(), SpecError> {
    if raw.aqm.is_none() {
        return Ok(());
    }
    let error = |why: &str| Err(SpecError::new("aqm", why.into()));
    if raw.rate.is_none() {
        return error("manages a queue, but without a `rate` nothing waits: give a rate");
    }
    if raw.demand.is_some() {
        return error("cannot choose packets for granted slots: remove it or the `demand`");
    }
    if raw.shaper.is_some() {
        return error("has no effect after a `shaper`, whose own queue is drop-tail: remove one");
    }
    if raw.ecn_threshold.is_some() {
        return error("marks by delay: write ecn = true in it, and remove the `ecn-threshold`");
    }
    Ok(())
}

fn check_held(outages: Option<&OutageSpec>, has_rate: bool) -> Result<(), SpecError> {
    let held = outages.is_some_and(|outages| outages.packets() == OutagePolicy::Held);
    if held && !has_rate {
        let why = "hold packets, but without a `rate` nothing waits: write packets = \"lost\"";
        return Err(SpecError::new("outages", why.into()));
    }
    Ok(())
}

fn check_demand(
    demand: &DemandSpec,
    rate: Option<&Varying<BitRate>>,
    outages: Option<&OutageSpec>,
) -> Result<(), SpecError> {
    let error = |why: &str| Err(SpecError::new("demand", why.into()));
    let Some(Varying::Constant(rate)) = rate else {
        return error("needs a constant `rate`: that of a frame with all slots granted");
    };
    if outages.is_some_and(|outages| outages.packets() == OutagePolicy::Held) {
        return error("cannot hold packets in an outage, as slots pass: write packets = \"lost\"");
    }
    demand.check_rate(*rate)
}

fn default_queue(rate: BitRate, rtt: Duration) -> u64 {
    rate.bytes_in(rtt).max(MIN_DEFAULT_QUEUE_BYTES)
}

fn mean_delay(delay: &Varying<Span>, jitter: Option<JitterSpec>) -> Duration {
    let propagation = delay.mean(|delay| delay.duration().as_secs_f64());
    Duration::from_secs_f64(propagation) + jitter.map_or(Duration::ZERO, |jitter| jitter.mean())
}

fn mean_rate(rate: &Varying<BitRate>) -> BitRate {
    BitRate::from_bps(rate.mean(|rate| rate.bps() as f64).round().max(1.0) as u64)
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
