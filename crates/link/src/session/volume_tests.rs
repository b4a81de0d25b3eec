//! A path of limited bytes beside another one that fails.

use std::time::Duration;

use bentpipe_flow::PathUse;
use rand::{Rng as _, SeedableRng};

use super::paths_tests::{World, settings};
use crate::SnapshotLimits;
use crate::crypto::Rng;
use crate::quota::PathQuota;
use crate::settings::Settings;

/// Bytes reserved at once.
const CHUNK: u64 = 32 << 10;

/// A world whose second path is metered and carries what `quota` has.
fn limited(quota: &PathQuota, metered: bool) -> World {
    let mut air = settings([1500, 1280]);
    air.paths[0].quota = Some(quota.clone());
    air.paths[0].metered = metered;
    World::with(&air, &Settings { rate: air.rate, ..settings([1500, 1280]) })
}

fn quota(bytes: u64) -> PathQuota {
    let quota = PathQuota::new(bytes, CHUNK);
    quota.add(bytes);
    quota
}

/// Sends `bytes` from the hub on a flow of the air.
fn answer(world: &mut World, flow: u64, bytes: usize) {
    let now = world.now;
    world.hub().write(flow, &vec![7; bytes], now);
}

/// Reads at the air.
fn fetched(world: &mut World, flow: u64) -> usize {
    let (now, mut out) = (world.now, vec![0; 1 << 20]);
    match world.air().read(flow, &mut out, now) {
        crate::flow::Read::Taken(bytes) => bytes,
        _ => 0,
    }
}

fn uses(world: &mut World) -> Vec<PathUse> {
    let (none, now) = (SnapshotLimits { passengers: 0, flows: 0 }, world.now);
    world.air().traffic(none, now).paths.iter().map(|path| path.use_now).collect()
}

#[test]
fn a_limited_path_carries_a_download_while_the_other_is_dead() {
    let quota = quota(1_000_000);
    let mut world = limited(&quota, true);
    world.run(Duration::from_secs(2));
    assert_eq!(world.live(), [[true; 2]; 2]);
    let idle = world.carried[1];
    assert!(idle < 20_000, "{idle} bytes before anybody sends");
    world.dead[0] = true;
    let flow = world.open(100);
    world.run(Duration::from_secs(1));
    world.read(flow);
    answer(&mut world, flow, 200_000);
    let mut all = 0;
    for _ in 0..100 {
        world.run(Duration::from_millis(100));
        all += fetched(&mut world, flow);
    }
    assert_eq!(all, 200_000);
    let used = quota.usage().used_bytes;
    let carried = world.carried[1];
    assert!(carried <= used, "{carried} bytes of {used}");
    assert!(used < carried + CHUNK, "{used} bytes for {carried}");
}

#[test]
fn a_used_limit_closes_the_path_until_there_is_more() {
    let quota = quota(100_000);
    let mut world = limited(&quota, true);
    world.run(Duration::from_secs(2));
    world.dead[0] = true;
    let flow = world.open(250_000);
    world.run(Duration::from_secs(30));
    let first = world.read(flow);
    let carried = world.carried[1];
    assert!((30_000..100_000).contains(&first), "{first} bytes arrived");
    assert!((80_000..=100_000).contains(&carried), "{carried} bytes");
    assert_eq!(uses(&mut world)[1], PathUse::Spent);
    world.run(Duration::from_secs(600));
    assert_eq!(world.read(flow), first, "nothing more goes there");
    assert!(world.carried[1] <= 100_000, "{:?}", world.carried);
    // The next day.
    quota.add(600_000);
    world.run(Duration::from_secs(60));
    assert_eq!(world.read(flow), 250_000);
    assert!(world.carried[1] <= 700_000);
}

#[test]
fn the_other_path_goes_on_without_the_limited_one() {
    let quota = quota(60_000);
    let mut world = limited(&quota, false);
    world.run(Duration::from_secs(2));
    let flow = world.open(250_000);
    let mut all = 0;
    for _ in 0..200 {
        world.run(Duration::from_millis(100));
        all = world.read(flow);
    }
    assert_eq!(all, 250_000);
    assert!(world.carried[1] <= 60_000, "{:?}", world.carried);
    assert_eq!(uses(&mut world), [PathUse::All, PathUse::Spent]);
}

#[test]
fn a_day_of_standby_takes_a_small_part_of_the_limit() {
    let quota = quota(5_000_000);
    let mut world = limited(&quota, true);
    world.run(Duration::from_secs(30));
    for dead in [false, true] {
        world.dead[1] = dead;
        let (carried, used) = (world.carried[1], quota.usage().used_bytes);
        world.run(Duration::from_secs(1200));
        let (carried, used) = (world.carried[1] - carried, quota.usage().used_bytes - used);
        assert!(used < CHUNK, "dead: {dead}, {carried} carried, {used} used");
    }
}

/// Runs sessions whose air crashes. Returns the volume that the limited path carried, and its limit.
fn crashes(seed: u64) -> (u64, u64) {
    let mut rng = Rng::seed_from_u64(seed);
    let limit = rng.random_range(100_000..400_000);
    let (mut carried, mut reserved) = (0, 0);
    for _ in 0..3 {
        let quota = PathQuota::new(limit, CHUNK);
        let mut world = limited(&quota, rng.random());
        let mut sent = 0;
        let end = Duration::from_secs(rng.random_range(2..12));
        let mut flow = None;
        while world.now < end {
            if quota.left() < CHUNK / 2 {
                let more = CHUNK.min(limit - reserved);
                reserved += more;
                quota.add(more);
            }
            world.dead = [rng.random_bool(0.5), rng.random_bool(0.2)];
            world.run(Duration::from_millis(rng.random_range(10..500)));
            if world.air.current().is_some() && flow.is_none() {
                flow = Some(world.open(50_000));
            }
            let Some(flow) = flow else { continue };
            if world.hub.sessions().next().is_some() && world.read(flow) > 0 && sent < 20 {
                answer(&mut world, flow, 10_000);
                sent += 1;
                fetched(&mut world, flow);
            }
        }
        // After the crash, the hub goes on as long as it may.
        world.air = limited(&PathQuota::new(limit, CHUNK), true).air;
        world.dead = [true; 2];
        world.run(Duration::from_secs(5));
        carried += world.carried[1];
    }
    (carried, limit)
}

#[test]
fn a_limit_is_never_exceeded_over_crashes() {
    for seed in 0..20 {
        let (carried, limit) = crashes(seed);
        assert!(carried <= limit, "seed {seed}: {carried} of {limit} bytes");
        assert!(carried > 0, "seed {seed}: it carries something");
    }
}
