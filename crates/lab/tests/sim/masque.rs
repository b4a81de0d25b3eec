//! HTTP/3 CONNECT between two gateways over a simulated satellite link, in virtual time.

use std::{collections::HashSet, io, process::Command, sync::Arc, time::Duration};

use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_flow::ResetCode;
use bentpipe_lab::{
    profile::Profile,
    sim::{
        net::{Net, Node},
        trace::Digest,
    },
};
use bentpipe_masque::{Client, ClientConfig, Flow, SecretKey, Server, ServerConfig, public_key};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout_at},
};

/// Two gateways over a link, with the client in the air and the server on the ground.
struct Pair {
    air: Node,
    client: Client,
    digest: Arc<Mutex<Digest>>,
}

fn secret(byte: u8) -> SecretKey {
    SecretKey::new([byte; 32])
}

impl Pair {
    async fn over(link: &LinkSpec, seed: u64) -> Pair {
        let net = Net::new(seed);
        let ground = net.node([10, 0, 0, 1].into()).unwrap();
        let air = net.node([10, 0, 0, 2].into()).unwrap();
        net.join(&ground, &air, link);
        let digest = Arc::new(Mutex::new(Digest::of_sizes()));
        let adding = digest.clone();
        net.on_event(move |event| adding.lock().add(event));

        let hub = ground.bind(443).unwrap();
        let clients = HashSet::from([public_key(&secret(1))]);
        let config = ServerConfig::new(secret(2), clients);
        let server = Server::start(config, hub.quic(seed)).unwrap();
        tokio::spawn(serve(server));

        let config = ClientConfig::new(hub.local_addr(), public_key(&secret(2)), secret(1));
        let socket = air.bind(5000).unwrap();
        let client = Client::connect(config, socket.quic(seed.wrapping_add(1))).unwrap();
        client.connected().await;
        Pair { air, client, digest }
    }

    /// Opens a flow whose server sends `bytes` of the stream seeded by `seed`, and then ends it.
    fn fetch(&self, bytes: u64, seed: u64) -> Flow {
        let mut request = Vec::from(bytes.to_be_bytes());
        request.extend(seed.to_be_bytes());
        self.client.open("origin.example:80", 2, 1, Bytes::from(request))
    }
}

/// The byte at `offset` of the stream with this seed.
fn content(seed: u64, offset: u64) -> u8 {
    let mut word = seed.wrapping_add((offset / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word >> (8 * (offset % 8))) as u8
}

/// Answers each flow's 16 bytes (a length and a seed) with a body of that length.
async fn serve(server: Server) {
    while let Some(incoming) = server.accept().await {
        tokio::spawn(async move {
            let mut flow = incoming.accept().await?;
            let (length, seed) = (flow.read_u64().await?, flow.read_u64().await?);
            let mut sent = 0;
            while sent < length {
                let until = (sent + 4096).min(length);
                let block: Vec<u8> = (sent..until).map(|at| content(seed, at)).collect();
                flow.write_all(&block).await?;
                sent = until;
            }
            flow.shutdown().await?;
            // Wait until the client ends its direction too.
            flow.read_to_end(&mut Vec::new()).await.map(drop)
        });
    }
}

/// Reads from offset `from` until the end or `deadline`, and verifies every byte. Returns the
/// offset reached.
async fn check(flow: &mut Flow, seed: u64, from: u64, deadline: Instant) -> io::Result<u64> {
    let (mut total, mut block) = (from, vec![0; 65_536]);
    loop {
        let Ok(read) = timeout_at(deadline, flow.read(&mut block)).await else {
            return Ok(total);
        };
        let read = read?;
        if read == 0 {
            return Ok(total);
        }
        for (byte, at) in block[..read].iter().zip(total..) {
            assert_eq!(*byte, content(seed, at), "content differs at byte {at}");
        }
        total += read as u64;
    }
}

fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(run)
}

/// Results of one run over `mss`.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    object_10k: Duration,
    object_100k: Duration,
    bulk_bytes: u64,
    trace: Digest,
}

async fn objects_and_bulk(seed: u64) -> Shown {
    let pair = Pair::over(&Profile::named("mss").unwrap().link, seed).await;
    let mut completions = Vec::new();
    for bytes in [10_000, 100_000] {
        let start = Instant::now();
        let mut flow = pair.fetch(bytes, seed);
        flow.shutdown().await.unwrap();
        let far = start + Duration::from_secs(600);
        assert_eq!(check(&mut flow, seed, 0, far).await.unwrap(), bytes);
        completions.push(start.elapsed());
    }
    let mut flow = pair.fetch(1 << 40, seed);
    let end = Instant::now() + Duration::from_secs(60);
    let bulk_bytes = check(&mut flow, seed, 0, end).await.unwrap();
    flow.reset(ResetCode::Aborted);
    let trace = *pair.digest.lock();
    Shown { object_10k: completions[0], object_100k: completions[1], bulk_bytes, trace }
}

