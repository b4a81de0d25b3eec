//! The HTTP cache on intercepted connections, with a real kernel; see `tproxy.rs`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bentpipe_flow::{Host, ResetCode};
use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::transport::{Acceptor, Carried, Incoming};
use bentpipe_net::Inherited;
use futures_util::future::BoxFuture;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::until;
use crate::tproxy::{PATIENCE, as_root, new_network, sh};
use crate::wire;

#[test]
fn objects_are_stored_under_the_resolved_name() {
    as_root("web_tproxy::objects_are_stored_under_the_resolved_name", || {
        in_gateway(as_client, |ready, back| Box::pin(serve(ready, back)));
    });
}

/// The air's side of a test, which reports when it is ready and is told when the client is done.
pub type Serve = fn(mpsc::Sender<()>, mpsc::Receiver<()>) -> BoxFuture<'static, ()>;

pub fn in_gateway(as_client: fn(), serve: Serve) {
    new_network();
    let (send_tid, tid) = mpsc::channel();
    let (send_ready, ready) = mpsc::channel::<()>();
    let (send_back, back) = mpsc::channel::<()>();
    let client = std::thread::spawn(move || {
        new_network();
        send_tid.send(nix::unistd::gettid()).unwrap();
        ready.recv_timeout(PATIENCE).unwrap();
        sh("ip addr add 10.9.0.2/24 dev seat0\n\
            ip addr add 10.9.0.3/24 dev seat0\n\
            ip link set seat0 up\n\
            ip route add default via 10.9.0.1");
        as_client();
        send_back.send(()).unwrap();
    });
    let tid = tid.recv_timeout(PATIENCE).unwrap();
    sh(&format!(
        "ip link add cabin0 type veth peer name seat0 netns {tid}\n\
         ip addr add 10.9.0.1/24 dev cabin0\n\
         ip link set cabin0 up"
    ));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(send_ready, back));
    client.join().expect("the client's side succeeds");
}

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Configuration of an air gateway, with its files in `folder`.
pub fn air_config(folder: &Path, more: &str) -> AirConfig {
    std::fs::write(folder.join("a.key"), KEY).unwrap();
    let text = format!(
        "{more}[http-cache]\ncache-status = true\n\
         [link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{KEY}\"\nrate = \"1 Mbit/s\"\n\
         [listen]\ntproxy = {{ port = 1081, interfaces = [\"cabin0\"] }}\n"
    );
    AirConfig::parse(&folder.join("air.toml"), &text).unwrap()
}

/// Reports that it is `ready`, and waits for the client.
pub async fn until_back(ready: mpsc::Sender<()>, back: mpsc::Receiver<()>) {
    ready.send(()).unwrap();
    tokio::task::spawn_blocking(move || back.recv_timeout(PATIENCE)).await.unwrap().unwrap();
}

async fn serve(ready: mpsc::Sender<()>, back: mpsc::Receiver<()>) {
    let folder = tempfile::tempdir().unwrap();
    let config = air_config(folder.path(), "");
    let (up, down) = wire::link([0; 32]);
    let air = Air::bind(&config, &mut Inherited::default(), up.clone()).unwrap();
    let counters = air.counters();
    let counted = counters.clone();
    tokio::spawn(async move {
        while let Some(incoming) = down.accept().await {
            tokio::spawn(far_side(incoming, counted.clone()));
        }
    });
    let known = "known.test".parse().unwrap();
    air.learn(&known, &["203.0.113.99".parse().unwrap()], std::time::Duration::from_secs(60));
    let served = air.serve(until_back(ready, back));
    tokio::time::timeout(PATIENCE, served).await.expect("it stops");
    assert_eq!(counters.http_hits.get(), 5);
    assert_eq!(counters.http_refused.get(), 2);
    assert_eq!(NOWHERE.load(SeqCst), 1, "it is remembered that the name means nothing");
}

/// Number of flows opened to `nowhere.test`.
static NOWHERE: AtomicUsize = AtomicUsize::new(0);

