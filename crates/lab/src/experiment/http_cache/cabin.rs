//! An hour of a cabin, request by request, on a simulated clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::anyhow;
use bentpipe_units::ByteSize;
use bentpipe_webcache::{
    Answer, Cache, Key, Origin, OriginError, OriginRequest, Outcome, Rules, Scheme, Settings,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Rate of fifty passengers who request one object every 4 s each.
const REQUESTS_PER_SECOND: f64 = 50.0 / 4.0;
/// Length of the simulated time.
const LENGTH: Duration = Duration::from_secs(3600);
/// Number of objects.
const OBJECTS: usize = 2_000;
/// Exponent of the Zipf distribution of requests. Number and exponent are our choice, as are
/// lifetimes and sizes.
const EXPONENT: f64 = 0.8;
/// Freshness lifetimes of objects, in equal shares.
const LIFETIMES_S: [u64; 4] = [60, 600, 3_600, 86_400];
/// Fraction of objects that must not be stored.
const UNCACHEABLE: f64 = 0.3;
/// Sizes of objects in bytes, in equal shares.
const SIZES: [usize; 6] = [1_000, 4_000, 10_000, 25_000, 60_000, 150_000];
/// Start of the hour, since the epoch.
const BEGIN: Duration = Duration::from_secs(1_000_000_000);

/// Results of the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cabin {
    pub requests: u64,
    /// Requests answered without the origin.
    pub hits: u64,
    /// Requests that an ideal cache would answer. It keeps every object while it is fresh.
    pub ideal: u64,
    pub validated: u64,
    pub uncacheable: u64,
    pub bytes: u64,
    pub saved_bytes: u64,
}

#[derive(Clone, Copy)]
struct Object {
    bytes: usize,
    /// Freshness lifetime. `None` if the object must not be stored.
    lifetime: Option<Duration>,
}

/// Origin that has all objects.
struct Web(Vec<Object>);

impl Origin for Web {
    fn send(
        &self,
        OriginRequest { request, .. }: OriginRequest,
    ) -> BoxFuture<'static, Result<Answer, OriginError>> {
        let number: usize = request.uri().path()[1..].parse().unwrap_or_default();
        let object = self.0[number];
        let confirms = request.headers().contains_key(header::IF_NONE_MATCH);
        let body = Bytes::from(vec![0; if confirms { 0 } else { object.bytes }]);
        let mut response =
            Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
        if confirms {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            response.headers_mut().insert(header::CONTENT_LENGTH, object.bytes.into());
        }
        let control = match object.lifetime {
            Some(lifetime) => format!("max-age={}", lifetime.as_secs()),
            None => "no-store".into(),
        };
        // Both values are ASCII.
        if let Ok(control) = HeaderValue::from_str(&control) {
            response.headers_mut().insert(header::CACHE_CONTROL, control);
        }
        response.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"1\""));
        Box::pin(async move { Ok(Answer { response, trusted: true, pushed: false }) })
    }
}

/// Runs the hour.
pub fn run(seed: u64, memory: ByteSize) -> anyhow::Result<Cabin> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let now = Arc::new(AtomicU64::new(0));
    let clock = now.clone();
    let settings = Settings { memory_bytes: memory.bytes(), ..Settings::default() };
    let clock = Arc::new(move || BEGIN + Duration::from_micros(clock.load(Relaxed)));
    let cache = Cache::with_clock(&settings, Rules::default(), clock)?;
    runtime.block_on(hour(&cache, &now, ChaCha8Rng::seed_from_u64(seed)))
}

async fn hour(cache: &Cache, now: &AtomicU64, mut rng: ChaCha8Rng) -> anyhow::Result<Cabin> {
    let objects: Vec<Object> = (0..OBJECTS).map(|_| object(&mut rng)).collect();
    let popular = popularity();
    let origin: Arc<dyn Origin> = Arc::new(Web(objects.clone()));
    let fetched = Mutex::new(HashMap::<usize, Duration>::new());
    let mut cabin = Cabin::default();
    let mut at = Duration::ZERO;
    loop {
        let uniform: f64 = rng.random();
        at += Duration::from_secs_f64(-(1.0 - uniform).ln() / REQUESTS_PER_SECOND);
        if at > LENGTH {
            return Ok(cabin);
        }
        now.store(at.as_micros() as u64, Relaxed);
        let uniform: f64 = rng.random();
        let number = popular.partition_point(|share| *share < uniform).min(OBJECTS - 1);
        let object = objects[number];
        cabin.requests += 1;
        cabin.bytes += object.bytes as u64;
        match object.lifetime {
            None => cabin.uncacheable += 1,
            Some(lifetime) => {
                let mut fetched = fetched.lock();
                let age = fetched.get(&number).map(|then| at - *then);
                // Lifetimes count in whole seconds.
                if age.is_some_and(|age| age.as_secs() < lifetime.as_secs()) {
                    cabin.ideal += 1;
                } else {
                    fetched.insert(number, at);
                }
            }
        }
        let outcome = ask(cache, &origin, number).await?;
        cabin.hits += u64::from(outcome == Outcome::Hit);
        cabin.validated += u64::from(outcome == Outcome::Validated);
        if outcome.saves_bytes() {
            cabin.saved_bytes += object.bytes as u64;
        }
    }
}

async fn ask(cache: &Cache, origin: &Arc<dyn Origin>, number: usize) -> anyhow::Result<Outcome> {
    let path = format!("/{number}");
    let wrong = || anyhow!("the cache failed on {path:?}");
    let key = Key::new(Scheme::Http, "cabin.test", 80, &path).ok_or_else(wrong)?;
    let request = Request::get(path.as_str()).body(()).map_err(|_| wrong())?;
    let served = cache.serve(&key, &request, origin).await;
    let body = served.response.map_err(|_| wrong())?.into_body();
    body.collect().await.map_err(|_| wrong())?;
    // Storing happens in a separate task.
    tokio::task::yield_now().await;
    Ok(served.outcome)
}

fn object(rng: &mut ChaCha8Rng) -> Object {
    let stored = rng.random::<f64>() >= UNCACHEABLE;
    let lifetime = LIFETIMES_S[rng.random_range(0..LIFETIMES_S.len())];
    Object {
        bytes: SIZES[rng.random_range(0..SIZES.len())],
        lifetime: stored.then(|| Duration::from_secs(lifetime)),
    }
}

/// Cumulative distribution of requests over the objects.
fn popularity() -> Vec<f64> {
    let weights = (1..=OBJECTS).map(|rank| (rank as f64).powf(-EXPONENT));
    let mut sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let all = sums.last().copied().unwrap_or(1.0);
    sums.iter_mut().for_each(|sum| *sum /= all);
    sums
}
