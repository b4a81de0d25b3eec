//! `ping` and `traceroute` from the cabin, with real kernels, the real programs and the radio
//! transport. A seat, both gateways, a router and a host beyond it each have their own network
//! namespace.
//!
//! ```text
//! seat0 10.9.0.2 ── cabin0 10.9.0.1 (gateways) world0 10.8.0.1 ── net0 10.8.0.2 (router)
//! far0 203.0.113.1 ── host0 203.0.113.9 (host)
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::{Arc, mpsc};

use bentpipe_flow::ResetCode;
use bentpipe_gateway::air::Air;
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::ground::Ground;
use bentpipe_net::Inherited;

use crate::tproxy::{self, PATIENCE, has, new_network, sh, skipped};
use crate::tproxy_udp::{connect, error, finished, hear_errors, is_v4, namespace};
use crate::transports::{Configs, Ends, cabin_configs, over_http3, over_link, over_link_v6};

/// The host beyond the router, in both families.
const HOST: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];
/// Port on which the host echoes TCP.
const TCP_PORT: u16 = 4000;
/// Two addresses of the seat, which are two passengers to the gateway.
const SEATS: [[&str; 2]; 2] = [["10.9.0.2", "10.9.0.3"], ["fd09::2", "fd09::3"]];
/// The path as seen from the seat.
const HOPS: [[&str; 3]; 2] = [["10.9.0.1", "10.8.0.2", HOST[0]], ["fd09::1", "fd08::2", HOST[1]]];

#[test]
fn a_cabin_pings_over_the_radio_transport() {
    as_root("ping::a_cabin_pings_over_the_radio_transport", || {
        let counted = world(Setup::default(), || {
            for host in HOST {
                // With -w, it continues until three answers have arrived, however late. With only
                // -c, it waits two round trips.
                let said = run("ping", &["-n", "-c", "3", "-i", "0.2", "-w", "60", host]);
                let received = said.split(" received").next().and_then(|it| it.rsplit(' ').next());
                assert!(
                    received.and_then(|it| it.parse().ok()).is_some_and(|it: u32| it >= 3),
                    "{said}"
                );
                // The largest echo that crosses returns byte for byte; otherwise ping would report
                // it.
                let said = run("ping", &["-n", "-c", "1", "-s", "1200", "-w", "60", host]);
                assert!(said.contains("1 received") && !said.contains("wrong"), "{said}");
            }
        });
        // Each run has its own identifier, and so its own flow.
        assert_eq!(counted.air.datagram_flows.get(), 4);
        // A ping that waits for a late answer sends more echoes than requested.
        let [asked, answered] =
            [&counted.air.datagrams_to_link, &counted.air.datagrams_from_link].map(|it| it.get());
        assert!((8..=asked).contains(&answered), "{answered} of {asked}");
    });
}

#[test]
fn a_cabin_traces_its_way_over_the_radio_transport() {
    as_root("ping::a_cabin_traces_its_way_over_the_radio_transport", || {
        let counted = world(Setup::default(), traces);
        assert_eq!(counted.air.datagrams_unknown.get(), 0);
    });
}

#[test]
fn and_over_http3() {
    as_root("ping::and_over_http3", || {
        world(Setup { over: over_http3, ..Setup::default() }, traces);
    });
}

/// Like [`tproxy::as_root`], if the cabin's programs are installed.
fn as_root(name: &str, test: fn()) {
    match ["ping", "traceroute"].into_iter().find(|program| !has(program)) {
        Some(program) => skipped(&format!("{program} is not installed")),
        None => tproxy::as_root(name, test),
    }
}

/// TCP, UDP and ICMP of both families, with IPv6 on the radio.
#[test]
fn a_cabin_is_served_over_ipv6() {
    as_root("ping::a_cabin_is_served_over_ipv6", || {
        let counted = world(Setup { over: over_link_v6, ..Setup::default() }, || {
            for host in HOST {
                let host = SocketAddr::new(host.parse().unwrap(), TCP_PORT);
                let mut tcp = TcpStream::connect_timeout(&host, PATIENCE).unwrap();
                tcp.set_read_timeout(Some(PATIENCE)).unwrap();
                let said: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
                let mut writer = tcp.try_clone().unwrap();
                let all = said.clone();
                std::thread::spawn(move || {
                    writer.write_all(&all).unwrap();
                    writer.shutdown(std::net::Shutdown::Write).unwrap();
                });
                let mut back = Vec::new();
                tcp.read_to_end(&mut back).unwrap();
                assert!(back == said, "{host}: {} bytes", back.len());
            }
            traces();
        });
        assert_eq!(counted.air.finished.get(), 2);
    });
}

/// Both kinds of traceroute in both families.
fn traces() {
    for (host, hops) in HOST.into_iter().zip(HOPS) {
        for kind in [&[][..], &["-I"]] {
            // 16 probes are in flight at once, so answers must be assigned to their probes.
            let options = ["-n", "-q", "2", "-w", "60", "-m", "5", host];
            let said = run("traceroute", &[kind, &options].concat());
            let seen: Vec<&str> = said
                .lines()
                .skip(1)
                .map(|line| line.split_whitespace().nth(1).unwrap_or_default())
                .collect();
            assert_eq!(seen, hops, "{kind:?}\n{said}");
            assert!(!said.contains('*') && !said.contains('!'), "{kind:?}\n{said}");
        }
    }
}

