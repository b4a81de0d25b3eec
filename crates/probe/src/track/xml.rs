//! GPX (track points) and KML (`gx:Track`, and placemarks with a time and a point).

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::fix::{FEET, Fix, Fixes, Format, MAX_FIXES, NotATrack, zoned};

/// Longest text of an element that is read.
const MAX_TEXT: usize = 256;

/// State of the reading.
#[derive(Default)]
struct State {
    format: Option<Format>,
    fixes: Fixes,
    /// Text of the element that is open.
    text: String,
    /// Point that is open: GPX has it in attributes, KML in text.
    place: Option<(f64, f64)>,
    altitude_ft: Option<f64>,
    time: Option<i64>,
    /// Times of a `gx:Track` that wait for their coordinates.
    whens: std::collections::VecDeque<Option<i64>>,
    in_track: bool,
    new_leg: bool,
}

/// Reads either format.
pub fn parse(text: &str) -> Result<(Format, Fixes), NotATrack> {
    let mut reader = Reader::from_str(text);
    let mut state = State::default();
    let fault = |why: String| NotATrack::Syntax { format: "XML", why };
    loop {
        match reader.read_event().map_err(|error| fault(error.to_string()))? {
            Event::Start(element) => state.start(&element).map_err(fault)?,
            Event::Empty(element) => {
                state.start(&element).map_err(fault)?;
                state.end(element.local_name().as_ref())?;
            }
            Event::Text(text) if state.text.len() + text.len() <= MAX_TEXT => {
                state.text.push_str(&text);
            }
            Event::End(element) => state.end(element.local_name().as_ref())?,
            Event::Eof => break,
            _ => {}
        }
    }
    let format = state.format.ok_or(NotATrack::Format)?;
    Ok((format, state.fixes))
}

impl State {
    fn start(&mut self, element: &BytesStart<'_>) -> Result<(), String> {
        self.text.clear();
        match element.local_name().as_ref() {
            "gpx" => self.format = Some(Format::Gpx),
            "kml" => self.format = Some(Format::Kml),
            "trkseg" => self.new_leg = true,
            "trkpt" => {
                let number = |name: &str| {
                    let attribute = element.try_get_attribute(name).map_err(|e| e.to_string())?;
                    let text = attribute.map(|a| a.value.into_owned());
                    Ok::<_, String>(text.and_then(|text| text.trim().parse::<f64>().ok()))
                };
                self.place = number("lat")?.zip(number("lon")?);
                (self.altitude_ft, self.time) = (None, None);
            }
            "Track" => {
                (self.in_track, self.new_leg) = (true, true);
                self.whens.clear();
            }
            "Placemark" => (self.place, self.altitude_ft, self.time) = (None, None, None),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, name: &str) -> Result<(), NotATrack> {
        let text = std::mem::take(&mut self.text);
        match name {
            "ele" => self.altitude_ft = text.trim().parse::<f64>().ok().map(|metres| metres * FEET),
            "time" => self.time = zoned(&text),
            "when" if self.in_track => {
                if self.whens.len() == MAX_FIXES {
                    return Err(NotATrack::TooLong);
                }
                self.whens.push_back(zoned(&text));
            }
            "when" => self.time = zoned(&text),
            "trkpt" => self.point()?,
            "coord" => {
                self.coordinates(text.split_whitespace());
                self.time = self.whens.pop_front().flatten();
                self.point()?;
            }
            "coordinates" => self.coordinates(text.trim().split(',')),
            "Track" => self.in_track = false,
            // A placemark without a time is a label or the line of the route.
            "Placemark" if self.time.is_some() => self.point()?,
            _ => {}
        }
        Ok(())
    }

    /// Longitude, latitude, altitude in metres.
    fn coordinates<'t>(&mut self, mut numbers: impl Iterator<Item = &'t str>) {
        let mut next = || numbers.next().and_then(|text| text.trim().parse::<f64>().ok());
        let (longitude, latitude, metres) = (next(), next(), next());
        self.place = latitude.zip(longitude);
        self.altitude_ft = metres.map(|metres| metres * FEET);
    }

    /// Adds the point that is open.
    fn point(&mut self) -> Result<(), NotATrack> {
        let known = self.time.take().zip(self.place.take());
        let fix = known.map(|(wall_us, (latitude, longitude))| Fix {
            wall_us,
            latitude,
            longitude,
            altitude_ft: self.altitude_ft.take(),
            ground: false,
            new_leg: std::mem::take(&mut self.new_leg),
        });
        self.fixes.add(fix)
    }
}
