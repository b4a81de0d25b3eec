use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_prefetch::address::{Address, Origin};
use bentpipe_prefetch::plan::{Limits, NameList, Promise, Rules};
use bentpipe_prefetch::scan::Urgency;
use bentpipe_prefetch::wire::{End, Frame as Said, Head, PAGE, Packer};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt, stream};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use super::negative_cache::BUSY_FOR;
use super::object::{ONCE_WITHIN, Object, PageFacts};
use super::*;
use crate::counters::Counters;
use crate::refusals::Limit;

mod breaks;
mod cookies;
mod downloads;
mod held;
mod modules;
mod refusals;
mod whose;

const KEEP: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(7440);
/// Delay of the origin before the end of its answer at "/slow".
const SLOW: Duration = Duration::from_secs(3600);
const ALICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const BOB: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

type Fields = Vec<(&'static str, &'static str)>;

/// An in-memory origin: its content and the requests it received.
#[derive(Default)]
struct Site {
    objects: BTreeMap<String, (Fields, Bytes)>,
    asked: Mutex<Vec<String>>,
    /// Urgency and referrer of the requests.
    priorities: Mutex<BTreeMap<String, String>>,
    referers: Mutex<Vec<(String, String)>>,
    connections: Mutex<usize>,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Site {
    fn with(mut self, path: &str, headers: &[(&'static str, &'static str)], body: &str) -> Self {
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.objects.insert(path.to_owned(), (headers.to_vec(), body));
        self
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let headers = request.headers();
        assert_eq!(headers[header::ACCEPT_ENCODING], "identity");
        assert!(!headers.contains_key(header::COOKIE));
        let path = request.uri().to_string();
        self.asked.lock().push(path.clone());
        if let Some(said) = headers.get("priority") {
            let said = said.to_str().unwrap().to_owned();
            self.priorities.lock().insert(path.clone(), said);
        }
        if let Some(said) = headers.get(header::REFERER) {
            let said = said.to_str().unwrap().to_owned();
            self.referers.lock().push((path.clone(), said));
        }
        let Some((headers, body)) = self.objects.get(&path) else {
            return Response::builder().status(404).body(Full::default().boxed_unsync()).unwrap();
        };
        let body = if path == "/endless" {
            // Random letters that compress badly.
            let mut state = 1_u32;
            let mut letter = move || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                b'a' + (state >> 24) as u8 % 26
            };
            let mut part =
                move || Bytes::from_iter(std::iter::repeat_with(&mut letter).take(64 << 10));
            StreamBody::new(stream::repeat_with(move || Ok(Frame::data(part())))).boxed_unsync()
        } else if path == "/slow" {
            let last = stream::once(async {
                tokio::time::sleep(SLOW).await;
                Bytes::from_static(b"end")
            });
            let parts = stream::iter([Bytes::from_static(b"begin")]).chain(last);
            StreamBody::new(parts.map(|part| Ok(Frame::data(part))).boxed()).boxed_unsync()
        } else {
            Full::new(body.clone()).boxed_unsync()
        };
        let mut response = Response::new(body);
        for (name, value) in headers {
            if *name == "location" {
                *response.status_mut() = StatusCode::FOUND;
            }
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
        *self.0.connections.lock() += 1;
        let site = self.0.clone();
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let (answer, path) = (site.answer(&request), request.uri().path().to_owned());
                async move {
                    match &path[..] {
                        "/hang" => std::future::pending().await,
                        // Closes the connection instead of answering.
                        "/cut" => Err(std::io::Error::other("no answer")),
                        _ => Ok(answer),
                    }
                }
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
    bench_with(site, |_| {}, |_| {})
}

/// With settings modified by `air` and `ground`.
fn bench_with(
    site: Site,
    air: impl FnOnce(&mut AirSettings),
    ground: impl FnOnce(&mut GroundSettings),
) -> Bench {
    let at_air = Arc::<Counters>::default();
    let mut settings = AirSettings {
        waste_share: 0.15,
        page_bytes: 8_000_000,
        memory_bytes: 64 << 20,
        keep: KEEP,
        patience: Duration::from_secs(10),
        idle: IDLE,
    };
    air(&mut settings);
    let air = AirPages::new(settings, at_air.clone());
    let mut settings = GroundSettings {
        limits: Limits::default(),
        rules: Rules::default(),
        pages: 4,
        per_aircraft: 4,
        longest: Duration::from_secs(180),
        idle: IDLE,
    };
    ground(&mut settings);
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
    /// Requests a page for [`ALICE`]; returns its header and body if the ground gateway served it.
    async fn page(&self, path: &str) -> Option<(StatusCode, PageBody)> {
        self.page_with(path, &browsers()).await
    }

    async fn page_with(&self, path: &str, headers: &HeaderMap) -> Option<(StatusCode, PageBody)> {
        let mut page = self.air.ask_for(ALICE, url(path), headers, []).unwrap();
        let (near, connector) = tokio::io::duplex(64 << 10);
        let (ground, net) = (self.ground.clone(), Net(self.site.clone()));
        tokio::spawn(async move { ground.serve(&net, "D-ABCD", connector).await });
        tokio::spawn(page.carry(near));
        let (head, body) = page.answer().await?;
        Some((head.status, body))
    }

    /// Response to a GET of the object, if it was promised: its age and its bytes.
    async fn given(&self, path: &str, headers: &HeaderMap) -> Option<(u64, Bytes)> {
        let (head, body) = self.air.object(ALICE, &url(path), headers).await?;
        let age = head.headers[header::AGE].to_str().unwrap().parse().unwrap();
        Some((age, whole(body).await?))
    }

    async fn object(&self, path: &str) -> Option<Bytes> {
        Some(self.given(path, &browsers()).await?.1)
    }

    /// Counters of the air gateway: promised, used, unused, declined, cancelled.
    fn fates(&self) -> [u64; 5] {
        let Counters { objects_promised, objects_used, objects_unused, .. } = &*self.at_air;
        let Counters { objects_declined, objects_cancelled, .. } = &*self.at_air;
        [objects_promised, objects_used, objects_unused, objects_declined, objects_cancelled]
            .map(|count| count.get())
    }

    /// Requests a page for Alice from a peer that speaks on the returned stream.
    fn page_of_a_stranger(&self) -> DuplexStream {
        let mut page = self.air.ask_for(ALICE, url("page"), &browsers(), []).unwrap();
        let (near, connector) = tokio::io::duplex(64 << 10);
        tokio::spawn(page.carry(near));
        // The page is read, but not to its end.
        tokio::spawn(async move {
            let _page = page.answer().await;
            tokio::time::sleep(KEEP).await;
        });
        connector
    }
}

/// Sends `frames` as a ground gateway, and keeps the stream open.
async fn say(stream: &mut DuplexStream, frames: Vec<Said>) {
    let (mut plain, mut packed) = (Vec::new(), Vec::new());
    frames.iter().for_each(|frame| frame.put(&mut plain));
    Packer::new().unwrap().pack(&plain, true, &mut packed).unwrap();
    stream.write_all(&packed).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn head(fields: &[(&'static str, &'static str)]) -> Box<Head> {
    Box::new(Head::of(StatusCode::OK, &headers(fields)).unwrap())
}

fn promised(id: u16, path: &str) -> Said {
    Said::Promise(Promise { id, address: url(path), urgency: Urgency::PAGE })
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
    // In a browser's order: references in the page, then references in those objects.
    for path in ["a.css", "s.js", "i.png", "b.css", "bg.png", "f.woff2"] {
        let expected = &bench.site.objects[&format!("/{path}")].1;
        assert_eq!(bench.object(path).await.as_ref(), Some(expected), "{path}");
    }
    let mut asked = bench.site.asked();
    assert_eq!(asked[0], "/page");
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 7, "each once: {asked:?}");
    assert!(*bench.site.connections.lock() <= 7);
    assert_eq!(bench.object("unknown.png").await, None);
    tokio::time::sleep(2 * KEEP).await;
    let counted = [&bench.at_air.objects_used, &bench.at_air.objects_unused];
    assert_eq!(counted.map(|count| count.get()), [6, 0]);
    assert_eq!(bench.at_air.not_foreseen.get(), 1);
    assert_eq!(bench.object("i.png").await, None, "it is held for a while only");
    assert_eq!(bench.fates(), [6, 6, 0, 0, 0]);
    assert_eq!(bench.air.held_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn used_pushes_of_one_page_do_not_reduce_the_next_budget() {
    const IMAGE_BYTES: usize = 500_000;
    let images = |page| (0..5).map(move |image| format!("/{page}-{image}.png"));
    let mut site = Site::default();
    for page in 0..6 {
        let tags: String = images(page).map(|image| format!("<img src={image}>")).collect();
        site = site.with(&format!("/page{page}"), HTML, &tags);
        for image in images(page) {
            site = site.with(&image, &[], &"x".repeat(IMAGE_BYTES));
        }
    }
    let bench = bench(site);
    for page in 0..6 {
        let (_, body) = bench.page(&format!("page{page}")).await.unwrap();
        whole(body).await.unwrap();
        for image in images(page) {
            let bytes = bench.object(&image).await.map(|bytes| bytes.len());
            assert_eq!(bytes, Some(IMAGE_BYTES), "{image}");
        }
    }
    tokio::time::sleep(2 * KEEP).await;
    assert_eq!(bench.fates(), [30, 30, 0, 0, 0]);
    let counted = [&bench.at_air.pushed_bytes, &bench.at_air.wasted_bytes];
    let [pushed, wasted] = counted.map(|count| count.get());
    assert!((15_000_000..15_010_000).contains(&pushed) && wasted == 0, "{pushed}, {wasted}");
}

#[tokio::test(start_paused = true)]
async fn headers_count_towards_memory() {
    let bench = bench_with(Site::default(), |air| air.memory_bytes = 20_000, |_| {});
    let mut ground = bench.page_of_a_stranger();
    let long: &'static str = "x".repeat(9_000).leak();
    let mut all = vec![Said::Head(PAGE, head(HTML))];
    for id in 1..=4 {
        all.push(promised(id, &format!("{id}.png")));
        all.push(Said::Head(id, head(&[("x-long", long)])));
        all.push(Said::End(id, End::Complete));
    }
    say(&mut ground, all).await;
    assert!(bench.air.held_bytes.load(std::sync::atomic::Ordering::Relaxed) < 20_000);
    assert_eq!(bench.object("2.png").await, Some(Bytes::new()));
    assert_eq!(bench.object("3.png").await, None, "there was no room");
    drop(ground);
    tokio::time::sleep(2 * KEEP).await;
    assert_eq!(bench.fates(), [4, 1, 1, 0, 2]);
    assert_eq!(bench.air.held_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn one_passenger_cannot_take_all_page_slots() {
    let bench = bench(Site::default());
    let ask = |who| bench.air.ask_for(who, url("page"), &browsers(), []);
    let alices: Vec<_> = (0..9).filter_map(|_| ask(ALICE)).collect();
    assert_eq!(alices.len(), 4);
    assert!(ask(BOB).is_some());
    drop(alices);
    assert!(ask(ALICE).is_some(), "they are free again");
    let mut grounds: Vec<_> = (0..4).map(|_| bench.page_of_a_stranger()).collect();
    assert!(ask(ALICE).is_none());
    assert_eq!(bench.at_air.refusals.count_refused(Limit::Pages), 5 + 1);
    say(&mut grounds[0], vec![Said::End(PAGE, End::Declined)]).await;
    grounds.clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(ask(ALICE).is_some(), "a page that is held takes none");
}

#[tokio::test(start_paused = true)]
async fn unused_pushes_are_not_repeated() {
    let bench = bench(three_levels());
    let mut pushed = Vec::new();
    for _ in 0..20 {
        let (_, body) = bench.page("page").await.unwrap();
        whole(body).await.unwrap();
        tokio::time::sleep(2 * KEEP).await;
        pushed.push(bench.at_air.wasted_bytes.get());
    }
    assert!(pushed[0] > 500_000, "nobody asked for it");
    assert!(pushed[19] - pushed[15] < 50_000, "and so hardly more of it came: {pushed:?}");
    assert!(pushed[19] < 1_050_000, "the megabyte that an account has to lose: {pushed:?}");
}

#[tokio::test(start_paused = true)]
async fn objects_cached_on_board_are_not_pushed() {
    let bench = bench(three_levels());
    for _ in 0..2 {
        let (_, body) = bench.page("page").await.unwrap();
        whole(body).await.unwrap();
        assert!(bench.object("s.js").await.is_some() && bench.object("i.png").await.is_some());
    }
    let asked = bench.site.asked();
    let times = |wanted| asked.iter().filter(|path| *path == wanted).count();
    assert_eq!((times("/page"), times("/s.js")), (2, 1), "{asked:?}");
    assert_eq!(times("/i.png"), 2, "nobody says that it is still the same");
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
async fn bytes_of_a_cancelled_object_count() {
    let picture = "image".repeat(12_000);
    let site = Site::default()
        .with("/a", HTML, "<img src=a.png>")
        .with("/b", HTML, "<img src=b.png>")
        .with("/a.png", &[], &picture)
        .with("/b.png", &[], &picture);
    // There is room for only one of them, but each page was allowed to use it.
    let bench = bench_with(site, |air| air.memory_bytes = 100_000, |_| {});
    let pages = tokio::join!(bench.page("/a"), bench.page("/b"));
    tokio::join!(whole(pages.0.unwrap().1), whole(pages.1.unwrap().1));
    tokio::time::sleep(2 * KEEP).await;
    let counted = [&bench.at_air.wasted_bytes, &bench.at_air.pushed_bytes].map(|it| it.get());
    // The stored object, and the bytes of the other that were in flight when it was cancelled.
    assert!(counted[0] > picture.len() as u64, "{counted:?}");
    assert_eq!(counted[0], counted[1]);
}

#[tokio::test(start_paused = true)]
async fn a_page_is_no_more_urgent_than_its_request_says() {
    let bench = bench(three_levels());
    whole(bench.page("page").await.unwrap().1).await.unwrap();
    let said = || std::mem::take(&mut *bench.site.priorities.lock());
    let usual = said();
    assert_eq!((&usual["/a.css"][..], &usual["/i.png"][..]), ("u=1", "u=5"));
    assert!(!usual.contains_key("/page"), "it is asked for as the browser did");
    tokio::time::sleep(2 * KEEP).await;
    let mut background = browsers();
    background.insert("priority", HeaderValue::from_static("u=4, i"));
    whole(bench.page_with("page", &background).await.unwrap().1).await.unwrap();
    let low = said();
    assert_eq!((&low["/page"][..], &low["/a.css"][..]), ("u=4, i", "u=4"));
    assert_eq!(&low["/i.png"][..], "u=5");
}

#[tokio::test(start_paused = true)]
async fn a_pages_own_referrer_policy_is_kept() {
    let silent = &[("content-type", "text/html"), ("referrer-policy", "no-referrer")];
    let meta = "<meta name=referrer content=origin><img src=c.png><link rel=stylesheet href=d.css>";
    let site = Site::default()
        .with("/", HTML, "<img src=a.png>")
        .with("/silent", silent, "<img src=b.png>")
        .with("/meta", HTML, meta)
        .with("/d.css", CSS, "a { background: url(e.png) }");
    let site = ["/a.png", "/b.png", "/c.png", "/e.png"]
        .into_iter()
        .fold(site, |site, path| site.with(path, &[], "x"));
    let bench = bench(site);
    for path in ["/", "/silent", "/meta"] {
        whole(bench.page(path).await.unwrap().1).await.unwrap();
    }
    assert_eq!(bench.object("e.png").await, Some("x".into()));
    assert_eq!(bench.site.asked().len(), 8);
    let referers = bench.site.referers.lock().clone();
    let told = |path: &str| referers.iter().find(|(of, _)| of == path).map(|(_, told)| &told[..]);
    assert_eq!(told("/a.png"), Some("http://site.test/"));
    assert_eq!(told("/b.png"), None);
    assert_eq!(told("/c.png"), Some("http://site.test/"), "the origin of /meta");
    assert_eq!(told("/d.css"), Some("http://site.test/"));
    assert_eq!(told("/e.png"), Some("http://site.test/d.css"), "the sheet names it");
}
