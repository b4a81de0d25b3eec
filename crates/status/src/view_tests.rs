use bentpipe_flow::Traffic;
use serde_json::Value;

use super::*;
use crate::document::{LinkEntry, PassengerEntry};
use crate::nameless;

/// A name that would do harm if it were read as HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

fn session(aircraft: &str, sent_bytes: u64) -> Session {
    let mut session = Session::of(Traffic::default(), Some(aircraft), &nameless());
    session.interval_us = 1_000_000;
    session.classes[3].recent.sent_bytes = sent_bytes;
    session.link = Some(LinkEntry { round_trip_us: 600_000, ..LinkEntry::default() });
    session
}

fn passenger(number: u32, name: &str, bytes: u64) -> PassengerEntry {
    let total = Moved { sent_bytes: bytes, ..Moved::default() };
    PassengerEntry {
        passenger: number,
        name: Some(name.to_owned()),
        class: "best-effort".to_owned(),
        open_flows: 1,
        total,
        recent: total,
    }
}

fn document(gateway: Gateway, sessions: Vec<Session>) -> Document {
    Document { written_unix_ms: 1, interval_ms: 1_000, sessions, ..Document::empty(gateway) }
}

fn json(document: &Document) -> Value {
    let mut history = History::default();
    history.note(document);
    serde_json::from_slice(&View::of(document, &history).to_json()).unwrap()
}

#[test]
fn the_fleet_is_bounded_and_those_in_trouble_come_first() {
    let mut sessions: Vec<_> =
        (0..3 * MAX_FLEET as u64).map(|number| session(&format!("D-{number}"), number)).collect();
    sessions[7].link.as_mut().unwrap().outage_us = 65_000_000;
    let json = json(&document(Gateway::Ground, sessions));
    let fleet = json["fleet"].as_array().unwrap();
    assert_eq!((fleet.len(), json["all_sessions"].as_u64()), (MAX_FLEET, Some(3_000)));
    assert_eq!(json["silent_sessions"], 1);
    assert_eq!((&fleet[0]["aircraft"], &fleet[1]["aircraft"]), (&"D-7".into(), &"D-2999".into()));
    assert_eq!(fleet[1]["sent_bps"], 2_999 * 8);
    assert_eq!(json["alarms"][0], "D-7: nothing heard for 65 s.");
    assert!(json["link"].is_null());
    assert_eq!(json["classes"][3]["class"], "best-effort");
}

#[test]
fn all_aircraft_in_trouble_are_counted_and_some_are_named() {
    let mut sessions: Vec<_> = (0..60).map(|number| session(&format!("D-{number}"), 1)).collect();
    sessions.iter_mut().for_each(|one| one.link.as_mut().unwrap().outage_us = 1);
    let json = json(&document(Gateway::Ground, sessions));
    let named = json["alarms"].as_array().unwrap().len();
    assert_eq!((named, json["all_alarms"].as_u64()), (MAX_ALARMS, Some(60)));
}

#[test]
fn passengers_are_off_by_default_and_otherwise_shortened_and_bounded() {
    let mut one = session("D-ABCD", 1);
    one.passengers = (0..100).map(|it| passenger(it, "02:00:5e:10:20:30", it.into())).collect();
    one.passengers.push(passenger(100, HOSTILE, 1_000));
    let mut document = document(Gateway::Air, vec![one]);
    assert!(json(&document)["users"].is_null());
    document.detail = Detail::Passengers;
    let json = json(&document);
    let users = json["users"].as_array().unwrap();
    assert_eq!(users.len(), MAX_USERS);
    // As it is: the page shows text.
    assert_eq!(users[0]["name"], "#100 <img src=x one…");
    assert_eq!(users[1]["name"], "#99 02:00:5e…");
    assert!(!json.to_string().contains("10:20:30"));
}

#[test]
fn caches_say_what_they_saved() {
    let mut document = document(Gateway::Air, vec![session("", 1)]);
    assert_eq!(json(&document)["caches"].as_array().unwrap().len(), 0);
    let counters = [("dns_queries", 10), ("dns_hits", 6), ("dns_stale", 1), ("dns_bytes_saved", 9)];
    document.counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
    document.counters.insert("dns_round_trips_saved".to_owned(), 7);
    let cache = &json(&document)["caches"][0];
    assert_eq!((&cache["hits"], &cache["requests"]), (&7.into(), &10.into()));
    assert_eq!((&cache["saved_bytes"], &cache["saved_us"]), (&9.into(), &4_200_000.into()));
    assert_eq!(json(&document)["link"]["round_trip_us"], 600_000);
}

#[test]
fn an_air_without_a_session_is_an_alarm() {
    let json = json(&document(Gateway::Air, Vec::new()));
    assert_eq!(json["alarms"][0], "There is no session with the ground.");
    assert!(json["link"].is_null());
    assert_eq!(json["history"][0]["out_us"], 1_000_000);
}
