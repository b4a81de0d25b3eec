//! The HTTP cache behind the proxy, and its protection against manipulation.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::bench::{
    Bench, LOOPBACK, free_address, read_all, settled, soon, start, start_with, until,
};

const CACHE: &str = "http-cache = { cache-status = true }";

/// An origin that answers each path with `answers`, and records the headers it received.
pub struct Site {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    pub async fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let site = Self { address, asked: asked.clone() };
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                let (asked, answer) = (asked.clone(), answer.clone());
                tokio::spawn(async move {
                    while let Some(head) = head(&mut tcp).await {
                        asked.lock().push(head.clone());
                        let said = answer(&head);
                        if tcp.write_all(said.as_bytes()).await.is_err()
                            || said.contains("close\r\n")
                        {
                            return;
                        }
                    }
                });
            }
        });
        site
    }

    fn asked(&self) -> usize {
        self.asked.lock().len()
    }
}

/// The next header, or `None` at the end.
pub async fn head(tcp: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// A response with these header fields and this body.
pub fn whole(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

const FRESH: &str = "Cache-Control: max-age=60\r\n";

/// Requests `url` by the proxy from 127.0.0.`client`; returns the header and the body.
async fn get(bench: &Bench, client: u8, url: &str, fields: &str) -> (String, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, client], 0).into()).unwrap();
    let mut tcp = socket.connect(bench.http).await.unwrap();
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let request =
        format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    tcp.write_all(request.as_bytes()).await.unwrap();
    let all = String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn the_next_passenger_gets_a_fetched_object_at_once() {
    let bench = start(CACHE, LOOPBACK);
    let site = Site::start(|_| whole(FRESH, "hello")).await;
    let url = format!("http://origin.test:{}/a", site.address.port());
    let (first, body) = get(&bench, 1, &url, "Accept: */*\r\n").await;
    assert_eq!(body, "hello");
    assert!(first.contains("cache-status: bentpipe; fwd=uri-miss; ttl="), "{first}");
    assert!(first.contains("via: 1.1 bentpipe") && !first.contains("\r\nage: "), "{first}");
    until("it is stored", || bench.up.opened().len() == 1).await;
    let (second, body) = get(&bench, 2, &url, "").await;
    assert_eq!((body.as_str(), site.asked()), ("hello", 1));
    assert!(
        second.contains("cache-status: bentpipe; hit; ttl=") && second.contains("\r\nage: 0"),
        "{second}"
    );
    assert!(second.contains("via: 1.1 bentpipe"), "{second}");
    let counters = &bench.air;
    assert_eq!((counters.http_hits.get(), counters.http_misses.get()), (1, 1));
    assert_eq!((counters.http_bytes_saved.get(), counters.http_round_trips_saved.get()), (5, 1));
    let asked = site.asked.lock()[0].clone();
    assert!(
        asked.starts_with("GET /a HTTP/1.1\r\n") && asked.contains("via: 1.1 bentpipe\r\n"),
        "{asked}"
    );
}

#[tokio::test]
async fn cache_status_is_hidden_unless_the_operator_enables_it() {
    let bench = start("http-cache = {}", LOOPBACK);
    let site =
        Site::start(|_| whole(&format!("{FRESH}Cache-Status: other; hit\r\n"), "hello")).await;
    let url = format!("http://origin.test:{}/a", site.address.port());
    for client in [1, 2] {
        let (head, body) = get(&bench, client, &url, "").await;
        assert!(body == "hello" && !head.contains("bentpipe;"), "{head}");
        assert!(head.contains("cache-status: other; hit"), "{head}");
        until("it is stored", || site.asked() == 1).await;
    }
    let (refused, _) = get(&bench, 2, &url, "Cache-Control: only-if-cached\r\n").await;
    assert!(refused.starts_with("HTTP/1.1 504 ") && !refused.contains("bentpipe;"), "{refused}");
}

