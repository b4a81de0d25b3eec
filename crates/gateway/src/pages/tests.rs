use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bentpipe_link::ResetCode;
use bentpipe_prefetch::address::{Address, Origin};
use bentpipe_prefetch::plan::{Limits, Rules};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::*;
use crate::counters::Counters;

const KEEP: Duration = Duration::from_secs(30);
const ALICE: u32 = 1;

type Fields = Vec<(&'static str, &'static str)>;

/// An origin in memory: what it has, and what it was asked for.
#[derive(Default)]
struct Site {
    objects: BTreeMap<String, (Fields, Bytes)>,
    asked: Mutex<Vec<String>>,
    connections: Mutex<usize>,
}

impl Site {
    fn with(mut self, path: &str, headers: &[(&'static str, &'static str)], body: &str) -> Self {
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.objects.insert(path.to_owned(), (headers.to_vec(), body));
        self
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let headers = request.headers();
        assert_eq!(headers[header::ACCEPT_ENCODING], "identity");
        assert!(!headers.contains_key(header::COOKIE));
        let path = request.uri().to_string();
        self.asked.lock().unwrap().push(path.clone());
        let Some((headers, body)) = self.objects.get(&path) else {
            return Response::builder().status(404).body(Full::default()).unwrap();
        };
        let mut response = Response::new(Full::new(body.clone()));
        for (name, value) in headers {
            let value = HeaderValue::from_static(value);
            response.headers_mut().append(HeaderName::from_static(name), value);
        }
        response
    }
}

struct Net(Arc<Site>);

impl Origins for Net {
    fn connect(&self, origin: &Origin) -> BoxFuture<'_, Result<Box<dyn Connection>, ResetCode>> {
        if origin.host != "site.test" {
            return Box::pin(std::future::ready(Err(ResetCode::NameNotFound)));
        }
        let (ours, theirs) = tokio::io::duplex(8 << 10);
        *self.0.connections.lock().unwrap() += 1;
        let site = self.0.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let answer = site.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let server = hyper::server::conn::http1::Builder::new();
            let _ = server.serve_connection(TokioIo::new(theirs), answer).await;
        });
        Box::pin(std::future::ready(Ok(Box::new(ours) as Box<dyn Connection>)))
    }
}

struct Bench {
    air: Arc<AirPages>,
    ground: Arc<GroundPages>,
    site: Arc<Site>,
    at_air: Arc<Counters>,
}

fn bench(site: Site) -> Bench {
    let at_air = Arc::<Counters>::default();
    let settings = AirSettings {
        waste_share: 0.15,
        page_bytes: 8_000_000,
        memory_bytes: 64 << 20,
        keep: KEEP,
        patience: Duration::from_secs(10),
    };
    let air = AirPages::new(settings, at_air.clone());
    let settings = GroundSettings { limits: Limits::default(), rules: Rules::default(), pages: 4 };
    let ground = Arc::new(GroundPages::new(settings, Arc::default()));
    Bench { air, ground, site: Arc::new(site), at_air }
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    lines.iter().map(pair).collect()
}

fn browsers() -> HeaderMap {
    headers(&[("accept", "text/html,*/*;q=0.8"), ("user-agent", "test")])
}

fn url(path: &str) -> Address {
    Address::parse("http://site.test/").unwrap().join(path).unwrap()
}

async fn whole(
    mut body: impl Stream<Item = Result<Bytes, PromiseBroken>> + Unpin,
) -> Option<Bytes> {
    let mut all = BytesMut::new();
    while let Some(bytes) = body.next().await {
        all.extend_from_slice(&bytes.ok()?);
    }
    Some(all.freeze())
}

impl Bench {
    /// Asks for a page for [`ALICE`]; its head and bytes, if the ground gave them.
    async fn page(&self, path: &str) -> Option<(StatusCode, PageBody)> {
        let mut page = self.air.ask_for(ALICE, url(path), &browsers(), []).unwrap();
        let (near, far) = tokio::io::duplex(64 << 10);
        let (ground, net) = (self.ground.clone(), Net(self.site.clone()));
        tokio::spawn(async move { ground.serve(&net, far).await });
        tokio::spawn(page.carry(near));
        let (head, body) = page.answer().await?;
        Some((head.status, body))
    }

    /// What a GET of the object is given, if it was promised.
    async fn object(&self, path: &str) -> Option<Result<Bytes, PromiseBroken>> {
        let object = self.air.promised(ALICE, &url(path), Some("site.test"))?;
        if let Err(broken) = object.head(self.air.patience()).await {
            return Some(Err(broken));
        }
        Some(whole(object.body()).await.ok_or(PromiseBroken))
    }
}

const CSS: &[(&str, &str)] = &[("content-type", "text/css")];
const HTML: &[(&str, &str)] = &[("content-type", "text/html; charset=utf-8")];

fn three_levels() -> Site {
    let page =
        "<link rel=stylesheet href=a.css><script src=s.js></script><img src=i.png>".repeat(2);
    Site::default()
        .with("/page", HTML, &page)
        .with("/a.css", CSS, "@import 'b.css'; a { background: url(bg.png) }")
        .with("/b.css", CSS, "@font-face { src: url(f.woff2) }")
        .with("/f.woff2", &[], &"font".repeat(10_000))
        .with("/bg.png", &[], "bg")
        .with("/s.js", &[("cache-control", "max-age=60")], "script")
        .with("/i.png", &[], &"image".repeat(100_000))
}

