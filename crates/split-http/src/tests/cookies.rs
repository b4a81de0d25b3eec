//! Requests with a cookie, and objects that were fetched without one.

use super::*;

const FRESH: &[(&str, &str)] = &[("cache-control", "max-age=600")];

fn with_cookie() -> HeaderMap {
    let mut headers = browsers();
    headers.insert(header::COOKIE, HeaderValue::from_static("seen=1"));
    headers
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_cookie_is_given_what_a_shared_cache_may_give() {
    let page = "<img src=fresh.png><img src=guess.png><img src=asked.png><img src=vary.png>\
                <img src=own.png>";
    let site = Site::default()
        .with("/", HTML, page)
        .with("/fresh.png", FRESH, "x")
        .with("/guess.png", &[], "x")
        .with("/asked.png", &[("cache-control", "max-age=600, no-cache")], "x")
        .with("/vary.png", &[("cache-control", "max-age=600"), ("vary", "Cookie")], "x")
        .with("/own.png", &[("cache-control", "max-age=600, private")], "x");
    let bench = bench(site);
    whole(bench.page("/").await.unwrap().1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let given = async |path| bench.given(path, &with_cookie()).await.map(|(_, bytes)| bytes);
    assert_eq!(given("fresh.png").await, Some("x".into()));
    for path in ["guess.png", "asked.png", "vary.png", "own.png"] {
        assert_eq!(given(path).await, None, "{path}");
    }
    // A request without a cookie still gets an object that was withheld from a request with one.
    assert_eq!(bench.object("guess.png").await, Some("x".into()));
    assert!(bench.object("fresh.png").await.is_some());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(given("fresh.png").await, None, "its time is over");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_sets_a_cookie_brings_what_is_for_anybody() {
    let by_head: &[(&str, &str)] = &[("content-type", "text/html"), ("set-cookie", "seen=1")];
    let body = "<link rel=stylesheet href=s.css><img src=fresh.png><img src=guess.png>";
    let script = format!("<script>document.cookie = 'seen=1'</script>{body}");
    let sheet = [("content-type", "text/css"), ("cache-control", "public, max-age=600")];
    for (fields, page) in [(by_head, body), (HTML, &script[..])] {
        let site = Site::default()
            .with("/", fields, page)
            .with("/s.css", &sheet, "a { background: url(inner.png) }")
            .with("/inner.png", FRESH, "y")
            .with("/fresh.png", FRESH, "x")
            .with("/guess.png", &[], "x");
        let bench = bench(site);
        whole(bench.page("/").await.unwrap().1).await.unwrap();
        for path in ["s.css", "inner.png", "fresh.png"] {
            assert!(bench.given(path, &with_cookie()).await.is_some(), "{path}");
        }
        assert_eq!(bench.given("guess.png", &with_cookie()).await, None);
        tokio::time::sleep(2 * KEEP).await;
        // Promised, used, unused, declined, cancelled: no push was wasted.
        assert_eq!(bench.fates(), [4, 3, 0, 1, 0]);
        assert_eq!(bench.at_air.wasted_bytes.get(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_cookie_does_not_wait_for_a_page_of_guesses() {
    let page = Arc::new(PageFacts::new(&browsers()));
    let patience = Duration::from_secs(10);
    let [first, second] = [(); 2].map(|()| Object::new(page.clone()));
    first.begin(Head::of(StatusCode::OK, &headers(&[])).unwrap());
    let began = Instant::now();
    let given = second.give(&with_cookie(), patience, Duration::MAX).await.map(|_| ());
    assert_eq!((given, began.elapsed()), (Err(PromiseBroken), Duration::ZERO));
    // If at least as many objects allow any cookie, waiting is worthwhile.
    first.begin(Head::of(StatusCode::OK, &headers(FRESH)).unwrap());
    let given = second.give(&with_cookie(), patience, Duration::MAX).await.map(|_| ());
    assert_eq!((given, began.elapsed()), (Err(PromiseBroken), patience));
}

/// Loads, with a cookie, a page of 50 images of 8 KB each with these `fields`. The page's inline
/// script sets a cookie.
async fn loaded(fields: &[(&'static str, &'static str)]) -> Bench {
    let names: Vec<_> = (0..50).map(|n| format!("{n}.png")).collect();
    let images: String = names.iter().map(|name| format!("<img src={name}>")).collect();
    let page = format!("<script>document.cookie = 'seen=1'</script>{images}");
    let picture = "x".repeat(8000);
    let site = names.iter().fold(Site::default().with("/", HTML, &page), |site, name| {
        site.with(&format!("/{name}"), fields, &picture)
    });
    let bench = bench(site);
    whole(bench.page("/").await.unwrap().1).await.unwrap();
    for name in &names {
        bench.given(name, &with_cookie()).await;
    }
    tokio::time::sleep(2 * KEEP).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn a_script_that_sets_a_cookie_wastes_nothing() {
    let bench = loaded(FRESH).await;
    assert_eq!(bench.fates(), [50, 50, 0, 0, 0]);
    assert!(bench.at_air.pushed_bytes.get() >= 50 * 8000);
    assert_eq!(bench.at_air.wasted_bytes.get(), 0);
    let bench = loaded(&[]).await;
    assert_eq!(bench.fates(), [50, 0, 0, 50, 0]);
    assert_eq!(bench.at_air.pushed_bytes.get(), 0);
}
