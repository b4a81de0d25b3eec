//! Outages of the link, and silence without an outage, on a paused clock that advances one second
//! at a time.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::transport::{Acceptor, Carried, Reach};
use bentpipe_net::Inherited;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::bench::{
    Bench, LOOPBACK, read_all, read_exactly, settled, soon, start, through_socks, until,
};
use crate::tproxy::as_root;
use crate::web_tproxy::{air_config, connected, in_gateway, read_from, until_back};
use crate::wire;

const SIZE: usize = 20_000;

/// An origin that reads a body of [`SIZE`] bytes, with or without a header, and responds when
/// permitted.
struct Origin {
    address: SocketAddr,
    read: Arc<AtomicUsize>,
    may_answer: Arc<Notify>,
}

impl Origin {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (read, may_answer) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
        let origin = Self { address, read: read.clone(), may_answer: may_answer.clone() };
        tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                let (read, may_answer) = (read.clone(), may_answer.clone());
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while bytes.iter().filter(|byte| **byte == b'x').count() < SIZE {
                        let before = bytes.len();
                        if tcp.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                            return;
                        }
                        read.fetch_add(bytes.len() - before, SeqCst);
                    }
                    may_answer.notified().await;
                    // Wake the next waiter too.
                    may_answer.notify_one();
                    let answer = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhere";
                    let _ = tcp.write_all(answer.as_bytes()).await;
                });
            }
        });
        origin
    }
}

