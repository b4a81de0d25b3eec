//! An air gateway, a ground gateway, and their clients and origins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::ground::Ground;
use bentpipe_net::Inherited;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::wire::{self, Up};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Time limit far above the duration of any step.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Bench {
    pub socks: SocketAddr,
    pub http: SocketAddr,
    pub air: Arc<Counters>,
    pub ground: Arc<Counters>,
    pub up: Arc<Up>,
    pub stop_air: oneshot::Sender<()>,
    pub air_task: JoinHandle<()>,
    _stop_ground: oneshot::Sender<()>,
    _folder: tempfile::TempDir,
}

/// Starts both gateways. `air` is added to the air's configuration and `ground` to the ground's.
pub fn start(air: &str, ground: &str) -> Bench {
    start_with(air, ground, |_| {})
}

/// Starts both gateways after calling `prepare` with the air gateway.
pub fn start_with(air: &str, ground: &str, prepare: impl FnOnce(&Air)) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.key"), KEY).unwrap();
    let air_config = air_config(&folder, air);
    let ground_text = format!(
        "{ground}\n[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{KEY}\"\nrate = \"2 Mbit/s\"\n\
         highest-class = \"operator\"\n[dns]\nservers = [\"127.0.0.1:9\"]\n[hosts]\n\"origin.test\" = \"127.0.0.1\"\n"
    );
    let ground_config =
        GroundConfig::parse(&folder.path().join("ground.toml"), &ground_text).unwrap();
    let aircraft = *ground_config.aircraft[0].key.as_bytes();
    let (up, down) = wire::link(aircraft);
    let air = Air::bind(&air_config, &mut Inherited::default(), up.clone()).unwrap();
    prepare(&air);
    let ground = Ground::new(&ground_config).unwrap();
    let (stop_air, stopped) = oneshot::channel();
    let (stop_ground, ground_stopped) = oneshot::channel();
    let bench_parts = (
        air.socks5_addr().unwrap(),
        air.http_proxy_addr().unwrap(),
        air.counters(),
        ground.counters(),
    );
    let air_task = tokio::spawn(air.serve(async { drop(stopped.await) }));
    tokio::spawn(async move {
        ground.serve(vec![down], async { drop(ground_stopped.await) }).await;
    });
    let (socks, http, air, ground) = bench_parts;
    let (_stop_ground, _folder) = (stop_ground, folder);
    Bench { socks, http, air, ground, up, stop_air, air_task, _stop_ground, _folder }
}

/// Configuration of an air gateway, as [`start`] builds it.
pub fn config_of_air(more: &str) -> AirConfig {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.key"), KEY).unwrap();
    air_config(&folder, more)
}

/// A `more` that starts with `auth` or `quic` goes into [listen]; any other goes to the top.
fn air_config(folder: &tempfile::TempDir, more: &str) -> AirConfig {
    let listens = more.starts_with("auth") || more.starts_with("quic");
    let (top, listen) = if listens { ("", more) } else { (more, "") };
    let text = format!(
        "{top}\n[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
         peer-public-key = \"{KEY}\"\nrate = \"1 Mbit/s\"\n\
         [listen]\nsocks5 = \"127.0.0.1:0\"\nhttp-proxy = \"127.0.0.1:0\"\n{listen}\n"
    );
    AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap()
}

/// Lets the ground gateway dial this machine.
pub const LOOPBACK: &str = "dial = { allow = [\"127.0.0.0/8\", \"::1/128\"] }";

/// Waits with a time limit.
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(value) => value,
        Err(_) => panic!("{what} never happened"),
    }
}

/// Waits until `check` returns `true`.
pub async fn until(what: &str, check: impl Fn() -> bool) {
    soon(what, async {
        while !check() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Lets other tasks run until they need the kernel or the clock. The number of turns is far above
/// what they need, however late the machine is.
pub async fn settled() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// An origin that echoes its input, and ends when its client does.
pub async fn echo(address: &str) -> SocketAddr {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = tcp.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
    address
}

/// An address of the loopback network that no other test and no other process of ours uses: whoever
/// connects is refused, until a test listens there.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = [127, 1 + high % 254, low, NEXT.fetch_add(1, Ordering::Relaxed)];
    (ip, 9464).into()
}

pub async fn read_exactly(tcp: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    soon("an answer", tcp.read_exact(&mut bytes)).await.unwrap();
    bytes
}

/// Reads until the end, or returns the error that occurs instead.
pub async fn read_all(tcp: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    soon("the end", tcp.read_to_end(&mut bytes)).await?;
    Ok(bytes)
}

/// A SOCKS5 client of `bench`, connected to `to`.
pub async fn through_socks(bench: &Bench, to: SocketAddr) -> TcpStream {
    socks_client(bench.socks, to).await
}

/// A client of the SOCKS5 proxy at `proxy`, connected to `to`.
pub async fn socks_client(proxy: SocketAddr, to: SocketAddr) -> TcpStream {
    let mut tcp = TcpStream::connect(proxy).await.unwrap();
    let SocketAddr::V4(to) = to else { panic!("an IPv4 address") };
    let mut hello = vec![5, 1, 0, 5, 1, 0, 1];
    hello.extend(to.ip().octets());
    hello.extend(to.port().to_be_bytes());
    tcp.write_all(&hello).await.unwrap();
    assert_eq!(read_exactly(&mut tcp, 12).await[..4], [5, 0, 5, 0]);
    tcp
}

/// Sends `text`, ends, and expects the same text back.
pub async fn echoes(mut tcp: TcpStream, text: &[u8]) {
    tcp.write_all(text).await.unwrap();
    tcp.shutdown().await.unwrap();
    assert_eq!(read_all(&mut tcp).await.unwrap(), text);
}

/// Expects a reset instead of a clean end.
pub async fn expect_reset(tcp: &mut TcpStream) {
    let error = read_all(tcp).await.expect_err("a clean end would hide the failure");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
