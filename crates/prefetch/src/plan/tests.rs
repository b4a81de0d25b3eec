use super::*;
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

fn url(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn planner(limits: Limits) -> Planner {
    Planner::new(url("http://site.test/dir/page"), CacheDigest::default(), u64::MAX, limits)
}

fn object(url: &str, kind: Kind) -> ObjectRef {
    ObjectRef { url: url.into(), kind, urgency: kind.urgency(), referrer: None }
}

fn find(plan: &mut Planner, url: &str, kind: Kind) -> Result<u16, SkipReason> {
    plan.found(&object(url, kind), None, &Rules::default()).map(|promise| promise.id)
}

fn next(plan: &mut Planner) -> Option<u16> {
    plan.next_fetch(Duration::ZERO).map(|promise| promise.id)
}

#[test]
fn objects_are_fetched_in_order_of_use() {
    let mut plan = planner(Limits::default());
    assert_eq!(find(&mut plan, "a.png", Kind::Image), Ok(1));
    assert_eq!(find(&mut plan, "b.js", Kind::Script), Ok(2));
    assert_eq!(find(&mut plan, "/c.css", Kind::Style), Ok(3));
    assert_eq!(find(&mut plan, "d.woff2", Kind::Font), Ok(4));
    assert_eq!(find(&mut plan, "e.css", Kind::Style), Ok(5));
    assert_eq!(find(&mut plan, "a.png#x", Kind::Image), Err(SkipReason::Duplicate));
    assert_eq!(find(&mut plan, "page", Kind::Image), Err(SkipReason::Duplicate), "the page itself");
    assert_eq!(
        [(); 6].map(|()| next(&mut plan)),
        [Some(3), Some(5), Some(2), Some(4), Some(1), None]
    );
    assert_eq!(plan.address(3), Some(&url("http://site.test/c.css")));
}

#[test]
fn references_are_relative_to_their_document() {
    let mut plan = planner(Limits::default());
    plan.set_base("/base/");
    let sheet = find(&mut plan, "a/b.css", Kind::Style).unwrap();
    let font = object("../f.woff2", Kind::Font);
    let promise = plan.found(&font, Some(sheet), &Rules::default()).unwrap();
    assert_eq!(promise.address, url("http://site.test/base/f.woff2"));
    assert_eq!(plan.found(&font, Some(99), &Rules::default()), Err(SkipReason::Foreign));
}

#[test]
fn referers_follow_the_referencing_documents_policy() {
    let mut plan = planner(Limits::default());
    let policy = |name| HeaderMap::from_iter([(http::header::REFERRER_POLICY, name)]);
    plan.page_answered(&policy(HeaderValue::from_static("origin")));
    let own = ObjectRef { referrer: Some(ReferrerPolicy::NoReferrer), ..object("a", Kind::Image) };
    let own = plan.found(&own, None, &Rules::default()).unwrap().id;
    let plain = find(&mut plan, "b.css", Kind::Style).unwrap();
    let silent = find(&mut plan, "c.css", Kind::Style).unwrap();
    while next(&mut plan).is_some() {}
    let said = policy(HeaderValue::from_static("no-referrer"));
    plan.answered(plain, StatusCode::OK, &HeaderMap::new()).unwrap();
    plan.answered(silent, StatusCode::OK, &said).unwrap();
    let mut inside = |url: &str, sheet| {
        let found = object(url, Kind::Image);
        plan.found(&found, Some(sheet), &Rules::default()).unwrap().id
    };
    let ids = [inside("d", plain), inside("http://x.test/e", plain), inside("f", silent)];
    assert_eq!(plan.referer(own), None);
    assert_eq!(plan.referer(plain).as_deref(), Some("http://site.test/"));
    let told = ids.map(|id| plan.referer(id));
    let told = told.each_ref().map(|referer| referer.as_deref());
    assert_eq!(told, [Some("http://site.test/dir/b.css"), Some("http://site.test/"), None]);
}

#[test]
fn fetches_per_origin_are_bounded() {
    let limits = Limits { per_origin: 2, concurrency: 3, ..Limits::default() };
    let mut plan = planner(limits);
    for path in ["a", "b", "c", "http://x.test/d", "http://x.test/e"] {
        find(&mut plan, path, Kind::Image).unwrap();
    }
    assert_eq!([(); 4].map(|()| next(&mut plan)), [Some(1), Some(2), Some(4), None]);
    plan.finish(1);
    assert_eq!([(); 2].map(|()| next(&mut plan)), [Some(3), None]);
    plan.finish(1); // no effect
    assert_eq!(next(&mut plan), None);
    for id in [2, 3, 4] {
        plan.finish(id);
    }
    assert_eq!(next(&mut plan), Some(5));
    plan.finish(5);
    assert!(plan.is_idle());
}

#[test]
fn budgets_end_a_page() {
    let limits =
        Limits { objects: 3, bytes: 1000, object_bytes: 600, depth: 2, ..Limits::default() };
    let mut plan = planner(limits);
    let sheet = find(&mut plan, "a.css", Kind::Style).unwrap();
    let inner =
        plan.found(&object("b.css", Kind::Style), Some(sheet), &Rules::default()).unwrap().id;
    let deep = plan.found(&object("c.css", Kind::Style), Some(inner), &Rules::default());
    assert_eq!(deep, Err(SkipReason::OverBudget), "too deep");
    assert_eq!(find(&mut plan, "d", Kind::Image), Ok(3));
    assert_eq!(find(&mut plan, "e", Kind::Image), Err(SkipReason::OverBudget), "too many");
    assert_eq!([(); 3].map(|()| next(&mut plan)), [Some(1), Some(2), Some(3)]);
    assert_eq!(plan.received(1, 601), Err(DropReason::TooLarge));
    assert_eq!(plan.received(1, 600), Ok(()));
    assert_eq!(plan.received(2, 401), Err(DropReason::TooLarge), "more than is left");
    assert_eq!(plan.received(2, 400), Ok(()));
    assert_eq!(plan.received(3, 1), Err(DropReason::TooLarge));
    assert_eq!(plan.skipped().get(&SkipReason::OverBudget), Some(&2));
}

#[test]
fn announced_bytes_are_reserved() {
    let mut plan = planner(Limits { bytes: 1000, ..Limits::default() });
    for name in ["a", "b", "c"] {
        find(&mut plan, name, Kind::Image).unwrap();
        next(&mut plan).unwrap();
    }
    let long = |bytes: u64| HeaderMap::from_iter([(http::header::CONTENT_LENGTH, bytes.into())]);
    let answered =
        |plan: &mut Planner, id, bytes| plan.answered(id, StatusCode::OK, &long(bytes)).is_ok();
    assert!(answered(&mut plan, 1, 600));
    assert!(!answered(&mut plan, 2, 600), "they are promised to the first");
    assert_eq!(plan.received(2, 401), Err(DropReason::TooLarge));
    assert_eq!((plan.received(1, 500), plan.received(1, 100)), (Ok(()), Ok(())));
    assert_eq!(plan.received(1, 401), Err(DropReason::TooLarge), "it is longer than it said");
    // Reserved bytes of a finished object are free again.
    assert!(answered(&mut plan, 3, 400));
    plan.finish(3);
    assert_eq!(plan.received(2, 400), Ok(()));
}

#[test]
fn after_the_time_limit_promises_are_abandoned() {
    let mut plan = planner(Limits { concurrency: 1, ..Limits::default() });
    for path in ["a", "b", "c"] {
        find(&mut plan, path, Kind::Image).unwrap();
    }
    assert_eq!(next(&mut plan), Some(1));
    let late = Limits::default().time;
    assert!(plan.abandoned(Duration::ZERO).is_empty());
    assert_eq!(plan.next_fetch(late), None);
    assert_eq!(plan.abandoned(late), [2, 3]);
    plan.finish(1);
    assert!(plan.is_idle());
}

#[test]
fn allowance_and_digest_are_respected() {
    let have = [crate::digest::hash(&url("http://site.test/a"))];
    let limits = Limits::default();
    let page = url("http://site.test/");
    let mut plan = Planner::new(page.clone(), CacheDigest::of(have), 100, limits.clone());
    assert_eq!(find(&mut plan, "a", Kind::Image), Err(SkipReason::Cached));
    let id = find(&mut plan, "b", Kind::Image).unwrap();
    assert_eq!(next(&mut plan), Some(id));
    let length = (HeaderName::from_static("content-length"), HeaderValue::from_static("101"));
    let answer = plan.answered(id, StatusCode::OK, &HeaderMap::from_iter([length]));
    assert_eq!(answer, Err(DropReason::TooLarge));
    let mut none = Planner::new(page, CacheDigest::default(), 0, limits);
    assert_eq!(find(&mut none, "b", Kind::Image), Err(SkipReason::OverBudget));
}

#[test]
fn a_page_with_a_million_references_is_bounded() {
    let mut plan = planner(Limits::default());
    let found = |plan: &mut Planner, n: usize| find(plan, &n.to_string(), Kind::Image);
    let promised = (0..1_000_000).filter(|n| found(&mut plan, *n).is_ok()).count();
    assert_eq!((promised, plan.known.len()), (MAX_OBJECTS, MAX_OBJECTS + 1));
    // Nor does the planner remember cached objects without bound.
    let all = (0..MAX_OBJECTS).map(|n| url(&format!("http://site.test/dir/{n}")));
    let digest = CacheDigest::of(all.map(|address| crate::digest::hash(&address)));
    let page = url("http://site.test/dir/page");
    let mut plan = Planner::new(page, digest, u64::MAX, Limits { objects: 8, ..Limits::default() });
    let cached =
        (0..MAX_OBJECTS).filter(|n| found(&mut plan, *n) == Err(SkipReason::Cached)).count();
    assert_eq!((cached, plan.known.len()), (16, 17));
}

#[test]
fn unpushable_and_cancelled_objects_end() {
    let mut plan = planner(Limits::default());
    find(&mut plan, "a", Kind::Image).unwrap();
    find(&mut plan, "b", Kind::Image).unwrap();
    next(&mut plan);
    let urgent = (HeaderName::from_static("priority"), HeaderValue::from_static("u=0"));
    let urgent = HeaderMap::from_iter([urgent]);
    assert_eq!(plan.answered(1, StatusCode::OK, &urgent), Ok(Urgency::PAGE));
    let moved = plan.answered(1, StatusCode::FOUND, &urgent);
    assert_eq!(moved, Err(DropReason::Withheld(Withheld::Status)));
    assert_eq!(
        plan.answered(2, StatusCode::OK, &urgent),
        Err(DropReason::Unwanted),
        "not asked for yet"
    );
    plan.finish(1);
    plan.finish(2);
    assert_eq!((plan.received(1, 1), next(&mut plan)), (Err(DropReason::Unwanted), None));
    plan.finish(0);
    plan.finish(999);
}

#[test]
fn the_operators_rules_exclude_objects() {
    let rules = Rules { deny: NameList::new(["ads.test".to_owned()]).unwrap(), ..Rules::default() };
    let mut plan = planner(Limits::default());
    let found = |plan: &mut Planner, url: &str| {
        plan.found(&object(url, Kind::Image), None, &rules).map(|promise| promise.id)
    };
    assert_eq!(found(&mut plan, "http://x.ads.test/1"), Err(SkipReason::Denied));
    assert_eq!(found(&mut plan, "https://other.test/1"), Err(SkipReason::Foreign));
    assert_eq!(found(&mut plan, "http://u:p@other.test/1"), Err(SkipReason::Foreign));
    assert_eq!(found(&mut plan, "http://other.test/1"), Ok(1));
    let font = object("http://other.test/f.woff2", Kind::Font);
    assert_eq!(
        plan.found(&font, None, &rules),
        Err(SkipReason::Foreign),
        "its origin is told whose"
    );
}

proptest! {
    /// The bounds hold and nothing is fetched twice, whatever is found, answered and abandoned in any
    /// order.
    #[test]
    fn planner_bounds_hold(steps in prop::collection::vec((0_u8..5, 0_u16..40, 0_u64..500), 0..300)) {
        let limits = Limits {
            objects: 20, bytes: 3000, object_bytes: 900, per_origin: 3, concurrency: 5, ..Limits::default()
        };
        let mut plan = planner(limits);
        let (mut fetched, mut going, mut bytes) = (BTreeSet::new(), BTreeSet::new(), 0);
        for (step, number, size) in steps {
            match step {
                0 => drop(find(&mut plan, &format!("http://h{}.test/{number}", number % 3), Kind::Image)),
                1 | 2 => if let Some(id) = next(&mut plan) {
                    prop_assert!(fetched.insert(id), "fetched twice");
                    going.insert(id);
                },
                3 => if plan.received(number, size).is_ok() {
                    prop_assert!(going.contains(&number));
                    bytes += size;
                },
                _ => {
                    plan.finish(number);
                    going.remove(&number);
                }
            }
            prop_assert!(going.len() <= 5 && bytes <= 3000 && plan.promised() <= 20);
            for host in 0..3 {
                let host = format!("h{host}.test");
                let of_host = |id: &&u16| plan.address(**id).unwrap().host() == host;
                prop_assert!(going.iter().filter(of_host).count() <= 3);
            }
        }
    }
}
