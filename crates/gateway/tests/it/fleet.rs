//! A fleet that changes while its aircraft transfer, over the radio transport on loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bentpipe_flow::ResetCode;
use bentpipe_gateway::config::GroundConfig;
use bentpipe_gateway::ground::{Ground, run_over};
use bentpipe_gateway::status::{Asked, Command, Outcome};
use bentpipe_gateway::transport::Acceptor;
use bentpipe_gateway::transports;
use bentpipe_link::io::{Air, Open, UdpSocket};
use bentpipe_link::{AirConfig, Class, PublicKey, SecretKey, Settings, SnapshotLimits};
use bentpipe_net::{Inherited, bind_udp};
use bentpipe_units::BitRate;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::bench::{echo, soon, until};
use crate::transports::{Configs, Ends, configs, over_aerotcp, over_http3};

/// Aircraft whose flows must not notice anything.
const STEADY: u8 = 5;
/// Flows of each.
const FLOWS: usize = 10;
/// Bytes of each step of a flow.
const STEP: usize = 20_000;
const GROUND: u8 = 250;

fn secret(number: u8) -> SecretKey {
    SecretKey::from_bytes([number; 32])
}

/// A ground with these aircraft: numbers and rates in Mbit/s.
fn config(folder: &Path, aircraft: &[(u8, u32)]) -> GroundConfig {
    std::fs::write(folder.join("ground.key"), secret(GROUND).to_base64()).unwrap();
    let mut text = "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"127.0.0.1:0\"\n\
                    [dial]\nallow = [\"127.0.0.0/8\"]\n[dns]\nservers = [\"127.0.0.1:9\"]\n"
        .to_owned();
    for (number, rate) in aircraft {
        let key = secret(*number).public();
        text += &format!(
            "[[aircraft]]\nname = \"D-{number}\"\npublic-key = \"{key}\"\nrate = \"{rate} Mbit/s\"\n"
        );
    }
    GroundConfig::parse(&folder.join("ground.toml"), &text).unwrap()
}

fn air(number: u8, ground: SocketAddr, first_counter: u64) -> Air {
    let socket = bind_udp("link", "127.0.0.1:0".parse().unwrap()).unwrap();
    let settings = Settings { rate: BitRate::from_bps(50_000_000), ..Settings::default() };
    let (secret, hub) = (secret(number), secret(GROUND).public());
    let config = AirConfig { secret, hub, address: ground, settings, first_counter };
    Air::start(Box::new(UdpSocket::from_std(socket).unwrap()), config)
}

fn open(target: SocketAddr) -> Open {
    let target = target.to_string().parse().unwrap();
    let (class, first) = (Class::BestEffort, Bytes::new());
    Open { target, class, passenger: 1, claim: None, first }
}

/// Sends a step, and compares what comes back, until `is_over` and once more. Returns the bytes.
async fn transfer(air: Air, target: SocketAddr, is_over: Arc<AtomicBool>, steps: Arc<AtomicU64>) {
    let mut flow = air.open(open(target)).await.unwrap();
    let mut seed = 1_u8;
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        let body: Vec<u8> = (0..STEP).map(|at| (at % 251) as u8 ^ seed).collect();
        flow.write_all(&body).await.expect("no reset");
        let mut back = vec![0; STEP];
        flow.read_exact(&mut back).await.expect("no reset");
        assert!(back == body, "bytes were lost");
        seed = seed.wrapping_add(1);
        steps.fetch_add(1, Ordering::Relaxed);
        if is_last {
            break;
        }
    }
    flow.shutdown().await.unwrap();
    let mut rest = Vec::new();
    flow.read_to_end(&mut rest).await.expect("no reset");
    assert!(rest.is_empty());
}

/// A running ground, and requests to it.
struct Running {
    acceptors: Vec<Arc<dyn Acceptor>>,
    again: mpsc::Sender<Command<GroundConfig>>,
    ground: Ground,
}

impl Running {
    fn start(config: GroundConfig) -> Self {
        let acceptors = transports::acceptor(&config, &mut Inherited::default()).unwrap();
        let ground = Ground::new(&config).unwrap();
        let (again, requests) = mpsc::channel(1);
        let (served, gateway) = (acceptors.clone(), ground.clone());
        tokio::spawn(async move {
            run_over(&config, &gateway, served, requests, std::future::pending()).await.unwrap();
        });
        Self { acceptors, again, ground }
    }

    async fn reload(&self, config: GroundConfig) -> Outcome {
        let (request, outcome) = Command::new(Asked::Config(config));
        self.again.send(request).await.unwrap();
        soon("the outcome", outcome).await.unwrap()
    }

    fn has_session(&self, key: &PublicKey) -> bool {
        let none = SnapshotLimits { passengers: 0, flows: 0 };
        self.acceptors[0].traffic(key, none).is_some()
    }

