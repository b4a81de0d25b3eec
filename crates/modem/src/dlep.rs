//! DLEP (RFC 8175): the modem on the same segment reports the rate of its link.
//!
//! The task discovers the modem, or connects to the configured address, and keeps a session with
//! it. It publishes the modem's rates, and withdraws them as soon as the session is in doubt. The
//! protocol is implemented in `bentpipe_dlep`, which also decides which of a modem's metrics count.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_dlep::{
    Backoff, DEFAULT_PORT, DISCOVERY_IPV4_GROUP, DISCOVERY_IPV6_GROUP, Offer, Rates, Router,
    RouterDiscovery, RouterEvent, RouterSettings,
};
use bentpipe_net as net;
use bentpipe_units::BitRate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::report::Publisher;
use super::segment;
use crate::config::ModemDiscovery;

/// Time limit for connecting to a modem.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a modem may leave our messages unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes per read from a modem.
const READ_BYTES: usize = 16 << 10;

/// Settings of the session with a modem.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of the modem, or the interface to discover it on.
    pub finding: ModemDiscovery,
    /// Description of this router, sent to the modem.
    pub router: RouterSettings,
    /// Destination port of discovery signals.
    pub discovery_port: u16,
}

impl Settings {
    /// Default settings of RFC 8175.
    pub fn new(finding: ModemDiscovery) -> Self {
        Self { finding, router: RouterSettings::default(), discovery_port: DEFAULT_PORT }
    }
}

/// Keeps a session with the modem until `stop`.
pub(super) async fn run(settings: Settings, said: Publisher, stop: CancellationToken) {
    let client = Client { settings, said, stop, start: Instant::now() };
    let mut backoff = Backoff::default();
    while !client.stop.is_cancelled() {
        let began = Instant::now();
        match client.attempt().await {
            Ok(()) => {}
            Err(Failure { doing, source }) => {
                let finding = &client.settings.finding;
                tracing::warn!(?finding, "no modem: {doing}: {source}{}", help(&source));
            }
        }
        // A long session shows that the modem works; a session that fails at once does not.
        if began.elapsed() > Backoff::MAX {
            backoff.reset();
        }
        tokio::select! {
            () = sleep(backoff.pause()) => {}
            () = client.stop.cancelled() => {}
        }
    }
}

struct Client {
    settings: Settings,
    said: Publisher,
    stop: CancellationToken,
    start: Instant,
}

/// A failed action and its error.
struct Failure {
    doing: String,
    source: io::Error,
}

fn failure<D: Into<String>>(doing: D) -> impl FnOnce(io::Error) -> Failure {
    |source| Failure { doing: doing.into(), source }
}

fn help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::TimedOut => {
            "; it must be on the same segment and send with TTL 255 (RFC 5082)"
        }
        io::ErrorKind::ConnectionRefused => "; is DLEP switched on there?",
        _ if error.raw_os_error() == Some(libc::ENODEV) => "; `ip link` lists the interfaces",
        _ => "",
    }
}

impl Client {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Finds the modem and runs one session. Also returns `Ok` when asked to stop.
    async fn attempt(&self) -> Result<(), Failure> {
        let (points, interface) = match &self.settings.finding {
            ModemDiscovery::At(address) => (vec![*address], None),
            ModemDiscovery::On(interface) => {
                let offer = tokio::select! {
                    offer = self.discover(interface) => offer?,
                    () = self.stop.cancelled() => return Ok(()),
                };
                tracing::info!(modem = offer.modem, points = ?offer.points, "a modem offers DLEP");
                (offer.points, Some(interface.as_str()))
            }
        };
        let none = io::Error::other("it takes sessions over TLS only, which is not supported");
        let mut failed = Failure { doing: "connecting".into(), source: none };
        for point in points {
            let connected = tokio::select! {
                connected = connect(point, interface) => connected,
                () = self.stop.cancelled() => return Ok(()),
            };
            match connected {
                Ok(tcp) => {
                    self.session(tcp, point).await;
                    return Ok(());
                }
                Err(source) => failed = failure(format!("connecting to {point}"))(source),
            }
        }
        Err(failed)
    }

