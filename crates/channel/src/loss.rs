//! Loss models: which packets the channel drops.

use std::time::Duration;

use bentpipe_units::{Ratio, Span};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::draws::{Purpose, Redrawn, stream};
use crate::error::SpecError;
use crate::scalar::ScalarOr;
use crate::series::{Series, Varying, nanos};

/// The size whose sending time clocks a burst process unless it says otherwise.
pub(crate) const CLOCK_PACKET_BYTES: u64 = 1500;

/// A probability of loss over time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Level {
    Varying(Varying<Ratio>),
    Drawn(Drawn),
}

/// A loss drawn anew for every interval.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(try_from = "WrittenDrawn")]
pub(crate) struct Drawn {
    every: Duration,
    /// (share of intervals with at most this loss, the loss), both rising, the last share 1.
    points: Vec<(f64, f64)>,
}

/// The loss process of a direction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LossSpec {
    /// Each packet by itself (Bernoulli).
    Independent(Level),
    /// In bursts (Gilbert and Elliott).
    Bursts(BurstSpec),
}

/// A chain of two states, good and bad, each with its probability of loss.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(try_from = "WrittenBursts")]
pub(crate) struct BurstSpec {
    chain: Chain,
    clock: Clock,
    packet_time: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
enum Chain {
    Parameters { good_to_bad: f64, bad_to_good: f64, loss_good: f64, loss_bad: f64 },
    MeanAndBurst { mean: Level, burst: f64 },
}

/// Clock of the chain: the event that moves it on by one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Clock {
    /// Each packet time that passes, whether or not a packet is sent: a fade lasts as long on an
    /// idle link as on a busy one.
    #[default]
    Time,
    /// Each packet sent.
    Packets,
}

