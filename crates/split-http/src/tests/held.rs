//! Limit on pages kept after their streams have ended.

use super::*;
use crate::air::MAX_HELD;

#[tokio::test(start_paused = true)]
async fn a_page_beyond_the_most_that_are_held_is_given_up_at_once() {
    let site = ["/a", "/b", "/c"].into_iter().fold(Site::default(), |site, page| {
        let image = format!("<img src={page}.png>");
        site.with(page, HTML, &image).with(&format!("{page}.png"), &[], "image")
    });
    let bench = bench(site);
    bench.air.held.forget_permits(MAX_HELD - 1);
    for page in ["/a", "/b"] {
        let (_, body) = bench.page(page).await.unwrap();
        assert!(whole(body).await.is_some(), "{page}");
    }
    // Both streams have ended, and one of the two pages is kept.
    tokio::time::sleep(KEEP / 10).await;
    assert_eq!(bench.object("/a.png").await, Some("image".into()));
    assert_eq!(bench.object("/b.png").await, None);
    tokio::time::sleep(KEEP).await;
    whole(bench.page("/c").await.unwrap().1).await.unwrap();
    tokio::time::sleep(KEEP / 10).await;
    assert_eq!(bench.object("/c.png").await, Some("image".into()), "its place is free again");
    tokio::time::sleep(2 * KEEP).await;
    assert_eq!(bench.fates(), [3, 2, 1, 0, 0]);
}
