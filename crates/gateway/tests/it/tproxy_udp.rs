//! Interception of UDP with real kernels. A seat, the cabin's gateway with a ground gateway, and a
//! router with an origin each have their own network namespace.
//!
//! ```text
//! seat0 10.9.0.2 ── cabin0 10.9.0.1 (gateway) world0 10.8.0.1 ── net0 10.8.0.2 (router, origin)
//! ```

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::ground::Ground;
use bentpipe_link::{Class, Dscp};
use bentpipe_net::Inherited;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, getsockopt, recvmsg,
    setsockopt, sockopt,
};

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;

use crate::dns;
use crate::marks::{mark, receive};
use crate::tproxy::{PATIENCE, as_root, new_network, sh};
use crate::wire::{self, MAX_DATAGRAM_BYTES};

/// Addresses of the origin, in both families.
const ORIGINS: [&str; 2] = ["198.51.100.7:4000", "[2001:db8:7::7]:4000"];
/// Addresses beyond the router that nobody has.
const BEYOND: [&str; 2] = ["203.0.113.9:33434", "[2001:db8:9::9]:33434"];
/// The gateway, as seen from seats.
const GATEWAY: [&str; 2] = ["10.9.0.1", "fd09::1"];
/// The router, as seen from the ground gateway.
const ROUTER: [&str; 2] = ["10.8.0.2", "fd08::2"];

#[test]
fn answers_come_from_where_the_client_sent_to() {
    as_root("tproxy_udp::answers_come_from_where_the_client_sent_to", || {
        let counters = world("", || {
            for origin in ORIGINS {
                let seat = seat(origin);
                for text in [&b"first"[..], b"", b"third"] {
                    assert_eq!(asks(&seat, text)[2..], *text, "{origin}");
                }
            }
            // One external port for two destinations.
            let seat = UdpSocket::bind("0.0.0.0:0").unwrap();
            let ports = ["198.51.100.7:4000", "198.51.100.7:4001"].map(|origin| {
                seat.connect(origin).unwrap();
                asks(&seat, b"port?")[..2].to_vec()
            });
            assert_eq!(ports[0], ports[1]);
        });
        assert_eq!(counters.air.datagram_flows.get(), 4);
        assert_eq!(counters.air.datagrams_to_link.get(), 8);
        assert_eq!(counters.air.datagrams_from_link.get(), 8);
    });
}

/// Any resolver that a passenger configures is answered by the cabin.
#[test]
fn names_are_answered_on_board_whoever_is_asked() {
    as_root("tproxy_udp::names_are_answered_on_board_whoever_is_asked", || {
        let counters = world("[dns]", || {
            let question = dns::query("www.gov.uk.", RecordType::A);
            for resolver in ["203.0.113.53:53", "[2001:db8:9::53]:53", "203.0.113.54:53"] {
                let seat = seat(resolver);
                seat.send(&question.to_vec().unwrap()).unwrap();
                let mut buffer = [0; 1500];
                let length = seat.recv(&mut buffer).unwrap();
                let answer = Message::from_vec(&buffer[..length]).unwrap();
                let ip: IpAddr = "198.51.100.7".parse().unwrap();
                assert_eq!(answer.answers[0].data.ip_addr(), Some(ip), "{resolver}");
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut tcp = tokio::net::TcpStream::connect("203.0.113.53:53").await.unwrap();
                dns::write(&mut tcp, &question).await;
                let answer = dns::read(&mut tcp).await.unwrap();
                assert_eq!(answer.answers.len(), 1);
            });
        });
        // Only the resolver's own flow has crossed.
        assert_eq!((counters.air.datagram_flows.get(), counters.ground.names_asked.get()), (0, 1));
    });
}

#[test]
fn large_packets_tell_the_mtu() {
    as_root("tproxy_udp::large_packets_tell_the_mtu", || {
        let counters = world("", || {
            let most = MAX_DATAGRAM_BYTES - 2;
            for (origin, headers) in [(ORIGINS[0], 28), (ORIGINS[1], 48)] {
                let seat = seat(origin);
                hear_errors(&seat);
                assert_eq!(asks(&seat, b"open")[2..], *b"open");
                if !is_v4(&seat) {
                    setsockopt(&seat, sockopt::Ipv6DontFrag, &true).unwrap();
                }
                seat.send(&[7; 1400]).unwrap();
                assert_eq!(error(&seat).mtu as usize, most + headers, "{origin}");
                // The kernel has learned it for all senders.
                if is_v4(&seat) {
                    assert_eq!(getsockopt(&seat, sockopt::IpMtu).unwrap() as usize, most + headers);
                } else {
                    let refused = seat.send(&[7; 1400]).unwrap_err();
                    assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
                }
                let fits = vec![7; most - 2];
                let answer = asks(&seat, &fits);
                assert_eq!(answer[2..], fits, "{origin}");
            }
        });
        assert_eq!(counters.air.datagrams_too_large.get(), 2);
    });
}

