//! Flight tracks: positions over time, from files of common formats.
//!
//! | module | contents |
//! |---|---|
//! | `fix` | fixes, and faults of files |
//! | `csv` | tables with a header line |
//! | `xml` | GPX and KML |
//! | `json` | traces of readsb and tracks of OpenSky |
//! | `position` | positions between fixes, on great circles |
//!
//! Times are UTC, altitudes are feet, as in aviation. A track is joined to records by time alone.

mod csv;
mod fix;
mod json;
mod position;
mod xml;

pub use fix::{Fix, Format, MAX_FIXES, NotATrack};
pub(crate) use position::between;
pub use position::{Phase, Position};

use crate::gps::GpsFix;

use fix::{FEET, Fixes};

/// A track.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// Name of the file.
    pub name: String,
    /// Format.
    pub format: Format,
    /// Fixes in order of time, at most one at a time.
    pub fixes: Vec<Fix>,
    /// Points that were left out: without a time, stale, or impossible.
    pub left_out: u64,
}

impl Track {
    /// Parses the text of a file; its content tells its format.
    pub fn parse(name: &str, text: &str) -> Result<Self, NotATrack> {
        let text = text.trim_start_matches('\u{feff}');
        let (format, fixes) = match text.trim_start().as_bytes().first() {
            Some(b'<') => xml::parse(text)?,
            Some(b'{') => json::parse(text)?,
            Some(_) => (Format::Csv, csv::parse(text)?),
            None => return Err(NotATrack::Empty),
        };
        Self::of(name, format, fixes)
    }

    /// A track of a receiver's positions: time, position, and whether a session begins with it.
    pub fn of_receiver<'a>(
        positions: impl Iterator<Item = (i64, &'a GpsFix, bool)>,
    ) -> Option<Self> {
        let mut fixes = Fixes::default();
        for (wall_us, fix, new_leg) in positions {
            let fix = Fix {
                wall_us,
                latitude: fix.latitude,
                longitude: fix.longitude,
                altitude_ft: fix.altitude_m.map(|metres| metres * FEET),
                ground: false,
                new_leg,
            };
            fixes.add(Some(fix)).ok()?;
        }
        Self::of("gpsd", Format::Gps, fixes).ok()
    }

    fn of(name: &str, format: Format, fixes: Fixes) -> Result<Self, NotATrack> {
        let Fixes { mut fixes, left_out } = fixes;
        fixes.sort_by_key(|fix| fix.wall_us);
        fixes.dedup_by(|later, kept| {
            let same = later.wall_us == kept.wall_us;
            kept.new_leg |= same && later.new_leg;
            same
        });
        if fixes.len() < 2 {
            return Err(NotATrack::Empty);
        }
        Ok(Self { name: name.into(), format, fixes, left_out })
    }
}

#[cfg(test)]
mod tests;
