//! Radios whose addresses change, that vanish and come back, or that have IPv6 only.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};

use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::transport::Connector;
use bentpipe_gateway::{air, transports};
use bentpipe_net::{Inherited, interface_index};

use crate::bench::{read_exactly, socks_client, soon};
use crate::radios::{
    Ask, DOWNLOAD_BYTES, block_on, ground_config_at, is_live, key, received, serve, until,
};
use crate::tproxy::{PATIENCE, as_root, new_network, sh};

/// Bytes of a download after which something happens to a radio.
const READ_BYTES: usize = 200_000;
/// Minimum bytes of a download that a radio in use carries.
const MIN_CARRIED_BYTES: u64 = 100_000;

/// The aircraft during a test.
struct Flight {
    connector: Arc<dyn Connector>,
    socks: SocketAddr,
    ask: mpsc::Sender<Ask>,
    /// The aircraft's namespace, as `ip` names it.
    tid: nix::unistd::Pid,
}

impl Flight {
    /// Runs commands on the ground.
    fn run(&self, commands: &str) {
        self.ask.send(Ask::Run(commands.replace("AIR", &self.tid.to_string()))).unwrap();
    }

    /// Waits until both radios are in use or not, as `are`.
    async fn uses(&self, what: &str, are: [bool; 2]) {
        until(&self.connector, what, |paths| paths.iter().map(is_live).eq(are)).await;
    }

    /// Downloads, and calls `meanwhile` after a part of it.
    async fn download(&self, meanwhile: impl FnOnce()) {
        let mut tcp = socks_client(self.socks, "198.51.100.1:8080".parse().unwrap()).await;
        let first = read_exactly(&mut tcp, READ_BYTES).await;
        meanwhile();
        let rest = read_exactly(&mut tcp, DOWNLOAD_BYTES - READ_BYTES).await;
        assert!(first.iter().chain(&rest).all(|byte| *byte == b'x'));
    }

    /// Downloads over both radios.
    async fn both_carry(&self) {
        let before = received(&self.connector);
        self.download(|| {}).await;
        let after = received(&self.connector);
        for (path, (before, after)) in before.iter().zip(&after).enumerate() {
            assert!(after - before > MIN_CARRIED_BYTES, "path {path}: {before} to {after} bytes");
        }
    }
}

/// The network of a test: commands at both ends, and addresses of the ground for both radios.
struct Network {
    ground: &'static str,
    aircraft: &'static str,
    listen: &'static str,
    peers: [&'static str; 2],
}

impl Network {
    /// Runs the ground in the calling thread and `flight` in another one.
    fn fly<F: Future<Output = ()> + 'static>(self, flight: fn(Flight) -> F) {
        new_network();
        let (send_tid, tid) = mpsc::channel();
        let (send_ready, ready) = mpsc::channel::<()>();
        let (ask, asks) = mpsc::channel();
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_owned();
        let (air_key, ground_key) = (key(&at, "air.key", 1), key(&at, "ground.key", 2));
        let aircraft = std::thread::spawn(move || {
            new_network();
            let tid = nix::unistd::gettid();
            send_tid.send(tid).unwrap();
            ready.recv_timeout(PATIENCE).unwrap();
            sh(self.aircraft);
            let [first, second] = self.peers;
            let text = format!(
                "[link]\nprivate-key-file = \"air.key\"\npeer = \"{first}\"\n\
                 peer-public-key = \"{ground_key}\"\nrate = \"4 Mbit/s\"\n\
                 [listen]\nsocks5 = \"127.0.0.1:0\"\n\
                 [[path]]\nname = \"satellite\"\ninterface = \"sat0\"\n\
                 [[path]]\nname = \"LTE\"\ninterface = \"lte0\"\npeer = \"{second}\"\n"
            );
            let config = AirConfig::parse(&at.join("air.toml"), &text).unwrap();
            block_on(async {
                let none = &mut Inherited::default();
                let connector = transports::connector(&config, none).unwrap();
                let gateway = air::Air::bind(&config, none, connector.clone()).unwrap();
                let socks = gateway.socks5_addr().unwrap();
                tokio::spawn(gateway.serve(std::future::pending()));
                flight(Flight { connector, socks, ask: ask.clone(), tid }).await;
                ask.send(Ask::End).unwrap();
            });
        });
        let tid = tid.recv_timeout(PATIENCE).unwrap();
        sh(&format!("ip addr add 198.51.100.1/32 dev lo\n{}", self.ground)
            .replace("AIR", &tid.to_string()));
        let config = ground_config_at(folder.path(), &air_key, self.listen);
        block_on(serve(config, send_ready, asks, || {}));
        aircraft.join().expect("the aircraft's side succeeds");
    }
}

