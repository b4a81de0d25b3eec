//! Runs of a preload, on a paused clock.

use bentpipe_net::command_socket::CommandSocketError;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_webcache::{Answer, Cache, Key, OriginError, OriginRequest, Rules};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::counters::Counters;
use crate::request_error::RequestError;

/// Objects at each path, and requests for them.
#[derive(Default)]
struct World {
    answers: Mutex<BTreeMap<String, (u16, String, Bytes)>>,
    /// Paths of the requests; `true` for conditional ones.
    requests: Mutex<Vec<(String, bool)>>,
    delay: Mutex<Duration>,
    is_out: watch::Sender<bool>,
    concurrent: AtomicUsize,
    max_concurrent: AtomicUsize,
}

struct WorldOrigin(Arc<World>);

impl Sources for Arc<World> {
    fn origin(&self, address: &Address) -> Option<Arc<dyn Origin>> {
        let known = address.host() != "nowhere.test";
        known.then(|| Arc::new(WorldOrigin(self.clone())) as Arc<dyn Origin>)
    }

    fn reachable(&self) -> BoxFuture<'_, ()> {
        let mut is_out = self.is_out.subscribe();
        Box::pin(async move {
            is_out.wait_for(|is_out| !is_out).await.unwrap();
        })
    }
}

impl Origin for WorldOrigin {
    fn send(
        &self,
        OriginRequest { request, .. }: OriginRequest,
    ) -> BoxFuture<'static, Result<Answer, OriginError>> {
        let world = self.0.clone();
        Box::pin(async move {
            let conditional = request.headers().get("if-none-match").cloned();
            let path = request.uri().path().to_owned();
            world.requests.lock().unwrap().push((path.clone(), conditional.is_some()));
            let now = world.concurrent.fetch_add(1, SeqCst) + 1;
            world.max_concurrent.fetch_max(now, SeqCst);
            let delay = *world.delay.lock().unwrap();
            sleep(delay).await;
            world.concurrent.fetch_sub(1, SeqCst);
            if *world.is_out.borrow() {
                return Err(OriginError::Offline);
            }
            let answer = world.answers.lock().unwrap().get(&path).cloned();
            let Some((status, fields, body)) = answer else {
                return Err(RequestError::Flow(ResetCode::Refused).into());
            };
            let etag = format!("\"{}\"", body.len());
            let unmodified = conditional.is_some_and(|tag| tag == etag.as_str());
            let (status, body) = match unmodified {
                true => (StatusCode::NOT_MODIFIED, Bytes::new()),
                false => (StatusCode::from_u16(status).unwrap(), body),
            };
            let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
            let mut response = Response::new(body);
            *response.status_mut() = status;
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

/// A preload and its surroundings.
struct Bench {
    world: Arc<World>,
    cache: Cache,
    counters: Arc<Counters>,
    folder: tempfile::TempDir,
    task: JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn start(manifest: &str, change: impl FnOnce(&mut Settings)) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&Default::default(), Rules::default()).unwrap();
    let (world, counters) = (Arc::<World>::default(), Arc::<Counters>::default());
    let mut settings = Settings {
        manifest: folder.path().join("portal.txt"),
        max_bytes_per_run: 1 << 30,
        concurrency: 2,
        sites: Vec::new(),
    };
    change(&mut settings);
    std::fs::write(&settings.manifest, manifest).unwrap();
    let sources = Arc::new(world.clone());
    let preloader = Preloader::new(settings, cache.clone(), sources, counters.clone());
    let socket = PreloadSocket::bind(&folder.path().join("preload.sock")).unwrap();
    let task = tokio::spawn(async move { socket.serve(&preloader).await });
    Bench { world, cache, counters, folder, task }
}

impl Bench {
    fn has(&self, path: &str, body: &str) {
        self.answers(path, 200, "cache-control: max-age=60", body);
    }

    fn answers(&self, path: &str, status: u16, fields: &str, body: &str) {
        let answer = (status, fields.to_owned(), Bytes::from(body.to_owned()));
        self.world.answers.lock().unwrap().insert(path.to_owned(), answer);
    }

    fn requests(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut *self.world.requests.lock().unwrap())
    }

    fn writes(&self, manifest: &str) {
        std::fs::write(self.folder.path().join("portal.txt"), manifest).unwrap();
    }

    /// Connects as the command does.
    async fn command(&self) -> Command {
        let stream = UnixStream::connect(self.folder.path().join("preload.sock")).await.unwrap();
        Command(BufReader::new(stream).lines())
    }

    /// All events of a run.
    async fn run(&self) -> Vec<Event> {
        self.command().await.events().await
    }

    fn pinned(&self) -> Vec<String> {
        let path = |key: Key| key.as_str().split_once(":80").unwrap().1.to_owned();
        self.cache.pinned().into_iter().map(path).collect()
    }
}

/// A running `bentpipe preload`.
struct Command(Lines<BufReader<UnixStream>>);

impl Command {
    /// The next event; `None` at the end of the run.
    async fn event(&mut self) -> Option<Event> {
        let line = self.0.next_line().await.unwrap()?;
        Some(serde_json::from_str(&line).unwrap())
    }

