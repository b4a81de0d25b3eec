//! Single requests to sites whose origin speaks TLS: the ground makes it, and what goes up is packed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bentpipe_gateway::far::FarEnd;
use bentpipe_link::io::Open;
use bentpipe_link::{Class, Host, ResetCode, Service, Target};
use bentpipe_prefetch::wire::single::VERSION_SITE;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::bench::{Bench, LOOPBACK, settled, soon, start, until};
use crate::site::{NAME, acceptor, certificate, config, connect, get, origin_of};
use crate::web::{head, whole};

/// First byte of TLS (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;

/// A site whose origin is at the address, and the files for it.
struct World {
    folder: tempfile::TempDir,
    root: CertificateDer<'static>,
    origin: SocketAddr,
}

impl World {
    /// Starts it; the second value holds the requests at the origin.
    async fn start(answer: fn(&str) -> String) -> (Self, Arc<Mutex<Vec<String>>>) {
        let folder = tempfile::tempdir().unwrap();
        let tls = acceptor(folder.path(), "origin.test");
        let (origin, asked) = origin_of(Some(tls), answer).await;
        (Self::of(folder, origin), asked)
    }

    fn of(folder: tempfile::TempDir, origin: SocketAddr) -> Self {
        let root = certificate(folder.path(), NAME);
        Self { folder, root, origin }
    }

    /// The site's lines, where `ca` is whose certificate is believed.
    fn site(&self, ca: &str) -> String {
        let (port, folder) = (self.origin.port(), self.folder.path().display());
        format!("origin = \"https://origin.test:{port}\"\norigin-ca = \"{folder}/{ca}.pem\"\n")
    }

    fn air(&self, splits: bool) -> String {
        let more = format!("{}split-http = {splits}\n[split-http]\n", self.site("origin.test"));
        config(self.folder.path(), &more)
    }

    fn ground(&self, ca: &str) -> String {
        format!("{LOOPBACK}\n[split-http]\n[[site]]\nname = \"{NAME}\"\n{}", self.site(ca))
    }

    fn bench(&self) -> Bench {
        start(&self.air(true), &self.ground("origin.test"))
    }

    async fn get(&self, bench: &Bench, path: &str) -> String {
        let answer = soon("an answer", get(bench, &self.root, NAME, path)).await;
        settled().await;
        answer
    }

    async fn post(&self, bench: &Bench) -> String {
        let mut tls = connect(bench, &self.root, NAME, &["http/1.1"]).await.unwrap();
        // The origin of these tests takes no body.
        let request = format!(
            "POST /form HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = soon("an answer", tls.read_to_string(&mut answer)).await;
        answer
    }
}

/// First byte of each flow opened so far.
fn began(bench: &Bench) -> Vec<u8> {
    bench.up.opened().iter().map(|open| open.first[0]).collect()
}

fn hello(_: &str) -> String {
    whole("Cache-Control: no-store\r\n", "hello")
}

#[tokio::test]
async fn a_cold_request_takes_one_round_trip_and_the_next_shares_its_connection() {
    let (world, asked) = World::start(hello).await;
    let (mut heads, mut up_bytes) = (Vec::new(), Vec::new());
    for splits in [false, true] {
        let bench = start(&world.air(splits), &world.ground("origin.test"));
        let answer = world.get(&bench, "/a").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
        let opened = bench.up.opened();
        assert_eq!(began(&bench), [if splits { VERSION_SITE } else { HANDSHAKE }]);
        // What has gone up behind what the flow was opened with has waited for what came down.
        let behind = bench.air.to_far_bytes.get() - opened[0].first.len() as u64;
        assert_eq!(behind == 0, splits, "{behind} bytes of TLS made on board");
        up_bytes.push(bench.air.to_far_bytes.get());
        assert_eq!(bench.air.http_heads_packed.get(), u64::from(splits));
        if splits {
            assert!(world.get(&bench, "/b").await.ends_with("hello"));
            assert_eq!(began(&bench), [VERSION_SITE], "one connection for both");
            assert_eq!(bench.air.http_heads_packed.get(), 2);
        }
        heads.extend(std::mem::take(&mut *asked.lock().unwrap()));
    }
    assert_eq!(heads.len(), 3);
    assert_eq!(heads[0], heads[1], "the origin is asked the same");
    assert_eq!(heads[0].replace("/a", "/b"), heads[2]);
    assert!(heads[0].contains("host: portal.test\r\n"), "{}", heads[0]);
    assert!(up_bytes[1] * 2 < up_bytes[0], "{up_bytes:?}");
}

#[tokio::test]
async fn what_cannot_be_sent_twice_waits_until_the_ground_is_known_to_have_the_site() {
    let (world, asked) = World::start(hello).await;
    let bench = world.bench();
    assert!(world.post(&bench).await.ends_with("hello"));
    assert!(world.get(&bench, "/a").await.ends_with("hello"));
    assert!(world.post(&bench).await.ends_with("hello"));
    assert_eq!(began(&bench), [HANDSHAKE, VERSION_SITE, VERSION_SITE]);
    // Another session may be one with another ground, that is older.
    bench.up.next_session();
    bench.up.break_off(VERSION_SITE);
    assert!(world.post(&bench).await.ends_with("hello"));
    assert_eq!(began(&bench)[3..], [HANDSHAKE], "one flow for it");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|head| head.starts_with("POST")).count(), 3, "each once");
}

