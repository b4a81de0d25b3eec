//! Responses to a page's request that are not pages.

use super::*;

const BINARY: &[(&str, &str)] = &[("content-type", "application/zip")];

#[tokio::test(start_paused = true)]
async fn downloads_are_asked_for_once_and_passed_on() {
    let long = " ".repeat(17 << 20);
    let binary: Fields = vec![("content-type", "application/zip")];
    let site = Site::default()
        .with("/long", HTML, &long)
        .with("/file", &binary, &long[..2 << 20])
        .with("/endless", &binary, "")
        .with("/small", &binary, "x");
    let bench = bench(site);
    for (path, bytes) in [("/long", 17 << 20), ("/file", 2 << 20), ("/small", 1)] {
        let (_, body) = bench.page(path).await.unwrap();
        assert_eq!(whole(body).await.map(|body| body.len()), Some(bytes), "{path}");
    }
    // More downloads than a passenger has page slots, and for longer than a page may take.
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(bench.page("/endless").await.unwrap().1);
    }
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        for body in &mut bodies {
            assert!(body.next().await.unwrap().is_ok());
        }
    }
    assert!(bench.page("/small").await.is_some(), "they take none of the pages' places");
    for body in &mut bodies {
        // More than the air gateway buffers.
        for _ in 0..100 {
            assert!(body.next().await.unwrap().is_ok());
        }
    }
    assert_eq!(bench.site.asked().len(), 8, "each once");
    let counters = &bench.ground.counters;
    assert_eq!(counters.downloads.get(), 6);
    let counted = [&counters.pages_bytes, &counters.downloads_bytes].map(|count| count.get());
    assert_eq!(counted[0], 2, "those of the small ones");
    assert!(counted[1] > 19 << 20, "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_download_waits_for_its_origin_as_long_as_a_flow() {
    let bench = bench(Site::default().with("/slow", BINARY, ""));
    let (_, body) = bench.page("/slow").await.unwrap();
    assert_eq!(whole(body).await, Some("beginend".into()));
    assert_eq!(bench.site.asked(), ["/slow"], "once");

    for (air, ground) in [(SLOW / 2, IDLE), (IDLE, SLOW / 2)] {
        let site = Site::default().with("/slow", BINARY, "");
        let bench = bench_with(site, |it| it.idle = air, |it| it.idle = ground);
        let began = Instant::now();
        let (_, body) = bench.page("/slow").await.unwrap();
        assert_eq!(whole(body).await, None);
        assert_eq!(began.elapsed(), SLOW / 2, "and no longer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_download_lives_through_a_silent_link() {
    let bench = bench(Site::default());
    let mut page = bench.air.ask_for(ALICE, url("file"), &browsers(), []).unwrap();
    let (near, mut ground) = tokio::io::duplex(64 << 10);
    tokio::spawn(page.carry(near));
    let told = async {
        let (mut packer, mut packed) = (Packer::new().unwrap(), Vec::new());
        let last = [Said::Data(PAGE, "after".into()), Said::End(PAGE, End::Complete)];
        for frames in [&[Said::Head(PAGE, head(BINARY))][..], &last] {
            let mut plain = Vec::new();
            frames.iter().for_each(|frame| frame.put(&mut plain));
            packed.clear();
            packer.pack(&plain, true, &mut packed).unwrap();
            ground.write_all(&packed).await.unwrap();
            tokio::time::sleep(SLOW).await;
        }
    };
    let read = async { whole(page.answer().await.unwrap().1).await };
    assert_eq!(tokio::join!(told, read).1, Some("after".into()));
}

#[tokio::test(start_paused = true)]
async fn a_reader_may_let_a_download_wait() {
    let bench = bench(Site::default().with("/endless", BINARY, ""));
    let (_, mut body) = bench.page("/endless").await.unwrap();
    for _ in 0..2 {
        // More than the air gateway buffers.
        for _ in 0..200 {
            assert!(body.next().await.unwrap().is_ok());
        }
        tokio::time::sleep(SLOW).await;
    }
}

#[tokio::test(start_paused = true)]
async fn downloads_leave_pages_their_places_up_to_a_bound() {
    let bench = bench(three_levels().with("/slow", BINARY, ""));
    let mut bodies = Vec::new();
    while let Some(mut page) = bench.air.ask_for(ALICE, url("/slow"), &browsers(), []) {
        let (near, connector) = tokio::io::duplex(64 << 10);
        let (ground, net) = (bench.ground.clone(), Net(bench.site.clone()));
        tokio::spawn(async move { ground.serve(&net, "D-ABCD", connector).await });
        tokio::spawn(page.carry(near));
        bodies.push(page.answer().await.unwrap().1);
        let are_few = bodies.len() < 8;
        assert_eq!(bench.air.ask_for(ALICE, url("page"), &browsers(), []).is_some(), are_few);
    }
    assert_eq!(bodies.len(), 8, "four that pages do not need, and those of pages");
    assert!(bench.air.ask_for(BOB, url("page"), &browsers(), []).is_some());
    // A passenger who leaves during silence releases the slot.
    bodies.clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pages: Vec<_> =
        (0..9).filter_map(|_| bench.air.ask_for(ALICE, url("page"), &browsers(), [])).collect();
    assert_eq!(pages.len(), 4);
    assert_eq!(bench.site.asked().iter().filter(|path| *path == "/slow").count(), 8);
}
