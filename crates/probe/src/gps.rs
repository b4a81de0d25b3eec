//! Positions of a GPS receiver, by gpsd's protocol (gpsd_json(5)).

use serde::{Deserialize, Serialize};

/// Request that keeps the receiver on. Reports are not sent by themselves.
pub const WATCH: &str = "?WATCH={\"enable\":true};\n";

/// Request for the newest reports.
pub const POLL: &str = "?POLL;\n";

/// Longest line that is read. gpsd's own limit is 10,240 bytes.
pub const MAX_LINE: usize = 16 * 1024;

/// A check of the position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpsCheck {
    /// The position.
    pub fix: Option<GpsFix>,
    /// The failure in OONI's manner, or `no_fix`.
    pub failure: Option<String>,
}

/// A position, by the receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpsFix {
    /// Time of the fix, UTC in the form of RFC 3339. It tells the error of the machine's clock.
    pub time: Option<String>,
    /// Latitude in degrees, north positive.
    pub latitude: f64,
    /// Longitude in degrees, east positive.
    pub longitude: f64,
    /// Altitude above mean sea level in metres.
    pub altitude_m: Option<f64>,
    /// Speed over ground in metres per second.
    pub speed_mps: Option<f64>,
    /// Estimated horizontal error in metres.
    pub error_m: Option<f64>,
}

/// The part of an answer to [`POLL`] that is used.
#[derive(Deserialize)]
struct Poll {
    class: String,
    #[serde(default)]
    tpv: Vec<Tpv>,
}

/// A report of time, position and velocity.
#[derive(Deserialize)]
struct Tpv {
    #[serde(default)]
    mode: u8,
    time: Option<String>,
    lat: Option<f64>,
    lon: Option<f64>,
    #[serde(rename = "altMSL")]
    alt_msl: Option<f64>,
    /// Altitude above mean sea level, of gpsd before 3.20.
    alt: Option<f64>,
    speed: Option<f64>,
    eph: Option<f64>,
}

/// Reads a line of gpsd: `None` if it does not answer [`POLL`], `Some(None)` if no receiver has a fix. Of several
/// receivers the best fix counts.
pub fn answer(line: &[u8]) -> Option<Option<GpsFix>> {
    let poll: Poll = serde_json::from_slice(line).ok()?;
    if poll.class != "POLL" {
        return None;
    }
    // 2 is a fix without altitude, 3 one with it.
    let fixes = poll.tpv.into_iter().filter(|tpv| tpv.mode >= 2);
    Some(
        fixes
            .filter_map(|tpv| Some((tpv.mode, fix(tpv)?)))
            .max_by_key(|(mode, _)| *mode)
            .map(|(_, fix)| fix),
    )
}

fn fix(tpv: Tpv) -> Option<GpsFix> {
    let (latitude, longitude) = (tpv.lat?, tpv.lon?);
    let possible = latitude.abs() <= 90.0 && longitude.abs() <= 180.0;
    possible.then(|| GpsFix {
        time: tpv.time.filter(|time| time.len() <= 40 && time.is_ascii()),
        latitude,
        longitude,
        altitude_m: tpv.alt_msl.or(tpv.alt),
        speed_mps: tpv.speed,
        error_m: tpv.eph,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_gpsd_3_22() {
        let line = br#"{"class":"POLL","time":"2026-11-28T00:33:23.299Z","active":1,"tpv":[{"class":"TPV",
            "device":"udp://127.0.0.1:29471","mode":3,"time":"2026-11-28T00:33:22.000Z","ept":0.005,
            "lat":47.450000000,"lon":8.550000000,"altHAE":10715.0000,"altMSL":10668.0000,"alt":10668.0000,
            "epv":34.500,"track":270.0000,"speed":231.500,"climb":0.000,"epc":69.00,"eph":17.100,"sep":34.200}],
            "gst":[{"class":"GST"}],"sky":[{"class":"SKY","nSat":0,"uSat":0}]}"#;
        let fix = answer(line).unwrap().unwrap();
        assert_eq!((fix.latitude, fix.longitude, fix.altitude_m), (47.45, 8.55, Some(10_668.0)));
        assert_eq!((fix.speed_mps, fix.error_m), (Some(231.5), Some(17.1)));
        assert_eq!(fix.time.as_deref(), Some("2026-11-28T00:33:22.000Z"));
    }

    #[test]
    fn a_receiver_without_a_fix_has_no_position() {
        let poll = |tpv: &str| answer(format!(r#"{{"class":"POLL","tpv":[{tpv}]}}"#).as_bytes());
        assert_eq!(poll(""), Some(None));
        assert_eq!(poll(r#"{"mode":1,"lat":1,"lon":2}"#), Some(None), "an old position");
        assert_eq!(poll(r#"{"mode":3,"lat":91,"lon":2}"#), Some(None));
        assert_eq!(poll(r#"{"mode":2}"#), Some(None));
        let two = poll(r#"{"mode":2,"lat":1,"lon":2},{"mode":3,"lat":3,"lon":4,"alt":5}"#);
        assert_eq!(two.unwrap().map(|fix| (fix.latitude, fix.altitude_m)), Some((3.0, Some(5.0))));
        for line in [r#"{"class":"TPV","mode":3,"lat":1,"lon":2}"#, "[]", "{}", ""] {
            assert_eq!(answer(line.as_bytes()), None, "{line}");
        }
    }
}
