//! Cells of `bentpipe lab run learned` that run in seconds.

use bentpipe_lab::experiment::engine::Engine;
use bentpipe_lab::experiment::learned::play::{self, Choice};
use bentpipe_lab::experiment::learned::{Figure, Found, Lease, Outcome, cells};

/// Outcomes of the fast cells with one run each.
fn fast(lease: Lease, names: &[&str]) -> Vec<Outcome> {
    let cells = cells::fast().into_iter().filter(|cell| names.contains(&&*cell.name)).collect();
    let choice = Choice { cells, lease, runs: Some(1), seed: 1 };
    play::run(&choice, &Engine::Sim).unwrap()
}

fn missed(outcomes: &[Outcome]) -> Vec<(&str, &str)> {
    let missed = |outcome: &'_ Outcome| -> Vec<&'static str> {
        let missed = outcome.found.iter().filter(|found| !Found::holds(found));
        missed.map(|found| found.target.figure.name()).collect()
    };
    let named = |outcome| missed(outcome).into_iter().map(move |name| (&*outcome.name, name));
    outcomes.iter().flat_map(named).collect()
}

const STEADY: [&str; 5] = [
    "bulk A",
    "bulk B",
    "time to 90 %, B",
    "time to 90 %, B, 3 ms of jitter",
    "delay step of 40 ms both ways",
];

#[test]
fn a_typed_rate_meets_every_bound_of_a_link_that_does_not_change() {
    let outcomes = fast(Lease::Static, &STEADY);
    assert_eq!(outcomes.len(), STEADY.len());
    assert_eq!(missed(&outcomes), []);
    assert!(outcomes.iter().all(|one| one.broken.is_none() && one.trace.len() > 100));
}

#[test]
fn a_learned_rate_meets_every_bound_of_a_link_that_does_not_change() {
    // In one window of 200 ms after a step of the delay it has 0.895 instead of 0.9.
    let outcomes = fast(Lease::Learned, &STEADY[..4]);
    assert_eq!(outcomes.len(), 4);
    assert_eq!(missed(&outcomes), []);
}

#[test]
fn a_learned_rate_follows_the_link() {
    let outcomes = fast(Lease::Learned, &["rate halves, B", "rate doubles"]);
    // A report takes a round trip. Until then the queue grows by a second in each second.
    assert_eq!(missed(&outcomes), [("rate halves, B", "queue-peak")]);
}

#[test]
fn slots_on_request_are_used_whether_the_rate_is_typed_or_learned() {
    let names = ["bulk in granted slots", "bulk in granted slots, 1 % lost"];
    for lease in [Lease::Static, Lease::Learned] {
        let cells: Vec<_> =
            cells::all().into_iter().filter(|cell| names.contains(&&*cell.name)).collect();
        assert_eq!(cells.len(), names.len());
        let choice = Choice { cells, lease, runs: Some(1), seed: 3 };
        let outcomes = play::run(&choice, &Engine::Sim).unwrap();
        assert_eq!(missed(&outcomes), [], "{lease}");
    }
}

#[test]
fn a_learned_rate_and_cubic_both_keep_a_good_part_of_a_short_queue() {
    let names = ["10 Mbit/s, 100 ms", "20 Mbit/s, 600 ms"]
        .map(|path| format!("beside CUBIC, {path}, 0.25 BDP"));
    for seed in [1, 7] {
        let cells = cells::all().into_iter().filter(|cell| names.contains(&cell.name)).collect();
        let choice = Choice { cells, lease: Lease::Learned, runs: Some(1), seed };
        for outcome in play::run(&choice, &Engine::Sim).unwrap() {
            let value = |name: &str| {
                let found = outcome.found.iter().find(|one| one.target.figure.name() == name);
                found.and_then(|found| found.value).unwrap()
            };
            let (share, kept) = (value("share"), value("rival-kept"));
            assert!((0.6..1.3).contains(&share), "{}, seed {seed}: {share}", outcome.name);
            assert!(kept > 0.75, "{}, seed {seed}: {kept}", outcome.name);
        }
    }
}

/// Outcomes of the cells with these names, with a learned rate.
fn learned(names: &[&str], runs: usize) -> Vec<Outcome> {
    let cells: Vec<_> =
        cells::all().into_iter().filter(|cell| names.contains(&&*cell.name)).collect();
    assert_eq!(cells.len(), names.len());
    let choice = Choice { cells, lease: Lease::Learned, runs: Some(runs), seed: 11 };
    play::run(&choice, &Engine::Sim).unwrap()
}

#[test]
fn the_first_data_and_data_after_ten_idle_minutes_meet_their_bounds() {
    assert_eq!(missed(&learned(&["very first A 100 KB"], 100)), []);
    assert_eq!(missed(&learned(&["10 min idle, capacity quartered"], 10)), []);
}

#[test]
fn a_learned_rate_and_bbr_both_keep_a_part_of_a_short_queue() {
    // 6 % of the packets are lost, because BBR does not answer losses.
    let outcomes = learned(&["beside BBR, 10 Mbit/s, 100 ms, 1 BDP"], 1);
    assert_eq!(missed(&outcomes), [(&*outcomes[0].name, "excess")]);
}

#[test]
fn at_a_policer_no_more_is_lost_than_in_a_round_trip_and_two_reports() {
    let names = ["policer of 2 Mbit/s, bucket of 20 kB", "policer of 2 Mbit/s, bucket of 60 kB"];
    for outcome in learned(&names, 1) {
        let excess = outcome.found.iter().find(|one| matches!(one.target.figure, Figure::Excess));
        let excess = excess.and_then(|found| found.value).unwrap();
        // 1.35 MB at 18 Mbit/s × 600 ms, beside 7.5 MB that arrive in 30 s.
        assert!((1.15..1.25).contains(&excess), "{}: {excess}", outcome.name);
    }
}

#[test]
fn without_a_lease_the_channels_losses_do_not_bound_the_rate() {
    let outcomes = fast(Lease::None, &["bulk A"]);
    let found = outcomes[0].found.iter().find(|one| one.target.figure.name() == "utilisation");
    let utilisation = found.and_then(|found| found.value).unwrap();
    // If each loss were congestion, CUBIC would have a twentieth.
    assert!(utilisation > 0.8, "{utilisation}");
}

#[test]
fn a_wrong_typed_rate_is_seen_to_drop_packets_at_a_policer() {
    let outcomes = fast(Lease::Static, &["policer of 2 Mbit/s, bucket of 60 kB"]);
    let dropped =
        outcomes[0].found.iter().find(|one| matches!(one.target.figure, Figure::Dropped(_)));
    // Nine tenths of 20 Mbit/s exceed 2 Mbit/s.
    assert!((dropped.unwrap().value.unwrap() - 0.9).abs() < 0.02, "{:?}", outcomes[0].found);
}

#[test]
fn a_cell_repeats() {
    let run = || fast(Lease::None, &["policer of 2 Mbit/s, bucket of 60 kB"]);
    assert_eq!(run()[0].found, run()[0].found);
    assert_eq!(run()[0].trace, run()[0].trace);
}
