//! Link's knowledge of its path, stored next to the state file over restarts.
//!
//! It is a prior: the link takes it for its first guess of the round trip and of the loss, and a
//! path without a lease for RFC 9959's careful jump. So nothing is lost where it cannot be kept.
//!
//! Aircraft clocks lie. What a file says of its age is believed only within the lifetime that the
//! link gives such knowledge anyway: a stamp from the future, or an older one, makes it worthless.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bentpipe_link::io::{Air, AirWatch};
use bentpipe_link::{REMEMBERED_LIFETIME, Remembered};
use bentpipe_units::BitRate;
use serde::{Deserialize, Serialize};

use crate::atomic_file::{self, OWNER_ONLY};

/// Interval of writes: the most that an abrupt end loses.
const INTERVAL: Duration = Duration::from_secs(60);
/// A longer round trip is no path's: a geostationary one with a full queue has 2 s.
const LONGEST_RTT: Duration = Duration::from_secs(60);

/// The file's content.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Stored {
    learned_unix_s: u64,
    rtt_us: u64,
    loss: f64,
    burst: f64,
    rate_bps: u64,
}

/// Tells `air` what the file beside `state_file` holds, and keeps the file up to date for as long
/// as `air` is used, in a task of the current runtime.
pub fn keep(air: &Air, state_file: &Path) {
    let mut file = state_file.as_os_str().to_owned();
    file.push(".path");
    let file = PathBuf::from(file);
    if let Some((remembered, age)) = load(&file, unix_now()) {
        tracing::debug!(?remembered, ?age, "the path is remembered");
        air.remember(remembered, age);
    }
    tokio::spawn(save_often(air.watch(), file));
}

async fn save_often(air: AirWatch, file: PathBuf) {
    let mut failed = false;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(air) = air.air() else { return };
        let Some((remembered, age)) = air.remembered().filter(|(_, age)| *age < INTERVAL) else {
            continue; // nothing new since it was written last
        };
        drop(air);
        if let Err(error) = save(&file, &remembered, age, unix_now())
            && !std::mem::replace(&mut failed, true)
        {
            let file = file.display();
            tracing::warn!(%file, %error, "what is learned of the path cannot be kept over a restart");
        }
    }
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn save(file: &Path, remembered: &Remembered, age: Duration, now: Duration) -> io::Result<()> {
    let text = written(remembered, age, now).map_err(io::Error::other)?;
    atomic_file::replace_durably(file, text.as_bytes(), OWNER_ONLY)
}

/// The file's text.
pub fn written(
    remembered: &Remembered,
    age: Duration,
    now: Duration,
) -> Result<String, toml::ser::Error> {
    let stored = Stored {
        learned_unix_s: now.saturating_sub(age).as_secs(),
        rtt_us: u64::try_from(remembered.rtt.as_micros()).unwrap_or(u64::MAX),
        loss: remembered.loss,
        burst: remembered.burst,
        rate_bps: remembered.rate.bps(),
    };
    toml::to_string(&stored)
}

/// Content of the file, and its age; `None` if it is missing, foreign or too old.
fn load(file: &Path, now: Duration) -> Option<(Remembered, Duration)> {
    read(&std::fs::read_to_string(file).ok()?, now)
}

/// The same of the file's text.
pub fn read(text: &str, now: Duration) -> Option<(Remembered, Duration)> {
    let stored: Stored = toml::from_str(text).ok()?;
    let age = now.checked_sub(Duration::from_secs(stored.learned_unix_s))?;
    let rtt = Duration::from_micros(stored.rtt_us);
    let sane = (Duration::from_micros(1)..=LONGEST_RTT).contains(&rtt)
        && (0.0..=1.0).contains(&stored.loss)
        && stored.burst.is_finite()
        && stored.burst >= 1.0;
    let remembered = Remembered {
        rtt,
        loss: stored.loss,
        burst: stored.burst,
        rate: BitRate::from_bps(stored.rate_bps),
        at: Duration::ZERO,
    };
    (sane && age <= REMEMBERED_LIFETIME).then_some((remembered, age))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const LEARNED: Remembered = Remembered {
        rtt: Duration::from_micros(612_345),
        loss: 0.06,
        burst: 3.5,
        rate: BitRate::from_bps(1_890_000),
        at: Duration::ZERO,
    };

    #[test]
    fn what_is_saved_is_loaded_with_its_age() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state.path");
        assert_eq!(load(&file, NOW), None);
        save(&file, &LEARNED, Duration::from_secs(10), NOW).unwrap();
        let loaded = load(&file, NOW + Duration::from_secs(50));
        assert_eq!(loaded, Some((LEARNED, Duration::from_secs(60))));
    }

    #[test]
    fn a_clock_that_went_back_or_far_ahead_makes_it_worthless() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state.path");
        save(&file, &LEARNED, Duration::ZERO, NOW).unwrap();
        assert!(load(&file, NOW + REMEMBERED_LIFETIME).is_some());
        assert_eq!(load(&file, NOW + REMEMBERED_LIFETIME + Duration::from_secs(1)), None);
        assert_eq!(load(&file, NOW - Duration::from_secs(1)), None);
        assert_eq!(load(&file, Duration::ZERO), None);
    }

    #[test]
    fn strange_values_are_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state.path");
        for strange in [
            Remembered { loss: 1.5, ..LEARNED },
            Remembered { loss: f64::NAN, ..LEARNED },
            Remembered { burst: 0.0, ..LEARNED },
            Remembered { burst: f64::INFINITY, ..LEARNED },
            Remembered { rtt: Duration::ZERO, ..LEARNED },
            Remembered { rtt: Duration::from_secs(3600), ..LEARNED },
        ] {
            save(&file, &strange, Duration::ZERO, NOW).unwrap();
            assert_eq!(load(&file, NOW), None, "{strange:?}");
        }
        std::fs::write(&file, "my notes").unwrap();
        assert_eq!(load(&file, NOW), None);
    }
}
