//! A hub with two egresses, of which the first does not reach a destination.

use std::time::Duration;

use bentpipe_flow::{Class, ResetCode};
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::transport::{Connector, Open};
use bentpipe_gateway::transports;
use bentpipe_net::Inherited;
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use crate::bench::{echo, soon};
use crate::hubs::{AIR, Running, ground, secret, write_key};

const HUB: u8 = 2;
const FORBIDS: u8 = 4;
const REACHES: u8 = 5;
/// Pause between two attempts, which is within a passenger's rate of new flows.
const PAUSE: Duration = Duration::from_millis(50);

/// Code of a flow of `passenger`, or `None` if the destination answered.
async fn try_once(connector: &dyn Connector, target: &str, passenger: u32) -> Option<ResetCode> {
    let (class, first) = (Class::BestEffort, Bytes::from_static(b"here"));
    let open = Open { target: target.parse().unwrap(), class, passenger, claim: None, first };
    let mut flow = connector.open(open).await.unwrap();
    match soon("an answer", flow.read_exact(&mut [0; 4])).await {
        Ok(_) => None,
        Err(_) => Some(flow.reset_code().unwrap_or(ResetCode::Lost)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passengers_get_another_egress_if_the_first_does_not_reach_a_site() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let hub_key = format!("[[hub]]\npublic-key = \"{}\"\n", secret(HUB).public());
    let egress = |number, reaches: bool| {
        let mut config = ground(folder, number, "masque-listen = \"127.0.0.1:0\"", &hub_key);
        if !reaches {
            config.dial.allow.clear();
        }
        Running::start(config)
    };
    let (forbids, reaches) = (egress(FORBIDS, false), egress(REACHES, true));
    let egresses: String = [(FORBIDS, &forbids), (REACHES, &reaches)]
        .iter()
        .map(|(number, it)| {
            let key = secret(*number).public();
            format!("[[egress]]\npeer = \"{}\"\npublic-key = \"{key}\"\n", it.address)
        })
        .collect();
    let hub = Running::start(ground(folder, HUB, "listen = \"127.0.0.1:0\"", &egresses));
    let (key, peer) = (write_key(folder, AIR), secret(HUB).public());
    let air = AirConfig::parse(
        &folder.join("air.toml"),
        &format!(
            "[link]\nprivate-key-file = \"{key}\"\npeer = \"{}\"\npeer-public-key = \"{peer}\"\n\
             rate = \"50 Mbit/s\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n",
            hub.address
        ),
    );
    let connector = transports::connector(&air.unwrap(), &mut Inherited::default()).unwrap();
    let target = echo("127.0.0.1:0").await.to_string();

    // Passenger 1 has the first egress. Its failures teach the hub, once the egress reports them.
    let learning = async {
        while let Some(code) = try_once(&*connector, &target, 1).await {
            assert!(matches!(code, ResetCode::Forbidden | ResetCode::Lost), "{code:?}");
            sleep(PAUSE).await;
        }
    };
    soon("another egress", learning).await;
    assert_eq!(try_once(&*connector, &target, 2).await, None);
    assert_eq!(forbids.gateway.open_flows(), 0);
}
