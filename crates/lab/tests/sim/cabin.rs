//! Goals of the cabin services, from the experiments behind `bentpipe lab run pages-cold`,
//! `pages-warm` and `dns`. Each goal is computed again from the rows.

use std::time::Duration;

use bentpipe_lab::experiment::dns;
use bentpipe_lab::experiment::pages::{self, Reader};
use bentpipe_lab::experiment::report::Report;
use bentpipe_lab::profile::Profile;
use bentpipe_lab::result::Row;

/// Pages of Rural-PAWS: size of all objects in KB, and of each.
const PAGES: [(u64, u64); 9] = [
    (500, 5),
    (500, 20),
    (500, 100),
    (1500, 5),
    (1500, 20),
    (1500, 100),
    (2500, 5),
    (2500, 20),
    (2500, 100),
];

fn pages_of(reader: Reader) -> Report {
    let profiles = pages::DEFAULT_PROFILES.map(|name| Profile::named(name).unwrap());
    let choice = pages::Choice { profiles: profiles.into(), runs: 3, seed: 1, reader };
    let report = pages::run(&choice).unwrap();
    assert_eq!(report.goals.len(), 2 * PAGES.len(), "{}", report.goals_text());
    assert_eq!(report.missed(), 0, "{}", report.goals_text());
    report
}

/// Rows with Split HTTP, for each page on both links.
fn split_http(report: &Report) -> impl Iterator<Item = (Profile, (u64, u64), &Row)> {
    pages::DEFAULT_PROFILES.into_iter().flat_map(move |link| {
        PAGES.into_iter().map(move |(total, each)| {
            let is_it = |row: &&Row| {
                row.profile.as_deref() == Some(link)
                    && row.workload == Some(format!("page-{total}k-{each}k"))
                    && row.system.as_deref() == Some("bentpipe with split-http")
            };
            let row = report.rows.iter().find(is_it).expect("each page has a row");
            (Profile::named(link).unwrap(), (total, each), row)
        })
    })
}

/// Bound in seconds: 2 RTT + 8·bytes/((1−p)·rate).
fn bound_s(profile: &Profile, bytes: u64) -> f64 {
    let rate = profile.link.forward.rate().unwrap().bps() as f64;
    2.0 * profile.rtt().as_secs_f64() + 8.0 * bytes as f64 / ((1.0 - profile.forward_loss()) * rate)
}

#[test]
fn cold_pages_take_little_more_than_two_round_trips_and_their_bytes() {
    for (profile, (total, each), row) in split_http(&pages_of(Reader::First)) {
        let (took, bound) = (row.p50.unwrap(), row.limit.unwrap());
        let name = format!("{total} KB by {each} KB over {}", profile.name);
        // The document, and the small differences in the objects' lengths, add at most 3 %.
        let bounds = bound_s(&profile, 1000 * total)..bound_s(&profile, 1030 * total);
        assert!(bounds.contains(&bound), "{name}: {bound} s is not within {bounds:?}");
        assert!(took <= 1.30 * bound, "{name}: {took} s of {bound} s");
    }
}

#[test]
fn warm_pages_take_no_more_than_a_second() {
    for (profile, page, row) in split_http(&pages_of(Reader::Second)) {
        let took = row.p50.unwrap();
        assert!(took <= 1.0, "{page:?} over {}: {took} s", profile.name);
    }
}

#[test]
fn names_are_answered_on_board_and_cold_ones_in_one_round_trip() {
    let profile = Profile::named("mss").unwrap();
    let rtt = profile.rtt().as_secs_f64();
    let (passengers, length) = (50, Duration::from_secs(3600));
    let report = dns::run(&dns::Choice { profile, passengers, length, seed: 1 }).unwrap();
    assert_eq!((report.goals.len(), report.missed()), (4, 0), "{}", report.goals_text());
    let row = |workload: &str, metric: &str| {
        let is_it = |row: &&Row| row.workload.as_deref() == Some(workload) && row.metric == metric;
        report.rows.iter().find(is_it).unwrap_or_else(|| panic!("{workload} has no {metric}"))
    };
    for (question, share) in [("first question", 0.95), ("second question", 0.999)] {
        let hits = row(question, "hit-ratio");
        assert!(hits.mean.unwrap() >= share && hits.n > 4000, "{question}: {hits:?}");
        // Answers that count as from on board took less than 5 ms, and most answers do.
        let took = row(question, "lookup").p95.unwrap();
        assert!(took < 0.005, "{question}: {took} s");
    }
    let cold = row("cold name", "lookup").p50.unwrap();
    assert!(cold <= 1.05 * rtt, "{cold} s of {rtt} s");
    let first_byte = |workload| row(workload, "first-byte").p50.unwrap();
    let saved = first_byte("cold page") - first_byte("cold page, instant names");
    assert!((saved / rtt - 1.0).abs() <= 0.05, "{saved} s of {rtt} s");
}
