//! HEAD, invalidation, ranges, variants, and untrusted responses.

use crate::common::{Got, Reply, Rig, got, headers, key, response};
use bentpipe_webcache::{OriginError, Outcome, Settings};
use http::{Method, StatusCode};
use tokio::sync::mpsc;

const FRESH: &str = "cache-control: max-age=60";

/// A rig with `body` stored under `/`.
async fn stored(fields: &str, body: &'static str) -> Rig {
    let rig = Rig::new();
    rig.reply_text(fields, body);
    rig.get("/", "").await;
    rig
}

async fn head(rig: &Rig, fields: &str) -> Got {
    got(rig.serve_method(Method::HEAD, "/", fields).await).await
}

#[tokio::test]
async fn head_is_answered_from_a_stored_get() {
    let rig = stored(FRESH, "hello").await;
    let answer = head(&rig, "").await;
    assert_eq!(
        (answer.outcome, answer.text(), answer.field("content-length")),
        (Outcome::Hit, "", "5")
    );
    assert_eq!(rig.requests(), 1);
    rig.wait(61);
    // A HEAD validates the stored response or invalidates it (§4.3.5).
    rig.reply_text("cache-control: max-age=600; content-length: 5", "");
    head(&rig, "").await;
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
    rig.wait(601);
    rig.reply_text("cache-control: max-age=600; content-length: 6", "");
    head(&rig, "").await;
    rig.reply_text(FRESH, "hello!");
    assert_eq!(rig.get("/", "").await.text(), "hello!");
}

#[tokio::test]
async fn a_head_request_stores_nothing() {
    let rig = Rig::new();
    rig.reply_text("cache-control: max-age=60; content-length: 5", "");
    head(&rig, "").await;
    rig.reply_text(FRESH, "hello");
    assert_eq!(rig.get("/", "").await.text(), "hello");
}

#[tokio::test]
async fn successful_unsafe_methods_invalidate_the_stored_response() {
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
        rig.reply_text("304", "");
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
        rig.reply_text("304", "");
        let outcome = rig.get("/", "").await.outcome;
        assert_eq!(outcome == Outcome::Validated, expected, "{location}");
    }
}

#[tokio::test]
async fn an_invalidated_response_is_not_used_offline() {
    let rig = stored(FRESH, "one").await;
    rig.cache.changed(&key("/"), &Method::POST, (StatusCode::OK, &headers("")));
    rig.reply(Reply::Error(OriginError::Offline));
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Failed);
}

#[tokio::test]
async fn ranges_are_cut_from_the_stored_object() {
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
        assert_eq!(rig.requests(), 1, "{fields}");
    }
}

#[tokio::test]
async fn a_range_request_fetches_the_whole_object() {
    let rig = Rig::new();
    rig.reply_text("cache-control: max-age=60; content-length: 10", "0123456789");
    let part = rig.get("/", "range: bytes=2-4").await;
    assert_eq!((part.status.as_u16(), part.text()), (206, "234"));
    assert!(!rig.last_request().contains_key("range"));
    assert_eq!(rig.get("/", "").await.text(), "0123456789");
    assert_eq!(rig.requests(), 1);
}

#[tokio::test]
async fn a_fetch_for_a_range_continues_without_readers() {
    let rig = Rig::new();
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response("cache-control: max-age=60; content-length: 100"), pieces));
    sender.send(Ok("0123456789".into())).await.unwrap();
    let part = rig.get("/", "range: bytes=0-1").await;
    assert_eq!((part.status.as_u16(), part.text()), (206, "01"));
    for _ in 1..10 {
        tokio::task::yield_now().await;
        sender.send(Ok("0123456789".into())).await.unwrap();
    }
    drop(sender);
    assert_eq!(rig.get("/", "range: bytes=66-68").await.text(), "678");
    assert_eq!(rig.get("/", "").await.text(), "0123456789".repeat(10));
    assert_eq!(rig.requests(), 1);
}

