//! Opening connections: TCP, TLS or QUIC, and HTTP on top.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{TransportConfig, VarInt};
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::protocol::Version;
use super::tally::{Handshake, Tally};
use super::{Load, Protocol, Qlog, STREAM_WINDOW_BYTES, Tickets};
use crate::emu::Congestion;
use crate::site::QUIC_WINDOW_BYTES;
use crate::site::{AuthorityError, Content, Site};

/// Opens the connections of one load. Also provides the resources that are requested on them.
pub(super) struct Dialer {
    pub site: Site,
    pub protocol: Protocol,
    pub connections: usize,
    pub max_streams: usize,
    pub connect_retry: Option<std::time::Duration>,
    pub header_bytes: Option<usize>,
    pub tally: Arc<Tally>,
    fast_open: bool,
    port: u16,
    tls: Option<TlsConnector>,
    quic: Option<quinn::ClientConfig>,
}

/// An open connection, closed when dropped.
pub(super) struct Connection {
    /// Index of the connection in the tally.
    pub number: usize,
    /// Handshake of the connection, for the first request that uses it.
    pub made: Option<Handshake>,
    pub sender: Sender,
    /// Driver, which must live as long as the connection.
    pub driver: Driver,
}

/// Sender of requests on a connection.
pub(super) enum Sender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
    Http3(h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>),
}

/// Task that moves a connection's bytes.
pub(super) struct Driver {
    task: JoinHandle<()>,
    /// Kept to close the connection explicitly, so that the server drops it too.
    quic: Option<quinn::Connection>,
}

/// `true` once TCP's handshake is over. It is set while the rest of the connection is being made.
pub(super) type IsUp = Arc<AtomicBool>;

impl Dialer {
    pub(super) fn new(
        load: &Load<'_>,
        tickets: &Tickets,
        tally: Arc<Tally>,
    ) -> Result<Self, AuthorityError> {
        let version = load.protocol.version();
        let alpn: &[u8] = if version == Version::Http2 { b"h2" } else { b"http/1.1" };
        let is_tls = load.protocol.is_secure() && version != Version::Http3;
        Ok(Self {
            site: load.site.clone(),
            protocol: load.protocol,
            connections: load.connections.max(1),
            max_streams: load.max_streams.unwrap_or(crate::site::DEFAULT_MAX_STREAMS).max(1)
                as usize,
            connect_retry: load.connect_retry,
            header_bytes: load.header_bytes,
            tally,
            fast_open: load.fast_open,
            port: match load.protocol {
                Protocol::Http1 | Protocol::Http1Close => load.ports.http,
                Protocol::Http2Proxied => load.ports.proxy,
                _ => load.ports.https,
            },
            tls: is_tls.then(|| TlsConnector::from(tickets.tls(load, alpn))),
            quic: match version {
                Version::Http3 => Some(quic(load, tickets)?),
                _ => None,
            },
        })
    }

    /// Content of resource `place`.
    pub(super) fn content(&self, place: usize) -> Content {
        self.site.content(place)
    }

    /// Opens a connection to `domain`, and sets `is_up` as soon as the transport is up.
    pub(super) async fn dial(&self, domain: usize, is_up: &IsUp) -> Result<Connection, String> {
        let number = self.tally.dialled();
        let address = SocketAddr::new(self.site.domains[domain].address, self.port);
        let opened = match &self.quic {
            Some(config) => self.quic(domain, address, config.clone(), number, is_up).await,
            None => self.tcp(domain, address, number, is_up).await,
        };
        opened.map_err(|error| format!("no connection to {address}: {error}"))
    }

