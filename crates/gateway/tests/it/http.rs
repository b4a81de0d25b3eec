use std::net::SocketAddr;

use bentpipe_gateway::transport::Reach;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::{
    Bench, LOOPBACK, echo, echoes, expect_reset, free_address, read_all, read_exactly, soon, start,
};

const CONNECTED: &str = "HTTP/1.1 200 OK\r\n";

async fn client(bench: &Bench, request: &str) -> TcpStream {
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    tcp.write_all(request.as_bytes()).await.unwrap();
    tcp
}

/// The whole response to a request after which the client stops sending.
async fn answer(bench: &Bench, request: &str) -> String {
    let mut tcp = client(bench, request).await;
    tcp.shutdown().await.unwrap();
    String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap()
}

async fn head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon("a head", tcp.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// An origin that gives `response` to one request and returns that request.
async fn origin(response: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut asked = head(&mut tcp).await;
        if asked.contains("transfer-encoding: chunked") {
            while !asked.ends_with("\r\n0\r\n\r\n") {
                asked.push(char::from(tcp.read_u8().await.unwrap()));
            }
        } else if asked.starts_with("POST") {
            let mut body = [0; 4];
            tcp.read_exact(&mut body).await.unwrap();
            asked.push_str(std::str::from_utf8(&body).unwrap());
        }
        tcp.write_all(response.as_bytes()).await.unwrap();
        asked
    });
    (address, asked)
}

