//! A page over QUIC over mss. QUIC treats late packets as lost. The test compares delivery of its
//! datagrams in arrival order and in sending order. Everything runs in virtual time; the example
//! `quic_order` prints more figures.

use bentpipe_lab::profile::Profile;
use bentpipe_lab::result::Sample;
use bentpipe_lab::sim::quic::{Visit, visit};
use bentpipe_units::Ratio;

/// Seeds other than those with which the bound was found.
const SEEDS: [u64; 4] = [100, 101, 102, 103];

/// Mean duration of several loads, in seconds.
fn mean(loss: f64, burst: f64, in_order: bool) -> f64 {
    let profile = Profile::named("mss").unwrap();
    let profile = profile.with_loss(Ratio::new(loss).unwrap(), burst).unwrap();
    let one = |seed| {
        let profile = profile.clone();
        let (document_bytes, objects, object_bytes) = (30_000, 25, 18_500);
        let it = Visit { profile, in_order, document_bytes, objects, object_bytes, seed };
        match visit(&it).unwrap() {
            Sample::Finished(seconds) => seconds,
            Sample::Cut(seconds) => panic!("nothing after {seconds} s, seed {seed}"),
        }
    };
    SEEDS.map(one).iter().sum::<f64>() / SEEDS.len() as f64
}

#[test]
fn recovered_datagrams_do_not_slow_quic_down() {
    let clean = mean(0.0, 1.0, true);
    assert_eq!(clean, mean(0.0, 1.0, false), "without loss there is nothing to wait for");
    for (burst, most) in [(1.0, 1.25), (4.0, 1.6)] {
        let [as_it_comes, in_order] = [false, true].map(|in_order| mean(0.06, burst, in_order));
        assert!(
            in_order <= most * clean && in_order <= 0.75 * as_it_comes,
            "bursts of {burst}: {in_order:.1} s in order, {as_it_comes:.1} s as it comes, {clean:.1} s without loss"
        );
    }
}