    fn name(&self, domain: usize) -> Result<ServerName<'static>, Error> {
        Ok(ServerName::try_from(self.site.domains[domain].name.clone())?)
    }

    fn up(&self, number: usize, is_up: &IsUp) {
        self.tally.connected(number);
        is_up.store(true, Ordering::Relaxed);
    }

    async fn tcp(
        &self,
        domain: usize,
        address: SocketAddr,
        number: usize,
        is_up: &IsUp,
    ) -> Result<Connection, Error> {
        let began = Instant::now();
        let tcp = open(address, self.fast_open).await?;
        self.up(number, is_up);
        let connected = Instant::now();
        let (sender, task) = match &self.tls {
            None => speak(tcp, Version::Http1).await?,
            Some(tls) => {
                let tls = tls.connect(self.name(domain)?, tcp).await?;
                match tls.get_ref().1.handshake_kind() {
                    Some(HandshakeKind::Resumed) => self.tally.resumed(number),
                    _ => self.tally.anew(number),
                }
                speak(tls, self.protocol.version()).await?
            }
        };
        let secure = self.tls.is_some().then_some(connected);
        let made = Some(Handshake { began, secure, up: Instant::now() });
        Ok(Connection { number, made, sender, driver: Driver { task, quic: None } })
    }

    async fn quic(
        &self,
        domain: usize,
        address: SocketAddr,
        config: quinn::ClientConfig,
        number: usize,
        is_up: &IsUp,
    ) -> Result<Connection, Error> {
        let began = Instant::now();
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        };
        let endpoint = quinn::Endpoint::client(any)?;
        let name = &self.site.domains[domain].name;
        let connecting = endpoint.connect_with(config, address, name)?;
        // With a ticket, the first request is sent with the handshake. If the server refuses 0-RTT
        // data, the affected request fails.
        let quic = match connecting.into_0rtt() {
            Ok((quic, accepted)) => {
                let (tally, early) = (self.tally.clone(), quic.clone());
                tokio::spawn(async move {
                    if accepted.await {
                        tally.resumed(number);
                    } else if early.close_reason().is_none() {
                        // A connection that broke before the server answered is neither resumed nor
                        // new.
                        tally.anew(number);
                    }
                });
                quic
            }
            Err(connecting) => {
                let quic = connecting.await?;
                self.tally.anew(number);
                quic
            }
        };
        self.up(number, is_up);
        let h3 = h3_quinn::Connection::new(quic.clone());
        let (mut driver, sender) = h3::client::new(h3).await?;
        let task = tokio::spawn(async move {
            drop(std::future::poll_fn(|context| driver.poll_close(context)).await);
            drop(endpoint);
        });
        let made = Some(Handshake { began, secure: None, up: Instant::now() });
        let driver = Driver { task, quic: Some(quic) };
        Ok(Connection { number, made, sender: Sender::Http3(sender), driver })
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

/// TCP with Nagle's algorithm off. With `fast_open`, the connection may be up before the server has
/// answered.
async fn open(address: SocketAddr, fast_open: bool) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_nodelay(true)?;
    if fast_open {
        nix::sys::socket::setsockopt(
            &socket,
            nix::sys::socket::sockopt::TcpFastOpenConnect,
            &true,
        )?;
    }
    socket.connect(address).await
}

/// Starts HTTP of `version` on an open connection. Returns the sender, and the task that moves its
/// bytes.
async fn speak<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: T,
    version: Version,
) -> Result<(Sender, JoinHandle<()>), Error> {
    let io = TokioIo::new(io);
    if version == Version::Http2 {
        let mut client = http2::Builder::new(TokioExecutor::new());
        client
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(QUIC_WINDOW_BYTES as u32);
        let (sender, connection) = client.handshake(io).await?;
        return Ok((Sender::Http2(sender), tokio::spawn(async { drop(connection.await) })));
    }
    let (sender, connection) = http1::handshake(io).await?;
    // An error of the connection shows up in the request that it breaks.
    Ok((Sender::Http1(sender), tokio::spawn(async { drop(connection.await) })))
}

fn quic(load: &Load<'_>, tickets: &Tickets) -> Result<quinn::ClientConfig, AuthorityError> {
    let tls = QuicClientConfig::try_from(tickets.quic(load))?;
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(QUIC_WINDOW_BYTES as u32))
        .qlog_stream(load.qlog.map(Qlog::stream));
    if load.congestion == Congestion::Bbr {
        transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
    } else {
        transport.congestion_controller_factory(Arc::new(CubicConfig::default()));
    }
    config.transport_config(Arc::new(transport));
    Ok(config)
}

impl Connection {
    /// Returns `true` if the server has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
            Sender::Http3(_) => self.driver.task.is_finished(),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(quic) = &self.quic {
            // H3_NO_ERROR (RFC 9114, section 8.1).
            quic.close(VarInt::from_u32(0x100), b"");
        }
    }
}
