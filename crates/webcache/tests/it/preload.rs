//! Preloaded objects.

use crate::common::{Reply, Rig, headers, key, refused, response};
use bentpipe_webcache::{Budget, OriginError, Outcome, PreloadError, Preloaded, Settings};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::mpsc;

const FRESH: &str = "cache-control: max-age=60; etag: \"1\"";

async fn preload(rig: &Rig, path: &str, budget: &Budget) -> Result<Preloaded, PreloadError> {
    let request = Request::get(path).body(()).unwrap();
    rig.cache.preload(&key(path), &request, &rig.origin, budget).await
}

/// Preloads with an ample budget.
async fn fetch(rig: &Rig, path: &str) -> Result<Preloaded, PreloadError> {
    preload(rig, path, &Budget::new(1 << 30)).await
}

#[tokio::test]
async fn a_preloaded_object_is_a_hit_for_the_first_client() {
    let rig = Rig::new();
    rig.reply_text(FRESH, "hello");
    assert_eq!(fetch(&rig, "/").await.unwrap(), Preloaded::Stored { bytes: 5 });
    let got = rig.get("/", "").await;
    assert_eq!((got.outcome, got.text(), rig.requests()), (Outcome::Hit, "hello", 1));
    assert_eq!(rig.cache.pinned(), [key("/")]);
}

#[tokio::test]
async fn a_stale_preloaded_object_is_validated_without_its_body() {
    let rig = Rig::new();
    rig.reply_text(FRESH, "hello");
    fetch(&rig, "/").await.unwrap();
    rig.wait(86_400);
    let mut confirmed = response("cache-control: max-age=60").map(|()| Bytes::new());
    *confirmed.status_mut() = StatusCode::NOT_MODIFIED;
    rig.reply(Reply::Whole(confirmed));
    let budget = Budget::new(0);
    assert_eq!(
        preload(&rig, "/", &budget).await.unwrap(),
        Preloaded::Confirmed,
        "it costs no body"
    );
    assert_eq!(rig.last_request()["if-none-match"], "\"1\"");
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
    // Another night, the object has changed.
    rig.wait(86_400);
    rig.reply_text("cache-control: max-age=60; etag: \"2\"", "hello again");
    assert_eq!(fetch(&rig, "/").await.unwrap(), Preloaded::Stored { bytes: 11 });
    assert_eq!(rig.get("/", "").await.text(), "hello again");
    assert_eq!(rig.cache.pinned(), [key("/")]);
}

#[tokio::test]
async fn a_preload_without_transfer_memory_is_busy() {
    // Transfers have 512 KiB.
    let settings = Settings { memory_bytes: 1 << 20, object_bytes: 1 << 18, ..Settings::default() };
    let rig = std::sync::Arc::new(Rig::with(&settings));
    let fields = format!("{FRESH}; content-length: 200000");
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(&fields), pieces));
    let first = {
        let rig = rig.clone();
        tokio::spawn(async move { fetch(&rig, "/first").await })
    };
    sender.send(Ok(vec![1; 100_000].into())).await.unwrap();
    // The transfer has received this piece, and waits for the rest.
    sender.send(Ok(vec![1; 50_000].into())).await.unwrap();
    let whole = || Reply::Whole(response(&fields).map(|()| vec![2; 200_000].into()));
    rig.reply(whole());
    assert!(matches!(fetch(&rig, "/second").await, Err(PreloadError::Busy)));
    sender.send(Ok(vec![1; 50_000].into())).await.unwrap();
    drop(sender);
    assert_eq!(first.await.unwrap().unwrap(), Preloaded::Stored { bytes: 200_000 });
    rig.reply(whole());
    assert_eq!(fetch(&rig, "/second").await.unwrap(), Preloaded::Stored { bytes: 200_000 });
}

#[tokio::test]
async fn received_bytes_are_charged_and_announced_ones_are_returned() {
    let rig = Rig::new();
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(&format!("{FRESH}; content-length: 100")), pieces));
    let budget = Budget::new(1000);
    let (fetched, ()) = tokio::join!(preload(&rig, "/", &budget), async {
        sender.send(Ok(vec![1; 30].into())).await.unwrap();
        sender.send(Ok(vec![1; 30].into())).await.unwrap();
        assert_eq!((budget.left(), budget.received()), (900, 30), "one is still in the channel");
        sender.send(Err(refused(3))).await.unwrap();
    });
    assert!(matches!(fetched, Err(PreloadError::Failed(_))));
    assert_eq!((budget.left(), budget.received()), (940, 60));
}

#[tokio::test]
async fn a_304_for_another_response_is_ignored() {
    let rig = Rig::new();
    rig.reply_text(FRESH, "hello");
    fetch(&rig, "/").await.unwrap();
    let mut other = response("etag: \"2\"").map(|()| Bytes::new());
    *other.status_mut() = StatusCode::NOT_MODIFIED;
    rig.reply(Reply::Whole(other));
    rig.reply_text("cache-control: max-age=60; etag: \"2\"", "other");
    assert_eq!(fetch(&rig, "/").await.unwrap(), Preloaded::Stored { bytes: 5 });
    assert!(!rig.last_request().contains_key("if-none-match"));
    assert_eq!(rig.get("/", "").await.text(), "other");
}

