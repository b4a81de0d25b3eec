//! DSCP and ECN marks on real sockets, read by a relay between the two ends.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::io::{Air, Arrived, Flow, Hub, Open, UdpSocket};
use bentpipe_link::{AirConfig, Aircraft, Class, Dscp, HubConfig, SecretKey, Settings};
use bentpipe_units::BitRate;
use bytes::Bytes;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
const FLOW_BYTES: usize = 100_000;

/// Datagrams from the air: mark, ECN bits and length of each.
type Seen = Arc<Mutex<Vec<(Dscp, u8, usize)>>>;

/// Relays everything between the air, which calls first, and `hub`.
struct Between {
    address: SocketAddr,
    seen: Seen,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Between {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn receive(socket: &tokio::net::UdpSocket, buffer: &mut [u8]) -> nix::Result<(usize, u8)> {
    let mut control = nix::cmsg_space!(i32, i32);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let fd = socket.as_raw_fd();
    let got = recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut control), flags)?;
    let field = got.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4Tos(field) => Some(field),
        ControlMessageOwned::Ipv6TClass(field) => u8::try_from(field).ok(),
        _ => None,
    });
    Ok((got.bytes, field.expect("the kernel was asked for it")))
}

async fn between(ip: &str, hub: SocketAddr) -> Between {
    let bind = async || tokio::net::UdpSocket::bind((ip, 0)).await.unwrap();
    let (front, back) = (bind().await, bind().await);
    match hub {
        SocketAddr::V4(_) => setsockopt(&front, sockopt::IpRecvTos, &true).unwrap(),
        SocketAddr::V6(_) => setsockopt(&front, sockopt::Ipv6RecvTClass, &true).unwrap(),
    }
    let (address, seen) = (front.local_addr().unwrap(), Seen::default());
    let sees = seen.clone();
    let task = tokio::spawn(async move {
        let mut air = None;
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            tokio::select! {
                ready = front.readable() => {
                    ready.unwrap();
                    if air.is_none() {
                        air = front.peek_from(&mut [0; 1]).await.ok().map(|(_, from)| from);
                    }
                    let got = || receive(&front, &mut up).map_err(Into::into);
                    let Ok((bytes, field)) = front.try_io(Interest::READABLE, got) else { continue };
                    let dscp = Dscp::from_traffic_class(field);
                    sees.lock().push((dscp, field & 3, bytes));
                    back.send_to(&up[..bytes], hub).await.unwrap();
                }
                Ok((bytes, _)) = back.recv_from(&mut down) => {
                    if let Some(air) = air {
                        front.send_to(&down[..bytes], air).await.unwrap();
                    }
                }
            }
        }
    });
    Between { address, seen, task }
}

/// Both ends, and the relay between them.
struct Ends {
    air: Air,
    hub: Hub,
    between: Between,
}

async fn ends(ip: &str, marks: bool, settings: Settings) -> Ends {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let (air, hub) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng));
    let socket = || std::net::UdpSocket::bind((ip, 0)).unwrap();
    let marked = |socket| Box::new(UdpSocket::from_std(socket).unwrap().with_marks(marks));
    let hub_socket = socket();
    let between = between(ip, hub_socket.local_addr().unwrap()).await;
    let (key, public) = (air.public(), hub.public());
    let aircraft = Aircraft { key, settings: settings.clone(), highest_class: Class::Operator };
    let hub = Hub::start(marked(hub_socket), HubConfig { secret: hub, aircraft: vec![aircraft] });
    let address = between.address;
    let config = AirConfig { secret: air, hub: public, address, settings, first_counter: 1 };
    Ends { air: Air::start(marked(socket()), config), hub, between }
}

impl Ends {
    async fn open(&self, class: Class) -> (Flow, Flow) {
        let target = "origin.example:80".parse().unwrap();
        let open = Open { target, class, passenger: 1, claim: None, first: Bytes::new() };
        let mut here = self.air.open(open).await.unwrap();
        here.write_all(b"!").await.unwrap();
        let Some(Arrived::Stream(mut there)) = self.hub.accept().await else { panic!("no flow") };
        assert_eq!(there.flow.read_u8().await.unwrap(), b'!');
        (here, there.flow)
    }

