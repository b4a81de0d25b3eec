//! Nights of a preload, on a clock that jumps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bentpipe_link::ResetCode;
use bentpipe_webcache::{
    Answer, Cache, Clock, Failure, Key, Moment, Rules, Scheme, Settings as CacheSettings,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{self as http_body, Frame};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, advance, sleep};

use super::*;
use crate::counters::Counters;

/// Noon of a day.
const NOON: Duration = Duration::from_secs(20_000 * 86_400 + 12 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

/// Objects at each path, and requests.
#[derive(Default)]
struct World {
    answers: Mutex<BTreeMap<String, (u16, String, Bytes)>>,
    asked: Mutex<Vec<(String, bool)>>,
    takes: Mutex<Duration>,
    is_out: AtomicBool,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    /// Time of each byte of a body.
    pace: Mutex<Duration>,
    /// Bytes of bodies that were sent.
    sent: Arc<AtomicUsize>,
}

/// A body that comes a byte at a time, and says how long it is.
struct Slow {
    left: Bytes,
    pace: Duration,
    next: Pin<Box<Sleep>>,
    sent: Arc<AtomicUsize>,
}

impl http_body::Body for Slow {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        ready!(self.next.as_mut().poll(cx));
        let at = Instant::now() + self.pace;
        self.next.as_mut().reset(at);
        self.sent.fetch_add(1, SeqCst);
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(1)))))
    }
}

struct Asked(Arc<World>);

impl Sources for Arc<World> {
    fn origin(&self, address: &Address) -> Option<Arc<dyn Origin>> {
        (address.host() != "nowhere.test").then(|| Arc::new(Asked(self.clone())) as Arc<dyn Origin>)
    }

    fn is_reachable(&self) -> bool {
        !self.is_out.load(SeqCst)
    }
}

impl Origin for Asked {
    fn send(&self, request: Request<()>) -> BoxFuture<'static, Result<Answer, Failure>> {
        let world = self.0.clone();
        Box::pin(async move {
            let conditional = request.headers().get("if-none-match").cloned();
            let path = request.uri().path().to_owned();
            world.asked.lock().unwrap().push((path.clone(), conditional.is_some()));
            let now = world.at_once.fetch_add(1, SeqCst) + 1;
            world.most_at_once.fetch_max(now, SeqCst);
            let takes = *world.takes.lock().unwrap();
            sleep(takes).await;
            world.at_once.fetch_sub(1, SeqCst);
            if world.is_out.load(SeqCst) {
                return Err(Failure { offline: true, code: ResetCode::Unreachable.to_u8() });
            }
            let Some((status, fields, body)) = world.answers.lock().unwrap().get(&path).cloned()
            else {
                return Err(Failure { offline: false, code: ResetCode::Refused.to_u8() });
            };
            let etag = format!("\"{}\"", body.len());
            let holds = conditional.is_some_and(|tag| tag == etag.as_str());
            let body = if holds { Bytes::new() } else { body };
            let pace = *world.pace.lock().unwrap();
            let mut response = Response::new(if pace.is_zero() {
                Full::new(body).map_err(|never| match never {}).boxed_unsync()
            } else {
                let (next, sent) = (Box::pin(sleep(pace)), world.sent.clone());
                Slow { left: body, pace, next, sent }.boxed_unsync()
            });
            *response.status_mut() = if holds {
                StatusCode::NOT_MODIFIED
            } else {
                StatusCode::from_u16(status).unwrap()
            };
            let headers = response.headers_mut();
            headers.insert("etag", etag.parse().unwrap());
            for field in fields.split("; ").filter(|field| !field.is_empty()) {
                let (name, value) = field.split_once(": ").unwrap();
                headers.insert(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
            }
            Ok(Answer { response, trusted: true, pushed: false })
        })
    }
}