/// A client's kernel may combine several datagrams on sending, and on receiving.
#[test]
fn datagrams_that_travel_together_cross_one_by_one() {
    as_root("tproxy_udp::datagrams_that_travel_together_cross_one_by_one", || {
        let counters = world("", || {
            for origin in ORIGINS {
                let seat = seat(origin);
                setsockopt(&seat, sockopt::UdpGsoSegment, &400).unwrap();
                setsockopt(&seat, sockopt::UdpGroSegment, &true).unwrap();
                let sent: Vec<u8> = (0..5).flat_map(|n| [n; 400]).take(1900).collect();
                seat.send(&sent).unwrap();
                let mut came = Vec::new();
                // Two bytes before each tell the port it came from.
                while came.len() < sent.len() + 5 * 2 {
                    let mut buffer = [0; 4096];
                    let length = seat.recv(&mut buffer).expect("the origin's answers");
                    came.extend_from_slice(&buffer[..length]);
                }
                let answers = came.chunks(402).map(|answer| &answer[2..]);
                assert!(answers.eq(sent.chunks(400)), "{origin}");
            }
        });
        assert_eq!(
            (counters.air.datagram_flows.get(), counters.air.datagrams_to_link.get()),
            (2, 10)
        );
        assert_eq!(counters.air.datagrams_too_large.get(), 0);
    });
}

#[test]
fn hops_are_counted_and_the_gateway_is_the_first() {
    as_root("tproxy_udp::hops_are_counted_and_the_gateway_is_the_first", || {
        let counters = world("", || {
            for (family, beyond) in BEYOND.into_iter().enumerate() {
                let exceeded = [11, 3][family];
                for (hops, by) in [(1, GATEWAY[family]), (2, ROUTER[family])] {
                    let seat = seat(beyond);
                    hear_errors(&seat);
                    set_hop_limit(&seat, hops);
                    seat.send(b"probe").unwrap();
                    let error = error(&seat);
                    assert_eq!((error.kind, error.code), (exceeded, 0), "{beyond}");
                    assert_eq!(error.from, by.parse::<IpAddr>().unwrap(), "{beyond} {hops}");
                }
                // A closed port of the origin is reported by the origin itself.
                let mut closed: SocketAddr = ORIGINS[family].parse().unwrap();
                closed.set_port(9);
                let seat = seat(&closed.to_string());
                hear_errors(&seat);
                seat.send(b"anybody?").unwrap();
                let error = error(&seat);
                assert_eq!((error.kind, error.code), [(3, 3), (1, 4)][family]);
                assert_eq!(error.from, closed.ip());
            }
        });
        assert_eq!(counters.ground.icmp_sent.get(), 4);
        assert_eq!(counters.air.icmp_sent.get(), 6);
    });
}

#[test]
fn refused_quic_fails_at_once() {
    as_root("tproxy_udp::refused_quic_fails_at_once", || {
        let counters = world("quic = \"reject\"", || {
            for origin in ["198.51.100.7:443", "[2001:db8:7::7]:443"] {
                let seat = seat(origin);
                seat.send(b"\xc3\0\0\0\x01\x08\x01\x02\x03\x04\x05\x06\x07\x08").unwrap();
                let refused = seat.recv(&mut [0; 64]).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{origin}");
            }
            let other = seat(ORIGINS[0]);
            assert_eq!(asks(&other, b"not QUIC")[2..], *b"not QUIC");
        });
        assert_eq!(counters.air.quic_rejected.get(), 2);
        assert_eq!(counters.air.datagram_flows.get(), 1);
    });
}

#[test]
fn marks_are_read_and_answers_are_marked() {
    as_root("tproxy_udp::marks_are_read_and_answers_are_marked", || {
        let rule = "[[rule]]\ndscp = \"EF\"\nclass = \"network\"";
        let counters = world(rule, || {
            for origin in ORIGINS {
                for (sent, back) in [(Dscp::EF, Dscp::EF), (Dscp::AF42, Dscp::DF)] {
                    let seat = seat(origin);
                    mark(&seat, sent, !is_v4(&seat));
                    seat.send(b"?").unwrap();
                    let (_, _, dscp) = receive(&seat, MsgFlags::empty()).unwrap();
                    assert_eq!(dscp, back, "{sent} from {origin}");
                }
            }
        });
        assert_eq!(counters.air.flows_in(Class::Network), 2);
        assert_eq!(counters.air.flows_in(Class::BestEffort), 2);
    });
}

