//! Memory of both gateways for many idle flows.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::time::timeout;

use super::{BenchError, failed};
use crate::emu::{AIR_CABIN, GROUND, GROUND_INTERNET, SERVER, Testbed};
use crate::experiment::table::pairs;
use crate::profile::Profile;
use crate::result::{Row, Samples};
use crate::system::pair::{Pair, PairSpec};
use crate::system::process::Process;
use crate::workload::client;

/// Maximum memory of both gateways together.
pub const TARGET_BYTES: u64 = 400 << 20;

/// Port of the holding program on the server.
const PORT: u16 = 7001;

/// Time for everything to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Flows that are opened concurrently.
const OPENING: usize = 64;

/// Results.
pub struct Found {
    flows: usize,
    before: [u64; 2],
    after: [u64; 2],
    took: Duration,
}

/// Opens `flows` flows through the gateways of `program`, sends a byte in both directions on each
/// of them, and leaves them idle. A separate process, `holder` with the argument `hold`, holds the
/// server's ends, because one process may not have enough descriptors for both.
pub fn run(
    flows: usize,
    program: &Path,
    holder: &Path,
    folder: &Path,
) -> Result<Found, BenchError> {
    let profile = Profile::named("clean")?;
    let testbed = Testbed::new(&profile.link, None, 1)?;
    let server = SocketAddr::new(SERVER.v4.into(), PORT);
    let socks5 = SocketAddr::new(AIR_CABIN.v4.into(), 1080);
    let spec = PairSpec {
        allow: vec![format!("{}/24", GROUND_INTERNET.v4)],
        max_flows: flows + 64,
        flows_per_second: 100_000,
        ..PairSpec::new(&profile, socks5, SocketAddr::new(GROUND.v4.into(), 4500))
    };
    let path = program.to_string_lossy();
    let mut hold = testbed.server.command(&holder.to_string_lossy());
    hold.arg("hold").arg(server.to_string());
    let _holder =
        Process::start(hold, &folder.join("hold.log")).map_err(failed("start the server's end"))?;
    let (air, ground) = (testbed.air.command(&path), testbed.ground.command(&path));
    let pair = Pair::start(&spec, folder, air, ground)?;
    bentpipe_net::raise_descriptor_limit();
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed("start the clients"))?;
    let memory = || {
        let one =
            |process: &Process| process.resident_bytes().map_err(failed("read a gateway's memory"));
        Ok::<_, BenchError>([one(&pair.air)?, one(&pair.ground)?])
    };
    testbed.client.run(|| {
        runtime.block_on(async {
            let first = first(socks5, server).await.map_err(|why| BenchError::Transfer {
                doing: "open the first flow",
                why: format!("{why}\n{}\n{}", pair.air.tail(), pair.ground.tail()),
            })?;
            let before = memory()?;
            let began = Instant::now();
            let mut held = vec![first];
            while held.len() < flows {
                let batch = OPENING.min(flows - held.len());
                let opening = (0..batch).map(|_| open(socks5, server));
                let opened = futures_util::future::try_join_all(opening).await;
                held.extend(opened.map_err(failed("open a flow"))?);
            }
            let took = began.elapsed();
            tokio::time::sleep(Duration::from_secs(2)).await;
            let after = memory()?;
            // The flows must still work, otherwise the measurement is void.
            for tcp in [held.len() - 1, 0] {
                echo(&mut held[tcp]).await.map_err(failed("use a flow that idled"))?;
            }
            Ok(Found { flows: held.len(), before, after, took })
        })
    })?
}

/// Opens the first flow. The gateways may still be in their handshake.
async fn first(proxy: SocketAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        match open(proxy, server).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn open(proxy: SocketAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let mut tcp = client::socks5(proxy, server).await?;
    echo(&mut tcp).await?;
    Ok(tcp)
}

async fn echo(tcp: &mut TcpStream) -> io::Result<()> {
    let exchange = async {
        tcp.write_all(b"?").await?;
        tcp.read_exact(&mut [0]).await
    };
    timeout(PATIENCE, exchange).await.map_err(io::Error::other)??;
    Ok(())
}

/// Accepts connections at `listen` forever and echoes every byte.
pub fn hold(listen: SocketAddr) -> io::Result<()> {
    bentpipe_net::raise_descriptor_limit();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (mut tcp, _) = listener.accept().await?;
            tokio::spawn(async move {
                let mut byte = [0];
                while let Ok(1) = tcp.read(&mut byte).await {
                    if tcp.write_all(&byte).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}

impl Found {
    /// Memory of both gateways together.
    pub fn total_bytes(&self) -> u64 {
        self.after.iter().sum()
    }

    /// Results as rows.
    pub fn rows(&self) -> Vec<Row> {
        let row = |system: &str, workload: &str, bytes: u64, limit| {
            let samples: Samples = [bytes as f64].into_iter().collect();
            samples.fill(Row {
                experiment: "idle".into(),
                engine: "emu".into(),
                system: Some(system.into()),
                profile: Some("clean".into()),
                workload: Some(workload.into()),
                metric: "memory".into(),
                unit: "bytes".into(),
                limit,
                seed: Some(1),
                ..Row::default()
            })
        };
        let idle = format!("idle-{}", self.flows);
        let total = self.total_bytes();
        vec![
            row("bentpipe-air", "idle-1", self.before[0], None),
            row("bentpipe-ground", "idle-1", self.before[1], None),
            row("bentpipe-air", &idle, self.after[0], None),
            row("bentpipe-ground", &idle, self.after[1], None),
            row("bentpipe", &idle, total, Some(TARGET_BYTES as f64)),
        ]
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let grown = |index: usize| {
            let (before, after) = (self.before[index], self.after[index]);
            let each = after.saturating_sub(before) as f64 / self.flows as f64 / 1024.0;
            format!("{:.1} → {:.1} MiB  ({each:.1} KiB a flow)", mib(before), mib(after))
        };
        let total = self.total_bytes();
        let verdict = if total <= TARGET_BYTES { "reached" } else { "missed" };
        let target = mib(TARGET_BYTES);
        let rows = [
            (
                "idle flows".to_owned(),
                format!("{} in {:.1} s", self.flows, self.took.as_secs_f64()),
            ),
            ("air gateway".to_owned(), grown(0)),
            ("ground gateway".to_owned(), grown(1)),
            (
                "together".to_owned(),
                format!("{:.1} MiB  (target ≤ {target:.0} MiB: {verdict})", mib(total)),
            ),
        ];
        write!(f, "{}", pairs(&rows))
    }
}
