//! HEAD, invalidation, ranges, variants, and whose words count.

mod common;

use bentpipe_webcache::{Failure, Outcome, Settings};
use common::{Got, Rig, Says, got, headers, key, response};
use http::{Method, StatusCode};
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
async fn behind_a_range_the_whole_object_is_fetched_although_its_reader_has_gone() {
    let rig = Rig::new();
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response("cache-control: max-age=60; content-length: 100"), pieces));
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

#[tokio::test]
async fn what_is_not_trusted_confirms_removes_and_marks_nothing() {
    let fresh = "cache-control: max-age=60; etag: \"a\"";
    let rig = stored(fresh, "one").await;
    rig.wait(61);
    // Its 304 answers our question, not the client's: it is asked once more as the client did.
    let untrusted =
        |fields: &str, body: &'static str| Says::Untrusted(response(fields).map(|()| body.into()));
    rig.says(untrusted("304; cache-control: max-age=6000", ""));
    rig.says(untrusted("cache-control: private", "evil"));
    let got = rig.get("/", "").await;
    assert_eq!((got.status.as_u16(), got.text()), (200, "evil"));
    assert!(!rig.last_asked().contains_key("if-none-match"));
    // What is here is here still, stale as it was, and others may wait for one fetch.
    rig.says_text("304; cache-control: max-age=60", "");
    let got = rig.get("/", "").await;
    assert_eq!((got.outcome, got.text()), (Outcome::Validated, "one"));
}

#[tokio::test(start_paused = true)]
async fn only_what_the_origin_says_to_anybody_keeps_others_from_waiting() {
    // The first asks for what is only its own affair, and is answered so.
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
        rig.says(if trusted { Says::Whole(whole) } else { Says::Untrusted(whole) });
        rig.get("/", first).await;
        let (sender, pieces) = mpsc::channel(1);
        rig.says(Says::Slowly(response(FRESH), pieces));
        let tasks = common::together(&rig, 5).await;
        sender.send(Ok("all".into())).await.unwrap();
        drop(sender);
        for task in tasks {
            assert_eq!(task.await.unwrap().text(), "all");
        }
        assert_eq!(rig.asked(), 2, "{first} {answer}");
    }
}

#[tokio::test]
async fn one_client_does_not_make_others_lose_what_is_stored() {
    let fresh = "cache-control: max-age=60; etag: \"a\"";
    for first in ["cookie: id=1; cache-control: no-cache", "x-evil: 1; cache-control: no-cache"] {
        let rig = stored(fresh, "one").await;
        rig.says_text("cache-control: private", "own");
        assert_eq!(rig.get("/", first).await.text(), "own", "{first}");
        assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit, "{first}");
    }
    // What everybody would be told now is another matter.
    let rig = stored(fresh, "one").await;
    rig.says_text("cache-control: no-store", "new");
    rig.get("/", "cache-control: no-cache").await;
    rig.says_text(FRESH, "newer");
    assert_eq!(rig.get("/", "").await.text(), "newer");
}

#[tokio::test]
async fn a_range_of_what_is_stale_is_confirmed_or_bounded() {
    let fields = "cache-control: max-age=60; etag: \"a\"";
    // Confirmed, without a body.
    let rig = stored(fields, "0123456789").await;
    rig.wait(61);
    rig.says_text("304; cache-control: max-age=60", "");
    let got = rig.get("/", "range: bytes=-2").await;
    assert_eq!((got.status.as_u16(), got.text(), rig.asked()), (206, "89", 2));
    assert_eq!(rig.last_asked()["if-none-match"], "\"a\"");
    assert!(!rig.last_asked().contains_key("range"));
    // Changed, and large: the client's own question is asked, and what was stored is no more.
    rig.wait(61);
    let (_sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response("content-length: 5000000"), pieces));
    rig.says_text("206; content-range: bytes 2-3/5000000", "ab");
    let got = rig.get("/", "range: bytes=2-3").await;
    assert_eq!((got.status.as_u16(), got.text()), (206, "ab"));
    assert_eq!(rig.last_asked()["range"], "bytes=2-3");
    assert_eq!(rig.cache.occupancy().objects, 0);
    // Nothing to confirm it by: as if nothing were stored, so that what is far inside is asked for alone.
    let rig = stored(FRESH, "0123456789").await;
    rig.wait(61);
    rig.says_text("206; content-range: bytes 8-9/10", "89");
    assert_eq!(rig.get("/", "range: bytes=-2").await.text(), "89");
    assert_eq!(rig.last_asked()["range"], "bytes=-2");
    // And it stands in where the ground cannot be reached.
    rig.says(Says::Fails(Failure { offline: true, code: 1 }));
    let got = rig.get("/", "range: bytes=-2").await;
    assert_eq!((got.status.as_u16(), got.text(), got.outcome), (206, "89", Outcome::StoodIn));
}

