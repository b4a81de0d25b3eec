//! A session over two radios: two pairs of veth between the aircraft's namespace and the ground's, of
//! which one is cut during a download and comes back.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use bentpipe_flow::{PathState, PathUse};
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::transport::Connector;
use bentpipe_gateway::transports;
use bentpipe_gateway::{air, ground};
use bentpipe_link::{SecretKey, SnapshotLimits};
use bentpipe_net::{Inherited, LinkNews, has_carrier};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::bench::{read_exactly, socks_client, soon};
use crate::tproxy::{PATIENCE, as_root, new_network, sh};

/// Bytes of a download: two seconds at the rate of both radios.
pub const DOWNLOAD_BYTES: usize = 2_000_000;
/// Bytes of it after which the first radio is cut.
const CUT_AFTER_BYTES: usize = 200_000;
/// Interval of a look at something that another thread does.
pub const LOOK: Duration = Duration::from_millis(10);

/// A request of the aircraft to the ground's thread.
#[derive(Debug, PartialEq, Eq)]
pub enum Ask {
    Cut,
    Mend,
    Count,
    /// Runs these commands.
    Run(String),
    End,
}

#[test]
fn a_download_survives_the_loss_of_a_radio_that_then_returns() {
    let name = "radios::a_download_survives_the_loss_of_a_radio_that_then_returns";
    as_root(name, || {
        new_network();
        let (send_tid, tid) = mpsc::channel();
        let (send_ready, ready) = mpsc::channel::<()>();
        let (send_ask, asks) = mpsc::channel();
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_owned();
        let (air_key, ground_key) = (key(&at, "air.key", 1), key(&at, "ground.key", 2));
        let aircraft = std::thread::spawn(move || {
            new_network();
            send_tid.send(nix::unistd::gettid()).unwrap();
            ready.recv_timeout(PATIENCE).unwrap();
            sh("ip addr add 10.1.0.2/24 dev sat0; ip link set sat0 up
                ip addr add 10.2.0.2/24 dev lte0; ip link set lte0 up
                ip route add default via 10.1.0.1 dev sat0 metric 100
                ip route add default via 10.2.0.1 dev lte0 metric 200
                echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
                echo 2 >/proc/sys/net/ipv4/conf/lte0/rp_filter");
            let config = air_config(&at, &ground_key);
            block_on(fly(config, send_ask));
        });
        let tid = tid.recv_timeout(PATIENCE).unwrap();
        sh(&format!(
            "ip link add g0 type veth peer name sat0 netns {tid}
             ip link add g1 type veth peer name lte0 netns {tid}
             ip addr add 198.51.100.1/32 dev lo
             ip addr add 10.1.0.1/24 dev g0; ip link set g0 up
             ip addr add 10.2.0.1/24 dev g1; ip link set g1 up
             tc qdisc add dev g0 root tbf rate 4mbit burst 8kb latency 200ms
             tc qdisc add dev g1 root tbf rate 4mbit burst 8kb latency 200ms
             nft add table inet cut
             nft 'add chain inet cut in {{ type filter hook input priority 0; }}'
             nft 'add chain inet cut out {{ type filter hook output priority 0; }}'"
        ));
        block_on(serve(ground_config(folder.path(), &air_key), send_ready, asks, || {}));
        aircraft.join().expect("the aircraft's side succeeds");
    });
}

#[test]
fn the_kernel_tells_that_a_carrier_is_lost_and_back() {
    as_root("radios::the_kernel_tells_that_a_carrier_is_lost_and_back", || {
        new_network();
        sh("ip link add sat0 type veth peer name modem; ip link set sat0 up; ip link set modem up");
        block_on(async {
            let news = LinkNews::open().unwrap();
            for (command, has) in [("down", false), ("up", true)] {
                sh(&format!("ip link set modem {command}"));
                soon("news", async {
                    while has_carrier("sat0") != has {
                        news.changed().await;
                    }
                })
                .await;
            }
        });
        assert!(has_carrier("none"), "nothing is known of it");
    });
}

pub fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

pub fn key(folder: &Path, name: &str, byte: u8) -> String {
    let secret = SecretKey::from_bytes([byte; 32]);
    std::fs::write(folder.join(name), secret.to_base64()).unwrap();
    secret.public().to_string()
}

fn air_config(folder: &Path, ground: &str) -> AirConfig {
    let text = format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"198.51.100.1:4500\"\n\
         peer-public-key = \"{ground}\"\nrate = \"4 Mbit/s\"\n\
         [listen]\nsocks5 = \"127.0.0.1:0\"\n\
         [[path]]\nname = \"satellite\"\ninterface = \"sat0\"\n\
         [[path]]\nname = \"LTE\"\ninterface = \"lte0\"\n"
    );
    AirConfig::parse(&folder.join("air.toml"), &text).unwrap()
}

