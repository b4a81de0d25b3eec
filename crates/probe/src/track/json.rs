//! Traces of readsb and tar1090 (`trace_full_….json`), and tracks of OpenSky (`/tracks`).

use serde::Deserialize;
use serde_json::Value;

use super::fix::{FEET, Fix, Fixes, Format, NotATrack, seconds};

/// Flags of a point of readsb: the position is old, or a flight begins.
const STALE: u64 = 1;
const NEW_LEG: u64 = 2;

/// Both formats: the members tell them apart.
#[derive(Deserialize)]
struct File {
    timestamp: Option<f64>,
    trace: Option<Vec<Vec<Value>>>,
    path: Option<Vec<Vec<Value>>>,
}

/// Reads either format.
pub fn parse(text: &str) -> Result<(Format, Fixes), NotATrack> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| NotATrack::Syntax { format: "JSON", why: error.to_string() })?;
    let (format, points, start) = match (file.timestamp, file.trace, file.path) {
        (Some(start), Some(trace), _) => (Format::Readsb, trace, start),
        (_, _, Some(path)) => (Format::OpenSky, path, 0.0),
        _ => return Err(NotATrack::Format),
    };
    let mut fixes = Fixes::default();
    for point in &points {
        fixes.add(match format {
            Format::Readsb => readsb(start, point),
            _ => opensky(point),
        })?;
    }
    Ok((format, fixes))
}

/// `[seconds after the timestamp, latitude, longitude, altitude in feet or "ground" or null, speed, track, flags]`.
fn readsb(start: f64, point: &[Value]) -> Option<Fix> {
    let flags = point.get(6).and_then(Value::as_u64).unwrap_or_default();
    if flags & STALE != 0 {
        return None;
    }
    let altitude = point.get(3);
    let ground = altitude.and_then(Value::as_str) == Some("ground");
    Some(Fix {
        wall_us: seconds(start + point.first()?.as_f64()?)?,
        latitude: point.get(1)?.as_f64()?,
        longitude: point.get(2)?.as_f64()?,
        altitude_ft: altitude.and_then(Value::as_f64),
        ground,
        new_leg: flags & NEW_LEG != 0,
    })
}

/// `[seconds since 1970, latitude, longitude, barometric altitude in metres, track, on the ground]`.
fn opensky(point: &[Value]) -> Option<Fix> {
    Some(Fix {
        wall_us: seconds(point.first()?.as_f64()?)?,
        latitude: point.get(1)?.as_f64()?,
        longitude: point.get(2)?.as_f64()?,
        altitude_ft: point.get(3).and_then(Value::as_f64).map(|metres| metres * FEET),
        ground: point.get(5).and_then(Value::as_bool).unwrap_or_default(),
        new_leg: false,
    })
}
