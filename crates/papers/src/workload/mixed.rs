//! `mixed`: readers of pages and of files for a fixed time.
//!
//! A reader of pages loads a document and its objects over HTTP/1.1 on six connections that stay open
//! during the page, waits, and loads it again; a reader of files downloads one after another. What is
//! under way at the end counts for the utilization and for nothing else.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use tokio::time::{sleep, timeout};

use super::http::{Connection, HttpError};
use super::{Scope, WorkError};
use crate::figures::{jain, per};
use crate::job::Value;
use crate::link::duration;
use crate::origin::Arrival;

/// Objects of a page beside its document.
const OBJECTS: usize = 25;
/// Bytes of each of them, and of the document.
const OBJECT_BYTES: u64 = 20_000;
/// Bytes of a file.
const FILE_BYTES: u64 = 1_600_000;
/// Connections of a reader of pages.
const CONNECTIONS: usize = 6;
/// Between two pages, unless the grid says so.
const THINK: Duration = Duration::from_secs(2);
/// Before a reader whose connection broke tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// What readers found, while they read.
#[derive(Default)]
struct Diary {
    pages: RefCell<Vec<(usize, f64)>>,
    files: RefCell<Vec<(usize, f64)>>,
    /// Objects and files that broke.
    broke: RefCell<Vec<HttpError>>,
}

/// One run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Value>, WorkError> {
    let readers = |key| scope.job.whole(key).unwrap_or(5) as usize;
    let (pages, files) = (readers("page-readers"), readers("file-readers"));
    let think = duration(scope.job.grid, "think-time")?.unwrap_or(THINK);
    let deadline = scope.job.planned.deadline;
    let length = duration(scope.job.grid, "length")?.unwrap_or(deadline).min(deadline);
    let (diary, arrivals, began) = scope.in_client(async || {
        let (diary, began) = (Diary::default(), Instant::now());
        let arrivals: Vec<Vec<Cell<Arrival>>> = (0..pages + files)
            .map(|reader| {
                let connections = if reader < pages { CONNECTIONS } else { 1 };
                (0..connections).map(|_| Cell::default()).collect()
            })
            .collect();
        let each = arrivals.iter().enumerate().map(async |(reader, tally)| {
            if reader < pages {
                read_pages(reader, tally, think, &diary).await;
            } else {
                read_files(reader, &tally[0], &diary).await;
            }
        });
        let _ = timeout(length, join_all(each)).await;
        let sums = arrivals.iter().map(|tally| tally.iter().map(Cell::get).collect::<Vec<_>>());
        (diary, sums.collect::<Vec<_>>(), began)
    })?;
    if let Some(damage) = diary.broke.into_inner().into_iter().find(HttpError::is_damage) {
        return Err(damage.into());
    }
    let sum = |tally: &Vec<Arrival>| tally.iter().map(|one| one.bytes).sum::<u64>();
    let got: Vec<u64> = arrivals.iter().map(sum).collect();
    let first = arrivals.iter().flatten().filter_map(|one| one.first).min().unwrap_or(began);
    let receiving = (began + length).saturating_duration_since(first);
    let all = 8.0 * got.iter().sum::<u64>() as f64;
    let mut values = vec![
        Value::of("utilization", per(all, receiving) / scope.scene.rate_bps(false), true),
        Value::of("jain", jain(&got[pages..]), true),
    ];
    for (metric, list) in [("plt", diary.pages), ("response-time", diary.files)] {
        let list = list.into_inner();
        if list.is_empty() {
            // Nobody's was complete: all that is known is that it takes longer.
            values.push(Value::of(metric, length.as_secs_f64(), false));
        }
        let named = |(reader, took): (usize, f64)| {
            Value::of(metric, took, true).in_series(reader.to_string())
        };
        values.extend(list.into_iter().map(named));
    }
    Ok(values)
}

async fn read_pages(reader: usize, tally: &[Cell<Arrival>], think: Duration, diary: &Diary) {
    loop {
        let began = Instant::now();
        match page(tally).await {
            Ok(()) => {
                diary.pages.borrow_mut().push((reader, began.elapsed().as_secs_f64()));
                sleep(think).await;
            }
            Err(error) => {
                diary.broke.borrow_mut().push(error);
                sleep(PAUSE).await;
            }
        }
    }
}

/// The document, then its objects on all connections.
async fn page(tally: &[Cell<Arrival>]) -> Result<(), HttpError> {
    let mut first = Connection::open().await?;
    get(&mut first, OBJECT_BYTES, &tally[0]).await?;
    let left = RefCell::new((0..OBJECTS).collect::<VecDeque<_>>());
    let first = RefCell::new(Some(first));
    let each = tally.iter().map(async |tally| {
        let waiting = first.borrow_mut().take();
        let mut connection = match waiting {
            Some(connection) => connection,
            None => Connection::open().await?,
        };
        loop {
            let next = left.borrow_mut().pop_front();
            if next.is_none() {
                return Ok::<_, HttpError>(());
            }
            get(&mut connection, OBJECT_BYTES, tally).await?;
        }
    });
    try_join_all(each).await.map(drop)
}

async fn read_files(reader: usize, tally: &Cell<Arrival>, diary: &Diary) {
    loop {
        let began = Instant::now();
        let once = async { get(&mut Connection::open().await?, FILE_BYTES, tally).await };
        match once.await {
            Ok(()) => {
                diary.files.borrow_mut().push((reader, began.elapsed().as_secs_f64()));
            }
            Err(error) => {
                diary.broke.borrow_mut().push(error);
                sleep(PAUSE).await;
            }
        }
    }
}

/// One object; its bytes are added to `tally` as they come.
async fn get(
    connection: &mut Connection,
    bytes: u64,
    tally: &Cell<Arrival>,
) -> Result<(), HttpError> {
    connection.get_counting(bytes, &Cell::default(), Some(tally)).await
}
