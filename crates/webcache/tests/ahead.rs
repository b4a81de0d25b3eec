//! Objects that are fetched before anybody asks, and stay.

mod common;

use std::time::Duration;

use bentpipe_webcache::{Ahead, Budget, Failure, NotAhead, Outcome, Settings};
use bytes::Bytes;
use common::{NOW, Rig, Says, headers, key, response};
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::mpsc;

const FRESH: &str = "cache-control: max-age=60; etag: \"1\"";

async fn ahead(rig: &Rig, path: &str, budget: &Budget) -> Result<Ahead, NotAhead> {
    let request = Request::get(path).body(()).unwrap();
    rig.cache.ahead(&key(path), &request, &rig.origin, budget).await
}

/// With as much as anybody could want.
async fn fetch(rig: &Rig, path: &str) -> Result<Ahead, NotAhead> {
    ahead(rig, path, &Budget::new(1 << 30)).await
}

fn is_ahead(rig: &Rig, path: &str, since: u64) -> bool {
    rig.cache.is_ahead(&key(path), &HeaderMap::new(), Duration::from_secs(since))
}

#[tokio::test]
async fn what_was_fetched_ahead_serves_the_first_who_asks() {
    let rig = Rig::new();
    rig.says_text(FRESH, "hello");
    assert_eq!(fetch(&rig, "/").await, Ok(Ahead::Stored { bytes: 5 }));
    let got = rig.get("/", "").await;
    assert_eq!((got.outcome, got.text(), rig.asked()), (Outcome::Hit, "hello", 1));
    assert_eq!(rig.cache.pinned(), [key("/")]);
}

#[tokio::test]
async fn the_next_night_it_is_confirmed_without_its_body() {
    let rig = Rig::new();
    rig.says_text(FRESH, "hello");
    fetch(&rig, "/").await.unwrap();
    rig.wait(86_400);
    assert!(is_ahead(&rig, "/", NOW) && !is_ahead(&rig, "/", NOW + 1));
    let mut confirmed = response("cache-control: max-age=60").map(|()| Bytes::new());
    *confirmed.status_mut() = StatusCode::NOT_MODIFIED;
    rig.says(Says::Whole(confirmed));
    let budget = Budget::new(0);
    assert_eq!(ahead(&rig, "/", &budget).await, Ok(Ahead::Confirmed), "it costs no body");
    assert_eq!(rig.last_asked()["if-none-match"], "\"1\"");
    assert!(is_ahead(&rig, "/", NOW + 86_400));
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
    // And the night after it is another.
    rig.wait(86_400);
    rig.says_text("cache-control: max-age=60; etag: \"2\"", "hello again");
    assert_eq!(fetch(&rig, "/").await, Ok(Ahead::Stored { bytes: 11 }));
    assert_eq!(rig.get("/", "").await.text(), "hello again");
    assert_eq!(rig.cache.pinned(), [key("/")]);
}

#[tokio::test]
async fn without_memory_for_now_it_is_to_be_tried_again() {
    // Bodies on their way have 512 KiB.
    let settings = Settings { memory_bytes: 1 << 20, object_bytes: 1 << 18, ..Settings::default() };
    let rig = std::sync::Arc::new(Rig::with(&settings));
    let fields = format!("{FRESH}; content-length: 200000");
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(&fields), pieces));
    let first = {
        let rig = rig.clone();
        tokio::spawn(async move { fetch(&rig, "/first").await })
    };
    sender.send(Ok(vec![1; 100_000].into())).await.unwrap();
    // Taken by the one who waits for the rest.
    sender.send(Ok(vec![1; 50_000].into())).await.unwrap();
    let whole = || Says::Whole(response(&fields).map(|()| vec![2; 200_000].into()));
    rig.says(whole());
    assert_eq!(fetch(&rig, "/second").await, Err(NotAhead::Busy));
    sender.send(Ok(vec![1; 50_000].into())).await.unwrap();
    drop(sender);
    assert_eq!(first.await.unwrap(), Ok(Ahead::Stored { bytes: 200_000 }));
    rig.says(whole());
    assert_eq!(fetch(&rig, "/second").await, Ok(Ahead::Stored { bytes: 200_000 }));
}

#[tokio::test]
async fn what_came_counts_and_what_was_only_to_come_does_not() {
    let rig = Rig::new();
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(&format!("{FRESH}; content-length: 100")), pieces));
    let budget = Budget::new(1000);
    let (fetched, ()) = tokio::join!(ahead(&rig, "/", &budget), async {
        sender.send(Ok(vec![1; 30].into())).await.unwrap();
        sender.send(Ok(vec![1; 30].into())).await.unwrap();
        assert_eq!((budget.left(), budget.came()), (900, 30), "one is still in the channel");
        sender.send(Err(Failure { offline: false, code: 3 })).await.unwrap();
    });
    assert!(matches!(fetched, Err(NotAhead::Failed(_))));
    assert_eq!((budget.left(), budget.came()), (940, 60));
}

#[tokio::test]
async fn a_304_about_something_else_is_not_believed() {
    let rig = Rig::new();
    rig.says_text(FRESH, "hello");
    fetch(&rig, "/").await.unwrap();
    let mut other = response("etag: \"2\"").map(|()| Bytes::new());
    *other.status_mut() = StatusCode::NOT_MODIFIED;
    rig.says(Says::Whole(other));
    rig.says_text("cache-control: max-age=60; etag: \"2\"", "other");
    assert_eq!(fetch(&rig, "/").await, Ok(Ahead::Stored { bytes: 5 }));
    assert!(!rig.last_asked().contains_key("if-none-match"));
    assert_eq!(rig.get("/", "").await.text(), "other");
}

