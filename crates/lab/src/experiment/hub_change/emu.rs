//! Scripts with real gateways, which are killed, on emulated links.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use bentpipe_units::BitRate;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::bounds::{INTERNET_RTT, REST};
use super::files::{Files, Keys};
use super::gateways::Gateways;
use super::script::{Played, Script, Stage};
use super::traffic::{Load, Log};
use crate::emu::{AIR_CABIN, GROUND, Host, SERVER, Service, Testbed};
use crate::profile::Profile;
use crate::workload::client::socks5;
use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_units::Ratio;

const PORT: u16 = 7000;
const SOCKS5_PORT: u16 = 1080;
/// Ports of the hubs, and of the egresses.
const HUB_PORTS: [u16; 2] = [4500, 4501];
const EGRESS_PORTS: [u16; 2] = [4433, 4434];
/// Networks of the testbed.
const NETWORKS: &str = "198.18.0.0/15";
/// Maximum time until a flow can be opened.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which the servers' ends are polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Rate of the path between hubs and egresses.
const INTERNET_BPS: u64 = 100_000_000;

/// Real gateways over the emulated link of a profile.
pub struct Emu<'a> {
    /// The radio link.
    pub profile: &'a Profile,
    /// Seed of all losses.
    pub seed: u64,
    /// The program of the gateways.
    pub program: PathBuf,
    /// Existing folder for files.
    pub folder: &'a Path,
}

impl Stage for Emu<'_> {
    fn name(&self) -> &'static str {
        "emu"
    }

    fn play(&self, script: &Script) -> anyhow::Result<Played> {
        let folder = tempfile::tempdir_in(self.folder)?;
        let rate = BitRate::from_bps(INTERNET_BPS);
        let way = DirectionSpec::fixed(Some(rate), INTERNET_RTT / 2, Ratio::ZERO);
        let internet = LinkSpec { forward: way.clone(), return_: way };
        let testbed = Testbed::new(&self.profile.link, Some(&internet), self.seed)?;
        testbed.measure()?;
        let proxies: Vec<_> = (SOCKS5_PORT..).take(script.aircraft).map(proxy).collect();
        self.write(script, proxies[0], folder.path())?;
        let mut gateways = Gateways::start(&self.program, folder.path(), &testbed, &proxies)?;
        let _probe = serve(&testbed.server, PORT + 1, |mut tcp| async move {
            let _ = tokio::io::copy_bidirectional(&mut tcp, &mut tokio::io::empty()).await;
        })?;
        testbed.client.block_on(async || {
            for proxy in &proxies {
                first_flow(*proxy).await?;
            }
            anyhow::Ok(())
        })??;
        let began_bytes = radio_bytes(&testbed)?;

        let log = Arc::new(Log::new(script.load, script.until));
        let at_server = log.clone();
        let _server = serve(&testbed.server, PORT, move |tcp| {
            let log = at_server.clone();
            async move { log.play_server(tcp).await }
        })?;
        let (at_client, openings) = (log.clone(), script.openings.clone());
        let limit = script.until + if script.load == Load::Paced { REST } else { Duration::ZERO };
        let clients = testbed.client.spawn_thread(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let flows = open_all(&proxies, &at_client, openings);
                let left = limit.saturating_sub(at_client.now());
                let _ = timeout(left, flows).await;
            });
            std::io::Result::Ok(())
        })?;
        for (at, event) in &script.events {
            thread::sleep(at.saturating_sub(log.now()));
            gateways.happen(*event)?;
        }
        clients.join().map_err(|_| anyhow!("the clients panicked"))??;
        let all = 2 * script.openings.iter().map(|(_, flows)| flows.len()).sum::<usize>();
        while !log.is_over(all) && log.now() < limit {
            thread::sleep(LOOK_INTERVAL);
        }
        let radio_bytes = radio_bytes(&testbed)? - began_bytes;
        testbed.sound_counters()?;
        Ok(Played { course: log.course(), radio_bytes })
    }
}

impl Emu<'_> {
    fn write(&self, script: &Script, proxy: SocketAddr, folder: &Path) -> anyhow::Result<()> {
        let keys = Keys::generate(script.aircraft, &mut ChaCha20Rng::seed_from_u64(self.seed));
        let files = Files {
            profile: self.profile,
            roles: script.roles,
            hubs: HUB_PORTS.map(|port| (GROUND.v4, port).into()),
            egresses: EGRESS_PORTS.map(|port| (SERVER.v4, port).into()),
            socks5: proxy,
            allow: NETWORKS,
        };
        files.write(folder, &keys)
    }
}

/// Accepts connections on `port` of `host`.
fn serve<F: Future<Output = ()> + Send + 'static>(
    host: &Host,
    port: u16,
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> anyhow::Result<Service> {
    let listener = host.tcp_listener((SERVER.v4, port).into())?;
    listener.set_nonblocking(true)?;
    Ok(Service::start(host, move || async move {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        loop {
            match listener.accept().await {
                Ok((tcp, _)) => drop(tokio::spawn(serve(tcp))),
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    })?)
}

/// SOCKS5 address at `port` of the air's host.
fn proxy(port: u16) -> SocketAddr {
    (AIR_CABIN.v4, port).into()
}

/// Waits until a flow can be opened and its server answers the end with an end.
async fn first_flow(proxy: SocketAddr) -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let exchange = async {
            let mut tcp = socks5(proxy, (SERVER.v4, PORT + 1).into()).await?;
            tcp.shutdown().await?;
            tcp.read(&mut [0]).await
        };
        match timeout(PATIENCE / 3, exchange).await {
            Ok(Ok(0)) => return Ok(()),
            _ => sleep(Duration::from_millis(200)).await,
        }
    }
    bail!("no flow can be opened")
}

/// Opens the flows at their times, and plays them to their end. The aircraft take turns.
async fn open_all(
    proxies: &[SocketAddr],
    log: &Arc<Log>,
    openings: Vec<(Duration, std::ops::Range<u16>)>,
) {
    let mut flows = JoinSet::new();
    for (at, numbers) in openings {
        for number in numbers {
            let (log, proxy) = (log.clone(), proxies[usize::from(number) % proxies.len()]);
            flows.spawn(async move {
                log.reach(at).await;
                match socks5(proxy, (SERVER.v4, PORT).into()).await {
                    Ok(tcp) => log.play_client(number, tcp).await,
                    Err(error) => log.failed(number, error.to_string()),
                }
            });
        }
    }
    while flows.join_next().await.is_some() {}
}

fn radio_bytes(testbed: &Testbed) -> anyhow::Result<u64> {
    let counters = testbed.radio_counters()?;
    Ok(counters.forward.model.offered.bytes + counters.return_.model.offered.bytes)
}
