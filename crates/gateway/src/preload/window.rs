//! Time of the day in which the portal's content is fetched.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bentpipe_webcache::Moment;
use serde::{Deserialize, Deserializer};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// A part of each day, in UTC: from a minute up to another, over midnight if that one is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    from_minute: u64,
    until_minute: u64,
}

/// Reason for which a text is not a [`Window`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// It is no pair of times.
    #[error("{0:?} is no part of a day: write it in UTC like \"02:00-05:00\"")]
    Syntax(String),
    /// It ends as it begins.
    #[error("{0:?} has no length: write when it ends, in UTC, like \"02:00-05:00\"")]
    Empty(String),
}

impl Window {
    /// Opening and closing time of the window that is open at `now`, if it is.
    pub fn open_at(&self, now: Moment) -> Option<(Moment, Moment)> {
        let seconds = now.as_secs();
        let length =
            (self.until_minute + DAY / MINUTE - self.from_minute) % (DAY / MINUTE) * MINUTE;
        // The last time that it opened, at the beginning of the epoch or later.
        let since = (seconds % DAY + DAY - self.from_minute * MINUTE) % DAY;
        let opened = seconds.checked_sub(since).filter(|_| since < length)?;
        Some((Duration::from_secs(opened), Duration::from_secs(opened + length)))
    }
}

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Self, WindowError> {
        let both = text
            .split_once('-')
            .and_then(|(from, until)| Some((minute(from.trim())?, minute(until.trim())?)));
        match both {
            None => Err(WindowError::Syntax(text.to_owned())),
            Some((from, until)) if from == until => Err(WindowError::Empty(text.to_owned())),
            Some((from_minute, until_minute)) => Ok(Self { from_minute, until_minute }),
        }
    }
}

/// The minute of the day that is written `02:00`.
fn minute(text: &str) -> Option<u64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, most| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number: &u64| digits && *number < most)
    };
    Some(number(hour, 24)? * 60 + number(minute, 60)?)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, until] = [self.from_minute, self.until_minute]
            .map(|minute| format!("{:02}:{:02}", minute / 60, minute % 60));
        f.pad(&format!("{from}-{until}"))
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(day: u64, hour: u64, minute: u64) -> Moment {
        Duration::from_secs(day * DAY + hour * 3600 + minute * 60)
    }

    #[test]
    fn it_is_open_from_its_first_minute_up_to_its_last() {
        let night: Window = "02:00-05:00".parse().unwrap();
        let open = Some((at(9, 2, 0), at(9, 5, 0)));
        assert_eq!(night.open_at(at(9, 2, 0)), open);
        assert_eq!(night.open_at(at(9, 4, 59)), open);
        assert_eq!(night.open_at(at(9, 5, 0)), None);
        assert_eq!(night.open_at(at(9, 1, 59)), None);
    }

    #[test]
    fn one_over_midnight_is_one_night() {
        let night: Window = "22:30-04:00".parse().unwrap();
        let open = Some((at(9, 22, 30), at(10, 4, 0)));
        assert_eq!(night.open_at(at(9, 23, 0)), open);
        assert_eq!(night.open_at(at(10, 3, 59)), open);
        assert_eq!(night.open_at(at(10, 4, 0)), None);
        assert_eq!(night.open_at(at(0, 1, 0)), None, "a clock that nobody has set");
    }

    #[test]
    fn the_wrong_is_told() {
        for wrong in ["", "2:00-5:00", "02:00", "24:00-05:00", "02:60-05:00", "+2:00-05:00"] {
            assert!(matches!(wrong.parse::<Window>(), Err(WindowError::Syntax(_))), "{wrong}");
        }
        assert!(matches!("02:00-02:00".parse::<Window>(), Err(WindowError::Empty(_))));
        assert_eq!(" 02:00 - 05:00".parse::<Window>().unwrap().to_string(), "02:00-05:00");
    }

    proptest! {
        #[test]
        fn what_is_open_has_opened_and_will_close(from in 0..1440_u64, length in 1..1440_u64, now in 0..(1_u64 << 40)) {
            let window = Window { from_minute: from, until_minute: (from + length) % 1440 };
            prop_assert_eq!(window.to_string().parse(), Ok(window));
            let now = Duration::from_secs(now);
            if let Some((opened, closes)) = window.open_at(now) {
                prop_assert!(opened <= now && now < closes);
                prop_assert_eq!((closes - opened).as_secs(), length * 60);
                prop_assert_eq!(window.open_at(opened), Some((opened, closes)));
                prop_assert!(window.open_at(closes).is_none_or(|(next, _)| next == closes));
            }
        }
    }
}
