//! A session over two radios that changes its hub, on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bentpipe_flow::{PathState, PathUse};
use bentpipe_link::SnapshotLimits;

use crate::bench::{echo, soon, until};
use crate::hubs::{FLOWS, Leg, World, progress};

const RADIOS: &str = "[[path]]\nname = \"satellite\"\nlocal-address = \"127.0.0.1\"\n\
                      [[path]]\nname = \"LTE\"\nlocal-address = \"127.0.0.1\"\nrate = \"50 Mbit/s\"\n";

fn radios(world: &World) -> Vec<PathState> {
    let traffic = world.connector.traffic(SnapshotLimits { passengers: 0, flows: 0 });
    traffic.map(|traffic| traffic.paths).unwrap_or_default()
}

/// Waits until both radios of the present session carry data.
async fn both_carry(world: &World) {
    let is_live = |path: &PathState| matches!(path.use_now, PathUse::All | PathUse::Bulk);
    until("both radios are in use", || {
        let radios = radios(world);
        radios.len() == 2 && radios.iter().all(is_live)
    })
    .await;
}

fn received(world: &World) -> u64 {
    radios(world).iter().map(|path| path.received_bytes).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_over_two_radios_outlive_a_change_of_the_hub() {
    let mut world = World::with(Leg::Http, RADIOS).await;
    let target = echo("127.0.0.1:0").await;
    let (is_over, steps) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let mut flows = world.transfers(target, &is_over, &steps);
    both_carry(&world).await;
    progress(&steps).await;

    // The hub becomes silent on both radios. Those of the session with the next hub count from zero.
    let before = received(&world);
    world.paths[0].is_cut.store(true, Ordering::Relaxed);
    until("another session", || received(&world) < before).await;
    both_carry(&world).await;
    progress(&steps).await;

    // The first hub is there again, and the second one leaves in an orderly way.
    world.paths[0].is_cut.store(false, Ordering::Relaxed);
    world.hubs.remove(1).stop().await;
    progress(&steps).await;
    both_carry(&world).await;
    assert_eq!(world.egress.gateway.open_flows(), FLOWS);

    is_over.store(true, Ordering::Relaxed);
    while let Some(flow) = soon("the end of all flows", flows.join_next()).await {
        flow.unwrap();
    }
    until("the egress is idle", || world.egress.gateway.open_flows() == 0).await;
}
