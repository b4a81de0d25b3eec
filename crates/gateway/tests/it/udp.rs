//! UDP through both gateways, by SOCKS5 UDP ASSOCIATE.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_gateway::refusals::Limit;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};

use crate::bench::{Bench, LOOPBACK, free_address, read_all, read_exactly, soon, start, until};
use crate::wire::MAX_DATAGRAM_BYTES;

/// A client with an association.
pub struct Client {
    tcp: TcpStream,
    pub udp: UdpSocket,
}

impl Client {
    async fn new(bench: &Bench) -> Self {
        Self::of(bench.socks).await
    }

    /// A client of the SOCKS5 proxy at `proxy`.
    pub async fn of(proxy: SocketAddr) -> Self {
        let mut tcp = TcpStream::connect(proxy).await.unwrap();
        tcp.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        let reply = read_exactly(&mut tcp, 12).await;
        assert_eq!(reply[..6], [5, 0, 5, 0, 0, 1]);
        let ip = Ipv4Addr::new(reply[6], reply[7], reply[8], reply[9]);
        assert_eq!(ip, proxy.ip());
        let relay = (ip, u16::from_be_bytes([reply[10], reply[11]]));
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        udp.connect(relay).await.unwrap();
        Self { tcp, udp }
    }

    pub async fn send(&self, head: &[u8], payload: &[u8]) {
        self.udp.send(&[head, payload].concat()).await.unwrap();
    }

    /// The next datagram, including its header.
    async fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let length = soon("an answer", self.udp.recv(&mut buffer)).await.unwrap();
        buffer[..length].to_vec()
    }

    pub async fn echoes(&self, head: &[u8], payload: &[u8]) {
        self.send(head, payload).await;
        assert_eq!(self.receive().await, [head, payload].concat());
    }
}

/// Header of datagrams to `to`.
pub fn head(to: SocketAddr) -> Vec<u8> {
    let mut head = vec![0, 0, 0];
    match to {
        SocketAddr::V4(to) => {
            head.push(1);
            head.extend(to.ip().octets());
        }
        SocketAddr::V6(to) => {
            head.push(4);
            head.extend(to.ip().octets());
        }
    }
    head.extend(to.port().to_be_bytes());
    head
}

/// Echoes its input.
pub async fn echo(address: &str) -> SocketAddr {
    let socket = UdpSocket::bind(address).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            socket.send_to(&buffer[..length], from).await.unwrap();
        }
    });
    address
}

