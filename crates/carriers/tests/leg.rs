//! The leg between a hub and an egress on loopback, over both transports: flows of an aircraft, an egress
//! that becomes silent, the directory, and peers without a right to it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bentpipe_carriers::{acceptor, connector};
use bentpipe_config::{AirConfig, GroundConfig};
use bentpipe_flow::{Class, Host, ResetCode, Service, Target};
use bentpipe_link::SecretKey;
use bentpipe_net::{Inherited, ip};
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::{
    Acceptor, Carried, Connector, FlowStream, GroundStanding, Incoming, Open, OpenDatagrams, Reach,
    wait_for_reach,
};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

const AIR: u8 = 1;
const HUB: u8 = 2;
const STRANGER: u8 = 3;
const EGRESS: u8 = 4;

/// Time within which everything happens, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time after which a datagram that may have been lost is sent again.
const REPEAT: Duration = Duration::from_millis(200);
/// More than the credit with which a flow begins.
const LONG: usize = 300_000;
const PASSENGER: u32 = 12;

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what} never happened"))
}

/// Transport of the leg.
#[derive(Clone, Copy)]
enum Leg {
    Http,
    Radio,
}

const LEGS: [Leg; 2] = [Leg::Http, Leg::Radio];

impl Leg {
    /// Setting of the egress with its address.
    fn listen(self) -> &'static str {
        match self {
            Self::Http => "masque-listen = \"127.0.0.1:0\"",
            Self::Radio => "listen = \"127.0.0.1:0\"",
        }
    }

    /// Name in the file of the hub.
    fn name(self) -> &'static str {
        match self {
            Self::Http => "masque",
            Self::Radio => "link",
        }
    }
}

fn secret(number: u8) -> SecretKey {
    SecretKey::from_bytes([number; 32])
}

fn write_key(folder: &Path, number: u8) -> String {
    let name = format!("{number}.key");
    std::fs::write(folder.join(&name), secret(number).to_base64()).unwrap();
    name
}

/// Starts a ground with key `number`. It serves the aircraft.
fn ground(folder: &Path, number: u8, listen: &str, rest: &str) -> Arc<dyn Acceptor> {
    let (key, air) = (write_key(folder, number), secret(AIR).public());
    let text = format!(
        "[link]\nprivate-key-file = \"{key}\"\n{listen}\n\
         [[aircraft]]\nname = \"D-AIR\"\npublic-key = \"{air}\"\n{rest}"
    );
    let config = GroundConfig::parse(&folder.join(format!("{number}.toml")), &text).unwrap();
    acceptor(&config, &mut Inherited::default()).unwrap().remove(0)
}

/// Origins of the flows that a ground has dialled: aircraft, passenger, and whether a hub forwards it.
type Seen = Arc<Mutex<Vec<([u8; 32], u32, bool)>>>;

/// Echoes every flow that the ground would dial.
fn play(acceptor: Arc<dyn Acceptor>) -> Seen {
    let seen = Seen::default();
    let noted = seen.clone();
    tokio::spawn(async move {
        while let Some(incoming) = acceptor.accept().await {
            let Incoming { aircraft, passenger, is_forwarded, carries, .. } = incoming;
            noted.lock().push((aircraft, passenger, is_forwarded));
            match carries {
                Carried::Stream(flow) => drop(tokio::spawn(echo(flow))),
                Carried::Datagrams { flow, .. } => drop(tokio::spawn(async move {
                    flow.connected();
                    while let Ok(datagram) = flow.receive().await {
                        if matches!(Datagram::parse(&datagram), Ok(Datagram::Payload(_))) {
                            let _ = flow.send(&datagram);
                        }
                    }
                })),
            }
        }
    });
    seen
}

async fn echo(mut flow: Box<dyn FlowStream>) {
    flow.connected();
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = flow.read(&mut bytes).await {
        if flow.write_all(&bytes[..count]).await.is_err() || flow.flush().await.is_err() {
            return;
        }
    }
    let _ = flow.shutdown().await;
}

/// An egress that serves the hub with key `hub`.
fn egress(folder: &Path, leg: Leg, hub: u8) -> Arc<dyn Acceptor> {
    let hub = format!("[[hub]]\npublic-key = \"{}\"\n", secret(hub).public());
    ground(folder, EGRESS, leg.listen(), &hub)
}

/// A path to an egress that can be cut without a word to either end.
struct Cable {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    /// The egress, which may restart elsewhere.
    to: watch::Sender<SocketAddr>,
}