/// A preload, and what is around it.
struct Night {
    world: Arc<World>,
    cache: Cache,
    counters: Arc<Counters>,
    clock: Clock,
    settings: Settings,
    task: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

fn start(manifest: &str, change: impl FnOnce(&mut Settings)) -> Night {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::write(file("portal.txt"), manifest).unwrap();
    let mut settings = Settings {
        manifest: file("portal.txt"),
        report: file("preload.json"),
        window: Some("02:00-05:00".parse().unwrap()),
        run_bytes: 1 << 30,
        at_once: 2,
        sites: Vec::new(),
    };
    change(&mut settings);
    let began = Instant::now();
    let clock: Clock = Arc::new(move || NOON + began.elapsed());
    let cache =
        Cache::with_clock(&CacheSettings::default(), Rules::default(), clock.clone()).unwrap();
    let (world, counters) = (Arc::<World>::default(), Arc::<Counters>::default());
    let mut night = Night {
        world,
        cache,
        counters,
        clock,
        settings,
        task: tokio::spawn(async {}),
        _folder: folder,
    };
    night.begin();
    night
}

impl Night {
    /// Begins, or begins anew after a stop.
    fn begin(&mut self) {
        self.task.abort();
        let preloader = Preloader::new(
            self.settings.clone(),
            self.cache.clone(),
            Arc::new(self.world.clone()),
            self.clock.clone(),
            self.counters.clone(),
        );
        self.task = tokio::spawn(preloader.keep());
    }

    fn has(&self, path: &str, body: &str) {
        self.answers(path, 200, "cache-control: max-age=60", body);
    }

    fn answers(&self, path: &str, status: u16, fields: &str, body: &str) {
        let answer = (status, fields.to_owned(), Bytes::from(body.to_owned()));
        self.world.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    fn asked(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut *self.world.asked.lock().unwrap())
    }

    fn report(&self) -> Report {
        Report::read(&self.settings.report).unwrap()
    }

    /// Outcome of the address with that path, and the reason.
    fn told(&self, path: &str) -> (Outcome, String) {
        let report = self.report();
        let object = report.objects.iter().find(|object| object.url.ends_with(path)).unwrap();
        (object.state, object.why.clone().unwrap_or_default())
    }

    fn pinned(&self) -> Vec<String> {
        let path = |key: Key| key.as_str().split_once(":80").unwrap().1.to_owned();
        self.cache.pinned().into_iter().map(path).collect()
    }

