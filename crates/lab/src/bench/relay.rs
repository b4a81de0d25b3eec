//! TCP through both gateways compared with a bare QUIC transfer, over an unlimited link: the
//! overhead of being a gateway.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{BenchError, failed, quic};
use crate::emu::Service;
use crate::emu::{Congestion, listen};
use crate::emu::{SERVER, Testbed};
use crate::experiment::table::{megabits, pairs};
use crate::profile::Profile;
use crate::result::{Row, Samples};
use crate::system::{BENTPIPE, Running, Stage, SystemUnderTest};

/// Transfers of each kind. The kinds take turns, so that other load on this machine affects both
/// alike.
const ROUNDS: usize = 7;
const LENGTH: Duration = Duration::from_secs(2);
const RAMP: Duration = Duration::from_millis(500);

/// Port of the source on the server.
const PORT: u16 = 7000;

/// Time for the first flow to open.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes per read or write.
const CHUNK_BYTES: usize = 64 << 10;

/// Target: fraction of the bare transfer's rate that the gateways should reach.
pub const TARGET: f64 = 0.8;

/// Results.
pub struct Found {
    bare: Samples,
    relayed: Samples,
    /// Ratio of the two transfers of each round, which ran under the same conditions.
    ratios: Samples,
}

/// Runs the comparison with the gateways of `program`, with their files in `folder`.
pub fn run(program: &Path, folder: &Path) -> Result<Found, BenchError> {
    let profile = Profile::named("clean")?;
    let testbed = Testbed::new(&profile.link, None, 1)?;
    let source = SocketAddr::new(SERVER.v4.into(), PORT);
    let listener = listen(&testbed.server, source, Congestion::Cubic)?;
    let _source = Service::start(&testbed.server, || pour(listener))?;
    let stage = Stage {
        testbed: &testbed,
        profile: &profile,
        beside: &[],
        folder,
        program,
        hosts: &[],
        settings: &toml::Table::new(),
    };
    let running = BENTPIPE.start(&stage).map_err(failed("start the gateways"))?;
    let (mut bare, mut relayed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(quic::run(&testbed, LENGTH)?);
        relayed.push(through(&testbed, source, &*running)?);
    }
    let ratios = bare.iter().zip(&relayed).map(|(bare, relayed)| relayed / bare).collect();
    let [bare, relayed] = [bare, relayed].map(|rates| rates.into_iter().collect());
    Ok(Found { bare, relayed, ratios })
}

fn through(
    testbed: &Testbed,
    source: SocketAddr,
    running: &dyn Running,
) -> Result<f64, BenchError> {
    testbed.client.block_on(async || receive(source).await)?.map_err(|error| BenchError::Transfer {
        doing: "receive through the gateways",
        why: format!("{error}{}", running.said()),
    })
}

async fn receive(source: SocketAddr) -> std::io::Result<f64> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let began = Instant::now();
    // The gateways may still be in their handshake.
    let mut tcp = loop {
        let mut tcp = TcpStream::connect(source).await?;
        match timeout(PATIENCE, tcp.read(&mut buffer)).await {
            Ok(Ok(1..)) => break tcp,
            _ if began.elapsed() < PATIENCE => tokio::time::sleep(RAMP).await,
            _ => return Err(std::io::ErrorKind::TimedOut.into()),
        }
    };
    let mut read = async |until: Instant| {
        let mut bytes = 0;
        while Instant::now() < until {
            match tcp.read(&mut buffer).await? {
                0 => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
                more => bytes += more,
            }
        }
        Ok(bytes)
    };
    read(Instant::now() + RAMP).await?;
    let began = Instant::now();
    let bytes = read(began + LENGTH).await?;
    Ok(8.0 * bytes as f64 / began.elapsed().as_secs_f64())
}

/// Sends to every client until it disconnects.
async fn pour(listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((mut tcp, _)) = listener.accept().await {
        tokio::spawn(async move {
            let chunk = vec![0x5a; CHUNK_BYTES];
            while tcp.write_all(&chunk).await.is_ok() {}
        });
    }
}

impl Found {
    /// Rate through the gateways as a fraction of the bare transfer: the median over the rounds.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios)
    }

    /// Results as rows.
    pub fn rows(&self) -> Vec<Row> {
        let row = |system: &str, metric: &str, unit: &str, limit| Row {
            experiment: "relay".into(),
            engine: "emu".into(),
            system: Some(system.into()),
            profile: Some("clean".into()),
            workload: Some("bulk".into()),
            metric: metric.into(),
            unit: unit.into(),
            limit,
            seed: Some(1),
            ..Row::default()
        };
        let bare = median(&self.bare);
        vec![
            self.bare.fill(row("quinn", "goodput", "bit/s", None)),
            self.relayed.fill(row("bentpipe", "goodput", "bit/s", Some(bare))),
            self.ratios.fill(row("bentpipe", "ratio", "ratio", None)),
        ]
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = |samples: &Samples| {
            let at = |q| samples.known(q).unwrap_or(f64::NAN);
            format!("{}  ({} – {})", megabits(at(0.5)), megabits(at(0.0)), megabits(at(1.0)))
        };
        let verdict = if self.ratio() >= TARGET { "reached" } else { "missed" };
        let rows = [
            ("bare QUIC, air ↔ ground".to_owned(), spread(&self.bare)),
            ("TCP through both gateways".to_owned(), spread(&self.relayed)),
            ("ratio".to_owned(), format!("{:.2}  (target ≥ {TARGET}: {verdict})", self.ratio())),
        ];
        write!(f, "{}", pairs(&rows))
    }
}

fn median(samples: &Samples) -> f64 {
    samples.median().unwrap_or(f64::NAN)
}
