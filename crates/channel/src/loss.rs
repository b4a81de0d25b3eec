//! Loss models: which packets the channel drops.

use std::time::Duration;

use bentpipe_units::{Ratio, Span};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::draws::{Purpose, Redrawn, stream};
use crate::error::SpecError;
use crate::scalar::ScalarOr;
use crate::series::{Series, Varying, nanos};

/// Packet size whose transmission time clocks a burst process by default.
pub(crate) const CLOCK_PACKET_BYTES: u64 = 1500;

/// Loss probability over time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Level {
    Varying(Varying<Ratio>),
    Drawn(Drawn),
}

/// Loss probability redrawn for every interval.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(try_from = "RawDrawn")]
pub(crate) struct Drawn {
    every: Duration,
    /// (share of intervals with at most this loss, loss), both rising; the last share is 1.
    points: Vec<(f64, f64)>,
}

/// Loss process of a direction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LossSpec {
    /// Independent losses (Bernoulli).
    Independent(Level),
    /// Burst losses (Gilbert and Elliott).
    Bursts(BurstSpec),
}

/// Markov chain of two states, good and bad, each with a loss probability.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(try_from = "RawBursts")]
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

/// Event that moves the chain by one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Clock {
    /// Each packet time, even if no packet is sent: a fade lasts equally long on an idle and on a
    /// busy link.
    #[default]
    Time,
    /// Each packet sent.
    Packets,
}

