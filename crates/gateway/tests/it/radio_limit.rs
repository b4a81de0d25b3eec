//! The daily limit of a radio, over an air gateway that is killed twice.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use bentpipe_flow::PathUse;
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::{air, transports};
use bentpipe_net::Inherited;
use tokio::io::AsyncReadExt;

use crate::bench::socks_client;
use crate::radios::{Ask, LOOK, block_on, ground_config, key, paths, serve};
use crate::tproxy::{PATIENCE, as_root, new_network, sh};

const NAME: &str = "radio_limit::a_daily_limit_outlives_two_kills";
/// Folder of the configuration, for the process of the air gateway.
const FOLDER: &str = "BENTPIPE_TEST_AIR";
const LIMIT_BYTES: u64 = 1_000_000;
/// Time after which an air gateway ends by itself, if its test has failed.
const LIFETIME: Duration = Duration::from_secs(60);

#[test]
fn a_daily_limit_outlives_two_kills() {
    match std::env::var_os(FOLDER) {
        Some(folder) => block_on(fly(Path::new(&folder))),
        None => as_root(NAME, on_the_ground),
    }
}

fn on_the_ground() {
    new_network();
    let (send_tid, tid) = mpsc::channel();
    let (send_ready, ready) = mpsc::channel::<()>();
    let (send_ask, asks) = mpsc::channel();
    let (send_bytes, bytes) = mpsc::channel();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_owned();
    let (air_key, ground_key) = (key(&at, "air.key", 1), key(&at, "ground.key", 2));
    std::fs::write(at.join("air.toml"), air_text(&ground_key)).unwrap();
    let today = day();
    let aircraft = std::thread::spawn(move || {
        new_network();
        send_tid.send(nix::unistd::gettid()).unwrap();
        ready.recv_timeout(PATIENCE).unwrap();
        sh("ip addr add 10.2.0.2/24 dev lte0; ip link set lte0 up
            ip route add default via 10.2.0.1 dev lte0
            echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter");
        on_board(&at, &send_ask, &bytes);
    });
    let tid = tid.recv_timeout(PATIENCE).unwrap();
    sh(&format!(
        "ip link add g1 type veth peer name lte0 netns {tid}
         ip addr add 198.51.100.1/32 dev lo
         ip addr add 10.2.0.1/24 dev g1; ip link set g1 up
         tc qdisc add dev g1 root tbf rate 4mbit burst 8kb latency 200ms
         nft add table inet count
         nft 'add chain inet count in {{ type filter hook input priority 0; }}'
         nft 'add chain inet count out {{ type filter hook output priority 0; }}'
         nft add rule inet count in udp dport 4500 counter
         nft add rule inet count out udp sport 4500 counter"
    ));
    let config = ground_config(folder.path(), &air_key);
    let counting = serve(config, send_ready, asks, move || send_bytes.send(carried()).unwrap());
    block_on(counting);
    aircraft.join().expect("the aircraft's side succeeds");
    let (days, carried) = (1 + day() - today, carried());
    assert!(carried <= days * LIMIT_BYTES, "{carried} bytes in {days} days");
    assert!(carried >= LIMIT_BYTES * 8 / 10, "{carried} bytes: the rest is wasted");
}

/// Days since 1970.
fn day() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400
}

/// IP bytes of the gateways' packets.
fn carried() -> u64 {
    let listed = sh("nft list table inet count");
    let words: Vec<&str> = listed.split_whitespace().collect();
    let counts = words.windows(2).filter(|pair| pair[0] == "bytes");
    counts.map(|pair| pair[1].parse::<u64>().expect("it is a number")).sum()
}

fn air_text(ground: &str) -> String {
    format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"198.51.100.1:4500\"\n\
         peer-public-key = \"{ground}\"\nrate = \"4 Mbit/s\"\n\
         [listen]\nsocks5 = \"127.0.0.1:0\"\n\
         [[path]]\nname = \"satellite\"\ninterface = \"sat0\"\n\
         [[path]]\nname = \"LTE\"\ninterface = \"lte0\"\nmetered = true\n\
         daily-limit = \"{LIMIT_BYTES} B\"\n"
    )
}

/// Starts the air gateway in a process of its own, kills it twice, and waits until the limit is used up.
fn on_board(folder: &Path, ask: &mpsc::Sender<Ask>, bytes: &mpsc::Receiver<u64>) {
    for part in [LIMIT_BYTES / 4, LIMIT_BYTES / 2] {
        let mut gateway = start(folder);
        let end = Instant::now() + PATIENCE;
        loop {
            ask.send(Ask::Count).unwrap();
            if bytes.recv_timeout(PATIENCE).unwrap() >= part {
                break;
            }
            assert!(gateway.try_wait().unwrap().is_none(), "it runs");
            assert!(Instant::now() < end, "it carries {part} bytes in time");
            std::thread::sleep(LOOK);
        }
        gateway.kill().unwrap();
        gateway.wait().unwrap();
    }
    let spent = start(folder).wait().unwrap();
    assert!(spent.success(), "the last one sees that the limit is used up");
    ask.send(Ask::End).unwrap();
}

fn start(folder: &Path) -> Child {
    let this = std::env::current_exe().expect("this test has a path");
    let mut command = Command::new(this);
    command.args(["--exact", NAME, "--nocapture"]).env(FOLDER, folder).spawn().unwrap()
}

/// An air gateway with a client that downloads until the limit is used up.
async fn fly(folder: &Path) {
    let file: PathBuf = folder.join("air.toml");
    let config = AirConfig::load(&file, None).unwrap();
    let connector = transports::connector(&config, &mut Inherited::default()).unwrap();
    let gateway = air::Air::bind(&config, &mut Inherited::default(), connector.clone()).unwrap();
    let socks = gateway.socks5_addr().unwrap();
    tokio::spawn(gateway.serve(std::future::pending()));
    tokio::spawn(async move {
        loop {
            let origin = "198.51.100.1:8080".parse().unwrap();
            let mut tcp = socks_client(socks, origin).await;
            let _ = tcp.read_to_end(&mut Vec::new()).await;
        }
    });
    let spent = async {
        while paths(&connector).iter().all(|path| path.use_now != PathUse::Spent) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(LIFETIME, spent).await.expect("the limit is used up");
    let paths = paths(&connector);
    let day = paths[1].day.expect("it has a limit");
    assert_eq!(day.limit_bytes, LIMIT_BYTES);
    assert!((LIMIT_BYTES * 9 / 10..=LIMIT_BYTES).contains(&day.used_bytes), "{day:?}");
}
