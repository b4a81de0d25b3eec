//! Both gateways over the real transports, on UDP sockets of loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_flow::ResetCode;
use bentpipe_gateway::config::{AirConfig, GroundConfig, Listen, Tproxy, Transport};
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::transport::datagram::MAX_HEADER_BYTES;
use bentpipe_gateway::transport::{
    Acceptor, Connector, FlowStream, Open, OpenDatagrams, OpenError,
};
use bentpipe_gateway::transports::{aerotcp, handshake_counter, link, masque};
use bentpipe_gateway::{air, ground};
use bentpipe_link::io::{Air, Hub, UdpSocket};
use bentpipe_link::{Class, PublicKey, SecretKey};
use bentpipe_masque::{Client, Server};
use bentpipe_net::{Inherited, bind_udp};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::{echo, echoes, expect_reset, free_address, read_all, socks_client, soon, until};
use crate::udp;

/// Keys and configurations of both sides, in a folder.
pub struct Configs {
    pub air: AirConfig,
    pub ground: GroundConfig,
    _folder: tempfile::TempDir,
}

pub fn configs() -> Configs {
    configs_with("", "")
}

/// Configurations that let one passenger open a thousand flows per second.
fn busy_configs() -> Configs {
    let mut configs = configs();
    configs.ground.aircraft[0].flows_per_second = 8_000;
    configs
}

/// Configurations without rates, which the link learns.
fn learning_configs() -> Configs {
    let without = |text: &str| {
        // AeroTCP needs a rate.
        let typed = ["rate = ", "aerotcp-listen = ", "[aerotcp]", "rtt = "];
        let learns = |line: &&str| !typed.iter().any(|start| line.starts_with(start));
        text.lines().filter(learns).map(|line| format!("{line}\n")).collect::<String>()
    };
    configs_of("", "", without)
}

/// Configurations with these lines at their tops.
pub fn configs_with(air_top: &str, ground_top: &str) -> Configs {
    configs_of(air_top, ground_top, str::to_owned)
}

fn configs_of(air_top: &str, ground_top: &str, edited: impl Fn(&str) -> String) -> Configs {
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str, byte| {
        let secret = SecretKey::from_bytes([byte; 32]);
        std::fs::write(folder.path().join(name), secret.to_base64()).unwrap();
        secret.public()
    };
    let (air, ground): (PublicKey, PublicKey) = (key("air.key", 1), key("ground.key", 2));
    let air_text = format!(
        "{air_top}\n[link]\nprivate-key-file = \"air.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{ground}\"\nrate = \"100 Mbit/s\"\n\
         [aerotcp]\nrtt = \"20 ms\"\n[listen]\nsocks5 = \"127.0.0.1:0\"\n"
    );
    let ground_text = format!(
        "{ground_top}\n[link]\nprivate-key-file = \"ground.key\"\nlisten = \"127.0.0.1:0\"\n\
         aerotcp-listen = \"127.0.0.1:0\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{air}\"\nrate = \"100 Mbit/s\"\n\
         highest-class = \"assured\"\n[aerotcp]\nrtt = \"20 ms\"\n\
         [dial]\nallow = [\"127.0.0.0/8\"]\n[dns]\nservers = [\"127.0.0.1:9\"]\n"
    );
    Configs {
        air: AirConfig::parse(&folder.path().join("air.toml"), &edited(&air_text)).unwrap(),
        ground: GroundConfig::parse(&folder.path().join("ground.toml"), &edited(&ground_text))
            .unwrap(),
        _folder: folder,
    }
}

/// Configurations of a cabin with interception, and of a ground gateway that serves the
/// documentation networks.
pub fn cabin_configs(air_top: &str, ground_top: &str) -> Configs {
    let mut configs = configs_with(air_top, ground_top);
    let name = "cabin0".to_owned();
    configs.air.listen = Listen {
        tproxy: Some(Tproxy { port: 1081, interfaces: vec![name], fail_closed: false }),
        ..Listen::default()
    };
    let allowed = ["198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"];
    configs.ground.dial.allow = allowed.map(|net| net.parse().unwrap()).to_vec();
    configs
}

