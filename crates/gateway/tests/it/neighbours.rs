//! Table of neighbours of a real kernel: two connected network namespaces.

use std::net::IpAddr;
use std::sync::mpsc;
use std::time::Duration;

use bentpipe_gateway::air::identity::{Identity, Neighbours, Place};

use crate::tproxy::{PATIENCE, as_root, new_network, sh};

/// Hardware address of the seat.
const SEAT: &str = "02:00:00:00:00:07";

#[test]
fn devices_are_known_by_both_families_and_invented_sources_are_not() {
    as_root("neighbours::devices_are_known_by_both_families_and_invented_sources_are_not", || {
        new_network();
        let (send_tid, tid) = mpsc::channel();
        let (send_ready, ready) = mpsc::channel::<()>();
        let (send_over, over) = mpsc::channel::<()>();
        let seat = std::thread::spawn(move || {
            new_network();
            send_tid.send(nix::unistd::gettid()).unwrap();
            ready.recv_timeout(PATIENCE).unwrap();
            sh(&format!(
                "ip link set seat0 address {SEAT}\n\
                 ip addr add 10.9.0.2/24 dev seat0\n\
                 ip addr add fd09::2/64 dev seat0 nodad\n\
                 ip link set seat0 up"
            ));
            wait_for(&over);
        });
        let tid = tid.recv_timeout(PATIENCE).unwrap();
        sh(&format!(
            "ip link add cabin0 type veth peer name seat0 netns {tid}\n\
             ip addr add 10.9.0.1/24 dev cabin0\n\
             ip addr add fd09::1/64 dev cabin0 nodad\n\
             ip link set cabin0 up\n\
             ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev cabin0\n\
             ip route add 10.7.0.0/16 via 10.9.0.9"
        ));
        send_ready.send(()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(look());
        send_over.send(()).unwrap();
        seat.join().expect("the seat's side succeeds");
    });
}

/// Keeps the seat until the gateway's side has finished.
fn wait_for(over: &mpsc::Receiver<()>) {
    // An error means that the other side failed, which is reported there.
    let _ = over.recv_timeout(3 * PATIENCE);
}

async fn look() {
    let neighbours = Neighbours::default();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let place = |text| neighbours.place(ip(text));
    let device = Place::Device(SEAT.parse().unwrap());
    assert_eq!(place("10.9.0.9"), Place::Elsewhere, "nothing is read yet");
    let looking = async {
        let router = Place::Device("02:00:00:00:00:09".parse().unwrap());
        until(|| place("10.9.0.9") == router).await;
        assert_eq!(place("10.9.0.1"), Place::Here);
        assert_eq!(place("127.0.0.1"), Place::Here);
        assert_eq!(place("10.7.1.1"), Place::Elsewhere, "behind the router");
        assert_eq!(place("fd09::77"), Place::Unproven);
        assert_eq!(place("10.9.0.77"), Place::Unproven);
        // The seat has not sent anything; the kernel discovers it.
        for seat in ["10.9.0.2", "fd09::2"] {
            tokio::time::timeout(PATIENCE, async {
                while place(seat) != device {
                    neighbours.prove(ip(seat)).await;
                }
            })
            .await
            .unwrap_or_else(|_| panic!("{seat} is {:?}", place(seat)));
        }
        neighbours.prove(ip("10.9.0.77")).await;
        assert_eq!(place("10.9.0.77"), Place::Unproven, "nobody answers");
        sh("ip neigh del 10.9.0.2 dev cabin0");
        until(|| place("10.9.0.2") == Place::Unproven).await;
    };
    tokio::select! {
        () = neighbours.follow() => unreachable!("it follows for ever"),
        () = looking => {}
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the kernel's table is followed");
}