#[tokio::test(start_paused = true)]
async fn a_page_brings_all_that_it_will_ask_for() {
    let bench = bench(three_levels());
    let (status, body) = bench.page("page").await.unwrap();
    assert_eq!(status, 200);
    let page = whole(body).await.unwrap();
    assert_eq!(page, bench.site.objects["/page"].1);
    // As a browser asks: what it reads in the page, then what it reads in that.
    for path in ["a.css", "s.js", "i.png", "b.css", "bg.png", "f.woff2"] {
        let expected = &bench.site.objects[&format!("/{path}")].1;
        assert_eq!(bench.object(path).await, Some(Ok(expected.clone())), "{path}");
    }
    let mut asked = bench.site.asked();
    assert_eq!(asked[0], "/page");
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 7, "each once: {asked:?}");
    assert!(*bench.site.connections.lock().unwrap() <= 7);
    assert_eq!(bench.object("unknown.png").await, None);
    tokio::time::sleep(2 * KEEP).await;
    let counted = [&bench.at_air.objects_used, &bench.at_air.objects_unused];
    assert_eq!(counted.map(|count| count.get()), [6, 0]);
    assert_eq!(bench.at_air.not_foreseen.get(), 1);
    assert_eq!(bench.object("i.png").await, None, "it is held for a while only");
    assert_eq!(bench.air.held_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_somebodys_own_stays_at_the_ground() {
    let page = "<img src=private.png><img src=cookie.png><img src=missing.png>\
                <img src=http://elsewhere.test/x.png><img src=good.png>";
    let site = Site::default()
        .with("/", HTML, page)
        .with("/private.png", &[("cache-control", "private")], "x")
        .with("/cookie.png", &[("set-cookie", "a=b")], "x")
        .with("/good.png", &[("cache-control", "public")], "x");
    let bench = bench(site);
    let (_, body) = bench.page("/").await.unwrap();
    whole(body).await.unwrap();
    for path in ["private.png", "cookie.png", "missing.png", "http://elsewhere.test/x.png"] {
        // The promise is broken, or is gone by the time of the request.
        let object = bench.object(path).await;
        assert!(matches!(object, None | Some(Err(PromiseBroken))), "{path}");
    }
    assert_eq!(bench.object("good.png").await, Some(Ok("x".into())));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_its_origin_does_not_give_is_asked_for_as_ever() {
    let bench = bench(Site::default());
    assert!(bench.page("http://elsewhere.test/").await.is_none());
    let (status, _) = bench.page("/").await.unwrap();
    assert_eq!(status, 404, "an error is an answer");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_its_origin_wants_left_alone_is_passed_on_and_not_read() {
    let headers = &[("content-type", "text/html"), ("cache-control", "no-transform")];
    let bench =
        bench(Site::default().with("/", headers, "<img src=a.png>").with("/a.png", &[], "x"));
    let (_, body) = bench.page("/").await.unwrap();
    assert_eq!(whole(body).await.unwrap(), "<img src=a.png>");
    assert_eq!(bench.site.asked(), ["/"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_pushed_in_vain_is_not_pushed_again() {
    let bench = bench(three_levels());
    let mut pushed = Vec::new();
    for _ in 0..20 {
        let (_, body) = bench.page("page").await.unwrap();
        whole(body).await.unwrap();
        tokio::time::sleep(2 * KEEP).await;
        pushed.push(bench.at_air.wasted_bytes.get());
    }
    assert!(pushed[0] > 500_000, "nobody asked for it");
    assert_eq!(pushed[19], pushed[5], "and so no more of it came");
    assert!(pushed[19] < 2_600_000, "{pushed:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_cabin_holds_already_is_not_sent_again() {
    let bench = bench(three_levels());
    for _ in 0..2 {
        let (_, body) = bench.page("page").await.unwrap();
        whole(body).await.unwrap();
        assert!(bench.object("i.png").await.unwrap().is_ok());
    }
    let asked = bench.site.asked();
    assert_eq!(asked.iter().filter(|path| *path == "/i.png").count(), 1, "{asked:?}");
    assert_eq!(asked.iter().filter(|path| *path == "/page").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_passenger_that_has_gone_leaves_nothing() {
    let bench = bench(three_levels().with("/long", HTML, &"<img src=i.png>".repeat(1_000_000)));
    let (_, mut body) = bench.page("long").await.unwrap();
    assert!(body.next().await.unwrap().is_ok());
    drop(body);
    tokio::time::sleep(2 * KEEP).await;
    assert_eq!(bench.object("i.png").await, None);
    assert_eq!(bench.air.held_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_breaks_breaks_the_promises_and_no_more() {
    let bench = bench(three_levels());
    let mut page = bench.air.ask_for(ALICE, url("page"), &browsers(), []).unwrap();
    let (near, far) = tokio::io::duplex(64);
    tokio::spawn(page.carry(near));
    drop(far);
    assert!(page.answer().await.is_none());
    let unasked = bench.air.ask_for(ALICE, url("page"), &browsers(), []).unwrap();
    let began = Instant::now();
    assert!(unasked.answer().await.is_none(), "without a carrier nothing comes");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[test]
fn only_what_anybody_could_ask_for_is_a_page() {
    let is = |method: Method, more: &[(&'static str, &'static str)]| {
        let mut all = browsers();
        all.extend(headers(more));
        is_page(&method, &all)
    };
    assert!(is(Method::GET, &[]));
    assert!(is(Method::GET, &[("sec-fetch-dest", "document")]));
    assert!(!is(Method::POST, &[]) && !is(Method::HEAD, &[]));
    for other in [
        ("cookie", "a=b"),
        ("authorization", "Basic x"),
        ("range", "bytes=0-"),
        ("if-none-match", "\"x\""),
        ("sec-fetch-dest", "image"),
    ] {
        assert!(!is(Method::GET, &[other]), "{other:?}");
    }
    assert!(!is_page(&Method::GET, &headers(&[("accept", "*/*")])));
    assert!(is_object(&Method::GET, &headers(&[("accept", "*/*")])));
}
