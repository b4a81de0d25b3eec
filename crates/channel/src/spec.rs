//! Links whose values were checked: what [`crate::Direction`] runs on.

use std::time::Duration;

use bentpipe_units::{BitRate, ByteSize, Ratio, Span};
use serde::Deserialize;

use crate::demand::DemandSpec;
use crate::error::SpecError;
use crate::jitter::JitterSpec;
use crate::loss::{LossSpec, frame_loss};
use crate::mahimahi;
use crate::outage::{During, OutageSpec};
use crate::scalar::ScalarOr;
use crate::series::{Varying, nanos};
use crate::written::{Order, Queue, RateTable, WrittenDirection, WrittenLink};

/// A queue that nobody gave a length holds at least ten full packets, however short the link:
/// 15 kB.
const SHORTEST_DEFAULT_QUEUE: u64 = 10 * 1500;
/// No link has a smaller MTU (RFC 8200, section 5).
const LEAST_MTU_BYTES: usize = 1280;

/// Both directions of a link.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "WrittenLink")]
pub struct LinkSpec {
    /// From the ground to the aircraft or terminal: the downlink.
    pub forward: DirectionSpec,
    /// From the aircraft or terminal to the ground: the uplink. Written `[return]`.
    pub return_: DirectionSpec,
}

/// One direction of a link; how it is written stands in the crate's documentation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "WrittenDirection")]
pub struct DirectionSpec {
    /// Above zero in the long run; absent: unlimited.
    pub(crate) rate: Option<Varying<BitRate>>,
    pub(crate) delay: Varying<Span>,
    pub(crate) jitter: Option<JitterSpec>,
    pub(crate) order: Order,
    /// Absent exactly when the rate is: nothing waits then.
    pub(crate) queue_bytes: Option<u64>,
    /// A packet that finds more than this queued is marked, if it may be. Needs a rate.
    pub(crate) mark_above_bytes: Option<u64>,
    pub(crate) loss: LossSpec,
    pub(crate) ber: Varying<Ratio>,
    /// The longest IP packet carried; absent: any.
    pub(crate) mtu_bytes: Option<usize>,
    /// Held outages and a demand exclude one another, and both need a rate.
    pub(crate) outages: Option<OutageSpec>,
    pub(crate) demand: Option<DemandSpec>,
}

impl LinkSpec {
    /// A round trip without queues: both delays with the mean of their jitter, nothing for
    /// sending, for slots or for outages.
    pub fn rtt(&self) -> Duration {
        self.forward.mean_delay() + self.return_.mean_delay()
    }
}

impl DirectionSpec {
    /// A direction of constant values, with a queue of one bandwidth-delay product (the round
    /// trip taken as twice `delay`). `None` as rate is unlimited.
    ///
    /// # Panics
    ///
    /// At a rate of zero: a link that carries nothing is one in an outage.
    pub fn fixed(rate: Option<BitRate>, delay: Duration, loss: Ratio) -> Self {
        assert!(rate != Some(BitRate::from_bps(0)), "a direction needs a rate above zero");
        let queue_bytes = rate.map(|rate| default_queue(rate, 2 * delay));
        Self {
            rate: rate.map(Varying::Constant),
            delay: Varying::Constant(Span::new(delay)),
            jitter: None,
            order: Order::Kept,
            queue_bytes,
            mark_above_bytes: None,
            loss: ScalarOr::Scalar(loss).into(),
            ber: Varying::Constant(Ratio::ZERO),
            mtu_bytes: None,
            outages: None,
            demand: None,
        }
    }

    /// The same direction at another bit-error rate, for sweeps over it.
    pub fn with_ber(self, ber: Ratio) -> Self {
        Self { ber: Varying::Constant(ber), ..self }
    }

    /// The same direction losing the share `mean` of its packets and nothing else, bit errors
    /// included: each by itself where `burst` is 1, else in bursts of that many packet times on
    /// average (Gilbert and Elliott), for sweeps over both. An error where such bursts cannot
    /// lose so much, or the direction has no rate that would give a packet its time.
    pub fn with_loss(self, mean: Ratio, burst: f64) -> Result<Self, SpecError> {
        let loss = LossSpec::of(mean, burst)?;
        if loss.needs_packet_time() && self.rate.is_none() {
            let why = "comes in bursts of time, but without a `rate` a packet has none".into();
            return Err(SpecError::new("loss", why));
        }
        Ok(Self { loss, ber: Varying::Constant(Ratio::ZERO), ..self })
    }

