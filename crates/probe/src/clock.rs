//! Time of a record: the boot clock, the wall clock, and the age of the wall clock.
//!
//! CLOCK_BOOTTIME counts through suspension and never steps, so all differences come from it. The wall
//! clock joins a record to the flight's track, and its age says how far to trust it.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Smallest difference between the clocks that counts as a step. NTP slews by at most 500 ppm, which is
/// 0.5 ms in the second between two readings.
pub const MIN_STEP_US: u64 = 100_000;

/// Shortest suspension that is reported. A delayed reading of the two clocks looks like a shorter one.
pub const MIN_SUSPENSION_US: u64 = 500_000;

/// An instant on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// CLOCK_BOOTTIME in microseconds.
    pub boot_us: u64,
    /// Microseconds since 1970, UTC, by the wall clock at that instant.
    pub wall_us: i64,
}

impl Moment {
    /// The instant `us` microseconds later on both clocks.
    pub fn plus_us(self, us: u64) -> Self {
        let wall_us = self.wall_us.saturating_add_unsigned(us);
        Self { boot_us: self.boot_us.saturating_add(us), wall_us }
    }

    /// UTC as OONI writes it: `2026-11-27 05:20:16`.
    pub fn utc(self) -> String {
        utc(self.wall_us)
    }
}

/// Formats microseconds since 1970 as UTC: `2026-11-27 05:20:16`.
pub fn utc(wall_us: i64) -> String {
    let seconds = wall_us.div_euclid(1_000_000);
    let Ok(at) = OffsetDateTime::from_unix_timestamp(seconds) else {
        return "0000-00-00 00:00:00".into();
    };
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Trust in the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockState {
    /// Seconds since the clock was last set by a source of time; −1 if nobody knows. RIPE Atlas calls it
    /// `lts`.
    pub age_s: i64,
    /// Witness of the age.
    pub source: ClockSource,
}

impl ClockState {
    /// A clock of unknown age.
    pub const UNKNOWN: Self = Self { age_s: -1, source: ClockSource::Unknown };
}

/// Witness of the wall clock's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockSource {
    /// The file that systemd-timesyncd touches at every synchronisation.
    Timesyncd,
    /// None.
    Unknown,
}

/// Simultaneous readings of the clocks.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Both clocks of a record.
    pub moment: Moment,
    /// CLOCK_MONOTONIC in microseconds, which stands still during suspension.
    pub monotonic_us: u64,
}

/// Event of the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum ClockEvent {
    /// The wall clock was set: forward if positive.
    Step {
        /// Size of the step in microseconds.
        by_us: i64,
    },
    /// The machine slept.
    Suspended {
        /// Duration in microseconds.
        for_us: u64,
    },
}

/// Detector of steps and suspensions, from readings about a second apart.
#[derive(Debug, Default)]
pub struct ClockWatch {
    last: Option<Reading>,
}

impl ClockWatch {
    /// Compares a reading with the one before.
    pub fn observe(&mut self, now: Reading) -> Vec<ClockEvent> {
        let Some(last) = self.last.replace(now) else { return Vec::new() };
        let boot = now.moment.boot_us.saturating_sub(last.moment.boot_us);
        let awake = now.monotonic_us.saturating_sub(last.monotonic_us);
        let wall = now.moment.wall_us.saturating_sub(last.moment.wall_us);
        let mut events = Vec::new();
        let for_us = boot.saturating_sub(awake);
        if for_us >= MIN_SUSPENSION_US {
            events.push(ClockEvent::Suspended { for_us });
        }
        let by_us = wall.saturating_sub_unsigned(boot);
        if by_us.unsigned_abs() >= MIN_STEP_US {
            events.push(ClockEvent::Step { by_us });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot_us: u64, monotonic_us: u64, wall_us: i64) -> Reading {
        Reading { moment: Moment { boot_us, wall_us }, monotonic_us }
    }

    #[test]
    fn a_steady_clock_has_no_events() {
        let mut watch = ClockWatch::default();
        assert!(watch.observe(reading(5_000_000, 4_000_000, 1_000_000_000)).is_empty());
        assert!(watch.observe(reading(6_000_400, 5_000_400, 1_001_000_900)).is_empty());
    }

    #[test]
    fn a_step_back_and_a_suspension_are_told_apart() {
        let mut watch = ClockWatch::default();
        watch.observe(reading(5_000_000, 4_000_000, 1_000_000_000));
        let stepped = watch.observe(reading(6_000_000, 5_000_000, 997_000_000));
        assert_eq!(stepped, [ClockEvent::Step { by_us: -4_000_000 }]);
        let slept = watch.observe(reading(66_000_000, 6_000_000, 1_057_000_000));
        assert_eq!(slept, [ClockEvent::Suspended { for_us: 59_000_000 }]);
    }

    #[test]
    fn the_date_is_written_as_ooni_writes_it() {
        assert_eq!(utc(1_795_756_816_000_000), "2026-11-27 05:20:16");
        assert_eq!(utc(-1), "1969-12-31 23:59:59");
        assert_eq!(utc(i64::MAX), "0000-00-00 00:00:00");
    }
}