#[tokio::test]
async fn nothing_of_one_passenger_is_given_to_another() {
    let bench = start(CACHE, LOOPBACK);
    let count = Arc::new(Mutex::new(0));
    let site = Site::start(move |head| {
        let mut count = count.lock();
        *count += 1;
        let fields = match head.split(' ').nth(1).unwrap() {
            "/cookie" => "Cache-Control: public, max-age=60\r\nSet-Cookie: id=1\r\n",
            "/private" => "Cache-Control: private, max-age=60\r\n",
            "/login" => "Cache-Control: public, s-maxage=60\r\n",
            "/session" => "Cache-Control: max-age=60\r\n",
            "/vary" => "Cache-Control: max-age=60\r\nVary: *\r\n",
            "/vary-cookie" => "Cache-Control: public, max-age=60\r\nVary: Cookie\r\n",
            "/odd" => "Cache-Control: public, max-age=60\r\n",
            "/none" => "Cache-Control: No-Store\r\n",
            other => panic!("{other}"),
        };
        whole(fields, &format!("answer {count}"))
    })
    .await;
    for (path, first) in [
        ("/cookie", ""),
        ("/private", ""),
        ("/login", "Authorization: Basic eDp5\r\n"),
        ("/session", "Cookie: id=1\r\n"),
        ("/vary", ""),
        ("/vary-cookie", "Cookie: id=1\r\n"),
        ("/odd", "X-Forwarded-Host: evil.test\r\n"),
        ("/none", ""),
    ] {
        let url = format!("http://origin.test:{}{path}", site.address.port());
        let (_, one) = get(&bench, 1, &url, first).await;
        let (head, other) = get(&bench, 2, &url, "").await;
        assert_ne!(one, other, "{path}");
        assert!(!head.contains("; hit"), "{path}: {head}");
        if path == "/login" {
            // A request with credentials does not get the stored object either.
            let (head, _) = get(&bench, 1, &url, first).await;
            assert!(head.contains("fwd=request"), "{head}");
        }
    }
}

#[tokio::test]
async fn requests_with_two_meanings_are_refused_byte_by_byte() {
    let bench = start(CACHE, LOOPBACK);
    let site = Site::start(|_| whole(FRESH, "hello")).await;
    let to = site.address;
    let post = |fields: &str| {
        format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{fields}\r\n\r\n0\r\n\r\n")
    };
    let long = format!("X: {}", "a".repeat(40_000));
    let many = "X: a\r\n".repeat(150);
    for (request, status) in [
        (post("Content-Length: 5\r\nTransfer-Encoding: chunked"), 400),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 5"), 400),
        (post("Content-Length: 5\r\nContent-Length: 5"), 400),
        (post("Content-Length: 5\r\nContent-Length: 6"), 400),
        (post("Content-Length: 5, 5"), 400),
        (post("Content-Length: +5"), 400),
        (post("Content-Length: 5a"), 400),
        (post("Transfer-Encoding: xchunked"), 400),
        (post("Transfer-Encoding: gzip, chunked"), 400),
        (post("Transfer-Encoding: chunked, identity"), 400),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), 400),
        (post("Transfer-Encoding : chunked"), 400),
        (post("X: a\r\n Transfer-Encoding: chunked"), 400),
        (post("X: a\nTransfer-Encoding: chunked"), 400),
        (post("X: a\rb"), 400),
        (post("X: a\0b"), 400),
        (post("Host: other.test"), 400),
        (post(&long), 431),
        (post(&many), 431),
        (format!("GET http://{to}/ HTTP/1.1\r\n\r\n"), 400),
        (format!("GET http://{to}/ HTTP/1.1\nHost: {to}\n\n"), 400),
        (format!("GET  http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n"), 400),
        (format!("GET http://{to}/ HTTP/1.2\r\nHost: {to}\r\n\r\n"), 400),
        (format!("POST http://{to}/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400),
    ] {
        let refused = bench.air.http_refused.get();
        let mut tcp = TcpStream::connect(bench.http).await.unwrap();
        let smuggled = format!("GET http://{to}/smuggled HTTP/1.1\r\nHost: {to}\r\n\r\n");
        tcp.write_all(format!("{request}{smuggled}").as_bytes()).await.unwrap();
        let answer = String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap();
        let shown = &request[..request.len().min(120)];
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{shown:?}: {answer}");
        assert!(answer.contains("connection: close"), "{shown:?}: {answer}");
        assert_eq!(bench.air.http_refused.get(), refused + 1, "{shown:?}");
    }
    assert_eq!(site.asked(), 0);
    assert!(bench.up.opened().is_empty());
}

