//! A device that invents sources, with real kernels. A seat, the gateways and the radio's side each
//! have their own network namespace.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::refusals::Limit;
use bentpipe_net::Inherited;
use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use socket2::{Domain, Socket, Type};

use crate::bench::until;
use crate::dns::query;
use crate::tproxy::{PATIENCE, as_root, sh};
use crate::tproxy_udp::{connect, finished, namespace};
use crate::transports::{cabin_configs, over_link, start_ground};

const RESOLVER: &str = "10.9.0.1:53";

/// Number of sources outside of the cabin's network.
const SOURCES: u16 = 1_024;

/// A device behind a router in the cabin; the seat is the router.
const ROUTED: Ipv4Addr = Ipv4Addr::new(10, 7, 1, 5);

const SEAT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// Answers to invented sources, counted where they would leave.
const WATCH: &str = "nft add table inet watch\n\
    nft 'add chain inet watch output { type filter hook output priority 0; }'\n\
    nft add rule inet watch output ip daddr 203.0.112.0/20 counter\n\
    nft add rule inet watch output ip6 daddr 2001:db8:ffff::/48 counter";

#[test]
fn invented_sources_take_no_names_from_passengers_and_get_no_answers() {
    as_root("spoofed::invented_sources_take_no_names_from_passengers_and_get_no_answers", || {
        crate::tproxy::new_network();
        let (seat, seat_go, seat_done) = namespace(|| {
            sh("ip addr add 10.9.0.2/24 dev seat0\n\
                ip addr add 10.7.1.5/32 dev lo\n\
                ip addr add fd09::2/64 dev seat0 nodad\n\
                ip link set seat0 up\n\
                ip route add default via 10.9.0.1\n\
                ip -6 route add default via fd09::1");
            passengers();
        });
        // Its interface exists until the sender is dropped, and answers to nothing.
        let (send_over, over) = mpsc::channel::<()>();
        let (radio, radio_go, _radio) = namespace(move || {
            sh("ip link set net0 up");
            let _ = over.recv();
        });
        connect(seat, radio);
        radio_go.send(()).unwrap();
        sh("ip route add 10.7.0.0/16 via 10.9.0.2\n\
            ip neigh add 10.8.0.2 lladdr 02:00:00:00:00:01 dev world0\n\
            ip -6 neigh add fd08::2 lladdr 02:00:00:00:00:01 dev world0");
        sh(WATCH);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(gateways(seat_go, &seat_done));
        drop(send_over);
        let watched = sh("nft list table inet watch");
        assert_eq!(watched.matches("counter packets 0 ").count(), 2, "{watched}");
    });
}

async fn gateways(client: mpsc::Sender<()>, done: &mpsc::Receiver<()>) {
    let mut configs = cabin_configs(&format!("dns = {{ listen = [\"{RESOLVER}\"] }}"), "");
    let servers = vec![name_server().await.to_string().parse().unwrap()];
    configs.ground.dns.servers = servers;
    let (connector, acceptor) = over_link(&configs);
    start_ground(&configs, acceptor);
    let air = Air::bind(&configs.air, &mut Inherited::default(), connector).unwrap();
    let counters = air.counters();
    air.serve(async {
        finished(client, done).await;
        // 251 sources of one device, of which 128 are a burst.
        let dropped = || counters.refusals.count_refused(Limit::NewSources);
        until("the kernel's drops are counted", || dropped() > 0).await;
        let rules = sh("nft list chain inet bentpipe_air cabin");
        let dropped = rules.lines().filter(|line| line.contains("oif missing counter"));
        let effective = dropped.filter(|line| !line.contains("counter packets 0 "));
        assert_eq!(effective.count(), 2, "both families\n{rules}");
    })
    .await;
}

/// A name server on loopback that answers about names of passengers only.
async fn name_server() -> SocketAddr {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let asked = Message::from_vec(&buffer[..length]).unwrap();
            let name = asked.queries[0].name().clone();
            if !name.to_ascii().starts_with("honest") {
                continue;
            }
            let mut answer = Message::response(asked.metadata.id, OpCode::Query);
            answer.add_queries(asked.queries);
            answer.metadata.recursion_available = true;
            answer.add_answer(Record::from_rdata(name, 300, RData::A(A(Ipv4Addr::LOCALHOST))));
            socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    address
}

