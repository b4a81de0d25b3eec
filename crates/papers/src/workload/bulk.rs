//! `bulk`: endless downloads on several connections, measured in steady state. A connection that
//! breaks, brings damaged bytes or cannot be made is opened again while the time goes on; such a run
//! counts as failed.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::time::Duration;

use bentpipe_lab::workload::content::ENDLESS_BYTES;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::http::{Connection, HttpError};
use super::{Scope, WorkError};
use crate::figures::per;
use crate::job::Value;
use crate::link::duration;
use crate::origin::Arrival;

/// Time left out at the beginning unless the grid says otherwise.
const WARM: Duration = Duration::from_secs(5);
/// Measured time unless the grid says otherwise.
const MEASURED: Duration = Duration::from_secs(30);
/// Before another connection is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// One run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Value>, WorkError> {
    let count = scope.scene.connections.unwrap_or(1) as usize;
    let warm = duration(scope.job.grid, "warm")?.unwrap_or(WARM);
    let length = duration(scope.job.grid, "measured")?.unwrap_or(MEASURED);
    let length = length.min(scope.job.planned.deadline.saturating_sub(warm));
    let once =
        async |arrival: &Cell<Arrival>| Connection::open().await?.get(ENDLESS_BYTES, arrival).await;
    let found = scope.in_client(async || measure(count, warm, length, once).await)?;
    let whole = found.broke == 0;
    scope.failed = found.why;
    let goodput = per(8.0 * found.bytes as f64, length);
    Ok(vec![
        Value::of("epb", goodput / scope.scene.rate_bps(false), whole),
        Value::of("goodput", goodput, whole),
        Value::of("failed", f64::from(u8::from(!whole)), true),
    ])
}

/// Result of a run.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// Bytes received on all connections in the measured time.
    bytes: u64,
    /// Number of broken connections since the beginning.
    broke: u32,
    /// Reason of the first that broke over damaged bytes, or else of the first of all.
    why: Option<String>,
}

/// Measures `length` after `warm`, with `count` downloads at once: `once` is one on a connection of
/// its own, which goes on behind what came before it.
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
        // Of no connections at all.
        _ = transfers => 0,
    };
    Found { bytes, broke: broke.get(), why: why.take().map(|why| why.to_string()) }
}

/// Asks for a byte until it comes: what a contender needs before its first flow is not measured.
pub async fn first_byte(patience: Duration) -> Result<(), HttpError> {
    const ATTEMPT: Duration = Duration::from_secs(10);
    let began = std::time::Instant::now();
    loop {
        let once = async { Connection::open().await?.get(1, &Cell::default()).await };
        let outcome = timeout(ATTEMPT, once).await;
        match outcome {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if began.elapsed() > patience => return Err(error),
            Err(_) if began.elapsed() > patience => {
                return Err(HttpError::Connect(std::io::ErrorKind::TimedOut.into()));
            }
            _ => sleep(PAUSE).await,
        }
    }
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
