//! Loss processes, compared with theory.

use super::*;
use proptest::prelude::*;

fn loss(text: &str) -> LossSpec {
    #[derive(serde::Deserialize)]
    struct File {
        loss: RawLoss,
    }
    toml::from_str::<File>(text).unwrap_or_else(|error| panic!("{error}")).loss.into()
}

fn error_of(text: &str) -> String {
    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only its error is used")]
    struct File {
        loss: RawLoss,
    }
    toml::from_str::<File>(text).unwrap_err().to_string()
}

const MS: u64 = 1_000_000;

/// Outcomes of `n` packets `gap_ns` apart, with a packet time of one millisecond; `true` means
/// lost.
fn outcomes(spec: &LossSpec, seed: u64, n: u64, gap_ns: u64) -> Vec<bool> {
    let mut loss = Loss::new(spec, Some(Duration::from_millis(1)), seed);
    (0..n).map(|i| loss.drops(i * gap_ns)).collect()
}

fn share(outcomes: &[bool]) -> f64 {
    outcomes.iter().filter(|lost| **lost).count() as f64 / outcomes.len() as f64
}

fn mean_burst(outcomes: &[bool]) -> f64 {
    let bursts = outcomes.chunk_by(|a, b| a == b).filter(|run| run[0]);
    let lengths: Vec<usize> = bursts.map(<[bool]>::len).collect();
    lengths.iter().sum::<usize>() as f64 / lengths.len() as f64
}

/// Standard error of the mean of `n` losses with the correlation of a chain: the variance of
/// independent losses × (1 + λ)/(1 − λ).
fn standard_error(p: f64, memory: f64, n: u64) -> f64 {
    (p * (1.0 - p) * (1.0 + memory) / (1.0 - memory) / n as f64).sqrt()
}

proptest! {
    // The bounds are statistical. At five standard errors, a correct model fails by chance once in
    // thousands of runs from fresh seeds.
    #![proptest_config(ProptestConfig { cases: 24, ..Default::default() })]

    #[test]
    fn independent_losses_have_the_expected_rate(percent in 0.0f64..100.0, seed: u64) {
        let spec = loss(&format!("loss = \"{percent} %\""));
        let n = 50_000;
        let lost = outcomes(&spec, seed, n, MS);
        let p = percent / 100.0;
        prop_assert!((share(&lost) - p).abs() <= 5.0 * standard_error(p, 0.0, n));
        prop_assert!((spec.mean() - p).abs() < 1e-12);
        if (0.01..0.9).contains(&p) {
            // Runs of independent losses are geometric: mean 1/(1−p).
            prop_assert!((mean_burst(&lost) * (1.0 - p) - 1.0).abs() < 0.15);
        }
    }

    #[test]
    fn bursts_have_the_expected_mean_and_length(
        percent in 2.0f64..45.0, burst in 1.5f64..12.0, seed: u64, per_packet: bool,
    ) {
        let clock = if per_packet { "packets" } else { "time" };
        let spec = loss(&format!(
            "loss.gilbert-elliott = {{ mean = \"{percent} %\", burst = {burst}, clock = \"{clock}\" }}"
        ));
        let (n, p) = (300_000, percent / 100.0);
        let lost = outcomes(&spec, seed, n, MS);
        let memory = 1.0 - 1.0 / burst - p / (1.0 - p) / burst;
        prop_assert!((share(&lost) - p).abs() <= 5.0 * standard_error(p, memory, n));
        // Burst lengths are geometric, of deviation below their mean: n·p/burst of them.
        let error = burst / (n as f64 * p / burst).sqrt();
        prop_assert!((mean_burst(&lost) - burst).abs() <= 5.0 * error);
    }

    #[test]
    fn the_four_parameters_give_the_expected_loss(
        good_to_bad in 0.005f64..0.3, bad_to_good in 0.05f64..0.9,
        loss_good in 0.0f64..0.1, loss_bad in 0.3f64..1.0, seed: u64,
    ) {
        let spec = loss(&format!(
            "loss.gilbert-elliott = {{ good-to-bad = {good_to_bad}, bad-to-good = {bad_to_good}, \
             loss-good = {loss_good}, loss-bad = {loss_bad} }}"
        ));
        let bad = good_to_bad / (good_to_bad + bad_to_good);
        let p = (1.0 - bad) * loss_good + bad * loss_bad;
        prop_assert!((spec.mean() - p).abs() < 1e-12);
        let n = 200_000;
        let lost = outcomes(&spec, seed, n, MS);
        let memory = 1.0 - good_to_bad - bad_to_good;
        prop_assert!((share(&lost) - p).abs() <= 5.0 * standard_error(p, memory.max(0.0), n));
        // One step after a loss the excess of the bad state has shrunk by λ = 1 − p − r.
        let after: Vec<bool> = lost.windows(2).filter(|w| w[0]).map(|w| w[1]).collect();
        let bad_when_lost = bad * loss_bad / p;
        let bad_next = bad + (bad_when_lost - bad) * memory;
        let expected = (1.0 - bad_next) * loss_good + bad_next * loss_bad;
        let error = standard_error(expected, memory.max(0.0), after.len() as u64);
        prop_assert!((share(&after) - expected).abs() <= 5.0 * error);
    }
}

