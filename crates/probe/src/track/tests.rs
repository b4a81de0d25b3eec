use proptest::prelude::*;

use super::position::MARKED_US;
use super::*;

const MINUTE_US: i64 = 60_000_000;

fn parse(text: &str) -> Track {
    Track::parse("t", text).unwrap_or_else(|error| panic!("{error}"))
}

/// Times, positions and altitudes of a track in whole feet.
fn seen(track: &Track) -> Vec<(i64, f64, f64, Option<i64>)> {
    let altitude = |fix: &Fix| fix.altitude_ft.map(|feet| feet.round() as i64);
    track
        .fixes
        .iter()
        .map(|fix| (fix.wall_us / 1_000_000, fix.latitude, fix.longitude, altitude(fix)))
        .collect()
}

#[test]
fn the_same_flight_in_all_formats() {
    // 2026-11-27 05:20:16 UTC.
    let t = 1_795_756_816;
    let expected = [(t, 40.5, -73.25, Some(1000)), (t + 60, 41.0, -72.0, Some(35_000))];
    let csv = format!(
        "Timestamp,UTC,Callsign,Position,Altitude,Speed,Direction\n\
         {t},2026-11-27T05:20:16Z,BP1,\"40.5,-73.25\",1000,200,90\n\
         {},2026-11-27T05:21:16Z,BP1,\"41.0,-72.0\",35000,450,90\n",
        t + 60
    );
    let metres = "utc,lat,lon,altitude_m\n2026-11-27 05:20:16,40.5,-73.25,304.8\n2026-11-27 05:21:16,41,-72,10668\n";
    let gpx = r#"<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>
        <trkpt lat="40.5" lon="-73.25"><ele>304.8</ele><time>2026-11-27T05:20:16Z</time></trkpt>
        <trkpt lat="41.0" lon="-72.0"><ele>10668</ele><time>2026-11-27T06:21:16+01:00</time></trkpt>
        </trkseg></trk></gpx>"#;
    let kml = r#"<kml xmlns:gx="http://www.google.com/kml/ext/2.2"><Document><Placemark><gx:Track>
        <when>2026-11-27T05:20:16Z</when><when>2026-11-27T05:21:16Z</when>
        <gx:coord>-73.25 40.5 304.8</gx:coord><gx:coord>-72 41 10668</gx:coord>
        </gx:Track></Placemark></Document></kml>"#;
    let placemarks = r#"<kml><Document>
        <Placemark><LineString><coordinates>-73.25,40.5,0 -72,41,0</coordinates></LineString></Placemark>
        <Placemark><TimeStamp><when>2026-11-27T05:20:16+00:00</when></TimeStamp>
        <Point><coordinates>-73.25,40.5,304.8</coordinates></Point></Placemark>
        <Placemark><TimeStamp><when>2026-11-27T05:21:16+00:00</when></TimeStamp>
        <Point><coordinates>-72,41,10668</coordinates></Point></Placemark></Document></kml>"#;
    let readsb = format!(
        r#"{{"icao":"a1b2c3","timestamp":{t}.0,"trace":[
        [0.0,40.5,-73.25,1000,200.1,90,2,1500,null,"adsb_icao"],[30,40.6,-73.0,null,0,0,1],[60,41.0,-72.0,35000,450,90,0]]}}"#
    );
    let opensky = format!(
        r#"{{"icao24":"a1b2c3","startTime":{t},"endTime":{},"callsign":"BP1","path":[
        [{t},40.5,-73.25,304.8,90,false],[{},41.0,-72.0,10668,90,false]]}}"#,
        t + 60,
        t + 60
    );
    let cases = [
        (csv.as_str(), Format::Csv),
        (metres, Format::Csv),
        (gpx, Format::Gpx),
        (kml, Format::Kml),
        (placemarks, Format::Kml),
        (&readsb, Format::Readsb),
        (&opensky, Format::OpenSky),
    ];
    for (text, format) in cases {
        let track = parse(text);
        assert_eq!(track.format, format);
        assert_eq!(seen(&track), expected, "{text}");
    }
    assert_eq!(parse(&readsb).left_out, 1, "the stale point");
}