    /// Waits until that hour of the clock on that day, the first being day 0.
    async fn until(&self, day: u32, hour: f64) {
        let at = NOON - 12 * HOUR + day * 24 * HOUR + HOUR.mul_f64(hour);
        let left = at - (self.clock)();
        sleep(left).await;
    }
}

impl Night {
    /// Waits until the next window has been open for that long, or for that long if one is.
    async fn until_minutes(&self, minutes: f64) {
        let window = self.settings.window.unwrap();
        while window.open_at((self.clock)()).is_none() {
            sleep(Duration::from_secs(1)).await;
        }
        sleep(Duration::from_secs_f64(minutes * 60.0)).await;
    }
}

fn key(path: &str) -> Key {
    Key::new(Scheme::Http, "a.test", 80, path).unwrap()
}

const MANIFEST: &str = "http://a.test/one\nhttp://a.test/two\n";

#[tokio::test(start_paused = true)]
async fn it_fetches_in_its_window_and_confirms_in_the_next() {
    let night = start(MANIFEST, |_| {});
    night.has("/one", "1");
    night.has("/two", "22");
    night.until(1, 1.9).await;
    assert_eq!(night.asked(), [], "it is not time");
    night.until(1, 2.1).await;
    assert_eq!(night.asked(), [("/one".to_owned(), false), ("/two".to_owned(), false)]);
    assert_eq!(night.pinned(), ["/one", "/two"]);
    let report = night.report();
    assert_eq!((report.state, report.bytes), (State::Complete, 3));
    assert_eq!(report.count(Outcome::Stored), 2);
    night.until(2, 1.9).await;
    assert_eq!(night.asked(), [], "once a night");
    night.has("/two", "333");
    night.until(2, 2.1).await;
    assert_eq!(night.asked(), [("/one".to_owned(), true), ("/two".to_owned(), true)]);
    let counted = [&night.counters.preload_stored, &night.counters.preload_confirmed];
    assert_eq!(counted.map(|counter| counter.get()), [3, 1]);
    assert_eq!((night.counters.preload_bytes.get(), night.counters.preload_failed.get()), (6, 0));
    assert_eq!(night.report().bytes, 3);
    assert!(night.cache.is_ahead(&key("/two"), &HeaderMap::new(), (night.clock)() - HOUR));
}

#[tokio::test(start_paused = true)]
async fn what_the_manifest_says_no_more_is_let_go_and_what_is_wrong_in_it_is_told() {
    let night = start(MANIFEST, |_| {});
    night.has("/one", "1");
    night.has("/two", "22");
    night.until(1, 3.0).await;
    let manifest = "http://a.test/two\nhttps://a.test/\nhttp://nowhere.test/\n";
    std::fs::write(&night.settings.manifest, manifest).unwrap();
    night.until(2, 3.0).await;
    assert_eq!(night.pinned(), ["/two"]);
    assert!(
        night.cache.holds(&key("/one"), &HeaderMap::new()),
        "it goes when others want its place"
    );
    let report = night.report();
    assert_eq!(report.wrong_lines[0].line, 2);
    assert!(report.wrong_lines[0].why.contains("[[site]]"), "{report:?}");
    assert!(night.told("nowhere.test/").1.contains("has no address"));
    // Without a manifest nobody can say what may go.
    std::fs::remove_file(&night.settings.manifest).unwrap();
    night.until(3, 3.0).await;
    assert!(night.report().error.unwrap().contains("cannot be read"));
    assert_eq!(night.pinned(), ["/two"]);
}

#[tokio::test(start_paused = true)]
async fn one_failure_stops_nothing_and_is_tried_again() {
    let night = start(
        "http://a.test/private\nhttp://a.test/later\nhttp://a.test/gone\nhttp://a.test/fine\n",
        |_| {},
    );
    night.answers("/private", 200, "cache-control: private", "x");
    night.answers("/gone", 404, "", "x");
    night.answers("/later", 503, "", "x");
    night.has("/fine", "fine");
    night.until(1, 2.01).await;
    assert_eq!(night.pinned(), ["/fine"]);
    assert_eq!(night.told("/private").0, Outcome::Refused);
    assert!(night.told("/private").1.contains("private"), "{:?}", night.told("/private"));
    assert_eq!(
        night.told("/gone"),
        (Outcome::Refused, "the origin answers 404 Not Found".to_owned())
    );
    assert_eq!(night.told("/later").0, Outcome::Failed);
    assert_eq!(night.report().state, State::Running);
    night.asked();
    night.has("/later", "here now");
    night.until(1, 2.1).await;
    assert_eq!(night.asked(), [("/later".to_owned(), false)], "only what failed");
    assert_eq!(night.report().state, State::Complete);
    assert_eq!(night.counters.preload_failed.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_keeps_failing_is_tried_until_the_window_closes() {
    let night = start("http://a.test/refused\n", |_| {});
    night.until(1, 4.9).await;
    let tries = night.asked().len();
    // After 1, 3, 7, 15, 31, 61, 91, 121, 151 minutes.
    assert_eq!(tries, 10);
    night.until(1, 5.1).await;
    assert_eq!(night.report().state, State::OutOfTime);
    assert!(night.told("/refused").1.contains("refused the connection"));
    night.until(1, 23.0).await;
    assert_eq!(night.counters.preload_failed.get(), 1);
    assert_eq!(night.asked().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_loses_only_what_was_under_way() {
    let manifest: String = (0..10).map(|n| format!("http://a.test/{n}\n")).collect();
    let mut night = start(&manifest, |_| {});
    (0..10).for_each(|n| night.has(&format!("/{n}"), "x"));
    *night.world.takes.lock().unwrap() = Duration::from_secs(600);
    night.until(1, 2.55).await;
    let before = night.asked();
    assert_eq!((before.len(), night.pinned().len()), (8, 6), "two at once, each ten minutes");
    night.begin();
    night.until(1, 3.5).await;
    let after: Vec<String> = night.asked().into_iter().map(|(path, _)| path).collect();
    assert_eq!(after, ["/6", "/7", "/8", "/9"]);
    let report = night.report();
    assert_eq!((report.state, night.pinned().len()), (State::Complete, 10));
    let counts = [Outcome::Confirmed, Outcome::Stored].map(|outcome| report.count(outcome));
    assert_eq!((counts, report.bytes), ([6, 4], 10));
    assert_eq!(night.world.most_at_once.load(SeqCst), 4, "two of them were broken off");
}

#[tokio::test(start_paused = true)]
async fn the_window_closes_on_what_is_under_way() {
    let night = start(MANIFEST, |settings| settings.at_once = 1);
    night.has("/one", "1");
    night.has("/two", "2");
    *night.world.takes.lock().unwrap() = 2 * HOUR;
    night.until(1, 5.5).await;
    assert_eq!((night.report().state, night.pinned()), (State::OutOfTime, vec!["/one".to_owned()]));
    assert_eq!(night.told("/two").0, Outcome::Waiting);
    // What is not here comes first in the next.
    night.asked();
    night.until(2, 2.1).await;
    assert_eq!(night.asked(), [("/two".to_owned(), false)]);
}

#[tokio::test(start_paused = true)]
async fn one_run_fetches_no_more_than_it_may() {
    let night = start(MANIFEST, |settings| {
        settings.run_bytes = 5;
        settings.at_once = 1;
    });
    night.has("/one", "123");
    night.has("/two", "1234");
    night.until(1, 3.0).await;
    assert_eq!(night.pinned(), ["/one"]);
    assert_eq!(night.told("/two").0, Outcome::Refused);
    assert!(night.told("/two").1.contains("used up"), "{:?}", night.told("/two"));
    night.until(2, 3.0).await;
    assert_eq!(night.pinned(), ["/one", "/two"], "the next night has enough for it");
    assert_eq!(night.report().bytes, 4);
}

#[tokio::test(start_paused = true)]
async fn what_has_come_of_what_is_under_way_counts_after_a_power_cut() {
    let mut night = start("http://a.test/one\n", |settings| settings.run_bytes = 10);
    night.has("/one", "12345678");
    *night.world.pace.lock().unwrap() = Duration::from_secs(60);
    // Each time four bytes come; the fifth would be one too many of the third time.
    for cut in [4.5, 4.5, 120.0] {
        night.until_minutes(cut).await;
        night.begin();
    }
    assert_eq!(night.world.sent.load(SeqCst), 11, "one more than it may shows that it is too much");
    assert_eq!((night.report().bytes, night.told("/one").0), (11, Outcome::Refused));
    assert_eq!(night.pinned(), [""; 0]);
    // The next night begins anew.
    night.until(2, 3.0).await;
    assert_eq!((night.report().bytes, night.pinned()), (8, vec!["/one".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_asked_for_neither_ends_the_night_nor_gives_it_a_second_budget() {
    let night = start("http://a.test/one\nhttp://a.test/down\n", |settings| settings.run_bytes = 5);
    night.has("/one", "123");
    night.until(1, 2.1).await;
    assert_eq!((night.report().bytes, night.pinned()), (3, vec!["/one".to_owned()]));
    // One is not to be had, and somebody asks meanwhile: that run has a budget of its own.
    night.has("/one", "1234");
    std::fs::write(request_file(&night.settings.report), "").unwrap();
    night.until(1, 2.2).await;
    assert_eq!((night.report().bytes, night.told("/one").0), (4, Outcome::Stored));
    // What is still missing is too much for that one. Then the night goes on: it knows what it has spent.
    night.has("/down", "12");
    night.until(1, 4.0).await;
    assert!(!request_file(&night.settings.report).exists());
    assert_eq!(night.counters.preload_failed.get(), 1, "of 5 bytes 4 were spent");
    let report = night.report();
    assert_eq!((report.state, report.bytes), (State::Complete, 5));
    assert_eq!(night.told("/down").0, Outcome::Stored);
    night.asked();
    night.until(1, 4.9).await;
    assert_eq!(night.asked(), [], "once");
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_cannot_be_used_is_read_again_while_the_window_is_open() {
    let night = start(MANIFEST, |_| {});
    night.has("/one", "1");
    night.has("/two", "2");
    night.until(1, 3.0).await;
    night.asked();
    // One that is being replaced, or was emptied by mistake: what is pinned stays.
    for (day, text) in [(2, None), (3, Some("")), (4, Some("# nothing\nfilms\n"))] {
        match text {
            None => std::fs::remove_file(&night.settings.manifest).unwrap(),
            Some(text) => std::fs::write(&night.settings.manifest, text).unwrap(),
        }
        night.until(day, 2.5).await;
        let report = night.report();
        assert_eq!(report.state, State::Running);
        let why = report.error.unwrap();
        assert!(why.contains("cannot be read") || why.contains("names nothing"), "{why}");
        assert_eq!((night.pinned().len(), night.asked()), (2, vec![]), "{day}");
        std::fs::write(&night.settings.manifest, MANIFEST).unwrap();
        night.until(day, 2.6).await;
        let report = night.report();
        assert_eq!((report.state, report.error), (State::Complete, None), "{day}");
        assert_eq!(night.asked().len(), 2, "each was confirmed");
    }
    // One that stays so is told when the window closes, and at once to who asks.
    std::fs::write(&night.settings.manifest, "").unwrap();
    night.until(5, 5.1).await;
    assert_eq!(night.report().state, State::OutOfTime);
    std::fs::write(request_file(&night.settings.report), "").unwrap();
    night.until(5, 5.2).await;
    let report = night.report();
    assert!(report.state == State::Complete && report.error.unwrap().contains("names nothing"));
    assert!(!request_file(&night.settings.report).exists());
    assert_eq!(night.pinned().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_the_ground_it_waits() {
    let night = start(MANIFEST, |_| {});
    night.has("/one", "1");
    night.has("/two", "2");
    night.world.is_out.store(true, SeqCst);
    night.until(1, 4.0).await;
    assert_eq!(night.asked(), []);
    night.world.is_out.store(false, SeqCst);
    night.until(1, 4.1).await;
    assert_eq!((night.asked().len(), night.pinned().len()), (2, 2));
    assert_eq!(night.counters.preload_failed.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_can_be_asked_for_at_any_time_and_goes_on_after_a_stop() {
    let mut night = start(MANIFEST, |settings| settings.window = None);
    night.has("/one", "1");
    night.has("/two", "2");
    *night.world.takes.lock().unwrap() = HOUR;
    night.settings.at_once = 1;
    night.begin();
    night.until(1, 3.0).await;
    assert_eq!(night.asked(), [], "there is no window");
    let request = request_file(&night.settings.report);
    std::fs::write(&request, "").unwrap();
    night.until(1, 4.5).await;
    assert_eq!((night.asked().len(), night.pinned()), (2, vec!["/one".to_owned()]));
    night.begin();
    night.until(1, 6.0).await;
    assert_eq!(night.asked(), [("/two".to_owned(), false)]);
    assert_eq!(night.report().state, State::Complete);
    assert!(!request.exists(), "it is done");
    night.until(2, 6.0).await;
    assert_eq!(night.asked(), []);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_does_no_harm() {
    let mut night = start(MANIFEST, |_| {});
    night.has("/one", "1");
    night.has("/two", "2");
    night.until(1, 3.0).await;
    night.asked();
    // Some aircraft begin in 1970 and are told the time later.
    let began = Instant::now();
    night.clock = Arc::new(move || -> Moment { began.elapsed() });
    night.begin();
    advance(Duration::from_secs(60)).await;
    sleep(3 * HOUR).await;
    assert_eq!(night.asked(), [], "all came later than this window began");
    assert_eq!(night.pinned().len(), 2);
}
