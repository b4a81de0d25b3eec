//! A hub with two egresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::{Class, ResetCode, Target};
use bentpipe_gateway::transport::{Connector, FlowStream, Open};
use bentpipe_gateway::transports;
use bentpipe_net::Inherited;
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use crate::bench::{echo, soon, until};
use crate::hubs::{Running, aircraft, ground, secret};

pub const HUB: u8 = 2;
pub const EGRESSES: [u8; 2] = [4, 5];
/// Pause between two flows, which is within a passenger's rate of new ones.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens a flow of `passenger`, which begins with four bytes.
pub async fn open(
    connector: &dyn Connector,
    target: &Target,
    passenger: u32,
) -> Box<dyn FlowStream> {
    let (class, first) = (Class::BestEffort, Bytes::from_static(b"here"));
    let open = Open { target: target.clone(), class, passenger, claim: None, first };
    connector.open(open).await.unwrap()
}

/// Code of a flow of `passenger`, or `None` if the destination answered.
async fn try_once(connector: &dyn Connector, target: &Target, passenger: u32) -> Option<ResetCode> {
    let mut flow = open(connector, target, passenger).await;
    match soon("an answer", flow.read_exact(&mut [0; 4])).await {
        Ok(_) => None,
        Err(_) => Some(flow.reset_code().unwrap_or(ResetCode::Lost)),
    }
}

/// An aircraft, a hub and two egresses.
pub struct World {
    _folder: tempfile::TempDir,
    pub hub: Running,
    pub egresses: [Running; 2],
    pub connector: Arc<dyn Connector>,
}

impl World {
    /// `reaches` tells which egress may dial loopback, and `sites` is for the second one.
    pub fn new(reaches: [bool; 2], sites: &str) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let hub_key = format!("[[hub]]\npublic-key = \"{}\"\n", secret(HUB).public());
        let egresses = [0, 1].map(|at| {
            let listen = "masque-listen = \"127.0.0.1:0\"";
            let mut config = ground(folder, EGRESSES[at], listen, &hub_key);
            if !reaches[at] {
                config.dial.allow.clear();
            }
            Running::start(config)
        });
        let [first, second] = [0, 1].map(|at| {
            let (peer, key) = (egresses[at].address, secret(EGRESSES[at]).public());
            format!("[[egress]]\npeer = \"{peer}\"\npublic-key = \"{key}\"\n")
        });
        let rest = format!("{first}{second}{sites}");
        let hub = Running::start(ground(folder, HUB, "listen = \"127.0.0.1:0\"", &rest));
        let air = aircraft(folder, (HUB, hub.address), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let connector = transports::connector(&air, &mut Inherited::default()).unwrap();
        Self { _folder: temporary, hub, egresses, connector }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_egress_reports_its_dials() {
    let world = World::new([true; 2], "");
    let target: Target = echo("127.0.0.1:0").await.to_string().parse().unwrap();
    let mut passenger = 0;
    // The egress reports once the hub has asked for it.
    soon("several dials", async {
        loop {
            passenger += 1;
            assert_eq!(try_once(&*world.connector, &target, passenger).await, None);
            let known = world.hub.acceptors[0].egresses(&target);
            assert_eq!(known.len(), 2);
            if known.iter().any(|it| it.is_chosen && it.source.ends_with(" dials")) {
                return;
            }
            sleep(PAUSE).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_goes_to_the_egress_of_the_configuration() {
    let world = World::new([false, true], "sites = [\"127.0.0.0/8\"]\n");
    let target: Target = echo("127.0.0.1:0").await.to_string().parse().unwrap();
    let hub = &world.hub.acceptors[0];
    until("both egresses are up", || hub.egresses(&target).iter().all(|it| it.is_up)).await;
    for passenger in 0..20 {
        assert_eq!(try_once(&*world.connector, &target, passenger).await, None);
    }
    assert_eq!(world.egresses[0].gateway.open_flows(), 0);
    assert_eq!(world.hub.gateway.open_flows(), 0, "the hub only forwards");
    assert!(hub.egresses(&target)[1].is_chosen);
}
