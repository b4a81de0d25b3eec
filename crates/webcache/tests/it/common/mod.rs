//! A cache on a clock that tests move, in front of an origin that replies as tests say.

pub mod disk;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bentpipe_webcache::{
    Answer, Cache, Key, Origin, OriginBody, OriginError, OriginRequest, Outcome, Rules, Scheme,
    Served, Settings,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Sun, 09 Sep 2001 01:46:40 GMT.
pub const NOW: u64 = 1_000_000_000;

/// Next reply of the origin.
pub enum Reply {
    Whole(Response<Bytes>),
    /// A header, and a body from the channel.
    Slow(Response<()>, mpsc::Receiver<Result<Bytes, OriginError>>),
    Error(OriginError),
    /// No reply at all.
    Never,
    /// A reply for this client alone: the followers are released first.
    NotShared(Box<Reply>),
    /// A reply that is not trusted.
    Untrusted(Response<Bytes>),
    /// A reply that was pushed.
    Pushed(Response<Bytes>),
}

#[derive(Default)]
pub struct FakeOrigin {
    pub next: Mutex<VecDeque<Reply>>,
    pub seen: Mutex<Vec<OriginRequest>>,
    /// Start of the present outage of the path, and total length of earlier ones.
    pub outage: Mutex<(Option<tokio::time::Instant>, Duration)>,
}

impl FakeOrigin {
    pub fn set_out(&self, is_out: bool) {
        let mut outage = self.outage.lock();
        let over = outage.0.take().map_or(Duration::ZERO, |since| since.elapsed());
        *outage = (is_out.then(tokio::time::Instant::now), outage.1 + over);
    }
}

impl Origin for FakeOrigin {
    fn outage_time(&self) -> Duration {
        let (since, over) = *self.outage.lock();
        over + since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn send(&self, request: OriginRequest) -> BoxFuture<'static, Result<Answer, OriginError>> {
        self.seen.lock().push(request);
        let mut reply = self.next.lock().pop_front();
        if let Some(Reply::NotShared(then)) = reply {
            let seen = self.seen.lock();
            let others = seen.last().and_then(|request| request.others.as_ref());
            others.expect("others may wait").release();
            reply = Some(*then);
        }
        Box::pin(async move {
            match reply {
                Some(Reply::Whole(response)) => Ok(answer(response.map(full), true)),
                Some(Reply::Untrusted(response)) => Ok(answer(response.map(full), false)),
                Some(Reply::Pushed(response)) => {
                    Ok(Answer { pushed: true, ..answer(response.map(full), true) })
                }
                Some(Reply::Slow(response, mut pieces)) => {
                    let stream = futures_util::stream::poll_fn(move |cx| pieces.poll_recv(cx));
                    let frames =
                        futures_util::StreamExt::map(stream, |piece| piece.map(Frame::data));
                    Ok(answer(response.map(|()| StreamBody::new(frames).boxed_unsync()), true))
                }
                Some(Reply::Error(failure)) => Err(failure),
                Some(Reply::Never) => std::future::pending().await,
                Some(Reply::NotShared(_)) => unreachable!("it says so once"),
                None => Err(refused(99)),
            }
        })
    }
}

fn full(body: Bytes) -> OriginBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

fn answer(response: Response<OriginBody>, trusted: bool) -> Answer {
    Answer { response, trusted, pushed: false }
}

pub struct Rig {
    pub cache: Cache,
    pub fake: Arc<FakeOrigin>,
    pub origin: Arc<dyn Origin>,
    clock: Arc<AtomicU64>,
}

/// Response as a client received it.
#[derive(Debug)]
pub struct Got {
    pub outcome: Outcome,
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// `Err` if the body broke off.
    pub body: Result<Bytes, OriginError>,
}

impl Got {
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().unwrap()).unwrap()
    }

    pub fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Error of the fake origin, identified by its number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused with code {0}")]
pub struct Refused(pub u8);

