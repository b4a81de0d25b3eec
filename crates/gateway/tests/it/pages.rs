//! Split HTTP between an air and a ground gateway.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bentpipe_flow::{Host, Service};
use bentpipe_link::io::Open;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use crate::bench::{LOOPBACK, read_all, soon, start, until};

/// Complete requests received by an origin.
type Asked = Arc<Mutex<Vec<String>>>;

/// An origin that serves `pages`, each on a connection that is closed afterwards.
async fn origin(pages: &'static [(&'static str, &'static str)]) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let (pages, log) = (BTreeMap::from_iter(pages.iter().copied()), asked.clone());
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let (pages, log) = (pages.clone(), log.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(tcp.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap().to_owned();
                log.lock().push(head);
                let body = pages.get(&path[..]).copied().unwrap_or("none");
                let kind = if path.ends_with("css") { "text/css" } else { "text/html" };
                let length = body.len();
                // Only the reader itself may store the page.
                let keep = match &path[..] {
                    "/" => "no-store",
                    "/plain.png" => "no-cache",
                    "/cookie.png" => "max-age=600\r\nVary: Cookie",
                    "/lang.png" => "max-age=600\r\nVary: Accept-Language",
                    _ => "max-age=600",
                };
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: {keep}\r\n\
                     Connection: close\r\nKeep-Alive: 5\r\n\r\n{body}"
                );
                let _ = tcp.write_all(answer.as_bytes()).await;
            });
        }
    });
    (address, asked)
}

/// Returns `true` if the flow requests a page.
fn is_page(open: &Open) -> bool {
    open.target.host == Host::Service(Service::Pages)
}

/// Response of the proxy to a GET with these `lines`.
async fn get(proxy: SocketAddr, url: &str, lines: &str) -> String {
    get_from("127.0.0.1", proxy, url, lines).await
}

/// Response to a GET from a passenger at the address `from`.
async fn get_from(from: &str, proxy: SocketAddr, url: &str, lines: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    let mut tcp = socket.connect(proxy).await.unwrap();
    let request = format!("GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n");
    tcp.write_all(request.as_bytes()).await.unwrap();
    String::from_utf8(soon("an answer", read_all(&mut tcp)).await.unwrap()).unwrap()
}

const HTML: &str = "Accept: text/html\r\n";
const SITE: &[(&str, &str)] = &[
    ("/", "<link rel=stylesheet href=a.css><img src=b.png>"),
    ("/a.css", "a { background: url(c.png) }"),
    ("/b.png", "picture b"),
    ("/c.png", "picture c"),
];

fn with_pages() -> (&'static str, String) {
    ("[split-http]", format!("{LOOPBACK}\n[split-http]"))
}

#[tokio::test]
async fn a_page_brings_its_objects_and_only_it_crosses_the_link() {
    let (origin, asked) = origin(SITE).await;
    let (air, ground) = with_pages();
    let bench = start(air, &ground);
    let page = get(bench.http, &format!("http://{origin}/"), HTML).await;
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with(SITE[0].1), "{page}");
    assert!(page.contains("via: 1.1 bentpipe") && !page.contains("keep-alive"), "{page}");
    for (path, body) in &SITE[1..] {
        let object = get(bench.http, &format!("http://{origin}{path}"), "Accept: */*\r\n").await;
        assert!(object.ends_with(body), "{path}: {object}");
    }
    let opened = bench.up.opened();
    let [open] = &opened[..] else { panic!("one stream for all: {opened:?}") };
    assert_eq!(open.target.host, Host::Service(Service::Pages));
    let asked = asked.lock().clone();
    assert_eq!(asked.len(), 4, "each once: {asked:?}");
    assert!(asked.iter().all(|head| head.contains("accept-encoding: identity")), "{asked:?}");
    assert_eq!((bench.ground.pages.get(), bench.ground.objects_promised.get()), (1, 3));
}

#[tokio::test]
async fn personal_requests_bypass_split_http() {
    let (origin, asked) = origin(SITE).await;
    let (air, ground) = with_pages();
    let bench = start(air, &ground);
    let lines = format!("{HTML}Cookie: a=b\r\n");
    let page = get(bench.http, &format!("http://{origin}/"), &lines).await;
    assert!(page.ends_with(SITE[0].1), "{page}");
    assert_eq!(asked.lock().len(), 1, "nothing is fetched for it");
    assert!(asked.lock()[0].to_lowercase().contains("cookie: a=b"));
    assert_eq!(bench.ground.pages.get(), 0);
}

#[tokio::test]
async fn pages_load_if_one_gateway_lacks_split_http() {
    let (origin, asked) = origin(SITE).await;
    let (air, ground) = with_pages();
    for (air, ground) in [(air, LOOPBACK), ("", &ground)] {
        let bench = start(air, ground);
        for _ in 0..2 {
            let page = get(bench.http, &format!("http://{origin}/"), HTML).await;
            assert!(page.ends_with(SITE[0].1), "{page}");
        }
        let asked = bench.up.opened().iter().filter(|open| is_page(open)).count();
        assert_eq!(asked, usize::from(!air.is_empty()), "a ground without it is asked once");
    }
    assert_eq!(asked.lock().len(), 4, "the pages and nothing else");
}

