//! EPB ratio: the part of the provisioned bandwidth that one TCP connection uses, as NetForecast defines it in its
//! study of proxies on satellite links (section "Test Methodology").
//!
//! Files go over one connection, one after another: down at odd hours, up at even ones, none at 12 and 14. Hours are
//! those of UTC, because a flight has no local hour of its own.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rate::Direction;

/// Bytes of a file. The study names the volumes of its tests but no size of a file, so this size is ours. Each file waits
/// for a round trip: a connection of 20 Mbit/s and 600 ms has data for 0.4 s of each second, a ratio of 40 %.
pub const FILE: u64 = 1_000_000;

/// Longest test. The files of a slow access are cut then.
pub const MAX_TIME: Duration = Duration::from_secs(100);

const HOUR_US: i64 = 3_600_000_000;

/// Files of a test: the smaller one of the study's volumes, 20 MB down and 2 MB up.
pub fn files(direction: Direction) -> u32 {
    match direction {
        Direction::Down => 20,
        Direction::Up => 2,
    }
}

/// Direction of the test at a time in microseconds since 1970; `None` if its hour has no test.
pub fn direction(wall_us: i64) -> Option<Direction> {
    match wall_us.div_euclid(HOUR_US).rem_euclid(24) {
        12 | 14 => None,
        hour if hour % 2 == 1 => Some(Direction::Down),
        _ => Some(Direction::Up),
    }
}

/// Time until the next hour begins that has a test.
pub fn wait(wall_us: i64) -> Duration {
    let next = (wall_us.div_euclid(HOUR_US) + 1) * HOUR_US;
    // 12 and 14 are not neighbours.
    let start = if direction(next).is_some() { next } else { next + HOUR_US };
    Duration::from_micros(start.abs_diff(wall_us))
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Received bytes.
    pub received_bytes: u64,
    /// Received packets.
    pub received_packets: u64,
    /// Sent bytes.
    pub sent_bytes: u64,
    /// Sent packets.
    pub sent_packets: u64,
}

impl Counters {
    /// Parses the line of `interface` in `/proc/net/dev`.
    pub fn parse(table: &str, interface: &str) -> Option<Self> {
        let line = |line: &str| {
            let (name, values) = line.split_once(':')?;
            (name.trim() == interface).then(|| values.to_owned())
        };
        let line = table.lines().find_map(line)?;
        let mut values = line.split_whitespace().map(str::parse);
        let mut value = |index| values.nth(index)?.ok();
        Some(Self {
            received_bytes: value(0)?,
            received_packets: value(0)?,
            sent_bytes: value(6)?,
            sent_packets: value(0)?,
        })
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            received_bytes: self.received_bytes.wrapping_sub(earlier.received_bytes),
            received_packets: self.received_packets.wrapping_sub(earlier.received_packets),
            sent_bytes: self.sent_bytes.wrapping_sub(earlier.sent_bytes),
            sent_packets: self.sent_packets.wrapping_sub(earlier.sent_packets),
        }
    }
}

/// A test of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epb {
    /// Origin.
    pub server: Option<SocketAddr>,
    /// Direction.
    pub direction: Direction,
    /// Provisioned bandwidth in bits per second, as the user knows it.
    pub provisioned_bps: u64,
    /// Whole files.
    pub files: u32,
    /// Bytes of files that the receiver got. Of an upload only whole files count.
    pub bytes: u64,
    /// Time from the first request to the last of these bytes, in microseconds.
    pub elapsed_us: u64,
    /// Interface that the default route uses, and what it counted meanwhile, with all other traffic.
    pub interface: Option<(String, Counters)>,
    /// The failure in OONI's manner. A test that was cut after [`MAX_TIME`] is not one.
    pub failure: Option<String>,
}

impl Epb {
    /// A test that has not begun.
    pub fn new(direction: Direction, provisioned_bps: u64) -> Self {
        Self {
            server: None,
            direction,
            provisioned_bps,
            files: 0,
            bytes: 0,
            elapsed_us: 0,
            interface: None,
            failure: None,
        }
    }