    /// The same direction as one that drops IP packets longer than `mtu_bytes`.
    pub fn with_mtu(self, mtu_bytes: Option<usize>) -> Self {
        Self { mtu_bytes, ..self }
    }

    /// The rate, or its mean in the long run; `None` is unlimited.
    pub fn rate(&self) -> Option<BitRate> {
        self.rate.as_ref().map(mean_rate)
    }

    /// The rate at `at`, the time since the run began; `None` is unlimited. Zero in a pause of a
    /// series.
    pub fn rate_at(&self, at: Duration) -> Option<BitRate> {
        self.rate.as_ref().map(|rate| rate.at(nanos(at)))
    }

    /// The mean delay of a packet that meets no queue, its jitter included.
    pub fn mean_delay(&self) -> Duration {
        mean_delay(&self.delay, self.jitter)
    }

    /// The longest queue; `None` where nothing waits because the rate is unlimited.
    pub fn queue(&self) -> Option<ByteSize> {
        self.queue_bytes.map(ByteSize::from_bytes)
    }

    /// The queue above which packets that allow it are marked; `None` where none are.
    pub fn ecn_threshold(&self) -> Option<ByteSize> {
        self.mark_above_bytes.map(ByteSize::from_bytes)
    }

    /// The share of packets of `bytes` lost in the long run outside outages, to the loss process
    /// and to bit errors.
    pub fn mean_loss(&self, bytes: usize) -> f64 {
        let errors = self.ber.mean(|ber| frame_loss(ber.get(), bytes));
        1.0 - (1.0 - self.loss.mean()) * (1.0 - errors)
    }
}

