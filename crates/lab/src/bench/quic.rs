//! A bare QUIC bulk transfer between the hosts at the two ends of the link, as the baseline for the
//! gateways.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use socket2::SockRef;
use tokio::runtime;

use super::{BenchError, failed};
use crate::emu::{AIR, GROUND, Testbed};

const PORT: u16 = 4433;
const NAME: &str = "ground";

/// Flow-control windows that do not limit the transfer: 16 MiB, as large as the kernel's for TCP
/// here.
const WINDOW_BYTES: u32 = 16 << 20;

/// Socket buffers, of the same size as the gateways request.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;

/// Bytes per write.
const CHUNK_BYTES: usize = 64 << 10;

/// Time at the beginning that does not count.
const RAMP: Duration = Duration::from_millis(500);

/// Sends for `length` from the ground host to the air host, with the library's defaults (CUBIC,
/// segmentation offload, path MTU discovery). Returns the received bit/s.
pub fn run(testbed: &Testbed, length: Duration) -> Result<f64, BenchError> {
    let setting_up = failed::<String>("set up a bare QUIC transfer");
    let certified = generate_simple_self_signed(vec![NAME.into()])
        .map_err(|error| setting_up(error.to_string()))?;
    let (client, server) = configs(&certified).map_err(|error| setting_up(error.to_string()))?;
    let hub = SocketAddr::new(GROUND.v4.into(), PORT);
    let sockets = (
        testbed.air.udp_socket(SocketAddr::new(AIR.v4.into(), 0))?,
        testbed.ground.udp_socket(hub)?,
    );
    for socket in [&sockets.0, &sockets.1] {
        let socket = SockRef::from(socket);
        // The kernel grants what it allows. quinn itself requests no sizes.
        let _ = socket.set_recv_buffer_size(KERNEL_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(KERNEL_BUFFER_BYTES);
    }
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| block_on(send(sockets.1, server)));
        let received = block_on(receive(sockets.0, client, hub, length))
            .map_err(failed("receive over bare QUIC"));
        // The sender ends when the receiver closes the connection; its result does not matter.
        drop(sending.join());
        received
    })
}

type Error = Box<dyn std::error::Error + Send + Sync>;

fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    // Use as many threads as the gateways, so that neither side of the comparison is limited.
    runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

fn configs(
    certified: &CertifiedKey<rcgen::KeyPair>,
) -> Result<(ClientConfig, ServerConfig), Error> {
    let certificate = CertificateDer::from(certified.cert.der().to_vec());
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into());
    let transport = Arc::new(transport);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
    client.transport_config(transport.clone());
    let mut server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    server.transport_config(transport);
    Ok((client, server))
}

async fn send(socket: UdpSocket, config: ServerConfig) -> Result<(), Error> {
    let endpoint =
        Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime))?;
    let incoming = endpoint.accept().await.ok_or("the endpoint closed")?;
    let connection = incoming.await?;
    let mut stream = connection.open_uni().await?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    loop {
        stream.write_all(&chunk).await?;
    }
}

async fn receive(
    socket: UdpSocket,
    config: ClientConfig,
    hub: SocketAddr,
    length: Duration,
) -> Result<f64, Error> {
    let mut endpoint =
        Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(hub, NAME)?.await?;
    let mut stream = connection.accept_uni().await?;
    let mut read = async |until: Instant| {
        let mut bytes = 0;
        while Instant::now() < until {
            let chunk = stream.read_chunk(usize::MAX, true).await?.ok_or("the sender stopped")?;
            bytes += chunk.bytes.len();
        }
        Ok::<_, Error>(bytes)
    };
    read(Instant::now() + RAMP).await?;
    let began = Instant::now();
    let bytes = read(began + length).await?;
    let rate_bps = 8.0 * bytes as f64 / began.elapsed().as_secs_f64();
    connection.close(0u32.into(), b"enough");
    endpoint.wait_idle().await;
    Ok(rate_bps)
}
