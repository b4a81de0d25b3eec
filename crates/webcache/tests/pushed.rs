//! Objects that come unasked: promised and pushed, or put in whole.

mod common;

use bentpipe_webcache::Outcome;
use bytes::Bytes;
use common::{Rig, headers, key, response, together};
use http::Response;

const FRESH: &str = "cache-control: max-age=60";

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
    assert_eq!(got.field("cache-status"), "bentpipe; hit; ttl=60; detail=pushed");
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