#[tokio::test]
async fn a_large_object_is_not_fetched_whole_for_a_range() {
    let rig = Rig::new();
    for fields in ["cache-control: max-age=60; content-length: 5000000", FRESH] {
        let path = if fields == FRESH { "/unknown" } else { "/large" };
        let (_sender, pieces) = mpsc::channel(1);
        rig.reply(Reply::Slow(response(fields), pieces));
        rig.reply_text("206; content-range: bytes 2-4/5000000; cache-control: max-age=60", "234");
        let part = rig.get(path, "range: bytes=2-4").await;
        assert_eq!((part.status.as_u16(), part.text()), (206, "234"));
        assert_eq!(rig.last_request()["range"], "bytes=2-4");
        // The cache remembers that the object is large.
        let before = rig.requests();
        rig.reply_text("206; content-range: bytes 5-6/5000000", "56");
        assert_eq!(rig.get(path, "range: bytes=5-6").await.text(), "56");
        assert_eq!(rig.requests(), before + 1);
    }
    // Nor is an object of which the client wants a range far from the start.
    rig.reply_text("206; content-range: bytes 2000000-2000001/5000000", "xx");
    rig.get("/far", "range: bytes=2000000-2000001").await;
    assert_eq!(rig.last_request()["range"], "bytes=2000000-2000001");
}

#[tokio::test]
async fn variants_are_stored_side_by_side_up_to_eight() {
    let rig = Rig::new();
    for n in 0..20 {
        rig.reply(Reply::Whole(
            response("cache-control: max-age=60; vary: x").map(|()| format!("{n}").into()),
        ));
        rig.get("/", &format!("x: {n}")).await;
    }
    assert_eq!(rig.cache.occupancy().objects, 8);
    for n in 12..20 {
        assert_eq!(rig.get("/", &format!("x: {n}")).await.text(), n.to_string());
    }
    assert_eq!(rig.requests(), 20);
}

#[tokio::test]
async fn an_untrusted_response_is_not_stored() {
    let rig = Rig::new();
    rig.reply(Reply::Untrusted(response(FRESH).map(|()| "evil".into())));
    assert_eq!(rig.get("/", "").await.text(), "evil");
    rig.reply_text(FRESH, "good");
    assert_eq!(rig.get("/", "").await.text(), "good");
    // An untrusted 304 does not validate the stored response.
    rig.wait(61);
    rig.reply(Reply::Untrusted(response("304; cache-control: max-age=6000").map(|()| "".into())));
    rig.get("/", "").await;
    rig.reply_text(FRESH, "new");
    assert_eq!(rig.get("/", "").await.text(), "new");
}

#[tokio::test]
async fn an_untrusted_response_changes_nothing_in_the_store() {
    let fresh = "cache-control: max-age=60; etag: \"a\"";
    let rig = stored(fresh, "one").await;
    rig.wait(61);
    // The untrusted 304 answers the cache's conditions, so the client's own request is sent too.
    let untrusted =
        |fields: &str, body: &'static str| Reply::Untrusted(response(fields).map(|()| body.into()));
    rig.reply(untrusted("304; cache-control: max-age=6000", ""));
    rig.reply(untrusted("cache-control: private", "evil"));
    let got = rig.get("/", "").await;
    assert_eq!((got.status.as_u16(), got.text()), (200, "evil"));
    assert!(!rig.last_request().contains_key("if-none-match"));
    // The stored response is unchanged and still stale, and clients may wait for one fetch.
    rig.reply_text("304; cache-control: max-age=60", "");
    let got = rig.get("/", "").await;
    assert_eq!((got.outcome, got.text()), (Outcome::Validated, "one"));
}

#[tokio::test(start_paused = true)]
async fn only_a_public_unstorable_response_stops_collapsing() {
    // The first request is personal, and so is its response.
    for (first, answer, trusted) in [
        ("if-none-match: \"z\"", "304; etag: \"z\"", true),
        ("if-none-match: \"z\"", "412", true),
        ("x-forwarded-host: evil.test", "cache-control: private", true),
        ("cookie: id=1", "cache-control: private", true),
        ("", "503", true),
        ("", "cache-control: private", false),
    ] {
        let rig = std::sync::Arc::new(Rig::new());
        let whole = response(answer).map(|()| "".into());
        rig.reply(if trusted { Reply::Whole(whole) } else { Reply::Untrusted(whole) });
        rig.get("/", first).await;
        let (sender, pieces) = mpsc::channel(1);
        rig.reply(Reply::Slow(response(FRESH), pieces));
        let tasks = crate::common::together(&rig, 5).await;
        sender.send(Ok("all".into())).await.unwrap();
        drop(sender);
        for task in tasks {
            assert_eq!(task.await.unwrap().text(), "all");
        }
        assert_eq!(rig.requests(), 2, "{first} {answer}");
    }
}

