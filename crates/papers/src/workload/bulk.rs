//! `bulk`: endless downloads on several connections, measured in steady state.

use std::cell::Cell;
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

/// What is not measured at the beginning unless the grid says so.
const WARM: Duration = Duration::from_secs(5);
/// What is measured unless the grid says so.
const MEASURED: Duration = Duration::from_secs(30);

/// One run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Value>, WorkError> {
    let count = scope.scene.connections.unwrap_or(1) as usize;
    let warm = duration(scope.job.grid, "warm")?.unwrap_or(WARM);
    let length = duration(scope.job.grid, "measured")?.unwrap_or(MEASURED);
    let length = length.min(scope.job.planned.deadline.saturating_sub(warm));
    let measured = scope.in_client(async || measure(count, warm, length).await)??;
    let share = per(8.0 * measured as f64, length) / scope.scene.rate_bps(false);
    Ok(vec![
        Value::of("epb", share, true),
        Value::of("goodput", per(8.0 * measured as f64, length), true),
    ])
}

/// What comes on all connections together in `length` after `warm`.
async fn measure(count: usize, warm: Duration, length: Duration) -> Result<u64, WorkError> {
    let arrivals: Vec<Cell<Arrival>> = (0..count).map(|_| Cell::default()).collect();
    let got = || arrivals.iter().map(|one| one.get().bytes).sum::<u64>();
    let each = arrivals
        .iter()
        .map(async |arrival| Connection::open().await?.get(ENDLESS_BYTES, arrival).await);
    let transfers = join_all(each);
    let clock = async {
        sleep(warm).await;
        let before = got();
        sleep(length).await;
        got() - before
    };
    tokio::select! {
        measured = clock => Ok(measured),
        ended = transfers => {
            let ended: Result<Vec<()>, HttpError> = ended.into_iter().collect();
            Err(ended.err().map_or(WorkError::cannot("end what has no end"), WorkError::from))
        }
    }
}

/// Asks for a byte until it comes: what a contender needs before its first flow is not measured.
pub async fn first_byte(patience: Duration) -> Result<(), HttpError> {
    const ATTEMPT: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_millis(100);
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