/// `true` once `shared.test` has been requested.
static SHARED: AtomicBool = AtomicBool::new(false);

/// `true` once `lame.test` has been requested.
static LAME: AtomicBool = AtomicBool::new(false);

/// Answers with the dialled host and the received request, as cacheable HTTP.
async fn far_side(incoming: Incoming, counters: Arc<Counters>) {
    let Carried::Stream(mut stream) = incoming.carries else { panic!("TCP was sent") };
    if incoming.target.host == Host::Name("shared.test".into()) {
        // Wait until another client requests the same. It has joined by then: between counting and
        // waiting, it does not yield to other tasks of this single-threaded runtime.
        let before = counters.http_requests.get();
        if !SHARED.swap(true, SeqCst) {
            until("another asks too", || counters.http_requests.get() > before).await;
        }
        return stream.reset(ResetCode::NameNotFound);
    }
    if incoming.target.host == Host::Ip(REFUSES.parse().unwrap()) {
        return stream.reset(ResetCode::Refused);
    }
    if incoming.target.host == Host::Name("nowhere.test".into()) {
        NOWHERE.fetch_add(1, SeqCst);
        stream.reset(ResetCode::NameNotFound);
        return;
    }
    if incoming.target.host == Host::Name("lame.test".into()) {
        // The ground's resolver times out; it is queried only once for a while.
        assert!(!LAME.swap(true, SeqCst), "it is asked for again");
        stream.reset(ResetCode::Timeout);
        return;
    }
    let mut said = vec![0; 4096];
    let length = stream.read(&mut said).await.unwrap();
    let said = String::from_utf8_lossy(&said[..length]);
    let body = format!("{} heard {}", incoming.target, said.lines().next().unwrap());
    let answer = if said.contains("HTTP/1.1\r\n") && !said.contains("Upgrade") {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    } else {
        format!("raw {body}")
    };
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// Response to `said` at `address`.
fn say(address: &str, said: &str) -> String {
    say_as("10.9.0.2", address, said)
}

/// Response to a client that stops sending after `said`.
fn say_and_end(address: &str, said: &str) -> String {
    let tcp = connected("10.9.0.2", address);
    (&tcp).write_all(said.as_bytes()).unwrap();
    tcp.shutdown(std::net::Shutdown::Write).unwrap();
    read_from(tcp)
}

/// Response to the passenger with the address `client`.
fn say_as(client: &str, address: &str, said: &str) -> String {
    let tcp = connected(client, address);
    (&tcp).write_all(said.as_bytes()).unwrap();
    read_from(tcp)
}

pub fn connected(client: &str, address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(client.parse().unwrap(), 0).into()).unwrap();
    socket.connect_timeout(&address.into(), PATIENCE).unwrap();
    let tcp = TcpStream::from(socket);
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp
}

pub fn read_from(mut tcp: TcpStream) -> String {
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    answer
}

/// An address where nothing listens.
const REFUSES: &str = "203.0.113.67";

