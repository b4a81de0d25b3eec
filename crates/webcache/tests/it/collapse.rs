//! Many simultaneous requests for the same object, some with slow readers.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Reply, Rig, code, refused, response, together};
use bentpipe_webcache::{MAX_COLLAPSE_WAIT, MAX_FILL_TIME, OriginError, Outcome, STALL, Settings};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

const FRESH: &str = "cache-control: max-age=60";

#[tokio::test(start_paused = true)]
async fn one_fetch_serves_all_clients_while_it_arrives() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(FRESH), pieces));
    let tasks = together(&rig, 50).await;
    sender.send(Ok("first ".into())).await.unwrap();
    // A late client reads the buffered part before the rest has arrived.
    let late = rig.serve("/", "").await;
    assert_eq!(late.outcome, Outcome::Collapsed);
    let mut body = late.response.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first ");
    sender.send(Ok("second".into())).await.unwrap();
    drop(sender);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "second");
    for task in tasks {
        assert_eq!(task.await.unwrap().text(), "first second");
    }
    assert_eq!(rig.requests(), 1);
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
}

#[tokio::test(start_paused = true)]
async fn followers_wait_for_a_silent_leader_at_most_10_s() {
    let rig = Arc::new(Rig::new());
    rig.reply(Reply::Never);
    let began = tokio::time::Instant::now();
    let tasks = together(&rig, 3).await;
    rig.reply_text(FRESH, "one");
    rig.reply_text(FRESH, "two");
    let mut done = 0;
    for task in tasks {
        // The leader itself keeps waiting, as it would without a cache.
        if let Ok(got) = tokio::time::timeout(MAX_COLLAPSE_WAIT * 2, task).await {
            assert!(matches!(got.unwrap().outcome, Outcome::Miss(_)));
            done += 1;
        }
        assert!(began.elapsed() <= MAX_COLLAPSE_WAIT * 3);
    }
    assert_eq!((done, rig.requests()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_body_is_not_joined_and_fails_for_its_readers() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(FRESH), pieces));
    let tasks = together(&rig, 2).await;
    sender.send(Ok("beginning".into())).await.unwrap();
    tokio::time::sleep(MAX_COLLAPSE_WAIT).await;
    rig.reply_text(FRESH, "whole");
    assert_eq!(rig.get("/", "").await.text(), "whole");
    let began = tokio::time::Instant::now();
    for task in tasks {
        assert!(task.await.unwrap().body.is_err());
    }
    assert!(began.elapsed() <= STALL);
}

#[tokio::test(start_paused = true)]
async fn a_body_waits_for_the_end_of_an_outage() {
    let rig = Arc::new(Rig::new());
    // Outages before the body started do not extend its patience.
    rig.fake.set_out(true);
    tokio::time::sleep(2 * STALL).await;
    rig.fake.set_out(false);
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(FRESH), pieces));
    let tasks = together(&rig, 2).await;
    sender.send(Ok("begin".into())).await.unwrap();
    tokio::time::sleep(STALL / 2).await;
    rig.fake.set_out(true);
    tokio::time::sleep(10 * STALL).await;
    rig.fake.set_out(false);
    tokio::time::sleep(STALL / 3).await;
    sender.send(Ok("ning".into())).await.unwrap();
    drop(sender);
    for task in tasks {
        assert_eq!(task.await.unwrap().text(), "beginning");
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_response_releases_the_followers() {
    let rig = Arc::new(Rig::new());
    for body in ["a", "b", "c"] {
        rig.reply_text("cache-control: private", body);
    }
    let mut bodies = Vec::new();
    for task in together(&rig, 3).await {
        bodies.push(task.await.unwrap().text().to_owned());
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "b", "c"], "each has an answer of its own");
    // For a while no client waits for another one's fetch of this key.
    rig.reply(Reply::Never);
    let waiting = together(&rig, 1).await;
    rig.reply_text("cache-control: private", "d");
    let began = tokio::time::Instant::now();
    assert_eq!(rig.get("/", "").await.text(), "d");
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn a_failed_body_fails_for_all_readers_and_is_not_stored() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(FRESH), pieces));
    let tasks = together(&rig, 2).await;
    sender.send(Ok("half".into())).await.unwrap();
    sender.send(Err(OriginError::Offline)).await.unwrap();
    for task in tasks {
        assert!(task.await.unwrap().body.unwrap_err().is_offline());
    }
    rig.reply_text(FRESH, "whole");
    assert_eq!(rig.get("/", "").await.text(), "whole");
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_one_client_releases_the_followers() {
    let rig = Arc::new(Rig::new());
    rig.reply(Reply::NotShared(Box::new(Reply::Error(refused(7)))));
    rig.reply(Reply::Untrusted(response(FRESH).map(|()| "one".into())));
    rig.reply(Reply::Untrusted(response(FRESH).map(|()| "two".into())));
    let (mut failed, mut bodies) = (0, Vec::new());
    for task in together(&rig, 3).await {
        match task.await.unwrap().body {
            Ok(body) => bodies.push(body),
            Err(error) => failed += usize::from(code(&error) == Some(7)),
        }
    }
    assert_eq!((failed, bodies.len(), rig.requests()), (1, 2, 3));
    // The followers are released at once, not when the fetch ends.
    rig.reply(Reply::NotShared(Box::new(Reply::Never)));
    let began = tokio::time::Instant::now();
    let mut tasks = together(&rig, 1).await;
    rig.reply_text(FRESH, "three");
    assert_eq!(rig.get("/", "").await.text(), "three");
    assert_eq!(began.elapsed(), Duration::ZERO);
    tasks.pop().unwrap().abort();
}

