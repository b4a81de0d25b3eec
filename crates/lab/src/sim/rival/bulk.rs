//! Bulk of an ordinary QUIC library (quinn) with one of its congestion controllers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint,
    EndpointConfig, Event, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{End, Rival, Sent};

/// Bytes per write.
const CHUNK_BYTES: usize = 16 << 10;
/// UDP payload of every packet: 1,500 bytes with IP and UDP headers.
const PAYLOAD_BYTES: u16 = 1472;
/// Flow-control window, so that only the congestion controller limits the rate: 64 MB are ten
/// times 20 Mbit/s × 2.4 s, a round trip of 600 ms with a full queue of 3 BDP.
const WINDOW_BYTES: u32 = 64 << 20;
/// Name in the server's certificate.
const SERVER_NAME: &str = "sink.example";

/// Congestion controller of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, version 1 as of quinn.
    Bbr,
}

/// A connection with an endless download, from the hub's end to the air's.
pub struct Bulk {
    ends: [Side; 2],
    /// quinn's clock at the beginning of the run.
    epoch: Instant,
    start: Duration,
    client: Option<ClientConfig>,
    received_bytes: u64,
}

/// One end: an endpoint with at most one connection.
struct Side {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    /// Datagrams of the endpoint itself.
    out: VecDeque<Vec<u8>>,
    stream: Option<StreamId>,
}

/// The library cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up QUIC: {0}")]
pub struct BulkError(String);

impl BulkError {
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl Bulk {
    /// A connection that begins at `start`.
    pub fn new(controller: Controller, start: Duration, seed: u64) -> Result<Self, BulkError> {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let transport = Arc::new(transport(controller));
        let (client, server) = configs(transport)?;
        let mut endpoint = |server| {
            let mut config = EndpointConfig::default();
            config.rng_seed(Some(rng.random()));
            Side {
                endpoint: Endpoint::new(Arc::new(config), server, false, None),
                connection: None,
                out: VecDeque::new(),
                stream: None,
            }
        };
        let ends = [endpoint(None), endpoint(Some(Arc::new(server)))];
        let (epoch, client) = (Instant::now(), Some(client));
        Ok(Self { ends, epoch, start, client, received_bytes: 0 })
    }

    fn connect(&mut self, now: Duration) {
        let Some(client) = self.client.take() else { return };
        let air = &mut self.ends[0];
        let at = self.epoch + now;
        air.connection = air.endpoint.connect(at, client, hub_address(), SERVER_NAME).ok();
    }

    fn work(&mut self) {
        let [air, hub] = &mut self.ends;
        air.tend();
        hub.tend();
        air.request();
        hub.fill();
        self.received_bytes += air.drain();
    }
}

impl Side {
    /// Passes events between endpoint and connection.
    fn tend(&mut self) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            if let Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) = event {
                self.stream = connection.streams().accept(Dir::Bi).or(self.stream);
            }
        }
    }

    /// Opens the stream, once that is possible, and requests the download.
    fn request(&mut self) {
        let Some((_, connection)) = &mut self.connection else { return };
        if self.stream.is_none() && !connection.is_handshaking() {
            self.stream = connection.streams().open(Dir::Bi);
            if let Some(stream) = self.stream {
                // The server learns of a stream with its first byte.
                let _ = connection.send_stream(stream).write(b"GET");
            }
        }
    }

    /// Writes as much as the stream accepts.
    fn fill(&mut self) {
        let Some(((_, connection), stream)) = self.connection.as_mut().zip(self.stream) else {
            return;
        };
        let chunk = [0x5a; CHUNK_BYTES];
        while matches!(connection.send_stream(stream).write(&chunk), Ok(1..)) {}
    }

    /// Reads everything that has arrived, in any order: quinn ends a connection with many gaps in
    /// front of a reader, as after the slow start into a deep queue. Returns the number of bytes.
    fn drain(&mut self) -> u64 {
        let Some(((_, connection), stream)) = self.connection.as_mut().zip(self.stream) else {
            return 0;
        };
        let mut stream = connection.recv_stream(stream);
        let Ok(mut chunks) = stream.read(false) else { return 0 };
        let mut bytes = 0;
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            bytes += chunk.bytes.len() as u64;
        }
        // `transmit` sends the credit.
        let _ = chunks.finalize();
        bytes
    }

    fn receive(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Instant) {
        let ecn = Some(if ce { EcnCodepoint::Ce } else { EcnCodepoint::Ect0 });
        let mut out = Vec::new();
        let event = self.endpoint.handle(now, from, None, ecn, BytesMut::from(datagram), &mut out);
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if let Ok(made) = self.endpoint.accept(incoming, now, &mut out, None) {
                    self.connection = Some(made);
                }
            }
            Some(DatagramEvent::Response(_)) => self.out.push_back(out),
            None => {}
        }
    }

    fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<bool> {
        if let Some(datagram) = self.out.pop_front() {
            *out = datagram;
            return Some(false);
        }
        out.clear();
        let (_, connection) = self.connection.as_mut()?;
        let sent = connection.poll_transmit(now, 1, out)?;
        Some(sent.ecn.is_some())
    }
}

