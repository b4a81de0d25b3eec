//! Response time of the air gateway for cached objects, over loopback and in real time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::transport::{
    Connector, FlowDatagrams, FlowStream, Open, OpenDatagrams, OpenError, Reach,
};
use bentpipe_link::SecretKey;
use bentpipe_net::Inherited;
use futures_util::future::BoxFuture;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use crate::result::Samples;

/// Number of client connections.
const CONNECTIONS: u32 = 50;
/// Number of objects, which are requested in turn.
const OBJECTS: u32 = 100;
/// Size of each object.
const OBJECT_BYTES: usize = 10_000;

/// A peer that has every object, without delay.
struct Near;

impl Connector for Near {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move {
            let mut said = open.first.to_vec();
            loop {
                while let Some(end) = said.windows(4).position(|window| window == b"\r\n\r\n") {
                    said.drain(..end + 4);
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {OBJECT_BYTES}\r\n\r\n"
                    );
                    theirs.write_all(&[head.as_bytes(), &[b'x'; OBJECT_BYTES]].concat()).await?;
                }
                if theirs.read_buf(&mut said).await? == 0 {
                    return Ok::<(), io::Error>(());
                }
            }
        });
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn FlowStream>) })
    }

    fn open_datagrams(
        &self,
        _open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(async { Err(OpenError::Unsupported) })
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        watch::channel(Reach::Up).1
    }
}

/// Requests cached objects `rate` times per second for `seconds`. Returns the response times. If an
/// earlier response is late, a request counts from its due time. One long wait is then not a single
/// sample among thousands. The inaccuracy of the clients' timer does not count.
pub fn run(rate: u32, seconds: u64) -> anyhow::Result<Samples> {
    let config = config()?;
    let (send_address, address) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    // The gateway has its own thread, as it would be a separate process.
    let gateway = thread::spawn(move || -> anyhow::Result<()> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let air = Air::bind(&config, &mut Inherited::default(), Arc::new(Near))?;
            let _ = send_address.send(air.http_proxy_addr());
            air.serve(async { drop(stopped.await) }).await;
            Ok(())
        })
    });
    let found = match address.recv() {
        Ok(Some(address)) => ask_all(address, rate, seconds),
        // The gateway failed. Joining it returns the reason.
        _ => Ok(Samples::default()),
    };
    drop(stop);
    match gateway.join() {
        Ok(ended) => ended.and(found),
        Err(_) => Err(anyhow!("the gateway panicked")),
    }
}

fn config() -> anyhow::Result<AirConfig> {
    let folder = tempfile::tempdir()?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (key, peer) = (SecretKey::generate(&mut rng), SecretKey::generate(&mut rng).public());
    std::fs::write(folder.path().join("air.key"), format!("{}\n", key.to_base64()))?;
    let text = format!(
        "[http-cache]\n[link]\nprivate-key-file = \"air.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{peer}\"\nrate = \"1 Mbit/s\"\n[listen]\nhttp-proxy = \"127.0.0.1:0\"\n\
         [limits]\ndrain-timeout = \"1 s\"\n"
    );
    AirConfig::parse(&folder.path().join("air.toml"), &text)
        .map_err(|error| anyhow!("the air gateway's config: {error}"))
}

fn ask_all(proxy: SocketAddr, rate: u32, seconds: u64) -> anyhow::Result<Samples> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // All objects are cached before the measurement.
        let mut first = TcpStream::connect(proxy).await?;
        for number in 0..OBJECTS {
            ask(&mut first, number).await?;
        }
        let gap = Duration::from_secs(1) * CONNECTIONS / rate.max(1);
        let began = tokio::time::Instant::now();
        let clients = (0..CONNECTIONS).map(|client| {
            let first_at = began + gap * client / CONNECTIONS;
            tokio::spawn(one_client(proxy, first_at, gap, Duration::from_secs(seconds)))
        });
        let mut all = Samples::default();
        for client in clients.collect::<Vec<_>>() {
            let times = client.await??;
            all.0.extend(times.0);
        }
        Ok(all)
    })
}

async fn one_client(
    proxy: SocketAddr,
    first_at: tokio::time::Instant,
    gap: Duration,
    length: Duration,
) -> anyhow::Result<Samples> {
    let mut tcp = TcpStream::connect(proxy).await?;
    tcp.set_nodelay(true)?;
    let mut samples = Samples::default();
    let mut at = first_at;
    for number in 0.. {
        if at >= first_at + length {
            break;
        }
        let is_late = tokio::time::Instant::now() >= at && number > 0;
        tokio::time::sleep_until(at).await;
        let began = if is_late { at.into_std() } else { Instant::now() };
        ask(&mut tcp, number % OBJECTS).await?;
        samples.push(began.elapsed().as_secs_f64());
        at += gap;
    }
    Ok(samples)
}

async fn ask(tcp: &mut TcpStream, number: u32) -> anyhow::Result<()> {
    let request = format!("GET http://cabin.test/{number} HTTP/1.1\r\nHost: cabin.test\r\n\r\n");
    tcp.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(OBJECT_BYTES + 1024);
    loop {
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        if end.is_some_and(|end| answer.len() == end + 4 + OBJECT_BYTES) {
            break;
        }
        let read = tcp.read_buf(&mut answer).await?;
        if read == 0 || answer.len() > OBJECT_BYTES + 8192 {
            let shown = String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned();
            bail!("the gateway answered {shown:?}");
        }
    }
    if answer.starts_with(b"HTTP/1.1 200 ") {
        return Ok(());
    }
    bail!("the gateway answered {:?}", String::from_utf8_lossy(&answer[..200]))
}
