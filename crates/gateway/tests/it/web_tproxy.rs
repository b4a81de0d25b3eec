//! The HTTP cache on intercepted connections, with a real kernel; see `tproxy.rs`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::far::{Arrivals, Carried, Incoming};
use bentpipe_gateway::ground::Ground;
use bentpipe_gateway::net::Inherited;
use bentpipe_link::{Host, ResetCode, Service};
use bentpipe_prefetch::wire::single::VERSION_SINGLE;
use futures_util::future::BoxFuture;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::{LOOPBACK, until};
use crate::tproxy::{PATIENCE, as_root, new_network, sh};
use crate::web::{head, whole};
use crate::wire;

#[test]
fn what_is_stored_is_what_the_name_means() {
    as_root("web_tproxy::what_is_stored_is_what_the_name_means", || {
        in_gateway(as_client, |ready, back| Box::pin(serve(ready, back)));
    });
}

#[test]
fn what_is_asked_on_port_80_crosses_packed() {
    as_root("web_tproxy::what_is_asked_on_port_80_crosses_packed", || {
        in_gateway(as_asking_client, |ready, back| Box::pin(serve_packed(ready, back)));
    });
}

/// The air's side of a test, which says when it is ready and hears when the client is.
type Serve = fn(mpsc::Sender<()>, mpsc::Receiver<()>) -> BoxFuture<'static, ()>;

fn in_gateway(as_client: fn(), serve: Serve) {
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

/// An air gateway's config, with the files for it in `folder`.
fn air_config(folder: &Path, more: &str) -> AirConfig {
    std::fs::write(folder.join("a.key"), KEY).unwrap();
    let text = format!(
        "{more}[http-cache]\ncache-status = true\n\
         [link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{KEY}\"\nrate = \"1 Mbit/s\"\n\
         [listen]\ntproxy = {{ port = 1081, interfaces = [\"cabin0\"] }}\n"
    );
    AirConfig::parse(&folder.join("air.toml"), &text).unwrap()
}

/// Says that it is `ready`, and waits for the client.
async fn until_back(ready: mpsc::Sender<()>, back: mpsc::Receiver<()>) {
    ready.send(()).unwrap();
    tokio::task::spawn_blocking(move || back.recv_timeout(PATIENCE)).await.unwrap().unwrap();
}

/// With a ground gateway, whose `shop.test` is an origin here.
async fn serve_packed(ready: mpsc::Sender<()>, back: mpsc::Receiver<()>) {
    let folder = tempfile::tempdir().unwrap();
    let config = air_config(folder.path(), "[split-http]\n");
    let text = format!(
        "{LOOPBACK}\n[split-http]\n[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{KEY}\"\nrate = \"2 Mbit/s\"\n\
         [dns]\nservers = [\"127.0.0.1:9\"]\n[hosts]\n\"shop.test\" = \"127.0.0.1\"\n"
    );
    let ground = GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap();
    let (up, down) = wire::link(*ground.aircraft[0].key().as_bytes());
    let (air, ground) =
        (Air::bind(&config, &mut Inherited::default(), up.clone()).unwrap(), Ground::new(&ground));
    let counters = air.counters();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:80").await.unwrap();
    let asked = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let asked = head(&mut tcp).await.unwrap();
        tcp.write_all(whole("", "hello").as_bytes()).await.unwrap();
        asked
    });
    let serving = tokio::spawn(async move {
        ground.unwrap().serve(vec![down], std::future::pending()).await;
    });
    let served = air.serve(until_back(ready, back));
    tokio::time::timeout(PATIENCE, served).await.expect("it stops");
    serving.abort();
    let opened = up.opened();
    assert_eq!(opened.len(), 1, "{opened:?}");
    assert_eq!(opened[0].target.host, Host::Service(Service::Pages));
    assert_eq!(opened[0].first[0], VERSION_SINGLE);
    assert_eq!(counters.http_heads_packed.get(), 1);
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("GET /a.png HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("host: shop.test\r\n"), "{asked}");
    assert!(opened[0].first.len() < asked.len(), "{} of {}", opened[0].first.len(), asked.len());
}

