//! The directory of a fleet over real sockets.

use bentpipe_gateway::transport::GroundStanding;
use tokio::io::AsyncReadExt;

use crate::bench::{echo, soon, until};
use crate::egress_choice::{EGRESSES, HUB, World, open};
use crate::hubs::{Running, ground, secret};

fn grounds(of: &Running) -> Vec<GroundStanding> {
    of.acceptors[0].grounds()
}

fn key(number: u8) -> [u8; 32] {
    *secret(number).public().as_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_and_its_egresses_know_each_other() {
    let world = World::new([true; 2], "");
    until("the hub hears both egresses", || {
        let speaks = |it: &&GroundStanding| it.is_egress && it.is_connected && it.age.is_some();
        grounds(&world.hub).iter().filter(speaks).count() == 2
    })
    .await;
    until("an egress hears the hub, and of the other egress", || {
        [0, 1].iter().all(|at| {
            let known = grounds(&world.egresses[*at]);
            let hub = known.iter().find(|it| it.key == key(HUB));
            let other = known.iter().find(|it| it.key == key(EGRESSES[1 - at]));
            hub.is_some_and(|it| it.is_hub && it.through.is_none() && it.age.is_some())
                && other.is_some_and(|it| it.is_egress && it.through == Some(key(HUB)))
        })
    })
    .await;
    let egresses = grounds(&world.hub);
    assert_eq!(egresses.len(), 2);
    assert!(egresses.iter().all(|it| !it.is_hub), "they list the aircraft, but no egress");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_counts_the_flows_of_its_egresses() {
    let world = World::new([true; 2], "");
    let egresses = || world.hub.acceptors[0].egress_states();
    until("both egresses are up", || {
        egresses().iter().all(|it| it.is_up && it.rtt.is_some() && it.flows == 0)
    })
    .await;
    let target = echo("127.0.0.1:0").await.to_string().parse().unwrap();
    let mut flow = open(&*world.connector, &target, 1).await;
    soon("an answer", flow.read_exact(&mut [0; 4])).await.unwrap();
    let flows = || egresses().iter().map(|it| it.flows).sum::<usize>();
    until("the flow counts once", || flows() == 1).await;
    drop(flow);
    until("the flow is over", || flows() == 0).await;
}

#[tokio::test]
async fn a_ground_alone_has_no_directory() {
    let folder = tempfile::tempdir().unwrap();
    let alone = Running::start(ground(folder.path(), HUB, "listen = \"127.0.0.1:0\"", ""));
    assert_eq!(grounds(&alone), []);
    assert_eq!(alone.acceptors[0].egress_states(), []);
}
