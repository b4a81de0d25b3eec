//! Many who ask for the same at once, slow ones among them.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bentpipe_webcache::{Failure, MOST_FILLING, Outcome, PATIENCE, STALL, Settings};
use common::{Rig, Says, response, together};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

const FRESH: &str = "cache-control: max-age=60";

#[tokio::test(start_paused = true)]
async fn one_fetch_serves_all_who_ask_and_is_read_while_it_comes() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(FRESH), pieces));
    let tasks = together(&rig, 50).await;
    sender.send(Ok("first ".into())).await.unwrap();
    // One that comes now reads what is here before the rest has come.
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
    assert_eq!(rig.asked(), 1);
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_an_answer_does_not_hold_the_others_for_long() {
    let rig = Arc::new(Rig::new());
    rig.says(Says::Nothing);
    let began = tokio::time::Instant::now();
    let tasks = together(&rig, 3).await;
    rig.says_text(FRESH, "one");
    rig.says_text(FRESH, "two");
    let mut done = 0;
    for task in tasks {
        // The leader itself waits on; so would it without a cache.
        if let Ok(got) = tokio::time::timeout(PATIENCE * 2, task).await {
            assert!(matches!(got.unwrap().outcome, Outcome::Miss(_)));
            done += 1;
        }
        assert!(began.elapsed() <= PATIENCE * 3);
    }
    assert_eq!((done, rig.asked()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_is_not_joined_and_fails_for_its_readers() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(FRESH), pieces));
    let tasks = together(&rig, 2).await;
    sender.send(Ok("beginning".into())).await.unwrap();
    tokio::time::sleep(PATIENCE).await;
    rig.says_text(FRESH, "whole");
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
    // The outages before it are no excuse for this body.
    rig.fake.set_out(true);
    tokio::time::sleep(2 * STALL).await;
    rig.fake.set_out(false);
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(FRESH), pieces));
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
async fn an_answer_for_one_releases_the_others() {
    let rig = Arc::new(Rig::new());
    for body in ["a", "b", "c"] {
        rig.says_text("cache-control: private", body);
    }
    let mut bodies = Vec::new();
    for task in together(&rig, 3).await {
        bodies.push(task.await.unwrap().text().to_owned());
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "b", "c"], "each has an answer of its own");
    // For a while nobody waits for another here.
    rig.says(Says::Nothing);
    let waiting = together(&rig, 1).await;
    rig.says_text("cache-control: private", "d");
    let began = tokio::time::Instant::now();
    assert_eq!(rig.get("/", "").await.text(), "d");
    assert_eq!(began.elapsed(), Duration::ZERO);
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_to_all_and_stored_for_nobody() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(FRESH), pieces));
    let tasks = together(&rig, 2).await;
    sender.send(Ok("half".into())).await.unwrap();
    sender.send(Err(Failure { offline: true, code: 7 })).await.unwrap();
    for task in tasks {
        assert_eq!(task.await.unwrap().body.unwrap_err().code, 7);
    }
    rig.says_text(FRESH, "whole");
    assert_eq!(rig.get("/", "").await.text(), "whole");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_of_one_alone_releases_the_others() {
    let rig = Arc::new(Rig::new());
    let failure = Failure { offline: false, code: 7 };
    rig.says(Says::Alone(Box::new(Says::Fails(failure.clone()))));
    rig.says(Says::Untrusted(response(FRESH).map(|()| "one".into())));
    rig.says(Says::Untrusted(response(FRESH).map(|()| "two".into())));
    let (mut failed, mut bodies) = (0, Vec::new());
    for task in together(&rig, 3).await {
        match task.await.unwrap().body {
            Ok(body) => bodies.push(body),
            Err(why) => failed += usize::from(why == failure),
        }
    }
    assert_eq!((failed, bodies.len(), rig.asked()), (1, 2, 3));
    // They are let go when that is known, and not when it is over.
    rig.says(Says::Alone(Box::new(Says::Nothing)));
    let began = tokio::time::Instant::now();
    let mut tasks = together(&rig, 1).await;
    rig.says_text(FRESH, "three");
    assert_eq!(rig.get("/", "").await.text(), "three");
    assert_eq!(began.elapsed(), Duration::ZERO);
    tasks.pop().unwrap().abort();
}