#[tokio::test]
async fn a_response_that_is_not_public_is_refused_and_removes_the_stored_one() {
    for (fields, why) in [
        ("cache-control: max-age=60; set-cookie: a=b", "it sets a cookie"),
        ("cache-control: no-store", "no-store"),
        ("cache-control: private, max-age=60", "private"),
        ("cache-control: max-age=60; vary: accept-encoding, User-Agent", "varies by User-Agent"),
        ("cache-control: max-age=60; vary: *", "varies by *"),
        ("cache-control: max-age=0", "stale at once"),
    ] {
        let rig = Rig::new();
        rig.reply_text(FRESH, "hello");
        fetch(&rig, "/").await.unwrap();
        rig.reply_text(fields, "hello");
        let told = fetch(&rig, "/").await.unwrap_err().to_string();
        assert!(told.contains(why), "{fields}: {told}");
        assert!(rig.cache.pinned().is_empty() && !rig.cache.holds(&key("/"), &HeaderMap::new()));
    }
    let rig = Rig::new();
    rig.reply(Reply::Untrusted(response(FRESH).map(|()| Bytes::from_static(b"hello"))));
    let told = fetch(&rig, "/").await.unwrap_err().to_string();
    assert!(told.contains("a broken connection"), "{told}");
}

#[tokio::test]
async fn a_failed_preload_keeps_the_stored_object() {
    let rig = Rig::new();
    rig.reply_text(FRESH, "hello");
    fetch(&rig, "/").await.unwrap();
    let mut moved = response("location: http://other.test/").map(|()| Bytes::new());
    *moved.status_mut() = StatusCode::FOUND;
    rig.reply(Reply::Whole(moved));
    let told = fetch(&rig, "/").await.unwrap_err();
    assert_eq!(told.to_string(), "the origin answers 302 Found, and names http://other.test/");
    rig.reply(Reply::Error(OriginError::Offline));
    assert!(matches!(fetch(&rig, "/").await, Err(PreloadError::Failed(OriginError::Offline))));
    // The body is shorter than its Content-Length.
    rig.reply_text("cache-control: max-age=60; content-length: 9", "hello");
    assert!(matches!(fetch(&rig, "/").await, Err(PreloadError::Failed(_))));
    assert_eq!(rig.get("/", "").await.text(), "hello");
    assert_eq!(rig.cache.pinned(), [key("/")]);
}

#[tokio::test]
async fn the_budget_is_never_exceeded_by_more_than_a_frame() {
    let rig = Rig::new();
    let budget = Budget::new(10);
    rig.reply_text("cache-control: max-age=60; content-length: 11", "hello world");
    assert!(matches!(preload(&rig, "/told", &budget).await, Err(PreloadError::Budget)));
    assert_eq!(budget.left(), 10, "nothing of it was read");
    let (send, pieces) = mpsc::channel(4);
    for _ in 0..3 {
        send.send(Ok(Bytes::from_static(b"1234"))).await.unwrap();
    }
    rig.reply(Reply::Slow(response("cache-control: max-age=60"), pieces));
    assert!(matches!(preload(&rig, "/untold", &budget).await, Err(PreloadError::Budget)));
    assert_eq!(budget.left(), 0);
    assert!(send.is_closed(), "no more of it is wanted");
    assert!(rig.cache.pinned().is_empty());
}

#[tokio::test]
async fn too_large_objects_and_full_pins_are_reported() {
    let settings =
        Settings { memory_bytes: 8000, object_bytes: 3000, directory: None, ..Settings::default() };
    let rig = Rig::with(&settings);
    let text: &'static str = "x".repeat(3001).leak();
    rig.reply_text(FRESH, text);
    assert!(matches!(fetch(&rig, "/").await, Err(PreloadError::TooLarge { max_bytes: 3000 })));
    rig.reply_text(FRESH, &text[..2500]);
    fetch(&rig, "/a").await.unwrap();
    // Half of 8000 bytes has no room for two of them.
    rig.reply_text(FRESH, &text[..2500]);
    assert!(matches!(fetch(&rig, "/b").await, Err(PreloadError::Room)));
    rig.cache.unpin(&key("/a"));
    assert!(rig.cache.pinned().is_empty());
    rig.reply_text(FRESH, &text[..2500]);
    assert_eq!(fetch(&rig, "/b").await.unwrap(), Preloaded::Stored { bytes: 2500 });
}

#[tokio::test]
async fn pins_of_preloaded_objects_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(folder.path());
    rig.reply_text(FRESH, "hello");
    fetch(&rig, "/").await.unwrap();
    rig.cache.settle().await;
    drop(rig);
    let rig = Rig::on_disk(folder.path());
    rig.cache.settle().await;
    assert_eq!(rig.cache.pinned(), [key("/")]);
    assert!(rig.cache.holds(&key("/"), &headers("accept-encoding: gzip")));
}

#[tokio::test(start_paused = true)]
async fn a_silent_preload_fails_after_ten_minutes() {
    let rig = Rig::new();
    let (_send, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(FRESH), pieces));
    let began = tokio::time::Instant::now();
    assert!(matches!(fetch(&rig, "/").await, Err(PreloadError::Failed(_))));
    assert_eq!(began.elapsed().as_secs(), 600);
}
