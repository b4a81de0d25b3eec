//! Sessions without leases compete with the kernel's CUBIC on one link, in real time.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bentpipe_flow::{Host, Target};
use bentpipe_lab::emu::{AIR, GROUND, Lateness, Testbed};
use bentpipe_lab::sim::share::{of_fair, symmetric};
use bentpipe_link::io::{Air, Hub, Open, UdpSocket};
use bentpipe_link::{AirConfig, Aircraft, Class, Control, HubConfig, SecretKey, Settings};
use bentpipe_units::BitRate;
use bytes::Bytes;
use nix::sys::socket::{setsockopt, sockopt};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::timed::{Attempt, timed};

const HUB_PORT: u16 = 4500;
const TCP_PORT: u16 = 9000;
/// Interval between the senders' starts.
const STAGGER: Duration = Duration::from_secs(1);
/// Measured time after the last start.
const LENGTH: Duration = Duration::from_secs(60);
/// Minimum share of each sender, as a fraction of its fair share.
const LEAST: f64 = 0.5;

/// Bytes received from each sender.
type Counts = Arc<[AtomicU64; 3]>;

/// Senders 0 and 1 are the two sessions; sender 2 is their competitor.
const COMPETITOR: usize = 2;

pub fn with_the_kernel() {
    timed(share);
}

fn share() -> Attempt {
    let direction = "rate = '10 Mbit/s'\ndelay = '50 ms'\nqueue = '1 BDP'";
    let direction = toml::from_str(direction).expect("a direction");
    let testbed = Testbed::new(&symmetric(&direction), None, 1).expect("a testbed");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let counts = Counts::default();
    start_sessions(&testbed, &counts);
    start_tcp(&testbed, &counts);
    let read = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    let before = read();
    thread::sleep(LENGTH);
    let after = read();
    let got = [0, 1, 2].map(|number| (after[number] - before[number]) as f64);
    let mbps = got.iter().sum::<f64>() * 8e-6 / LENGTH.as_secs_f64();
    let shares = of_fair(&got);
    let counters = testbed.radio_counters().expect("counters");
    println!(
        "  {shares:.2?} of the fair share, {mbps:.2} Mbit/s, {} dropped",
        counters.return_.model.queue_dropped.packets
    );
    // The rate of all together is a bound of the simulator's tests.
    let is_fair = shares.iter().all(|share| *share >= LEAST);
    let failure = || format!("{shares:.2?} of the fair share, at least {LEAST}");
    (Lateness::of([&counters]), is_fair.then_some(()).ok_or_else(failure))
}

fn at(address: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}

/// Starts two sessions from the air to the ground, one after the other, and waits until the next
/// start.
fn start_sessions(testbed: &Testbed, counts: &Counts) {
    let settings = Settings {
        rate: BitRate::from_bps(100_000_000),
        control: Control::Congestion,
        ..Settings::default()
    };
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let secret = SecretKey::generate(&mut rng);
    let keys = [(); 2].map(|()| SecretKey::generate(&mut rng));
    let entry = |key: &SecretKey| Aircraft {
        key: key.public(),
        settings: settings.clone(),
        highest_class: Class::BestEffort,
    };
    let config = HubConfig { secret: secret.clone(), aircraft: keys.iter().map(entry).collect() };
    let socket = testbed.ground.udp_socket(at(GROUND.v4, HUB_PORT)).expect("a socket");
    let hub = Hub::start(Box::new(UdpSocket::from_std(socket).expect("a socket")), config);
    tokio::spawn(serve_link(hub, counts.clone()));
    for (number, key) in keys.into_iter().enumerate() {
        let config = AirConfig {
            secret: key,
            hub: secret.public(),
            address: at(GROUND.v4, HUB_PORT),
            settings: settings.clone(),
            first_counter: 1,
        };
        let socket = testbed.air.udp_socket(at(AIR.v4, 0)).expect("a socket");
        let air = Air::start(Box::new(UdpSocket::from_std(socket).expect("a socket")), config);
        tokio::spawn(send(air, number));
        thread::sleep(STAGGER);
    }
}

async fn send(air: Air, number: usize) {
    let target = Target { host: Host::Name("sink.example".into()), port: number as u16 };
    let open =
        Open { target, class: Class::BestEffort, passenger: 1, claim: None, first: Bytes::new() };
    loop {
        match air.open(open.clone()).await {
            Ok(flow) => return fill(flow).await,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve_link(hub: Hub, counts: Counts) {
    while let Some(incoming) = hub.accept().await {
        let Some(incoming) = incoming.stream() else { continue };
        let number = usize::from(incoming.target.port);
        tokio::spawn(drain(incoming.flow, counts.clone(), number));
    }
}

fn start_tcp(testbed: &Testbed, counts: &Counts) {
    let to = at(GROUND.v4, TCP_PORT);
    let (listener, counts) = (testbed.ground.tcp_listener(to).expect("a listener"), counts.clone());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut chunk = [0; 1 << 16];
        while let Ok(bytes @ 1..) = stream.read(&mut chunk) {
            counts[COMPETITOR].fetch_add(bytes as u64, Ordering::Relaxed);
        }
    });
    // Both threads end with the process, and so does the testbed's wire.
    let sender = testbed.air.spawn_thread(move || {
        let mut stream = TcpStream::connect(to).expect("a connection");
        setsockopt(&stream, sockopt::TcpCongestion, &OsString::from("cubic")).expect("CUBIC");
        while stream.write_all(&[0x5a; 1 << 16]).is_ok() {}
    });
    drop(sender.expect("a thread"));
}

/// Writes forever.
async fn fill(mut flow: impl AsyncWrite + Unpin) {
    while flow.write_all(&[0x5a; 1 << 14]).await.is_ok() {}
}

/// Reads forever, and counts the bytes.
async fn drain(mut flow: impl AsyncRead + Unpin, counts: Counts, number: usize) {
    let mut chunk = vec![0; 1 << 14];
    while let (Ok(bytes @ 1..), Some(count)) = (flow.read(&mut chunk).await, counts.get(number)) {
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