#[tokio::test]
async fn a_personal_response_does_not_remove_the_stored_one() {
    let fresh = "cache-control: max-age=60; etag: \"a\"";
    for first in ["cookie: id=1; cache-control: no-cache", "x-evil: 1; cache-control: no-cache"] {
        let rig = stored(fresh, "one").await;
        rig.reply_text("cache-control: private", "own");
        assert_eq!(rig.get("/", first).await.text(), "own", "{first}");
        assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit, "{first}");
    }
    // A response that all clients would get removes the stored one.
    let rig = stored(fresh, "one").await;
    rig.reply_text("cache-control: no-store", "new");
    rig.get("/", "cache-control: no-cache").await;
    rig.reply_text(FRESH, "newer");
    assert_eq!(rig.get("/", "").await.text(), "newer");
}

#[tokio::test]
async fn a_range_of_a_stale_object_is_validated_or_forwarded() {
    let fields = "cache-control: max-age=60; etag: \"a\"";
    // Validated without a body.
    let rig = stored(fields, "0123456789").await;
    rig.wait(61);
    rig.reply_text("304; cache-control: max-age=60", "");
    let got = rig.get("/", "range: bytes=-2").await;
    assert_eq!((got.status.as_u16(), got.text(), rig.requests()), (206, "89", 2));
    assert_eq!(rig.last_request()["if-none-match"], "\"a\"");
    assert!(!rig.last_request().contains_key("range"));
    // Changed and large: the client's range is forwarded, and the stored response is removed.
    rig.wait(61);
    let (_sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response("content-length: 5000000"), pieces));
    rig.reply_text("206; content-range: bytes 2-3/5000000", "ab");
    let got = rig.get("/", "range: bytes=2-3").await;
    assert_eq!((got.status.as_u16(), got.text()), (206, "ab"));
    assert_eq!(rig.last_request()["range"], "bytes=2-3");
    assert_eq!(rig.cache.occupancy().objects, 0);
    // Without a validator the range is forwarded, as if nothing were stored.
    let rig = stored(FRESH, "0123456789").await;
    rig.wait(61);
    rig.reply_text("206; content-range: bytes 8-9/10", "89");
    assert_eq!(rig.get("/", "range: bytes=-2").await.text(), "89");
    assert_eq!(rig.last_request()["range"], "bytes=-2");
    // The stale response is used while the origin cannot be reached.
    rig.reply(Reply::Error(OriginError::Offline));
    let got = rig.get("/", "range: bytes=-2").await;
    assert_eq!((got.status.as_u16(), got.text(), got.outcome), (206, "89", Outcome::StaleIfError));
}

#[tokio::test]
async fn variants_are_validated_by_their_own_tags_and_invalidated_together() {
    let rig = Rig::new();
    for language in ["de", "en"] {
        let fields =
            format!("cache-control: max-age=60; vary: accept-language; etag: \"{language}\"");
        rig.reply(Reply::Whole(response(&fields).map(|()| language.into())));
        rig.get("/", &format!("accept-language: {language}")).await;
    }
    rig.wait(61);
    rig.reply_text("304; cache-control: max-age=60", "");
    let got = rig.get("/", "accept-language: de").await;
    assert_eq!((got.outcome, got.text()), (Outcome::Validated, "de"));
    assert_eq!(rig.last_request()["if-none-match"], "\"de\"");
    rig.wait(-61);
    assert_eq!(rig.get("/", "accept-language: en").await.outcome, Outcome::Hit);
    rig.cache.changed(&key("/"), &Method::PATCH, (StatusCode::NO_CONTENT, &headers("")));
    for language in ["de", "en"] {
        rig.reply_text("304", "");
        let got = rig.get("/", &format!("accept-language: {language}")).await;
        assert_eq!((got.outcome, got.text()), (Outcome::Validated, language));
    }
}