fn socket() -> std::net::UdpSocket {
    bind_udp("link", "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// Starts an air gateway over `connector`; returns the address for clients, and its counters.
pub fn start_air(configs: &Configs, connector: Arc<dyn Connector>) -> (SocketAddr, Arc<Counters>) {
    let gateway = air::Air::bind(&configs.air, &mut Inherited::default(), connector).unwrap();
    let (socks, counters) = (gateway.socks5_addr().unwrap(), gateway.counters());
    tokio::spawn(gateway.serve(std::future::pending()));
    (socks, counters)
}

pub fn start_ground(configs: &Configs, acceptor: Arc<dyn Acceptor>) -> Arc<Counters> {
    let gateway = ground::Ground::new(&configs.ground).unwrap();
    let counters = gateway.counters();
    tokio::spawn(async move { gateway.serve(vec![acceptor], std::future::pending()).await });
    counters
}

/// Exercises data, half-close and a refused dial.
async fn exercise(socks: SocketAddr, counters: &Counters) {
    let text: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
    let (mut from, mut to) = socks_client(socks, echo("127.0.0.1:0").await).await.into_split();
    let sent = text.clone();
    tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    soon("the echo", from.read_to_end(&mut back)).await.unwrap();
    assert!(back == text, "{} of {} bytes came back", back.len(), text.len());

    let mut refused = socks_client(socks, free_address()).await;
    expect_reset(&mut refused).await;
    assert_eq!(counters.resets(ResetCode::Refused), 1);
    let mut early = socks_client(socks, echo("127.0.0.1:0").await).await;
    early.shutdown().await.unwrap();
    assert_eq!(read_all(&mut early).await.unwrap(), b"");
}

/// A thousand flows of a few bytes each, a hundred at a time.
async fn many_small_flows(socks: SocketAddr) {
    let origin = echo("127.0.0.1:0").await;
    for round in 0..10 {
        let flow = |number: u32| async move {
            let text = format!("round {round}, flow {number}");
            echoes(socks_client(socks, origin).await, text.as_bytes()).await;
        };
        futures_util::future::join_all((0..100).map(flow)).await;
    }
}

/// The two ends of a transport, each on its own socket.
pub type Ends = (Arc<dyn Connector>, Arc<dyn Acceptor>);

pub fn over_link(configs: &Configs) -> Ends {
    let connector = Bound { hub: "127.0.0.1:0", air: "127.0.0.1:0" };
    connector.over_link(configs, |hub| vec![hub])
}

/// The radio transport with IPv6 on the radio.
pub fn over_link_v6(configs: &Configs) -> Ends {
    Bound { hub: "[::1]:0", air: "[::]:0" }.over_link(configs, |hub| vec![hub])
}

/// Local addresses of both ends' sockets.
struct Bound {
    hub: &'static str,
    air: &'static str,
}

impl Bound {
    /// The radio transport. `places` returns the addresses that the air gateway tries for a ground
    /// gateway at this address.
    fn over_link(self, configs: &Configs, places: impl Fn(SocketAddr) -> Vec<SocketAddr>) -> Ends {
        let [hub, socket] = [self.hub, self.air].map(|at| bind_udp("link", at.parse().unwrap()));
        let (hub, socket) = (hub.unwrap(), socket.unwrap());
        let places = places(hub.local_addr().unwrap());
        // The air gateway starts first and retries until the ground gateway exists.
        let counter = handshake_counter::claim(&configs.air.link.state_file).unwrap();
        let config = link::air_config(&configs.air, places[0], counter).unwrap();
        let connector = Air::start(Box::new(UdpSocket::from_std(socket).unwrap()), config);
        connector.also_at(places[1..].iter().copied());
        let hub = Box::new(UdpSocket::from_std(hub).unwrap());
        let config = link::hub_config(&configs.ground).unwrap();
        let hub = Hub::start_sharded(hub, config, link::shards(&configs.ground));
        (Arc::new(connector), Arc::new(hub))
    }
}

pub fn over_http3(configs: &Configs) -> Ends {
    let any = "127.0.0.1:0".parse().unwrap();
    let socket = bentpipe_masque::Socket::bind(any).unwrap();
    let server = Server::start(masque::server_config(&configs.ground), socket).unwrap();
    let config = masque::client_config(&configs.air, server.local_addr().unwrap());
    let socket = bentpipe_masque::Socket::bind(any).unwrap();
    (Arc::new(Client::connect(config, socket).unwrap()), Arc::new(server))
}

pub fn over_aerotcp(configs: &Configs) -> Ends {
    let ground_socket = socket();
    let address = ground_socket.local_addr().unwrap();
    let counter = handshake_counter::claim(&configs.air.link.state_file).unwrap();
    let config = aerotcp::air_config(&configs.air, address, counter).unwrap();
    let socket = Box::new(UdpSocket::from_std(socket()).unwrap());
    let connector = bentpipe_aerotcp::io::Air::start(socket, config);
    let socket = Box::new(UdpSocket::from_std(ground_socket).unwrap());
    let config = aerotcp::ground_config(&configs.ground).unwrap();
    (Arc::new(connector), Arc::new(bentpipe_aerotcp::io::Ground::start(socket, config)))
}

pub async fn carries_flows(over: impl Fn(&Configs) -> Ends) {
    let configs = busy_configs();
    let (connector, acceptor) = over(&configs);
    let (socks, counters) = start_air(&configs, connector);
    start_ground(&configs, acceptor);
    exercise(socks, &counters).await;
    many_small_flows(socks).await;
}

#[tokio::test]
async fn the_radio_transport_carries_flows() {
    carries_flows(over_link).await;
}

#[tokio::test]
async fn the_radio_transport_carries_all_of_it_over_ipv6() {
    let configs = busy_configs();
    let (connector, acceptor) = over_link_v6(&configs);
    let (socks, counters) = start_air(&configs, connector);
    start_ground(&configs, acceptor);
    exercise(socks, &counters).await;
    many_small_flows(socks).await;
    // The path MTU is known by now. With IPv6's minimum MTU, 1200 bytes do not fit next to its
    // header and the link's own.
    let client = udp::Client::of(socks).await;
    let origin = udp::head(udp::echo("127.0.0.1:0").await);
    for length in [0, 1, 500, 1200] {
        client.echoes(&origin, &vec![7; length]).await;
    }
}

/// QUIC needs datagrams of 1200 bytes. In packets of 1280, they fit with the headers of IPv4 and
/// the link. With IPv6 they do not fit, and the sender learns the maximum.
#[tokio::test]
async fn datagrams_of_1200_bytes_in_packets_of_1280() {
    for (over, most) in
        [(over_link as fn(&Configs) -> Ends, 1200..1252), (over_link_v6, 1150..1200)]
    {
        let mut configs = configs();
        (configs.air.link.mtu, configs.ground.link.mtu) = (1280, 1280);
        let (connector, acceptor) = over(&configs);
        let (socks, air) = start_air(&configs, connector.clone());
        let ground = start_ground(&configs, acceptor);
        let client = udp::Client::of(socks).await;
        let to = udp::echo("127.0.0.1:0").await;
        client.echoes(&udp::head(to), b"open").await;
        let (target, source) = (to.to_string().parse().unwrap(), 9);
        let open =
            OpenDatagrams { target, protocol: 17, source, class: Class::default(), passenger: 1 };
        let flow = connector.open_datagrams(open).await.unwrap();
        let room = flow.max_bytes() - MAX_HEADER_BYTES;
        assert!(most.contains(&room), "{room} bytes");
        client.echoes(&udp::head(to), &vec![7; room.min(1200)]).await;
        assert_eq!(air.datagrams_too_large.get(), 0);
        client.send(&udp::head(to), &vec![7; room.max(1200) + 1]).await;
        until("it was told", || air.datagrams_too_large.get() == 1).await;
        assert_eq!(ground.datagrams_too_large.get(), 0);
    }
}

/// The ground gateway's name has an address of each family, and nobody answers at the first.
#[tokio::test]
async fn without_a_rate_the_link_carries_flows() {
    let mut configs = learning_configs();
    configs.ground.aircraft[0].flows_per_second = 8_000;
    let (connector, acceptor) = over_link(&configs);
    let (socks, counters) = start_air(&configs, connector);
    start_ground(&configs, acceptor);
    exercise(socks, &counters).await;
    many_small_flows(socks).await;
}

#[tokio::test]
async fn the_second_address_is_tried_where_the_first_fails() {
    let both = Bound { hub: "127.0.0.1:0", air: "[::]:0" };
    let configs = configs();
    let (connector, acceptor) = both.over_link(&configs, |hub| {
        let SocketAddr::V4(hub) = hub else { panic!("{hub} is no IPv4") };
        let silent = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, hub.port()));
        vec![silent, (hub.ip().to_ipv6_mapped(), hub.port()).into()]
    });
    let (socks, counters) = start_air(&configs, connector);
    start_ground(&configs, acceptor);
    exercise(socks, &counters).await;
}

