//! Several aircraft need more external ports than the kernel has, in a namespace.

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
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::unconstrained;

use crate::bench::{echo, soon, until};
use crate::dns::{name_server, query};
use crate::tproxy::{as_root, new_network, sh};
use crate::udp;
use crate::wire::{self, Up};

const AIRCRAFT: u8 = 4;

/// Requested flows, over all aircraft.
const WANTED: u16 = 30_000;

/// Passengers' own ports in a range of 1,000.
const PORTS: usize = 438;

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
        runtime.block_on(storm());
    });
}

async fn storm() {
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
    // Other programs take the remaining ports; resolution must still work.
    let mut taken = Vec::new();
    while let Ok(socket) = std::net::UdpSocket::bind("0.0.0.0:0") {
        taken.push(socket);
    }
    assert!(taken.len() >= RESERVED, "{}", taken.len());
    everything_else_works(&fleet, tcp, "late").await;
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
