//! The ground on a machine with a global address and a path of a small MTU, in a namespace.

use std::net::SocketAddr;

use bentpipe_link::ResetCode;
use tokio::net::UdpSocket;

use crate::bench::{LOOPBACK, echo, start, through_socks, until};
use crate::tproxy::{as_root, new_network, sh};
use crate::udp::{self, Client, head};

/// A global address of this machine's own.
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
            // The operator may want it.
            let bench = start("", "dial = { allow = [\"1.2.3.4/32\"] }");
            let client = Client::of(bench.socks).await;
            client.echoes(&head(udp::echo(GLOBAL).await), b"it does").await;
        });
    });
}

/// Packets are not fragmented: who sends too large ones hears what fits.
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
