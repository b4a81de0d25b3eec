//! Tests against real Chromium, on loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use bentpipe_lab::browser::{Browser, Visit, find};

const DEADLINE: Duration = Duration::from_secs(60);

/// Serves a cacheable page with a style and an image, and a page with an image that never arrives.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test's process. The browser limits the number of connections.
    thread::spawn(move || {
        for tcp in listener.incoming() {
            thread::spawn(move || answer(tcp.unwrap()));
        }
    });
    address
}

fn answer(mut tcp: TcpStream) -> Option<()> {
    let mut lines = BufReader::new(tcp.try_clone().ok()?).lines().map_while(Result::ok);
    while let Some(line) = lines.next() {
        lines.by_ref().find(String::is_empty)?;
        let path = line.split(' ').nth(1)?;
        let (kind, body) = match path {
            "/" => (
                "text/html",
                "<!doctype html><link rel=stylesheet href=a.css><img src=b.svg><p>text",
            ),
            "/wrong" => {
                ("text/html", "<!doctype html><script>console.error('e'); nowhere()</script>")
            }
            "/slow" => ("text/html", "<!doctype html><img src=never><p>text"),
            "/a.css" => ("text/css", "p { color: #246 }"),
            "/b.svg" => (
                "image/svg+xml",
                "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><path d='M0 0h9v9z'/></svg>",
            ),
            "/never" => {
                thread::sleep(DEADLINE);
                return None;
            }
            _ => ("text/plain", ""),
        };
        let length = body.len();
        write!(
            tcp,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Cache-Control: max-age=3600\r\n\r\n{body}"
        )
        .ok()?;
    }
    Some(())
}

fn paths(visit: &Visit, is_cached: bool) -> Vec<&str> {
    let requests = visit.record.requests().iter();
    let mut paths: Vec<_> = requests
        .filter(|request| request.is_cached == is_cached && !request.url.ends_with(".ico"))
        .map(|request| request.url.rsplit('/').next().unwrap())
        .collect();
    paths.sort();
    paths
}

/// Checks against HAR 1.2: the parts of an entry's time add up to all of it, and the page begins
/// with its first entry.
fn check_har(visit: &Visit) {
    let har = visit.har("three");
    let page = &har["log"]["pages"][0];
    let loaded = visit.loaded.unwrap().as_secs_f64() * 1e3;
    assert!((page["pageTimings"]["onLoad"].as_f64().unwrap() - loaded).abs() < 1e-2, "{page}");
    let entries = har["log"]["entries"].as_array().unwrap();
    assert_eq!(page["startedDateTime"], entries[0]["startedDateTime"]);
    assert!(page["startedDateTime"].as_str().unwrap().starts_with("20"), "{page}");
    assert_eq!(entries.len(), visit.record.requests().len());
    for entry in entries {
        let parts = ["blocked", "dns", "connect", "send", "wait", "receive"];
        let part = |name: &str| entry["timings"][name].as_f64().unwrap();
        let sum: f64 = parts.map(part).into_iter().filter(|time| *time >= 0.0).sum();
        assert!((entry["time"].as_f64().unwrap() - sum).abs() < 1e-2, "{entry}");
        assert_eq!(entry["request"]["httpVersion"], "HTTP/1.1");
        assert_eq!(entry["response"]["status"], 200);
        assert_eq!(entry["serverIPAddress"], "127.0.0.1");
        assert!(entry["connection"].is_string() && entry["_error"].is_null(), "{entry}");
    }
    let style = entries.iter().find(|it| it["request"]["url"].as_str().unwrap().ends_with("a.css"));
    let content = &style.unwrap()["response"]["content"];
    assert_eq!((&content["size"], &content["mimeType"]), (&17.into(), &"text/css".into()));
}

#[tokio::test]
async fn a_page_is_loaded_again_from_the_cache_and_one_that_hangs_is_cut_off() {
    if find().is_none() {
        println!("SKIPPED: no Chromium on the PATH; `scripts/setup.sh browser` installs one");
        return;
    }
    let (address, folder) = (serve(), tempfile::tempdir().unwrap());
    let url = format!("http://{address}/");
    let start = || Browser::start(Command::new("sh"), &[], folder.path());

    let mut browser = start().await.unwrap();
    let first = browser.visit(&url, DEADLINE).await.unwrap();
    assert!(first.loaded.is_some() && first.failed.is_none(), "{first:?}");
    assert!(first.complaints.is_empty() && first.painted.is_some(), "{first:?}");
    assert_eq!(paths(&first, false), ["", "a.css", "b.svg"]);
    for request in first.record.requests() {
        assert_eq!((request.status, &*request.protocol), (200, "http/1.1"));
        assert!(request.bytes > 0 && request.connection.is_some(), "{request:?}");
        assert!(request.phases().wait > Duration::ZERO, "{request:?}");
    }
    browser.close().await.unwrap();
    check_har(&first);

    let mut browser = start().await.unwrap();
    let again = browser.visit(&url, DEADLINE).await.unwrap();
    assert!(again.loaded.is_some());
    assert_eq!(paths(&again, true), ["", "a.css", "b.svg"]);

    let hangs = browser.visit(&format!("{url}slow"), Duration::from_secs(3)).await.unwrap();
    assert_eq!(hangs.loaded, None);
    let never = hangs.record.requests().iter().find(|request| request.url.ends_with("never"));
    assert!(never.is_some_and(|request| request.ended.is_none()), "{hangs:?}");

    let wrong = browser.visit(&format!("{url}wrong"), DEADLINE).await.unwrap();
    let [said, thrown] = &wrong.complaints[..] else { panic!("{wrong:?}") };
    assert!(said == "e" && thrown.contains("nowhere is not defined"), "{wrong:?}");
    assert_eq!(browser.evaluate("Promise.resolve(6 * 7)").await.unwrap(), 42);
    assert!(browser.evaluate("nowhere()").await.is_err());

    let gone = browser.visit("http://127.0.0.1:1/", DEADLINE).await.unwrap();
    assert!(gone.failed.is_some() && gone.loaded.is_none(), "{gone:?}");
}
