//! The HTTP cache on intercepted connections, with a real kernel; see `tproxy.rs`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::far::{Arrivals, Carried, Incoming};
use bentpipe_gateway::net::Inherited;
use bentpipe_link::{Host, ResetCode};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::until;
use crate::tproxy::{PATIENCE, as_root, new_network, sh};
use crate::wire;

#[test]
fn what_is_stored_is_what_the_name_means() {
    as_root("web_tproxy::what_is_stored_is_what_the_name_means", in_gateway);
}

fn in_gateway() {
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

async fn serve(ready: mpsc::Sender<()>, back: mpsc::Receiver<()>) {
    let folder = tempfile::tempdir().unwrap();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(folder.path().join("a.key"), key).unwrap();
    let text = format!(
        "http-cache = {{}}\n\
         [link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n\
         [listen]\ntproxy = {{ port = 1081, interfaces = [\"cabin0\"] }}\n"
    );
    let config = AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap();
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
    let stop = async move {
        ready.send(()).unwrap();
        tokio::task::spawn_blocking(move || back.recv_timeout(PATIENCE)).await.unwrap().unwrap();
    };
    tokio::time::timeout(PATIENCE, air.serve(stop)).await.expect("it stops");
    assert_eq!(counters.http_hits.get(), 5);
    assert_eq!(counters.http_refused.get(), 1);
}

/// Whether `shared.test` has been asked for.
static SHARED: AtomicBool = AtomicBool::new(false);

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
        stream.reset(ResetCode::NameNotFound);
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

/// What comes back for `said` to `address`.
fn say(address: &str, said: &str) -> String {
    say_as("10.9.0.2", address, said)
}

/// The same to the passenger with the address `client`.
fn say_as(client: &str, address: &str, said: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(client.parse().unwrap(), 0).into()).unwrap();
    socket.connect_timeout(&address.into(), PATIENCE).unwrap();
    let mut tcp = TcpStream::from(socket);
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp.write_all(said.as_bytes()).unwrap();
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

    // A name that means nothing: what the address says is for the one who asked.
    for _ in 0..2 {
        let answer = get("203.0.113.66:80", "nowhere.test", "/");
        assert!(answer.ends_with("203.0.113.66:80 heard GET / HTTP/1.1"), "{answer}");
        assert!(!answer.contains("; hit") && !answer.contains("stored"), "{answer}");
    }

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