#[tokio::test]
async fn the_grounds_policy_holds_for_pages_too() {
    let (origin, asked) = origin(SITE).await;
    let bench = start("[split-http]", "[split-http]");
    let page = get(bench.http, &format!("http://{origin}/"), HTML).await;
    assert!(page.starts_with("HTTP/1.1 502"), "{page}");
    until("the refusal is counted", || {
        bench.ground.resets(bentpipe_flow::ResetCode::Forbidden) > 0
    })
    .await;
    assert!(asked.lock().is_empty());
}

#[tokio::test]
async fn the_grounds_policy_holds_for_objects_too() {
    let inside = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let port = inside.local_addr().unwrap().port();
    let page: &'static str = format!("<img src=http://127.0.0.2:{port}/x.png>").leak();
    let (outer, _) = origin(vec![("/", page)].leak()).await;
    let ground = "dial = { allow = [\"127.0.0.1/32\"] }\n[split-http]";
    let bench = start("[split-http]", ground);
    let came = get(bench.http, &format!("http://{outer}/"), HTML).await;
    assert!(came.ends_with(page), "{came}");
    until("the promise is withdrawn", || bench.ground.objects_declined.get() > 0).await;
    assert!(inside.accept().is_err(), "nobody was there");
}

#[tokio::test]
async fn with_a_cache_a_second_passenger_needs_the_link_for_the_page_alone() {
    let (origin, asked) = origin(SITE).await;
    let (_, ground) = with_pages();
    let bench = start("[split-http]\n[http-cache]\ncache-status = true", &ground);
    for (passenger, crossed) in [("127.0.0.1", 1), ("127.0.0.2", 2)] {
        let get = async |path: &str, lines| {
            get_from(passenger, bench.http, &format!("http://{origin}{path}"), lines).await
        };
        assert!(get("/", HTML).await.ends_with(SITE[0].1));
        for (path, body) in &SITE[1..] {
            let object = get(path, "Accept: */*\r\n").await;
            assert!(object.ends_with(body), "{path}: {object}");
            let is_pushed = object.contains("; detail=pushed");
            assert_eq!(is_pushed, crossed == 1, "{path}: {object}");
            assert!(object.contains("bentpipe; hit;"), "{path}: {object}");
        }
        assert_eq!(bench.up.opened().len(), crossed, "flows after passenger {passenger}");
        let counters = &bench.air;
        assert_eq!(counters.http_misses.get(), crossed as u64, "the page itself");
        assert_eq!(counters.http_hits.get(), 3 * crossed as u64);
        assert_eq!(counters.http_round_trips_saved.get(), 3 * crossed as u64);
    }
    let asked = asked.lock().clone();
    assert_eq!(asked.len(), 5, "the page twice, its objects once: {asked:?}");
}

/// An origin whose page must be revalidated each time and names an image by its edition; `editions`
/// has the latest.
async fn newspaper(editions: Arc<AtomicU32>) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let log = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let (asked, edition) = (log.clone(), editions.load(Ordering::Relaxed));
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(tcp.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap().to_lowercase();
                let is_page = head.starts_with("get / ");
                let holds = head.contains(&format!("if-none-match: \"{edition}\""));
                asked.lock().push(head);
                let body = format!("<img src={edition}.png>");
                let length = body.len();
                let answer = match (is_page, holds) {
                    (true, true) => format!("HTTP/1.1 304 OK\r\nETag: \"{edition}\"\r\n"),
                    (true, false) => format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"{edition}\"\r\n\
                         Cache-Control: no-cache\r\nContent-Length: {length}\r\n"
                    ),
                    _ => "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 3\r\n"
                        .to_owned(),
                };
                let body = match (is_page, holds) {
                    (true, true) => String::new(),
                    (true, false) => body,
                    _ => "png".to_owned(),
                };
                let whole = format!("{answer}Connection: close\r\n\r\n{body}");
                let _ = tcp.write_all(whole.as_bytes()).await;
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_page_that_the_cache_asks_about_brings_its_objects_where_it_has_changed() {
    let edition = Arc::new(AtomicU32::new(1));
    let (origin, asked) = newspaper(edition.clone()).await;
    let (_, ground) = with_pages();
    let bench = start("[split-http]\n[http-cache]", &ground);
    let reload = format!("{HTML}Cache-Control: max-age=0\r\n");
    // Each passenger gets the page, and its image without another flow.
    let passengers = [("127.0.0.1", 1, HTML), ("127.0.0.2", 1, HTML), ("127.0.0.3", 2, HTML)];
    for (number, (who, latest, lines)) in
        passengers.into_iter().chain([("127.0.0.4", 3, &reload[..])]).enumerate()
    {
        edition.store(latest, Ordering::Relaxed);
        let page = get_from(who, bench.http, &format!("http://{origin}/"), lines).await;
        assert!(page.ends_with(&format!("<img src={latest}.png>")), "{who}: {page}");
        let picture = format!("http://{origin}/{latest}.png");
        let picture = get_from(who, bench.http, &picture, "Accept: */*\r\n").await;
        assert!(picture.ends_with("png"), "{who}: {picture}");
        assert_eq!(bench.up.opened().len(), number + 1, "flows after passenger {who}");
    }
    assert!(bench.up.opened().iter().all(is_page));
    let asked = asked.lock().clone();
    let conditions = asked.iter().filter(|head| head.contains("if-none-match")).count();
    assert_eq!((asked.len(), conditions), (7, 3), "four pages, three pictures: {asked:?}");
    let of_pages = |head: &&String| head.starts_with("get / ");
    assert_eq!(asked.iter().filter(of_pages).count(), 4, "{asked:?}");

    // A browser's own conditional request crosses without Split HTTP.
    let own = format!("{HTML}If-None-Match: \"3\"\r\n");
    get_from("127.0.0.5", bench.http, &format!("http://{origin}/own"), &own).await;
    assert!(!is_page(&bench.up.opened()[4]));
}

