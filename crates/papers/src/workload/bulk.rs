//! `bulk`: endless downloads on several connections, measured in steady state. A connection that
//! breaks, or cannot be made, is opened again while the time goes on; such a run counts as failed.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use bentpipe_lab::workload::content::ENDLESS_BYTES;
use futures_util::future::try_join_all;
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
/// Before another connection is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// One run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Value>, WorkError> {
    let count = scope.scene.connections.unwrap_or(1) as usize;
    let warm = duration(scope.job.grid, "warm")?.unwrap_or(WARM);
    let length = duration(scope.job.grid, "measured")?.unwrap_or(MEASURED);
    let length = length.min(scope.job.planned.deadline.saturating_sub(warm));
    let (bytes, broke) = scope.in_client(async || measure(count, warm, length).await)??;
    let whole = broke == 0;
    let goodput = per(8.0 * bytes as f64, length);
    Ok(vec![
        Value::of("epb", goodput / scope.scene.rate_bps(false), whole),
        Value::of("goodput", goodput, whole),
        Value::of("failed", f64::from(u8::from(!whole)), true),
    ])
}

/// What comes on all connections together in `length` after `warm`, and how often one broke since the
/// beginning; an error where bytes are not those that were sent.
async fn measure(count: usize, warm: Duration, length: Duration) -> Result<(u64, u32), HttpError> {
    let arrivals: Vec<Cell<Arrival>> = (0..count).map(|_| Cell::default()).collect();
    let broke = Cell::new(0);
    let got = || arrivals.iter().map(|one| one.get().bytes).sum::<u64>();
    let each = arrivals.iter().map(async |arrival| -> Result<Infallible, HttpError> {
        loop {
            let once = async { Connection::open().await?.get(ENDLESS_BYTES, arrival).await };
            if let Err(error) = once.await
                && error.is_damage()
            {
                return Err(error);
            }
            broke.set(broke.get() + 1);
            sleep(PAUSE).await;
        }
    });
    let transfers = try_join_all(each);
    let clock = async {
        sleep(warm).await;
        let before = got();
        sleep(length).await;
        got() - before
    };
    tokio::select! {
        bytes = clock => Ok((bytes, broke.get())),
        ended = transfers => match ended {
            Err(error) => Err(error),
            // Of no connections at all.
            Ok(_) => Ok((0, 0)),
        },
    }
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
