//! A modem on a separate segment, with the standard's ports and groups.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_dlep::{DEFAULT_HEARTBEAT, DEFAULT_PORT, Rates};
use bentpipe_gateway::config::ModemDiscovery;
use bentpipe_gateway::rate::RateSource;
use bentpipe_gateway::rate::dlep::Settings as Router;
use bentpipe_lab::emu::{CLIENT, Testbed};
use bentpipe_lab::modem::{Settings, SimulatedModem};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::links;

/// Cable to which the modem is connected: that of the cabin.
const CABLE: &str = "cabin";

pub fn discovered() {
    let testbed = Testbed::new(&links::clean(), None, 1).expect("a testbed");
    for address in CLIENT.both() {
        let settings = Settings {
            listen: SocketAddr::new(address, DEFAULT_PORT),
            discovery: Some((CABLE.into(), DEFAULT_PORT)),
            heartbeat: DEFAULT_HEARTBEAT,
            rates: Rates { transmit_bps: 4_000_000, receive_bps: 0, latency: Duration::ZERO },
        };
        let (switch_off, off) = oneshot::channel::<()>();
        let modem = move || {
            runtime().block_on(async {
                let modem = SimulatedModem::start(&settings).expect("a modem");
                let _ = off.await;
                modem.close().await;
            });
        };
        let modem = testbed.client.spawn_thread(modem).expect("a thread");
        let found = testbed.air.run(|| {
            runtime().block_on(async {
                let source = RateSource::dlep(Router::new(ModemDiscovery::On(CABLE.into())), 0);
                let mut rates = source.rates();
                let said = rates.wait_for(Option::is_some);
                let said = timeout(Duration::from_secs(60), said).await.expect("a modem is found");
                let found = said.expect("the source runs").map(|rates| rates.transmit.bps());
                source.close().await;
                found
            })
        });
        assert_eq!(found.expect("inside the host"), Some(4_000_000), "modem at {address}");
        drop(switch_off);
        modem.join().expect("the modem");
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
