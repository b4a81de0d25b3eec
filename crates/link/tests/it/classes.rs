//! Class limits outlive sessions.

use std::time::Duration;

use super::common::{self, Pair, fetch};
use bentpipe_link::{Class, ClassSettings, Core, PerClass, Settings};
use bentpipe_units::BitRate;

const OBJECT_BYTES: usize = 100_000;

/// Ceiling of best effort, 64 kbit/s: an object takes twelve and a half seconds.
fn ceiling() -> PerClass<ClassSettings> {
    let mut classes = Settings::default().classes;
    classes[Class::BestEffort].limits.ceil = Some(BitRate::from_bps(64_000));
    classes
}

/// Bytes within the token bucket's burst do not wait.
fn held_back() -> Duration {
    Duration::from_secs(10)
}

#[test]
fn a_returning_aircraft_keeps_its_class_limits() {
    // Set without a session, with one, and for an unknown aircraft.
    for before_the_first in [true, false] {
        let mut pair = Pair::new(5, 0.0);
        let key = pair.secrets.0.public();
        let stranger = pair.secrets.1.public();
        pair.hub.set_classes(&stranger, ceiling(), pair.now).expect("it is nobody's");
        if before_the_first {
            pair.hub.set_classes(&key, ceiling(), pair.now).expect("such classes can be");
            pair.connect();
        } else {
            pair.connect();
            assert!(fetch(&mut pair, OBJECT_BYTES) < Duration::from_secs(5));
            pair.hub.set_classes(&key, ceiling(), pair.now).expect("such classes can be");
        }
        assert!(fetch(&mut pair, OBJECT_BYTES) > held_back());
        let old = pair.hub.sessions().map(|(id, ..)| id).max();
        pair.restart_air();
        pair.run_until("another session", Duration::from_secs(120), |pair| {
            pair.air.current().is_some() && pair.hub.sessions().all(|(id, ..)| Some(id) > old)
        });
        assert!(fetch(&mut pair, OBJECT_BYTES) > held_back(), "in the new session");
        pair.hub.set_classes(&key, Settings::default().classes, pair.now).expect("as at first");
        assert!(fetch(&mut pair, OBJECT_BYTES) < Duration::from_secs(5));
    }
}

#[test]
fn an_air_keeps_its_class_limits_after_a_reconnect() {
    let mut pair = Pair::new(6, 0.0);
    pair.air.set_classes(ceiling(), pair.now).expect("such classes can be");
    for round in 0..2 {
        pair.run_until("a session", Duration::from_secs(300), |pair| {
            pair.air.current().is_some() && pair.hub.sessions().count() == 1
        });
        let flow = pair.open(b"");
        let far = pair.accept();
        let (body, mut sent, mut got, began) =
            (common::bytes(OBJECT_BYTES), 0, Vec::new(), pair.now);
        pair.run_until("the object", Duration::from_secs(60), |pair| {
            common::write_all(&mut pair.air, flow, pair.now, &body, &mut sent);
            pair.flush();
            common::read_all(&mut pair.hub, far, pair.now, &mut got)
        });
        assert!(pair.now - began > held_back(), "session {round}");
        pair.restart_hub();
        pair.run_until("the old one's end", Duration::from_secs(300), |pair| {
            pair.air.session(flow.0).is_none()
        });
    }
}
