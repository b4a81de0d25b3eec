//! A transport whose task panics or ends by itself ends either gateway with an error.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_link::io::{Handle, UdpSocket};
use bentpipe_link::{Core, FlowEvent, PublicKey, Session, SessionId};
use bentpipe_masque::{Client, Server};
use bentpipe_net::Inherited;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};

use bentpipe_gateway::config::{AirConfig, GroundConfig, Transport};
use bentpipe_gateway::ground::Ground;
use bentpipe_gateway::transport::{
    Acceptor, Connector, FlowDatagrams, FlowStream, Incoming, Open, OpenDatagrams, OpenError, Reach,
};
use bentpipe_gateway::transports::{TransportError, masque};
use bentpipe_gateway::{air, ground};

/// An end that panics as soon as time passes.
struct Panics;

impl Core for Panics {
    type Session = Session;

    fn handle_datagram(&mut self, _: &[u8], _: SocketAddr, _: bool, _: Duration) {}

    fn transmit(&mut self, _: Duration, _: &mut Vec<u8>) -> Option<SocketAddr> {
        None
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        now
    }

    fn handle_timeout(&mut self, _: Duration) {
        panic!("as the test wants it");
    }

    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)> {
        None
    }

    fn sessions_begun(&self) -> u64 {
        0
    }

    fn session(&mut self, _: SessionId) -> Option<&mut Session> {
        None
    }

    fn close(&mut self) {}
}

/// A transport on such an end.
struct Broken(Arc<Handle<Panics>>);

impl Broken {
    fn start() -> Arc<Self> {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::from_std(socket).unwrap();
        Arc::new(Self(Handle::start(Panics, Box::new(socket))))
    }
}

impl Connector for Broken {
    fn open(&self, _: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(pending())
    }

    fn open_datagrams(
        &self,
        _: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(pending())
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        watch::channel(Reach::Up).1
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.failed())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.close())
    }
}

impl Acceptor for Broken {
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        let nobodys = |_: &Panics, _| None::<PublicKey>;
        Box::pin(async move {
            let none = self.0.accept(nobodys).await;
            assert!(none.is_none());
            None
        })
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.failed())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.close())
    }

    fn transport(&self) -> Transport {
        Transport::Link
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.0.local_addr()
    }
}

/// A socket that cannot receive, so that QUIC ends.
#[derive(Debug)]
struct DeadSocket;

impl quinn::AsyncUdpSocket for DeadSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn quinn::UdpPoller>> {
        Box::pin(DeadSocket)
    }

    fn try_send(&self, _: &quinn::udp::Transmit<'_>) -> io::Result<()> {
        Ok(())
    }

    fn poll_recv(
        &self,
        _: &mut Context<'_>,
        _: &mut [io::IoSliceMut<'_>],
        _: &mut [quinn::udp::RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 9).into())
    }
}

impl quinn::UdpPoller for DeadSocket {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn dead_socket() -> bentpipe_masque::Socket {
    let runtime = Arc::new(quinn::TokioRuntime);
    bentpipe_masque::Socket { socket: Arc::new(DeadSocket), runtime, seed: None }
}

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A folder with a key and a config in it, and the config's path.
fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.key"), KEY).unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, text.replace("KEY", KEY)).unwrap();
    (folder, file)
}

const AIR: &str = r#"[link]
private-key-file = "own.key"
peer = "127.0.0.1:9"
peer-public-key = "KEY"
rate = "1 Mbit/s"
[listen]
socks5 = "127.0.0.1:0"
"#;

const GROUND: &str = r#"[link]
private-key-file = "own.key"
listen = "127.0.0.1:0"
[[aircraft]]
name = "one"
public-key = "KEY"
rate = "1 Mbit/s"
[dns]
servers = ["127.0.0.1:9"]
"#;

/// Runs an air gateway over `connector` until it ends.
async fn air_over(
    connector: impl FnOnce(&AirConfig) -> Arc<dyn Connector>,
) -> Result<(), air::StartError> {
    let (_folder, file) = written(AIR);
    let config = AirConfig::load(&file, None).unwrap();
    let (connector, again) = (connector(&config), mpsc::channel(1).1);
    air::run_over(&config, connector, Inherited::default(), again, pending()).await
}

/// Runs a ground gateway over `acceptor` until it ends.
async fn ground_over(
    acceptor: impl FnOnce(&GroundConfig) -> Arc<dyn Acceptor>,
) -> Result<(), ground::StartError> {
    let (_folder, file) = written(GROUND);
    let config = GroundConfig::load(&file).unwrap();
    let gateway = Ground::new(&config).unwrap();
    let (acceptors, again) = (vec![acceptor(&config)], mpsc::channel(1).1);
    ground::run_over(&config, &gateway, acceptors, again, pending()).await
}

#[tokio::test]
async fn the_air_gateway_ends_with_an_error() {
    let ended = air_over(|_| Broken::start()).await;
    assert!(
        matches!(ended, Err(air::StartError::Transport(TransportError::Failed("link")))),
        "{ended:?}"
    );
}

#[tokio::test]
async fn the_ground_gateway_ends_with_an_error() {
    let ended = ground_over(|_| Broken::start()).await;
    assert!(
        matches!(ended, Err(ground::StartError::Transport(TransportError::Failed("link")))),
        "{ended:?}"
    );
}

#[tokio::test]
async fn masque_without_its_socket_ends_the_air_gateway() {
    let ended = air_over(|config| {
        let config = masque::client_config(config, ([127, 0, 0, 1], 9).into());
        Arc::new(Client::connect(config, dead_socket()).unwrap())
    });
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    assert!(
        matches!(ended, Err(air::StartError::Transport(TransportError::Failed(_)))),
        "{ended:?}"
    );
}

#[tokio::test]
async fn masque_without_its_socket_ends_the_ground_gateway() {
    let ended = ground_over(|config| {
        Arc::new(Server::start(masque::server_config(config), dead_socket()).unwrap())
    });
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    assert!(
        matches!(ended, Err(ground::StartError::Transport(TransportError::Failed("masque")))),
        "{ended:?}"
    );
}
