//! Gateways in processes of their own, which may open 1,024 descriptors.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bentpipe_flow::{Host, Service, Target};
use bentpipe_gateway::config::GroundConfig;
use bentpipe_gateway::ground::Ground;
use bentpipe_gateway::transport::{Connector, FlowStream, Open, OpenDatagrams};
use bentpipe_link::Class;
use bentpipe_net::ip;
use bytes::Bytes;
use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use nix::sys::resource::{Resource, setrlimit};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, UdpSocket};

use crate::bench::{self, LOOPBACK, echo, echoes, socks_client, soon};
use crate::dns::{name_server, query};
use crate::udp;
use crate::wire::{self, Up};

/// Descriptors of a gateway's process.
const LIMIT: u64 = 1_024;

/// Flows that an attacker opens.
const FLOWS: u16 = 1_100;

/// Set in the process of a gateway: addresses of servers outside.
const SERVERS: &str = "BENTPIPE_TEST_SERVERS";

/// Prefix of the line in which a gateway's process states its addresses.
const READY: &str = "gateway-ready ";

/// Lowers the limit, and returns the servers' addresses, if this is a gateway's process.
fn inside() -> Option<Vec<SocketAddr>> {
    let servers = std::env::var(SERVERS).ok()?;
    setrlimit(Resource::RLIMIT_NOFILE, LIMIT, LIMIT).unwrap();
    Some(addresses(&servers))
}

/// Starts the test `name` again, in a process that may open [`LIMIT`] descriptors.
fn start(name: &str, servers: &[SocketAddr]) -> Child {
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(SERVERS, servers.join(" "))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn addresses(words: &str) -> Vec<SocketAddr> {
    words.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_device_with_every_connection_leaves_the_air_to_others() {
    if inside().is_some() {
        return serve_air().await;
    }
    let mut gateway =
        start("descriptors::a_device_with_every_connection_leaves_the_air_to_others", &[]);
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines().map(Result::unwrap);
    let ready = lines.find_map(|line| Some(addresses(line.split_once(READY)?.1)));
    let [socks, resolver] = ready.unwrap()[..] else { panic!("two addresses") };
    let mut held = Vec::new();
    for _ in 0..FLOWS {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
        held.push(soon("a connection", socket.connect(socks)).await.unwrap());
    }
    let to = echo("127.0.0.1:0").await;
    echoes(socks_client(socks, to).await, b"TCP of another").await;
    resolves(resolver).await;
    let open = std::fs::read_dir(format!("/proc/{}/fd", gateway.id())).unwrap().count();
    assert!(open < 700, "{open} descriptors");
    // The attacker's own idlest connections made room.
    let first = held[0].read_u8();
    assert!(soon("the end of the first", first).await.is_err());
    drop(gateway.stdin.take());
    let rest: Vec<_> = lines.collect();
    assert!(gateway.wait().unwrap().success(), "{rest:?}");
}

/// Runs both gateways until the standard input ends.
async fn serve_air() {
    let air = "limits = { handshake-timeout = \"1 h\" }\ndns = { listen = [\"127.0.0.1:0\"] }";
    let mut resolver = None;
    let bench = bench::start_with(air, LOOPBACK, |air| resolver = Some(air.dns_addrs()[0]));
    println!("{READY}{} {}", bench.socks, resolver.unwrap());
    let end = || std::io::read_to_string(std::io::stdin()).unwrap();
    tokio::task::spawn_blocking(end).await.unwrap();
}

/// Asks `resolver` for a name in the ground's table of hosts.
async fn resolves(resolver: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(resolver).await.unwrap();
    socket.send(&query("origin.test.", RecordType::A).to_vec().unwrap()).await.unwrap();
    let mut buffer = [0; 2048];
    let length = soon("an answer", socket.recv(&mut buffer)).await.unwrap();
    assert_eq!(Message::from_vec(&buffer[..length]).unwrap().answers.len(), 1);
}

#[tokio::test]
async fn a_passenger_with_every_flow_leaves_the_ground_to_others() {
    if let Some(servers) = inside() {
        let [tcp, udp, names] = servers[..] else { panic!("three addresses") };
        return attack_ground(tcp, udp, names).await;
    }
    let servers =
        [echo("127.0.0.1:0").await, udp::echo("127.0.0.1:0").await, name_server().await.0];
    let name = "descriptors::a_passenger_with_every_flow_leaves_the_ground_to_others";
    let gateway = start(name, &servers);
    let ended = tokio::task::spawn_blocking(move || gateway.wait_with_output().unwrap());
    let ended = ended.await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

async fn attack_ground(tcp: SocketAddr, udp: SocketAddr, names: SocketAddr) {
    let up = start_ground(names);
    let (mut streams, mut datagrams) = (Vec::new(), Vec::new());
    for source in 1..=FLOWS {
        streams.push(stream(&up, Host::Ip(tcp.ip()), tcp.port(), 1).await);
        let flow = up.open_datagrams(to(Host::Ip(udp.ip()), udp.port(), source)).await.unwrap();
        flow.send(b"\0anybody?").unwrap();
        datagrams.push(flow);
    }
    // Each was served, or evicted for a later one.
    for flow in &mut streams {
        let _ = soon("the echo or the end", flow.read_u8()).await;
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < 1_000, "{open} descriptors");
    for host in [Host::Ip(tcp.ip()), Host::Name("of-another.test".to_owned())] {
        let mut flow = stream(&up, host, tcp.port(), 2).await;
        assert_eq!(soon("the echo", flow.read_u8()).await.unwrap(), b'!');
    }
    let resolver = up.open_datagrams(to(Host::Service(Service::Resolver), 53, 0)).await.unwrap();
    let question = query("asked-by-another.test.", RecordType::A).to_vec().unwrap();
    resolver.send(&[&[0], &question[..]].concat()).unwrap();
    let answer = soon("an answer", resolver.receive()).await.unwrap();
    assert_eq!(Message::from_vec(&answer[1..]).unwrap().answers.len(), 1);
}

fn start_ground(names: SocketAddr) -> Arc<Up> {
    let folder = tempfile::tempdir().unwrap();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(folder.path().join("a.key"), key).unwrap();
    let text = format!(
        "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
         [dial]\nallow = [\"127.0.0.0/8\"]\n[dns]\nservers = [\"{names}\"]\n\
         [[aircraft]]\nname = \"D-A\"\npublic-key = \"{key}\"\nrate = \"2 Mbit/s\"\n\
         flows-per-second = 100_000\n"
    );
    let config = GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap();
    let ground = Ground::new(&config).unwrap();
    let (up, down) = wire::link(*config.aircraft[0].key.as_bytes());
    tokio::spawn(async move { ground.serve(vec![down], std::future::pending()).await });
    up
}

async fn stream(up: &Up, host: Host, port: u16, passenger: u32) -> Box<dyn FlowStream> {
    let first = Bytes::from_static(b"!");
    let target = Target { host, port };
    let open = Open { target, class: Class::BestEffort, passenger, claim: None, first };
    up.open(open).await.unwrap()
}

fn to(host: Host, port: u16, source: u16) -> OpenDatagrams {
    let target = Target { host, port };
    OpenDatagrams { target, protocol: ip::UDP, source, class: Class::BestEffort, passenger: 1 }
}