impl Rival for Bulk {
    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<Sent> {
        if now < self.start {
            return None;
        }
        for (side, by) in self.ends.iter_mut().zip([End::Air, End::Hub]) {
            if let Some(is_ect) = side.transmit(self.epoch + now, out) {
                return Some(Sent { by, is_ect });
            }
        }
        None
    }

    fn receive(&mut self, end: End, datagram: &[u8], ce: bool, now: Duration) {
        let at = self.epoch + now;
        match end {
            End::Air => self.ends[0].receive(datagram, hub_address(), ce, at),
            End::Hub => self.ends[1].receive(datagram, air_address(), ce, at),
        }
        self.work();
    }

    fn next_timeout(&mut self, now: Duration) -> Option<Duration> {
        if now < self.start {
            return Some(self.start);
        }
        let connections = self.ends.iter_mut().filter_map(|side| side.connection.as_mut());
        let next = connections.filter_map(|(_, connection)| connection.poll_timeout()).min()?;
        Some(next.saturating_duration_since(self.epoch))
    }

    fn handle_timeout(&mut self, now: Duration) {
        if now < self.start {
            return;
        }
        self.connect(now);
        let at = self.epoch + now;
        for (_, connection) in self.ends.iter_mut().filter_map(|side| side.connection.as_mut()) {
            if connection.poll_timeout().is_some_and(|due| due <= at) {
                connection.handle_timeout(at);
            }
        }
        self.work();
    }

    fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

fn transport(controller: Controller) -> TransportConfig {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match controller {
        Controller::Cubic => Arc::new(CubicConfig::default()),
        Controller::Bbr => Arc::new(BbrConfig::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(factory)
        .initial_mtu(PAYLOAD_BYTES)
        .mtu_discovery_config(None)
        .max_idle_timeout(None)
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(WINDOW_BYTES))
        .send_window(u64::from(WINDOW_BYTES));
    transport
}

/// A client and a server that trust each other. The key is of a kind whose signatures have one
/// length, so that runs repeat.
fn configs(transport: Arc<TransportConfig>) -> Result<(ClientConfig, ServerConfig), BulkError> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(BulkError::of)?;
    let mut params =
        rcgen::CertificateParams::new([SERVER_NAME.to_owned()]).map_err(BulkError::of)?;
    params.serial_number = Some(1.into());
    let certificate: CertificateDer<'static> =
        params.self_signed(&key).map_err(BulkError::of)?.into();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).map_err(BulkError::of)?;
    let client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(BulkError::of)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(BulkError::of)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(BulkError::of)?;
    let client = QuicClientConfig::try_from(client).map_err(BulkError::of)?;
    let server = QuicServerConfig::try_from(server).map_err(BulkError::of)?;
    let mut client = ClientConfig::new(Arc::new(client));
    let mut server = ServerConfig::with_crypto(Arc::new(server));
    client.transport_config(transport.clone());
    server.transport_config(transport);
    Ok((client, server))
}

fn air_address() -> SocketAddr {
    ([198, 18, 2, 1], 40_000).into()
}

fn hub_address() -> SocketAddr {
    ([198, 18, 2, 2], 443).into()
}
