//! The portal's content: fetched before passengers request it.

use std::path::Path;

use bentpipe_gateway::preload::{Event, Outcome, Summary};
use bentpipe_link::Class;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpStream, UnixStream};

use crate::bench::{Bench, LOOPBACK, start, until};
use crate::site::{certificate, config, get as get_site};
use crate::web::{Site, whole};

const FRESH: &str = "Cache-Control: max-age=60\r\n";

/// `[preload]` of `manifest`, with its files in `folder`.
fn preload(folder: &Path, manifest: &str) -> String {
    std::fs::write(folder.join("portal.txt"), manifest).unwrap();
    let [manifest, socket] = ["portal.txt", "preload.sock"].map(|name| folder.join(name));
    format!("\n[preload]\nmanifest = {manifest:?}\nsocket = {socket:?}\n")
}

/// Asks for a run, as `bentpipe preload` does.
async fn command(folder: &Path) -> Lines<BufReader<UnixStream>> {
    let socket = UnixStream::connect(folder.join("preload.sock")).await.unwrap();
    BufReader::new(socket).lines()
}

async fn next(command: &mut Lines<BufReader<UnixStream>>) -> Event {
    let line = command.next_line().await.unwrap().unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Asks by the proxy; all of the answer.
async fn get(bench: &Bench, url: &str) -> String {
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let request = format!(
        "GET {url} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip, deflate\r\nConnection: close\r\n\r\n"
    );
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn preloaded_objects_cross_the_link_once_as_lower_effort() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(|head| {
        assert!(head.contains("user-agent: bentpipe/") && head.contains("via: 1.1 bentpipe"));
        whole("Cache-Control: max-age=60\r\nVary: Accept-Encoding\r\n", "hello")
    })
    .await;
    let url = format!("http://origin.test:{}/a", site.address.port());
    // Browsers do not use port 9, so a manifest cannot name it.
    let manifest = format!("{url}\nhttp://origin.test:2/none\n");
    let air = format!("[http-cache]\ncache-status = true\n{}", preload(folder.path(), &manifest));
    let bench = start(&air, LOOPBACK);
    let mut command = command(folder.path()).await;
    let opened = || bench.up.opened();
    until("both flows", || opened().len() >= 2).await;
    until("the object", || bench.air.preload_stored.get() == 1).await;
    assert!(
        opened().iter().all(|open| open.class == Class::LowerEffort && open.claim.is_none()),
        "{:?}",
        opened()
    );
    let flows = opened().len();
    let answer = get(&bench, &url).await;
    assert!(
        answer.contains("cache-status: bentpipe; hit") && answer.ends_with("hello"),
        "{answer}"
    );
    assert_eq!((opened().len(), site.asked.lock().len()), (flows, 1));
    assert_eq!((bench.air.preload_stored.get(), bench.air.preload_bytes.get()), (1, 5));
    // The failure is reported, and tried again later.
    let events = [next(&mut command).await, next(&mut command).await];
    let reason = |event: &Event| match event {
        Event::Object { outcome: Outcome::Failed, why, .. } => why.clone(),
        _ => None,
    };
    let reason = events.iter().find_map(reason).unwrap();
    assert!(reason.contains("refused the connection"), "{events:?}");
}

#[tokio::test]
async fn a_sites_content_is_fetched_from_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let root = certificate(folder.path(), "portal.test");
    let site = Site::start(|_| whole(FRESH, "portal")).await;
    let manifest = "https://portal.test/film\nhttps://other.test/\n";
    let air = config(folder.path(), &format!("origin = \"http://{}\"", site.address));
    let air = air + &preload(folder.path(), manifest);
    let bench = start(&air, LOOPBACK);
    let mut command = command(folder.path()).await;
    assert!(matches!(next(&mut command).await, Event::WrongLine { line: 2, .. }));
    assert!(matches!(next(&mut command).await, Event::Object { outcome: Outcome::Stored, .. }));
    let expected = Summary { stored: 1, bytes: 6, ..Summary::default() };
    assert_eq!(next(&mut command).await, Event::Ended(expected));
    let answer = get_site(&bench, &root, "portal.test", "/film").await;
    assert!(answer.contains("; hit") && answer.ends_with("portal"), "{answer}");
    assert_eq!(site.asked.lock().len(), 1);
}

#[tokio::test]
async fn every_request_is_counted_once() {
    let site = Site::start(|head| {
        let fields = if head.contains("/private") { "Cache-Control: private\r\n" } else { FRESH };
        whole(fields, "hello")
    })
    .await;
    let bench = start("[http-cache]", LOOPBACK);
    let url = format!("http://origin.test:{}", site.address.port());
    for path in ["/a", "/a", "/private", "/private", "/a"] {
        get(&bench, &format!("{url}{path}")).await;
    }
    get(&bench, "http://origin.test:9/none").await;
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    let post = format!(
        "POST {url}/b HTTP/1.1\r\nHost: origin.test\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    );
    let twice = post.replacen("Content-Length: 2", "Content-Length: 2\r\nContent-Length: 3", 1);
    tcp.write_all(post.as_bytes()).await.unwrap();
    let _ = tcp.read_to_end(&mut Vec::new()).await;
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    tcp.write_all(twice.as_bytes()).await.unwrap();
    let _ = tcp.read_to_end(&mut Vec::new()).await;
    let air = &bench.air;
    let kinds = [
        &air.http_hits,
        &air.http_stale_hits,
        &air.http_validated,
        &air.http_collapsed,
        &air.http_misses,
        &air.http_passed,
        &air.http_failed,
        &air.http_refused,
    ]
    .map(|counter| counter.get());
    assert_eq!(kinds, [2, 0, 0, 0, 3, 1, 1, 1]);
    assert_eq!(air.http_requests.get(), kinds.iter().sum::<u64>());
    assert_eq!((air.http_bytes_from_cache.get(), air.http_bytes_saved.get()), (10, 10));
    assert_eq!(air.http_round_trips_saved.get(), 2);
}
