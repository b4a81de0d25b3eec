//! Refusals of the ground gateway, and requests suppressed after them.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_page_that_its_origin_does_not_give_is_asked_for_as_ever() {
    let bench = bench(Site::default());
    assert!(bench.page("http://elsewhere.test/").await.is_none());
    let (status, _) = bench.page("/").await.unwrap();
    assert_eq!(status, 404, "an error is an answer");
}

#[tokio::test(start_paused = true)]
async fn no_page_holds_a_place_for_ever_and_no_aircraft_all_of_them() {
    let site = three_levels().with("/hang", HTML, "").with("/endless", HTML, "");
    let longest = Duration::from_secs(40);
    let bench =
        bench_with(site, |_| {}, |ground| (ground.per_aircraft, ground.longest) = (1, longest));
    let began = Instant::now();
    let hangs = bench.page("hang");
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(bench.page("page").await.is_none(), "its aircraft has one already");
    };
    let (hung, ()) = tokio::join!(hangs, meanwhile);
    assert!(hung.is_none());
    assert_eq!(began.elapsed(), longest);
    assert_eq!(bench.ground.counters.refusals.count_refused(Limit::Pages), 1);
    assert!(bench.page("page").await.is_some());
    tokio::time::sleep(2 * KEEP).await;
    // A page that becomes a download releases its slot. With two downloads, a third is impossible.
    let mut endless = Vec::new();
    for place_is_free in [true, false] {
        let (_, mut body) = bench.page("endless").await.unwrap();
        let mut came = 0;
        while came < 18 << 20 {
            came += body.next().await.unwrap().unwrap().len();
        }
        endless.push(body);
        assert_eq!(bench.page("page").await.is_some(), place_is_free);
        tokio::time::sleep(longest).await;
    }
    let asked = bench.site.asked().len();
    assert!(bench.page("page").await.is_none());
    assert_eq!(bench.site.asked().len(), asked, "its origin was not asked");
    drop(endless);
    tokio::time::sleep(longest).await;
    assert!(bench.page("page").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_ground_that_serves_no_pages_is_not_asked_for_a_while() {
    let bench = bench(three_levels());
    let ask = || bench.air.ask_for(ALICE, url("page"), &browsers(), []);
    assert!(ask().is_some());
    bench.air.not_served();
    tokio::time::sleep(UNSERVED_FOR - Duration::from_secs(1)).await;
    assert!(ask().is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(ask().is_some(), "it may have been told otherwise");
}

#[tokio::test(start_paused = true)]
async fn pages_of_names_that_the_operator_leaves_out_are_not_asked_for() {
    let list = |name: &str| NameList::new([name.to_owned()]).unwrap();
    for (rules, is_asked) in [
        (Rules { deny: list("test"), ..Rules::default() }, false),
        (Rules { allow: list("other.test"), ..Rules::default() }, false),
        (Rules { allow: list("site.test"), ..Rules::default() }, true),
    ] {
        let bench = bench_with(three_levels(), |_| {}, |ground| ground.rules = rules.clone());
        assert_eq!(bench.page("page").await.is_some(), is_asked, "{rules:?}");
        assert_eq!(bench.site.asked().is_empty(), !is_asked, "{rules:?}");
        let ask = |page: &str| bench.air.ask_for(ALICE, url(page), &browsers(), []).is_some();
        assert_eq!(ask("page"), is_asked, "the next one crosses as ever at once");
        assert!(ask("http://other.test/"), "others' pages are asked for");
        tokio::time::sleep(UNSERVED_FOR).await;
        assert!(ask("page"), "the rules may be others");
    }
}

#[tokio::test(start_paused = true)]
async fn a_ground_that_is_busy_is_left_alone_for_a_moment() {
    let site = three_levels().with("/hang", HTML, "");
    let bench = bench_with(site, |_| {}, |ground| ground.pages = 1);
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(bench.page("page").await.is_none());
        let ask = || bench.air.ask_for(ALICE, url("page"), &browsers(), []).is_some();
        tokio::time::sleep(BUSY_FOR - Duration::from_secs(1)).await;
        assert!(!ask());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(ask());
    };
    tokio::join!(bench.page("hang"), meanwhile);
}

#[tokio::test(start_paused = true)]
async fn a_ground_that_knows_no_conditions_gets_none_for_a_while() {
    let bench = bench(three_levels());
    let conditional = headers(&[("accept", "text/html"), ("if-none-match", "\"1\"")]);
    let ask = |headers| bench.air.ask_for(ALICE, url("page"), headers, []);
    assert!(ask(&conditional).unwrap().is_conditional());
    bench.air.conditions_unknown();
    assert!(ask(&conditional).is_none() && ask(&browsers()).is_some());
    tokio::time::sleep(UNSERVED_FOR).await;
    assert!(bench.page_with("page", &conditional).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn pages_that_hang_leave_places_to_others() {
    let site = three_levels().with("/hang", HTML, "");
    let enough = |ground: &mut GroundSettings| (ground.pages, ground.per_aircraft) = (64, 64);
    let bench = bench_with(site, |_| {}, enough);
    let mut hanging = Vec::new();
    for device in 1..=4 {
        let reader = IpAddr::from([10, 1, 0, device]);
        while let Some(mut page) = bench.air.ask_for(reader, url("/hang"), &browsers(), []) {
            let (near, connector) = tokio::io::duplex(64 << 10);
            let (ground, net) = (bench.ground.clone(), Net(bench.site.clone()));
            tokio::spawn(async move { ground.serve(&net, "D-ABCD", connector).await });
            tokio::spawn(page.carry(near));
            hanging.push(tokio::spawn(page.answer()));
        }
    }
    assert_eq!(hanging.len(), 16);
    let ask = || bench.air.ask_for(BOB, url("page"), &browsers(), []);
    assert!(ask().is_none(), "they have just begun");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let page = ask();
    assert!(page.is_some());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(hanging.iter().filter(|it| it.is_finished()).count(), 1, "one made room");
    assert_eq!(bench.at_air.refusals.count_evicted(Limit::Pages), 1);
}