/// The seat's side.
fn passengers() {
    let mut fresh = (0..).map(|n| format!("honest{n}.test."));
    // The link may not be up yet.
    let first = fresh.next().unwrap();
    while resolve(SEAT, &first) != ResponseCode::NoError {
        std::thread::sleep(Duration::from_millis(100));
    }
    for source in outside() {
        syn(source, "198.51.100.7:443");
        syn(source, RESOLVER);
    }
    // The kernel discovers the gateway only for a source of the seat.
    let seat = UdpSocket::bind("[fd09::2]:0").unwrap();
    seat.connect("[fd09::1]:9").unwrap();
    seat.set_read_timeout(Some(PATIENCE)).unwrap();
    seat.send(b"anybody?").unwrap();
    let refused = seat.recv(&mut [0]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    for n in 0..16 {
        let source = format!("2001:db8:ffff:{n:x}::7").parse().unwrap();
        syn(source, "[2001:db8:7::7]:443");
        syn(source, "[fd09::1]:53");
    }
    let outside = outside().zip(0_u32..).map(|(source, n)| (source, format!("silent{n}.test.")));
    let inside = (3..=253).map(|n| IpAddr::from([10, 9, 0, n])).map(|ip| (ip, first.clone()));
    for sources in [outside.collect::<Vec<_>>(), inside.collect()] {
        let flood = Flood::start(sources);
        for name in fresh.by_ref().take(3) {
            assert_eq!(resolve(SEAT, &name), ResponseCode::NoError, "{name}");
            flood.goes_on();
        }
        // A router's clients are known by the route to them.
        let name = fresh.next().unwrap();
        assert_eq!(resolve(ROUTED, &name), ResponseCode::NoError, "{name}");
    }
}

/// Invented sources outside of the cabin's network.
fn outside() -> impl Iterator<Item = IpAddr> {
    (0..SOURCES).map(|n| IpAddr::from([203, 0, 112 + (n >> 8) as u8, n as u8]))
}

/// Result of a query, repeated until it is answered.
fn resolve(from: Ipv4Addr, name: &str) -> ResponseCode {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect(RESOLVER).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let question = query(name, RecordType::A).to_vec().unwrap();
    let mut buffer = [0; 2048];
    for _ in 0..10 {
        socket.send(&question).unwrap();
        if let Ok(length) = socket.recv(&mut buffer) {
            return Message::from_vec(&buffer[..length]).unwrap().metadata.response_code;
        }
    }
    panic!("{name} is not answered");
}

/// A socket that sends from `source`, which the seat does not have.
fn invented(source: IpAddr, kind: Type) -> Socket {
    let source = SocketAddr::new(source, 0);
    let socket = Socket::new(Domain::for_address(source), kind, None).unwrap();
    if source.is_ipv4() {
        socket.set_ip_transparent_v4(true).unwrap();
    } else {
        socket.set_ip_transparent_v6(true).unwrap();
    }
    socket.bind(&source.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Begins a TCP handshake.
pub fn syn(source: IpAddr, to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let error = invented(source, Type::STREAM).connect(&to.into()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS), "{error}");
}

/// Queries from invented sources, about one a millisecond, until it is dropped.
struct Flood {
    rounds: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Flood {
    /// Starts a flood of queries, each from a source for a name. Returns after all were sent twice.
    fn start(queries: Vec<(IpAddr, String)>) -> Self {
        let (rounds, is_over) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let (counted, ends) = (rounds.clone(), is_over.clone());
        let resolver: SocketAddr = RESOLVER.parse().unwrap();
        // The sockets belong to the network namespace of the thread, which its children inherit.
        let thread = std::thread::spawn(move || {
            while !ends.load(SeqCst) {
                for (source, name) in &queries {
                    let question = query(name, RecordType::A).to_vec().unwrap();
                    let socket = invented(*source, Type::DGRAM);
                    socket.send_to(&question, &resolver.into()).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
                counted.fetch_add(1, SeqCst);
            }
        });
        let flood = Self { rounds, is_over, thread: Some(thread) };
        flood.goes_on();
        flood.goes_on();
        flood
    }

    /// Waits for the end of the current round.
    fn goes_on(&self) {
        let (rounds, began) = (self.rounds.load(SeqCst), std::time::Instant::now());
        while self.rounds.load(SeqCst) == rounds {
            assert!(began.elapsed() < PATIENCE, "the flood has stopped");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        // A failure is reported by the thread; another panic here would hide its reason.
        drop(ended);
    }
}
