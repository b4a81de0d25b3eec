//! Links for tests.

use std::time::Duration;

use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_units::{BitRate, Ratio};

/// A link without any impairment.
pub fn clean() -> LinkSpec {
    both(DirectionSpec::fixed(None, Duration::ZERO, Ratio::ZERO))
}

/// In-flight satellite link of the published study: slow, with a long delay and much loss.
pub fn mss() -> LinkSpec {
    constant(1_890_000, 380, 0.06)
}

/// A link with constant values, the same in both directions.
pub fn constant(rate_bps: u64, delay_ms: u64, loss: f64) -> LinkSpec {
    let delay = Duration::from_millis(delay_ms);
    let loss = Ratio::new(loss).expect("a ratio");
    both(DirectionSpec::fixed(Some(BitRate::from_bps(rate_bps)), delay, loss))
}

/// A link in the syntax of a profile.
pub fn written(text: &str) -> LinkSpec {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
}

fn both(direction: DirectionSpec) -> LinkSpec {
    LinkSpec { forward: direction.clone(), return_: direction }
}
