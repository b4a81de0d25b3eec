//! `bulk`: endless downloads on several connections, measured in steady state. A connection that
//! fails or delivers damaged bytes is reopened while the time continues, and the run counts as
//! failed.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::time::Duration;

use bentpipe_lab::workload::client::{Connection, HttpError};
use bentpipe_lab::workload::content::ENDLESS_BYTES;
use bentpipe_lab::workload::origin::Arrival;
use bentpipe_results::Row;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::error::WorkError;
use super::scope::Scope;
use crate::figures::per;
use crate::link::duration;

/// Default of the initial time that is not measured.
const WARM: Duration = Duration::from_secs(5);
/// Default of the measured time.
const MEASURED: Duration = Duration::from_secs(30);
/// Pause before a connection is reopened.
const PAUSE: Duration = Duration::from_millis(100);

/// Performs one run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Row>, WorkError> {
    let count = scope.scene.connections.unwrap_or(1) as usize;
    let warm = duration(scope.job.grid, "warm")?.unwrap_or(WARM);
    let length = duration(scope.job.grid, "measured")?.unwrap_or(MEASURED);
    let length = length.min(scope.job.planned.deadline.saturating_sub(warm));
    let once =
        async |arrival: &Cell<Arrival>| Connection::open().await?.get(ENDLESS_BYTES, arrival).await;
    let found = scope.testbed.client.block_on(async || measure(count, warm, length, once).await)?;
    let whole = found.broke == 0;
    scope.failed = found.why;
    let goodput = per(8.0 * found.bytes as f64, length);
    Ok(vec![
        Row::of("epb", goodput / scope.scene.rate_bps(false), whole),
        Row::of("goodput", goodput, whole),
        Row::of("failed", f64::from(u8::from(!whole)), true),
    ])
}

/// Result of a run.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// Bytes received on all connections in the measured time.
    bytes: u64,
    /// Number of broken connections since the start.
    broke: u32,
    /// First failure by damaged bytes, or else the first failure of any kind.
    why: Option<String>,
}

/// Measures for `length` after `warm`, with `count` parallel downloads. `once` is one download on
/// its own connection; it is called again when it ends.
async fn measure(
    count: usize,
    warm: Duration,
    length: Duration,
    once: impl AsyncFn(&Cell<Arrival>) -> Result<(), HttpError>,
) -> Found {
    let arrivals: Vec<Cell<Arrival>> = (0..count).map(|_| Cell::default()).collect();
    let (broke, why) = (Cell::new(0), RefCell::new(None));
    let got = || arrivals.iter().map(|one| one.get().bytes).sum::<u64>();
    let each = arrivals.iter().map(async |arrival| -> Infallible {
        loop {
            if let Err(error) = once(arrival).await {
                let mut why = why.borrow_mut();
                if why.as_ref().is_none_or(|why: &HttpError| error.is_damage() && !why.is_damage())
                {
                    *why = Some(error);
                }
            }
            broke.set(broke.get() + 1);
            sleep(PAUSE).await;
        }
    });
    let transfers = join_all(each);
    let clock = async {
        sleep(warm).await;
        let before = got();
        sleep(length).await;
        got() - before
    };
    let bytes = tokio::select! {
        bytes = clock => bytes,
        // Only without connections.
        _ = transfers => 0,
    };
    Found { bytes, broke: broke.get(), why: why.take().map(|why| why.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn damaged_bytes_break_a_connection_and_what_comes_on_the_next_counts() {
        let begun = Cell::new(0);
        let once = async |arrival: &Cell<Arrival>| {
            begun.set(begun.get() + 1);
            let mut all = arrival.get();
            all.add(1000);
            arrival.set(all);
            if begun.get() == 1 {
                return Err(HttpError::Damaged { path: "/object/9".into(), at: 1000 });
            }
            std::future::pending().await
        };
        let found = measure(1, Duration::ZERO, 5 * PAUSE, once).await;
        assert_eq!((found.broke, begun.get()), (1, 2));
        assert!(found.bytes >= 1000, "{found:?}");
        assert!(found.why.unwrap().contains("damaged behind byte 1000"));
    }
}