fn get(address: &str, host: &str, path: &str) -> String {
    say(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

fn as_client() {
    names_and_addresses();
    invalid_and_unsafe_requests();
    invalidation();
    other_protocols();
}

/// Content belongs to the name if it is verified, and otherwise only to the requester.
fn names_and_addresses() {
    // A request that claims another server's name gets the content of the real name, and so do all
    // others.
    let evil = get("203.0.113.66:80", "shop.test", "/");
    assert!(evil.ends_with("shop.test:80 heard GET / HTTP/1.1"), "{evil}");
    let honest = get("198.51.100.7:80", "Shop.TEST", "/");
    assert!(
        honest.contains("; hit") && honest.ends_with("shop.test:80 heard GET / HTTP/1.1"),
        "{honest}"
    );
    let with_port = get("198.51.100.7:80", "shop.test:80", "/");
    assert!(with_port.contains("; hit"), "{with_port}");

    // If the name does not exist, or its resolution fails, the response of the address is only for
    // the requester.
    for name in ["nowhere.test", "nowhere.test", "lame.test", "lame.test"] {
        let answer = get("203.0.113.66:80", name, "/");
        assert!(answer.ends_with("203.0.113.66:80 heard GET / HTTP/1.1"), "{answer}");
        assert!(!answer.contains("; hit") && !answer.contains("stored"), "{answer}");
    }

    // An empty response is also only for that requester: others who waited try their own address.
    let first = std::thread::spawn(|| get("203.0.113.67:80", "shared.test", "/"));
    while !SHARED.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let other = get("203.0.113.66:80", "shared.test", "/");
    assert!(other.ends_with("203.0.113.66:80 heard GET / HTTP/1.1"), "{other}");
    assert!(first.join().unwrap().starts_with("HTTP/1.1 502 "));

    // An address in Host is accepted only if it equals the destination.
    for hit in [false, true] {
        let answer = get("198.51.100.7:80", "198.51.100.7", "/x");
        assert_eq!(answer.contains("; hit"), hit, "{answer}");
    }
    for host in ["198.51.100.7", "shop.test:8080", ""] {
        for _ in 0..2 {
            let answer = get("203.0.113.66:80", host, "/y");
            assert!(answer.ends_with("203.0.113.66:80 heard GET /y HTTP/1.1"), "{host}: {answer}");
            assert!(answer.contains("cache-status: bentpipe; fwd=bypass\r\n"), "{host}: {answer}");
        }
    }
}

fn invalid_and_unsafe_requests() {
    // An invalid method; and a client that ends with its request.
    let answer = say("203.0.113.66:80", "GE(T / HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let answer = say_and_end("203.0.113.66:80", "GET /end HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    assert!(answer.ends_with("shop.test:80 heard GET /end HTTP/1.1"), "{answer}");

    // Two names in one request, and ambiguous framing.
    let two = "GET http://bank.test/ HTTP/1.1\r\nHost: shop.test\r\n\r\n";
    assert!(say("203.0.113.66:80", two).starts_with("HTTP/1.1 400 "));
    let both = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(say("203.0.113.66:80", both).starts_with("HTTP/1.1 400 "));

    // A request with an unsafe method goes to the address that was dialled.
    let post =
        "POST /z HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let answer = say("203.0.113.66:80", post);
    assert!(answer.ends_with("203.0.113.66:80 heard POST /z HTTP/1.1"), "{answer}");
}

/// An unverified address cannot invalidate stored objects for others; the sender itself sees the
/// effect.
fn invalidation() {
    let post =
        "POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    say("203.0.113.66:80", post);
    let again = "GET / HTTP/1.1\r\nHost: Shop.test.\r\nConnection: close\r\n\r\n";
    let other = say_as("10.9.0.3", "198.51.100.7:80", again);
    assert!(other.contains("; hit"), "{other}");
    let own = say("198.51.100.7:80", again);
    assert!(own.contains("fwd=request") && own.contains("shop.test:80 heard GET /"), "{own}");
    let own = say("198.51.100.7:80", again);
    assert!(own.contains("; hit"), "{own}");
    // An address that our own resolver returned for the name is trusted for everyone.
    get("203.0.113.99:80", "known.test", "/");
    say("203.0.113.99:80", &post.replace("shop.test", "known.test"));
    let again = again.replace("Shop", "known");
    let other = say_as("10.9.0.3", "203.0.113.99:80", &again);
    assert!(other.contains("fwd=stale"), "{other}");
}

/// Data that is not HTTP, or an upgrade, passes unchanged; so do all other ports.
fn other_protocols() {
    for said in [
        "SSH-2.0-x\r\n",
        "\u{16}\u{3}\u{1}\u{2}",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let answer = say("198.51.100.7:80", said);
        assert!(answer.starts_with("raw 198.51.100.7:80 heard "), "{answer}");
    }
    let other = get("198.51.100.7:8080", "shop.test", "/");
    assert!(other.contains("198.51.100.7:8080 heard") && !other.contains("via"), "{other}");
}