impl Cable {
    async fn to(egress: SocketAddr) -> Self {
        let [near, far] = [UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0")];
        let (near, far) = (Arc::new(near.await.unwrap()), Arc::new(far.await.unwrap()));
        let (address, is_cut) = (near.local_addr().unwrap(), Arc::<AtomicBool>::default());
        let (to, egresses) = watch::channel(egress);
        let (hub, mut hubs) = watch::channel(None);
        let (cut, from, back) = (is_cut.clone(), near.clone(), far.clone());
        tokio::spawn(async move {
            let mut bytes = vec![0; 2_000];
            while let Ok((count, sender)) = from.recv_from(&mut bytes).await {
                hub.send_replace(Some(sender));
                let egress = *egresses.borrow();
                if !cut.load(Ordering::Relaxed) {
                    let _ = far.send_to(&bytes[..count], egress).await;
                }
            }
        });
        let cut = is_cut.clone();
        tokio::spawn(async move {
            let mut bytes = vec![0; 2_000];
            while let Ok(count) = back.recv(&mut bytes).await {
                let hub = *hubs.borrow_and_update();
                if let Some(hub) = hub.filter(|_| !cut.load(Ordering::Relaxed)) {
                    let _ = near.send_to(&bytes[..count], hub).await;
                }
            }
        });
        Self { address, is_cut, to }
    }
}

/// A hub whose egress is at `egress`.
fn hub(folder: &Path, leg: Leg, egress: SocketAddr) -> Arc<dyn Acceptor> {
    let (key, transport) = (secret(EGRESS).public(), leg.name());
    let rest = format!(
        "[[egress]]\npeer = \"{egress}\"\ntransport = \"{transport}\"\npublic-key = \"{key}\"\n"
    );
    ground(folder, HUB, "listen = \"127.0.0.1:0\"", &rest)
}

/// An aircraft and its hub.
struct Hub {
    air: Arc<dyn Connector>,
    seen: Seen,
}

impl Hub {
    /// A hub whose egress is at `egress`, and an aircraft with a session there.
    async fn start(folder: &Path, leg: Leg, egress: SocketAddr) -> Self {
        let hub = hub(folder, leg, egress);
        let air = call(folder, AIR, HUB, hub.local_addr().unwrap());
        soon("a session", wait_for_reach(&*air, |reach| reach == Reach::Up)).await;
        Self { air, seen: play(hub) }
    }
}

/// A gateway with key `number` that calls ground `peer` like an aircraft.
fn call(folder: &Path, number: u8, peer: u8, address: SocketAddr) -> Arc<dyn Connector> {
    let (key, peer) = (write_key(folder, number), secret(peer).public());
    let text = format!(
        "[link]\nprivate-key-file = \"{key}\"\npeer = \"{address}\"\npeer-public-key = \"{peer}\"\n\
         state-file = \"air-{number}.state\"\nkeep-flows = true\n[listen]\nsocks5 = \"127.0.0.1:0\"\n"
    );
    let air = AirConfig::parse(&folder.join(format!("air-{number}.toml")), &text).unwrap();
    connector(&air, &mut Inherited::default()).unwrap()
}

/// Destination that nobody dials: [`play`] answers.
fn target() -> Target {
    "192.0.2.7:80".parse().unwrap()
}

fn open(target: Target, first: &[u8]) -> Open {
    let (class, first) = (Class::BestEffort, Bytes::copy_from_slice(first));
    Open { target, class, passenger: PASSENGER, claim: None, first }
}

/// Opens a flow until it is answered: the hub may not have called its egress yet.
async fn answered(air: &dyn Connector) -> Box<dyn FlowStream> {
    soon("an answer", async {
        loop {
            let mut flow = air.open(open(target(), b"here")).await.unwrap();
            if flow.read_exact(&mut [0; 4]).await.is_ok() {
                return flow;
            }
        }
    })
    .await
}

/// Reason for which a flow ends without an answer.
async fn refusal(connector: &dyn Connector, open: Open) -> ResetCode {
    let mut flow = connector.open(open).await.unwrap();
    let read = soon("an end", flow.read(&mut [0; 4])).await;
    assert!(!matches!(read, Ok(1..)), "{read:?}");
    flow.reset_code().expect("a reset")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_datagrams_of_an_aircraft_reach_the_egress() {
    for leg in LEGS {
        let folder = tempfile::tempdir().unwrap();
        let egress = egress(folder.path(), leg, HUB);
        let address = egress.local_addr().unwrap();
        let (seen, hub) = (play(egress), Hub::start(folder.path(), leg, address).await);
        let mut flow = answered(&*hub.air).await;
        let body: Vec<u8> = (0..LONG).map(|at| (at % 251) as u8).collect();
        let mut back = vec![0; LONG];
        let (mut reader, mut writer) = tokio::io::split(&mut flow);
        let both = async { tokio::join!(writer.write_all(&body), reader.read_exact(&mut back)) };
        let (sent, received) = soon("an echo", both).await;
        assert!(sent.is_ok() && received.is_ok() && back == body);

        let open = OpenDatagrams {
            target: target(),
            protocol: ip::UDP,
            source: 5_000,
            class: Class::BestEffort,
            passenger: PASSENGER,
        };
        let flow = hub.air.open_datagrams(open).await.unwrap();
        let ping = Datagram::Payload(b"ping").encoded();
        soon("an echo of a datagram", async {
            loop {
                flow.send(&ping).unwrap();
                if let Ok(Ok(echo)) = timeout(REPEAT, flow.receive()).await {
                    return assert_eq!(echo, ping);
                }
            }
        })
        .await;
        let of_aircraft = (*secret(AIR).public().as_bytes(), PASSENGER, true);
        assert!(seen.lock().len() >= 2 && seen.lock().iter().all(|it| *it == of_aircraft));
        assert!(hub.seen.lock().is_empty(), "the hub only forwards");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_of_a_silent_egress_end_and_later_ones_work() {
    for leg in LEGS {
        let folder = tempfile::tempdir().unwrap();
        let first = egress(folder.path(), leg, HUB);
        let cable = Cable::to(first.local_addr().unwrap()).await;
        drop(play(first));
        let hub = Hub::start(folder.path(), leg, cable.address).await;
        let mut flow = answered(&*hub.air).await;

        cable.is_cut.store(true, Ordering::Relaxed);
        assert!(soon("its end", flow.read(&mut [0; 4])).await.is_err());
        assert_eq!(flow.reset_code(), Some(ResetCode::Unreachable), "nobody asks again");
        let code = refusal(&*hub.air, open(target(), b"here")).await;
        assert_eq!(code, ResetCode::Unreachable, "no egress is up");

        // Another process, which knows nothing of the one before.
        let next = egress(folder.path(), leg, HUB);
        cable.to.send_replace(next.local_addr().unwrap());
        drop(play(next));
        cable.is_cut.store(false, Ordering::Relaxed);
        answered(&*hub.air).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_and_its_egress_exchange_the_directory() {
    for leg in LEGS {
        let folder = tempfile::tempdir().unwrap();
        let egress = egress(folder.path(), leg, HUB);
        let hub = hub(folder.path(), leg, egress.local_addr().unwrap());
        drop([play(egress.clone()), play(hub.clone())]);
        let hears = |who: &dyn Acceptor, number| {
            let key = *secret(number).public().as_bytes();
            let of = |it: &GroundStanding| it.key == key && it.is_connected && it.age.is_some();
            who.grounds().iter().any(of)
        };
        soon("news of each other", async {
            while !hears(&*hub, EGRESS) || !hears(&*egress, HUB) {
                sleep(REPEAT).await;
            }
        })
        .await;
    }
}

/// Statement about `aircraft`, and the OPEN of a flow.
fn stated(aircraft: u8) -> Vec<u8> {
    let mut bytes = secret(aircraft).public().as_bytes().to_vec();
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(PASSENGER.to_be_bytes());
    bytes.extend([0xf7, 0x1d, 1]);
    bytes.extend([9; 16]);
    bytes.extend(0_u32.to_be_bytes());
    target().encode(&mut bytes).unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aircraft_cannot_state_another_and_a_hub_is_not_an_aircraft() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let egress = egress(folder, Leg::Radio, HUB);
    let address = egress.local_addr().unwrap();
    let seen = play(egress);
    let link = |number| {
        let key = write_key(folder, number);
        let text = format!(
            "[link]\nprivate-key-file = \"{key}\"\npeer = \"{address}\"\npeer-public-key = \"{}\"\n\
             state-file = \"air-{number}.state\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n",
            secret(EGRESS).public()
        );
        let file = folder.join(format!("plain-{number}.toml"));
        connector(&AirConfig::parse(&file, &text).unwrap(), &mut Inherited::default()).unwrap()
    };
    let (air, hub) = (link(AIR), link(HUB));
    let service = |service| Target { host: Host::Service(service), port: 0 };
    let anchor = || service(Service::Anchor);

    let code = refusal(&*air, open(anchor(), &stated(AIR))).await;
    assert_eq!(code, ResetCode::Internal, "an aircraft's carrier does not begin so");
    assert_eq!(refusal(&*hub, open(target(), b"here")).await, ResetCode::Forbidden);
    assert_eq!(refusal(&*hub, open(service(Service::Resolver), b"")).await, ResetCode::Forbidden);
    let mut short = hub.open(open(anchor(), &stated(AIR)[..43])).await.unwrap();
    short.shutdown().await.unwrap();
    assert!(soon("an end", short.read(&mut [0; 4])).await.is_err());
    assert_eq!(short.reset_code(), Some(ResetCode::Forbidden));
    assert!(seen.lock().is_empty());

    // The same bytes open a flow of the aircraft if a hub sends them.
    let mut flow = hub.open(open(anchor(), &stated(AIR))).await.unwrap();
    soon("an acceptance", flow.read_exact(&mut [0; 3])).await.unwrap();
    let of_aircraft = (*secret(AIR).public().as_bytes(), PASSENGER, true);
    assert_eq!(*seen.lock(), [of_aircraft]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_the_egress_does_not_list_reaches_nothing() {
    for leg in LEGS {
        let folder = tempfile::tempdir().unwrap();
        let egress = egress(folder.path(), leg, STRANGER);
        let address = egress.local_addr().unwrap();
        let (seen, hub) = (play(egress), Hub::start(folder.path(), leg, address).await);
        let code = refusal(&*hub.air, open(target(), b"here")).await;
        assert_eq!(code, ResetCode::Unreachable);
        assert!(seen.lock().is_empty() && hub.seen.lock().is_empty(), "nobody dials");
    }
}
