use super::*;
use crate::clock::Moment;
use crate::dns::{DnsPair, Lookup, NameKind, ResolverKind, Response};
use crate::objects::{Fetch, ObjectKind, ObjectPair, Signs};
use crate::ping::{Outcome, Ping};
use crate::rate::{Direction, Limit, RateCheck};
use crate::record::{Measurement, Record, Session, SessionTarget};
use crate::target::{Method, Side};
use crate::trace::{Hop, Probe, ReplyKind, Trace, TraceEnd, TraceMethod};
use std::net::IpAddr;

const S: u64 = 1_000_000;
const FAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn record(boot_us: u64, measurement: Measurement) -> Record {
    Record {
        number: 1,
        began: Moment { boot_us, wall_us: boot_us as i64 },
        clock_age_s: -1,
        runtime_us: 0,
        quiet: false,
        activity: None,
        concurrent: Vec::new(),
        measurement,
    }
}

fn ping(k: u64) -> Measurement {
    let outcome = match k % 10 {
        0 => Outcome::Lost,
        _ => Outcome::Reply { rtt_us: 600_000 + 1000 * (k % 100), refused: false },
    };
    let target = "<b>one</b>".into();
    let (address, method) = (FAR, Method::Icmp);
    Measurement::Ping(Ping {
        target,
        address,
        method,
        sequence: 0,
        scout: false,
        start_error_us: 0,
        outcome,
    })
}

fn pair(first_us: u64, second_us: u64) -> Measurement {
    let lookup = |us| Lookup {
        rtt_us: Some(us),
        response: Some(Response {
            rcode: 0,
            answers: 1,
            ttl_s: None,
            truncated: false,
            authoritative: false,
        }),
        failure: None,
    };
    Measurement::Dns(DnsPair {
        name: "example.com".into(),
        kind: NameKind::Listed,
        resolver: IpAddr::from([10, 0, 0, 1]),
        resolver_kind: ResolverKind::Local,
        first: lookup(first_us),
        second: lookup(second_us),
    })
}

/// A flight of `pings` pings, with lookups and traceroutes.
fn flight(pings: u64) -> Analysis {
    let mut analysis = Analysis::default();
    let target = SessionTarget { name: "<b>one</b>".into(), address: FAR, side: Side::Far };
    analysis.begin(Session {
        id: "s".into(),
        began: Moment { boot_us: 0, wall_us: 0 },
        software_version: "0".into(),
        platform: "p".into(),
        targets: vec![target],
        name_list: "n".into(),
    });
    for k in 0..pings {
        analysis.add(&record(2 * k * S, ping(k)));
    }
    for (first, second) in [(2000, 2000), (700_000, 2000), (700_000, 2000), (700_000, 700_000)] {
        analysis.add(&record(0, pair(first, second)));
    }
    // One hit by time, one miss that its proxy admits, and one slow hit.
    for (us, x_cache) in
        [(2000, ""), (700_000, "MISS from 10.0.0.1"), (650_000, "HIT from 10.0.0.1")]
    {
        let signs = Signs::of(|name| match name {
            "via" => vec!["1.1 <b>cdn</b>, 1.1 10.0.0.1 (squid)"],
            "x-cache" => vec!["HIT", x_cache],
            _ => Vec::new(),
        });
        let first = Fetch {
            first_byte_us: Some(us),
            complete_us: Some(us),
            status: Some(200),
            bytes: 1000,
            signs,
            ..Fetch::default()
        };
        let (url, kind) = ("http://example.com/".into(), ObjectKind::Listed);
        let pair = ObjectPair { url, kind, first, second: None };
        analysis.add(&record(0, Measurement::Objects(Box::new(pair))));
    }
    for rate_bps in [90_000, 100_400, 110_000] {
        let limit = Some(Limit::Policer { rate_bps, burst_bytes: 6000 });
        let (server, direction, trains, failure) = (None, Direction::Down, Vec::new(), None);
        let check = RateCheck { server, direction, limit, trains, failure };
        analysis.add(&record(0, Measurement::Rate(Box::new(check))));
    }
    let reply = Probe::Reply {
        from: IpAddr::from([10, 0, 0, 9]),
        rtt_us: 1500,
        kind: ReplyKind::TimeExceeded,
    };
    let hops = vec![Hop { ttl: 1, probes: vec![reply] }];
    let (method, end) = (TraceMethod::Udp, TraceEnd::Died { after_ttl: 1 });
    let trace = Trace { target: "t".into(), address: FAR, method, flow: 1, hops, end };
    analysis.add(&record(0, Measurement::Trace(trace)));
    analysis
}

