//! `call`: a call over UDP, whose packets must not be late.

use std::time::Duration;

use bentpipe_lab::workload::call::Phone;
use bentpipe_results::Row;
use bentpipe_results::statistics::percentile;

use super::error::WorkError;
use super::scope::Scope;
use crate::link::duration;

/// Default length of a call.
const LENGTH: Duration = Duration::from_secs(60);
/// Maximum delay beyond the least of the direction. A later packet is lost for the listener.
const LATEST: Duration = Duration::from_millis(250);

/// Performs one run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Row>, WorkError> {
    let length = duration(scope.job.grid, "length")?.unwrap_or(LENGTH);
    let phone = Phone::start(&scope.testbed.server)?;
    match scope.testbed.client.block_on(async || phone.call(length).await)? {
        Ok(ways) => Ok(values(&ways)),
        Err(error) => {
            scope.failed = Some(error.to_string());
            Ok(super::nothing(scope.job))
        }
    }
}

/// Share of packets that came too late or never, and the delay of the others, of both directions
/// together.
fn values(ways: &[Vec<Option<Duration>>]) -> Vec<Row> {
    let (mut delays, mut packets) = (Vec::new(), 0);
    for way in ways {
        packets += way.len();
        let Some(least) = way.iter().flatten().min() else { continue };
        let in_time = way.iter().flatten().filter(|delay| **delay <= *least + LATEST);
        delays.extend(in_time.map(Duration::as_secs_f64));
    }
    delays.sort_by(f64::total_cmp);
    let lost = 1.0 - delays.len() as f64 / packets.max(1) as f64;
    let delay = percentile(&delays, 0.95).map(|delay| Row::of("call-delay", delay, true));
    [Row::of("call-loss", lost, true), Row::of("failed", 0.0, true)]
        .into_iter()
        .chain(delay)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_are_late_are_lost() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let ways = [vec![ms(100), ms(110), None, ms(351)], vec![ms(200); 4]];
        let values = values(&ways);
        assert_eq!(values[0], Row::of("call-loss", 0.25, true));
        assert_eq!(values[2], Row::of("call-delay", 0.2, true));
    }
}