#[tokio::test]
async fn connect_carries_anything() {
    let bench = start("", LOOPBACK);
    let port = echo("127.0.0.1:0").await.port();
    let request = format!("CONNECT origin.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut tcp = client(&bench, &request).await;
    assert!(head(&mut tcp).await.starts_with(CONNECTED));
    echoes(tcp, &[0xff; 100_000]).await;
    // Also data that directly follows the header.
    let mut tcp = client(&bench, &format!("{request}early")).await;
    assert!(head(&mut tcp).await.starts_with(CONNECTED));
    assert_eq!(read_exactly(&mut tcp, 5).await, b"early");
}

#[tokio::test]
async fn connect_takes_an_address_of_ipv6_in_brackets() {
    let bench = start("", LOOPBACK);
    let to = echo("[::1]:0").await;
    for authority in [to.to_string(), format!("[0:0:0:0:0:0:0:1]:{}", to.port())] {
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        let mut tcp = client(&bench, &request).await;
        assert!(head(&mut tcp).await.starts_with(CONNECTED));
        echoes(tcp, b"over IPv6").await;
    }
    assert!(bench.up.opened().iter().all(|open| open.target == to.to_string().parse().unwrap()));
    for wrong in ["::1:443", "[::1]", "[::1]:", "[::1:443", "[2001:db8::g]:443"] {
        let answer = answer(&bench, &format!("CONNECT {wrong} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{wrong}: {answer}");
    }
    assert_eq!(bench.up.opened().len(), 2);
}

#[tokio::test]
async fn a_failed_dial_after_connect_is_a_reset() {
    let bench = start("", LOOPBACK);
    let to = free_address();
    let mut tcp = client(&bench, &format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
    expect_reset(&mut tcp).await;
}

#[tokio::test]
async fn absolute_form_reaches_the_origin_as_it_expects() {
    let bench = start("", LOOPBACK);
    let (to, asked) = origin(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: x\r\nX-A: b\r\nConnection: close\r\n\r\nhi",
    )
    .await;
    let request = format!(
        "GET http://me:pw@origin.test:{0}/a?b HTTP/1.1\r\nHost: wrong.test\r\nAccept: */*\r\n\
         Proxy-Connection: keep-alive\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n",
        to.port()
    );
    let answer = answer(&bench, &request).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhi"),
        "{answer}"
    );
    assert!(answer.contains("via: 1.1 bentpipe\r\n") && answer.contains("x-a: b\r\n"), "{answer}");
    assert!(!answer.contains("keep-alive: x"), "{answer}");
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("GET /a?b HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("host: origin.test:{}\r\n", to.port())), "{asked}");
    assert!(
        asked.contains("via: 1.1 bentpipe\r\n") && asked.contains("accept: */*\r\n"),
        "{asked}"
    );
    assert!(!asked.contains("x-hop") && !asked.contains("proxy-connection"), "{asked}");
    assert!(!asked.contains("pw"), "{asked}");
    let first = bench.up.opened()[0].first.clone();
    assert_eq!(first, asked.as_bytes(), "the whole request travels with the opening");
}

#[tokio::test]
async fn bodies_stream_in_either_framing() {
    let bench = start("", LOOPBACK);
    let reply = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
    for framing in [
        "Content-Length: 4\r\n\r\nbody",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    ] {
        let (to, asked) = origin(reply).await;
        let request = format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{framing}");
        let answer = answer(&bench, &request).await;
        assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
        assert!(asked.await.unwrap().contains("body"));
    }
}

#[tokio::test]
async fn one_client_connection_serves_many_requests() {
    let bench = start("", LOOPBACK);
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    for _ in 0..3 {
        let (to, _asked) = origin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await;
        let request = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n");
        tcp.write_all(request.as_bytes()).await.unwrap();
        assert!(head(&mut tcp).await.starts_with("HTTP/1.1 200 OK\r\n"));
        assert_eq!(read_exactly(&mut tcp, 2).await, b"hi");
    }
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    tokio::time::resume();
    assert_eq!(read_all(&mut tcp).await.unwrap(), b"");
    assert_eq!(bench.air.garbage.get(), 0);
}

#[tokio::test]
async fn failures_are_answered_with_their_reason() {
    let bench = start("", LOOPBACK);
    let get =
        async |url: String| answer(&bench, &format!("GET {url} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    let to = free_address();
    let refused = get(format!("http://{to}/")).await;
    assert!(refused.starts_with("HTTP/1.1 502 "), "{refused}");
    assert!(refused.contains("proxy-status: bentpipe; error=connection_refused\r\n"), "{refused}");
    let why = format!("{to} gave no answer: the destination refused the connection.\n");
    assert!(refused.ends_with(&why), "{refused}");
    let forbidden = get("http://10.0.0.1/".into()).await;
    assert!(forbidden.contains("error=destination_ip_prohibited"), "{forbidden}");
    assert!(get("/".into()).await.contains("This is a proxy"));
    assert!(get("https://example.net/".into()).await.contains("use CONNECT"));
    let portless = answer(&bench, "CONNECT example.net HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(portless.starts_with("HTTP/1.1 400 "), "{portless}");
}

#[tokio::test]
async fn a_link_that_is_down_is_not_the_destinations_fault() {
    const DOWN: &str = "The radio link to the ground is not up: try again in a while.\n";
    let bench = start("limits = { answer-timeout = \"1 s\" }", LOOPBACK);
    bench.up.set_reach(Reach::Down);
    let to = echo("127.0.0.1:0").await;
    for head in [format!("CONNECT {to}"), format!("GET http://{to}/")] {
        let mut tcp = client(&bench, &format!("{head} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        crate::bench::until("it was accepted", || bench.air.accepted.get() > 0).await;
        tokio::time::pause();
        tcp.shutdown().await.unwrap();
        let mut answer = String::new();
        // The paused clock skips the wait for a link.
        tcp.read_to_string(&mut answer).await.unwrap();
        tokio::time::resume();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with(DOWN), "{answer}");
        assert!(answer.contains("error=destination_unavailable"), "{answer}");
    }
    assert!(bench.up.opened().is_empty());
    // The link returns while a client waits.
    let mut tcp = client(&bench, &format!("CONNECT {to} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    bench.up.set_reach(Reach::Up);
    assert!(head(&mut tcp).await.starts_with(CONNECTED));
}

#[tokio::test]
async fn credentials_are_asked_for() {
    let bench = start("auth = { username = \"crew\", password = \"w\" }", LOOPBACK);
    let (to, _asked) = origin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await;
    let request = |more: &str| format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{more}\r\n");
    let without = answer(&bench, &request("")).await;
    assert!(without.starts_with("HTTP/1.1 407 ") && without.contains("proxy-authenticate: Basic"));
    let with = answer(&bench, &request("Proxy-Authorization: Basic Y3Jldzp3\r\n")).await;
    assert!(with.ends_with("hi"), "{with}");
    assert_eq!(bench.air.unauthorized.get(), 1);
}

#[tokio::test]
async fn garbage_and_half_heads_are_refused() {
    let bench = start("limits = { handshake-timeout = \"10 s\" }", LOOPBACK);
    let refused = answer(&bench, "\u{16}\u{3}\u{1}\r\n\r\n").await;
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 400 "), "{refused}");
    let mut slow = client(&bench, "GET http://x/ HTTP/1.1\r\nHo").await;
    crate::bench::until("it was accepted", || bench.air.accepted.get() == 2).await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    tokio::time::resume();
    let _ = read_all(&mut slow).await;
    crate::bench::until("both were counted", || bench.air.garbage.get() == 2).await;
}
