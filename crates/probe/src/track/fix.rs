//! Fixes, as all formats have them, and their faults.

use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Maximum number of fixes of a track: a day with two a second. 172,800 × 48 bytes = 8 MB.
pub const MAX_FIXES: usize = 172_800;

/// Feet in a metre.
pub const FEET: f64 = 1.0 / 0.3048;

/// Altitudes outside of these, in feet, are errors of a transponder.
const ALTITUDES_FT: std::ops::RangeInclusive<f64> = -2000.0..=100_000.0;

/// A known position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fix {
    /// Microseconds since 1970, UTC.
    pub wall_us: i64,
    /// Latitude in degrees, north positive.
    pub latitude: f64,
    /// Longitude in degrees from −180 to 180, east positive.
    pub longitude: f64,
    /// Altitude in feet; barometric where the file has both.
    pub altitude_ft: Option<f64>,
    /// The aircraft is on the ground.
    pub ground: bool,
    /// Another flight or segment begins here, so nothing is known about the time before.
    pub new_leg: bool,
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Table with commas.
    Csv,
    /// GPS Exchange Format.
    Gpx,
    /// Keyhole Markup Language.
    Kml,
    /// Trace of readsb or tar1090.
    Readsb,
    /// Track of OpenSky's interface.
    OpenSky,
    /// Records of a receiver.
    Gps,
}

impl Format {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
            Self::Gpx => "GPX",
            Self::Kml => "KML",
            Self::Readsb => "readsb trace",
            Self::OpenSky => "OpenSky track",
            Self::Gps => "positions of gpsd",
        }
    }
}

/// Text that is not a track.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotATrack {
    /// The format is not known.
    #[error("its format is not known: use CSV, GPX, KML, a trace of readsb or a track of OpenSky")]
    Format,
    /// The text breaks the rules of its format.
    #[error("it is not valid {format}: {why}")]
    Syntax {
        /// Format.
        format: &'static str,
        /// Fault.
        why: String,
    },
    /// A table has no column that is needed.
    #[error(
        "its header line names no column for {0}. Columns are timestamp or utc, latitude and longitude or position, and \
         altitude_ft or altitude_m"
    )]
    Column(&'static str),
    /// A time does not say its zone.
    #[error(
        "line {line}: the time `{time}` has no zone. Write UTC as 2026-11-27T05:20:16Z, or as seconds since 1970"
    )]
    Zone {
        /// Line.
        line: u64,
        /// Time.
        time: String,
    },
    /// The file has too many points.
    #[error("it has more than {MAX_FIXES} positions: cut it to the flight")]
    TooLong,
    /// The file has too few points.
    #[error("it has fewer than two positions with times, so it is not a track")]
    Empty,
}

/// Fixes as a file has them.
#[derive(Debug, Default)]
pub struct Fixes {
    /// Those that are possible, in the order of the file.
    pub fixes: Vec<Fix>,
    /// Number of the others.
    pub left_out: u64,
}

impl Fixes {
    /// Adds a fix, or counts it if it is impossible.
    pub fn add(&mut self, fix: Option<Fix>) -> Result<(), NotATrack> {
        let possible = |fix: &Fix| {
            fix.latitude.abs() <= 90.0 && fix.longitude.is_finite() && fix.longitude.abs() <= 360.0
        };
        let Some(mut fix) = fix.filter(possible) else {
            self.left_out += 1;
            return Ok(());
        };
        if self.fixes.len() == MAX_FIXES {
            return Err(NotATrack::TooLong);
        }
        fix.longitude = wrapped(fix.longitude);
        fix.altitude_ft = fix.altitude_ft.filter(|altitude| ALTITUDES_FT.contains(altitude));
        self.fixes.push(fix);
        Ok(())
    }
}

/// A longitude from −180 to 180.
fn wrapped(longitude: f64) -> f64 {
    match longitude {
        east if east > 180.0 => east - 360.0,
        west if west < -180.0 => west + 360.0,
        inside => inside,
    }
}

/// Microseconds since 1970 of seconds since 1970, if they are of this century or the end of the last.
pub fn seconds(seconds: f64) -> Option<i64> {
    // From 1990 to 2100.
    let plausible = (631_152_000.0..4_102_444_800.0).contains(&seconds);
    plausible.then(|| (seconds * 1e6).round() as i64)
}

/// Microseconds since 1970 of a time with a zone.
pub fn zoned(text: &str) -> Option<i64> {
    let text = text.trim().replacen(' ', "T", 1);
    let at = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
    i64::try_from(at.unix_timestamp_nanos() / 1000).ok()
}
