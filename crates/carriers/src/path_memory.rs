//! Link's measurements of its path, stored next to the state file over restarts.
//!
//! They are a prior. The link takes its first estimates of round trip and loss from them, and a path
//! without a lease uses them for the careful jump of RFC 9959. The link works without them.
//!
//! Clocks of aircraft are often wrong. A timestamp counts only if it lies within the lifetime of such
//! measurements. A file from the future, or an older one, is ignored.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bentpipe_link::io::{Air, AirWatch};
use bentpipe_link::{REMEMBERED_LIFETIME, Remembered};
use bentpipe_net::path::Paths;
use bentpipe_units::BitRate;
use serde::{Deserialize, Serialize};

use bentpipe_net::atomic_file::{self, OWNER_ONLY};

/// Interval of writes. An abrupt end loses at most the measurements of this time.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum plausible round trip. A geostationary path with a full queue has 2 s.
const MAX_RTT: Duration = Duration::from_secs(60);

/// Contents of the file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Stored {
    learned_unix_s: u64,
    rtt_us: u64,
    loss: f64,
    burst: f64,
    rate_bps: u64,
    /// Network of our address; absent if it is unknown.
    network: Option<IpAddr>,
}

/// Passes the measurements in the file next to `state_file` to `air`, which calls `hub`. A task of the
/// current runtime updates the file while `air` is in use, and `air`'s own address.
pub fn keep(air: &Air, hub: SocketAddr, state_file: &Path) {
    let mut file = state_file.as_os_str().to_owned();
    file.push(".path");
    let file = PathBuf::from(file);
    if let Some((remembered, age)) = load(&file, unix_now()) {
        tracing::debug!(?remembered, ?age, "the path is remembered");
        air.remember(remembered, age);
    }
    let paths = Paths::default();
    air.set_own_address(own_address(&paths, hub));
    tokio::spawn(save_often(air.watch(), (paths, hub), file));
}

/// Address from which the kernel sends to `hub`. It names the interface and its network.
fn own_address(paths: &Paths, hub: SocketAddr) -> Option<IpAddr> {
    paths.towards(hub).ok()?.own_address
}

async fn save_often(air: AirWatch, (paths, hub): (Paths, SocketAddr), file: PathBuf) {
    let mut failed = false;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(air) = air.air() else { return };
        air.set_own_address(own_address(&paths, hub));
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

/// Text of the file.
pub fn written(
    remembered: &Remembered,
    age: Duration,
    now: Duration,
) -> Result<String, toml::ser::Error> {
    let stored = Stored {
        learned_unix_s: now.saturating_sub(age).as_secs(),
        rtt_us: bentpipe_units::micros(remembered.rtt),
        loss: remembered.loss,
        burst: remembered.burst,
        rate_bps: remembered.rate.bps(),
        network: remembered.network,
    };
    toml::to_string(&stored)
}

/// Contents of the file, and their age; `None` if the file is missing, invalid or too old.
fn load(file: &Path, now: Duration) -> Option<(Remembered, Duration)> {
    read(&std::fs::read_to_string(file).ok()?, now)
}

/// Contents of a file with this text, and their age.
pub fn read(text: &str, now: Duration) -> Option<(Remembered, Duration)> {
    let stored: Stored = toml::from_str(text).ok()?;
    let age = now.checked_sub(Duration::from_secs(stored.learned_unix_s))?;
    let rtt = Duration::from_micros(stored.rtt_us);
    let sane = (Duration::from_micros(1)..=MAX_RTT).contains(&rtt)
        && (0.0..=1.0).contains(&stored.loss)
        && stored.burst.is_finite()
        && stored.burst >= 1.0;
    let remembered = Remembered {
        rtt,
        loss: stored.loss,
        burst: stored.burst,
        rate: BitRate::from_bps(stored.rate_bps),
        at: Duration::ZERO,
        network: stored.network,
    };
    (sane && age <= REMEMBERED_LIFETIME).then_some((remembered, age))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const LEARNED: Remembered = Remembered {
        rtt: Duration::from_micros(612_345),
        loss: 0.06,
        burst: 3.5,
        rate: BitRate::from_bps(1_890_000),
        at: Duration::ZERO,
        network: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0))),
    };

    #[test]
    fn measurements_are_loaded_with_their_age() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state.path");
        assert_eq!(load(&file, NOW), None);
        save(&file, &LEARNED, Duration::from_secs(10), NOW).unwrap();
        let loaded = load(&file, NOW + Duration::from_secs(50));
        assert_eq!(loaded, Some((LEARNED, Duration::from_secs(60))));
    }

    #[test]
    fn a_wrong_clock_makes_the_file_invalid() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("air.state.path");
        save(&file, &LEARNED, Duration::ZERO, NOW).unwrap();
        assert!(load(&file, NOW + REMEMBERED_LIFETIME).is_some());
        assert_eq!(load(&file, NOW + REMEMBERED_LIFETIME + Duration::from_secs(1)), None);
        assert_eq!(load(&file, NOW - Duration::from_secs(1)), None);
        assert_eq!(load(&file, Duration::ZERO), None);
    }

    #[test]
    fn implausible_values_are_ignored() {
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