pub fn refused(code: u8) -> OriginError {
    OriginError::new(Refused(code))
}

/// Number of a fake origin's error.
pub fn code(error: &OriginError) -> Option<u8> {
    error.downcast_ref().map(|Refused(code)| *code)
}

impl Rig {
    pub fn new() -> Self {
        Self::with(&Settings::default())
    }

    pub fn on_disk(directory: &Path) -> Self {
        Self::with(&Settings { directory: Some(directory.to_owned()), ..Settings::default() })
    }

    pub fn with(settings: &Settings) -> Self {
        let clock = Arc::new(AtomicU64::new(NOW * 1000));
        let read = clock.clone();
        let now: bentpipe_webcache::Clock =
            Arc::new(move || Duration::from_millis(read.load(Relaxed)));
        // An earlier cache may still hold the directory's lock.
        let cache = (0..6000).find_map(|_| {
            let opened = Cache::with_clock(settings, Rules::default(), now.clone());
            if opened.is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened.ok()
        });
        let cache = cache.expect("the cache opens within 60 s");
        let fake = Arc::new(FakeOrigin::default());
        Self { cache, origin: fake.clone(), fake, clock }
    }

    pub fn wait(&self, seconds: i64) {
        let now = self.clock.load(Relaxed) as i64;
        self.clock.store((now + seconds * 1000) as u64, Relaxed);
    }

    pub fn reply(&self, reply: Reply) {
        self.fake.next.lock().push_back(reply);
    }

    pub fn reply_text(&self, fields: &str, body: &'static str) {
        self.reply(Reply::Whole(response(fields).map(|()| Bytes::from_static(body.as_bytes()))));
    }

    pub fn requests(&self) -> usize {
        self.fake.seen.lock().len()
    }

    pub fn last_request(&self) -> HeaderMap {
        self.fake.seen.lock().last().unwrap().request.headers().clone()
    }

    pub async fn serve(&self, path: &str, fields: &str) -> Served {
        self.serve_method(Method::GET, path, fields).await
    }

    pub async fn serve_method(&self, method: Method, path: &str, fields: &str) -> Served {
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        *request.headers_mut() = headers(fields);
        self.cache.serve(&key(path), &request, &self.origin).await
    }

    pub async fn get(&self, path: &str, fields: &str) -> Got {
        got(self.serve(path, fields).await).await
    }
}

pub async fn got(served: Served) -> Got {
    let outcome = served.outcome;
    match served.response {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            Got { outcome, status: parts.status, headers: parts.headers, body }
        }
        Err(failure) => Got {
            outcome,
            status: StatusCode::BAD_GATEWAY,
            headers: HeaderMap::new(),
            body: Err(failure),
        },
    }
}

pub fn key(path: &str) -> Key {
    Key::new(Scheme::Http, "example.net", 80, path).unwrap()
}

/// Parses fields written as `a: b; c: d`, or one per line if values contain semicolons.
pub fn headers(text: &str) -> HeaderMap {
    let separator = if text.contains('\n') { "\n" } else { "; " };
    let mut map = HeaderMap::new();
    for line in text.split(separator).filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let name: HeaderName = name.trim().parse().unwrap();
        map.append(name, HeaderValue::from_bytes(value.trim().as_bytes()).unwrap());
    }
    map
}

/// Parses a response header written as `404; a: b`. Without a status it is 200.
pub fn response(text: &str) -> Response<()> {
    let (status, fields) = match text.get(..3).and_then(|status| status.parse().ok()) {
        Some(status) => (status, text[3..].trim_start_matches("; ")),
        None => (200, text),
    };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    *response.headers_mut() = headers(fields);
    response
}

/// Sends many GET requests at the same time.
pub async fn together(rig: &Arc<Rig>, count: usize) -> Vec<tokio::task::JoinHandle<Got>> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let rig = rig.clone();
            tokio::spawn(async move { rig.get("/", "").await })
        })
        .collect();
    // All requests have started.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    tasks
}
