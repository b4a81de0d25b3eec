//! Objects pushed for one passenger, and the air gateway's own check of who may receive them.

use super::*;

#[tokio::test(start_paused = true)]
async fn personal_objects_stay_at_the_ground() {
    let page = "<img src=private.png><img src=cookie.png><img src=missing.png>\
                <img src=http://elsewhere.test/x.png><img src=good.png>";
    let site = Site::default()
        .with("/", HTML, page)
        .with("/private.png", &[("cache-control", "private")], "x")
        .with("/cookie.png", &[("set-cookie", "a=b")], "x")
        .with("/good.png", &[("cache-control", "public")], "x");
    let bench = bench(site);
    let (_, body) = bench.page("/").await.unwrap();
    whole(body).await.unwrap();
    for path in ["private.png", "cookie.png", "missing.png", "http://elsewhere.test/x.png"] {
        // The promise is broken, or expired by the time of the request.
        assert_eq!(bench.object(path).await, None, "{path}");
    }
    assert_eq!(bench.object("good.png").await, Some("x".into()));
    tokio::time::sleep(2 * KEEP).await;
    assert_eq!(bench.fates(), [5, 1, 0, 4, 0]);
    assert_eq!(bench.ground.counters.objects_declined.get(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_its_origin_wants_left_alone_is_passed_on_and_not_read() {
    let headers = &[("content-type", "text/html"), ("cache-control", "no-transform")];
    let bench =
        bench(Site::default().with("/", headers, "<img src=a.png>").with("/a.png", &[], "x"));
    let (_, body) = bench.page("/").await.unwrap();
    assert_eq!(whole(body).await.unwrap(), "<img src=a.png>");
    assert_eq!(bench.site.asked(), ["/"]);
}

#[tokio::test(start_paused = true)]
async fn pushed_objects_are_not_shared_between_passengers() {
    let bench = bench(three_levels());
    whole(bench.page("page").await.unwrap().1).await.unwrap();
    for path in ["s.js", "i.png"] {
        let given = bench.air.object(BOB, &url(path), &browsers()).await;
        assert!(given.is_none(), "{path} came for Alice");
        assert!(bench.object(path).await.is_some(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_air_checks_the_grounds_claims_about_objects() {
    let bench = bench(Site::default());
    let mut ground = bench.page_of_a_stranger();
    let body = |id| Said::Data(id, Bytes::from_static(b"x"));
    let all = vec![
        Said::Head(PAGE, head(HTML)),
        promised(1, "cookie.png"),
        Said::Head(1, head(&[("set-cookie", "a=b")])),
        body(1),
        promised(2, "private.png"),
        Said::Head(2, head(&[("cache-control", "private")])),
        body(2),
        promised(3, "vary.png"),
        Said::Head(3, head(&[("vary", "cookie")])),
        body(3),
        promised(4, "good.png"),
        Said::Head(4, head(&[])),
        body(4),
        Said::End(4, End::Complete),
    ];
    say(&mut ground, all).await;
    for path in ["cookie.png", "private.png", "vary.png"] {
        assert_eq!(bench.object(path).await, None, "{path}");
    }
    assert_eq!(bench.object("good.png").await, Some("x".into()));
    drop(ground);
    tokio::time::sleep(2 * KEEP).await;
    assert_eq!(bench.fates(), [4, 1, 0, 0, 3]);
}

#[tokio::test(start_paused = true)]
async fn stale_objects_are_delivered_once_and_soon() {
    let page = "<img src=plain.png><img src=kept.png><img src=asked.png><img src=old.png>";
    let site = Site::default()
        .with("/", HTML, page)
        .with("/plain.png", &[], "x")
        .with("/asked.png", &[("cache-control", "no-cache")], "x")
        .with("/old.png", &[("cache-control", "max-age=50"), ("age", "40")], "x")
        .with("/kept.png", &[("cache-control", "max-age=50"), ("age", "7")], "x");
    let bench = bench(site);
    let take = async || whole(bench.page("/").await.unwrap().1).await.unwrap();
    let given = async |path| bench.given(path, &browsers()).await.map(|(age, _)| age);
    take().await;
    // A mismatched request does not use up the object.
    let other = headers(&[("user-agent", "another")]);
    assert_eq!(bench.given("plain.png", &other).await, None, "it may have got other bytes");
    assert_eq!((given("plain.png").await, given("plain.png").await), (Some(0), None));
    assert_eq!((given("asked.png").await, given("asked.png").await), (Some(0), None));
    assert_eq!((given("kept.png").await, given("kept.png").await), (Some(7), Some(7)));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((given("kept.png").await, given("plain.png").await), (Some(27), None));
    let fresh = headers(&[("cache-control", "max-age=26"), ("user-agent", "test")]);
    assert_eq!(bench.given("kept.png", &fresh).await, None, "it is too old for that");
    assert_eq!((given("old.png").await, given("old.png").await), (Some(60), None), "once");

    take().await;
    tokio::time::sleep(ONCE_WITHIN).await;
    assert_eq!(given("plain.png").await, None, "that was for a page of long ago");
    assert_eq!(given("kept.png").await, None, "its time is over, and it has been given");
}

#[tokio::test(start_paused = true)]
async fn redirects_are_for_those_who_ask() {
    let inside = &[("location", "http://127.0.0.1/secret")];
    let site = Site::default()
        .with("/", HTML, "<img src=moved.png><img src=http://127.0.0.1/x.png>")
        .with("/moved.png", inside, "")
        .with("/moved", inside, "");
    let bench = bench(site);
    whole(bench.page("/").await.unwrap().1).await.unwrap();
    assert_eq!(bench.object("moved.png").await, None);
    assert_eq!(bench.object("http://127.0.0.1/x.png").await, None);
    let (status, _) = bench.page("/moved").await.unwrap();
    assert_eq!(status, StatusCode::FOUND, "the passenger's browser follows it, or not");
    assert_eq!(bench.site.asked(), ["/", "/moved.png", "/moved"]);
}
