//! Rules of the choice. `bentpipe lab run mesh` has worlds with noise and loss.

use std::time::Duration;

use crate::{Choice, Leg, MAX_PINS, PIN_IDLE, Query, Site};

fn two(legs: [u64; 2]) -> (Choice, Site) {
    let mut choice = Choice::new(2);
    for (egress, rtt) in legs.into_iter().enumerate() {
        choice.set_leg(egress, Leg { rtt: Duration::from_millis(rtt), loss: 0.0 });
    }
    (choice, Site::of(&"shop.example:443".parse().unwrap()).unwrap())
}

fn query(site: &Site, passenger: u32, now: u64) -> Query<'_> {
    let now = Duration::from_secs(now);
    Query { who: ([1; 32], passenger), site, now, random: 0.5 }
}

#[test]
fn a_passenger_keeps_the_egress_until_idle() {
    let (mut choice, site) = two([10, 80]);
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(0));
    for _ in 0..3 {
        choice.dialled(0, (&site, 443), Some(Duration::from_millis(900)), Duration::ZERO);
        choice.dialled(1, (&site, 443), Some(Duration::from_millis(5)), Duration::ZERO);
    }
    let idle = PIN_IDLE.as_secs();
    let end = |choice: &mut Choice, at| choice.ended(([1; 32], 1), &site, Duration::from_secs(at));
    end(&mut choice, 0);
    assert_eq!(choice.choose(&query(&site, 1, idle - 1), |_| true), Some(0));
    end(&mut choice, 2 * idle - 3);
    assert_eq!(choice.choose(&query(&site, 1, 3 * idle - 4), |_| true), Some(0));
    end(&mut choice, 3 * idle - 4);
    assert_eq!(choice.choose(&query(&site, 1, 4 * idle), |_| true), Some(1));
}

#[test]
fn nobody_is_sent_to_an_egress_that_is_down() {
    let (mut choice, site) = two([10, 80]);
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(0));
    assert_eq!(choice.choose(&query(&site, 1, 1), |egress| egress == 1), Some(1));
    assert_eq!(choice.choose(&query(&site, 1, 2), |_| true), Some(1), "the address stays");
    assert_eq!(choice.choose(&query(&site, 2, 2), |_| true), Some(0), "new ones come back");
    assert_eq!(choice.choose(&query(&site, 3, 2), |_| false), None);
}

#[test]
fn a_leg_with_losses_counts_as_longer() {
    let (mut choice, site) = two([10, 30]);
    choice.set_leg(0, Leg { rtt: Duration::from_millis(10), loss: 0.16 });
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(1));
}

#[test]
fn few_try_another_egress_and_none_that_cannot_be_better() {
    for (far, expected) in [(80, 180..=220), (200, 0..=0)] {
        let (mut choice, site) = two([10, far]);
        choice.choose(&query(&site, 0, 0), |_| true);
        (0..3).for_each(|_| {
            choice.dialled(0, (&site, 443), Some(Duration::from_millis(100)), Duration::ZERO)
        });
        let tried = (0..10_000_u32).filter(|passenger| {
            let random = f64::from(*passenger) / 10_000.0;
            let query = Query { random, ..query(&site, passenger + 1, 0) };
            choice.choose(&query, |_| true) == Some(1)
        });
        assert!(expected.contains(&tried.count()), "{far}");
    }
}

#[test]
fn a_passenger_takes_no_other_pins_and_memory_is_bounded() {
    let (mut choice, site) = two([10, 80]);
    choice.choose(&query(&site, 1, 0), |_| true);
    for number in 0..MAX_PINS + 1000 {
        let other = Site::of(&format!("shop{number}.test:443").parse().unwrap());
        let query = Query { site: &other.unwrap(), ..query(&site, 2, 0) };
        choice.choose(&query, |_| true);
    }
    for _ in 0..3 {
        choice.dialled(0, (&site, 443), Some(Duration::from_millis(900)), Duration::ZERO);
        choice.dialled(1, (&site, 443), Some(Duration::ZERO), Duration::ZERO);
    }
    assert_eq!(choice.choose(&query(&site, 1, 1), |_| true), Some(0), "the pin is there");
}

#[test]
fn flows_avoid_an_egress_that_fails_and_return_to_it() {
    let (mut choice, site) = two([10, 80]);
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(0));
    let ms = Duration::from_millis;
    (0..8).for_each(|_| choice.dialled(0, (&site, 443), Some(ms(20)), ms(0)));
    // Closed ports say nothing about the egress.
    (0..9).for_each(|_| choice.dialled(0, (&site, 81), None, ms(0)));
    assert_eq!(choice.choose(&query(&site, 2, 1), |_| true), Some(0));
    (0..3).for_each(|_| choice.dialled(0, (&site, 443), None, Duration::from_secs(1)));
    for passenger in [1, 3] {
        assert_eq!(choice.choose(&query(&site, passenger, 2), |_| true), Some(1));
    }
    assert_eq!(choice.expected(&site, Duration::from_secs(2), |_| true), Some(1));
    for (passenger, expected) in [(1, 0), (3, 1), (4, 0)] {
        let found = choice.choose(&query(&site, passenger, 62), |_| true);
        assert_eq!(found, Some(expected), "passenger {passenger} after the pause");
    }
    // If none reaches the site, one is used all the same.
    for egress in [0, 1] {
        choice.dialled(egress, (&site, 443), Some(ms(20)), Duration::from_secs(62));
        (0..3).for_each(|_| choice.dialled(egress, (&site, 443), None, Duration::from_secs(62)));
    }
    assert!(choice.choose(&query(&site, 5, 63), |_| true).is_some());
}

#[test]
fn an_open_flow_keeps_the_pin() {
    let (mut choice, site) = two([10, 80]);
    assert_eq!(choice.choose(&query(&site, 1, 0), |_| true), Some(0));
    for egress in [0, 1] {
        let took = Some(Duration::from_millis(if egress == 0 { 900 } else { 5 }));
        (0..3).for_each(|_| choice.dialled(egress, (&site, 443), took, Duration::ZERO));
    }
    let day = 24 * 3600;
    assert_eq!(choice.choose(&query(&site, 1, day), |_| true), Some(0), "its first flow is open");
    (0..2).for_each(|_| choice.ended(([1; 32], 1), &site, Duration::from_secs(day)));
    assert_eq!(choice.choose(&query(&site, 1, 2 * day), |_| true), Some(1));
}

#[test]
fn the_operator_has_the_last_word() {
    let (mut choice, site) = two([10, 80]);
    choice.choose(&query(&site, 1, 0), |_| true);
    choice.fix("shop.example".parse().unwrap(), 1);
    choice.fix("192.0.0.0/16".parse().unwrap(), 1);
    assert_eq!(choice.choose(&query(&site, 1, 1), |_| true), Some(1), "a pin gives way");
    assert_eq!(choice.choose(&query(&site, 1, 1), |egress| egress == 0), Some(0));
    assert_eq!(choice.expected(&site, Duration::ZERO, |_| true), Some(1));
    let prefix = |target: &str| Site::of(&target.parse().unwrap()).unwrap();
    assert_eq!(choice.fixed(&prefix("192.0.2.1:443")), Some(1));
    assert_eq!(choice.fixed(&prefix("198.51.100.1:443")), None);
}
