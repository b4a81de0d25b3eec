//! `mixed`: readers of pages and of files for a fixed time.
//!
//! A reader of pages loads a document and its objects over HTTP/1.1 on six connections that stay open
//! during the page, waits, and loads it again; a reader of files downloads one after another. Nobody
//! begins anything behind the fixed time, in which utilization and fairness are measured. What is
//! under way then is given as long again to end: left out, it would be the slow ones that are. What
//! breaks, or has not ended even then, counts as not finished.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::time::{Instant, sleep, timeout};

use super::http::{Connection, HttpError};
use super::{Scope, WorkError, reason};
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

/// A page or a file that somebody read.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Read {
    reader: usize,
    took: Duration,
    finished: bool,
}

/// Results of the readers, while they read.
struct Diary {
    /// Time after which nothing begins.
    until: Instant,
    pages: RefCell<Vec<Read>>,
    files: RefCell<Vec<Read>>,
    /// Since when each reader has been waiting for what it is reading.
    under_way: Vec<Cell<Option<Instant>>>,
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
    let (diary, arrivals, began) =
        scope.in_client(async || read(pages, files, think, length).await)?;
    let began = began.into_std();
    let sum = |tally: &Vec<Arrival>| tally.iter().map(|one| one.bytes).sum::<u64>();
    let got: Vec<u64> = arrivals.iter().map(sum).collect();
    let first = arrivals.iter().flatten().filter_map(|one| one.first).min().unwrap_or(began);
    let receiving = (began + length).saturating_duration_since(first);
    let all = 8.0 * got.iter().sum::<u64>() as f64;
    scope.failed = reason(&diary.broke.borrow());
    let mut values = diary.values(pages);
    values.push(Value::of("utilization", per(all, receiving) / scope.scene.rate_bps(false), true));
    values.push(Value::of("jain", jain(&got[pages..]), true));
    Ok(values)
}

/// Lets all of them read; what they found, what had come to each on each of its connections within
/// `length`, and when that began.
async fn read(
    pages: usize,
    files: usize,
    think: Duration,
    length: Duration,
) -> (Diary, Vec<Vec<Arrival>>, Instant) {
    let began = Instant::now();
    let diary = Diary::new(pages + files, began + length);
    let tallies: Vec<Vec<Cell<Arrival>>> = (0..pages + files)
        .map(|reader| {
            let connections = if reader < pages { CONNECTIONS } else { 1 };
            (0..connections).map(|_| Cell::default()).collect()
        })
        .collect();
    let each = tallies.iter().enumerate().map(async |(reader, tally)| {
        if reader < pages {
            read_pages(reader, tally, think, &diary).await;
        } else {
            read_files(reader, &tally[0], &diary).await;
        }
    });
    let look = async {
        sleep(length).await;
        tallies.iter().map(|tally| tally.iter().map(Cell::get).collect()).collect()
    };
    let (arrivals, _) = tokio::join!(look, timeout(2 * length, join_all(each)));
    (diary, arrivals, began)
}

impl Diary {
    fn new(readers: usize, until: Instant) -> Self {
        Self {
            until,
            pages: RefCell::default(),
            files: RefCell::default(),
            under_way: vec![Cell::new(None); readers],
            broke: RefCell::default(),
        }
    }

    /// Reads for as long as something may be begun, and waits after each.
    async fn keep(
        &self,
        reader: usize,
        think: Duration,
        list: &RefCell<Vec<Read>>,
        read: impl AsyncFn() -> Result<(), HttpError>,
    ) {
        while Instant::now() < self.until {
            let began = Instant::now();
            self.under_way[reader].set(Some(began));
            let outcome = read().await;
            self.under_way[reader].set(None);
            let (took, finished) = (began.elapsed(), outcome.is_ok());
            list.borrow_mut().push(Read { reader, took, finished });
            let pause = match outcome {
                Ok(()) => think,
                Err(error) => {
                    self.broke.borrow_mut().push(error);
                    PAUSE
                }
            };
            sleep(pause.min(self.until.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// The times of all pages and files, and whether any of them failed; `pages` are the first so many
    /// readers'.
    fn values(self, pages: usize) -> Vec<Value> {
        let mut lists = [self.pages.into_inner(), self.files.into_inner()];
        for (reader, began) in self.under_way.iter().enumerate() {
            if let Some(began) = began.get() {
                let list = &mut lists[usize::from(reader >= pages)];
                list.push(Read { reader, took: began.elapsed(), finished: false });
            }
        }
        let failed = lists.iter().flatten().any(|read| !read.finished);
        let mut values = vec![Value::of("failed", f64::from(u8::from(failed)), true)];
        for (metric, list) in ["plt", "response-time"].into_iter().zip(lists) {
            values.extend(list.into_iter().map(|read| {
                let Read { reader, took, finished } = read;
                let value = Value::of(metric, took.as_secs_f64(), finished);
                value.in_series(reader.to_string())
            }));
        }
        values
    }
}

async fn read_pages(reader: usize, tally: &[Cell<Arrival>], think: Duration, diary: &Diary) {
    diary.keep(reader, think, &diary.pages, async || page(tally).await).await;
}

async fn read_files(reader: usize, tally: &Cell<Arrival>, diary: &Diary) {
    let file = async || get(&mut Connection::open().await?, FILE_BYTES, tally).await;
    diary.keep(reader, Duration::ZERO, &diary.files, file).await;
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

/// One object; its bytes are added to `tally` as they come.
async fn get(
    connection: &mut Connection,
    bytes: u64,
    tally: &Cell<Arrival>,
) -> Result<(), HttpError> {
    connection.get_counting(bytes, &Cell::default(), Some(tally)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_or_is_cut_off_counts_as_not_finished() {
        let diary = Diary::new(3, Instant::now());
        let read = |reader, seconds, finished| {
            let took = Duration::from_secs(seconds);
            Read { reader, took, finished }
        };
        diary.pages.borrow_mut().extend([read(0, 3, true), read(0, 7, false)]);
        diary.broke.borrow_mut().push(HttpError::Connect(std::io::ErrorKind::TimedOut.into()));
        diary.under_way[2].set(Some(Instant::now()));
        let values = diary.values(1);
        let of = |metric: &str| -> Vec<(&str, bool)> {
            let all = values.iter().filter(|value| value.metric == metric);
            all.map(|value| (value.series.as_str(), value.finished)).collect()
        };
        assert_eq!(of("plt"), [("0", true), ("0", false)]);
        assert_eq!(of("response-time"), [("2", false)]);
        assert_eq!(values[0], Value::of("failed", 1.0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn damaged_bytes_are_a_file_that_failed() {
        let diary = Diary::new(1, Instant::now() + Duration::from_secs(3600));
        let damaged = || HttpError::Damaged { path: "/object/9".into(), at: 4 };
        let keep = diary.keep(0, THINK, &diary.files, async || Err(damaged()));
        // Until the second file has failed too.
        let _ = timeout(PAUSE + PAUSE / 2, keep).await;
        assert!(reason(&diary.broke.borrow()).unwrap().contains("/object/9 is damaged"));
        let values = diary.values(0);
        let unread = Value::of("response-time", 0.0, false).in_series("0");
        assert_eq!(values, [Value::of("failed", 1.0, true), unread.clone(), unread]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_begins_behind_the_time() {
        let diary = Diary::new(1, Instant::now() - Duration::from_secs(1));
        diary.keep(0, THINK, &diary.pages, async || panic!("begun too late")).await;
        assert_eq!(diary.values(1), [Value::of("failed", 0.0, true)]);
    }
}