/// A socket of the seat that receives only from `origin`.
fn seat(origin: &str) -> UdpSocket {
    let origin: SocketAddr = origin.parse().unwrap();
    let any = if origin.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(origin).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends `text`; the origin answers with the source port it saw, then the same text.
fn asks(seat: &UdpSocket, text: &[u8]) -> Vec<u8> {
    seat.set_read_timeout(Some(PATIENCE)).unwrap();
    seat.send(text).unwrap();
    let mut buffer = [0; 2048];
    let length = seat.recv(&mut buffer).expect("the origin's answer");
    buffer[..length].to_vec()
}

pub fn is_v4(socket: &UdpSocket) -> bool {
    socket.local_addr().unwrap().is_ipv4()
}

pub fn hear_errors(socket: &UdpSocket) {
    if is_v4(socket) {
        setsockopt(socket, sockopt::Ipv4RecvErr, &true).unwrap();
    } else {
        setsockopt(socket, sockopt::Ipv6RecvErr, &true).unwrap();
    }
}

fn set_hop_limit(socket: &UdpSocket, hops: i32) {
    if is_v4(socket) {
        setsockopt(socket, sockopt::Ipv4Ttl, &hops).unwrap();
    } else {
        setsockopt(socket, sockopt::Ipv6Ttl, &hops).unwrap();
    }
}

/// An ICMP error received by a socket.
pub struct Heard {
    pub from: IpAddr,
    pub kind: u8,
    pub code: u8,
    pub mtu: u32,
}

pub fn error(socket: &UdpSocket) -> Heard {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(heard) = try_error(socket) {
            return heard;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("no ICMP error came");
}

fn try_error(socket: &UdpSocket) -> Option<Heard> {
    let mut bytes = [0; 2048];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let mut control = nix::cmsg_space!((libc::sock_extended_err, libc::sockaddr_in6));
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags);
    let message = message.ok()?;
    let heard = message.cmsgs().unwrap().find_map(|control| match control {
        ControlMessageOwned::Ipv4RecvErr(error, from) => {
            Some((error, from.map(|from| IpAddr::V4(SockaddrIn::from(from).ip()))))
        }
        ControlMessageOwned::Ipv6RecvErr(error, from) => {
            Some((error, from.map(|from| IpAddr::V6(SockaddrIn6::from(from).ip()))))
        }
        _ => None,
    });
    let (error, from) = heard.expect("an error in the queue of errors");
    let from = from.unwrap_or(IpAddr::from([0; 4]));
    Some(Heard { from, kind: error.ee_type, code: error.ee_code, mtu: error.ee_info })
}

/// Counters of both gateways.
struct Counted {
    air: Arc<Counters>,
    ground: Arc<Counters>,
}

/// Runs `client` in the seat's namespace; `listen` is added to the air's `[listen]`.
fn world(listen: &str, client: fn()) -> Counted {
    new_network();
    let (seat, seat_go, seat_done) = namespace(move || {
        sh("ip addr add 10.9.0.2/24 dev seat0\n\
            ip addr add fd09::2/64 dev seat0 nodad\n\
            ip link set seat0 up\n\
            ip route add default via 10.9.0.1\n\
            ip -6 route add default via fd09::1");
        client();
    });
    let (send_over, over) = mpsc::channel::<()>();
    let (send_up, up) = mpsc::channel::<()>();
    let (router, router_go, router_done) = namespace(move || {
        router();
        send_up.send(()).unwrap();
        over.recv_timeout(2 * PATIENCE).unwrap();
    });
    connect(seat, router);
    router_go.send(()).unwrap();
    up.recv_timeout(PATIENCE).expect("the router is up");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let counted = runtime.block_on(gateways(listen, seat_go, &seat_done));
    send_over.send(()).unwrap();
    router_done.recv_timeout(PATIENCE).expect("the router's side succeeds");
    counted
}

/// Connects this network with the seat's and the router's.
pub fn connect(seat: nix::unistd::Pid, router: nix::unistd::Pid) {
    sh(&format!(
        "ip link add cabin0 type veth peer name seat0 netns {seat}\n\
         ip addr add 10.9.0.1/24 dev cabin0\n\
         ip addr add fd09::1/64 dev cabin0 nodad\n\
         ip link set cabin0 up\n\
         ip link add world0 type veth peer name net0 netns {router}\n\
         ip addr add 10.8.0.1/24 dev world0\n\
         ip addr add fd08::1/64 dev world0 nodad\n\
         ip link set world0 up\n\
         ip route add default via 10.8.0.2\n\
         ip -6 route add default via fd08::2"
    ));
}

pub type Namespace = (nix::unistd::Pid, mpsc::Sender<()>, mpsc::Receiver<()>);

/// A thread in its own network that runs `work` when told to. Returns its ID, the channel to start
/// it, and the channel that reports success.
pub fn namespace(work: impl FnOnce() + Send + 'static) -> Namespace {
    let (send_tid, tid) = mpsc::channel();
    let (send_go, go) = mpsc::channel::<()>();
    let (send_done, done) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        new_network();
        send_tid.send(nix::unistd::gettid()).unwrap();
        go.recv_timeout(PATIENCE).unwrap();
        work();
        send_done.send(()).unwrap();
    });
    (tid.recv_timeout(PATIENCE).unwrap(), send_go, done)
}

