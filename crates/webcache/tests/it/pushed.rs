//! Pushed and inserted objects.

use crate::common::{Reply, Rig, headers, key, response};
use bentpipe_webcache::Outcome;
use bytes::Bytes;
use http::Response;

const FRESH: &str = "cache-control: max-age=60";

#[tokio::test(start_paused = true)]
async fn a_pushed_response_is_a_hit_and_is_stored() {
    let rig = Rig::new();
    let says = |fields, text: &'static str| {
        let whole = response(fields).map(|()| Bytes::from_static(text.as_bytes()));
        rig.fake.next.lock().push_back(Reply::Pushed(whole));
    };
    says(FRESH, "pushed");
    let got = rig.get("/", "").await;
    assert_eq!((got.outcome, got.text()), (Outcome::Pushed, "pushed"));
    assert!(got.outcome.saves_round_trip() && !got.outcome.saves_bytes());
    assert_eq!(got.field("cache-status"), "bentpipe; hit; ttl=60; detail=pushed");
    let again = rig.get("/", "").await;
    assert_eq!((again.outcome, rig.requests()), (Outcome::Hit, 1), "it is here");

    // A private response is forwarded too.
    says("cache-control: private", "own");
    let got = rig.get("/own", "").await;
    assert_eq!((got.outcome, got.text()), (Outcome::Pushed, "own"));
    assert_eq!(got.field("cache-status"), "bentpipe; hit; detail=pushed");
}

#[tokio::test(start_paused = true)]
async fn fresh_hashes_are_listed_newest_first() {
    let rig = Rig::new();
    let hashes = |prefix, most| rig.cache.fresh_hashes(prefix, most);
    for path in ["/", "/b", "/a"] {
        let newer = response(FRESH).map(|()| Bytes::from_static(b"x"));
        assert!(rig.cache.insert(&key(path), &headers(""), newer, false));
    }
    assert_eq!(hashes("http://example.net:8", 9).len(), 3);
    assert!(hashes("http://example.org", 9).is_empty());
    let newest = ["/a", "/b"].map(|path| key(path).hash64());
    assert_eq!(hashes("http://example.net:80/", 2), newest, "the newest first");
}

#[tokio::test]
async fn inserted_objects_obey_the_same_policy() {
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