async fn pass(seconds: u64) {
    tokio::time::pause();
    for _ in 0..seconds {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    settled().await;
    tokio::time::resume();
}

/// A client that has sent the header of an upload, in one of four ways.
async fn upload(bench: &Bench, to: SocketAddr, way: usize) -> TcpStream {
    match way % 4 {
        0 => through_socks(bench, to).await,
        1 => {
            let mut tcp = TcpStream::connect(bench.http).await.unwrap();
            let connect = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
            tcp.write_all(connect.as_bytes()).await.unwrap();
            read_exactly(&mut tcp, 1).await;
            let mut rest = Vec::new();
            while !rest.ends_with(b"\r\n\r\n") {
                rest.push(tcp.read_u8().await.unwrap());
            }
            tcp
        }
        way => {
            let mut tcp = TcpStream::connect(bench.http).await.unwrap();
            let method = if way == 2 { "POST" } else { "PUT" };
            let head = format!(
                "{method} http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: {SIZE}\r\n\
                 Connection: close\r\n\r\n"
            );
            tcp.write_all(head.as_bytes()).await.unwrap();
            tcp
        }
    }
}

#[tokio::test]
async fn uploads_without_an_answer_outlive_an_outage_of_ten_minutes() {
    for cache in ["", "http-cache = {}"] {
        let bench = start(cache, LOOPBACK);
        let origin = Origin::start().await;
        let mut clients = Vec::new();
        for way in 0..20 {
            let mut tcp = upload(&bench, origin.address, way).await;
            tcp.write_all(&[b'x'; SIZE / 2]).await.unwrap();
            clients.push(tcp);
        }
        until("half of each is there", || origin.read.load(SeqCst) >= 20 * SIZE / 2).await;
        bench.up.set_reach(Reach::Out);
        pass(600).await;
        bench.up.set_reach(Reach::Up);
        // After that, the response may take the usual time.
        for tcp in &mut clients {
            tcp.write_all(&[b'x'; SIZE / 2]).await.unwrap();
        }
        until("all of each is there", || origin.read.load(SeqCst) >= 20 * SIZE).await;
        pass(100).await;
        origin.may_answer.notify_one();
        let mut answered = 0;
        for mut tcp in clients {
            let answer = read_all(&mut tcp).await.unwrap_or_default();
            answered += usize::from(answer.ends_with(b"here"));
        }
        assert_eq!(answered, 20, "{cache}");
    }
}

#[tokio::test]
async fn an_upload_may_take_longer_than_an_answer_while_bytes_move() {
    for cache in ["", "http-cache = {}"] {
        let bench = start(cache, LOOPBACK);
        let origin = Origin::start().await;
        let mut tcp = upload(&bench, origin.address, 2).await;
        for part in 1..=5 {
            tcp.write_all(&[b'x'; SIZE / 5]).await.unwrap();
            until("it is there", || origin.read.load(SeqCst) >= part * SIZE / 5).await;
            pass(100).await;
        }
        origin.may_answer.notify_one();
        let answer = read_all(&mut tcp).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    }
}

/// On port 80, with an outage during the upload.
#[test]
fn an_intercepted_upload_may_take_longer_than_an_answer_too() {
    as_root("outage::an_intercepted_upload_may_take_longer_than_an_answer_too", || {
        in_gateway(as_slow_client, |ready, back| Box::pin(serve_slowly(ready, back)));
    });
}

const PARTS: usize = 5;

/// Number of parts that the client may have sent by now.
static SENT_PARTS: AtomicUsize = AtomicUsize::new(0);

fn as_slow_client() {
    let mut tcp = connected("10.9.0.2", "203.0.113.66:80");
    let head = format!(
        "PUT /a HTTP/1.1\r\nHost: 203.0.113.66\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n"
    );
    tcp.write_all(head.as_bytes()).unwrap();
    for part in 1..=PARTS {
        while SENT_PARTS.load(SeqCst) < part {
            std::thread::sleep(Duration::from_millis(1));
        }
        tcp.write_all(&[b'x'; SIZE / PARTS]).unwrap();
    }
    let answer = read_from(tcp);
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

async fn serve_slowly(ready: mpsc::Sender<()>, back: mpsc::Receiver<()>) {
    let folder = tempfile::tempdir().unwrap();
    let config = air_config(folder.path(), "");
    let (up, down) = wire::link([0; 32]);
    let air = Air::bind(&config, &mut Inherited::default(), up.clone()).unwrap();
    tokio::spawn(async move {
        let incoming = down.accept().await.unwrap();
        let Carried::Stream(mut stream) = incoming.carries else { panic!("TCP was sent") };
        let mut bytes = Vec::new();
        for part in 1..=PARTS {
            SENT_PARTS.store(part, SeqCst);
            while bytes.iter().filter(|byte| **byte == b'x').count() < part * SIZE / PARTS {
                assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
            }
            if part == PARTS / 2 {
                up.set_reach(Reach::Out);
                pass(600).await;
                up.set_reach(Reach::Up);
            }
            pass(100).await;
        }
        let answer = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    air.serve(until_back(ready, back)).await;
}

#[tokio::test]
async fn an_origin_that_says_nothing_is_given_up_after_the_end_of_the_request() {
    for cache in ["", "http-cache = {}"] {
        let bench = start(cache, LOOPBACK);
        let origin = Origin::start().await;
        let mut tcp = upload(&bench, origin.address, 3).await;
        tcp.write_all(&[b'x'; SIZE]).await.unwrap();
        until("it is there", || origin.read.load(SeqCst) >= SIZE).await;
        pass(170).await;
        assert_eq!(bench.air.http_failed.get(), 0);
        pass(20).await;
        let answer = String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 504 "), "{cache}: {answer}");
    }
}

#[tokio::test]
async fn an_outage_that_lasts_is_told_to_those_who_came_in_it() {
    for cache in ["", "http-cache = {}"] {
        let bench = start(cache, LOOPBACK);
        let origin = Origin::start().await;
        let to = origin.address;
        let mut before = upload(&bench, to, 2).await;
        before.write_all(&[b'x'; SIZE]).await.unwrap();
        until("it is there", || origin.read.load(SeqCst) >= SIZE).await;
        bench.up.set_reach(Reach::Out);
        let opened = bench.up.opened().len();
        let mut during = Vec::new();
        for way in 0..4 {
            during.push(upload(&bench, to, way).await);
        }
        let mut get = TcpStream::connect(bench.http).await.unwrap();
        let request = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n");
        get.write_all(request.as_bytes()).await.unwrap();
        for tcp in &mut during {
            tcp.write_all(&[b'x'; SIZE / 2]).await.unwrap();
        }
        until("all are open", || bench.up.opened().len() == opened + 5).await;
        pass(15).await;
        assert_eq!(bench.air.http_failed.get(), 0, "a fade may end");
        pass(10).await;
        for (way, mut tcp) in during.into_iter().chain([get]).enumerate() {
            let mut answer = Vec::new();
            let ended = soon("an end", tcp.read_to_end(&mut answer)).await;
            let answer = String::from_utf8_lossy(&answer);
            match way {
                0 | 1 => assert!(ended.is_err(), "a reset"),
                _ => assert!(answer.starts_with("HTTP/1.1 503 "), "{way}, {cache}: {answer}"),
            }
        }
        // The flow that was open before continues.
        bench.up.set_reach(Reach::Up);
        origin.may_answer.notify_one();
        let answer = read_all(&mut before).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn an_outage_that_lasts_is_told_to_those_who_come() {
    for cache in ["", "http-cache = {}"] {
        let bench = start(cache, LOOPBACK);
        let origin = Origin::start().await;
        let mut waits = upload(&bench, origin.address, 2).await;
        waits.write_all(&[b'x'; SIZE]).await.unwrap();
        until("it is there", || origin.read.load(SeqCst) >= SIZE).await;
        bench.up.set_reach(Reach::Out);
        pass(21).await;
        let to = origin.address;
        for request in
            [format!("GET http://{to}/"), format!("POST http://{to}/"), format!("CONNECT {to}")]
        {
            let mut tcp = TcpStream::connect(bench.http).await.unwrap();
            let request = format!("{request} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
            tcp.write_all(request.as_bytes()).await.unwrap();
            let answer = String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 "), "{request}: {answer}");
            assert!(answer.contains("retry-after: 30\r\n"), "{request}: {answer}");
        }
        let mut socks = TcpStream::connect(bench.socks).await.unwrap();
        socks.write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50").await.unwrap();
        let reply = read_all(&mut socks).await.unwrap();
        assert_eq!(reply[2..4], [5, 3], "the network is unreachable");
        // The earlier client continues.
        bench.up.set_reach(Reach::Up);
        origin.may_answer.notify_one();
        let answer = read_all(&mut waits).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    }
}