#[tokio::test]
async fn cache_status_reports_hits_misses_and_stale_use() {
    let fields =
        "cache-control: max-age=60, stale-while-revalidate=9, stale-if-error=100; etag: \"a\"";
    let rig = stored(fields, "0123456789").await;
    let status = |got: &Got| got.field("cache-status").to_owned();
    rig.reply_text("304", "");
    assert_eq!(
        status(&rig.get("/", "cache-control: no-cache").await),
        "bentpipe; fwd=request; fwd-status=304; ttl=60"
    );
    rig.wait(65);
    rig.reply(Reply::Never);
    assert_eq!(status(&rig.get("/", "").await), "bentpipe; hit; ttl=-6");
    let rig = stored(fields, "0123456789").await;
    rig.wait(80);
    rig.reply_text("503", "");
    assert_eq!(status(&rig.get("/", "").await), "bentpipe; fwd=stale; fwd-status=503; ttl=-21");
    rig.reply(Reply::Error(OriginError::Offline));
    assert_eq!(status(&rig.get("/", "").await), "bentpipe; hit; ttl=-21; detail=offline");
    rig.reply_text("cache-control: max-age=60; content-length: 10; vary: x", "0123456789");
    let part = rig.get("/new", "range: bytes=1-2").await;
    assert_eq!(status(&part), "bentpipe; fwd=uri-miss; fwd-status=200; ttl=60; stored");
    rig.reply_text("cache-control: max-age=60; vary: x", "other");
    assert_eq!(status(&rig.get("/new", "x: 1").await), "bentpipe; fwd=vary-miss; ttl=60; stored");
    let got = rig.get("/nowhere", "cache-control: only-if-cached").await;
    assert_eq!(status(&got), "bentpipe; detail=only-if-cached");
}

#[tokio::test(start_paused = true)]
async fn cache_status_reports_collapsed_requests() {
    let rig = std::sync::Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.reply(Reply::Slow(response(FRESH), pieces));
    let tasks = crate::common::together(&rig, 2).await;
    sender.send(Ok("all".into())).await.unwrap();
    drop(sender);
    let mut told = Vec::new();
    for task in tasks {
        told.push(task.await.unwrap().field("cache-status").to_owned());
    }
    told.sort();
    let miss = "bentpipe; fwd=uri-miss; ttl=60; stored";
    assert_eq!(told, [miss.to_owned(), format!("{miss}; collapsed")]);
}

#[tokio::test]
async fn stored_and_evicted_objects_are_counted() {
    let settings = Settings { memory_bytes: 8000, object_bytes: 3000, ..Settings::default() };
    let rig = Rig::with(&settings);
    let text: &'static str = "x".repeat(2500).leak();
    for path in ["/a", "/b", "/c", "/c"] {
        rig.reply_text(&format!("{FRESH}; content-length: 2500"), text);
        rig.get(path, "cache-control: no-cache").await;
    }
    let (counts, here) = (rig.cache.counts(), rig.cache.occupancy());
    assert_eq!((counts.stored, counts.stored_bytes), (4, 10_000));
    // One object replaced its own predecessor.
    assert_eq!(counts.stored - counts.evicted - 1, here.objects);
    assert_eq!(counts.evicted_bytes, 2500 * counts.evicted);
    assert!(counts.evicted > 0, "{counts:?}");
}

fn not_modified(fields: &str) -> Reply {
    let mut confirmed = response(fields).map(|()| bytes::Bytes::new());
    *confirmed.status_mut() = http::StatusCode::NOT_MODIFIED;
    Reply::Whole(confirmed)
}

#[tokio::test]
async fn personal_fields_of_a_304_do_not_reach_other_clients() {
    let rig = Rig::new();
    rig.reply_text("cache-control: max-age=60; etag: \"1\"", "hello");
    rig.get("/", "").await;
    rig.wait(61);
    rig.reply(not_modified("cache-control: max-age=60; etag: \"1\"; set-cookie: sid=b"));
    assert_eq!(rig.get("/", "cookie: sid=b").await.text(), "hello");
    let other = rig.get("/", "").await;
    assert_eq!(
        (other.outcome, other.text(), other.field("set-cookie")),
        (Outcome::Hit, "hello", "")
    );
    // A 304 with private or no-store removes the response for others.
    for said in ["private, max-age=600", "no-store"] {
        rig.wait(61);
        rig.reply(not_modified(&format!("cache-control: {said}; etag: \"1\"")));
        assert_eq!(rig.get("/", "cookie: sid=b").await.text(), "hello");
        rig.reply_text("cache-control: max-age=60; etag: \"1\"", "hello");
        let other = rig.get("/", "").await;
        assert!(matches!(other.outcome, Outcome::Miss(_)), "{said}: {:?}", other.outcome);
    }
}
