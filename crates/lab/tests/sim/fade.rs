//! Rates that change during a run, in exact virtual time: reported by a source, discovered without
//! one, and shared among several aircraft.

mod rain;
mod steady;

use std::time::Duration;

use bentpipe_channel::LinkSpec;
use bentpipe_lab::sim::fleet::{Craft, Fleet};
use bentpipe_link::{LeaseMode, Settings, Share};
use bentpipe_units::BitRate;

use rain::{Faded, RTT, Teller};

fn runs(teller: Teller) -> impl Iterator<Item = (&'static str, Faded)> {
    ["0 %", "6 %"].into_iter().map(move |loss| (loss, rain::run(teller, loss, 1)))
}

#[test]
fn without_a_report_a_fade_drains_in_8_round_trips_and_recovers_in_10() {
    for (loss, faded) in runs(Teller::Nobody) {
        assert_eq!(faded.trips[0], 0, "{loss}: {faded:?}");
        assert!(faded.queue_gone <= RTT * 8, "{loss}: {faded:?}");
        assert!(faded.most_queue_later <= RTT / 4, "{loss}: {faded:?}");
        assert!(faded.used_in_rain >= 0.8, "{loss}: {faded:?}");
        assert!(faded.used_again.is_some_and(|after| after <= RTT * 10), "{loss}: {faded:?}");
        assert!(faded.used_later >= 0.9, "{loss}: {faded:?}");
    }
}

#[test]
fn a_modem_report_takes_effect_at_once() {
    for (loss, faded) in runs(Teller::Modem) {
        assert!(faded.followed <= RTT * 3, "{loss}: {faded:?}");
        assert_eq!(faded.trips, [0; 3], "{loss}: {faded:?}");
        assert!(faded.used_in_rain >= 0.95, "{loss}: {faded:?}");
        assert!(faded.used_again.is_some_and(|after| after <= RTT * 3), "{loss}: {faded:?}");
    }
}

#[test]
fn a_grant_takes_effect_within_3_round_trips() {
    for aircraft in [1, 3] {
        for (loss, faded) in runs(Teller::Grant { aircraft }) {
            assert!(faded.followed <= RTT * 3, "{aircraft} at {loss}: {faded:?}");
            assert!(faded.queue_gone <= RTT * 8, "{aircraft} at {loss}: {faded:?}");
            let again = faded.used_again;
            assert!(again.is_some_and(|after| after <= RTT * 3), "{aircraft} at {loss}: {faded:?}");
            assert!(faded.used_later >= 0.9, "{aircraft} at {loss}: {faded:?}");
        }
    }
}

#[test]
fn bursts_at_a_constant_rate_do_not_trip_the_breaker() {
    for (profile, burst) in steady::CELLS {
        let span = steady::span(profile, burst, Duration::from_secs(600), 1);
        assert_eq!(span.trips, 0, "{profile}: {span:?}");
        assert!(span.used > 0.98, "{profile}: {span:?}");
    }
}

#[test]
fn a_beam_is_shared_by_weight_and_what_one_leaves_the_others_take() {
    let rate = BitRate::from_bps(4_000_000);
    let way = "rate = \"4 Mbit/s\"\ndelay = \"300 ms\"\nloss = \"3 %\"\n";
    let text = format!("[forward]\n{way}[return]\n{way}");
    let written: bentpipe_channel::RawLink = toml::from_str(&text).unwrap();
    let beam: LinkSpec = written.check(|_| Err("no traces".to_owned())).unwrap();
    let craft = |weight| Craft {
        air: Settings { rate, lease: LeaseMode::Granted, ..Settings::default() },
        hub: Settings { rate, share: Share { weight, ..Share::default() }, ..Settings::default() },
    };
    let mut fleet = Fleet::new(&beam, &[craft(1), craft(3)], 5);
    fleet.hub.set_beam(Some(rate), Some(rate), Duration::ZERO).unwrap();
    fleet.fill(0, true, true);
    fleet.fill(1, true, true);
    let seconds = |seconds| Duration::from_secs(seconds);
    fleet.run(seconds(20), |_| ());
    let before = [fleet.moved(0), fleet.moved(1)];
    let mut most = 0;
    fleet.run(seconds(50), |fleet| {
        let of = |craft| fleet.return_rate(craft).map_or(0, |rate| rate.bps());
        most = most.max([0, 1].map(of).iter().sum());
    });
    assert!(most <= rate.bps(), "{most} granted");
    let part = |of: fn((u64, u64)) -> u64, fleet: &Fleet| {
        let moved = [0, 1].map(|craft| of(fleet.moved(craft)) - of(before[craft]));
        moved[1] as f64 / moved[0] as f64
    };
    let (down, up) = (part(|moved| moved.0, &fleet), part(|moved| moved.1, &fleet));
    assert!((2.7..3.3).contains(&down), "down {down}");
    assert!((2.7..3.3).contains(&up), "up {up}");
    assert_eq!(fleet.trips(), (0, 0));
    // The heavier sender stops.
    fleet.fill(1, false, false);
    fleet.run(seconds(70), |_| ());
    let before = fleet.moved(0);
    fleet.run(seconds(80), |_| ());
    let moved = (fleet.moved(0).0 - before.0, fleet.moved(0).1 - before.1);
    let full = rate.bytes_in(seconds(10)) as f64 * 0.97;
    assert!(moved.0 as f64 > 0.9 * full, "{moved:?} of {full}");
    assert!(moved.1 as f64 > 0.9 * full, "{moved:?} of {full}");
}