#[tokio::test]
async fn a_ground_that_knows_no_conditions_is_asked_by_one_once() {
    let (origin, asked) = newspaper(Arc::new(AtomicU32::new(1))).await;
    let (_, ground) = with_pages();
    let bench = start("[split-http]\n[http-cache]", &ground);
    // Version 3 of the request.
    bench.up.break_off(3);
    let passengers = [("127.0.0.1", 1), ("127.0.0.2", 3), ("127.0.0.3", 4), ("127.0.0.4", 5)];
    for (who, opened) in passengers {
        let page = get_from(who, bench.http, &format!("http://{origin}/"), HTML).await;
        assert!(page.ends_with("<img src=1.png>"), "{who}: {page}");
        assert_eq!(bench.up.opened().len(), opened, "flows after passenger {who}");
    }
    let of_pages: Vec<_> = bench.up.opened().iter().map(is_page).collect();
    assert_eq!(of_pages, [true, true, false, false, false]);
    let of_pages = asked.lock().iter().filter(|head| head.starts_with("get / ")).count();
    assert_eq!(of_pages, 4, "what was broken off nobody saw");
}

/// A page with objects that only its reader may receive.
const OWN: &[(&str, &str)] = &[
    ("/", "<img src=plain.png><img src=cookie.png><img src=lang.png><img src=kept.png>"),
    ("/plain.png", "plain"),
    ("/cookie.png", "cookie"),
    ("/lang.png", "lang"),
    ("/kept.png", "kept"),
];

/// Number of requests for `path` at the origin.
fn times(asked: &Asked, path: &str) -> usize {
    let line = format!("GET {path} ");
    asked.lock().iter().filter(|head| head.starts_with(&line)).count()
}

#[tokio::test]
async fn pushed_objects_serve_only_their_passenger_without_credentials() {
    for cache in ["", "\n[http-cache]"] {
        let (origin, asked) = origin(OWN).await;
        let (air, ground) = with_pages();
        let bench = start(&format!("{air}{cache}"), &ground);
        let get = async |passenger: &str, path: &str, lines: &str| {
            get_from(passenger, bench.http, &format!("http://{origin}{path}"), lines).await
        };
        let plain = "Accept: */*\r\n";
        assert!(get("127.0.0.1", "/", HTML).await.ends_with(OWN[0].1));
        until("all is fetched", || times(&asked, "/kept.png") == 1).await;
        let mut expected = [1; 3];
        for (times_more, passenger, lines) in [
            ([1; 3], "127.0.0.2", plain.to_owned()),
            // A request with a cookie gets objects that the origin declares fresh for everyone.
            ([1, 0, 0], "127.0.0.1", format!("{plain}Cookie: a=b\r\n")),
            ([1; 3], "127.0.0.1", format!("{plain}Authorization: Basic eDp5\r\n")),
            ([1; 3], "127.0.0.1", format!("{plain}User-Agent: another\r\n")),
            ([0; 3], "127.0.0.1", plain.to_owned()),
        ] {
            let paths = ["/plain.png", "/lang.png", "/kept.png"];
            for (number, path) in paths.into_iter().enumerate() {
                // A public, fresh object serves all permitted requests once it is cached.
                if !cache.is_empty() && path != "/plain.png" {
                    continue;
                }
                let came = get(passenger, path, &lines).await;
                assert!(came.ends_with(&path[1..path.len() - 4]), "{path}: {came}");
                expected[number] += times_more[number];
                assert_eq!(times(&asked, path), expected[number], "{path} to {passenger}: {lines}");
            }
        }
        // An object that varies by cookie has not been pushed.
        let before = times(&asked, "/cookie.png");
        assert!(get("127.0.0.1", "/cookie.png", plain).await.ends_with("cookie"));
        assert_eq!((before, times(&asked, "/cookie.png")), (1, 2));
    }
}