#[tokio::test]
async fn a_ground_that_does_not_know_it_is_asked_once_and_nothing_fails() {
    let older = |world: &World| (world.ground("origin.test"), Some(VERSION_SITE));
    let without_site = |_: &World| (format!("{LOOPBACK}\n[split-http]"), None);
    let without_pages = |_: &World| (LOOPBACK.to_owned(), None);
    for make in [older as fn(&World) -> (String, Option<u8>), without_site, without_pages] {
        let (world, asked) = World::start(hello).await;
        let (ground, breaks_off) = make(&world);
        let bench = start(&world.air(true), &ground);
        breaks_off.iter().for_each(|version| bench.up.break_off(*version));
        for path in ["/a", "/b"] {
            let answer = world.get(&bench, path).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        }
        assert!(world.post(&bench).await.starts_with("HTTP/1.1 200 OK"));
        // What is no page's is asked for on the connection that there is, and sent once on one of its own.
        assert_eq!(began(&bench), [VERSION_SITE, HANDSHAKE, HANDSHAKE], "{breaks_off:?}");
        assert_eq!(asked.lock().unwrap().len(), 3);
        assert_eq!(bench.air.http_heads_packed.get(), 0, "it was not answered, and saved nothing");
    }
}

#[tokio::test]
async fn an_origin_that_the_ground_does_not_believe_is_told_and_not_asked_another_way() {
    let (world, asked) = World::start(hello).await;
    let bench = start(&world.air(true), &world.ground(NAME));
    for path in ["/a", "/b"] {
        let answer = world.get(&bench, path).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains("error=tls_protocol_error"), "{answer}");
        assert!(answer.contains("no TLS with origin.test:"), "{answer}");
    }
    assert_eq!(began(&bench), [VERSION_SITE, VERSION_SITE]);
    assert_eq!(asked.lock().unwrap().len(), 0, "nothing has reached it");
    // Nor is it where a transport tells no reasons: the ground has said it by the stream.
    bench.up.tell_no_reasons();
    assert!(world.get(&bench, "/c").await.starts_with("HTTP/1.1 502 "));
    assert_eq!(began(&bench), [VERSION_SITE; 3]);
}

/// Twice a flow's credit, and more.
const BODY_BYTES: usize = 150_000;

/// An origin that answers with what the path says and then closes: `/length` or `/close` is what tells how long
/// the answer is, and behind `cut` it does not say that it closes.
async fn closer(folder: &Path) -> SocketAddr {
    let tls = acceptor(folder, "origin.test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let mut io = tls.accept(tcp).await.unwrap();
            let Some(asked) = head(&mut io).await else { continue };
            let path = asked.split(' ').nth(1).unwrap();
            let length = match path.starts_with("/length") {
                true => format!("Content-Length: {BODY_BYTES}\r\n"),
                false => String::new(),
            };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n{length}\r\n{}",
                "x".repeat(BODY_BYTES)
            );
            io.write_all(answer.as_bytes()).await.unwrap();
            io.flush().await.unwrap();
            if !path.ends_with("cut") {
                io.shutdown().await.unwrap();
            }
        }
    });
    address
}

#[tokio::test]
async fn an_answer_that_may_have_been_cut_is_broken_off_and_none_loses_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let origin = closer(folder.path()).await;
    let world = World::of(folder, origin);
    for (path, is_whole) in
        [("/length", true), ("/length-cut", true), ("/close", true), ("/close-cut", false)]
    {
        let bench = world.bench();
        // A kept connection that has been cut is no connection: the second finds another.
        for _ in 0..2 {
            let answer = world.get(&bench, path).await;
            if !is_whole {
                // How much the passenger has of it depends on when the connection is reset.
                assert!(!answer.ends_with("\r\n0\r\n\r\n"), "{path}: it looks whole");
                assert!(!answer.contains("502"), "{path}: {answer}");
                continue;
            }
            let Some((head, body)) = answer.split_once("\r\n\r\n") else {
                panic!("{path}: {answer}");
            };
            assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
            let bytes = body.bytes().filter(|byte| *byte == b'x').count();
            assert_eq!(bytes, BODY_BYTES, "{path}");
            let is_chunked = head.contains("transfer-encoding: chunked");
            assert_eq!(is_chunked, path == "/close", "{head}");
            assert!(!is_chunked || body.ends_with("\r\n0\r\n\r\n"), "{path} has no end");
        }
        assert_eq!(began(&bench), [VERSION_SITE; 2], "{path}");
    }
}