impl WrittenLink {
    /// The link, its values checked. `read_trace` gives the text of a trace by its file name, or
    /// why it cannot.
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

impl WrittenDirection {
    /// The direction, its values checked, with `rtt` as what bandwidth-delay products mean.
    pub fn check(
        self,
        rtt: Duration,
        read_trace: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<DirectionSpec, SpecError> {
        let delay = self.delay();
        let rate = self.rate.map(|rate| checked_rate(rate, read_trace)).transpose()?;
        if let Some(demand) = &self.demand {
            check_demand(demand, rate.as_ref(), self.outages.as_ref())?;
        }
        let wait = self.demand.map_or(Duration::ZERO, |demand| demand.longest_wait());
        let mean = rate.as_ref().map(mean_rate);
        let queue_bytes = checked_queue(self.queue, mean, rtt + wait)?;
        let mark_above_bytes = checked_threshold(self.ecn_threshold, mean, rtt + wait)?;
        if mark_above_bytes.zip(queue_bytes).is_some_and(|(mark, queue)| mark >= queue) {
            let why =
                "is not below the `queue`, so that packets would be dropped before any is marked";
            return Err(SpecError::new("ecn-threshold", why.into()));
        }
        let held = self.outages.as_ref().is_some_and(|o| o.packets() == During::Held);
        if held && rate.is_none() {
            let why = "hold packets, but without a `rate` nothing waits: write packets = \"lost\"";
            return Err(SpecError::new("outages", why.into()));
        }
        let loss = self.loss.unwrap_or(ScalarOr::Scalar(Ratio::ZERO)).into();
        if LossSpec::needs_packet_time(&loss) && rate.is_none() {
            let why = "comes in bursts of time, but without a `rate` a packet has none: write \
                       packet-time = \"1 ms\", or clock = \"packets\"";
            return Err(SpecError::new("loss", why.into()));
        }
        let ber = self.ber.map_or(Varying::Constant(Ratio::ZERO), Varying::from);
        let mtu_bytes = self.mtu.map(|mtu| mtu as usize);
        if mtu_bytes.is_some_and(|mtu| mtu < LEAST_MTU_BYTES) {
            let why = "is too small: every IPv6 path carries packets of 1280 bytes";
            return Err(SpecError::new("mtu", why.into()));
        }
        let Self { jitter, order, outages, demand, .. } = self;
        Ok(DirectionSpec {
            rate,
            delay,
            jitter,
            order,
            queue_bytes,
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

impl TryFrom<WrittenLink> for LinkSpec {
    type Error = SpecError;

    fn try_from(written: WrittenLink) -> Result<Self, SpecError> {
        written.check(no_traces)
    }
}

impl TryFrom<WrittenDirection> for DirectionSpec {
    type Error = SpecError;

    /// A direction by itself is taken as one half of a symmetric link.
    fn try_from(written: WrittenDirection) -> Result<Self, SpecError> {
        let rtt = 2 * written.mean_delay();
        written.check(rtt, no_traces)
    }
}

fn no_traces(_: &str) -> Result<String, String> {
    Err("names a trace file, which can be read only for a profile loaded from a file".into())
}

fn checked_rate(
    written: ScalarOr<BitRate, RateTable>,
    mut read_trace: impl FnMut(&str) -> Result<String, String>,
) -> Result<Varying<BitRate>, SpecError> {
    let rate = match written {
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
    let why = "is zero in the end, so that packets would wait for ever: give it a rate, and \
               write the time without one as an outage";
    Err(SpecError::new("rate", why.into()))
}

fn checked_queue(
    written: Option<Queue>,
    rate: Option<BitRate>,
    rtt: Duration,
) -> Result<Option<u64>, SpecError> {
    let Some(rate) = rate else {
        let why = "has a length, but without a `rate` nothing waits: give a rate or remove it";
        return match written {
            Some(_) => Err(SpecError::new("queue", why.into())),
            None => Ok(None),
        };
    };
    Ok(Some(match written {
        None => default_queue(rate, rtt),
        Some(queue) => queue_bytes_of(queue, rate, rtt),
    }))
}

fn checked_threshold(
    written: Option<Queue>,
    rate: Option<BitRate>,
    rtt: Duration,
) -> Result<Option<u64>, SpecError> {
    let Some(written) = written else { return Ok(None) };
    let why = "speaks of a queue, but without a `rate` nothing waits: give a rate or remove it";
    let rate = rate.ok_or_else(|| SpecError::new("ecn-threshold", why.into()))?;
    Ok(Some(queue_bytes_of(written, rate, rtt)))
}

fn queue_bytes_of(written: Queue, rate: BitRate, rtt: Duration) -> u64 {
    match written {
        Queue::Bytes(size) => size.bytes(),
        Queue::Time(span) => rate.bytes_in(span.duration()),
        Queue::Bdp(factor) => (rate.bytes_in(rtt) as f64 * factor) as u64,
    }
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
    if outages.is_some_and(|outages| outages.packets() == During::Held) {
        return error("cannot hold packets in an outage, as slots pass: write packets = \"lost\"");
    }
    demand.check_rate(*rate)
}

fn default_queue(rate: BitRate, rtt: Duration) -> u64 {
    rate.bytes_in(rtt).max(SHORTEST_DEFAULT_QUEUE)
}

fn mean_delay(delay: &Varying<Span>, jitter: Option<JitterSpec>) -> Duration {
    let propagation = delay.mean(|delay| delay.duration().as_secs_f64());
    Duration::from_secs_f64(propagation) + jitter.map_or(Duration::ZERO, |jitter| jitter.mean())
}

fn mean_rate(rate: &Varying<BitRate>) -> BitRate {
    BitRate::from_bps(rate.mean(|rate| rate.bps() as f64).round().max(1.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(text: &str) -> Result<DirectionSpec, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.to_string())
    }

    fn why(text: &str) -> String {
        direction(text).unwrap_err()
    }

    #[test]
    fn queues_are_bytes_time_or_products() {
        let bytes = |queue: &str| {
            let text = format!("rate = '8 Mbit/s'\ndelay = '325 ms'\n{queue}");
            direction(&text).unwrap().queue().unwrap().bytes()
        };
        assert_eq!(bytes(""), 650_000);
        assert_eq!(bytes("queue = '0.5 BDP'"), 325_000);
        assert_eq!(bytes("queue = '100 ms'"), 100_000);
        assert_eq!(bytes("queue = '64 KiB'"), 65_536);
        let short = direction("rate = '1 Mbit/s'\ndelay = '1 ms'").unwrap();
        assert_eq!(short.queue().unwrap().bytes(), 15_000);
        assert_eq!(direction("delay = '1 s'").unwrap().queue(), None);
    }

    #[test]
    fn a_threshold_for_marks_is_written_like_a_queue_and_lies_below_it() {
        let rate = "rate = '8 Mbit/s'\ndelay = '325 ms'\n";
        let marks = direction(&format!("{rate}ecn-threshold = '0.5 BDP'")).unwrap();
        assert_eq!(marks.ecn_threshold(), Some(ByteSize::from_bytes(325_000)));
        assert_eq!(direction(rate).unwrap().ecn_threshold(), None);
        assert!(why(&format!("{rate}ecn-threshold = '1 BDP'")).contains("not below the `queue`"));
        assert!(why("ecn-threshold = '10 ms'").contains("`rate`"));
    }

    #[test]
    fn a_link_takes_its_products_from_both_directions() {
        let link: LinkSpec = toml::from_str(
            "forward = { rate = '8 Mbit/s', delay = '300 ms' }\n\
             return = { rate = '4 Mbit/s', delay = '350 ms', queue = '2 BDP' }",
        )
        .unwrap();
        assert_eq!(link.rtt(), Duration::from_millis(650));
        assert_eq!(link.forward.queue(), Some(ByteSize::from_bytes(650_000)));
        assert_eq!(link.return_.queue(), Some(ByteSize::from_bytes(650_000)));
    }

    #[test]
    fn means_cover_every_part() {
        let spec = direction(
            "rate = { series = { steps = [['0 s', '2 Mbit/s'], ['1 s', '4 Mbit/s']], repeat = '2 s' } }\n\
             delay = '100 ms'\njitter = { shape = 'exponential', mean = '20 ms' }\n\
             loss = '10 %'\nber = 1e-5",
        )
        .unwrap();
        assert_eq!(spec.rate(), Some(BitRate::from_bps(3_000_000)));
        assert_eq!(spec.mean_delay(), Duration::from_millis(120));
        let expected = 1.0 - 0.9 * (1.0 - 1e-5f64).powi(8000);
        assert!((spec.mean_loss(1000) - expected).abs() < 1e-9);
    }

    #[test]
    fn a_sweep_replaces_every_loss_of_a_direction() {
        let spec = direction("rate = '1 Mbit/s'\nloss = '3 %'\nber = 1e-5").unwrap();
        let six = Ratio::new(0.06).unwrap();
        let random = spec.clone().with_loss(six, 1.0).unwrap();
        assert_eq!(random, direction("rate = '1 Mbit/s'\nloss = '6 %'").unwrap());
        let bursts = spec.clone().with_loss(six, 4.0).unwrap();
        let written = "rate = '1 Mbit/s'\nloss = { gilbert-elliott = { mean = '6 %', burst = 4 } }";
        assert_eq!(bursts, direction(written).unwrap());
        let most = Ratio::new(0.9).unwrap();
        let error = spec.clone().with_loss(most, 4.0).unwrap_err().to_string();
        assert!(error.contains("longer bursts"), "{error}");
        assert!(spec.with_loss(six, 0.5).is_err());
        assert!(direction("").unwrap().with_loss(six, 4.0).is_err());
    }

    #[test]
    fn refusals_name_the_key_and_the_way_out() {
        assert!(why("rat = '1 Mbit/s'").contains("unknown field `rat`"));
        assert!(why("rate = '0 bit/s'").contains("outage"));
        assert!(why("rate = '2 MB/s'").contains("multiply by 8"));
        assert!(why("rate = { trace = 'x' }").contains("mahimahi"));
        assert!(why("rate = { mahimahi = 'x' }").contains("loaded from a file"));
        assert!(why("delay = 380").contains("delay = 380"));
        assert!(why("queue = '1 BDP'").contains("`rate`"));
        assert!(
            why("loss = { gilbert-elliott = { mean = '6 %', burst = 4 } }").contains("packet-time")
        );
        assert!(
            why("outages = { packets = 'held', scheduled = [['1 s', '1 s']] }").contains("lost")
        );
        let demand =
            "demand = { frame = '45 ms', slots = 16, free-slots = 1, request-delay = '520 ms' }";
        assert!(why(demand).contains("constant `rate`"));
        assert!(why(&format!("rate = '1 kbit/s'\n{demand}")).contains("fewer slots"));
        assert!(why("mtu = 576").contains("`mtu` is too small"));
        assert!(why("mtu = '1400'").contains("expected u32"));
        assert!(why("order = 'any'").contains("expected `kept` or `free`"));
    }

    #[test]
    fn a_refusal_in_a_link_says_which_direction() {
        let error = toml::from_str::<LinkSpec>("[return]\nqueue = '1 BDP'").unwrap_err();
        assert!(error.to_string().contains("`return.queue`"), "{error}");
    }

    #[test]
    fn a_trace_is_read_by_its_name() {
        let written: WrittenLink = toml::from_str("forward.rate.mahimahi = 'a.trace'").unwrap();
        let read = |name: &str| match name {
            "a.trace" => Ok("1\n2\n".to_owned()),
            other => Err(format!("names {other}, which is not there")),
        };
        let link = written.check(read).unwrap();
        assert_eq!(link.forward.rate(), Some(BitRate::from_bps(12_000_000)));
    }
}
