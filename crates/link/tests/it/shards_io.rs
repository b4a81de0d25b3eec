//! A sharded hub on real sockets on loopback.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket as StdUdpSocket};
use std::time::Duration;

use bentpipe_link::io::{Air, Hub, Open, UdpSocket};
use bentpipe_link::{
    AirConfig, Aircraft, BeamError, Class, HubConfig, MAX_SHARDS, Overflow, PerClass, SecretKey,
    Settings, SnapshotLimits,
};
use bentpipe_units::BitRate;
use bytes::Bytes;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
const AIRCRAFT: usize = 5;

struct World {
    hub: Hub,
    airs: Vec<Air>,
    address: SocketAddr,
}

fn start(aircraft: usize, shards: usize) -> World {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let secret = SecretKey::generate(&mut rng);
    let secrets: Vec<_> = (0..aircraft).map(|_| SecretKey::generate(&mut rng)).collect();
    let settings = Settings {
        rate: BitRate::from_bps(200_000_000),
        initial_rtt: Duration::from_millis(50),
        ..Settings::default()
    };
    let of = |secret: &SecretKey| Aircraft {
        key: secret.public(),
        settings: settings.clone(),
        highest_class: Class::BestEffort,
    };
    let config = HubConfig { secret: secret.clone(), aircraft: secrets.iter().map(of).collect() };
    let bind = || {
        let socket = StdUdpSocket::bind("127.0.0.1:0").unwrap();
        Box::new(UdpSocket::from_std(socket).unwrap())
    };
    let hub = Hub::start_sharded(bind(), config, shards);
    let address = hub.local_addr().unwrap();
    let air = |own: SecretKey| {
        let (hub, settings) = (secret.public(), settings.clone());
        let config = AirConfig { secret: own, hub, address, settings, first_counter: 1 };
        Air::start(bind(), config)
    };
    World { hub, airs: secrets.into_iter().map(air).collect(), address }
}

/// Echoes a megabyte through each aircraft at once.
async fn echo(world: &World) {
    let hub = world.hub.clone();
    let serve = tokio::spawn(async move {
        let mut served = BTreeSet::new();
        for _ in 0..AIRCRAFT {
            let incoming = hub.accept().await.unwrap().stream().unwrap();
            served.insert(incoming.aircraft);
            tokio::spawn(async move {
                let (mut read, mut write) = tokio::io::split(incoming.flow);
                tokio::io::copy(&mut read, &mut write).await.unwrap();
                write.shutdown().await.unwrap();
            });
        }
        served.len()
    });
    let mut transfers = JoinSet::new();
    for (number, air) in world.airs.iter().cloned().enumerate() {
        transfers.spawn(async move {
            let target = "origin.example:80".parse().unwrap();
            let (class, passenger, first) = (Class::BestEffort, 1, Bytes::new());
            let open = Open { target, class, passenger, claim: None, first };
            let (mut read, mut write) = tokio::io::split(air.open(open).await.unwrap());
            let body: Vec<u8> = (0..1_000_000).map(|at| (at % 251 + number) as u8).collect();
            let sent = body.clone();
            let writer = tokio::spawn(async move {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            });
            let mut echoed = Vec::new();
            timeout(PATIENCE, read.read_to_end(&mut echoed)).await.unwrap().unwrap();
            writer.await.unwrap();
            assert!(echoed == body);
        });
    }
    transfers.join_all().await;
    assert_eq!(serve.await.unwrap(), AIRCRAFT);
}

async fn every_aircraft_is_served(shards: usize) {
    let world = start(AIRCRAFT, shards);
    let hub = &world.hub;
    assert_eq!(hub.shards(), shards);
    // Strangers' datagrams between those of the aircraft.
    let stranger = StdUdpSocket::bind("127.0.0.1:0").unwrap();
    for byte in 0..100 {
        stranger.send_to(&[0x40 | byte & 0x0f; 1_200], world.address).unwrap();
    }
    echo(&world).await;
    let refused = hub.take_refused();
    assert_eq!((refused.datagrams, refused.overflow), (100, Overflow::default()));
    assert_eq!(hub.take_refused().datagrams, 0);
    let status = hub.status();
    let ids: BTreeSet<_> = status.iter().map(|(id, _)| *id).collect();
    assert_eq!((status.len(), ids.len()), (AIRCRAFT, AIRCRAFT));
    let max = SnapshotLimits { flows: 4, passengers: 4 };
    for (id, session) in &status {
        let counters = hub.class_counters(*id, Class::BestEffort).unwrap();
        assert!(counters.sent.bytes >= 1_000_000, "{counters:?}");
        assert!(hub.traffic(&session.aircraft, max).is_some());
        hub.set_classes(&session.aircraft, PerClass::default()).unwrap();
    }
    assert_eq!(hub.homes().len(), AIRCRAFT);
    let rate = Some(BitRate::from_bps(1_000_000_000));
    assert_eq!(hub.set_beam(rate, rate), Err(BeamError::Shards(shards)));
    let pulse = hub.pulse();
    let moves = async {
        while hub.pulse() <= pulse {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, moves).await.unwrap();
    let accepting = tokio::spawn({
        let hub = hub.clone();
        async move { hub.accept().await.is_none() }
    });
    timeout(PATIENCE, hub.close()).await.unwrap();
    assert!(timeout(PATIENCE, accepting).await.unwrap().unwrap());
    // The port is free once the reader has ended, too.
    drop(world.hub);
    let free = async {
        while StdUdpSocket::bind(world.address).is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, free).await.unwrap();
}

#[tokio::test]
async fn two_shards_serve_every_aircraft_on_one_thread() {
    every_aircraft_is_served(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_shards_serve_every_aircraft_on_two_threads() {
    every_aircraft_is_served(4).await;
}

#[tokio::test]
async fn there_are_no_more_shards_than_aircraft_and_the_maximum() {
    assert_eq!(start(1, 8).hub.shards(), 1);
    assert_eq!(start(3, 0).hub.shards(), 1);
    assert_eq!(start(40, 1_000).hub.shards(), MAX_SHARDS);
}