#[tokio::test]
async fn http3_carries_flows() {
    carries_flows(over_http3).await;
}

#[tokio::test]
async fn aerotcp_carries_flows() {
    carries_flows(over_aerotcp).await;
}

/// Opens a flow, once there is a session.
async fn opened(connector: &dyn Connector, open: Open) -> Box<dyn FlowStream> {
    soon("a session", async {
        loop {
            match connector.open(open.clone()).await {
                Err(OpenError::Down(_)) => tokio::task::yield_now().await,
                opened => break opened.unwrap(),
            }
        }
    })
    .await
}

/// Datagrams of several sizes, to two destinations, and a returned error.
async fn carries_datagrams(over: impl Fn(&Configs) -> Ends) {
    let configs = configs();
    let (connector, acceptor) = over(&configs);
    let (socks, air) = start_air(&configs, connector);
    let ground = start_ground(&configs, acceptor);
    let client = udp::Client::of(socks).await;
    for round in 0..2 {
        let origin = udp::head(udp::echo("127.0.0.1:0").await);
        for length in [0, 1, 500, 1200] {
            client.echoes(&origin, &vec![round; length]).await;
        }
    }
    assert_eq!((air.datagram_flows.get(), ground.datagram_flows.get()), (2, 2));
    let closed = free_address();
    client.send(&udp::head(closed), b"anybody there?").await;
    until("an error was passed on", || ground.icmp_sent.get() == 1).await;
    assert_eq!(air.datagrams_unknown.get(), 0);
    // Too large for any link in one piece.
    client.send(&udp::head(closed), &[0; 20_000]).await;
    until("it was found too large", || air.datagrams_too_large.get() == 1).await;
}

