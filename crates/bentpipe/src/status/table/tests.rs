use bentpipe_gateway::experience::{Group, Waits};
use bentpipe_gateway::status::{EgressEntry, ExperienceEntry, LinkEntry, PassengerEntry, SCHEMA};
use bentpipe_link::Class;

use super::*;

fn moved(sent_bytes: u64) -> Moved {
    Moved {
        sent_bytes,
        sent_packets: 9,
        delay_mean_us: 1300,
        delay_max_us: 25_000,
        ..Moved::default()
    }
}

fn class(name: &str, sent_bytes: u64, open_flows: usize) -> ClassEntry {
    ClassEntry {
        class: name.into(),
        open_flows,
        queued_bytes: 0,
        overhead_bytes: 0,
        total: moved(sent_bytes),
        total_delay_p95_us: 0,
        total_delay_histogram: vec![0; 16],
        recent: moved(sent_bytes),
        recent_delay_p95_us: 0,
    }
}

fn flow(passenger: u32, target: &str) -> FlowEntry {
    FlowEntry {
        flow: 1,
        passenger,
        name: None,
        class: "best-effort".into(),
        protocol: "tcp".into(),
        target: target.into(),
        total: moved(100),
        recent: moved(100),
    }
}

fn rate(rate_bps: Option<u64>, source: &str, ceiling_bps: Option<u64>) -> RateEntry {
    RateEntry { rate_bps, source: source.into(), ceiling_bps }
}

fn document() -> Document {
    let seat = PassengerEntry {
        passenger: 3,
        name: Some("10.0.0.7".into()),
        class: "best-effort".into(),
        open_flows: 2,
        total: moved(1_000_000),
        recent: moved(1_000_000),
    };
    let mut unused = class("operator", 0, 0);
    (unused.total, unused.recent) = (Moved::default(), Moved::default());
    let session = Session {
        transport: "link".into(),
        aircraft: Some("D-ABCD".into()),
        age_us: 7_384_000_000,
        interval_us: 5_000_000,
        keys_overdue: false,
        sending: Some(rate(Some(18_900_000), "learned", Some(20_000_000))),
        receiving: Some(rate(None, "arrivals", None)),
        link: Some(LinkEntry {
            round_trip_us: 761_000,
            silence_us: 40_000,
            queue_us: 12_000,
            sent_bytes: 1_000,
            repair_bytes: 42,
            judged_packets: 1_000,
            lost_packets: 61,
            ..LinkEntry::default()
        }),
        paths: Vec::new(),
        classes: vec![unused, class("best-effort", 1_250_000, 12)],
        passengers: vec![seat],
        all_passengers: 3,
        flows: vec![flow(3, "origin.example:443"), flow(9, &"a".repeat(200))],
        all_flows: 12,
    };
    Document {
        schema: SCHEMA,
        gateway: Gateway::Ground,
        version: "0.1.0".into(),
        written_unix_ms: 0,
        interval_ms: 5000,
        uptime_us: 90_000_000,
        detail: Detail::Flows,
        counters: (0..12).map(|n| (format!("counter_{n}"), n * 1_000_000)).collect(),
        experience: Vec::new(),
        sessions: vec![session],
        grounds: Vec::new(),
        egresses: Vec::new(),
    }
}

#[test]
fn egresses_have_a_table() {
    let up = EgressEntry {
        name: "lon.example.net:4433".into(),
        is_proxy: false,
        is_up: true,
        round_trip_us: Some(62_000),
        flows_now: 12,
    };
    let down = EgressEntry { is_up: false, round_trip_us: None, flows_now: 0, ..up.clone() };
    let text = of(&Document { egresses: vec![up, down], ..document() }, Duration::ZERO);
    assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = text.lines().map(words).collect();
    let at = lines.iter().position(|it| it == "egresses is up round trip flows").unwrap();
    assert_eq!(lines[at + 1], "lon.example.net:4433 yes 62 ms 12");
    assert_eq!(lines[at + 2], "lon.example.net:4433 no – 0");
}

