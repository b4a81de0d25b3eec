//! `files`: a file on each of several connections, all begun at once.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use bentpipe_results::Content;
use futures_util::future::{join_all, try_join_all};
use tokio::time::timeout;

use super::http::{Connection, HttpError};
use super::{Scope, WorkError};
use crate::figures::{jain, per};
use crate::job::Value;
use crate::origin::Arrival;

/// What came of a run.
struct Found {
    began: Instant,
    end: Instant,
    arrivals: Vec<Arrival>,
    /// What each had when the first was complete.
    abreast: Vec<u64>,
    broke: Vec<HttpError>,
}

/// One run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Value>, WorkError> {
    let Some(Content::Objects { count: 1, bytes }) = scope.job.page().map(|page| page.content)
    else {
        return Err(WorkError::cannot("files of a page of several objects"));
    };
    let count = scope.job.whole("connections").unwrap_or(1) as usize;
    let deadline = scope.job.planned.deadline;
    let before = scope.look(false)?;
    let found = scope.in_client(async || fetch(count, bytes, deadline).await)??;
    let after = scope.look(false)?;
    if let Some(damage) = found.broke.into_iter().find(HttpError::is_damage) {
        return Err(damage.into());
    }
    let finished = found.arrivals.iter().all(|one| one.bytes == bytes);
    let got: u64 = found.arrivals.iter().map(|one| one.bytes).sum();
    let first = found.arrivals.iter().filter_map(|one| one.first).min().unwrap_or(found.end);
    let last = found.arrivals.iter().filter_map(|one| one.last).max();
    let last = if finished { last.unwrap_or(found.end) } else { found.end };
    let bits = 8.0 * got as f64;
    let passed = (after.cabin - before.cabin).max(1) as f64;
    let offered = (after.link.offered.bytes - before.link.offered.bytes) as f64;
    let mut values = vec![
        Value::of("utilization", per(bits, last - first) / scope.scene.rate_bps(false), finished),
        Value::of("ceiling", 1.0 - scope.scene.loss(false), true),
        Value::of("goodput", per(bits, last - found.began), finished),
        Value::of("jain", jain(&found.abreast), true),
        Value::of("extra-traffic", offered / passed - 1.0, finished),
        Value::of("failed", f64::from(u8::from(!finished)), true),
    ];
    for (number, arrival) in found.arrivals.iter().enumerate() {
        let whole = arrival.last.filter(|_| arrival.bytes == bytes);
        let took = (whole.unwrap_or(found.end) - found.began).as_secs_f64();
        let value = Value::of("response-time", took, whole.is_some());
        values.push(value.in_series(number.to_string()));
    }
    Ok(values)
}

/// Opens all connections, then asks for all files at once.
async fn fetch(
    count: usize,
    bytes: u64,
    deadline: std::time::Duration,
) -> Result<Found, WorkError> {
    let open = try_join_all((0..count).map(|_| Connection::open()));
    let mut connections =
        timeout(deadline, open).await.map_err(|_| WorkError::cannot("connect in time"))??;
    let arrivals: Vec<Cell<Arrival>> = (0..count).map(|_| Cell::default()).collect();
    let abreast = RefCell::new(Vec::new());
    let look = || arrivals.iter().map(|one| one.get().bytes).collect::<Vec<u64>>();
    let began = Instant::now();
    let each = connections.iter_mut().zip(&arrivals).map(async |(connection, arrival)| {
        let outcome = connection.get(bytes, arrival).await;
        if outcome.is_ok() && abreast.borrow().is_empty() {
            *abreast.borrow_mut() = look();
        }
        outcome
    });
    let outcomes = timeout(deadline, join_all(each)).await;
    let end = Instant::now();
    let broke = outcomes.unwrap_or_default().into_iter().filter_map(Result::err).collect();
    let mut abreast = abreast.into_inner();
    if abreast.is_empty() {
        abreast = look();
    }
    Ok(Found { began, end, arrivals: arrivals.iter().map(Cell::get).collect(), abreast, broke })
}
