//! A long download and its rate in steady state.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::client::{Connection, HttpError};
use super::content::ENDLESS_BYTES;
use super::origin::Arrival;

/// Time excluded at the beginning. The first byte takes up to 3 round trips. Every congestion
/// control has found its rate 12 round trips later, and after 2 s on a short path.
const RAMP_RTTS: u32 = 15;
const MIN_RAMP: Duration = Duration::from_secs(2);

/// Measured period of a download.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Payload bytes received.
    pub bytes: u64,
    /// Duration of the period.
    pub took: Duration,
}

impl Stretch {
    /// Payload rate in bit/s.
    pub fn goodput_bps(&self) -> f64 {
        8.0 * self.bytes as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Downloads endlessly, and measures a period of `length` in steady state over a path with this
/// round trip. Calls `mark` at the beginning and at the end of the measurement.
pub async fn run(
    rtt: Duration,
    length: Duration,
    mut mark: impl FnMut(),
) -> Result<Stretch, HttpError> {
    let arrival = Cell::<Arrival>::default();
    let download = async { Connection::open().await?.get(ENDLESS_BYTES, &arrival).await };
    let clock = async {
        tokio::time::sleep(MIN_RAMP.max(RAMP_RTTS * rtt)).await;
        mark();
        let (began, from) = (Instant::now(), arrival.get().bytes);
        tokio::time::sleep(length).await;
        mark();
        Stretch { bytes: arrival.get().bytes - from, took: began.elapsed() }
    };
    tokio::select! {
        ended = download => Err(ended.err().unwrap_or(HttpError::Damaged {
            path: format!("/object/{ENDLESS_BYTES}"),
            at: arrival.get().bytes,
        })),
        stretch = clock => Ok(stretch),
    }
}
