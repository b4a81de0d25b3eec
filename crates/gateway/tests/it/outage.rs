//! Outages of the link, and silence that is none: on a paused clock, moved a second at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bentpipe_gateway::far::Reach;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::bench::{Bench, LOOPBACK, read_all, read_exactly, settled, start, through_socks, until};

const SIZE: usize = 20_000;

/// An origin that reads a body of [`SIZE`] bytes, with or without a head before it, and answers when it may.
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
                    // So that another may be told after this one.
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

/// A client that has sent the head of an upload, by one of four ways.
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
        // The answer may take as long as ever after that.
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
        // Who came before goes on.
        bench.up.set_reach(Reach::Up);
        origin.may_answer.notify_one();
        let answer = read_all(&mut waits).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    }
}
