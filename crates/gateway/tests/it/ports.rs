//! Several aircraft need more external ports than the kernel has, in a namespace.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_flow::{Host, Service, Target};
use bentpipe_gateway::config::GroundConfig;
use bentpipe_gateway::ground::Ground;
use bentpipe_gateway::refusals::Limit;
use bentpipe_gateway::transport::{Acceptor, Connector, FlowDatagrams, Open, OpenDatagrams};
use bentpipe_link::{Class, SecretKey};
use bentpipe_net::ip;
use bytes::Bytes;
use futures_util::FutureExt;
use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::unconstrained;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use crate::bench::{echo, soon, until};
use crate::dns::{name_server, query};
use crate::site::origin_of;
use crate::tproxy::{as_root, new_network, sh};
use crate::udp;
use crate::web::whole;
use crate::wire::{self, Up};

const AIRCRAFT: u8 = 4;

/// Requested flows, over all aircraft.
const WANTED: u16 = 30_000;

/// Passengers' own ports in a range of 1,000.
const PORTS: usize = 438;

/// Objects of a page, with its document.
const OBJECTS: usize = 36;

/// Repetitions of its path in an object of 10 kB.
const OBJECT_REPEATS: usize = 1_100;

/// Ports of that range that passengers may not use.
const RESERVED: usize = 500;

struct Fleet {
    up: Vec<Arc<Up>>,
    ground: Ground,
}

#[test]
fn aircraft_share_the_ports_and_tcp_and_dns_have_theirs() {
    as_root("ports::aircraft_share_the_ports_and_tcp_and_dns_have_theirs", || {
        new_network();
        sh("echo 32768 33767 >/proc/sys/net/ipv4/ip_local_port_range");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let lines = Lines::default();
        // If there is only one subscriber, and another test's thread logs a line first, tracing never asks
        // for that line again. So there are two.
        let _second = Dispatch::new(Lines::default());
        let began = std::time::Instant::now();
        tracing::subscriber::with_default(lines.clone(), || runtime.block_on(storm()));
        lines.check(began.elapsed().as_secs());
    });
}

/// Lines of the log about external ports: the number of suppressed lines that each reports.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u64>>>);