    /// Sends [`FLOW_BYTES`]. Returns the number of bytes marked with `dscp` meanwhile.
    async fn send(&self, (here, there): &mut (Flow, Flow), dscp: Dscp) -> usize {
        let before = self.between.seen.lock().len();
        let mut all = vec![0; FLOW_BYTES];
        here.write_all(&vec![7; FLOW_BYTES]).await.unwrap();
        there.read_exact(&mut all).await.unwrap();
        let seen = self.between.seen.lock();
        let marked = seen[before..].iter().filter(|(seen, ..)| *seen == dscp);
        marked.map(|(_, _, bytes)| bytes).sum()
    }
}

/// Sends a flow of every class, one after another. Returns the number of correctly marked bytes of
/// each.
async fn flows(ip: &str, marks: bool, settings: Settings) -> (Seen, Vec<(Class, usize)>) {
    let ends = ends(ip, marks, settings).await;
    let mut of_classes = Vec::new();
    for class in Class::ALL {
        let mut flow = ends.open(class).await;
        let wanted = if marks { class.dscp() } else { Dscp::DF };
        of_classes.push((class, ends.send(&mut flow, wanted).await));
    }
    (ends.between.seen.clone(), of_classes)
}

fn settings() -> Settings {
    let initial_rtt = Duration::from_millis(50);
    Settings { rate: BitRate::from_bps(100_000_000), initial_rtt, ..Settings::default() }
}

#[tokio::test]
async fn packets_are_marked_by_their_contents() {
    for ip in ["127.0.0.1", "::1"] {
        let (seen, of_classes) = timeout(PATIENCE, flows(ip, true, settings())).await.unwrap();
        for (class, bytes) in of_classes {
            // A packet with a report in it is never marked as lower effort.
            let min = FLOW_BYTES * if class == Class::LowerEffort { 3 } else { 4 } / 4;
            assert!(bytes >= min, "{ip}: {bytes} bytes as {class}");
        }
        let seen = seen.lock();
        assert_eq!(seen[0].0, Dscp::EF, "the handshake");
        let mut marks = BTreeMap::<Dscp, usize>::new();
        for (dscp, ecn, _) in &*seen {
            assert_eq!(*ecn, 0, "a leased path is not ECN-capable");
            *marks.entry(*dscp).or_default() += 1;
        }
        let classes = Class::ALL.map(Class::dscp);
        assert!(marks.keys().all(|mark| classes.contains(mark)), "{marks:?}");
    }
}

#[tokio::test]
async fn marks_coexist_with_ecn() {
    let control = bentpipe_link::Control::Congestion;
    let settings = Settings { control, ..settings() };
    let (seen, of_classes) = timeout(PATIENCE, flows("127.0.0.1", true, settings)).await.unwrap();
    assert!(of_classes.iter().all(|(_, bytes)| *bytes > 0), "{of_classes:?}");
    let seen = seen.lock();
    let ect = |wanted: Dscp| seen.iter().any(|(dscp, ecn, _)| *dscp == wanted && *ecn == 2);
    assert!(Class::ALL.into_iter().all(|class| ect(class.dscp())), "ECT(0) in every class");
}

#[tokio::test]
async fn without_marks_all_packets_look_alike() {
    let (seen, _) = timeout(PATIENCE, flows("127.0.0.1", false, settings())).await.unwrap();
    let seen = seen.lock();
    assert!(!seen.is_empty() && seen.iter().all(|(dscp, ..)| *dscp == Dscp::DF));
}

#[tokio::test]
async fn bytes_after_a_demotion_are_sent_in_the_other_class() {
    let ends = ends("127.0.0.1", true, settings()).await;
    let mut flow = ends.open(Class::Network).await;
    assert!(timeout(PATIENCE, ends.send(&mut flow, Dscp::EF)).await.unwrap() >= FLOW_BYTES);
    flow.0.demote(Class::BestEffort);
    assert!(timeout(PATIENCE, ends.send(&mut flow, Dscp::DF)).await.unwrap() >= FLOW_BYTES);
    // A demotion to a more favoured class has no effect.
    flow.0.demote(Class::Operator);
    assert!(timeout(PATIENCE, ends.send(&mut flow, Dscp::DF)).await.unwrap() >= FLOW_BYTES);
}
