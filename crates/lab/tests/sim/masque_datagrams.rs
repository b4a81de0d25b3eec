//! Datagrams over HTTP/3 on a link that loses packets, in virtual time.

use std::{collections::HashSet, time::Duration};

use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_lab::sim::net::Net;
use bentpipe_masque::{
    Client, ClientConfig, DatagramFlow, SecretKey, Server, ServerConfig, public_key,
};
use tokio::time::{Instant, sleep_until, timeout_at};

/// One-way delay of the link.
const ONE_WAY: Duration = Duration::from_millis(300);
/// Twice the resolution of the simulator's timers.
const GRAIN: Duration = Duration::from_millis(2);

/// A call: 50 packets per second for a minute.
const PACKETS: u32 = 3_000;
const SPACING: Duration = Duration::from_millis(20);

fn link(loss: &str) -> LinkSpec {
    let text =
        format!("delay = \"300 ms\"\nrate = \"10 Mbit/s\"\nloss = \"{loss}\"\nqueue = \"1 BDP\"");
    let direction: DirectionSpec = toml::from_str(&text).unwrap();
    LinkSpec { forward: direction.clone(), return_: direction }
}

/// Received datagrams of a call from the air to the ground.
struct Heard {
    packets: usize,
    /// Longest time in flight.
    slowest: Duration,
    /// `true` if each datagram arrived once and in order.
    in_order: bool,
}

async fn call(loss: &str, frames: bool) -> Heard {
    let net = Net::new(11);
    let ground = net.node([10, 0, 0, 1].into()).unwrap();
    let air = net.node([10, 0, 0, 2].into()).unwrap();
    net.join(&ground, &air, &link(loss));
    let (air_key, ground_key) = (SecretKey::new([1; 32]), SecretKey::new([2; 32]));
    let hub = ground.bind(443).unwrap();
    let server_key = public_key(&ground_key);
    let config = ServerConfig::new(ground_key, HashSet::from([public_key(&air_key)]));
    let server = Server::start(config, hub.quic(1)).unwrap();
    let mut config = ClientConfig::new(hub.local_addr(), server_key, air_key);
    config.transport.datagrams = frames;
    let client = Client::connect(config, air.bind(5000).unwrap().quic(2)).unwrap();
    let near = client.open_datagrams("192.0.2.1:5004", 17, 5004, 1, 1);
    let far = server.accept().await.unwrap().into_datagrams();
    // The response is on its way back, so nothing waits for the opening from here on.
    far.send(b"\0answer").unwrap();
    near.receive().await.unwrap();

    let began = Instant::now();
    let (heard, ()) = tokio::join!(hear(&far, began), send(&near, began));
    heard
}

async fn send(flow: &DatagramFlow, began: Instant) {
    for number in 0..PACKETS {
        sleep_until(began + SPACING * number).await;
        let mut packet = [0; 173];
        packet[1..5].copy_from_slice(&number.to_be_bytes());
        flow.send(&packet).unwrap();
    }
}

async fn hear(flow: &DatagramFlow, began: Instant) -> Heard {
    let mut heard = Heard { packets: 0, slowest: Duration::ZERO, in_order: true };
    let deadline = began + SPACING * PACKETS + Duration::from_secs(30);
    let mut last = None;
    while let Ok(packet) = timeout_at(deadline, flow.receive()).await {
        let packet = packet.unwrap();
        let number = u32::from_be_bytes(packet[1..5].try_into().unwrap());
        heard.packets += 1;
        heard.slowest = heard.slowest.max(began.elapsed() - SPACING * number);
        heard.in_order &= last.is_none_or(|last| last < number);
        last = Some(number);
    }
    heard
}

#[tokio::test(start_paused = true)]
async fn lost_datagrams_are_not_retransmitted() {
    let clean = call("0 %", true).await;
    assert_eq!(clean.packets, PACKETS as usize);
    assert!(clean.slowest <= ONE_WAY + GRAIN, "{:?}", clean.slowest);
    assert!(clean.in_order);
    let lossy = call("2 %", true).await;
    println!("2 %: {} packets, {:?}", lossy.packets, lossy.slowest);
    // Within five standard deviations of 7.7 packets.
    let lost = PACKETS as usize - lossy.packets;
    assert!((60 - 39..60 + 39).contains(&lost), "{lost} lost");
    assert!(lossy.in_order);
}

/// Capsules are as reliable as the stream below them, and as late.
#[tokio::test(start_paused = true)]
async fn capsules_are_sent_again() {
    let lossy = call("2 %", false).await;
    println!("2 %, capsules: {} packets, {:?}", lossy.packets, lossy.slowest);
    assert_eq!(lossy.packets, PACKETS as usize);
    assert!(lossy.in_order && lossy.slowest > ONE_WAY * 3, "{:?}", lossy.slowest);
}