#[test]
fn the_page_has_every_part_and_stands_alone() {
    let page = page(&flight(1000));
    for part in [
        ">geostationary orbit<",
        "figure 2",
        "figure 3",
        "figure 4",
        "figure 10",
        "figure 9",
        "figure 11",
        ">hit in flight<",
        ">miss in flight<",
        ">policer<",
        ">100 k<",
        "Hits that took more than 100 ms: 50.0 % of 2",
        "10.0.0.1 (3 responses)",
        "10.0.0.9",
        "1 died in the aircraft",
        "1 hops, 1 of 1",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    // Of four pairs: one both, two miss and hit, one double miss.
    assert!(page.contains("25.0 %") && page.contains("50.0 %"));
    assert!(page.contains("10.0 %"), "one ping of ten is lost");
    for foreign in ["<script", "src=", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign} would load something or run");
    }
    assert!(!page.contains("<b>one"), "names are escaped");
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("width=device-width"));
}

#[test]
fn a_track_makes_maps_and_phases() {
    use std::fmt::Write;
    // 1970 is not a plausible time of a track, so the flight's clock is set to 2026.
    let start_s = 1_795_756_800u64;
    let mut analysis = Analysis::default();
    let target = SessionTarget { name: "one".into(), address: FAR, side: Side::Far };
    let began = Moment { boot_us: 0, wall_us: (start_s * S) as i64 };
    let (id, software_version) = ("s".into(), "0".into());
    let (platform, name_list) = ("p".into(), "n".into());
    analysis.begin(Session {
        id,
        began,
        software_version,
        platform,
        targets: vec![target],
        name_list,
    });
    for k in 0..3000 {
        let began = Moment { boot_us: 2 * k * S, wall_us: ((start_s + 2 * k) * S) as i64 };
        analysis.add(&Record { began, ..record(0, ping(k)) });
    }
    let mut rows = String::from("timestamp,lat,lon,altitude_ft\n");
    for minute in (0..=100).filter(|minute| !(30..=60).contains(minute)) {
        let (time, longitude) = (start_s + 60 * minute, 170.0 + minute as f64 * 0.2);
        let feet = (minute * 2000).min(37_000);
        writeln!(rows, "{time},52,{longitude},{feet}").unwrap();
    }
    let track = crate::track::Track::parse("<i>mine</i>.csv", &rows).unwrap();
    analysis.tracks.push(track.clone());
    let page = page(&analysis);
    for part in
        ["Along the track", "figure 6", ">climb<", ">cruise<", "Altitude while", "hollow", "180°"]
    {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(!page.contains("<i>mine") && !page.contains("NaN"));
    let dots = page.matches("<circle").count();
    assert_eq!(dots, 2 * 60, "each of 60 windows of 100 s is on both maps");
    let mut late = track;
    late.fixes.iter_mut().for_each(|fix| fix.wall_us += 86_400_000_000);
    analysis.tracks = vec![late];
    assert!(super::page(&analysis).contains("No ping was sent at a time of this track"));
}

#[test]
fn twelve_hours_stay_below_the_bound_of_a_page() {
    let size = page(&flight(21_600)).len();
    assert!(size < 3_000_000, "{size} bytes");
}

#[test]
fn an_empty_store_says_so() {
    let page = page(&Analysis::default());
    assert!(page.contains("no sessions") && !page.contains("NaN"));
}
