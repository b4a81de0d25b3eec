//! The machine's clocks.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_probe::clock::{ClockSource, ClockState, Moment, Reading};
use nix::time::{ClockId, clock_gettime};

/// File that systemd-timesyncd touches when it has synchronised the clock.
const TIMESYNCD: &str = "/run/systemd/timesync/synchronized";

/// Time since boot, suspension included.
pub fn boot() -> Duration {
    // Linux has had CLOCK_BOOTTIME since 2.6.39; it cannot fail with a valid pointer.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// Both clocks of a record.
pub fn now() -> Moment {
    let boot_us = bentpipe_probe::micros(boot());
    // A clock before 1970 has not been set.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { boot_us, wall_us: i64::try_from(wall.as_micros()).unwrap_or(i64::MAX) }
}

/// All clocks, for the detection of steps and suspensions.
pub fn reading() -> Reading {
    let awake = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    Reading { moment: now(), monotonic_us: bentpipe_probe::micros(awake) }
}

/// Trust in the wall clock.
pub fn state() -> ClockState {
    let synchronised = fs::metadata(TIMESYNCD).and_then(|file| file.modified());
    let age = synchronised.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.map_or(ClockState::UNKNOWN, |age| ClockState {
        age_s: i64::try_from(age.as_secs()).unwrap_or(i64::MAX),
        source: ClockSource::Timesyncd,
    })
}