/// Asks by a flow of its own for what `head` says, and gives what came down.
async fn by_a_flow(bench: &Bench, head: &str) -> Vec<u8> {
    let target = Target { host: Host::Service(Service::Pages), port: 80 };
    let name = [&[VERSION_SITE, NAME.len() as u8], NAME.as_bytes()].concat();
    let chunk = [&[1, 0, head.len() as u8], head.as_bytes()].concat();
    let (class, first) = (Class::default(), [name, chunk].concat().into());
    let open = Open { target, class, passenger: 1, claim: None, first };
    let mut flow = bench.up.open(open).await.unwrap();
    let mut came = Vec::new();
    soon("its end", flow.read_to_end(&mut came)).await.unwrap();
    came
}

/// The bytes of its chunks, and how it ended.
fn unpacked(mut came: &[u8]) -> (Vec<u8>, u8) {
    let mut said = Vec::new();
    loop {
        match came {
            [3, 0, 1, end] => return (said, *end),
            [1, high, low, rest @ ..] => {
                let (chunk, rest) = rest.split_at(u16::from_be_bytes([*high, *low]).into());
                said.extend_from_slice(chunk);
                came = rest;
            }
            _ => panic!("{} bytes that are no chunk", came.len()),
        }
    }
}

#[tokio::test]
async fn all_that_came_crosses_with_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let origin = closer(folder.path()).await;
    let world = World::of(folder, origin);
    for (path, end) in [("/close", 0), ("/close-cut", 1), ("/length-cut", 1)] {
        let bench = world.bench();
        let came = by_a_flow(&bench, &format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await;
        let (said, ended) = unpacked(&came);
        assert!(said.starts_with(b"HTTP/1.1 200 OK"), "{path}");
        assert_eq!(said.iter().filter(|byte| **byte == b'x').count(), BODY_BYTES, "{path}");
        assert_eq!(ended, end, "{path}");
    }
}

#[tokio::test]
async fn an_answer_before_the_end_of_an_upload_crosses() {
    /// More than all buffers on the way take.
    const UPLOAD_BYTES: usize = 32 << 20;
    let folder = tempfile::tempdir().unwrap();
    let tls = acceptor(folder.path(), "origin.test");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            // Or the answer would wait for the tickets before it, and be thrown away with the connection.
            tcp.set_nodelay(true).unwrap();
            let mut io = tls.accept(tcp).await.unwrap();
            let Some(asked) = head(&mut io).await else { continue };
            let answer = match asked.starts_with("POST") {
                true => {
                    "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge"
                }
                false => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nCache-Control: no-store\r\n\r\n",
            };
            io.write_all(answer.as_bytes()).await.unwrap();
            io.flush().await.unwrap();
            // It closes with what is uploaded unread, by which the kernel resets the connection.
        }
    });
    let world = World::of(folder, origin);
    let bench = world.bench();
    assert!(world.get(&bench, "/").await.starts_with("HTTP/1.1 200 OK"));
    let mut tls = connect(&bench, &world.root, NAME, &["http/1.1"]).await.unwrap();
    let request = format!(
        "POST /form HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {UPLOAD_BYTES}\r\nConnection: close\r\n\r\n"
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    let (mut read, mut write) = tokio::io::split(tls);
    let upload = tokio::spawn(async move {
        let part = vec![7; 64 << 10];
        for _ in 0..UPLOAD_BYTES / part.len() {
            if write.write_all(&part).await.is_err() {
                break;
            }
        }
    });
    let mut answer = Vec::new();
    let _ = soon("an answer", read.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("large"), "{answer}");
    assert_eq!(began(&bench).last(), Some(&VERSION_SITE));
    upload.abort();
}

#[tokio::test]
async fn nothing_but_the_grounds_own_sites_is_reached() {
    let (world, asked) = World::start(hello).await;
    let bench = world.bench();
    let said = |name: &str| [&[VERSION_SITE, name.len() as u8], name.as_bytes()].concat();
    let open = async |first: Vec<u8>| {
        let target = Target { host: Host::Service(Service::Pages), port: 80 };
        let (class, claim, first) = (Class::default(), None, first.into());
        let open = Open { target, class, passenger: 1, claim, first };
        let mut flow = bench.up.open(open).await.unwrap();
        let mut came = Vec::new();
        let read = soon("its end", flow.read_to_end(&mut came)).await;
        (came, read.is_ok(), flow.reset_code())
    };
    for name in ["origin.test", "www.portal.test", "localhost", "resolver.bentpipe.internal"] {
        assert_eq!(open(said(name)).await, (b"\x03\x00\x01\x02".to_vec(), true, None), "{name}");
    }
    for (name, broken) in [("127.0.0.1", ""), ("", ""), ("a b", ""), ("portal.test", "\x07\0\x01")]
    {
        let first = [&said(name), broken.as_bytes()].concat();
        assert_eq!(open(first).await, (Vec::new(), false, Some(ResetCode::Internal)), "{name}");
    }
    until("it is over", || bench.ground.relayed.get() == 1).await;
    assert_eq!(asked.lock().unwrap().len(), 0);
}