    async fn events(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.event().await {
            events.push(event);
        }
        events
    }
}

/// Results of each attempt at `path`.
fn outcomes(events: &[Event], path: &str) -> Vec<(Outcome, String)> {
    let of_path = |event: &Event| match event {
        Event::Object { url, outcome, why, .. } if url.ends_with(path) => {
            Some((*outcome, why.clone().unwrap_or_default()))
        }
        _ => None,
    };
    events.iter().filter_map(of_path).collect()
}

fn summary(events: &[Event]) -> Summary {
    match events.last() {
        Some(Event::Ended(summary)) => *summary,
        other => panic!("the run did not end: {other:?}"),
    }
}

fn key(path: &str) -> Key {
    Key::new(bentpipe_webcache::Scheme::Http, "a.test", 80, path).unwrap()
}

const MANIFEST: &str = "http://a.test/one\nhttp://a.test/two\n";

#[tokio::test(start_paused = true)]
async fn a_run_fetches_missing_objects_and_confirms_stored_ones() {
    let bench = start(MANIFEST, |_| {});
    bench.has("/one", "1");
    bench.has("/two", "22");
    let events = bench.run().await;
    assert_eq!(summary(&events), Summary { stored: 2, bytes: 3, ..Summary::default() });
    assert_eq!(bench.requests(), [("/one".to_owned(), false), ("/two".to_owned(), false)]);
    assert_eq!(bench.pinned(), ["/one", "/two"]);
    bench.has("/two", "333");
    let events = bench.run().await;
    assert_eq!(bench.requests(), [("/one".to_owned(), true), ("/two".to_owned(), true)]);
    let expected = Summary { stored: 1, confirmed: 1, bytes: 3, ..Summary::default() };
    assert_eq!(summary(&events), expected);
    let counters = [&bench.counters.preload_stored, &bench.counters.preload_confirmed];
    assert_eq!(counters.map(|counter| counter.get()), [3, 1]);
    assert_eq!((bench.counters.preload_bytes.get(), bench.counters.preload_failed.get()), (6, 0));
}

#[tokio::test(start_paused = true)]
async fn one_failure_stops_nothing_and_is_tried_again() {
    let bench = start(
        "http://a.test/private\nhttp://a.test/later\nhttp://a.test/gone\nhttp://a.test/fine\n",
        |_| {},
    );
    bench.answers("/private", 200, "cache-control: private", "x");
    bench.answers("/gone", 404, "", "x");
    bench.answers("/later", 503, "", "x");
    bench.has("/fine", "fine");
    let mut command = bench.command().await;
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(command.event().await.unwrap());
    }
    assert_eq!(bench.pinned(), ["/fine"]);
    bench.requests();
    bench.has("/later", "here now");
    let began = Instant::now();
    events.extend(command.events().await);
    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(bench.requests(), [("/later".to_owned(), false)], "only the failed address");
    let [private, later, gone] =
        ["/private", "/later", "/gone"].map(|path| outcomes(&events, path));
    assert!(private[0].0 == Outcome::Refused && private[0].1.contains("private"), "{private:?}");
    assert_eq!(gone, [(Outcome::Refused, "the origin answers 404 Not Found".to_owned())]);
    assert_eq!(later.iter().map(|it| it.0).collect::<Vec<_>>(), [Outcome::Failed, Outcome::Stored]);
    let expected = Summary { stored: 2, refused: 2, bytes: 13, ..Summary::default() };
    assert_eq!(Summary { bytes: 13, ..summary(&events) }, expected);
    assert_eq!(bench.counters.preload_failed.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_address_gets_six_attempts() {
    let bench = start("http://a.test/refused\nhttp://nowhere.test/\n", |_| {});
    let began = Instant::now();
    let events = bench.run().await;
    assert_eq!(bench.requests().len(), 6);
    assert_eq!(began.elapsed().as_secs(), 60 * (1 + 2 + 4 + 8 + 16));
    assert_eq!(summary(&events).failed, 2);
    assert!(outcomes(&events, "/refused")[5].1.contains("refused the connection"));
    assert!(outcomes(&events, "nowhere.test/")[0].1.contains("cannot be resolved"));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_goes_away_stops_the_run_and_the_next_one_continues() {
    let manifest: String = (0..6).map(|n| format!("http://a.test/{n}\n")).collect();
    let bench = start(&manifest, |_| {});
    (0..6).for_each(|n| bench.has(&format!("/{n}"), "x"));
    *bench.world.delay.lock().unwrap() = Duration::from_secs(600);
    let mut command = bench.command().await;
    for _ in 0..4 {
        command.event().await.unwrap();
    }
    drop(command);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((bench.requests().len(), bench.pinned().len()), (6, 4), "two were in progress");
    let events = bench.run().await;
    let paths: Vec<String> = bench.requests().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/4", "/5", "/0", "/1", "/2", "/3"], "missing objects come first");
    let expected = Summary { stored: 2, confirmed: 4, bytes: 2, ..Summary::default() };
    assert_eq!(summary(&events), expected);
}

#[tokio::test(start_paused = true)]
async fn there_is_one_run_at_a_time_and_its_fetches_are_bounded() {
    let manifest: String = (0..6).map(|n| format!("http://a.test/{n}\n")).collect();
    let bench = start(&manifest, |settings| settings.concurrency = 3);
    (0..6).for_each(|n| bench.has(&format!("/{n}"), "x"));
    *bench.world.delay.lock().unwrap() = Duration::from_secs(600);
    let mut first = bench.command().await;
    first.event().await.unwrap();
    let why = "another run is in progress".to_owned();
    assert_eq!(bench.run().await, [Event::Refused { why }]);
    assert_eq!(summary(&first.events().await).stored, 6);
    assert_eq!(bench.world.max_concurrent.load(SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_run_fetches_no_more_than_its_maximum() {
    let bench = start(MANIFEST, |settings| {
        settings.max_bytes_per_run = 5;
        settings.concurrency = 1;
    });
    bench.has("/one", "123");
    bench.has("/two", "1234");
    let events = bench.run().await;
    assert_eq!(bench.pinned(), ["/one"]);
    let two = outcomes(&events, "/two");
    assert!(two[0].0 == Outcome::Refused && two[0].1.contains("used up"), "{two:?}");
    assert_eq!(summary(&bench.run().await).bytes, 4, "the next run has enough for it");
    assert_eq!(bench.pinned(), ["/one", "/two"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_the_ground() {
    let bench = start(MANIFEST, |_| {});
    bench.has("/one", "1");
    bench.has("/two", "2");
    bench.world.is_out.send_replace(true);
    let command = bench.command().await;
    sleep(Duration::from_secs(7200)).await;
    assert_eq!(bench.requests(), []);
    bench.world.is_out.send_replace(false);
    assert_eq!(summary(&command.events().await).stored, 2);
}

#[tokio::test(start_paused = true)]
async fn objects_that_the_manifest_no_longer_names_are_released() {
    let bench = start(MANIFEST, |_| {});
    bench.has("/one", "1");
    bench.has("/two", "22");
    bench.run().await;
    bench.writes("http://a.test/two\nhttps://a.test/\n");
    let events = bench.run().await;
    assert_eq!(bench.pinned(), ["/two"]);
    let one = bench.cache.holds(&key("/one"), &HeaderMap::new());
    assert!(one, "it stays until other objects need the space");
    let Event::WrongLine { line: 2, why } = &events[0] else { panic!("{events:?}") };
    assert!(why.contains("[[site]]"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn without_a_usable_manifest_stored_objects_stay() {
    let bench = start(MANIFEST, |_| {});
    bench.has("/one", "1");
    bench.has("/two", "2");
    bench.run().await;
    bench.requests();
    for (text, expected) in
        [("", "names nothing"), ("# nothing\nfilms\n", "names nothing"), ("\u{0}", "names nothing")]
    {
        bench.writes(text);
        let events = bench.run().await;
        let [Event::Refused { why }] = &events[..] else { panic!("{events:?}") };
        assert!(why.contains(expected), "{why}");
        assert_eq!((bench.pinned().len(), bench.requests()), (2, vec![]));
    }
    std::fs::remove_file(bench.folder.path().join("portal.txt")).unwrap();
    let events = bench.run().await;
    assert!(matches!(&events[..], [Event::Refused { why }] if why.contains("cannot be read")));
    assert_eq!(bench.pinned().len(), 2);
}

#[tokio::test]
async fn a_socket_that_a_killed_gateway_left_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("preload.sock");
    let left = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let in_use = PreloadSocket::bind(&path).unwrap_err();
    assert!(matches!(in_use, CommandSocketError::InUse { .. }), "{in_use}");
    drop(left);
    drop(PreloadSocket::bind(&path).unwrap());
    assert!(!path.exists());
    let nowhere = PreloadSocket::bind(&path.join("below")).unwrap_err().to_string();
    assert!(nowhere.contains("cannot be made"), "{nowhere}");
    std::fs::write(&path, "a file").unwrap();
    assert!(PreloadSocket::bind(&path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"a file", "a file that is not a socket stays");
}
