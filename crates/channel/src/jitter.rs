//! Jitter: delay that varies from packet to packet.

use std::time::Duration;

use bentpipe_units::Span;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::draws::{Purpose, Redrawn, exponential, normal, stream};
use crate::error::SpecError;
use crate::series::nanos;

/// Maximum extra delay, whatever the tail of the distribution. It bounds what an emulator has in
/// flight: 12.5 MB at 10 Mbit/s.
const MAX_JITTER: Duration = Duration::from_secs(10);

/// Distribution of the extra delay, drawn for every packet or for every interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
#[serde(try_from = "RawJitter")]
pub(crate) struct JitterSpec {
    shape: Shape,
    mean_s: f64,
    deviation_s: f64,
    redraw: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Shape {
    /// Between zero and twice the mean.
    Uniform,
    Exponential,
    Normal,
    LogNormal,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawJitter {
    shape: Shape,
    mean: Span,
    deviation: Option<Span>,
    redraw: Option<Span>,
}

impl TryFrom<RawJitter> for JitterSpec {
    type Error = SpecError;

    fn try_from(raw: RawJitter) -> Result<Self, SpecError> {
        let error = |why: &str| Err(SpecError::new("jitter", why.into()));
        let mean_s = raw.mean.duration().as_secs_f64();
        let wants_deviation = matches!(raw.shape, Shape::Normal | Shape::LogNormal);
        let deviation_s = match (raw.deviation, wants_deviation) {
            (Some(deviation), true) => deviation.duration().as_secs_f64(),
            (None, false) => 0.0,
            (None, true) => return error("has no `deviation`: this shape needs one"),
            (Some(_), false) => {
                return error("has a `deviation` that follows from its mean: leave it out");
            }
        };
        if mean_s == 0.0 {
            return error("has a mean of zero: leave the jitter out");
        }
        if raw.shape == Shape::Normal && 3.0 * deviation_s > mean_s {
            return error(
                "would often be negative: give it a mean of at least 3 deviations, or shape = \
                 \"log-normal\"",
            );
        }
        if raw.redraw.is_some_and(|redraw| redraw.duration().is_zero()) {
            return error("is redrawn after no time: leave `redraw` out to draw for every packet");
        }
        let redraw = raw.redraw.map(Span::duration);
        Ok(Self { shape: raw.shape, mean_s, deviation_s, redraw })
    }
}

impl JitterSpec {
    /// Declared mean.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.mean_s)
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> f64 {
        let (mean, deviation) = (self.mean_s, self.deviation_s);
        match self.shape {
            Shape::Uniform => 2.0 * mean * rng.random::<f64>(),
            Shape::Exponential => mean * exponential(rng),
            Shape::Normal => (mean + deviation * normal(rng)).max(0.0),
            Shape::LogNormal => {
                let variance = (1.0 + (deviation / mean).powi(2)).ln();
                (mean.ln() - variance / 2.0 + variance.sqrt() * normal(rng)).exp()
            }
        }
    }
}

/// Jitter of one direction with its random stream.
#[derive(Debug, Clone)]
pub(crate) enum Jitter {
    PerPacket(JitterSpec, Box<ChaCha8Rng>),
    PerInterval(JitterSpec, Box<Redrawn>),
}

impl Jitter {
    pub fn new(spec: JitterSpec, seed: u64) -> Self {
        let rng = stream(seed, Purpose::Jitter);
        match spec.redraw {
            None => Self::PerPacket(spec, Box::new(rng)),
            Some(every) => Self::PerInterval(spec, Box::new(Redrawn::new(rng, nanos(every)))),
        }
    }

    /// Extra delay, in nanoseconds, of a packet sent at `at_ns`.
    pub fn at(&mut self, at_ns: u64) -> u64 {
        let seconds = match self {
            Self::PerPacket(spec, rng) => spec.draw(rng),
            Self::PerInterval(spec, redrawn) => redrawn.at(at_ns, |rng| spec.draw(rng)),
        };
        (seconds.min(MAX_JITTER.as_secs_f64()) * 1e9) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Result<JitterSpec, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn every_shape_has_its_declared_moments() {
        for (text, deviation_ms) in [
            ("shape = 'uniform'\nmean = '20 ms'", 20.0 / 3f64.sqrt()),
            ("shape = 'exponential'\nmean = '20 ms'", 20.0),
            ("shape = 'normal'\nmean = '20 ms'\ndeviation = '5 ms'", 5.0),
            ("shape = 'log-normal'\nmean = '20 ms'\ndeviation = '10 ms'", 10.0),
        ] {
            let mut jitter = Jitter::new(spec(text).unwrap(), 5);
            let n = 400_000;
            let draws: Vec<f64> = (0..n).map(|_| jitter.at(0) as f64 / 1e6).collect();
            let mean = draws.iter().sum::<f64>() / n as f64;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            let five_errors = 5.0 * deviation_ms / (n as f64).sqrt();
            assert!((mean - 20.0).abs() < five_errors, "{text}: mean {mean}");
            assert!((variance.sqrt() / deviation_ms - 1.0).abs() < 0.02, "{text}: {variance}");
        }
    }

    #[test]
    fn a_redrawn_jitter_is_constant_within_its_interval() {
        let text = "shape = 'exponential'\nmean = '20 ms'\nredraw = '1 s'";
        let mut jitter = Jitter::new(spec(text).unwrap(), 5);
        let second = 1_000_000_000;
        let first = jitter.at(0);
        assert_eq!(jitter.at(second - 1), first);
        assert_ne!(jitter.at(second), first);
    }

    #[test]
    fn invalid_jitter_is_refused() {
        let why = |text| spec(text).unwrap_err().to_string();
        assert!(why("shape = 'normal'\nmean = '20 ms'").contains("deviation"));
        assert!(why("shape = 'uniform'\nmean = '20 ms'\ndeviation = '1 ms'").contains("leave"));
        assert!(why("shape = 'normal'\nmean = '20 ms'\ndeviation = '9 ms'").contains("log-normal"));
        assert!(why("shape = 'pareto'\nmean = '20 ms'").contains("expected one of"));
    }
}