/// A loss as written.
pub(crate) type WrittenLoss = ScalarOr<Ratio, LossTable>;

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LossTable {
    Series(Series<Ratio>),
    Drawn(Drawn),
    GilbertElliott(BurstSpec),
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LevelTable {
    Series(Series<Ratio>),
    Drawn(Drawn),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenDrawn {
    every: Span,
    points: Vec<(Ratio, Ratio)>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WrittenBursts {
    mean: Option<ScalarOr<Ratio, LevelTable>>,
    burst: Option<f64>,
    good_to_bad: Option<Ratio>,
    bad_to_good: Option<Ratio>,
    loss_good: Option<Ratio>,
    loss_bad: Option<Ratio>,
    #[serde(default)]
    clock: Clock,
    packet_time: Option<Span>,
}

impl From<WrittenLoss> for LossSpec {
    fn from(written: WrittenLoss) -> Self {
        let level = match written {
            ScalarOr::Scalar(loss) => Level::Varying(Varying::Constant(loss)),
            ScalarOr::Table(LossTable::Series(series)) => Level::Varying(Varying::Series(series)),
            ScalarOr::Table(LossTable::Drawn(drawn)) => Level::Drawn(drawn),
            ScalarOr::Table(LossTable::GilbertElliott(bursts)) => return Self::Bursts(bursts),
        };
        Self::Independent(level)
    }
}

impl TryFrom<WrittenDrawn> for Drawn {
    type Error = SpecError;

    fn try_from(written: WrittenDrawn) -> Result<Self, SpecError> {
        let error = |why: &str| Err(SpecError::new("drawn", why.into()));
        if written.every.duration().is_zero() {
            return error("has an `every` of zero: write one like \"100 s\"");
        }
        let points: Vec<_> = written.points.iter().map(|(s, loss)| (s.get(), loss.get())).collect();
        if points.last().is_none_or(|(share, _)| *share != 1.0) {
            return error("does not end with the share \"100 %\": say how high the loss goes");
        }
        if points.windows(2).any(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            return error("has points that do not rise: sort them by share, then by loss");
        }
        Ok(Self { every: written.every.duration(), points })
    }
}

impl TryFrom<WrittenBursts> for BurstSpec {
    type Error = SpecError;

    fn try_from(written: WrittenBursts) -> Result<Self, SpecError> {
        let error = |why: String| Err(SpecError::new("gilbert-elliott", why));
        let WrittenBursts { mean, burst, good_to_bad, bad_to_good, loss_good, loss_bad, .. } =
            written;
        let any_parameter =
            [good_to_bad, bad_to_good, loss_good, loss_bad].iter().any(Option::is_some);
        let chain = match (mean, burst, good_to_bad, bad_to_good) {
            (Some(mean), Some(burst), None, None) if !any_parameter => {
                let mean = match mean {
                    ScalarOr::Scalar(loss) => Level::Varying(Varying::Constant(loss)),
                    ScalarOr::Table(LevelTable::Series(s)) => Level::Varying(Varying::Series(s)),
                    ScalarOr::Table(LevelTable::Drawn(drawn)) => Level::Drawn(drawn),
                };
                check_burst(&mean, burst)?;
                Chain::MeanAndBurst { mean, burst }
            }
            (None, None, Some(good_to_bad), Some(bad_to_good)) => Chain::Parameters {
                good_to_bad: good_to_bad.get(),
                bad_to_good: bad_to_good.get(),
                loss_good: loss_good.map_or(0.0, Ratio::get),
                loss_bad: loss_bad.map_or(1.0, Ratio::get),
            },
            _ => {
                return error(
                    "needs either `mean` and `burst`, or `good-to-bad` and `bad-to-good` (with \
                     `loss-good` and `loss-bad` if they are not 0 % and 100 %), and no others"
                        .into(),
                );
            }
        };
        if let Chain::Parameters { good_to_bad, bad_to_good, .. } = chain
            && good_to_bad + bad_to_good == 0.0
        {
            return error("never leaves its first state: give it transitions".into());
        }
        let packet_time = written.packet_time.map(Span::duration);
        if written.clock == Clock::Packets && packet_time.is_some() {
            return error("is clocked by packets: leave `packet-time` out".into());
        }
        if packet_time.is_some_and(|time| time.is_zero()) {
            return error("has a `packet-time` of zero".into());
        }
        Ok(Self { chain, clock: written.clock, packet_time })
    }
}

/// A chain that always loses in its bad state leaves it with 1/burst, so it cannot lose more than
/// burst/(burst + 1) of all packets.
fn check_burst(mean: &Level, burst: f64) -> Result<(), SpecError> {
    let error = |why| Err(SpecError::new("gilbert-elliott", why));
    if !burst.is_finite() || burst < 1.0 {
        return error(format!("has bursts of {burst}: a burst is at least 1 packet"));
    }
    let most = burst / (burst + 1.0);
    if mean.highest() > most {
        return error(format!(
            "loses {:.1} % in bursts of {burst}: with such bursts at most {:.1} % is possible, \
             give less loss or longer bursts",
            mean.highest() * 100.0,
            most * 100.0
        ));
    }
    Ok(())
}

impl Level {
    fn mean(&self) -> f64 {
        match self {
            Self::Varying(varying) => varying.mean(Ratio::get),
            Self::Drawn(drawn) => drawn.mean(),
        }
    }

    fn highest(&self) -> f64 {
        match self {
            Self::Varying(varying) => varying.values().map(Ratio::get).fold(0.0, f64::max),
            // The points rise, and there is at least one.
            Self::Drawn(drawn) => drawn.points[drawn.points.len() - 1].1,
        }
    }
}

impl Drawn {
    /// The loss not exceeded in `share` of the intervals: straight lines between the points; the
    /// first point's loss below it.
    fn quantile(&self, share: f64) -> f64 {
        let next = self.points.partition_point(|(at, _)| *at < share).min(self.points.len() - 1);
        let (high_share, high) = self.points[next];
        let Some((low_share, low)) = next.checked_sub(1).map(|i| self.points[i]) else {
            return high;
        };
        low + (high - low) * (share - low_share) / (high_share - low_share)
    }

    fn mean(&self) -> f64 {
        let first = self.points[0];
        let rest = self.points.windows(2);
        first.0 * first.1
            + rest.map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum::<f64>()
    }
}

impl LossSpec {
    /// A constant loss: of each packet by itself where `burst` is 1, else in bursts of time.
    pub fn of(mean: Ratio, burst: f64) -> Result<Self, SpecError> {
        let mean = Level::Varying(Varying::Constant(mean));
        if burst == 1.0 {
            return Ok(Self::Independent(mean));
        }
        check_burst(&mean, burst)?;
        let chain = Chain::MeanAndBurst { mean, burst };
        Ok(Self::Bursts(BurstSpec { chain, clock: Clock::Time, packet_time: None }))
    }

    /// The share of packets lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Independent(level) => level.mean(),
            Self::Bursts(BurstSpec { chain: Chain::MeanAndBurst { mean, .. }, .. }) => mean.mean(),
            Self::Bursts(BurstSpec {
                chain: Chain::Parameters { good_to_bad, bad_to_good, loss_good, loss_bad },
                ..
            }) => {
                let bad = good_to_bad / (good_to_bad + bad_to_good);
                (1.0 - bad) * loss_good + bad * loss_bad
            }
        }
    }

    /// Returns `true` if the model needs a rate, or a packet time of its own, as its clock.
    pub fn needs_packet_time(&self) -> bool {
        matches!(self, Self::Bursts(b) if b.clock == Clock::Time && b.packet_time.is_none())
    }
}

/// The loss process of one direction in motion.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    process: Process,
    rng: ChaCha8Rng,
}

#[derive(Debug, Clone)]
enum Process {
    Independent(LevelNow),
    Bursts(Box<Bursts>),
}

#[derive(Debug, Clone)]
enum LevelNow {
    Varying(Varying<Ratio>),
    Drawn(Drawn, Box<Redrawn>),
}

#[derive(Debug, Clone)]
struct Bursts {
    chain: ChainNow,
    /// Nanoseconds per step, or `None` for a step per packet.
    packet_ns: Option<u64>,
    /// The state at the last packet and the step it was in; none before the first packet.
    last: Option<(State, u64)>,
}

#[derive(Debug, Clone)]
enum ChainNow {
    Fixed(Parameters),
    MeanAndBurst { mean: LevelNow, burst: f64 },
}