impl Lines {
    /// Checks that there is a line, and at most one for each 10 s of `seconds`.
    fn check(&self, seconds: u64) {
        let lines = self.0.lock();
        let most = 1 + seconds / 10;
        assert!((1..=most as usize).contains(&lines.len()), "{lines:?} in {seconds} s");
        let told = lines.len() as u64 + lines.iter().sum::<u64>();
        assert!(told <= u64::from(WANTED), "{lines:?}");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, event: &Metadata<'_>) -> bool {
        event.is_event() && *event.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        if line.limit == Limit::UdpPorts.name() {
            self.0.lock().push(line.unsaid);
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    limit: String,
    unsaid: u64,
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "unsaid" {
            self.unsaid = value;
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "limit" {
            self.limit = format!("{value:?}");
        }
    }
}

async fn storm() {
    let page = origin_of(None, |path| whole("", &path.repeat(OBJECT_REPEATS))).await.0;
    let (names, _) = name_server().await;
    let (tcp, udp) = (echo("127.0.0.1:0").await, udp::echo("127.0.0.1:0").await);
    let fleet = start(names);
    let mut flows: Vec<Vec<_>> = fleet.up.iter().map(|_| Vec::new()).collect();
    for source in 1..=WANTED / u16::from(AIRCRAFT) {
        for (up, flows) in fleet.up.iter().zip(&mut flows) {
            let flow = up.open_datagrams(to(Host::Ip(udp.ip()), udp.port(), source)).await.unwrap();
            flow.send(b"\0anybody?").unwrap();
            flows.push(flow);
        }
        tokio::task::yield_now().await;
    }
    let counters = fleet.ground.counters();
    let count = |limit| {
        let refusals = &counters.refusals;
        (refusals.count_refused(limit), refusals.count_evicted(limit))
    };
    until("every flow was judged", || {
        counters.datagram_flows.get() + count(Limit::UdpPorts).0 == u64::from(WANTED)
    })
    .await;
    let open = || flows.iter().map(|flows| flows.iter().filter(|it| is_open(&***it)).count());
    until("what has to end has ended", || open().sum::<usize>() <= PORTS).await;
    let open: Vec<_> = open().collect();
    assert!(open.iter().all(|open| *open >= PORTS / 4 - 1), "{open:?}");
    let (refused, evicted) = count(Limit::UdpPorts);
    assert!(refused + evicted >= u64::from(WANTED) - PORTS as u64, "{refused}, {evicted}");

    everything_else_works(&fleet, tcp, "early").await;
    fetch_page(&fleet, page).await;
    // Other programs take the remaining ports; resolution must still work.
    let mut taken = Vec::new();
    while let Ok(socket) = std::net::UdpSocket::bind("0.0.0.0:0") {
        taken.push(socket);
    }
    assert!(taken.len() >= RESERVED, "{}", taken.len());
    everything_else_works(&fleet, tcp, "late").await;
    fetch_page(&fleet, page).await;
}

fn start(names: SocketAddr) -> Fleet {
    let folder = tempfile::tempdir().unwrap();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(folder.path().join("a.key"), key).unwrap();
    let mut text = format!(
        "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:4500\"\n\
         [dial]\nallow = [\"127.0.0.0/8\"]\n[dns]\nservers = [\"{names}\"]\n"
    );
    for number in 1..=AIRCRAFT {
        let key = SecretKey::from_bytes([number; 32]).public();
        text += &format!(
            "[[aircraft]]\nname = \"D-{number}\"\npublic-key = \"{key}\"\nrate = \"2 Mbit/s\"\n\
             max-datagram-flows = 30_000\nflows-per-second = 100_000\n"
        );
    }
    let config = GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap();
    let ground = Ground::new(&config).unwrap();
    let links = config.aircraft.iter().map(|one| wire::link(*one.key.as_bytes()));
    let (up, down): (Vec<_>, Vec<_>) = links.unzip();
    let down = down.into_iter().map(|down| down as Arc<dyn Acceptor>).collect();
    let serving = ground.clone();
    tokio::spawn(async move { serving.serve(down, std::future::pending()).await });
    Fleet { up, ground }
}

fn to(host: Host, port: u16, source: u16) -> OpenDatagrams {
    let target = Target { host, port };
    OpenDatagrams { target, protocol: ip::UDP, source, class: Class::BestEffort, passenger: 1 }
}

fn is_open(flow: &dyn FlowDatagrams) -> bool {
    // The runtime limits the work of a task between yields, and this one checks all flows.
    !matches!(unconstrained(flow.receive()).now_or_never(), Some(Err(_)))
}

/// Fetches a document and its objects over HTTP for another passenger of each aircraft, each on a flow
/// of its own.
async fn fetch_page(fleet: &Fleet, origin: SocketAddr) {
    for up in &fleet.up {
        let object = async |number: usize| {
            let path = format!("/object{number:02}");
            let request = format!("GET {path} HTTP/1.1\r\nHost: page.test\r\n\r\n");
            let target = Target { host: Host::Name("page.test".into()), port: origin.port() };
            let (class, first) = (Class::BestEffort, request.into());
            let open = Open { target, class, passenger: 3, claim: None, first };
            let mut flow = up.open(open).await.unwrap();
            let mut answer = Vec::new();
            let body = path.repeat(OBJECT_REPEATS);
            while !answer.ends_with(body.as_bytes()) {
                assert!(
                    soon("the object", flow.read_buf(&mut answer)).await.unwrap() > 0,
                    "{path}"
                );
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
            flow.shutdown().await.unwrap();
        };
        futures_util::future::join_all((0..OBJECTS).map(object)).await;
    }
}

/// TCP to an address and to a name, and the resolver, with names not queried before.
async fn everything_else_works(fleet: &Fleet, tcp: SocketAddr, name: &str) {
    for (number, up) in fleet.up.iter().enumerate() {
        let name = format!("{name}{number}.test");
        for host in [Host::Ip(tcp.ip()), Host::Name(name.clone())] {
            let target = Target { host, port: tcp.port() };
            let (class, first) = (Class::BestEffort, Bytes::from_static(b"hi"));
            let open = Open { target, class, passenger: 2, claim: None, first };
            let mut flow = up.open(open).await.unwrap();
            let mut back = [0; 2];
            soon("the echo", flow.read_exact(&mut back)).await.unwrap();
            assert_eq!(&back, b"hi");
            flow.shutdown().await.unwrap();
        }
        let resolver = to(Host::Service(Service::Resolver), 53, 0);
        let flow = up.open_datagrams(resolver).await.unwrap();
        let question = query(&format!("dns-{name}."), RecordType::A).to_vec().unwrap();
        flow.send(&[&[0], &question[..]].concat()).unwrap();
        let answer = soon("an answer", flow.receive()).await.unwrap();
        let answer = Message::from_vec(&answer[1..]).unwrap();
        assert_eq!(answer.answers.len(), 1, "{answer:?}");
    }
}