    fn rate(&self, number: u8) -> u64 {
        let none = SnapshotLimits { passengers: 0, flows: 0 };
        let traffic = self.acceptors[0].traffic(&secret(number).public(), none);
        traffic.unwrap().sending.rate.unwrap().bps()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_flows_do_not_notice_that_others_come_change_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let steady = || (1..=STEADY).map(|number| (number, 50));
    let with = |others: &[(u8, u32)]| {
        let aircraft: Vec<_> = steady().chain(others.iter().copied()).collect();
        config(folder.path(), &aircraft)
    };
    let (leaves, changes) = (90, 91);
    let running = Running::start(with(&[(leaves, 20), (changes, 20)]));
    let ground = running.acceptors[0].local_addr().unwrap();
    let echo = echo("127.0.0.1:0").await;
    let (is_over, steps) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let mut flows = JoinSet::new();
    for number in 1..=STEADY {
        let air = air(number, ground, 1);
        for _ in 0..FLOWS {
            flows.spawn(transfer(air.clone(), echo, is_over.clone(), steps.clone()));
        }
    }
    let [leaving, changing] = [leaves, changes].map(|number| air(number, ground, 1));
    let mut lost = leaving.open(open(echo)).await.unwrap();
    let mut kept = changing.open(open(echo)).await.unwrap();
    for flow in [&mut lost, &mut kept] {
        flow.write_all(b"here").await.unwrap();
        soon("an echo", flow.read_exact(&mut [0; 4])).await.unwrap();
    }
    // All fifty are under way between any two changes.
    let progress = async |steps: &AtomicU64| {
        let goal = steps.load(Ordering::Relaxed) + u64::from(STEADY) * FLOWS as u64;
        until("the flows go on", || steps.load(Ordering::Relaxed) >= goal).await;
    };
    let mut others = vec![(leaves, 20), (changes, 20)];
    for round in 0..10 {
        progress(&steps).await;
        others.extend((0..10).map(|at| (100 + round * 10 + at, 1)));
        others.iter_mut().for_each(|(_, rate)| *rate += 1);
        let lines = running.reload(with(&others)).await.unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(running.rate(changes), u64::from(others[1].1) * 1_000_000);
    }
    assert!(running.has_session(&secret(leaves).public()));
    // A mistake changes nothing.
    let mut wrong = with(&[]);
    wrong.aircraft[0].mtu = Some(576);
    let error = running.reload(wrong).await.unwrap_err();
    assert!(error.contains("stays as it was") && error.contains("1280"), "{error}");
    assert!(running.has_session(&secret(leaves).public()));
    // A new key ends the session of the old one, and the new one is served.
    progress(&steps).await;
    running.reload(with(&[(changes, 20), (92, 5)])).await.unwrap();
    assert!(!running.has_session(&secret(leaves).public()));
    let ended = soon("its end", lost.read(&mut [0; 4])).await;
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(lost.reset_code(), Some(ResetCode::Lost));
    let replaced = air(92, ground, 1);
    let mut flow = soon("the new key", replaced.open(open(echo))).await.unwrap();
    flow.write_all(b"new").await.unwrap();
    soon("an echo", flow.read_exact(&mut [0; 3])).await.unwrap();
    kept.write_all(b"same").await.unwrap();
    soon("an echo", kept.read_exact(&mut [0; 4])).await.unwrap();
    progress(&steps).await;
    is_over.store(true, Ordering::Relaxed);
    let all = soon("the end of all flows", flows.join_all()).await;
    assert_eq!(all.len(), usize::from(STEADY) * FLOWS);
    until("only flows of the changed aircraft are left", || running.ground.open_flows() <= 2).await;
}

#[tokio::test]
async fn a_removed_aircraft_loses_its_flows_over_every_transport() {
    for (over, waiting) in [(over_http3 as fn(&Configs) -> Ends, 0), (over_aerotcp, 1)] {
        let configs = configs();
        let (connector, acceptor) = over(&configs);
        let (ground, acceptors) = (Ground::new(&configs.ground).unwrap(), vec![acceptor]);
        let (gateway, served) = (ground.clone(), acceptors.clone());
        tokio::spawn(async move { gateway.serve(served, std::future::pending()).await });
        let mut flow = connector.open(open(echo("127.0.0.1:0").await)).await.unwrap();
        flow.write_all(b"here").await.unwrap();
        soon("an echo", flow.read_exact(&mut [0; 4])).await.unwrap();
        assert_eq!(ground.open_flows(), 1);
        let mut without = configs.ground.clone();
        without.aircraft.clear();
        let changes = ground.apply(&configs.ground, &without, &acceptors).unwrap();
        assert_eq!((changes.removed, changes.waiting.len()), (1, waiting), "{changes:?}");
        let ended = soon("its end", flow.read(&mut [0; 4])).await;
        assert!(ended.is_err(), "{ended:?}");
        until("nothing is left", || ground.open_flows() == 0).await;
    }
}
