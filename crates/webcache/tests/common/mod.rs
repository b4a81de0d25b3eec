//! A cache on a clock that tests move, before an origin that says what tests tell it.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bentpipe_webcache::{
    Answer, Cache, Failure, ForOthers, Key, Origin, OriginBody, Outcome, Rules, Scheme, Served,
    Settings,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc;

/// Sun, 09 Sep 2001 01:46:40 GMT.
pub const NOW: u64 = 1_000_000_000;

/// Next answer of the origin.
pub enum Says {
    Whole(Response<Bytes>),
    /// A head, and then what comes by the channel; its end is the body's.
    Slowly(Response<()>, mpsc::Receiver<Result<Bytes, Failure>>),
    Fails(Failure),
    /// Nothing, for ever.
    Nothing,
    /// The same after it has said that it is for the one who asked alone.
    Alone(Box<Says>),
    /// The same, but nobody may store it.
    Untrusted(Response<Bytes>),
    /// The same, and the ground had sent it already.
    Pushed(Response<Bytes>),
}

#[derive(Default)]
pub struct Fake {
    pub next: Mutex<VecDeque<Says>>,
    pub seen: Mutex<Vec<Request<()>>>,
    /// Since when the way to it is out, and how long it was before.
    pub outage: Mutex<(Option<tokio::time::Instant>, Duration)>,
}

impl Fake {
    pub fn set_out(&self, is_out: bool) {
        let mut outage = self.outage.lock().unwrap();
        let over = outage.0.take().map_or(Duration::ZERO, |since| since.elapsed());
        *outage = (is_out.then(tokio::time::Instant::now), outage.1 + over);
    }
}

impl Origin for Fake {
    fn unheard(&self) -> Duration {
        let (since, over) = *self.outage.lock().unwrap();
        over + since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn send(&self, request: Request<()>) -> BoxFuture<'static, Result<Answer, Failure>> {
        self.seen.lock().unwrap().push(request);
        let mut says = self.next.lock().unwrap().pop_front();
        if let Some(Says::Alone(then)) = says {
            let seen = self.seen.lock().unwrap();
            let others = seen.last().and_then(|request| request.extensions().get::<ForOthers>());
            others.expect("others may wait").release();
            says = Some(*then);
        }
        Box::pin(async move {
            match says {
                Some(Says::Whole(response)) => Ok(answer(response.map(full), true)),
                Some(Says::Untrusted(response)) => Ok(answer(response.map(full), false)),
                Some(Says::Pushed(response)) => {
                    Ok(Answer { pushed: true, ..answer(response.map(full), true) })
                }
                Some(Says::Slowly(response, mut pieces)) => {
                    let stream = futures_util::stream::poll_fn(move |cx| pieces.poll_recv(cx));
                    let frames =
                        futures_util::StreamExt::map(stream, |piece| piece.map(Frame::data));
                    Ok(answer(response.map(|()| StreamBody::new(frames).boxed_unsync()), true))
                }
                Some(Says::Fails(failure)) => Err(failure),
                Some(Says::Nothing) => std::future::pending().await,
                Some(Says::Alone(_)) => unreachable!("it says so once"),
                None => Err(Failure { offline: false, code: 99 }),
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
    pub fake: Arc<Fake>,
    pub origin: Arc<dyn Origin>,
    clock: Arc<AtomicU64>,
}

/// Answer that a client got.
#[derive(Debug)]
pub struct Got {
    pub outcome: Outcome,
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// `Err` where it broke off.
    pub body: Result<Bytes, Failure>,
}

impl Got {
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().unwrap()).unwrap()
    }

    pub fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
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
        // The one before may still be letting go of the directory.
        let cache = (0..6000).find_map(|_| {
            let opened = Cache::with_clock(settings, Rules::default(), now.clone());
            if opened.is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened.ok()
        });
        let cache = cache.expect("the cache opens within 60 s");
        let fake = Arc::new(Fake::default());
        Self { cache, origin: fake.clone(), fake, clock }
    }

    pub fn wait(&self, seconds: i64) {
        let now = self.clock.load(Relaxed) as i64;
        self.clock.store((now + seconds * 1000) as u64, Relaxed);
    }

    pub fn says(&self, says: Says) {
        self.fake.next.lock().unwrap().push_back(says);
    }

    pub fn says_text(&self, fields: &str, body: &'static str) {
        self.says(Says::Whole(response(fields).map(|()| Bytes::from_static(body.as_bytes()))));
    }

    pub fn asked(&self) -> usize {
        self.fake.seen.lock().unwrap().len()
    }

    pub fn last_asked(&self) -> HeaderMap {
        self.fake.seen.lock().unwrap().last().unwrap().headers().clone()
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

/// Fields written `a: b; c: d`, or on lines of their own where values have semicolons.
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

/// A response's head written `404; a: b`, or without a status for 200.
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

/// Many at once: the number of questions is what counts.
pub async fn together(rig: &Arc<Rig>, count: usize) -> Vec<tokio::task::JoinHandle<Got>> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let rig = rig.clone();
            tokio::spawn(async move { rig.get("/", "").await })
        })
        .collect();
    // All of them have begun.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    tasks
}