#[test]
fn a_radio_follows_its_address_and_returns_with_another_interface() {
    let name = "radio_addresses::a_radio_follows_its_address_and_returns_with_another_interface";
    as_root(name, || {
        Network {
            ground: "ip link add g0 type veth peer name sat0 netns AIR
                ip link add g1 type veth peer name lte0 netns AIR
                ip addr add 10.1.0.1/24 dev g0; ip link set g0 up
                ip addr add 10.2.0.1/24 dev g1; ip addr add 10.3.0.1/24 dev g1; ip link set g1 up
                tc qdisc add dev g0 root tbf rate 4mbit burst 8kb latency 200ms
                tc qdisc add dev g1 root tbf rate 4mbit burst 8kb latency 200ms",
            aircraft: "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
                echo 2 >/proc/sys/net/ipv4/conf/lte0/rp_filter
                ip addr add 10.1.0.2/24 dev sat0; ip link set sat0 up
                ip route add default via 10.1.0.1 dev sat0 metric 100
                ip addr add 10.2.0.2/24 dev lte0; ip link set lte0 up
                ip route add default via 10.2.0.1 dev lte0 metric 200",
            listen: "198.51.100.1:4500",
            peers: ["198.51.100.1:4500"; 2],
        }
        .fly(moves);
    });
}

async fn moves(flight: Flight) {
    let before = interface_index("lte0");
    flight.uses("both radios are in use", [true; 2]).await;
    // As a DHCP client does: the old lease ends, and another network has another address.
    let renumber = || {
        sh("ip addr flush dev lte0
            ip addr add 10.3.0.2/24 dev lte0
            ip route add default via 10.3.0.1 dev lte0 metric 200");
    };
    flight.download(renumber).await;
    flight.uses("both radios are in use at the next address", [true; 2]).await;
    flight.both_carry().await;

    // A lease that ends without another: nothing is sent, so only the kernel knows.
    sh("ip addr flush dev lte0");
    flight.uses("the loss of the address is noticed", [true, false]).await;
    sh("ip addr add 10.2.0.2/24 dev lte0
        ip route add default via 10.2.0.1 dev lte0 metric 200");
    flight.uses("the address is back", [true; 2]).await;

    // As a modem on USB that restarts.
    flight.download(|| drop(sh("ip link del lte0"))).await;
    flight.uses("the modem is gone", [true, false]).await;
    flight.run(
        "ip link add g1 type veth peer name lte0 netns AIR
         ip addr add 10.2.0.1/24 dev g1; ip link set g1 up
         tc qdisc add dev g1 root tbf rate 4mbit burst 8kb latency 200ms",
    );
    soon("the modem is there", async {
        while interface_index("lte0").is_none() {
            tokio::time::sleep(crate::radios::LOOK).await;
        }
    })
    .await;
    assert_ne!(interface_index("lte0"), before);
    sh("echo 2 >/proc/sys/net/ipv4/conf/lte0/rp_filter
        ip addr add 10.2.0.7/24 dev lte0; ip link set lte0 up
        ip route add default via 10.2.0.1 dev lte0 metric 200");
    flight.uses("the modem is back", [true; 2]).await;
    flight.both_carry().await;
}

#[test]
fn a_radio_with_ipv6_only_works_beside_one_with_ipv4_only() {
    as_root("radio_addresses::a_radio_with_ipv6_only_works_beside_one_with_ipv4_only", || {
        Network {
            ground: "ip link add g0 type veth peer name sat0 netns AIR
                ip link add g1 type veth peer name lte0 netns AIR
                ip addr add 10.1.0.1/24 dev g0; ip link set g0 up
                ip addr add fd02::1/64 dev g1 nodad; ip link set g1 up
                tc qdisc add dev g0 root tbf rate 4mbit burst 8kb latency 200ms
                tc qdisc add dev g1 root tbf rate 4mbit burst 8kb latency 200ms",
            aircraft: "echo 1 >/proc/sys/net/ipv6/conf/sat0/disable_ipv6
                ip addr add 10.1.0.2/24 dev sat0; ip link set sat0 up
                ip addr add fd02::2/64 dev lte0 nodad; ip link set lte0 up",
            listen: "[::]:4500",
            peers: ["10.1.0.1:4500", "[fd02::1]:4500"],
        }
        .fly(|flight| async move {
            flight.uses("both radios are in use", [true; 2]).await;
            flight.both_carry().await;
            let renumber = || {
                sh("ip addr add fd02::7/64 dev lte0 nodad; ip addr del fd02::2/64 dev lte0");
            };
            flight.download(renumber).await;
            flight.uses("both radios are in use at the next address", [true; 2]).await;
            flight.both_carry().await;
        });
    });
}