/// The followers' own responses are shared and stored as any other.
#[tokio::test(start_paused = true)]
async fn a_leader_refused_for_its_own_limit_takes_no_follower_with_it() {
    let rig = Arc::new(Rig::new());
    rig.reply(Reply::NotShared(Box::new(Reply::Error(refused(7)))));
    rig.reply_text(FRESH, "whole");
    let (mut codes, mut texts) = (Vec::new(), Vec::new());
    for task in together(&rig, 2).await {
        let got = task.await.unwrap();
        match &got.body {
            Ok(_) => texts.push(got.text().to_owned()),
            Err(error) => codes.push(code(error)),
        }
    }
    assert_eq!((codes, texts), (vec![Some(7)], vec!["whole".to_owned()]));
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
    assert_eq!(rig.requests(), 2);
}

#[tokio::test]
async fn a_body_shorter_than_its_content_length_is_not_stored() {
    let rig = Rig::new();
    rig.reply_text("cache-control: max-age=60; content-length: 9", "short");
    assert!(rig.get("/", "").await.body.is_err());
    rig.reply_text(FRESH, "whole");
    assert_eq!(rig.get("/", "").await.text(), "whole");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_without_readers_stops() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response("cache-control: max-age=60; content-length: 1000"), pieces));
    let task = together(&rig, 1).await.pop().unwrap();
    sender.send(Ok("beginning".into())).await.unwrap();
    task.abort();
    let _ = task.await;
    let _ = sender.send(Ok("more".into())).await;
    sender.closed().await;
    assert_eq!(rig.cache.occupancy().memory_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_without_readers_continues_after_half_of_the_body() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response("cache-control: max-age=60; content-length: 10"), pieces));
    let task = together(&rig, 1).await.pop().unwrap();
    sender.send(Ok("01234567".into())).await.unwrap();
    tokio::task::yield_now().await;
    task.abort();
    let _ = task.await;
    sender.send(Ok("89".into())).await.unwrap();
    drop(sender);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.get("/", "").await.text(), "0123456789");
}

#[tokio::test(start_paused = true)]
async fn a_stale_response_is_revalidated_in_the_background_once() {
    let rig = Arc::new(Rig::new());
    rig.reply_text("cache-control: max-age=60, stale-while-revalidate=60; etag: \"a\"", "one");
    rig.get("/", "").await;
    rig.wait(61);
    rig.reply_text("cache-control: max-age=60", "two");
    for task in together(&rig, 10).await {
        let got = task.await.unwrap();
        assert!(got.text() == "one" || got.outcome == Outcome::Hit);
    }
    assert_eq!(rig.requests(), 2);
    assert_eq!(rig.get("/", "").await.text(), "two");
}

#[tokio::test(start_paused = true)]
async fn a_too_large_object_is_forwarded_to_all_readers() {
    let settings = Settings { object_bytes: 100_000, ..Settings::default() };
    let rig = Arc::new(Rig::with(&settings));
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(FRESH), pieces));
    let tasks = together(&rig, 3).await;
    let pushing = tokio::spawn(async move {
        for _ in 0..100 {
            sender.send(Ok(vec![7; 50_000].into())).await.unwrap();
        }
    });
    for task in tasks {
        assert_eq!(task.await.unwrap().body.unwrap().len(), 5_000_000);
    }
    pushing.await.unwrap();
    assert_eq!(rig.cache.occupancy().objects, 0);
    assert_eq!(rig.cache.occupancy().memory_bytes, 0);
}