#[test]
fn too_large_an_echo_tells_the_mtu() {
    as_root("ping::too_large_an_echo_tells_the_mtu", || {
        let counted = world(Setup::default(), || {
            for host in HOST {
                let said = run("ping", &["-n", "-M", "do", "-c", "1", "-s", "1450", host]);
                let told = said.contains("Frag needed") || said.contains("Packet too big");
                assert!(told && said.contains("mtu"), "{said}");
            }
            // Fragments do not make it smaller.
            let said = run("ping", &["-n", "-M", "dont", "-c", "1", "-s", "3000", HOST[0]]);
            assert!(said.contains("Frag needed"), "{said}");
        });
        assert_eq!(counted.air.datagrams_too_large.get(), 3);
    });
}

#[test]
fn a_ground_that_may_send_no_echoes_says_so() {
    as_root("ping::a_ground_that_may_send_no_echoes_says_so", || {
        world(Setup { ping_group: "1 0", ..Setup::default() }, || {
            let said = run("ping", &["-n", "-c", "1", "-W", "10", HOST[0]]);
            assert!(said.contains("Packet filtered"), "{said}");
            let said = run("ping", &["-n", "-c", "1", "-W", "10", HOST[1]]);
            assert!(said.contains("Administratively prohibited"), "{said}");
        });
    });
}

#[test]
fn protocols_in_the_config_are_carried_and_others_refused() {
    tproxy::as_root("ping::protocols_in_the_config_are_carried_and_others_refused", || {
        let raw = "raw = { protocols = [\"gre\", 253] }";
        let counted = world(Setup { air: raw, ground: raw, ..Setup::default() }, || {
            for (host, [first, second]) in HOST.into_iter().zip(SEATS) {
                let seat = raw_seat_at(253, host, first);
                seat.send(b"first").unwrap();
                assert_eq!(heard(&seat), b"first", "{host}");
                // Answers can be assigned only by their source address.
                let other = raw_seat_at(253, host, second);
                other.send(b"mine too").unwrap();
                let told = error(&other);
                assert_eq!((told.kind, told.code), if is_v4(&other) { (3, 1) } else { (1, 3) });
                seat.send(b"again").unwrap();
                assert_eq!(heard(&seat), b"again", "{host}");
                let etherip = raw_seat(97, host);
                etherip.send(b"anybody?").unwrap();
                let told = error(&etherip);
                assert_eq!((told.kind, told.code), if is_v4(&other) { (3, 2) } else { (4, 1) });
            }
        });
        assert_eq!(counted.air.ip_refused.get(), 2);
        assert_eq!(counted.air.datagrams_from_link.get(), 4);
    });
}

#[test]
fn the_ground_refuses_protocols_that_it_does_not_carry() {
    tproxy::as_root("ping::the_ground_refuses_protocols_that_it_does_not_carry", || {
        let air = "raw = { protocols = [253] }";
        let counted = world(Setup { air, ..Setup::default() }, || {
            for host in HOST {
                let seat = raw_seat(253, host);
                seat.send(b"anybody?").unwrap();
                let told = error(&seat);
                assert_eq!((told.kind, told.code), if is_v4(&seat) { (3, 13) } else { (1, 1) });
            }
        });
        assert_eq!(counted.ground.resets(ResetCode::Forbidden), 2);
    });
}

/// A raw socket of the seat that receives from `host`, and ICMP errors.
fn raw_seat(protocol: i32, host: &str) -> UdpSocket {
    let any = if host.contains(':') { "::" } else { "0.0.0.0" };
    raw_seat_at(protocol, host, any)
}

/// A raw socket at one of the seat's addresses.
fn raw_seat_at(protocol: i32, host: &str, at: &str) -> UdpSocket {
    let [host, at] = [host, at].map(|ip| SocketAddr::new(ip.parse().unwrap(), 0));
    let protocol = Some(socket2::Protocol::from(protocol));
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(host), socket2::Type::RAW, protocol);
    let socket = socket.unwrap();
    socket.bind(&at.into()).unwrap();
    socket.connect(&host.into()).unwrap();
    let socket: UdpSocket = socket.into();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    hear_errors(&socket);
    socket
}

/// Next packet of a raw socket, without the IP header.
fn heard(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let length = socket.recv(&mut buffer).expect("the host's answer");
    let header = if is_v4(socket) { 20 } else { 0 };
    buffer[header..length].to_vec()
}