    /// Effective bandwidth in bits per second: all bytes by the elapsed time. A failed test has none.
    pub fn effective_bps(&self) -> Option<u64> {
        let bits = u128::from(self.bytes) * 8_000_000;
        let is_usable = self.failure.is_none() && self.bytes > 0;
        u64::try_from(bits.checked_div(self.elapsed_us.into()).filter(|_| is_usable)?).ok()
    }

    /// The EPB ratio.
    pub fn ratio(&self) -> Option<f64> {
        (self.provisioned_bps > 0).then_some(())?;
        Some(self.effective_bps()? as f64 / self.provisioned_bps as f64)
    }

    /// A TCP reset ended the test. The study leaves such tests out.
    pub fn is_reset(&self) -> bool {
        self.failure.as_deref() == Some("connection_reset")
    }

    /// Bytes at the interface in the test's direction for each byte of a file.
    pub fn overhead(&self) -> Option<f64> {
        let (_, counters) = self.interface.as_ref().filter(|_| self.bytes > 0)?;
        let bytes = match self.direction {
            Direction::Down => counters.received_bytes,
            Direction::Up => counters.sent_bytes,
        };
        Some(bytes as f64 / self.bytes as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_have_their_directions() {
        let found: Vec<_> = (0..24).map(|hour| direction(hour * HOUR_US + 5)).collect();
        assert_eq!(found.iter().filter(|found| **found == Some(Direction::Down)).count(), 12);
        assert_eq!(found.iter().filter(|found| **found == Some(Direction::Up)).count(), 10);
        // Table 1 of the study.
        let (down, up) = (Some(Direction::Down), Some(Direction::Up));
        assert_eq!((found[2], found[3], found[21], found[22]), (up, down, down, up));
        assert_eq!((found[12], found[14]), (None, None));
        assert_eq!(wait(10 * HOUR_US + 1), Duration::from_micros(HOUR_US as u64 - 1));
        assert_eq!(wait(11 * HOUR_US), Duration::from_secs(7200), "12 has none");
        assert_eq!(wait(13 * HOUR_US), Duration::from_secs(7200), "14 has none");
        assert_eq!(wait(23 * HOUR_US), Duration::from_secs(3600));
    }

    #[test]
    fn counters_of_an_interface() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n    \
             lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0: 1000 10 0 0 0 0 0 3 2000 20 0 0 0 0 0 0\n";
        let counters = Counters::parse(table, "eth0").unwrap();
        let expected = [1000, 10, 2000, 20];
        let found =
            |c: Counters| [c.received_bytes, c.received_packets, c.sent_bytes, c.sent_packets];
        assert_eq!(found(counters), expected);
        let earlier = Counters { received_bytes: 400, ..counters };
        assert_eq!(found(counters.since(earlier)), [600, 0, 0, 0]);
        assert_eq!(Counters::parse(table, "eth1"), None);
        assert_eq!(Counters::parse("eth0: 1 2", "eth0"), None);
    }

    #[test]
    fn the_ratio_is_of_tests_without_failures() {
        let mut test = Epb::new(Direction::Down, 8_000_000);
        assert_eq!((test.ratio(), test.overhead()), (None, None));
        (test.bytes, test.elapsed_us) = (5_000_000, 10_000_000);
        assert_eq!((test.effective_bps(), test.ratio()), (Some(4_000_000), Some(0.5)));
        let counters = Counters {
            received_bytes: 5_500_000,
            received_packets: 4000,
            sent_bytes: 80_000,
            sent_packets: 2000,
        };
        test.interface = Some(("wlan0".into(), counters));
        assert_eq!(test.overhead(), Some(1.1));
        test.failure = Some("connection_reset".into());
        assert_eq!((test.ratio(), test.is_reset()), (None, true));
    }
}