/// A slow transfer of `bytes` under `path`, of which `here` have arrived.
async fn slow_download(
    rig: &Rig,
    path: &str,
    bytes: usize,
    here: usize,
) -> (bentpipe_webcache::Served, mpsc::Sender<Result<bytes::Bytes, OriginError>>) {
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(&format!("{FRESH}; content-length: {bytes}")), pieces));
    let served = rig.serve(path, "").await;
    sender.send(Ok(vec![1; here].into())).await.unwrap();
    (served, sender)
}

#[tokio::test(start_paused = true)]
async fn slow_large_transfers_leave_memory_for_others() {
    // Transfers have 4 MiB.
    let settings = Settings { memory_bytes: 8 << 20, ..Settings::default() };
    let rig = Rig::with(&settings);
    let mut slow = Vec::new();
    for n in 0..20 {
        slow.push(slow_download(&rig, &format!("/slow/{n}"), 4 << 20, 3 << 20).await);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    for n in 0..10 {
        let path = format!("/small/{n}");
        rig.reply(Reply::Whole(response(FRESH).map(|()| vec![2; 100_000].into())));
        assert_eq!(rig.get(&path, "").await.body.unwrap().len(), 100_000);
        assert_eq!(rig.get(&path, "").await.outcome, Outcome::Hit, "{path}");
    }
    // A single transfer may use as much memory as it leaves for a second one.
    drop(slow);
    tokio::time::sleep(STALL).await;
    let (served, sender) = slow_download(&rig, "/one", 2 << 20, 2 << 20).await;
    drop(sender);
    assert_eq!(
        served.response.unwrap().into_body().collect().await.unwrap().to_bytes().len(),
        2 << 20
    );
    // The body is assembled on another thread.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.get("/one", "").await.outcome, Outcome::Hit);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_too_long_is_forwarded_and_not_stored() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(FRESH), pieces));
    let task = together(&rig, 1).await.pop().unwrap();
    let mut sent = 0;
    let began = tokio::time::Instant::now();
    while began.elapsed() <= MAX_FILL_TIME {
        sender.send(Ok("piece".into())).await.unwrap();
        sent += 5;
        tokio::time::sleep(STALL / 2).await;
    }
    sender.send(Ok("piece".into())).await.unwrap();
    drop(sender);
    assert_eq!(task.await.unwrap().body.unwrap().len(), sent + 5);
    assert_eq!(rig.cache.occupancy().objects, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_cookie_does_not_join_a_heuristically_fresh_fetch() {
    for (fields, collapses) in [
        ("last-modified: Thu, 01 Jan 1998 00:00:00 GMT", false),
        ("cache-control: max-age=60", true),
    ] {
        let rig = Arc::new(Rig::new());
        let (sender, pieces) = mpsc::channel(1);
        rig.reply(Reply::Slow(response(fields), pieces));
        let anonymous = together(&rig, 1).await.pop().unwrap();
        rig.reply_text("cache-control: no-store", "personal");
        let follower = {
            let rig = rig.clone();
            tokio::spawn(async move { rig.get("/", "cookie: id=1").await })
        };
        tokio::task::yield_now().await;
        sender.send(Ok("for all".into())).await.unwrap();
        drop(sender);
        assert_eq!(anonymous.await.unwrap().text(), "for all");
        let got = follower.await.unwrap();
        assert_eq!(got.text(), if collapses { "for all" } else { "personal" }, "{fields}");
        assert_eq!(rig.requests(), if collapses { 1 } else { 2 }, "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_gets_no_more_staleness_than_it_allows() {
    let rig = Arc::new(Rig::new());
    rig.reply_text(FRESH, "one");
    rig.get("/", "").await;
    rig.wait(80);
    rig.reply(Reply::Error(refused(7)));
    rig.reply(Reply::Error(refused(8)));
    let (leads, follows) =
        tokio::join!(rig.get("/", "cache-control: stale-if-error=60"), rig.get("/", ""),);
    assert_eq!((leads.outcome, leads.text()), (Outcome::StaleIfError, "one"));
    assert_eq!(leads.field("cache-status"), "bentpipe; hit; ttl=-21; detail=no-answer");
    assert_eq!(code(&follows.body.unwrap_err()), Some(8));
}
