//! Tables with a header line, as tracking sites and receivers export them.

use super::fix::{FEET, Fix, Fixes, NotATrack, seconds, zoned};

/// Columns by their places.
struct Columns {
    time: usize,
    /// The time is UTC even if it does not say so.
    utc: bool,
    place: Place,
    altitude: Option<(usize, f64)>,
    ground: Option<usize>,
}

enum Place {
    /// Latitude and longitude.
    Two(usize, usize),
    /// Both in one field, with a comma.
    One(usize),
}

/// Reads a table.
pub fn parse(text: &str) -> Result<Fixes, NotATrack> {
    let syntax = |error: csv::Error| NotATrack::Syntax { format: "CSV", why: error.to_string() };
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let columns = Columns::of(reader.headers().map_err(syntax)?)?;
    let (mut fixes, mut row) = (Fixes::default(), csv::StringRecord::new());
    while reader.read_record(&mut row).map_err(syntax)? {
        let line = row.position().map_or(0, csv::Position::line);
        fixes.add(columns.fix(&row, line)?)?;
    }
    Ok(fixes)
}

impl Columns {
    fn of(header: &csv::StringRecord) -> Result<Self, NotATrack> {
        let names: Vec<String> = header.iter().map(plain).collect();
        let find = |wanted: &[&str]| {
            wanted.iter().find_map(|wanted| names.iter().position(|name| name == wanted))
        };
        let utc = find(&["utc", "timeutc", "utctime", "datetimeutc", "dateutc", "timestamputc"]);
        let unzoned = find(&["timestamp", "time", "datetime", "date", "unixtime"]);
        // Seconds since 1970 have no zone to mistake, so they come first; other columns may be local.
        let unix = find(&["unixtime", "timestamp"]);
        let time = unix.or(utc).or(unzoned).ok_or(NotATrack::Column("the time"))?;
        let latitude = find(&["latitude", "lat"]);
        let longitude = find(&["longitude", "lon", "lng", "long"]);
        let place = match (latitude, longitude, find(&["position", "latlon"])) {
            (Some(latitude), Some(longitude), _) => Place::Two(latitude, longitude),
            (_, _, Some(both)) => Place::One(both),
            _ => return Err(NotATrack::Column("the position")),
        };
        // Sites for aviation mean feet if they name no unit; OpenSky's tables and GPS loggers mean metres.
        let feet = find(&["altitudeft", "altft", "altitudefeet", "feet", "altitude", "alt"]);
        let metres = find(&[
            "altitudem",
            "altm",
            "altitudemeters",
            "altitudemetres",
            "baroaltitude",
            "geoaltitude",
            "ele",
        ]);
        let altitude = metres.map(|at| (at, FEET)).or(feet.map(|at| (at, 1.0)));
        let ground = find(&["onground", "ground"]);
        Ok(Self { time, utc: Some(time) == utc, place, altitude, ground })
    }

    fn fix(&self, row: &csv::StringRecord, line: u64) -> Result<Option<Fix>, NotATrack> {
        let Some(text) = row.get(self.time).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let Some(wall_us) = self.time(text, line)? else { return Ok(None) };
        let number = |at: usize| row.get(at)?.parse::<f64>().ok();
        let place = match self.place {
            Place::Two(latitude, longitude) => number(latitude).zip(number(longitude)),
            Place::One(both) => {
                row.get(both).and_then(|text| text.split_once(',')).and_then(|(a, b)| {
                    Some((a.trim().parse::<f64>().ok()?, b.trim().parse::<f64>().ok()?))
                })
            }
        };
        let altitude_ft = self.altitude.and_then(|(at, unit)| Some(number(at)? * unit));
        let ground = self.ground.and_then(|at| row.get(at));
        let ground = ground.is_some_and(|text| matches!(text, "1" | "true" | "True" | "TRUE"));
        Ok(place.map(|(latitude, longitude)| Fix {
            wall_us,
            latitude,
            longitude,
            altitude_ft,
            ground,
            new_leg: false,
        }))
    }

    /// A time; `None` if it is not one, and an error if its zone is unknown.
    fn time(&self, text: &str, line: u64) -> Result<Option<i64>, NotATrack> {
        if let Ok(number) = text.parse::<f64>() {
            // Milliseconds have twelve digits or more.
            return Ok(seconds(if number.abs() >= 1e11 { number / 1000.0 } else { number }));
        }
        if let Some(wall_us) = zoned(text).or_else(|| zoned(&text.replace(" UTC", "Z"))) {
            return Ok(Some(wall_us));
        }
        match zoned(&format!("{text}Z")) {
            Some(wall_us) if self.utc => Ok(Some(wall_us)),
            Some(_) => Err(NotATrack::Zone { line, time: text.chars().take(40).collect() }),
            None => Ok(None),
        }
    }
}

/// A name in lower case, with letters and digits alone: `Altitude (ft)` becomes `altitudeft`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
}