#[tokio::test]
async fn a_good_request_before_a_bad_one_is_answered() {
    let bench = start(CACHE, LOOPBACK);
    let site = Site::start(|_| whole(FRESH, "hello")).await;
    let to = site.address;
    let good = format!("GET http://{to}/a HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let bad = format!(
        "POST http://{to}/b HTTP/1.1\r\nHost: {to}\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\n\r\n{good}"
    );
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    tcp.write_all(format!("{good}{bad}").as_bytes()).await.unwrap();
    let answers = String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap();
    assert!(answers.starts_with("HTTP/1.1 200 OK\r\n"), "{answers}");
    assert!(answers.contains("hello") && answers.contains("HTTP/1.1 400 "), "{answers}");
    assert_eq!((answers.matches("HTTP/1.1 ").count(), site.asked()), (2, 1));
}

#[tokio::test]
async fn a_broken_chunk_is_not_passed_on_as_an_end() {
    let bench = start(CACHE, LOOPBACK);
    let site = Site::start(|_| whole("", "hello")).await;
    let to = site.address;
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    let request = format!(
        "POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n"
    );
    tcp.write_all(request.as_bytes()).await.unwrap();
    let answer = read_all(&mut tcp).await.unwrap_or_default();
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn flows_to_origins_are_used_again_for_the_same_passenger_and_place() {
    let bench = start(CACHE, LOOPBACK);
    let site = Site::start(|_| whole("Cache-Control: no-store\r\n", "hello")).await;
    let at = |path: &str| format!("http://origin.test:{}{path}", site.address.port());
    for path in ["/a", "/b", "/c"] {
        get(&bench, 1, &at(path), "").await;
        // The flow returns to the pool after its response has been read.
        settled().await;
    }
    assert_eq!((bench.up.opened().len(), site.asked()), (1, 3));
    get(&bench, 2, &at("/a"), "").await;
    assert_eq!(bench.up.opened().len(), 2, "another passenger's flow is its own");
    get(&bench, 1, &format!("http://{}/a", site.address), "").await;
    assert_eq!(bench.up.opened().len(), 3, "another authority too");
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    let post = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        at("/")
    );
    tcp.write_all(post.as_bytes()).await.unwrap();
    let (head, _) = {
        let all = String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap();
        let (head, body) = all.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    };
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(bench.up.opened().len(), 4, "what has a body is sent once, on a flow of its own");
}

#[tokio::test]
async fn a_flow_that_was_closed_meanwhile_is_no_failure() {
    let bench = start(CACHE, LOOPBACK);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    // The origin promises to keep the connection but closes it, which the second request may detect
    // only on sending.
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            head(&mut tcp).await;
            tcp.write_all(whole("Cache-Control: no-store\r\n", "hello").as_bytes()).await.unwrap();
        }
    });
    for path in 0..5 {
        let (_, body) = get(&bench, 1, &format!("http://{to}/{path}"), "").await;
        assert_eq!(body, "hello");
    }
}