    /// Sends discovery signals on `interface`, over both IP versions, until a modem answers.
    async fn discover(&self, interface: &str) -> Result<Offer, Failure> {
        let failed = || failure(format!("looking for one on {interface}"));
        let v4 = segment::DiscoverySocket::bind_v4(interface, 0, None).map_err(failed())?;
        // Without IPv6, discovery uses only IPv4.
        let v6 = segment::DiscoverySocket::bind_v6(interface, 0, None).ok();
        let mut seeker = RouterDiscovery::new(&self.settings.router.description, self.now());
        let port = self.settings.discovery_port;
        loop {
            if let Some(signal) = seeker.take_signal() {
                let sent = v4.send(&signal, (DISCOVERY_IPV4_GROUP, port).into()).await;
                let mut any = sent.is_ok();
                if let Some(v6) = &v6 {
                    any |= v6.send(&signal, (DISCOVERY_IPV6_GROUP, port).into()).await.is_ok();
                }
                if !any {
                    sent.map_err(failed())?;
                }
            }
            let due = seeker.next_due().unwrap_or(self.now());
            let (signal, ttl, from) = tokio::select! {
                received = v4.receive() => received.map_err(failed())?,
                received = receive(v6.as_ref()) => received.map_err(failed())?,
                () = sleep_until(self.start + due) => {
                    seeker.advance(self.now());
                    continue;
                }
            };
            if let Some(offer) = seeker.receive(self.now(), &signal, ttl, from) {
                return Ok(offer);
            }
        }
    }

    /// Runs one session, from its first message to its last.
    async fn session(&self, mut tcp: TcpStream, modem: SocketAddr) {
        let mut router = Router::new(&self.settings.router, self.now());
        let mut buffer = vec![0; READ_BYTES];
        let mut stopping = false;
        loop {
            let out = router.take_output();
            if !out.is_empty() && !self.write(&mut tcp, &out).await {
                router.disconnected(self.now());
            }
            while let Some(event) = router.poll_event() {
                self.notice(modem, event);
            }
            if router.is_closed() {
                self.said.unsay();
                return;
            }
            let due = self.start + router.next_due().unwrap_or(self.now() + Duration::from_secs(1));
            tokio::select! {
                read = tcp.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => router.disconnected(self.now()),
                    Ok(bytes) => router.receive(self.now(), &buffer[..bytes]),
                },
                () = sleep_until(due) => router.advance(self.now()),
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    router.shut_down(self.now());
                }
            }
        }
    }

    /// Returns `true` if the modem accepted the bytes in time.
    async fn write(&self, tcp: &mut TcpStream, bytes: &[u8]) -> bool {
        matches!(timeout(WRITE_TIMEOUT, tcp.write_all(bytes)).await, Ok(Ok(())))
    }

    fn notice(&self, at: SocketAddr, event: RouterEvent) {
        match event {
            RouterEvent::Up { modem, heartbeat } => {
                tracing::info!(%at, modem, ?heartbeat, "the modem is in session");
            }
            RouterEvent::Rates(Some(rates)) => self.say(at, rates),
            RouterEvent::Rates(None) => drop(self.said.unsay()),
            RouterEvent::Ended(ending) => {
                self.said.unsay();
                if self.stop.is_cancelled() {
                    tracing::info!(%at, "the modem's session has ended: {ending}");
                } else {
                    let held = "no rate from it until it is back";
                    tracing::warn!(%at, "the modem's session has ended, {held}: {ending}");
                }
            }
        }
    }

    fn say(&self, at: SocketAddr, rates: Rates) {
        let receive = Some(rates.receive_bps).filter(|bps| *bps > 0).map(BitRate::from_bps);
        let latency = Some(rates.latency).filter(|latency| !latency.is_zero());
        let transmit = BitRate::from_bps(rates.transmit_bps);
        let first = self.said.is_silent();
        if !self.said.say(transmit, receive, latency) {
            return;
        }
        // A modem may change its rate at any time, so changes are logged at debug level only.
        if first {
            tracing::info!(%at, %transmit, ?receive, ?latency, "the modem names its rate");
        } else {
            tracing::debug!(%at, %transmit, ?receive, ?latency, "the modem's new rate");
        }
    }
}

async fn connect(to: SocketAddr, interface: Option<&str>) -> io::Result<TcpStream> {
    let socket = segment::tcp(to, interface)?;
    let tcp = timeout(CONNECT_TIMEOUT, socket.connect(to))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "nothing answers"))??;
    // Keepalive detects a modem without power even if it promised heartbeats only once an hour.
    net::tune(&tcp)?;
    Ok(tcp)
}

/// Receives from an optional socket; waits forever without one.
async fn receive(
    socket: Option<&segment::DiscoverySocket>,
) -> io::Result<(Vec<u8>, u8, SocketAddr)> {
    match socket {
        Some(socket) => socket.receive().await,
        None => std::future::pending().await,
    }
}
