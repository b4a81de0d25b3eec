//! Packets that others overtake, as on a terrestrial path with several queues.

use std::time::Duration;

use bentpipe_units::{Ratio, Span};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::draws::{Purpose, stream};
use crate::error::SpecError;
use crate::series::nanos;

/// Packets that are late, each for itself.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReorderingSpec {
    /// Share of the packets.
    pub(crate) share: Ratio,
    /// Time by which they are late.
    pub(crate) delay: Span,
}

impl ReorderingSpec {
    /// Maximum time by which a packet may be late.
    const MAX_DELAY: Duration = Duration::from_secs(10);

    /// Checks the values.
    pub fn check(self) -> Result<Self, SpecError> {
        if self.delay.duration() > Self::MAX_DELAY {
            let why = "has a `delay` above 10 s: no network keeps a packet for so long";
            return Err(SpecError::new("reordering", why.into()));
        }
        Ok(self)
    }
}

/// Draws of late packets.
#[derive(Debug, Clone)]
pub(crate) struct Reordering {
    share: f64,
    delay_ns: u64,
    rng: ChaCha8Rng,
}

impl Reordering {
    pub fn new(spec: ReorderingSpec, seed: u64) -> Self {
        let rng = stream(seed, Purpose::Reordering);
        Self { share: spec.share.get(), delay_ns: nanos(spec.delay.duration()), rng }
    }

    /// Additional delay of the next packet.
    pub fn next_ns(&mut self) -> u64 {
        if self.rng.random::<f64>() < self.share { self.delay_ns } else { 0 }
    }
}
