//! HTTP messages that pass the HTTP proxy between a client and an origin, with and without a cache.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::{Bench, LOOPBACK, read_all, settled, soon, start};
use crate::web::head;

const BOTH: [&str; 2] = ["", "http-cache = {}"];

/// An origin that sends `answer` to each request after its header, and closes. Also returns
/// everything received until the close.
async fn origin(answer: Vec<u8>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let heard = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let Some(mut request) = head(&mut tcp).await else { continue };
            if request.contains("transfer-encoding: chunked") {
                while !request.ends_with("\r\n0\r\n\r\n") {
                    let Ok(byte) = tcp.read_u8().await else { break };
                    request.push(char::from(byte));
                }
            }
            heard.lock().push(request);
            let _ = tcp.write_all(&answer).await;
            let _ = tcp.shutdown().await;
        }
    });
    (address, asked)
}

/// Full response to `request`, in which `{}` is the origin; the client stops sending after it.
async fn say(bench: &Bench, to: SocketAddr, request: &[u8]) -> Vec<u8> {
    let request = String::from_utf8_lossy(request).replace("{}", &to.to_string());
    say_raw(bench, request.as_bytes()).await
}

async fn say_raw(bench: &Bench, request: &[u8]) -> Vec<u8> {
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    tcp.write_all(request).await.unwrap();
    tcp.shutdown().await.unwrap();
    read_all(&mut tcp).await.unwrap()
}

const GET: &[u8] = b"GET http://{}/a HTTP/1.1\r\nHost: {}\r\n\r\n";

#[tokio::test]
async fn interim_responses_reach_the_client_that_asked() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let said = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x\r\nX: 1\r\n\r\n\
                    HTTP/1.1 102 Processing\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
        let (to, _) = origin(said.into()).await;
        let answer = String::from_utf8(say(&bench, to, GET).await).unwrap();
        let before = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nvia: 1.1 bentpipe\r\n\r\n\
                      HTTP/1.1 102 Processing\r\nvia: 1.1 bentpipe\r\n\r\nHTTP/1.1 200 OK\r\n";
        assert!(answer.starts_with(before) && answer.ends_with("hello"), "{cache}: {answer}");
        // HTTP/1.0 clients do not know interim responses.
        let old = b"GET http://{}/b HTTP/1.0\r\nHost: {}\r\n\r\n";
        let answer = String::from_utf8(say(&bench, to, old).await).unwrap();
        assert!(answer.contains(" 200 OK\r\n") && !answer.contains(" 103 "), "{cache}: {answer}");
    }
}

/// Sends the header of an upload that expects 100, and returns the response headers up to a final
/// one.
async fn expecting(bench: &Bench, to: SocketAddr) -> (TcpStream, String) {
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    let request = format!(
        "PUT http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    );
    tcp.write_all(request.as_bytes()).await.unwrap();
    let first = soon("a head", head(&mut tcp)).await.unwrap();
    (tcp, first)
}

#[tokio::test]
async fn an_upload_that_is_refused_does_not_cross() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let said =
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let (to, asked) = origin(said.into()).await;
        let (_tcp, first) = expecting(&bench, to).await;
        assert!(first.starts_with("HTTP/1.1 413 "), "{cache}: {first}");
        assert!(asked.lock()[0].contains("expect: 100-continue"), "{cache}");
    }
}

#[tokio::test]
async fn an_upload_that_is_wanted_is_asked_for_by_the_origin() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let origin = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            head(&mut tcp).await.unwrap();
            tcp.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            let mut body = [0; 4];
            tcp.read_exact(&mut body).await.unwrap();
            let said = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            tcp.write_all(said).await.unwrap();
            body
        });
        let (mut tcp, first) = expecting(&bench, to).await;
        assert_eq!(first, "HTTP/1.1 100 Continue\r\n\r\n", "{cache}");
        tcp.write_all(b"body").await.unwrap();
        let last = soon("the answer", head(&mut tcp)).await.unwrap();
        assert!(last.starts_with("HTTP/1.1 201 "), "{cache}: {last}");
        assert_eq!(&origin.await.unwrap(), b"body");
    }
}