#[test]
fn faults_say_what_to_do() {
    let fault = |text: &str| Track::parse("t", text).unwrap_err().to_string();
    assert!(
        fault("time,lat,lon\n2026-11-27 05:20:16,1,1\n").contains("line 2: the time"),
        "no zone"
    );
    assert!(fault("when,where\n1,2\n").contains("no column for the time"));
    assert!(fault("utc,lat\n1,2\n").contains("no column for the position"));
    assert!(fault("<html></html>").contains("format is not known"));
    assert!(fault("{\"a\":1}").contains("format is not known"));
    assert!(fault("{\"path\":").contains("not valid JSON"));
    assert!(fault("<gpx><trkpt lat=\"1\"></gpx>").contains("not valid XML"));
    let no_times =
        "<kml><Placemark><Point><coordinates>1,2,3</coordinates></Point></Placemark></kml>";
    assert!(fault(no_times).contains("fewer than two positions"));
    assert!(fault("").contains("fewer than two positions"));
    let rows = "1795756816,1,1\n".repeat(MAX_FIXES + 1);
    assert!(fault(&format!("timestamp,lat,lon\n{rows}")).contains("cut it to the flight"));
}

/// A track of points (minute, latitude, longitude, altitude).
fn track(points: &[(i64, f64, f64, f64)]) -> Track {
    let rows: String = points
        .iter()
        .map(|(minute, latitude, longitude, feet)| {
            format!("{},{latitude},{longitude},{feet}\n", 1_795_756_800 + 60 * minute)
        })
        .collect();
    parse(&format!("timestamp,lat,lon,altitude_ft\n{rows}"))
}

fn at(track: &Track, minute: f64) -> Option<Position> {
    track.position(track.fixes[0].wall_us + (minute * MINUTE_US as f64) as i64)
}

/// Kilometres between two positions.
fn distance_km(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (p, q) = (a.0.to_radians(), b.0.to_radians());
    let haversine = ((q - p) / 2.0).sin().powi(2)
        + p.cos() * q.cos() * ((b.1 - a.1).to_radians() / 2.0).sin().powi(2);
    2.0 * 6371.0 * haversine.sqrt().asin()
}

#[test]
fn the_antimeridian_is_crossed_the_short_way() {
    let track = track(&[(0, 50.0, 179.0, 35_000.0), (10, 50.0, -179.0, 35_000.0)]);
    let middle = at(&track, 5.0).unwrap();
    assert!(middle.longitude.abs() > 179.99, "{middle:?}");
    assert!(middle.interpolated, "10 minutes between fixes");
    let quarter = at(&track, 2.5).unwrap();
    assert!((quarter.longitude - 179.5).abs() < 0.01, "{quarter:?}");
}

#[test]
fn an_ocean_is_crossed_on_a_great_circle() {
    let (from, to) = ((40.6, -73.8), (51.5, -0.5));
    let track = track(&[(0, from.0, from.1, 37_000.0), (360, to.0, to.1, 37_000.0)]);
    let middle = at(&track, 180.0).unwrap();
    let place = (middle.latitude, middle.longitude);
    let (a, b, whole) = (distance_km(from, place), distance_km(place, to), distance_km(from, to));
    assert!((a - b).abs() < 1.0 && (a + b - whole).abs() < 1.0, "{a} + {b} = {whole}");
    assert!(middle.latitude > 51.9, "north of both ends: {middle:?}");
    assert!(middle.interpolated && middle.phase == Some(Phase::Cruise));
}

#[test]
fn legs_and_long_gaps_are_not_bridged() {
    let mut track = track(&[
        (0, 1.0, 1.0, 0.0),
        (1, 1.0, 1.1, 0.0),
        (600, 2.0, 2.0, 0.0),
        (602, 2.0, 2.1, 0.0),
    ]);
    assert!(at(&track, -0.1).is_none() && at(&track, 602.1).is_none());
    assert!(at(&track, 300.0).is_none(), "ten hours");
    assert!(at(&track, 601.0).is_some());
    track.fixes[3].new_leg = true;
    assert!(at(&track, 601.0).is_none(), "another flight");
    assert!(at(&track, 602.0).is_some());
}

