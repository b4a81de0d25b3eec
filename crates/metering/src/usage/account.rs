//! Usage per passenger, class and day. Pure: the day is an argument.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use bentpipe_schedule::Class;
use serde::{Serialize, Serializer};

/// Maximum number of records until the next write: 8,192 passengers with all their classes, about 8
/// MiB.
pub const MAX_RECORDS: usize = 32_768;

/// Common label of all passengers beyond [`MAX_RECORDS`], and of sources that may be invented.
pub const OTHERS: &str = "others";

/// A UTC day, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(u32);

/// Key of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// The day.
    pub day: Day,
    /// Name of the passenger, address of the device, or IP address.
    #[serde(serialize_with = "text")]
    pub passenger: Arc<str>,
    /// The class.
    #[serde(serialize_with = "name")]
    pub class: Class,
}

/// Usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Used {
    /// Bytes from the passenger.
    pub up_bytes: u64,
    /// Bytes to the passenger.
    pub down_bytes: u64,
    /// Number of new flows.
    pub flows: u64,
    /// Number of datagrams dropped here.
    pub drops: u64,
}

/// Usage since it was last taken.
#[derive(Debug, Default)]
pub struct Account(BTreeMap<Key, Used>);

impl Account {
    /// Adds `used` to the record of `key`.
    pub fn add(&mut self, key: Key, used: Used) {
        let full = self.0.len() >= MAX_RECORDS;
        let record = match self.0.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) if !full => new.insert(Used::default()),
            Entry::Vacant(new) => {
                let key = Key { passenger: OTHERS.into(), ..new.into_key() };
                self.0.entry(key).or_default()
            }
        };
        record.up_bytes = record.up_bytes.saturating_add(used.up_bytes);
        record.down_bytes = record.down_bytes.saturating_add(used.down_bytes);
        record.flows = record.flows.saturating_add(used.flows);
        record.drops = record.drops.saturating_add(used.drops);
    }

    /// Returns all records ordered by day and passenger, and empties the account.
    pub fn take(&mut self) -> BTreeMap<Key, Used> {
        std::mem::take(&mut self.0)
    }
}

impl Day {
    /// Returns the UTC day of a time in seconds since 1970-01-01 00:00 UTC.
    pub const fn of_unix(seconds: u64) -> Self {
        // Saturates after 11 million years.
        Self(if seconds / 86_400 > u32::MAX as u64 { u32::MAX } else { (seconds / 86_400) as u32 })
    }
}

/// Formats the day according to ISO 8601: `2026-11-21`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = time::OffsetDateTime::from_unix_timestamp(i64::from(self.0) * 86_400);
        match date {
            Ok(date) => date.date().fmt(f),
            Err(_) => write!(f, "day-{}", self.0), // beyond the year 9999
        }
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

fn text<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

fn name<S: Serializer>(class: &Class, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(class.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(passenger: &str, day: u32) -> Key {
        Key { day: Day(day), passenger: passenger.into(), class: Class::Assured }
    }

    const SOME: Used = Used { up_bytes: 1, down_bytes: 20, flows: 1, drops: 3 };

    #[test]
    fn usage_days_are_calendar_days() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_795_219_199, "2026-11-20"),
            (1_795_219_200, "2026-11-21"),
        ] {
            assert_eq!(Day::of_unix(seconds).to_string(), day);
        }
        assert_eq!(Day::of_unix(u64::MAX).to_string(), "day-4294967295");
    }

    #[test]
    fn usage_adds_up_by_passenger_day_and_class() {
        let mut account = Account::default();
        for key in [key("a", 1), key("a", 1), key("a", 2), key("b", 1)] {
            account.add(key, SOME);
        }
        account.add(Key { class: Class::Network, ..key("a", 1) }, SOME);
        let all = account.take();
        assert_eq!(all.len(), 4);
        let twice = Used { up_bytes: 2, down_bytes: 40, flows: 2, drops: 6 };
        assert_eq!((all[&key("a", 1)], all[&key("a", 2)]), (twice, SOME));
        assert!(account.take().is_empty());
    }

    #[test]
    fn the_account_is_bounded_and_loses_nothing() {
        let mut account = Account::default();
        for n in 0..MAX_RECORDS + 10 {
            account.add(key(&n.to_string(), 1), SOME);
        }
        let all = account.take();
        assert_eq!(all.len(), MAX_RECORDS + 1);
        assert_eq!(all[&key(OTHERS, 1)].flows, 10);
        let down: u64 = all.values().map(|used| used.down_bytes).sum();
        assert_eq!(down, 20 * (MAX_RECORDS as u64 + 10));
    }
}