#[test]
fn bursts_continue_while_the_link_is_idle() {
    let spec = loss("loss.gilbert-elliott = { mean = \"20 %\", burst = 10 }");
    // At one packet per 200 packet times the chain has no memory. Losses are independent, in runs
    // of 1/(1−p) = 1.25.
    let spaced = outcomes(&spec, 1, 100_000, 200 * MS);
    assert!((share(&spaced) - 0.2).abs() < 5.0 * standard_error(0.2, 0.0, 100_000));
    assert!((mean_burst(&spaced) - 1.25).abs() < 0.03, "{}", mean_burst(&spaced));
    // Ten packets within each packet time share its state: runs are ten times as long, in packets.
    let dense = outcomes(&spec, 1, 1_000_000, MS / 10);
    assert!((mean_burst(&dense) / 100.0 - 1.0).abs() < 0.12, "{}", mean_burst(&dense));
    // When packets are the clock, their spacing changes nothing.
    let spec = loss("loss.gilbert-elliott = { mean = \"20 %\", burst = 10, clock = \"packets\" }");
    assert_eq!(outcomes(&spec, 1, 10_000, 200 * MS), outcomes(&spec, 1, 10_000, MS / 10));
}

#[test]
fn the_first_packet_has_the_same_loss_as_any() {
    let spec = loss("loss.gilbert-elliott = { mean = \"20 %\", burst = 10 }");
    let firsts: Vec<bool> = (0..10_000).flat_map(|seed| outcomes(&spec, seed, 1, MS)).collect();
    assert!((share(&firsts) - 0.2).abs() < 5.0 * standard_error(0.2, 0.0, 10_000));
}

#[test]
fn an_explicit_packet_time_clocks_the_bursts() {
    let spec =
        loss("loss.gilbert-elliott = { mean = \"20 %\", burst = 10, packet-time = \"10 ms\" }");
    assert!(!spec.needs_packet_time());
    let lost = outcomes(&spec, 2, 1_000_000, MS);
    assert!((mean_burst(&lost) / 100.0 - 1.0).abs() < 0.12, "{}", mean_burst(&lost));
}

#[test]
fn a_series_changes_the_loss_over_time() {
    let spec = loss(
        "loss = { series = { steps = [[\"0 s\", \"0 %\"], [\"1 s\", \"100 %\"]], repeat = \"2 s\" } }",
    );
    let lost = outcomes(&spec, 1, 4000, MS);
    for (i, lost) in lost.iter().enumerate() {
        assert_eq!(*lost, (i / 1000) % 2 == 1, "at {i} ms");
    }
    assert_eq!(spec.mean(), 0.5);
}

#[test]
fn drawn_losses_follow_their_distribution() {
    let spec = loss(
        "loss.drawn = { every = \"100 s\", points = [[\"12 %\", \"0 %\"], [\"50 %\", \"7 %\"], \
         [\"90 %\", \"30 %\"], [\"100 %\", \"36 %\"]] }",
    );
    let expected = 0.38 * 0.035 + 0.4 * 0.185 + 0.1 * 0.33;
    assert!((spec.mean() - expected).abs() < 1e-12);
    let intervals = 2000;
    let lost = outcomes(&spec, 4, intervals * 200, 500 * MS);
    let shares: Vec<f64> = lost.chunks(200).map(share).collect();
    let none = shares.iter().filter(|s| **s == 0.0).count() as f64 / intervals as f64;
    let above = shares.iter().filter(|s| **s > 0.30).count() as f64 / intervals as f64;
    // 12 % of the intervals lose nothing. By chance a few of those between 0 and 7 % lose nothing
    // either: ∫ (1−7u)^200 over the 38 % is about 0.38/(0.07·200) = 2.7 %.
    assert!((none - 0.147).abs() < 0.04, "{none}");
    // 10 % are above 30 %, blurred by the sampling error of each interval.
    assert!((above - 0.10).abs() < 0.035, "{above}");
    assert!((share(&lost) - expected).abs() < 5.0 * 0.11 / (intervals as f64).sqrt());
}

#[test]
fn bit_errors_cause_frame_losses() {
    for (ber, bytes) in [(1e-6f64, 1500), (1e-4, 40), (0.01, 100), (0.5, 1)] {
        let expected = 1.0 - (1.0 - ber).powi(8 * bytes as i32);
        assert!((frame_loss(ber, bytes) - expected).abs() < 1e-9, "{ber} {bytes}");
    }
    assert_eq!(frame_loss(0.0, 1500), 0.0);
    assert_eq!(frame_loss(1.0, 1), 1.0);
    // A case in which 1 − (1 − BER) itself has no digits left.
    assert!((frame_loss(1e-18, 1500) / 1.2e-14 - 1.0).abs() < 1e-9);
}

#[test]
fn invalid_loss_is_refused() {
    let text = "loss.gilbert-elliott = { mean = \"60 %\", burst = 1 }";
    assert!(error_of(text).contains("50.0 %"), "{}", error_of(text));
    let text = "loss.gilbert-elliott = { mean = \"6 %\" }";
    assert!(error_of(text).contains("`mean` and `burst`"), "{}", error_of(text));
    let text = "loss.gilbert-elliott = { mean = \"6 %\", burst = 4, loss-bad = \"50 %\" }";
    assert!(error_of(text).contains("no others"), "{}", error_of(text));
    let text = "loss.gilbert-elliott = { mean = \"6 %\", burst = 0.5 }";
    assert!(error_of(text).contains("at least 1"), "{}", error_of(text));
    let text = "loss = { bernouli = \"6 %\" }";
    assert!(error_of(text).contains("gilbert-elliott"), "{}", error_of(text));
    let text = "loss = { series = { steps = [[\"0 s\", \"1 %\"]] }, drawn = { every = \"1 s\", points = [[1.0, 0.0]] } }";
    assert!(error_of(text).contains("only one"), "{}", error_of(text));
    let text = "loss = \"6\"";
    assert!(error_of(text).contains("6 %"), "{}", error_of(text));
    let text = "loss.drawn = { every = \"100 s\", points = [[\"50 %\", \"7 %\"]] }";
    assert!(error_of(text).contains("100 %"), "{}", error_of(text));
}