/// Answers with the source port of each datagram.
async fn mirror() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 64]).await {
            socket.send_to(&from.port().to_be_bytes(), from).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn datagrams_cross_by_address_and_by_name() {
    let bench = start("", LOOPBACK);
    let client = Client::new(&bench).await;
    let four = echo("127.0.0.1:0").await;
    client.echoes(&head(four), b"over IPv4").await;
    client.echoes(&head(echo("[::1]:0").await), b"over IPv6").await;
    let mut name = b"\0\0\0\x03\x0borigin.test".to_vec();
    name.extend(four.port().to_be_bytes());
    client.echoes(&name, b"by name").await;
    client.echoes(&head(four), b"").await;
    assert_eq!(bench.air.datagram_flows.get(), 3);
    assert_eq!((bench.air.datagrams_to_link.get(), bench.air.datagrams_from_link.get()), (4, 4));
    assert_eq!(
        (bench.ground.datagrams_from_link.get(), bench.ground.datagrams_to_link.get()),
        (4, 4)
    );
    let source = client.udp.local_addr().unwrap().port();
    assert!(bench.up.opened_datagrams().iter().all(|open| open.source == source));
}

#[tokio::test]
async fn all_destinations_see_one_external_port() {
    let bench = start("", LOOPBACK);
    let (client, other) = (Client::new(&bench).await, Client::new(&bench).await);
    let (one, two) = (head(mirror().await), head(mirror().await));
    let port = async |client: &Client, head: &[u8]| {
        client.send(head, b"?").await;
        client.receive().await[10..].to_vec()
    };
    let first = port(&client, &one).await;
    assert_eq!(port(&client, &two).await, first);
    assert_ne!(port(&other, &one).await, first, "another port of the passenger");
}

#[tokio::test]
async fn strangers_and_fragments_are_dropped() {
    let bench = start("", LOOPBACK);
    let client = Client::new(&bench).await;
    let to = head(echo("127.0.0.1:0").await);
    let mut fragment = to.clone();
    fragment[2] = 1;
    client.send(&fragment, b"a part").await;
    client.send(&to[..5], b"").await;
    let stranger = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    stranger.send_to(&to, client.udp.peer_addr().unwrap()).await.unwrap();
    until("three were dropped", || bench.air.datagrams_unknown.get() == 3).await;
    client.echoes(&to, b"whole").await;
    assert_eq!(bench.air.datagrams_to_link.get(), 1);
}

/// The client has not declared its source port: its first datagram sets it.
#[tokio::test]
async fn an_association_is_for_one_port() {
    let bench = start("", LOOPBACK);
    let client = Client::new(&bench).await;
    let to = head(echo("127.0.0.1:0").await);
    client.send(&to[..5], b"").await;
    until("nonsense was dropped", || bench.air.datagrams_unknown.get() == 1).await;
    client.echoes(&to, b"its own").await;
    let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    other.send_to(&to, client.udp.peer_addr().unwrap()).await.unwrap();
    until("the other was dropped", || bench.air.datagrams_unknown.get() == 2).await;
    client.echoes(&to, b"still its own").await;
}

#[tokio::test]
async fn only_the_destination_may_answer() {
    let bench = start("", LOOPBACK);
    let client = Client::new(&bench).await;
    let origin = mirror().await;
    client.send(&head(origin), b"?").await;
    let port: [u8; 2] = client.receive().await[10..].try_into().unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    stranger.send_to(b"!", (Ipv4Addr::LOCALHOST, u16::from_be_bytes(port))).await.unwrap();
    until("it was dropped", || bench.ground.datagrams_unknown.get() == 1).await;
    assert_eq!(bench.ground.datagrams_to_link.get(), 1);
}

#[tokio::test]
async fn an_association_ends_with_its_connection() {
    let bench = start("", LOOPBACK);
    let client = Client::new(&bench).await;
    client.echoes(&head(echo("127.0.0.1:0").await), b"open").await;
    drop(client.tcp);
    until("the flow has ended", || bench.ground.resets(ResetCode::Idle) == 1).await;
    assert!(
        soon("the relay's end", async {
            while client.udp.send(b"x").await.is_ok() {
                tokio::task::yield_now().await;
            }
            true
        })
        .await
    );
}

#[tokio::test]
async fn silence_ends_flows_and_names_end_sooner() {
    let bench = start("limits = { udp = { idle-timeout = \"2 min\" } }", LOOPBACK);
    let client = Client::new(&bench).await;
    client.echoes(&head(echo("127.0.0.1:0").await), b"open").await;
    let pass = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    // Port 53 of an address where, most likely, nobody answers; the flow ends in any case.
    client.send(&head("127.0.0.53:53".parse().unwrap()), b"?").await;
    until("both are open", || bench.ground.datagram_flows.get() == 2).await;
    pass(31).await;
    until("the one to port 53 ended", || bench.ground.resets(ResetCode::Idle) == 1).await;
    pass(100).await;
    until("the other one ended", || bench.ground.resets(ResetCode::Idle) == 2).await;
}

#[tokio::test]
async fn flows_are_bounded() {
    let bench = start("limits = { udp = { max-flows-per-passenger = 1 } }", LOOPBACK);
    let client = Client::new(&bench).await;
    let (one, two) = (head(echo("127.0.0.1:0").await), head(echo("127.0.0.1:0").await));
    client.echoes(&one, b"first").await;
    client.echoes(&two, b"second").await;
    let refusals = &bench.air.refusals;
    assert_eq!((bench.air.over_limit.get(), refusals.count_evicted(Limit::UdpFlows)), (0, 1));
    until("the first ended for it", || bench.ground.resets(ResetCode::Idle) == 1).await;
    client.echoes(&one, b"again").await;
    assert_eq!(refusals.count_evicted(Limit::UdpFlows), 2);
}

#[tokio::test]
async fn the_ground_says_what_it_refuses() {
    let bench = start("", "");
    let client = Client::new(&bench).await;
    client.send(&head(echo("127.0.0.1:0").await), b"x").await;
    until("it was forbidden", || bench.air.resets(ResetCode::Forbidden) == 1).await;
    assert_eq!(bench.ground.datagram_flows.get(), 0);
    client.send(b"\0\0\0\x01\x08\x08\x08\x08\0\0", b"to no port").await;
    until("that too", || bench.air.resets(ResetCode::Forbidden) == 2).await;
}

#[tokio::test]
async fn errors_of_the_network_cross() {
    let bench = start("", LOOPBACK);
    let client = Client::new(&bench).await;
    let closed = free_address();
    client.send(&head(closed), b"anybody there?").await;
    until("the error crossed", || bench.ground.icmp_sent.get() == 1).await;
    // The flow continues: something may listen later.
    let origin = UdpSocket::bind(closed).await.unwrap();
    client.send(&head(closed), b"now?").await;
    let mut buffer = [0; 64];
    assert_eq!(soon("the packet", origin.recv(&mut buffer)).await.unwrap(), 4);
}

#[tokio::test]
async fn oversized_datagrams_are_counted() {
    let bench = start("", LOOPBACK);
    let client = Client::new(&bench).await;
    let to = head(echo("127.0.0.1:0").await);
    client.echoes(&to, b"open").await;
    client.echoes(&to, &[1; MAX_DATAGRAM_BYTES - 2]).await;
    client.send(&to, &[1; MAX_DATAGRAM_BYTES - 1]).await;
    until("it was counted", || bench.air.datagrams_too_large.get() == 1).await;
}

#[tokio::test]
async fn quic_is_refused_where_the_config_says_so() {
    let bench = start("quic = \"reject\"", LOOPBACK);
    let client = Client::new(&bench).await;
    let to = head(echo("127.0.0.1:0").await);
    client.send(&head("127.0.0.1:443".parse().unwrap()), b"?").await;
    client.send(&to, b"\xc3\0\0\0\x01\x08\x01\x02\x03\x04\x05\x06\x07\x08").await;
    until("two were refused", || bench.air.quic_rejected.get() == 2).await;
    client.echoes(&to, b"something else").await;
    assert_eq!(bench.air.datagrams_to_link.get(), 1);
}

#[tokio::test]
async fn a_flow_that_goes_on_survives_what_looks_like_quic() {
    let bench = start("quic = \"reject\"", LOOPBACK);
    let client = Client::new(&bench).await;
    let to = head(echo("127.0.0.1:0").await);
    client.echoes(&to, b"plain").await;
    client.echoes(&to, b"\xc3\0\0\0\x01\x08\x01\x02\x03\x04\x05\x06\x07\x08").await;
    let mut tcp = client.tcp;
    tcp.shutdown().await.unwrap();
    assert_eq!(read_all(&mut tcp).await.unwrap(), b"");
}
