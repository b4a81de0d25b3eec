//! `files`: one file on each of several connections, all started at once.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use bentpipe_lab::workload::client::{Connection, HttpError};
use bentpipe_lab::workload::origin::Arrival;
use bentpipe_results::statistics::jain;
use bentpipe_results::{Content, Row};
use futures_util::future::join_all;
use tokio::time::timeout;

use super::error::{WorkError, reason};
use super::scope::Scope;
use crate::figures::{extra_traffic, per};

/// Result of a run.
struct Found {
    began: Instant,
    /// End of the run: the deadline if anything is missing.
    end: Instant,
    arrivals: Vec<Arrival>,
    /// Bytes of each file when the first was complete.
    abreast: Vec<u64>,
    broke: Vec<HttpError>,
}

/// Performs one run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Row>, WorkError> {
    let Some(Content::Objects { count: 1, bytes }) = scope.job.page().map(|page| page.content)
    else {
        return Err(WorkError::cannot("files of a page of several objects"));
    };
    let count = scope.job.whole("connections").unwrap_or(1) as usize;
    let deadline = scope.job.planned.deadline;
    let before = scope.look(false)?;
    let found = scope.testbed.client.block_on(async || fetch(count, bytes, deadline).await)?;
    let after = scope.look(false)?;
    let offered = after.offered.bytes - before.offered.bytes;
    let (rate, ceiling) = (scope.scene.rate_bps(false), 1.0 - scope.scene.loss(false));
    let got = found.arrivals.iter().map(|one| one.bytes).sum();
    scope.failed = reason(&found.broke);
    let mut values = values(&found, bytes, rate);
    let finished = values.iter().all(|value| value.finished);
    values.push(Row::of("ceiling", ceiling, true));
    let extra = extra_traffic(offered, got);
    values.extend(extra.map(|extra| Row::of("extra-traffic", extra, finished)));
    Ok(values)
}

/// Values of the files, on a link with this rate.
fn values(found: &Found, bytes: u64, rate_bps: f64) -> Vec<Row> {
    let finished = found.arrivals.iter().all(|one| one.bytes == bytes);
    let got: u64 = found.arrivals.iter().map(|one| one.bytes).sum();
    let first = found.arrivals.iter().filter_map(|one| one.first).min().unwrap_or(found.end);
    let last = found.arrivals.iter().filter_map(|one| one.last).max();
    let last = if finished { last.unwrap_or(found.end) } else { found.end };
    let bits = 8.0 * got as f64;
    let mut values = vec![
        Row::of("utilization", per(bits, last - first) / rate_bps, finished),
        Row::of("goodput", per(bits, last - found.began), finished),
        Row::of("jain", jain(found.abreast.iter().map(|&bytes| bytes as f64)), true),
        Row::of("failed", f64::from(u8::from(!finished)), true),
    ];
    for (number, arrival) in found.arrivals.iter().enumerate() {
        let whole = arrival.last.filter(|_| arrival.bytes == bytes);
        let took = (whole.unwrap_or(found.end) - found.began).as_secs_f64();
        let value = Row::of("response-time", took, whole.is_some());
        values.push(value.in_series(number.to_string()));
    }
    values
}

/// Opens all connections at once and requests a file on each when it is open.
async fn fetch(count: usize, bytes: u64, deadline: Duration) -> Found {
    let arrivals: Vec<Cell<Arrival>> = (0..count).map(|_| Cell::default()).collect();
    let (abreast, broke) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let look = || arrivals.iter().map(|one| one.get().bytes).collect::<Vec<u64>>();
    // Before the connections, because a handshake across the link is part of the response time.
    let began = Instant::now();
    let each = arrivals.iter().map(async |arrival| {
        let once = async { Connection::open().await?.get(bytes, arrival).await };
        match once.await {
            Ok(()) if abreast.borrow().is_empty() => *abreast.borrow_mut() = look(),
            Ok(()) => {}
            Err(error) => broke.borrow_mut().push(error),
        }
    });
    let in_time = timeout(deadline, join_all(each)).await.is_ok();
    let broke = broke.into_inner();
    let end = if in_time && broke.is_empty() { Instant::now() } else { began + deadline };
    let mut abreast = abreast.into_inner();
    if abreast.is_empty() {
        abreast = look();
    }
    Found { began, end, arrivals: arrivals.iter().map(Cell::get).collect(), abreast, broke }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[Row], metric: &str, series: &str) -> (f64, bool) {
        let is_it = |value: &&Row| value.metric == metric && value.series == series;
        let value = values.iter().find(is_it).unwrap();
        (value.value, value.finished)
    }

    #[test]
    fn damaged_bytes_are_a_failed_file() {
        let began = Instant::now();
        let at = |seconds| Some(began + Duration::from_secs(seconds));
        let arrival = |bytes| Arrival { bytes, first: at(1), last: at(2) };
        let damaged = HttpError::Damaged { path: "/object/1000".into(), at: 400 };
        let found = Found {
            began,
            end: began + Duration::from_secs(10),
            arrivals: vec![arrival(1000), arrival(400)],
            abreast: vec![1000, 400],
            broke: vec![damaged],
        };
        let values = values(&found, 1000, 8000.0);
        assert_eq!(of(&values, "failed", ""), (1.0, true));
        assert_eq!(of(&values, "response-time", "0"), (2.0, true));
        assert_eq!(of(&values, "response-time", "1"), (10.0, false));
        assert!(reason(&found.broke).unwrap().contains("/object/1000 is damaged behind byte 400"));
    }

    #[test]
    fn a_connection_that_never_came_is_a_failed_file() {
        let began = Instant::now();
        let at = |seconds| Some(began + Duration::from_secs(seconds));
        let whole = Arrival { bytes: 1000, first: at(1), last: at(2) };
        let refused = HttpError::Connect(std::io::ErrorKind::TimedOut.into());
        let found = Found {
            began,
            end: began + Duration::from_secs(10),
            arrivals: vec![whole, Arrival::default()],
            abreast: vec![1000, 0],
            broke: vec![refused],
        };
        let values = values(&found, 1000, 8000.0);
        let of = |metric, series| of(&values, metric, series);
        assert_eq!(of("failed", ""), (1.0, true));
        assert_eq!(of("response-time", "0"), (2.0, true));
        assert_eq!(of("response-time", "1"), (10.0, false));
        assert_eq!(of("utilization", ""), (8000.0 / 9.0 / 8000.0, false));
        assert!(reason(&found.broke).unwrap().contains("cannot connect"));
    }
}
