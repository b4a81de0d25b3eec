//! HEAD, invalidation, ranges, variants, and many who ask at once.

mod common;

use std::time::Duration;

use bentpipe_webcache::{Failure, Outcome, PATIENCE, STALL, Settings};
use bytes::Bytes;
use common::{Got, Rig, Says, got, headers, key, response};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

const FRESH: &str = "cache-control: max-age=60";

/// A rig in which `body` is stored under `/`.
async fn stored(fields: &str, body: &'static str) -> Rig {
    let rig = Rig::new();
    rig.says_text(fields, body);
    rig.get("/", "").await;
    rig
}

async fn head(rig: &Rig, fields: &str) -> Got {
    got(rig.serve_method(Method::HEAD, "/", fields).await).await
}

#[tokio::test]
async fn head_is_answered_by_what_get_brought() {
    let rig = stored(FRESH, "hello").await;
    let answer = head(&rig, "").await;
    assert_eq!(
        (answer.outcome, answer.text(), answer.field("content-length")),
        (Outcome::Hit, "", "5")
    );
    assert_eq!(rig.asked(), 1);
    rig.wait(61);
    // It confirms what is stored, or says that it has changed (§4.3.5).
    rig.says_text("cache-control: max-age=600; content-length: 5", "");
    head(&rig, "").await;
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
    rig.wait(601);
    rig.says_text("cache-control: max-age=600; content-length: 6", "");
    head(&rig, "").await;
    rig.says_text(FRESH, "hello!");
    assert_eq!(rig.get("/", "").await.text(), "hello!");
}

#[tokio::test]
async fn a_head_alone_stores_nothing() {
    let rig = Rig::new();
    rig.says_text("cache-control: max-age=60; content-length: 5", "");
    head(&rig, "").await;
    rig.says_text(FRESH, "hello");
    assert_eq!(rig.get("/", "").await.text(), "hello");
}

#[tokio::test]
async fn unsafe_methods_invalidate_what_they_may_have_changed() {
    let status = |code| StatusCode::from_u16(code).unwrap();
    for (method, code, fields, expected) in [
        (Method::POST, 200, "", true),
        (Method::PUT, 204, "", true),
        (Method::DELETE, 303, "", true),
        (Method::from_bytes(b"FROB").unwrap(), 200, "", true),
        (Method::POST, 404, "", false),
        (Method::POST, 500, "", false),
        (Method::OPTIONS, 200, "", false),
        (Method::GET, 200, "", false),
    ] {
        let rig = stored("cache-control: max-age=60; etag: \"a\"", "one").await;
        rig.cache.changed(&key("/"), &method, (status(code), &headers(fields)));
        rig.says_text("304", "");
        let outcome = rig.get("/", "").await.outcome;
        assert_eq!(outcome == Outcome::Validated, expected, "{method} {code}");
    }
}

#[tokio::test]
async fn location_is_invalidated_only_at_the_same_origin() {
    for (location, expected) in [
        ("/", true),
        ("http://example.net/", true),
        ("http://EXAMPLE.net:80/", true),
        ("http://other.net/", false),
        ("https://example.net/", false),
    ] {
        let rig = stored("cache-control: max-age=60; etag: \"a\"", "one").await;
        let said = headers(&format!("location: {location}"));
        rig.cache.changed(&key("/form"), &Method::POST, (StatusCode::CREATED, &said));
        rig.says_text("304", "");
        let outcome = rig.get("/", "").await.outcome;
        assert_eq!(outcome == Outcome::Validated, expected, "{location}");
    }
}

#[tokio::test]
async fn an_invalidated_answer_is_not_used_when_the_origin_is_out_of_reach() {
    let rig = stored(FRESH, "one").await;
    rig.cache.changed(&key("/"), &Method::POST, (StatusCode::OK, &headers("")));
    rig.says(Says::Fails(Failure { offline: true, code: 1 }));
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Failed);
}