/// Loss as written.
pub(crate) type RawLoss = ScalarOr<Ratio, LossTable>;

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
struct RawDrawn {
    every: Span,
    points: Vec<(Ratio, Ratio)>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawBursts {
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

impl From<RawLoss> for LossSpec {
    fn from(raw: RawLoss) -> Self {
        let level = match raw {
            ScalarOr::Scalar(loss) => Level::Varying(Varying::Constant(loss)),
            ScalarOr::Table(LossTable::Series(series)) => Level::Varying(Varying::Series(series)),
            ScalarOr::Table(LossTable::Drawn(drawn)) => Level::Drawn(drawn),
            ScalarOr::Table(LossTable::GilbertElliott(bursts)) => return Self::Bursts(bursts),
        };
        Self::Independent(level)
    }
}

impl TryFrom<RawDrawn> for Drawn {
    type Error = SpecError;

    fn try_from(raw: RawDrawn) -> Result<Self, SpecError> {
        let error = |why: &str| Err(SpecError::new("drawn", why.into()));
        if raw.every.duration().is_zero() {
            return error("has an `every` of zero: write one like \"100 s\"");
        }
        let points: Vec<_> = raw.points.iter().map(|(s, loss)| (s.get(), loss.get())).collect();
        if points.last().is_none_or(|(share, _)| *share != 1.0) {
            return error("does not end with the share \"100 %\": say how high the loss goes");
        }
        if points.windows(2).any(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            return error("has points that do not rise: sort them by share, then by loss");
        }
        Ok(Self { every: raw.every.duration(), points })
    }
}

impl TryFrom<RawBursts> for BurstSpec {
    type Error = SpecError;

    fn try_from(raw: RawBursts) -> Result<Self, SpecError> {
        let error = |why: String| Err(SpecError::new("gilbert-elliott", why));
        let RawBursts { mean, burst, good_to_bad, bad_to_good, loss_good, loss_bad, .. } = raw;
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
        let packet_time = raw.packet_time.map(Span::duration);
        if raw.clock == Clock::Packets && packet_time.is_some() {
            return error("is clocked by packets: leave `packet-time` out".into());
        }
        if packet_time.is_some_and(|time| time.is_zero()) {
            return error("has a `packet-time` of zero".into());
        }
        Ok(Self { chain, clock: raw.clock, packet_time })
    }
}

/// Checks that the mean is possible. A chain that loses everything in its bad state leaves it with
/// probability 1/burst, so it can lose at most burst/(burst + 1) of all packets.
fn check_burst(mean: &Level, burst: f64) -> Result<(), SpecError> {
    let error = |why| Err(SpecError::new("gilbert-elliott", why));
    if !burst.is_finite() || burst < 1.0 {
        return error(format!("has bursts of {burst}: a burst is at least 1 packet"));
    }
    let max = burst / (burst + 1.0);
    if mean.max() > max {
        return error(format!(
            "loses {:.1} % in bursts of {burst}: such bursts allow at most {:.1} %, lower the loss or \
             lengthen the bursts",
            mean.max() * 100.0,
            max * 100.0
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

    fn max(&self) -> f64 {
        match self {
            Self::Varying(varying) => varying.values().map(Ratio::get).fold(0.0, f64::max),
            // The points rise, and there is at least one.
            Self::Drawn(drawn) => drawn.points[drawn.points.len() - 1].1,
        }
    }
}

impl Drawn {
    /// Loss not exceeded in `share` of the intervals. Linear between the points; below the first
    /// point its loss applies.
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
    /// Constant loss: independent if `burst` is 1, otherwise in bursts of time.
    pub fn of(mean: Ratio, burst: f64) -> Result<Self, SpecError> {
        let mean = Level::Varying(Varying::Constant(mean));
        if burst == 1.0 {
            return Ok(Self::Independent(mean));
        }
        check_burst(&mean, burst)?;
        let chain = Chain::MeanAndBurst { mean, burst };
        Ok(Self::Bursts(BurstSpec { chain, clock: Clock::Time, packet_time: None }))
    }

    /// Long-run share of lost packets.
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

    /// Returns `true` if the model needs a rate or an explicit packet time as its clock.
    pub fn needs_packet_time(&self) -> bool {
        matches!(self, Self::Bursts(b) if b.clock == Clock::Time && b.packet_time.is_none())
    }
}

/// Loss process of one direction with its state.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    process: Process,
    rng: ChaCha8Rng,
}

#[derive(Debug, Clone)]
enum Process {
    Independent(LevelState),
    Bursts(Box<Bursts>),
}

#[derive(Debug, Clone)]
enum LevelState {
    Varying(Varying<Ratio>),
    Drawn(Drawn, Box<Redrawn>),
}

#[derive(Debug, Clone)]
struct Bursts {
    chain: ChainState,
    /// Nanoseconds per step, or `None` for one step per packet.
    packet_ns: Option<u64>,
    /// State and step at the last packet; `None` before the first packet.
    last: Option<(State, u64)>,
}

#[derive(Debug, Clone)]
enum ChainState {
    Fixed(Parameters),
    MeanAndBurst { mean: LevelState, burst: f64 },
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
    /// Creates the process. `packet_time` is the transmission time of [`CLOCK_PACKET_BYTES`] at the
    /// rate.
    pub fn new(spec: &LossSpec, packet_time: Option<Duration>, seed: u64) -> Self {
        let process = match spec {
            LossSpec::Independent(level) => Process::Independent(LevelState::new(level, seed)),
            LossSpec::Bursts(spec) => {
                Process::Bursts(Box::new(Bursts::new(spec, packet_time, seed)))
            }
        };
        Self { process, rng: stream(seed, Purpose::Loss) }
    }

    /// Returns `true` if the packet whose transmission began at `at_ns` is lost.
    pub fn drops(&mut self, at_ns: u64) -> bool {
        let probability = match &mut self.process {
            Process::Independent(level) => level.at(at_ns),
            Process::Bursts(bursts) => bursts.probability(at_ns, &mut self.rng),
        };
        // A draw from [0, 1) is never below 0 and always below 1, so probabilities 0 and 1 are
        // exact.
        self.rng.random::<f64>() < probability
    }
}

impl LevelState {
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
                ChainState::Fixed(Parameters {
                    good_to_bad: *good_to_bad,
                    bad_to_good: *bad_to_good,
                    loss_good: *loss_good,
                    loss_bad: *loss_bad,
                })
            }
            Chain::MeanAndBurst { mean, burst } => {
                ChainState::MeanAndBurst { mean: LevelState::new(mean, seed), burst: *burst }
            }
        };
        let packet_ns = match spec.clock {
            Clock::Packets => None,
            // A spec without both times was refused; one step per packet is the closest substitute.
            Clock::Time => spec.packet_time.or(packet_time).map(|time| nanos(time).max(1)),
        };
        Self { chain, packet_ns, last: None }
    }

    /// Moves the chain to `at_ns` and returns the loss probability there.
    fn probability(&mut self, at_ns: u64, rng: &mut ChaCha8Rng) -> f64 {
        let parameters = match &mut self.chain {
            ChainState::Fixed(parameters) => *parameters,
            ChainState::MeanAndBurst { mean, burst } => Parameters::of(mean.at(at_ns), *burst),
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
    /// Gilbert chain, which loses everything in its bad state, for a mean loss and burst length.
    fn of(mean: f64, burst: f64) -> Self {
        let bad_to_good = 1.0 / burst;
        let good_to_bad = bad_to_good * mean / (1.0 - mean);
        Self { good_to_bad, bad_to_good, loss_good: 0.0, loss_bad: 1.0 }
    }

    /// Long-run share of steps in the bad state.
    fn share_bad(&self) -> f64 {
        self.good_to_bad / (self.good_to_bad + self.bad_to_good)
    }

    /// Probability of the bad state `steps` steps after `state`.
    fn bad_after(&self, state: State, steps: u64) -> f64 {
        let was_bad = if state == State::Bad { 1.0 } else { 0.0 };
        let steps = i32::try_from(steps).unwrap_or(i32::MAX);
        let memory = (1.0 - self.good_to_bad - self.bad_to_good).powi(steps);
        self.share_bad() + (was_bad - self.share_bad()) * memory
    }
}

/// Probability that a packet of `bytes` has at least one wrong bit: 1 − (1 − BER)^(8·bytes).
pub(crate) fn frame_loss(ber: f64, bytes: usize) -> f64 {
    // Computed by logarithms, which is accurate for a BER far below 1e-16 per packet.
    -(8.0 * bytes as f64 * (-ber).ln_1p()).exp_m1()
}

#[cfg(test)]
#[path = "loss_tests.rs"]
mod tests;