#[test]
fn phases_of_a_flight() {
    let mut points = Vec::new();
    for minute in 0..=120 {
        let feet = match minute {
            0..=9 => 0.0,
            10..=34 => 1400.0 * f64::from(minute - 10),
            35..=89 => 35_000.0,
            90..=109 => 35_000.0 - 1750.0 * f64::from(minute - 90),
            _ => 0.0,
        };
        points.push((i64::from(minute), 40.0, -80.0 + f64::from(minute) * 0.1, feet));
    }
    let mut track = track(&points);
    track
        .fixes
        .iter_mut()
        .filter(|fix| fix.altitude_ft == Some(0.0))
        .for_each(|fix| fix.ground = true);
    let phase = |minute: f64| at(&track, minute).unwrap().phase.unwrap();
    let seen = [5.0, 20.0, 60.0, 100.0, 115.0].map(phase);
    assert_eq!(seen, [Phase::Ground, Phase::Climb, Phase::Cruise, Phase::Descent, Phase::Ground]);
}

proptest! {
    /// A great circle flown at a constant speed with fixes at most 60 s apart: positions between are right.
    #[test]
    fn positions_are_within_a_kilometre(
        start in (-80.0..80.0f64, -180.0..180.0f64), end in (-80.0..80.0f64, -180.0..180.0f64), at_s in 0.0..600.0f64,
    ) {
        // 0.15 degrees a minute are 1,000 km/h.
        let truth = Track {
            name: String::new(), format: Format::Csv, left_out: 0,
            fixes: [(0, start), (1_000_000, end)].map(|(wall_us, (latitude, longitude))| Fix {
                wall_us, latitude, longitude, altitude_ft: None, ground: false, new_leg: false,
            }).into(),
        };
        let whole_km = distance_km(start, end);
        prop_assume!((200.0..15_000.0).contains(&whole_km));
        let place = |s: f64| {
            let share = (s / 3600.0 * 1000.0 / whole_km).min(1.0);
            let found = truth.position((share * 1e6) as i64).unwrap();
            (found.latitude, found.longitude)
        };
        let fixes = (0..=10).map(|k| (k, place(60.0 * k as f64).0, place(60.0 * k as f64).1, 0.0));
        let track = track(&fixes.collect::<Vec<_>>());
        let found = at(&track, at_s / 60.0).unwrap();
        let error = distance_km(place(at_s), (found.latitude, found.longitude));
        prop_assert!(error < 1.0, "{error} km");
        prop_assert!(!found.interpolated);
    }

    /// No file panics, and no position is impossible.
    #[test]
    fn arbitrary_files(head in prop::sample::select(vec!["", "<gpx>", "<kml><gx:Track>", "{\"path\":[", "timestamp,lat,lon\n"]),
                       text in "[ -~\\n]{0,200}", minute in 0..100i64) {
        if let Ok(track) = Track::parse("t", &format!("{head}{text}")) {
            let start = track.fixes[0].wall_us;
            if let Some(position) = track.position(start + minute * MARKED_US / 5) {
                prop_assert!(position.latitude.abs() <= 90.0001 && position.longitude.abs() <= 180.0001);
            }
        }
    }
}

#[test]
fn positions_of_a_receiver_are_a_track() {
    use crate::gps::GpsFix;
    let fix = |longitude| GpsFix {
        time: None,
        latitude: 47.0,
        longitude,
        altitude_m: Some(304.8),
        speed_mps: None,
        error_m: None,
    };
    let fixes = [fix(8.0), fix(9.0), fix(179.0)];
    let times = [0, 60_000_000, 3_600_000_000];
    let positions = times.into_iter().zip(&fixes).zip([true, false, true]);
    let track = Track::of_receiver(positions.map(|((at, fix), first)| (at, fix, first))).unwrap();
    assert_eq!(track.fixes.len(), 3);
    let middle = track.position(30_000_000).unwrap();
    assert!((middle.longitude - 8.5).abs() < 1e-6, "{middle:?}");
    assert!(middle.altitude_ft.is_some_and(|feet| (feet - 1000.0).abs() < 1e-6));
    assert_eq!(track.position(600_000_000), None, "between two sessions");
    assert_eq!(Track::of_receiver([(0, &fixes[0], true)].into_iter()), None, "one is not a track");
}