#[tokio::test]
async fn ranges_are_cut_from_what_is_stored() {
    let strong =
        "cache-control: max-age=60; etag: \"a\"; last-modified: Sat, 08 Sep 2001 01:46:40 GMT";
    let rig = stored(strong, "0123456789").await;
    for (fields, status, body, content_range) in [
        ("range: bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("range: bytes=-2", 206, "89", "bytes 8-9/10"),
        ("range: bytes=8-", 206, "89", "bytes 8-9/10"),
        ("range: bytes=10-", 416, "", "bytes */10"),
        ("range: bytes=1-2,4-5", 200, "0123456789", ""),
        ("range: bytes=2-4; if-range: \"a\"", 206, "234", "bytes 2-4/10"),
        ("range: bytes=2-4; if-range: \"b\"", 200, "0123456789", ""),
        ("range: bytes=2-4; if-range: W/\"a\"", 200, "0123456789", ""),
        ("range: bytes=2-4; if-range: Sat, 08 Sep 2001 01:46:40 GMT", 206, "234", "bytes 2-4/10"),
        ("range: bytes=2-4; if-range: Fri, 07 Sep 2001 01:46:40 GMT", 200, "0123456789", ""),
        ("range: bytes=2-4; if-none-match: \"a\"", 304, "", ""),
    ] {
        let got = rig.get("/", fields).await;
        let seen = (got.status.as_u16(), got.text(), got.field("content-range"));
        assert_eq!(seen, (status, body, content_range), "{fields}");
        assert_eq!(rig.asked(), 1, "{fields}");
    }
}

#[tokio::test]
async fn behind_a_range_the_whole_object_is_fetched() {
    let rig = Rig::new();
    rig.says_text("cache-control: max-age=60; content-length: 10", "0123456789");
    let part = rig.get("/", "range: bytes=2-4").await;
    assert_eq!((part.status.as_u16(), part.text()), (206, "234"));
    assert!(!rig.last_asked().contains_key("range"));
    assert_eq!(rig.get("/", "").await.text(), "0123456789");
    assert_eq!(rig.asked(), 1);
}

#[tokio::test]
async fn a_large_object_is_not_fetched_whole_for_a_range() {
    let rig = Rig::new();
    for fields in ["cache-control: max-age=60; content-length: 5000000", FRESH] {
        let path = if fields == FRESH { "/unknown" } else { "/large" };
        let (_sender, pieces) = mpsc::channel(1);
        rig.says(Says::Slowly(response(fields), pieces));
        rig.says_text("206; content-range: bytes 2-4/5000000; cache-control: max-age=60", "234");
        let part = rig.get(path, "range: bytes=2-4").await;
        assert_eq!((part.status.as_u16(), part.text()), (206, "234"));
        assert_eq!(rig.last_asked()["range"], "bytes=2-4");
        // From now on it is known.
        let before = rig.asked();
        rig.says_text("206; content-range: bytes 5-6/5000000", "56");
        assert_eq!(rig.get(path, "range: bytes=5-6").await.text(), "56");
        assert_eq!(rig.asked(), before + 1);
    }
    // Nor one of which the client wants what is far inside.
    rig.says_text("206; content-range: bytes 2000000-2000001/5000000", "xx");
    rig.get("/far", "range: bytes=2000000-2000001").await;
    assert_eq!(rig.last_asked()["range"], "bytes=2000000-2000001");
}

#[tokio::test]
async fn variants_lie_side_by_side_and_are_bounded() {
    let rig = Rig::new();
    for n in 0..20 {
        rig.says(Says::Whole(
            response("cache-control: max-age=60; vary: x").map(|()| format!("{n}").into()),
        ));
        rig.get("/", &format!("x: {n}")).await;
    }
    assert_eq!(rig.cache.occupancy().objects, 8);
    for n in 12..20 {
        assert_eq!(rig.get("/", &format!("x: {n}")).await.text(), n.to_string());
    }
    assert_eq!(rig.asked(), 20);
}

#[tokio::test]
async fn what_is_not_trusted_is_not_stored() {
    let rig = Rig::new();
    rig.says(Says::Untrusted(response(FRESH).map(|()| "evil".into())));
    assert_eq!(rig.get("/", "").await.text(), "evil");
    rig.says_text(FRESH, "good");
    assert_eq!(rig.get("/", "").await.text(), "good");
    // Nor does it confirm what is stored.
    rig.wait(61);
    rig.says(Says::Untrusted(response("304; cache-control: max-age=6000").map(|()| "".into())));
    rig.get("/", "").await;
    rig.says_text(FRESH, "new");
    assert_eq!(rig.get("/", "").await.text(), "new");
}

/// Many at once: the number of questions is what counts.
async fn together(rig: &std::sync::Arc<Rig>, count: usize) -> Vec<tokio::task::JoinHandle<Got>> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let rig = rig.clone();
            tokio::spawn(async move { rig.get("/", "").await })
        })
        .collect();
    // All of them have begun.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    tasks
}

