//! A long download and its rate in steady state.

use std::time::{Duration, Instant};

use super::content::ENDLESS_BYTES;
use super::fetch::{Client, FetchError, next};

/// Time left out at the beginning, counted from the first byte: every congestion control has found
/// its rate after 12 round trips, and after 2 s on a short path.
const RAMP_RTTS: u32 = 12;
const MIN_RAMP: Duration = Duration::from_secs(2);

/// A stretch of a download.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Payload received.
    pub bytes: u64,
    /// In this time.
    pub took: Duration,
}

impl Stretch {
    /// Payload per time.
    pub fn goodput_bps(&self) -> f64 {
        8.0 * self.bytes as f64 / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Delay after the first byte until measuring begins, over a path of this round trip.
pub fn ramp(rtt: Duration) -> Duration {
    MIN_RAMP.max(RAMP_RTTS * rtt)
}

/// Downloads without end and measures `length` of it after the [`ramp`]; `mark` is called at the
/// beginning and at the end of what is measured. Content is checked throughout.
pub async fn run(
    client: &Client,
    rtt: Duration,
    length: Duration,
    mut mark: impl FnMut(),
) -> Result<Stretch, FetchError> {
    let path = format!("/object/{ENDLESS_BYTES}");
    let mut connection = client.connect().await?;
    let (object, mut body) = connection.ask(&path).await?;
    let mut begin = None;
    let (mut offset, mut measured_from) = (0, None);
    loop {
        let deadline = measured_from.map(|(at, _): (Instant, u64)| at + length).or(begin);
        let data = match deadline {
            Some(at) => tokio::time::timeout_at(at.into(), next(&mut body)).await.ok(),
            None => Some(next(&mut body).await),
        };
        if let Some(data) = data {
            let Some(data) = data? else {
                return Err(FetchError::Damaged { path, at: offset });
            };
            begin.get_or_insert_with(|| Instant::now() + ramp(rtt));
            if !object.matches(offset, &data) {
                return Err(FetchError::Damaged { path, at: offset });
            }
            offset += data.len() as u64;
        }
        if deadline.is_none_or(|deadline| Instant::now() < deadline) {
            continue;
        }
        mark();
        match measured_from {
            None => measured_from = Some((Instant::now(), offset)),
            Some((at, from)) => {
                return Ok(Stretch { bytes: offset - from, took: at.elapsed() });
            }
        }
    }
}