#[tokio::test]
async fn a_compression_under_the_chunks_is_for_the_client() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let said = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
                    5\r\n\u{1f}zip!\r\n0\r\n\r\n";
        let (to, asked) = origin(said.into()).await;
        for times in 1..3 {
            let answer = String::from_utf8(say(&bench, to, GET).await).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{cache}: {answer}");
            assert!(answer.contains("transfer-encoding: gzip, chunked\r\n"), "{cache}: {answer}");
            assert!(answer.ends_with("5\r\n\u{1f}zip!\r\n0\r\n\r\n"), "{cache}: {answer}");
            assert_eq!(asked.lock().len(), times, "it is stored by nobody");
        }
        let old = b"GET http://{}/a HTTP/1.0\r\nHost: {}\r\n\r\n";
        // "hello" in the format of gzip.
        let said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n19\r\n\
            \x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\x48\xcd\xc9\xc9\x07\x00\x86\xa6\x10\x36\x05\x00\x00\x00\r\n0\r\n\r\n";
        let (to, _) = origin(said.to_vec()).await;
        let answer = String::from_utf8(say(&bench, to, old).await).unwrap();
        assert!(answer.contains(" 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
        assert!(!answer.contains("transfer-encoding"), "{answer}");
        let said = "HTTP/1.1 200 OK\r\nTransfer-Encoding: compress, chunked\r\n\r\n0\r\n\r\n";
        let (to, _) = origin(said.into()).await;
        let answer = String::from_utf8(say(&bench, to, old).await).unwrap();
        assert!(answer.contains(" 502 "), "who cannot be told gets none of it: {answer}");
    }
}

#[tokio::test]
async fn an_answer_may_have_many_fields_and_a_length_twice() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let fields = "X: 1\r\n".repeat(200);
        let said = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n{fields}Connection: close\r\n\r\nhello"
        );
        let (to, _) = origin(said.into()).await;
        let answer = String::from_utf8(say(&bench, to, GET).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
        assert_eq!(answer.matches("\r\nx: 1").count(), 200, "{cache}");
        let length: Vec<_> = answer.lines().filter(|it| it.starts_with("content-length")).collect();
        assert_eq!(length, ["content-length: 5"], "{cache}");
    }
}

#[tokio::test]
async fn an_address_with_bytes_that_have_to_be_escaped_is_asked_for() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let (to, asked) =
            origin(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_vec()).await;
        let mut request = format!("GET http://{to}/<a>?\"").into_bytes();
        request.extend(b"\xe9 HTTP/1.1\r\n");
        request.extend(format!("Host: {to}\r\n\r\n").bytes());
        let answer = say_raw(&bench, &request).await;
        assert!(answer.starts_with(b"HTTP/1.1 204 "), "{}", String::from_utf8_lossy(&answer));
        let asked = asked.lock()[0].clone();
        assert!(asked.starts_with("GET /%3Ca%3E?%22%E9 HTTP/1.1\r\n"), "{asked}");
    }
}

#[tokio::test]
async fn chunks_that_are_none_are_refused_where_nothing_was_answered() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let (to, _) =
            origin(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_vec()).await;
        let request = b"POST http://{}/ HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n";
        let answer = String::from_utf8(say(&bench, to, request).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{cache}: {answer:?}");
        assert!(answer.contains("the chunks of the body are malformed"), "{cache}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{cache}: {answer}");
    }
}

#[tokio::test]
async fn the_body_of_a_get_crosses_however_its_end_is_told() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let (to, asked) =
            origin(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_vec()).await;
        let request = b"GET http://{}/ HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
        let answer = say(&bench, to, request).await;
        assert!(answer.starts_with(b"HTTP/1.1 204 "), "{}", String::from_utf8_lossy(&answer));
        settled().await;
        let asked = asked.lock()[0].clone();
        assert!(asked.contains("transfer-encoding: chunked") && asked.contains("body"), "{asked}");
    }
}

#[tokio::test]
async fn a_client_that_ends_after_its_request_gets_its_answer() {
    for cache in BOTH {
        let bench = start(cache, LOOPBACK);
        let (to, _) = origin(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()).await;
        for request in [GET, b"POST http://{}/b HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n"]
        {
            let answer = say(&bench, to, request).await;
            let text = String::from_utf8_lossy(&answer);
            assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("hi"), "{cache}: {text}");
        }
    }
}