/// Forwards packets, and answers at the origin's addresses.
fn router() {
    sh("ip addr add 10.8.0.2/24 dev net0\n\
        ip addr add fd08::2/64 dev net0 nodad\n\
        ip link set net0 up\n\
        ip addr add 198.51.100.7/32 dev lo\n\
        ip addr add 2001:db8:7::7/128 dev lo nodad\n\
        ip link add far0 type veth peer name far1\n\
        ip link set far0 up\n\
        ip link set far1 up\n\
        ip route add 203.0.113.0/24 dev far0\n\
        ip -6 route add 2001:db8:9::/64 dev far0\n\
        echo 1 >/proc/sys/net/ipv4/ip_forward\n\
        echo 1 >/proc/sys/net/ipv6/conf/all/forwarding\n\
        echo 0 >/proc/sys/net/ipv4/icmp_ratelimit\n\
        echo 0 >/proc/sys/net/ipv6/icmp/ratelimit");
    for address in [ORIGINS[0], ORIGINS[1], "198.51.100.7:4001"] {
        let socket = UdpSocket::bind(address).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            // Ends with the test's process.
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let answer = [&from.port().to_be_bytes()[..], &buffer[..length]].concat();
                socket.send_to(&answer, from).unwrap();
            }
        });
    }
}

/// Both gateways with an in-memory link, until the client is done.
async fn gateways(listen: &str, client: mpsc::Sender<()>, done: &mpsc::Receiver<()>) -> Counted {
    let folder = tempfile::tempdir().unwrap();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(folder.path().join("a.key"), key).unwrap();
    let air = format!(
        "[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n\
         [listen]\ntproxy = {{ port = 1081, interfaces = [\"cabin0\"] }}\n{listen}\n"
    );
    let air = AirConfig::parse(&folder.path().join("air.toml"), &air).unwrap();
    let ground = format!(
        "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{key}\"\nrate = \"2 Mbit/s\"\n\
         [dns]\nservers = [\"127.0.0.1:9\"]\n\
         [dial]\nallow = [\"198.51.100.0/24\", \"203.0.113.0/24\", \"2001:db8::/32\"]\n\
         [hosts]\n\"www.gov.uk\" = \"198.51.100.7\"\n"
    );
    let ground = GroundConfig::parse(&folder.path().join("ground.toml"), &ground).unwrap();
    let (up, down) = wire::link(*ground.aircraft[0].key.as_bytes());
    let air = Air::bind(&air, &mut Inherited::default(), up).unwrap();
    let ground = Ground::new(&ground).unwrap();
    let counted = Counted { air: air.counters(), ground: ground.counters() };
    tokio::spawn(async move { ground.serve(vec![down], std::future::pending()).await });
    air.serve(finished(client, done)).await;
    counted
}

/// Starts the client, and waits until it is done.
pub async fn finished(client: mpsc::Sender<()>, done: &mpsc::Receiver<()>) {
    client.send(()).unwrap();
    let began = Instant::now();
    loop {
        match done.try_recv() {
            Ok(()) => return,
            Err(mpsc::TryRecvError::Disconnected) => panic!("the client's side failed"),
            Err(mpsc::TryRecvError::Empty) => assert!(began.elapsed() < 2 * PATIENCE),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