#[test]
fn other_grounds_have_a_table() {
    let near = GroundEntry {
        name: "lon.example.net:4433".into(),
        public_key: "k".repeat(44),
        is_connected: true,
        through: None,
        age_us: Some(12_000_000),
        is_hub: false,
        is_egress: true,
        is_leaving: false,
        load_permille: Some(254),
    };
    let far = GroundEntry {
        name: near.public_key.clone(),
        is_connected: false,
        through: Some("n".repeat(44)),
        age_us: Some(123_000_000),
        is_hub: true,
        ..near.clone()
    };
    let dead =
        GroundEntry { is_connected: false, age_us: None, load_permille: None, ..near.clone() };
    let text = of(&Document { grounds: vec![near, far, dead], ..document() }, Duration::ZERO);
    assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = text.lines().map(words).collect();
    let at = lines.iter().position(|it| it.starts_with("other grounds of the fleet")).unwrap();
    assert_eq!(lines[at + 1], "lon.example.net:4433 egress 12 s yes 25 %");
    assert_eq!(lines[at + 2], format!("{}… hub+egress 2 min 3 s relayed 25 %", "k".repeat(29)));
    assert_eq!(lines[at + 3], "lon.example.net:4433 egress – no –");
}

#[test]
fn classes_hold_passengers_and_those_their_flows() {
    let text = of(&document(), Duration::from_millis(1200));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{text}");
    assert_eq!(lines[0], "ground gateway 0.1.0, up 1 min 30 s; written 1 s ago");
    assert_eq!(lines[2], "link with D-ABCD for 2 h 3 min; rates, waits and drops of the last 5 s");
    let link = "link: heard 40 ms ago, 761 ms round trip, 12 ms queue, 6.1 % lost, 4.2 % repairs";
    assert_eq!(lines[3], link);
    let lines = [&lines[..3], &lines[4..]].concat();
    assert_eq!(lines[3], "sends at 18.9 Mbit/s (learned, at most 20 Mbit/s)");
    assert_eq!(lines[4], "receives at an unknown rate (arrivals)");
    let of = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(of(lines[6]), "best-effort 2.00 M – 1.3 ms 25 ms 0 12");
    assert_eq!(of(lines[7]), "10.0.0.7 1.60 M – 1.3 ms 25 ms 0 2");
    assert_eq!(of(lines[8]), "tcp origin.example:443 160 – 1.3 ms 25 ms 0");
    assert!(lines[9].starts_with("  … tcp aaaa") && lines[9].contains("a… "), "{}", lines[9]);
    assert_eq!(lines[10], "2 more passengers, counted in each class");
    assert_eq!(lines[11], "10 more flows");
    assert!(!text.contains("operator") && !text.contains("counter_0 "), "{text}");
    assert!(text.contains("counter_11 11000000"), "{text}");
}

#[test]
fn waiting_times_are_shown_by_class_and_rule() {
    let mut document = document();
    let mut waits = Waits { failed: 1, ..Waits::default() };
    waits.first_byte.counts[4] = 9;
    waits.completion.counts[7] = 9;
    let group = Group { class: Class::Assured, rule: "video".into() };
    document.experience = vec![ExperienceEntry::of(&(group, waits))];
    let text = of(&document, Duration::ZERO);
    let line = text.lines().find(|line| line.starts_with("assured, video")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[2..], ["1", "s", "3", "s", "0.45", "1", "10"], "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
}

#[test]
fn an_old_file_and_strange_names_are_told() {
    let mut document = document();
    document.sessions[0].passengers[0].name = Some("\x1b[2Jseat".into());
    document.sessions[0].interval_us = 0;
    let text = of(&document, Duration::from_secs(7300));
    assert!(text.contains("written 2 h 1 min ago\nno news for 2 h 1 min: "), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert!(of(&document, Duration::from_secs(11)).contains("is the gateway running?"));
    assert!(!of(&document, Duration::from_millis(10_999)).contains("no news"));
    document.interval_ms = 0;
    assert!(!of(&document, Duration::from_secs(59)).contains("no news"));
    document.sessions.clear();
    assert!(of(&document, Duration::ZERO).contains("no session of the radio transport"));
}

#[test]
fn overdue_keys_are_shown() {
    let mut document = document();
    assert!(!of(&document, Duration::ZERO).contains("keys overdue"));
    document.sessions[0].keys_overdue = true;
    assert!(of(&document, Duration::ZERO).contains("\nkeys overdue: "));
}
