//! Links that break while requests wait for data.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_link_that_breaks_breaks_the_promises_and_no_more() {
    let bench = bench(three_levels());
    let mut page = bench.air.ask_for(ALICE, url("page"), &browsers(), []).unwrap();
    let (near, connector) = tokio::io::duplex(64);
    tokio::spawn(page.carry(near));
    drop(connector);
    assert!(page.answer().await.is_none());
    let negative_cache = bench.air.ask_for(ALICE, url("page"), &browsers(), []).unwrap();
    let began = Instant::now();
    assert!(negative_cache.answer().await.is_none(), "without a carrier nothing comes");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_get_waits_as_long_as_its_page_goes_on() {
    let page = Arc::new(PageFacts::new(&browsers()));
    let (patience, step) = (Duration::from_secs(10), Duration::from_secs(6));
    let object = Arc::new(Object::new(page.clone()));
    let asked = object.clone();
    let waits =
        tokio::spawn(
            async move { asked.give(&browsers(), patience, Duration::MAX).await.map(|_| ()) },
        );
    for _ in 0..5 {
        tokio::time::sleep(step).await;
        page.heard();
    }
    object.begin(Head::of(StatusCode::OK, &headers(&[])).unwrap());
    assert_eq!(waits.await.unwrap(), Ok(()), "half a minute of other objects came before it");

    let began = Instant::now();
    page.heard();
    let silent = Object::new(page).give(&browsers(), patience, Duration::MAX).await.map(|_| ());
    assert_eq!((silent, began.elapsed()), (Err(PromiseBroken), patience));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_left_is_not_sent_again() {
    let site = Site::default().with("/", HTML, "page").with("/cut", HTML, "");
    let bench = bench(site);
    for path in ["/", "/"] {
        whole(bench.page(path).await.unwrap().1).await.unwrap();
    }
    assert_eq!(*bench.site.connections.lock(), 1, "it is kept");
    assert!(bench.page("/cut").await.is_none());
    assert_eq!(bench.site.asked(), ["/", "/", "/cut"]);
}