#[tokio::test]
async fn unsafe_methods_are_passed_on_and_invalidate() {
    let bench = start(CACHE, LOOPBACK);
    let site = Site::start(|_| whole(FRESH, "hello")).await;
    let url = format!("http://{}/a", site.address);
    get(&bench, 1, &url, "").await;
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    let post =
        format!("POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    tcp.write_all(post.as_bytes()).await.unwrap();
    read_all(&mut tcp).await.unwrap();
    let (head, _) = get(&bench, 1, &url, "").await;
    assert!(head.contains("fwd=stale"), "{head}");
    assert_eq!((site.asked(), bench.air.http_passed.get()), (3, 1));
}

#[tokio::test]
async fn a_body_without_a_length_is_passed_on_and_not_stored() {
    let bench = start(CACHE, LOOPBACK);
    let site =
        Site::start(|_| format!("HTTP/1.1 200 OK\r\n{FRESH}Connection: close\r\n\r\nhello")).await;
    let url = format!("http://{}/a", site.address);
    for asked in 1..3 {
        assert!(get(&bench, 1, &url, "").await.1.contains("hello"));
        assert_eq!(site.asked(), asked);
    }
}

#[tokio::test]
async fn failures_are_answered_as_without_a_cache() {
    let bench = start(CACHE, LOOPBACK);
    let to = free_address();
    let (refused, why) = get(&bench, 1, &format!("http://{to}/"), "").await;
    assert!(
        refused.starts_with("HTTP/1.1 502 ") && refused.contains("error=connection_refused"),
        "{refused}"
    );
    assert!(why.contains("the destination refused the connection"), "{why}");
    assert_eq!(bench.air.http_failed.get(), 1);
    let (forbidden, _) = get(&bench, 1, "http://10.0.0.1/", "").await;
    assert!(forbidden.contains("error=destination_ip_prohibited"), "{forbidden}");
}

#[tokio::test]
async fn stored_objects_outlive_the_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let config = format!(
        "http-cache = {{ cache-status = true, directory = \"{}\" }}",
        directory.path().display()
    );
    let site = Site::start(|_| whole(FRESH, "hello")).await;
    let url = format!("http://{}/a", site.address);
    {
        let bench = start(&config, LOOPBACK);
        get(&bench, 1, &url, "").await;
        bench.stop_air.send(()).unwrap();
        soon("it stops", bench.air_task).await.unwrap();
    }
    // The directory is released when everything has been written.
    let lock = directory.path().join("lock");
    let is_free = || std::fs::File::open(&lock).unwrap().try_lock().is_ok();
    until("the directory is given back", is_free).await;
    let bench = start(&config, LOOPBACK);
    // The stored objects are loaded meanwhile; such a request is not forwarded.
    soon("what lies there is known", async {
        while !get(&bench, 1, &url, "Cache-Control: only-if-cached\r\n").await.0.contains("; hit") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (head, body) = get(&bench, 1, &url, "").await;
    assert!(head.contains("; hit") && body == "hello", "{head}");
    assert_eq!(site.asked(), 1);
}

#[tokio::test]
async fn passengers_can_read_what_is_done() {
    for (config, says) in [("http-cache = {}\n", "Copies of public files"), ("", "<p>Nothing.</p>")]
    {
        let config = format!("{config}page = {{ listen = \"127.0.0.1:0\" }}");
        let mut page = None;
        let _bench = start_with(&config, LOOPBACK, |air| page = air.page_addr());
        let ask = async |request: &str| {
            let mut tcp = TcpStream::connect(page.unwrap()).await.unwrap();
            tcp.write_all(
                format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes(),
            )
            .await
            .unwrap();
            String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap()
        };
        let answer = ask("GET /").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(says), "{answer}");
        assert!(answer.contains("content-security-policy: default-src 'none'"), "{answer}");
        assert!(ask("GET /x").await.starts_with("HTTP/1.1 404 "));
        assert!(ask("POST /").await.starts_with("HTTP/1.1 405 "));
        let twice = ask("GET  /").await;
        assert!(twice.starts_with("HTTP/1.1 400 "), "{twice}");
    }
}