/// An ordinary QUIC library with 380.5 ms and 6 % loss in each direction.
#[test]
fn objects_and_bulk_over_mss() {
    for seed in 1..=3 {
        let real = std::time::Instant::now();
        let (shown, virtual_time) = in_virtual_time(async {
            let start = Instant::now();
            (objects_and_bulk(seed).await, start.elapsed())
        });
        let real = real.elapsed();
        let ratio = virtual_time.as_secs_f64() / real.as_secs_f64();
        println!("seed {seed}: {shown:?}; {virtual_time:?} in {real:?}: {ratio:.0} x real time");
        let rtt = Duration::from_millis(761);
        // The request goes up and the object comes down: one round trip plus the object's
        // serialization time.
        assert!(shown.object_10k >= rtt + Duration::from_millis(42), "{shown:?}");
        assert!(shown.object_100k >= rtt + Duration::from_millis(423), "{shown:?}");
        assert!(shown.object_10k < Duration::from_secs(20), "{shown:?}");
        assert!(shown.object_100k < Duration::from_secs(120), "{shown:?}");
        // At most the link's capacity, and at least a tenth of the rate expected of CUBIC at this
        // loss.
        assert!(shown.bulk_bytes < 60 * 1_890_000 / 8, "{shown:?}");
        assert!(shown.bulk_bytes > 50_000, "{shown:?}");
    }
}

/// Keys and certificates are random, so the bytes differ between runs. Their number and times do
/// not: the certificate's signature and the proofs have fixed lengths, and quinn's choices are
/// seeded.
#[test]
fn the_same_seed_repeats_sizes_times_and_fates() {
    let run = || in_virtual_time(objects_and_bulk(5));
    assert_eq!(run(), run());
    assert_ne!(run().trace, in_virtual_time(objects_and_bulk(6)).trace);
}

/// An outage of 30 s only costs time, and QUIC then follows the client to its new address.
#[test]
fn a_flow_survives_an_outage_and_a_new_address() {
    in_virtual_time(async {
        let outage = r#"
            rate = "1.89 Mbit/s"
            delay = "380.5 ms"
            loss = "1 %"
            outages = { packets = "lost", scheduled = [["4 s", "30 s"]] }
        "#;
        let direction: DirectionSpec = toml::from_str(outage).unwrap();
        let link = LinkSpec { forward: direction.clone(), return_: direction };
        let pair = Pair::over(&link, 3).await;
        let start = Instant::now();
        let mut flow = pair.fetch(2_000_000, 9);
        flow.shutdown().await.unwrap();
        let within = start + Duration::from_secs(5);
        let before = check(&mut flow, 9, 0, within).await.unwrap();
        assert!(before > 0 && before < 2_000_000);
        pair.air.move_to([10, 0, 7, 7].into()).unwrap();
        let all = check(&mut flow, 9, before, start + Duration::from_secs(600)).await.unwrap();
        assert_eq!(all, 2_000_000);
        println!("2 MB with an outage of 30 s: {:?}", start.elapsed());
        assert!(start.elapsed() > Duration::from_secs(30));
        assert_eq!(pair.client.status(), Ok(()));
    });
}

/// 40 % loss in bursts, in each direction.
#[test]
fn the_worst_profile_connects() {
    for seed in 1..=5 {
        in_virtual_time(async {
            let start = Instant::now();
            let link = Profile::named("mss-p90").unwrap().link;
            let pair = Pair::over(&link, seed).await;
            let connected = start.elapsed();
            let mut flow = pair.fetch(10_000, seed);
            flow.shutdown().await.unwrap();
            let far = Instant::now() + Duration::from_secs(900);
            assert_eq!(check(&mut flow, seed, 0, far).await.unwrap(), 10_000);
            println!("mss-p90: connected after {connected:?}, 10 KB by {:?}", start.elapsed());
        });
    }
}

/// Idle flows cost little memory: the streams at both ends and both handles.
#[test]
fn ten_thousand_idle_flows() {
    // The kernel counts the memory of a process, so the flows get a process without other tests.
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "masque::ten_thousand_idle_flows", "--nocapture"]).env(ALONE, "1");
        assert!(alone.status().unwrap().success());
        return;
    }
    in_virtual_time(async {
        let pair = Pair::over(&Profile::named("clean").unwrap().link, 1).await;
        let before = resident_bytes();
        let mut flows: Vec<Flow> = (0..10_000).map(|_| pair.fetch(1, 9)).collect();
        for flow in &mut flows {
            assert_eq!(flow.read_u8().await.unwrap(), content(9, 0));
        }
        let each = (resident_bytes() - before) / flows.len() as u64;
        println!("an idle flow takes {each} bytes, both ends and the test's task together");
        assert!(each < 16 << 10);
    });
}

/// Environment variable of the process that runs a single test.
const ALONE: &str = "BENTPIPE_TEST_ALONE";

/// Resident memory of this process, from the kernel.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