#[tokio::test]
async fn what_is_not_for_all_is_told_and_what_was_here_goes() {
    for (fields, why) in [
        ("cache-control: max-age=60; set-cookie: a=b", "it sets a cookie"),
        ("cache-control: no-store", "no-store"),
        ("cache-control: private, max-age=60", "private"),
        ("cache-control: max-age=60; vary: accept-encoding, User-Agent", "varies by User-Agent"),
        ("cache-control: max-age=60; vary: *", "varies by *"),
        ("cache-control: max-age=0", "stale at once"),
    ] {
        let rig = Rig::new();
        rig.says_text(FRESH, "hello");
        fetch(&rig, "/").await.unwrap();
        rig.says_text(fields, "hello");
        let told = fetch(&rig, "/").await.unwrap_err().to_string();
        assert!(told.contains(why), "{fields}: {told}");
        assert!(rig.cache.pinned().is_empty() && !rig.cache.holds(&key("/"), &HeaderMap::new()));
    }
    let rig = Rig::new();
    rig.says(Says::Untrusted(response(FRESH).map(|()| Bytes::from_static(b"hello"))));
    let told = fetch(&rig, "/").await.unwrap_err().to_string();
    assert!(told.contains("a break"), "{told}");
}

#[tokio::test]
async fn what_fails_leaves_what_was_here() {
    let rig = Rig::new();
    rig.says_text(FRESH, "hello");
    fetch(&rig, "/").await.unwrap();
    let mut moved = response("location: http://other.test/").map(|()| Bytes::new());
    *moved.status_mut() = StatusCode::FOUND;
    rig.says(Says::Whole(moved));
    let told = fetch(&rig, "/").await.unwrap_err();
    assert_eq!(told.to_string(), "the origin answers 302 Found, and names http://other.test/");
    let offline = Failure { offline: true, code: 3 };
    rig.says(Says::Fails(offline.clone()));
    assert_eq!(fetch(&rig, "/").await, Err(NotAhead::Failed(offline)));
    // It says that it has more than it gives.
    rig.says_text("cache-control: max-age=60; content-length: 9", "hello");
    assert!(matches!(fetch(&rig, "/").await, Err(NotAhead::Failed(_))));
    assert_eq!(rig.get("/", "").await.text(), "hello");
    assert_eq!(rig.cache.pinned(), [key("/")]);
}

#[tokio::test]
async fn the_budget_is_never_exceeded_by_more_than_a_frame() {
    let rig = Rig::new();
    let budget = Budget::new(10);
    rig.says_text("cache-control: max-age=60; content-length: 11", "hello world");
    assert_eq!(ahead(&rig, "/told", &budget).await, Err(NotAhead::Budget));
    assert_eq!(budget.left(), 10, "nothing of it was read");
    let (send, pieces) = mpsc::channel(4);
    for _ in 0..3 {
        send.send(Ok(Bytes::from_static(b"1234"))).await.unwrap();
    }
    rig.says(Says::Slowly(response("cache-control: max-age=60"), pieces));
    assert_eq!(ahead(&rig, "/untold", &budget).await, Err(NotAhead::Budget));
    assert_eq!(budget.left(), 0);
    assert!(send.is_closed(), "no more of it is wanted");
    assert!(rig.cache.pinned().is_empty());
}

#[tokio::test]
async fn the_large_and_what_there_is_no_room_for_are_told() {
    let settings =
        Settings { memory_bytes: 8000, object_bytes: 3000, directory: None, ..Settings::default() };
    let rig = Rig::with(&settings);
    let text: &'static str = "x".repeat(3001).leak();
    rig.says_text(FRESH, text);
    assert_eq!(fetch(&rig, "/").await, Err(NotAhead::TooLarge { most: 3000 }));
    rig.says_text(FRESH, &text[..2500]);
    fetch(&rig, "/a").await.unwrap();
    // Half of 8000 is less than two of them.
    rig.says_text(FRESH, &text[..2500]);
    assert_eq!(fetch(&rig, "/b").await, Err(NotAhead::Room));
    rig.cache.unpin(&key("/a"));
    assert!(rig.cache.pinned().is_empty());
    rig.says_text(FRESH, &text[..2500]);
    assert_eq!(fetch(&rig, "/b").await, Ok(Ahead::Stored { bytes: 2500 }));
}

#[tokio::test]
async fn pins_outlive_a_restart_and_the_cache_knows_them() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(folder.path());
    rig.says_text(FRESH, "hello");
    fetch(&rig, "/").await.unwrap();
    rig.cache.settle().await;
    drop(rig);
    let rig = Rig::on_disk(folder.path());
    rig.cache.settle().await;
    assert_eq!(rig.cache.pinned(), [key("/")]);
    assert!(is_ahead(&rig, "/", NOW));
    assert!(rig.cache.holds(&key("/"), &headers("accept-encoding: gzip")));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stands_still_fails_after_ten_minutes() {
    let rig = Rig::new();
    let (_send, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(FRESH), pieces));
    let began = tokio::time::Instant::now();
    assert!(matches!(fetch(&rig, "/").await, Err(NotAhead::Failed(_))));
    assert_eq!(began.elapsed().as_secs(), 600);
}