#[tokio::test(start_paused = true)]
async fn one_fetch_serves_all_who_ask_and_is_read_while_it_comes() {
    let rig = std::sync::Arc::new(Rig::new());
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
    let rig = std::sync::Arc::new(Rig::new());
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
    let rig = std::sync::Arc::new(Rig::new());
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
async fn an_answer_for_one_releases_the_others() {
    let rig = std::sync::Arc::new(Rig::new());
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
    let rig = std::sync::Arc::new(Rig::new());
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
    let rig = std::sync::Arc::new(Rig::new());
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
    let rig = std::sync::Arc::new(Rig::new());
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
    let rig = std::sync::Arc::new(Rig::new());
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
    let rig = std::sync::Arc::new(Rig::with(&settings));
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

#[tokio::test]
async fn memory_full_of_bodies_on_their_way_passes_others_through() {
    let settings = Settings { memory_bytes: 100_000, ..Settings::default() };
    let rig = Rig::with(&settings);
    let (_sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response("cache-control: max-age=60; content-length: 40000"), pieces));
    let first = rig.serve("/a", "").await;
    rig.says(Says::Whole(
        response("cache-control: max-age=60; content-length: 20000")
            .map(|()| vec![1; 20_000].into()),
    ));
    assert_eq!(rig.get("/b", "").await.body.unwrap().len(), 20_000);
    assert_eq!(
        rig.cache.occupancy(),
        bentpipe_webcache::Occupancy { memory_bytes: 40_000, ..Default::default() }
    );
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_promised_object_is_waited_for_and_then_here() {
    let rig = std::sync::Arc::new(Rig::new());
    let promise = rig.cache.promise(&key("/"), headers("")).unwrap();
    assert!(rig.cache.promise(&key("/"), headers("")).is_none(), "once is enough");
    let task = together(&rig, 1).await.pop().unwrap();
    let mut push = promise.begin(response(FRESH)).unwrap();
    push.push(Bytes::from_static(b"pushed")).await;
    push.end();
    let got = task.await.unwrap();
    assert_eq!((got.outcome, got.text()), (Outcome::Pushed, "pushed"));
    assert_eq!(got.field("cache-status"), "bentpipe; hit; ttl=60; stored; detail=pushed");
    assert_eq!((rig.get("/", "").await.outcome, rig.asked()), (Outcome::Hit, 0));
    assert!(rig.cache.promise(&key("/"), headers("")).is_none(), "it is here");
    let hashes = |prefix, most| rig.cache.fresh_hashes(prefix, most);
    assert_eq!(hashes("http://example.net:80/", 9), [key("/").hash64()]);
    assert_eq!(hashes("http://example.net:8", 9).len(), 1);
    assert!(hashes("http://example.org", 9).is_empty());
    for path in ["/b", "/a"] {
        let newer = response(FRESH).map(|()| Bytes::from_static(b"x"));
        assert!(rig.cache.insert(&key(path), &headers(""), newer, false));
    }
    let newest = ["/a", "/b"].map(|path| key(path).hash64());
    assert_eq!(hashes("http://example.net:80/", 2), newest, "the newest first");
}

#[tokio::test(start_paused = true)]
async fn a_broken_promise_sends_everybody_to_the_origin() {
    let rig = std::sync::Arc::new(Rig::new());
    let promise = rig.cache.promise(&key("/"), headers("")).unwrap();
    let task = together(&rig, 1).await.pop().unwrap();
    rig.says_text(FRESH, "fetched");
    drop(promise);
    assert_eq!(task.await.unwrap().text(), "fetched");
    // What may not be stored is not pushed, and half a body is not served.
    let promise = rig.cache.promise(&key("/private"), headers("")).unwrap();
    assert!(promise.begin(response("cache-control: private")).is_none());
    let mut push =
        rig.cache.promise(&key("/half"), headers("")).unwrap().begin(response(FRESH)).unwrap();
    push.push(Bytes::from_static(b"half")).await;
    drop(push);
    rig.says_text(FRESH, "whole");
    assert_eq!(rig.get("/half", "").await.text(), "whole");
}

#[tokio::test]
async fn what_is_inserted_is_asked_like_what_is_fetched() {
    let rig = Rig::new();
    let whole = |fields: &str| -> Response<Bytes> { response(fields).map(|()| "body".into()) };
    assert!(rig.cache.insert(&key("/"), &headers(""), whole(FRESH), false));
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
    for refused in
        ["cache-control: private", "set-cookie: a", "cache-control: max-age=9; content-length: 5"]
    {
        assert!(!rig.cache.insert(&key("/x"), &headers(""), whole(refused), false), "{refused}");
    }
}
