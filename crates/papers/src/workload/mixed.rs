//! `mixed`: readers of pages and of files for a fixed time.
//!
//! - A reader of pages loads a document and its objects over HTTP/1.1 on six connections that stay
//!   open during the page, waits, and loads it again.
//! - A reader of files downloads one file after another.
//!
//! Utilization and fairness are measured in the fixed time, and nothing starts after it. Unfinished
//! loads then get the same time again; leaving them out would exclude the slow ones. A load that
//! fails, or is unfinished even then, counts as not finished.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bentpipe_lab::workload::client::{Connection, HttpError};
use bentpipe_lab::workload::origin::Arrival;
use bentpipe_lab::workload::page::{CONNECTIONS, load};
use bentpipe_results::Row;
use bentpipe_results::statistics::jain;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::error::{WorkError, reason};
use super::scope::Scope;
use crate::figures::per;
use crate::link::duration;

/// Number of objects of a page in addition to its document.
const OBJECTS: usize = 25;
/// Size of each object, and of the document.
const OBJECT_BYTES: u64 = 20_000;
/// Size of a file.
const FILE_BYTES: u64 = 1_600_000;
/// Default pause between two pages.
const THINK: Duration = Duration::from_secs(2);
/// Pause before a reader whose connection broke tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// A page or file that was read.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Read {
    reader: usize,
    took: Duration,
    finished: bool,
}

/// Results of the readers.
struct Diary {
    /// Time after which no load starts.
    until: Instant,
    pages: RefCell<Vec<Read>>,
    files: RefCell<Vec<Read>>,
    /// Start of each reader's current load.
    under_way: Vec<Cell<Option<Instant>>>,
    /// Failures of objects and files.
    broke: RefCell<Vec<HttpError>>,
}

/// Performs one run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Row>, WorkError> {
    let readers = |key| scope.job.whole(key).unwrap_or(5) as usize;
    let (pages, files) = (readers("page-readers"), readers("file-readers"));
    let think = duration(scope.job.grid, "think-time")?.unwrap_or(THINK);
    let deadline = scope.job.planned.deadline;
    let length = duration(scope.job.grid, "length")?.unwrap_or(deadline).min(deadline);
    let (diary, arrivals, began) =
        scope.testbed.client.block_on(async || read(pages, files, think, length).await)?;
    let began = began.into_std();
    let sum = |tally: &Vec<Arrival>| tally.iter().map(|one| one.bytes).sum::<u64>();
    let got: Vec<u64> = arrivals.iter().map(sum).collect();
    let first = arrivals.iter().flatten().filter_map(|one| one.first).min().unwrap_or(began);
    let receiving = (began + length).saturating_duration_since(first);
    let all = 8.0 * got.iter().sum::<u64>() as f64;
    scope.failed = reason(&diary.broke.borrow());
    let mut values = diary.values(pages);
    values.push(Row::of("utilization", per(all, receiving) / scope.scene.rate_bps(false), true));
    values.push(Row::of("jain", jain(got[pages..].iter().map(|&bytes| bytes as f64)), true));
    Ok(values)
}

/// Runs all readers. Returns their results, the data received by each on each of its connections
/// within `length`, and the start time.
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

    /// Reads repeatedly while loads may start, and waits after each.
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

    /// Times of all pages and files, and whether any of them failed. The first `pages` readers are
    /// those of pages.
    fn values(self, pages: usize) -> Vec<Row> {
        let mut lists = [self.pages.into_inner(), self.files.into_inner()];
        for (reader, began) in self.under_way.iter().enumerate() {
            if let Some(began) = began.get() {
                let list = &mut lists[usize::from(reader >= pages)];
                list.push(Read { reader, took: began.elapsed(), finished: false });
            }
        }
        let failed = lists.iter().flatten().any(|read| !read.finished);
        let mut values = vec![Row::of("failed", f64::from(u8::from(failed)), true)];
        for (metric, list) in ["plt", "response-time"].into_iter().zip(lists) {
            values.extend(list.into_iter().map(|read| {
                let Read { reader, took, finished } = read;
                let value = Row::of(metric, took.as_secs_f64(), finished);
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
    let file = async || {
        let mut connection = Connection::open().await?;
        connection.get_counting(FILE_BYTES, &Cell::default(), Some(tally)).await
    };
    diary.keep(reader, Duration::ZERO, &diary.files, file).await;
}

/// Loads the document, then its objects on all connections.
async fn page(tally: &[Cell<Arrival>]) -> Result<(), HttpError> {
    let path = format!("/object/{OBJECT_BYTES}");
    load(&path, std::iter::repeat_n(path.clone(), OBJECTS), tally).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_and_cut_off_transfers_count_as_unfinished() {
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
        assert_eq!(values[0], Row::of("failed", 1.0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_with_damaged_bytes_counts_as_failed() {
        let diary = Diary::new(1, Instant::now() + Duration::from_secs(3600));
        let damaged = || HttpError::Damaged { path: "/object/9".into(), at: 4 };
        let keep = diary.keep(0, THINK, &diary.files, async || Err(damaged()));
        // Until the second file has failed too.
        let _ = timeout(PAUSE + PAUSE / 2, keep).await;
        assert!(reason(&diary.broke.borrow()).unwrap().contains("/object/9 is damaged"));
        let values = diary.values(0);
        let unread = Row::of("response-time", 0.0, false).in_series("0");
        assert_eq!(values, [Row::of("failed", 1.0, true), unread.clone(), unread]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_begins_behind_the_time() {
        let diary = Diary::new(1, Instant::now() - Duration::from_secs(1));
        diary.keep(0, THINK, &diary.pages, async || panic!("begun too late")).await;
        assert_eq!(diary.values(1), [Row::of("failed", 0.0, true)]);
    }
}