#[tokio::test]
async fn the_radio_transport_carries_datagrams() {
    carries_datagrams(over_link).await;
}

#[tokio::test]
async fn http3_carries_datagrams() {
    carries_datagrams(over_http3).await;
}

#[tokio::test]
async fn aerotcp_says_that_it_carries_none() {
    let configs = configs();
    let (connector, acceptor) = over_aerotcp(&configs);
    let (socks, air) = start_air(&configs, connector);
    start_ground(&configs, acceptor);
    let client = udp::Client::of(socks).await;
    client.send(&udp::head("127.0.0.1:9".parse().unwrap()), b"?").await;
    until("it was refused", || air.resets(ResetCode::Refused) == 1).await;
}

/// Flows request every class in turn from a ground gateway that denies the aircraft the highest
/// two.
async fn classes_are_limited(over: impl Fn(&Configs) -> Ends) {
    let configs = configs();
    let (connector, acceptor) = over(&configs);
    let counters = start_ground(&configs, acceptor);
    let origin = echo("127.0.0.1:0").await.to_string();
    let mut held = Vec::new();
    for class in Class::ALL {
        let (target, first) = (origin.parse().unwrap(), Bytes::from_static(b"a"));
        let open = Open { target, class, passenger: 1, claim: None, first };
        let mut flow = opened(&*connector, open).await;
        let mut back = [0];
        soon("the echo", flow.read_exact(&mut back)).await.unwrap();
        held.push(flow);
    }
    assert_eq!(Class::ALL.map(|class| counters.flows_in(class)), [0, 0, 3, 1, 1]);
}

#[tokio::test]
async fn the_highest_class_of_an_aircraft_holds_for_every_transport() {
    classes_are_limited(over_link).await;
    classes_are_limited(over_http3).await;
    classes_are_limited(over_aerotcp).await;
}

#[tokio::test]
async fn aerotcp_without_its_table_says_what_to_write() {
    let mut configs = configs();
    configs.air.aerotcp = None;
    configs.air.link.transport = Transport::AeroTcp;
    let error = air::run(&configs.air, std::future::ready(())).await.unwrap_err().to_string();
    assert!(error.contains("write [aerotcp]"), "{error}");
    configs.ground.aerotcp = None;
    configs.ground.link.aerotcp_listen = configs.ground.link.listen;
    let error = ground::run(&configs.ground, std::future::ready(())).await.unwrap_err().to_string();
    assert!(error.contains("write [aerotcp]"), "{error}");
}

#[tokio::test]
async fn a_ground_that_is_down_or_unknown_does_not_stop_the_air() {
    let mut configs = configs();
    air::run(&configs.air, std::future::ready(())).await.unwrap();
    configs.air.link.peer = "nowhere.invalid:4500".parse().unwrap();
    air::run(&configs.air, std::future::ready(())).await.unwrap();
    for transport in [Transport::Masque, Transport::AeroTcp] {
        configs.air.link.transport = transport;
        air::run(&configs.air, std::future::ready(())).await.unwrap();
    }
    configs.ground.link.masque_listen = configs.ground.link.listen;
    configs.ground.link.aerotcp_listen = configs.ground.link.listen;
    ground::run(&configs.ground, std::future::ready(())).await.unwrap();
}
