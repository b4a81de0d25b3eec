//! Paths to an egress that become detours.

use std::ops::Range;
use std::time::Duration;

use bentpipe_choice::{Transit, TransitWatch};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::worlds::JITTER;
use crate::experiment::findings::Findings;

const HOUR: Duration = Duration::from_secs(3600);
/// Interval of the looks, as at a hub.
const STEP: Duration = Duration::from_secs(5);
/// Round trips of the paths.
const RTTS: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(40), Duration::from_millis(150)];
/// Number of days on each path.
const DAYS: u64 = 20;
/// A detour is so many times as long.
const DETOUR: f64 = 2.2;
/// It has to be found in this time.
const MAX_TIME: Duration = Duration::from_secs(120);

/// Days of jitter, an hour of a detour after each, and another of the usual path.
pub fn play(seed: u64, findings: &mut Findings) {
    let mut alarms = 0;
    for rtt in RTTS {
        let (mut missed, mut longest) = (0, Some(Duration::ZERO));
        for seed in seed..seed + DAYS {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut watch = TransitWatch::default();
            alarms += looks(&mut watch, &mut rng, 0..24, rtt).len();
            let detour = looks(&mut watch, &mut rng, 24..25, rtt.mul_f64(DETOUR));
            let found = match detour[..] {
                [(found, Transit::Detour(_))] => Some(found - 24 * HOUR),
                _ => None,
            };
            longest = longest.zip(found).map(|(longest, found)| longest.max(found));
            let after = looks(&mut watch, &mut rng, 25..26, rtt);
            missed += u32::from(!matches!(after[..], [(_, Transit::Usual)]));
        }
        let what = format!("{} ms becomes 2.2 ×, found after", rtt.as_millis());
        findings.time(&what, longest, MAX_TIME);
        findings.at_most(
            &format!("{} ms: ends that were not found", rtt.as_millis()),
            missed.into(),
            0.0,
        );
    }
    findings.at_most("false alarms in 60 days of jitter", alarms as f64, 0.0);
}

/// Changes that the watch finds in these hours, with their times.
fn looks(
    watch: &mut TransitWatch,
    rng: &mut ChaCha8Rng,
    hours: Range<u32>,
    rtt: Duration,
) -> Vec<(Duration, Transit)> {
    let steps = HOUR.as_secs() as u32 / STEP.as_secs() as u32;
    let look = |step| {
        let now = STEP * step;
        let rtt = rtt.mul_f64(rng.random_range(1.0 - JITTER..1.0 + JITTER));
        Some((now, watch.look(rtt, now)?))
    };
    (hours.start * steps..hours.end * steps).filter_map(look).collect()
}