pub fn ground_config(folder: &Path, air: &str) -> GroundConfig {
    ground_config_at(folder, air, "198.51.100.1:4500")
}

pub fn ground_config_at(folder: &Path, air: &str, listen: &str) -> GroundConfig {
    let text = format!(
        "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{listen}\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{air}\"\nrate = \"4 Mbit/s\"\n\
         [dial]\nallow = [\"198.51.100.0/24\"]\n[dns]\nservers = [\"127.0.0.1:9\"]\n"
    );
    GroundConfig::parse(&folder.join("ground.toml"), &text).unwrap()
}

/// The ground: a gateway, an origin, and the wires. `count` answers [`Ask::Count`].
pub async fn serve(
    config: GroundConfig,
    ready: mpsc::Sender<()>,
    asks: mpsc::Receiver<Ask>,
    count: impl Fn(),
) {
    let acceptors = transports::acceptor(&config, &mut Inherited::default()).unwrap();
    let gateway = ground::Ground::new(&config).unwrap();
    tokio::spawn(async move { gateway.serve(acceptors, std::future::pending()).await });
    let origin = TcpListener::bind("198.51.100.1:8080").await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = origin.accept().await {
            tokio::spawn(async move {
                let _ = tcp.write_all(&[b'x'; DOWNLOAD_BYTES]).await;
                let _ = tcp.shutdown().await;
            });
        }
    });
    ready.send(()).unwrap();
    // Each step of the flight has its limit, so that it ends.
    loop {
        match asks.try_recv() {
            // Packets vanish without an error, as behind a modem.
            Ok(Ask::Cut) => drop(sh("nft add rule inet cut in iifname g0 drop
                                     nft add rule inet cut out oifname g0 drop")),
            Ok(Ask::Mend) => drop(sh("nft flush table inet cut")),
            Ok(Ask::Count) => count(),
            Ok(Ask::Run(commands)) => drop(sh(&commands)),
            Ok(Ask::End) | Err(mpsc::TryRecvError::Disconnected) => return,
            Err(mpsc::TryRecvError::Empty) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// The aircraft: a gateway, and a client behind it.
async fn fly(config: AirConfig, ask: mpsc::Sender<Ask>) {
    let connector = transports::connector(&config, &mut Inherited::default()).unwrap();
    let gateway = air::Air::bind(&config, &mut Inherited::default(), connector.clone()).unwrap();
    let socks = gateway.socks5_addr().unwrap();
    tokio::spawn(gateway.serve(std::future::pending()));
    until(&connector, "both radios are in use", |paths| paths.iter().all(is_live)).await;
    let origin = "198.51.100.1:8080".parse().unwrap();

    let mut tcp = socks_client(socks, origin).await;
    assert!(read_exactly(&mut tcp, CUT_AFTER_BYTES).await.iter().all(|byte| *byte == b'x'));
    ask.send(Ask::Cut).unwrap();
    let mut rest = Vec::new();
    soon("the rest", tcp.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest.len(), DOWNLOAD_BYTES - CUT_AFTER_BYTES, "nothing is lost or doubled");
    until(&connector, "the cut is noticed", |paths| !is_live(&paths[0]) && is_live(&paths[1]))
        .await;

    ask.send(Ask::Mend).unwrap();
    until(&connector, "it is back", |paths| paths.iter().all(is_live)).await;
    let before = received(&connector);
    let mut tcp = socks_client(socks, origin).await;
    let all = read_exactly(&mut tcp, DOWNLOAD_BYTES).await;
    assert!(all.iter().all(|byte| *byte == b'x'));
    let after = received(&connector);
    for (path, (before, after)) in before.iter().zip(&after).enumerate() {
        assert!(after - before > 100_000, "path {path} carries: {before} to {after} bytes");
    }
    ask.send(Ask::End).unwrap();
}

pub fn is_live(path: &PathState) -> bool {
    matches!(path.use_now, PathUse::All | PathUse::Bulk)
}

pub fn paths(connector: &impl AsRef<dyn Connector>) -> Vec<PathState> {
    let traffic = connector.as_ref().traffic(SnapshotLimits { passengers: 0, flows: 0 });
    traffic.map(|traffic| traffic.paths).unwrap_or_default()
}

pub fn received(connector: &impl AsRef<dyn Connector>) -> Vec<u64> {
    paths(connector).iter().map(|path| path.received_bytes).collect()
}

pub async fn until(
    connector: &impl AsRef<dyn Connector>,
    what: &str,
    check: impl Fn(&[PathState]) -> bool,
) {
    soon(what, async {
        loop {
            let paths = paths(connector);
            if paths.len() == 2 && check(&paths) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    })
    .await;
}
