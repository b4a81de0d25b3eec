//! The ground gateway on a machine with a global address and a path with a small MTU, in a
//! namespace.

use std::io::ErrorKind;
use std::net::SocketAddr;

use bentpipe_flow::ResetCode;
use bentpipe_gateway::ground::policy::Policy;
use tokio::net::UdpSocket;

use crate::bench::{LOOPBACK, echo, start, through_socks, until};
use crate::tproxy::{as_root, new_network, sh};
use crate::udp::{self, Client, head};

/// A global address of this machine.
const GLOBAL: &str = "1.2.3.4:0";

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn global_addresses_of_the_machine_are_refused() {
    as_root("paths::global_addresses_of_the_machine_are_refused", || {
        new_network();
        sh("ip addr add 1.2.3.4/32 dev lo");
        block_on(async {
            let bench = start("", "");
            drop(through_socks(&bench, echo(GLOBAL).await).await);
            until("TCP was refused", || bench.ground.resets(ResetCode::Forbidden) == 1).await;
            let client = Client::of(bench.socks).await;
            client.send(&head(udp::echo(GLOBAL).await), b"anybody?").await;
            until("UDP was refused", || bench.ground.resets(ResetCode::Forbidden) == 2).await;
            // The operator may allow it.
            let bench = start("", "dial = { allow = [\"1.2.3.4/32\"] }");
            let client = Client::of(bench.socks).await;
            client.echoes(&head(udp::echo(GLOBAL).await), b"it does").await;
        });
    });
}

/// The ground gateway is in a network of public addresses, with a default route by one of its
/// routers. No port is free during the test, because route lookups must work without a UDP socket.
#[test]
fn neighbours_are_refused_and_what_is_behind_a_router_is_not() {
    as_root("paths::neighbours_are_refused_and_what_is_behind_a_router_is_not", || {
        new_network();
        sh("ip link add hub0 type veth peer name isp0
            ip addr add 1.2.3.2/24 dev hub0
            ip -6 addr add 2a01::2/64 dev hub0 nodad
            ip link set hub0 up
            ip link set isp0 up
            ip route add default via 1.2.3.1
            ip -6 route add default via 2a01::1
            echo 40000 40000 >/proc/sys/net/ipv4/ip_local_port_range");
        let taken = ["0.0.0.0:0", "[::]:0"].map(std::net::UdpSocket::bind);
        assert_eq!(taken[0].as_ref().unwrap().local_addr().unwrap().port(), 40_000);
        let policy = |dial: &str| Policy::new(&toml::from_str(dial).unwrap());
        let refuses = |policy: &Policy, to: &str| match policy.path(to.parse().unwrap()) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{to}: {error}");
                true
            }
        };
        let safe = policy("");
        for neighbour in
            ["1.2.3.1:80", "1.2.3.77:443", "1.2.3.2:80", "[2a01::1]:80", "[2a01::2]:80"]
        {
            assert!(refuses(&safe, neighbour), "{neighbour}");
        }
        for beyond in ["9.9.9.9:443", "1.2.4.1:80", "[2606::1]:443"] {
            assert!(!refuses(&safe, beyond), "{beyond}");
        }
        let open = policy("allow = [\"1.2.3.0/24\", \"2a01::/64\"]");
        for neighbour in ["1.2.3.1:80", "1.2.3.2:80", "[2a01::1]:80"] {
            assert!(!refuses(&open, neighbour), "{neighbour}");
        }
        // A point-to-point line has no router address, and nobody there is a neighbour.
        sh("ip route replace default dev hub0; ip -6 route replace default dev hub0");
        assert!(!refuses(&safe, "9.9.9.9:443") && !refuses(&safe, "[2606::1]:443"));
        assert!(refuses(&safe, "1.2.3.77:443"));
        sh("ip route del default");
        assert!(safe.path("9.9.9.9:443".parse().unwrap()).is_err(), "there is no route");
    });
}

/// Packets are not fragmented: the sender of oversized packets learns the maximum.
#[test]
fn too_large_for_the_path_is_told() {
    as_root("paths::too_large_for_the_path_is_told", || {
        new_network();
        sh("ip link set lo mtu 1000");
        block_on(async {
            let bench = start("", LOOPBACK);
            let client = Client::of(bench.socks).await;
            let origin = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let to: SocketAddr = origin.local_addr().unwrap();
            client.send(&head(to), &[7; 972]).await;
            let mut buffer = [0; 2048];
            assert_eq!(origin.recv(&mut buffer).await.unwrap(), 972);
            client.send(&head(to), &[7; 973]).await;
            until("it was told", || bench.ground.icmp_sent.get() == 1).await;
            assert_eq!(bench.ground.datagrams_too_large.get(), 1);
            client.send(&head(to), b"small").await;
            assert_eq!(origin.recv(&mut buffer).await.unwrap(), 5);
            assert_eq!(bench.ground.datagrams_unknown.get(), 0);
        });
    });
}