#[tokio::test]
async fn variants_are_confirmed_each_by_its_own_tag_and_invalidated_together() {
    let rig = Rig::new();
    for language in ["de", "en"] {
        let fields =
            format!("cache-control: max-age=60; vary: accept-language; etag: \"{language}\"");
        rig.says(Says::Whole(response(&fields).map(|()| language.into())));
        rig.get("/", &format!("accept-language: {language}")).await;
    }
    rig.wait(61);
    rig.says_text("304; cache-control: max-age=60", "");
    let got = rig.get("/", "accept-language: de").await;
    assert_eq!((got.outcome, got.text()), (Outcome::Validated, "de"));
    assert_eq!(rig.last_asked()["if-none-match"], "\"de\"");
    rig.wait(-61);
    assert_eq!(rig.get("/", "accept-language: en").await.outcome, Outcome::Hit);
    rig.cache.changed(&key("/"), &Method::PATCH, (StatusCode::NO_CONTENT, &headers("")));
    for language in ["de", "en"] {
        rig.says_text("304", "");
        let got = rig.get("/", &format!("accept-language: {language}")).await;
        assert_eq!((got.outcome, got.text()), (Outcome::Validated, language));
    }
}

#[tokio::test]
async fn cache_status_tells_what_was_done() {
    let fields =
        "cache-control: max-age=60, stale-while-revalidate=9, stale-if-error=100; etag: \"a\"";
    let rig = stored(fields, "0123456789").await;
    let status = |got: &Got| got.field("cache-status").to_owned();
    rig.says_text("304", "");
    assert_eq!(
        status(&rig.get("/", "cache-control: no-cache").await),
        "bentpipe; fwd=request; fwd-status=304; ttl=60"
    );
    rig.wait(65);
    rig.says(Says::Nothing);
    assert_eq!(status(&rig.get("/", "").await), "bentpipe; hit; ttl=-6");
    let rig = stored(fields, "0123456789").await;
    rig.wait(80);
    rig.says_text("503", "");
    assert_eq!(status(&rig.get("/", "").await), "bentpipe; fwd=stale; fwd-status=503; ttl=-21");
    rig.says(Says::Fails(Failure { offline: true, code: 1 }));
    assert_eq!(status(&rig.get("/", "").await), "bentpipe; hit; ttl=-21; detail=offline");
    rig.says_text("cache-control: max-age=60; content-length: 10; vary: x", "0123456789");
    let part = rig.get("/new", "range: bytes=1-2").await;
    assert_eq!(status(&part), "bentpipe; fwd=uri-miss; fwd-status=200; ttl=60; stored");
    rig.says_text("cache-control: max-age=60; vary: x", "other");
    assert_eq!(status(&rig.get("/new", "x: 1").await), "bentpipe; fwd=vary-miss; ttl=60; stored");
    let got = rig.get("/nowhere", "cache-control: only-if-cached").await;
    assert_eq!(status(&got), "bentpipe; detail=only-if-cached");
}

#[tokio::test(start_paused = true)]
async fn cache_status_tells_of_those_who_followed() {
    let rig = std::sync::Arc::new(Rig::new());
    let (sender, pieces) = mpsc::channel(1);
    rig.says(Says::Slowly(response(FRESH), pieces));
    let tasks = common::together(&rig, 2).await;
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
async fn what_comes_and_goes_is_counted() {
    let settings = Settings { memory_bytes: 8000, object_bytes: 3000, ..Settings::default() };
    let rig = Rig::with(&settings);
    let text: &'static str = "x".repeat(2500).leak();
    for path in ["/a", "/b", "/c", "/c"] {
        rig.says_text(&format!("{FRESH}; content-length: 2500"), text);
        rig.get(path, "cache-control: no-cache").await;
    }
    let (counts, here) = (rig.cache.counts(), rig.cache.occupancy());
    assert_eq!((counts.stored, counts.stored_bytes), (4, 10_000));
    // One of them took the place of its own elder.
    assert_eq!(counts.stored - counts.evicted - 1, here.objects);
    assert_eq!(counts.evicted_bytes, 2500 * counts.evicted);
    assert!(counts.evicted > 0, "{counts:?}");
}

fn not_modified(fields: &str) -> Says {
    let mut confirmed = response(fields).map(|()| bytes::Bytes::new());
    *confirmed.status_mut() = http::StatusCode::NOT_MODIFIED;
    Says::Whole(confirmed)
}

#[tokio::test]
async fn what_a_304_says_to_one_is_not_told_to_others() {
    let rig = Rig::new();
    rig.says_text("cache-control: max-age=60; etag: \"1\"", "hello");
    rig.get("/", "").await;
    rig.wait(61);
    rig.says(not_modified("cache-control: max-age=60; etag: \"1\"; set-cookie: sid=b"));
    assert_eq!(rig.get("/", "cookie: sid=b").await.text(), "hello");
    let other = rig.get("/", "").await;
    assert_eq!(
        (other.outcome, other.text(), other.field("set-cookie")),
        (Outcome::Hit, "hello", "")
    );
    // And one that says that it is nobody else's any more ends that.
    for said in ["private, max-age=600", "no-store"] {
        rig.wait(61);
        rig.says(not_modified(&format!("cache-control: {said}; etag: \"1\"")));
        assert_eq!(rig.get("/", "cookie: sid=b").await.text(), "hello");
        rig.says_text("cache-control: max-age=60; etag: \"1\"", "hello");
        let other = rig.get("/", "").await;
        assert!(matches!(other.outcome, Outcome::Miss(_)), "{said}: {:?}", other.outcome);
    }
}
