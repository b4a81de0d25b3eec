//! This ground in the directory of the fleet, and the others.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_config::GroundConfig;
use bentpipe_status::{EgressEntry, GroundEntry, Others};
use bentpipe_transport::Acceptor;
use tokio::time::sleep;

/// Interval of looks at the load.
const LOOK: Duration = Duration::from_secs(1);

/// The load of a ground with `open` flows, of at most `max`; 255 is full.
fn load(open: usize, max: usize) -> u8 {
    (open.saturating_mul(255) / max.max(1)).min(255) as u8
}

/// Tells the fleet the load of the ground of `config`: `open` flows that it dials, and those that it
/// forwards. Never returns.
pub async fn tell_load(
    config: &GroundConfig,
    open: impl Fn() -> usize,
    acceptors: &[Arc<dyn Acceptor>],
) {
    if config.hubs.is_empty() && config.egresses.is_empty() {
        return std::future::pending().await;
    }
    let limits = &config.limits;
    let max = limits.max_flows + limits.udp.max_flows + limits.ip.max_flows;
    loop {
        let load = load(open() + forwarded(acceptors), max);
        acceptors.iter().for_each(|it| it.set_load(load));
        sleep(LOOK).await;
    }
}

/// Number of flows that egresses dial for this ground.
fn forwarded(acceptors: &[Arc<dyn Acceptor>]) -> usize {
    let egresses = acceptors.first().map(|it| it.egress_states()).unwrap_or_default();
    egresses.iter().filter(|egress| !egress.is_proxy).map(|egress| egress.flows).sum()
}

/// The other grounds, for the status file.
pub fn entries(config: &GroundConfig, acceptors: &[Arc<dyn Acceptor>]) -> Others {
    // All acceptors share one directory, and the egresses.
    let Some(first) = acceptors.first() else { return Others::default() };
    let name = |key: &[u8; 32]| {
        let egress = config
            .egresses
            .iter()
            .find(|it| it.kind.public_key().is_some_and(|public| public.as_bytes() == key));
        egress.map(|it| it.peer.to_string())
    };
    let entry = |ground| GroundEntry::of(&ground, name(&ground.key).as_deref());
    let egresses = first.egress_states().into_iter().map(EgressEntry::of).collect();
    Others { grounds: first.grounds().into_iter().map(entry).collect(), egresses }
}

#[cfg(test)]
mod tests {
    use super::*;

    use bentpipe_link::SecretKey;
    use bentpipe_transport::{EgressState, Incoming, Transport};
    use futures_util::future::BoxFuture;
    use parking_lot::Mutex;
    use tokio::time::timeout;

    /// A ground whose egresses dial this number of flows.
    struct Forwarding(usize, Mutex<Vec<u8>>);

    impl Acceptor for Forwarding {
        fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
            Box::pin(std::future::pending())
        }

        fn transport(&self) -> Transport {
            Transport::Link
        }

        fn egress_states(&self) -> Vec<EgressState> {
            let name = || "lon.example.net:4433".to_owned();
            let of = |(is_proxy, flows)| EgressState {
                name: name(),
                is_proxy,
                is_up: true,
                rtt: None,
                flows,
            };
            // Flows of a proxy are among those that the ground admits.
            [(false, 1), (true, 7), (false, self.0 - 1)].map(of).into()
        }

        fn set_load(&self, load: u8) {
            self.1.lock().push(load);
        }
    }

    fn config(rest: &str) -> GroundConfig {
        let folder = tempfile::tempdir().unwrap();
        let key = SecretKey::from_bytes([1; 32]).to_base64();
        std::fs::write(folder.path().join("key"), key).unwrap();
        let air = SecretKey::from_bytes([2; 32]).public();
        let text = format!(
            "[link]\nprivate-key-file = \"key\"\nlisten = \"127.0.0.1:0\"\n\
             [limits]\nmax-flows = 10\n[limits.udp]\nmax-flows = 10\n[limits.ip]\nmax-flows = 10\n\
             [[aircraft]]\nname = \"D-A\"\npublic-key = \"{air}\"\nrate = \"1 Mbit/s\"\n{rest}"
        );
        GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn forwarded_flows_are_load_and_a_ground_alone_tells_nothing() {
        let hub =
            format!("[[hub]]\npublic-key = \"{}\"\n", SecretKey::from_bytes([3; 32]).public());
        for (rest, loads) in [(&*hub, &[178; 2][..]), ("", &[])] {
            let forwarding = Arc::new(Forwarding(20, Mutex::default()));
            let acceptors: [Arc<dyn Acceptor>; 1] = [forwarding.clone()];
            let config = config(rest);
            let telling = tell_load(&config, || 1, &acceptors);
            assert!(timeout(LOOK + LOOK / 2, telling).await.is_err());
            assert_eq!(*forwarding.1.lock(), loads, "{} of 30 are 178 of 255", 20 + 1);
        }
    }

    #[test]
    fn a_full_ground_has_the_highest_load() {
        let loads = [(0, 10), (5, 10), (10, 10), (11, 10), (1, 0), (usize::MAX, 1)];
        assert_eq!(loads.map(|(open, max)| load(open, max)), [0, 127, 255, 255, 255, 255]);
    }
}