#[derive(Debug, Clone, Copy)]
struct Parameters {
    good_to_bad: f64,
    bad_to_good: f64,
    loss_good: f64,
    loss_bad: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    Bad,
}

impl Loss {
    /// `packet_time` is that of [`CLOCK_PACKET_BYTES`] at the rate.
    pub fn new(spec: &LossSpec, packet_time: Option<Duration>, seed: u64) -> Self {
        let process = match spec {
            LossSpec::Independent(level) => Process::Independent(LevelNow::new(level, seed)),
            LossSpec::Bursts(spec) => {
                Process::Bursts(Box::new(Bursts::new(spec, packet_time, seed)))
            }
        };
        Self { process, rng: stream(seed, Purpose::Loss) }
    }

    /// Returns `true` if the packet whose sending began at `at_ns` is lost.
    pub fn takes(&mut self, at_ns: u64) -> bool {
        let probability = match &mut self.process {
            Process::Independent(level) => level.at(at_ns),
            Process::Bursts(bursts) => bursts.probability(at_ns, &mut self.rng),
        };
        // [0, 1) is never below 0 and always below 1, so both ends are certain.
        self.rng.random::<f64>() < probability
    }
}

impl LevelNow {
    fn new(level: &Level, seed: u64) -> Self {
        match level {
            Level::Varying(varying) => Self::Varying(varying.clone()),
            Level::Drawn(drawn) => {
                let rng = stream(seed, Purpose::LossLevel);
                Self::Drawn(drawn.clone(), Box::new(Redrawn::new(rng, nanos(drawn.every))))
            }
        }
    }

    fn at(&mut self, at_ns: u64) -> f64 {
        match self {
            Self::Varying(varying) => varying.at(at_ns).get(),
            Self::Drawn(drawn, redrawn) => redrawn.at(at_ns, |rng| drawn.quantile(rng.random())),
        }
    }
}

impl Bursts {
    fn new(spec: &BurstSpec, packet_time: Option<Duration>, seed: u64) -> Self {
        let chain = match &spec.chain {
            Chain::Parameters { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                ChainNow::Fixed(Parameters {
                    good_to_bad: *good_to_bad,
                    bad_to_good: *bad_to_good,
                    loss_good: *loss_good,
                    loss_bad: *loss_bad,
                })
            }
            Chain::MeanAndBurst { mean, burst } => {
                ChainNow::MeanAndBurst { mean: LevelNow::new(mean, seed), burst: *burst }
            }
        };
        let packet_ns = match spec.clock {
            Clock::Packets => None,
            // A spec without either time was refused; a step per packet is the nearest thing.
            Clock::Time => spec.packet_time.or(packet_time).map(|time| nanos(time).max(1)),
        };
        Self { chain, packet_ns, last: None }
    }

    /// Moves the chain on to `at_ns` and gives the probability of loss there.
    fn probability(&mut self, at_ns: u64, rng: &mut ChaCha8Rng) -> f64 {
        let parameters = match &mut self.chain {
            ChainNow::Fixed(parameters) => *parameters,
            ChainNow::MeanAndBurst { mean, burst } => Parameters::of(mean.at(at_ns), *burst),
        };
        let step = match (self.packet_ns, self.last) {
            (Some(packet_ns), _) => at_ns / packet_ns,
            (None, last) => last.map_or(0, |(_, step)| step + 1),
        };
        let bad = match self.last {
            None => parameters.share_bad(),
            Some((state, last)) => parameters.bad_after(state, step - last),
        };
        let state = if rng.random::<f64>() < bad { State::Bad } else { State::Good };
        self.last = Some((state, step));
        if state == State::Bad { parameters.loss_bad } else { parameters.loss_good }
    }
}

impl Parameters {
    /// Gilbert's chain, which loses everything in its bad state, for a mean loss and burst length.
    fn of(mean: f64, burst: f64) -> Self {
        let bad_to_good = 1.0 / burst;
        let good_to_bad = bad_to_good * mean / (1.0 - mean);
        Self { good_to_bad, bad_to_good, loss_good: 0.0, loss_bad: 1.0 }
    }

    /// The share of steps in the bad state.
    fn share_bad(&self) -> f64 {
        self.good_to_bad / (self.good_to_bad + self.bad_to_good)
    }

    /// The probability of the bad state `steps` steps after `state`, however many they are.
    fn bad_after(&self, state: State, steps: u64) -> f64 {
        let was_bad = if state == State::Bad { 1.0 } else { 0.0 };
        let steps = i32::try_from(steps).unwrap_or(i32::MAX);
        let memory = (1.0 - self.good_to_bad - self.bad_to_good).powi(steps);
        self.share_bad() + (was_bad - self.share_bad()) * memory
    }
}

/// The probability that a packet of `bytes` has at least one wrong bit: 1 − (1 − BER)^(8·bytes).
pub(crate) fn frame_loss(ber: f64, bytes: usize) -> f64 {
    // The same by logarithms, which keeps the digits of a BER far below 1e-16 per packet.
    -(8.0 * bytes as f64 * (-ber).ln_1p()).exp_m1()
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
