//! Attacks of clients and origins on the HTTP cache behind the proxy: names in many spellings,
//! invalid responses, and endless headers.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::{Bench, LOOPBACK, read_all, soon, start};
use crate::web::{Site, head, whole};

const CACHE: &str = "http-cache = { cache-status = true }";
const FRESH: &str = "Cache-Control: max-age=60\r\n";

/// Response to `said`, a request that ends its connection.
async fn say(bench: &Bench, said: &str) -> String {
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    tcp.write_all(said.as_bytes()).await.unwrap();
    String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap()
}

async fn get(bench: &Bench, authority: &str, path: &str) -> String {
    let request =
        format!("GET http://{authority}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    say(bench, &request).await
}

#[tokio::test]
async fn a_name_is_one_key_and_one_host_however_it_is_written() {
    let bench = start(CACHE, LOOPBACK);
    let site = Site::start(|_| whole(FRESH, "hello")).await;
    let port = site.address.port();
    for (n, name) in
        ["ORIGIN.test.", "origin.test", "u:p@Origin.TEST", "origin.TEST."].iter().enumerate()
    {
        let answer = get(&bench, &format!("{name}:{port}"), "/a").await;
        assert_eq!(answer.contains("; hit"), n > 0, "{name}: {answer}");
    }
    let asked = site.asked.lock().clone();
    assert_eq!(asked.len(), 1);
    // A client's own spelling does not appear in anyone's response.
    assert!(asked[0].contains(&format!("host: origin.test:{port}\r\n")), "{}", asked[0]);
}

#[tokio::test]
async fn an_uncacheable_response_names_its_reason() {
    let bench = start(CACHE, LOOPBACK);
    let site = Site::start(|_| whole(FRESH, "hello")).await;
    let to = site.address;
    let post = format!(
        "POST http://{to}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let answer = say(&bench, &post).await;
    assert!(answer.contains("cache-status: bentpipe; fwd=method\r\n"), "{answer}");
}

/// An origin that sends `answer` to every request, and then waits for its client to close.
async fn origin(answer: Vec<u8>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                while head(&mut tcp).await.is_some() {
                    if tcp.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn answers_that_are_none_are_not_passed_on() {
    let bench = start(CACHE, LOOPBACK);
    let long =
        format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(200_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "X: a\r\n".repeat(1000));
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nsmuggled",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\nX\n\n",
        "SSH-2.0-x\r\n\r\n",
        &long,
        &many,
    ] {
        let to = origin(answer.as_bytes().to_vec()).await;
        let got = soon("an answer", get(&bench, &to.to_string(), "/")).await;
        let shown = &answer[..answer.len().min(80)];
        assert!(got.starts_with("HTTP/1.1 502 "), "{shown:?}: {got}");
        assert!(!got.contains("smuggled"), "{shown:?}: {got}");
    }
    assert_eq!(bench.air.http_hits.get(), 0);
}

#[tokio::test]
async fn interim_answers_are_waited_through_and_bounded_by_time_alone() {
    let bench = start(CACHE, LOOPBACK);
    let mut said = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n".repeat(20_000);
    said += &whole(FRESH, "hello");
    let to = origin(said.into_bytes()).await;
    let got = soon("an answer", get(&bench, &to.to_string(), "/")).await;
    // Responses that the client does not read in time are dropped.
    let given = got.matches("HTTP/1.1 103 Early Hints\r\n").count();
    assert!((1..20_000).contains(&given), "{given}");
    let (_, answer) = got.split_once("HTTP/1.1 200 OK\r\n").unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn trailers_and_what_follows_an_answer_are_nobodys() {
    let bench = start(CACHE, LOOPBACK);
    let said = format!(
        "HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\nTrailer: Set-Cookie\r\n\r\n\
         5\r\nhello\r\n0\r\nSet-Cookie: id=1\r\n\r\n{}",
        whole(FRESH, "another's")
    );
    let to = origin(said.into_bytes()).await.to_string();
    for hit in [false, true] {
        let got = soon("an answer", get(&bench, &to, "/")).await;
        assert!(got.contains("hello") && !got.to_lowercase().contains("set-cookie"), "{got}");
        assert_eq!(got.contains("; hit"), hit, "{got}");
    }
    // The second response on that flow belongs to no request.
    let got = soon("an answer", get(&bench, &to, "/b")).await;
    assert!(got.contains("hello"), "{got}");
}

#[tokio::test]
async fn hop_by_hop_fields_of_one_client_do_not_change_cached_responses() {
    let bench = start(CACHE, LOOPBACK);
    // The origin answers requests with a cookie individually.
    let site = Site::start(|head| {
        let body = if head.contains("cookie: ") { "personal" } else { "for all" };
        whole("Cache-Control: public, max-age=60\r\nVary: Accept-Language\r\n", body)
    })
    .await;
    let to = site.address;
    // The origin does not receive fields meant for this connection only, so they do not affect its
    // response.
    for fields in [
        "Connection: close, Cookie\r\nCookie: id=1",
        "Connection: close, Accept-Language\r\nAccept-Language: de",
    ] {
        let request = format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{fields}\r\n\r\n");
        assert!(say(&bench, &request).await.ends_with("for all"), "{fields}");
    }
    let got = get(&bench, &to.to_string(), "/").await;
    assert!(got.contains("; hit") && got.ends_with("for all"), "{got}");
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    // An incomplete request does not get another request's response.
    tcp.write_all(format!("GET http://{to}/half HTTP/1.1\r\nHost: {to}\r\n").as_bytes())
        .await
        .unwrap();
    tcp.shutdown().await.unwrap();
    let mut rest = Vec::new();
    soon("the end", tcp.read_to_end(&mut rest)).await.unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
}