/// Output of `program` on both channels, which also shows its success.
fn run(program: &str, arguments: &[&str]) -> String {
    let limit = PATIENCE.as_secs().to_string();
    let output = Command::new("timeout").args([&limit, program]).args(arguments).output().unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Differences between test setups.
#[derive(Clone, Copy)]
struct Setup {
    /// Added at the top of the air's configuration, and of the ground's.
    air: &'static str,
    ground: &'static str,
    /// Groups that may send echoes in the ground gateway's namespace.
    ping_group: &'static str,
    over: fn(&Configs) -> Ends,
}

impl Default for Setup {
    fn default() -> Self {
        Self { air: "", ground: "", ping_group: "0 0", over: over_link }
    }
}

/// Counters of both gateways.
struct Counted {
    air: Arc<Counters>,
    ground: Arc<Counters>,
}

/// Runs `client` in the seat's namespace.
fn world(setup: Setup, client: fn()) -> Counted {
    new_network();
    let (seat, seat_go, seat_done) = namespace(move || {
        sh("ip addr add 10.9.0.2/24 dev seat0\n\
            ip addr add fd09::2/64 dev seat0 nodad\n\
            ip link set seat0 up\n\
            ip route add default via 10.9.0.1\n\
            ip -6 route add default via fd09::1\n\
            ip addr add 10.9.0.3/24 dev seat0\n\
            ip addr add fd09::3/64 dev seat0 nodad");
        client();
    });
    // The router and the host exist as long as these.
    let (router, router_over, host_ready) = router();
    connect(seat, router);
    let groups = setup.ping_group;
    sh(&format!("echo '{groups}' >/proc/sys/net/ipv4/ping_group_range"));
    router_over.send(()).unwrap();
    host_ready.recv_timeout(PATIENCE).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let counted = runtime.block_on(gateways(setup, seat_go, &seat_done));
    drop(router_over);
    counted
}

/// Creates the namespaces of the router and the host, which exist until the sender is dropped. The
/// caller sends when the router's interface exists, and receives when the host answers.
fn router() -> (nix::unistd::Pid, mpsc::Sender<()>, mpsc::Receiver<()>) {
    let (send_over, over) = mpsc::channel::<()>();
    let (send_ready, ready) = mpsc::channel::<()>();
    let (router, router_go, _) = namespace(move || {
        over.recv_timeout(PATIENCE).unwrap();
        let (send_host_over, host_over) = mpsc::channel::<()>();
        let (host, host_go, _) = namespace(move || {
            sh("ip addr add 203.0.113.9/24 dev host0\n\
                ip addr add 2001:db8:9::9/64 dev host0 nodad\n\
                ip link set host0 up\n\
                ip route add default via 203.0.113.1\n\
                ip -6 route add default via 2001:db8:9::1\n\
                echo 0 >/proc/sys/net/ipv4/icmp_ratelimit\n\
                echo 0 >/proc/sys/net/ipv6/icmp/ratelimit");
            HOST.into_iter().for_each(echoes);
            send_ready.send(()).unwrap();
            let _ = host_over.recv();
        });
        sh(&format!(
            "ip link add far0 type veth peer name host0 netns {host}\n\
             ip addr add 10.8.0.2/24 dev net0\n\
             ip addr add fd08::2/64 dev net0 nodad\n\
             ip link set net0 up\n\
             ip addr add 203.0.113.1/24 dev far0\n\
             ip addr add 2001:db8:9::1/64 dev far0 nodad\n\
             ip link set far0 up\n\
             echo 1 >/proc/sys/net/ipv4/ip_forward\n\
             echo 1 >/proc/sys/net/ipv6/conf/all/forwarding\n\
             echo 0 >/proc/sys/net/ipv4/icmp_ratelimit\n\
             echo 0 >/proc/sys/net/ipv6/icmp/ratelimit"
        ));
        host_go.send(()).unwrap();
        let _ = over.recv();
        drop(send_host_over);
    });
    router_go.send(()).unwrap();
    (router, send_over, ready)
}

/// Echoes protocol 253 and TCP until the test's process ends.
fn echoes(host: &'static str) {
    let any = SocketAddr::new(host.parse().unwrap(), 0);
    let listener = TcpListener::bind((host, TCP_PORT)).unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            std::io::copy(&mut tcp.try_clone().unwrap(), &mut tcp).unwrap();
        }
    });
    let protocol = Some(socket2::Protocol::from(253));
    let socket =
        socket2::Socket::new(socket2::Domain::for_address(any), socket2::Type::RAW, protocol);
    let socket: UdpSocket = socket.unwrap().into();
    std::thread::spawn(move || {
        let header = if any.is_ipv4() { 20 } else { 0 };
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[header..length], from).unwrap();
        }
    });
}

/// Both gateways with the transport between them, until the client is done.
async fn gateways(setup: Setup, client: mpsc::Sender<()>, done: &mpsc::Receiver<()>) -> Counted {
    let configs = cabin_configs(setup.air, setup.ground);
    let (connector, acceptor) = (setup.over)(&configs);
    let air = Air::bind(&configs.air, &mut Inherited::default(), connector).unwrap();
    let ground = Ground::new(&configs.ground).unwrap();
    let counted = Counted { air: air.counters(), ground: ground.counters() };
    tokio::spawn(async move { ground.serve(vec![acceptor], std::future::pending()).await });
    air.serve(finished(client, done)).await;
    counted
}