#[tokio::test]
async fn a_body_that_is_shorter_than_it_said_is_not_stored() {
    let rig = Rig::new();
    rig.says_text("cache-control: max-age=60; content-length: 9", "short");
    assert!(rig.get("/", "").await.body.is_err());
    rig.says_text(FRESH, "whole");
    assert_eq!(rig.get("/", "").await.text(), "whole");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_nobody_wants_any_more_stops() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response("cache-control: max-age=60; content-length: 1000"), pieces));
    let task = together(&rig, 1).await.pop().unwrap();
    sender.send(Ok("beginning".into())).await.unwrap();
    task.abort();
    let _ = task.await;
    let _ = sender.send(Ok("more".into())).await;
    sender.closed().await;
    assert_eq!(rig.cache.occupancy().memory_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_has_most_of_it_goes_on() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response("cache-control: max-age=60; content-length: 10"), pieces));
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
async fn a_stale_answer_is_refreshed_behind_once() {
    let rig = Arc::new(Rig::new());
    rig.says_text("cache-control: max-age=60, stale-while-revalidate=60; etag: \"a\"", "one");
    rig.get("/", "").await;
    rig.wait(61);
    rig.says_text("cache-control: max-age=60", "two");
    for task in together(&rig, 10).await {
        let got = task.await.unwrap();
        assert!(got.text() == "one" || got.outcome == Outcome::Hit);
    }
    assert_eq!(rig.asked(), 2);
    assert_eq!(rig.get("/", "").await.text(), "two");
}

#[tokio::test(start_paused = true)]
async fn too_large_an_object_passes_through_to_all_its_readers() {
    let settings = Settings { object_bytes: 100_000, ..Settings::default() };
    let rig = Arc::new(Rig::with(&settings));
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(FRESH), pieces));
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

/// A slow download of `bytes` under `path`, of which `here` have come.
async fn slow_download(
    rig: &Rig,
    path: &str,
    bytes: usize,
    here: usize,
) -> (bentpipe_webcache::Served, mpsc::Sender<Result<bytes::Bytes, Failure>>) {
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(&format!("{FRESH}; content-length: {bytes}")), pieces));
    let served = rig.serve(path, "").await;
    sender.send(Ok(vec![1; here].into())).await.unwrap();
    (served, sender)
}

#[tokio::test(start_paused = true)]
async fn slow_large_downloads_leave_room_for_others() {
    // Bodies on their way have 4 MiB.
    let settings = Settings { memory_bytes: 8 << 20, ..Settings::default() };
    let rig = Rig::with(&settings);
    let mut slow = Vec::new();
    for n in 0..20 {
        slow.push(slow_download(&rig, &format!("/slow/{n}"), 4 << 20, 3 << 20).await);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    for n in 0..10 {
        let path = format!("/small/{n}");
        rig.says(Says::Whole(response(FRESH).map(|()| vec![2; 100_000].into())));
        assert_eq!(rig.get(&path, "").await.body.unwrap().len(), 100_000);
        assert_eq!(rig.get(&path, "").await.outcome, Outcome::Hit, "{path}");
    }
    // One alone may be as large as the room leaves to a second one.
    drop(slow);
    tokio::time::sleep(STALL).await;
    let (served, sender) = slow_download(&rig, "/one", 2 << 20, 2 << 20).await;
    drop(sender);
    assert_eq!(
        served.response.unwrap().into_body().collect().await.unwrap().to_bytes().len(),
        2 << 20
    );
    // It is put together on another thread.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.get("/one", "").await.outcome, Outcome::Hit);
}

#[tokio::test(start_paused = true)]
async fn what_comes_for_too_long_is_read_and_not_stored() {
    let rig = Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(FRESH), pieces));
    let task = together(&rig, 1).await.pop().unwrap();
    let mut sent = 0;
    let began = tokio::time::Instant::now();
    while began.elapsed() <= MOST_FILLING {
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
async fn one_with_a_cookie_does_not_get_what_is_fresh_by_guess_from_anothers_fetch() {
    for (fields, collapses) in [
        ("last-modified: Thu, 01 Jan 1998 00:00:00 GMT", false),
        ("cache-control: max-age=60", true),
    ] {
        let rig = Arc::new(Rig::new());
        let (sender, pieces) = mpsc::channel(1);
        rig.says(Says::Slowly(response(fields), pieces));
        let anonymous = together(&rig, 1).await.pop().unwrap();
        rig.says_text("cache-control: no-store", "personal");
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
        assert_eq!(rig.asked(), if collapses { 1 } else { 2 }, "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_follows_is_not_given_more_staleness_than_it_allows() {
    let rig = Arc::new(Rig::new());
    rig.says_text(FRESH, "one");
    rig.get("/", "").await;
    rig.wait(80);
    rig.says(Says::Fails(Failure { offline: false, code: 7 }));
    rig.says(Says::Fails(Failure { offline: false, code: 8 }));
    let (leads, follows) =
        tokio::join!(rig.get("/", "cache-control: stale-if-error=60"), rig.get("/", ""),);
    assert_eq!((leads.outcome, leads.text()), (Outcome::StoodIn, "one"));
    assert_eq!(leads.field("cache-status"), "bentpipe; hit; ttl=-21; detail=no-answer");
    assert_eq!(follows.body.unwrap_err().code, 8);
}
