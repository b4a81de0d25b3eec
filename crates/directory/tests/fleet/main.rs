//! Fleets of 50 grounds and 500 aircraft in virtual time.

mod hostile;
mod world;

use std::time::Duration;

use world::{Change, Shape, World, percentile};

/// Bound on what a ground sends or receives in a minute, with 64 bytes for the headers of each packet.
const MAX_BITS_PER_SECOND: u64 = 64_000;
/// Bound on the time until a change is everywhere, 99th percentile.
const MAX_CONVERGENCE: Duration = Duration::from_secs(5);
/// Bound on the time until everybody knows everybody after a fault has ended.
const MAX_HEALING: Duration = Duration::from_secs(3);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Seeds of the runs: `FLEET_SEEDS` of them, or one.
fn seeds() -> std::ops::RangeInclusive<u64> {
    let count = std::env::var("FLEET_SEEDS").ok().and_then(|it| it.parse().ok());
    1..=count.unwrap_or(1)
}

/// A fleet that has run for a minute.
fn fleet(shape: Shape, seed: u64) -> World {
    let mut world = World::new(50, shape, 500, seed);
    world.run_until(seconds(60));
    world.assert_complete();
    world
}

#[test]
fn a_change_is_everywhere_soon_and_costs_little() {
    for shape in Shape::ALL {
        for seed in seeds() {
            let mut world = fleet(shape, seed);
            world.forget_traffic();
            let mut took = Vec::new();
            for number in 0..20 {
                let ground = (number * 17 + seed as usize) % 50;
                let at = world.now();
                world.flip(ground);
                world.run_until(at + seconds(8));
                let Change { arrived, missing } = world.change(ground);
                assert_eq!(
                    missing, 0,
                    "{shape:?}, seed {seed}: change {number} of ground {ground}"
                );
                took.extend(arrived.into_iter().map(|it| it - at));
            }
            let p99 = percentile(&mut took, 99);
            let (sent, received) = world.busiest_minute();
            println!(
                "{shape:?}, seed {seed}: p50 {:?}, p99 {p99:?}; busiest minute of a ground: {sent} and {received} bit/s",
                percentile(&mut took, 50)
            );
            assert!(p99 <= MAX_CONVERGENCE, "{shape:?}, seed {seed}: {p99:?}");
            assert!(sent.max(received) <= MAX_BITS_PER_SECOND, "{shape:?}, seed {seed}");
        }
    }
}

#[test]
fn a_partition_heals() {
    for shape in Shape::ALL {
        let mut world = fleet(shape, 3);
        let is_cut = |a: usize, b: usize| a % 2 != b % 2;
        world.cut(is_cut);
        // Everything from the other side has expired.
        let cut_at = world.now();
        world.run_until(cut_at + seconds(320));
        assert!(world.knows_nothing_across(is_cut), "{shape:?}");
        world.heal();
        let took = world.run_until_complete(MAX_HEALING);
        println!("{shape:?}: healed after {took:?}");
    }
}

#[test]
fn a_ground_that_has_lost_everything_returns() {
    for shape in Shape::ALL {
        let mut world = fleet(shape, 4);
        // Ground 0 is the egress of all in a star. Its clock is decades behind.
        world.wipe(0, 0);
        let took = world.run_until_complete(MAX_HEALING);
        println!("{shape:?}: healed after {took:?}");
        // And its versions count again.
        let at = world.now();
        world.flip(0);
        world.run_until(at + seconds(5));
        assert_eq!(world.change(0).missing, 0, "{shape:?}");
    }
}

#[test]
fn a_dead_ground_expires_and_nobody_else_does() {
    for shape in Shape::ALL {
        let mut world = fleet(shape, 5);
        world.kill(7);
        let at = world.now();
        world.run_until(at + seconds(320));
        assert_eq!(world.knowers_of(7), 0, "{shape:?}");
        world.assert_complete_without(7);
    }
}