fn as_asking_client() {
    let answer = get("198.51.100.7:80", "shop.test", "/a.png");
    assert!(answer.ends_with("hello"), "{answer}");
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

/// Flows that were opened to `nowhere.test`.
static NOWHERE: AtomicUsize = AtomicUsize::new(0);

/// `true` once `shared.test` has been requested.
static SHARED: AtomicBool = AtomicBool::new(false);

/// `lame.test` has been asked for.
static LAME: AtomicBool = AtomicBool::new(false);

/// Says who was dialled and what was said, as HTTP that may be stored.
async fn far_side(incoming: Incoming, counters: Arc<Counters>) {
    let Carried::Stream(mut stream) = incoming.carries else { panic!("TCP was sent") };
    if incoming.target.host == Host::Name("shared.test".into()) {
        // Until another has come who wants the same. It has joined by then: from where it is counted to
        // where it waits nothing lets another task of this runtime, which has one thread, have its turn.
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
        // The ground's resolver is not answered; it is asked once for a while.
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

/// Answer to `said` at `address`.
fn say(address: &str, said: &str) -> String {
    say_as("10.9.0.2", address, said)
}

/// The same from a client that says no more.
fn say_and_end(address: &str, said: &str) -> String {
    let tcp = connected("10.9.0.2", address);
    (&tcp).write_all(said.as_bytes()).unwrap();
    tcp.shutdown(std::net::Shutdown::Write).unwrap();
    read_from(tcp)
}

/// The same to the passenger with the address `client`.
fn say_as(client: &str, address: &str, said: &str) -> String {
    let tcp = connected(client, address);
    (&tcp).write_all(said.as_bytes()).unwrap();
    read_from(tcp)
}

fn connected(client: &str, address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(client.parse().unwrap(), 0).into()).unwrap();
    socket.connect_timeout(&address.into(), PATIENCE).unwrap();
    let tcp = TcpStream::from(socket);
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp
}

fn read_from(mut tcp: TcpStream) -> String {
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    answer
}

/// An address at which nothing listens.
const REFUSES: &str = "203.0.113.67";

fn get(address: &str, host: &str, path: &str) -> String {
    say(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

fn as_client() {
    // Whoever says that another server is this one gets what the name means, and so do all others.
    let evil = get("203.0.113.66:80", "shop.test", "/");
    assert!(evil.ends_with("shop.test:80 heard GET / HTTP/1.1"), "{evil}");
    let honest = get("198.51.100.7:80", "Shop.TEST", "/");
    assert!(
        honest.contains("; hit") && honest.ends_with("shop.test:80 heard GET / HTTP/1.1"),
        "{honest}"
    );
    let with_port = get("198.51.100.7:80", "shop.test:80", "/");
    assert!(with_port.contains("; hit"), "{with_port}");

    // A name that means nothing, or of which nobody says what: what the address says is for the one who asked.
    for name in ["nowhere.test", "nowhere.test", "lame.test", "lame.test"] {
        let answer = get("203.0.113.66:80", name, "/");
        assert!(answer.ends_with("203.0.113.66:80 heard GET / HTTP/1.1"), "{answer}");
        assert!(!answer.contains("; hit") && !answer.contains("stored"), "{answer}");
    }

    // A method that is none; and a client that ends with its request.
    let answer = say("203.0.113.66:80", "GE(T / HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let answer = say_and_end("203.0.113.66:80", "GET /end HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    assert!(answer.ends_with("shop.test:80 heard GET /end HTTP/1.1"), "{answer}");

    // And that it says nothing is for that one too: others who have waited try their own.
    let first = std::thread::spawn(|| get("203.0.113.67:80", "shared.test", "/"));
    while !SHARED.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let other = get("203.0.113.66:80", "shared.test", "/");
    assert!(other.ends_with("203.0.113.66:80 heard GET / HTTP/1.1"), "{other}");
    assert!(first.join().unwrap().starts_with("HTTP/1.1 502 "));

    // An address in Host is believed only if it is the one.
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

    // Two names in one request, and framing in two ways.
    let two = "GET http://bank.test/ HTTP/1.1\r\nHost: shop.test\r\n\r\n";
    assert!(say("203.0.113.66:80", two).starts_with("HTTP/1.1 400 "));
    let both = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(say("203.0.113.66:80", both).starts_with("HTTP/1.1 400 "));

    // What is sent goes to the address that was dialled.
    let post =
        "POST /z HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let answer = say("203.0.113.66:80", post);
    assert!(answer.ends_with("203.0.113.66:80 heard POST /z HTTP/1.1"), "{answer}");

    // What an address says that nobody has proven makes nobody else lose what is stored; who has sent
    // something there sees what that did.
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
    // What our own resolver has said to be the name's is believed for everybody.
    get("203.0.113.99:80", "known.test", "/");
    say("203.0.113.99:80", &post.replace("shop.test", "known.test"));
    let again = again.replace("Shop", "known");
    let other = say_as("10.9.0.3", "203.0.113.99:80", &again);
    assert!(other.contains("fwd=stale"), "{other}");

    // What is no HTTP, or wants to be something else, passes untouched; so do all other ports.
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
