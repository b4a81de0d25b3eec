//! Tests of the simulated network itself.

use std::{sync::Arc, time::Duration};

use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_lab::sim::{
    net::{Net, Node, Socket},
    trace::{Digest, Outcome},
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

fn link(direction: &str) -> LinkSpec {
    let direction: DirectionSpec = toml::from_str(direction).unwrap();
    LinkSpec { forward: direction.clone(), return_: direction }
}

fn pair(net: &Net, direction: &str) -> (Node, Node, Socket, Socket) {
    let ground = net.node([10, 0, 0, 1].into()).unwrap();
    let air = net.node([10, 0, 0, 2].into()).unwrap();
    net.join(&ground, &air, &link(direction));
    let sockets = (ground.bind(443).unwrap(), air.bind(0).unwrap());
    (ground, air, sockets.0, sockets.1)
}

#[tokio::test(start_paused = true)]
async fn a_packet_takes_its_delay_and_its_time_on_the_wire() {
    let net = Net::new(1);
    let (_, _, hub, aircraft) = pair(&net, "rate = \"1 Mbit/s\"\ndelay = \"300 ms\"");
    let start = Instant::now();
    // 1000 IP bytes each: 8 ms at 1 Mbit/s.
    for number in 0..3u8 {
        aircraft.send_to(&[number; 972], hub.local_addr()).unwrap();
    }
    for number in 0..3u8 {
        let (bytes, from) = hub.recv_from().await;
        assert_eq!((bytes[0], from), (number, aircraft.local_addr()));
        let expected = Duration::from_millis(308 + 8 * u64::from(number));
        let late = start.elapsed() - expected;
        assert!(late <= Duration::from_millis(1), "{late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_moves_is_heard_from_its_new_address_only() {
    let net = Net::new(1);
    let (_, air, hub, aircraft) = pair(&net, "delay = \"300 ms\"");
    let old = aircraft.local_addr();
    hub.send_to(b"too late", old).unwrap();
    sleep(Duration::from_millis(100)).await;
    air.move_to([10, 0, 9, 9].into()).unwrap();
    assert!(timeout(Duration::from_secs(1), aircraft.recv_from()).await.is_err());
    aircraft.send_to(b"moved", hub.local_addr()).unwrap();
    let (_, from) = hub.recv_from().await;
    assert_eq!(from.ip(), air.ip());
    assert_ne!(from, old);
    hub.send_to(b"found", from).unwrap();
    assert_eq!(aircraft.recv_from().await.0, b"found");
    assert!(air.move_to([10, 0, 0, 1].into()).is_err(), "taken");
}

#[tokio::test(start_paused = true)]
async fn an_outage_takes_packets_and_ends() {
    let net = Net::new(1);
    let spec =
        "delay = \"10 ms\"\noutages = { packets = \"lost\", scheduled = [[\"1 s\", \"2 s\"]] }";
    let (_, _, hub, aircraft) = pair(&net, spec);
    for second in 0..5u8 {
        aircraft.send_to(&[second], hub.local_addr()).unwrap();
        sleep(Duration::from_secs(1)).await;
    }
    let mut got = Vec::new();
    while let Ok((bytes, _)) = timeout(Duration::from_secs(1), hub.recv_from()).await {
        got.push(bytes[0]);
    }
    assert_eq!(got, [0, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn packets_without_a_receiver_are_reported() {
    let net = Net::new(1);
    let (_, _, hub, aircraft) = pair(&net, "");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    net.on_event(move |event| tell.lock().push(event.outcome));
    aircraft.send_to(b"x", "192.0.2.1:9".parse().unwrap()).unwrap();
    let mut closed = hub.local_addr();
    closed.set_port(9);
    aircraft.send_to(b"x", closed).unwrap();
    sleep(Duration::from_secs(1)).await;
    let told = told.lock();
    assert_eq!(told[0], Outcome::NoRoute);
    assert!(matches!(told[1], Outcome::Link(_)));
    assert_eq!(told[2], Outcome::NotListening);
}

/// Digest of 2,000 packets over a link with loss and jitter.
fn run(seed: u64) -> Digest {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let net = Net::new(seed);
        let spec = "rate = \"1 Mbit/s\"\ndelay = \"300 ms\"\nloss = \"6 %\"\njitter = { shape = \"exponential\", mean = \"20 ms\" }";
        let (_, _, hub, aircraft) = pair(&net, spec);
        let digest = Arc::new(Mutex::new(Digest::of_contents()));
        let adding = digest.clone();
        net.on_event(move |event| adding.lock().add(event));
        for number in 0..1000u32 {
            aircraft.send_to(&number.to_le_bytes(), hub.local_addr()).unwrap();
            hub.send_to(&number.to_le_bytes(), aircraft.local_addr()).unwrap();
            sleep(Duration::from_millis(3)).await;
        }
        *digest.lock()
    })
}

#[test]
fn the_same_seed_repeats_and_another_differs() {
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
