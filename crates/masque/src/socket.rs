//! Platform of a QUIC endpoint: a UDP socket, timers and tasks, real or simulated.

use std::{io, net::SocketAddr, sync::Arc};

use quinn::{AsyncUdpSocket, EndpointConfig, Runtime, ServerConfig, TokioRuntime};

/// A UDP socket with the runtime that drives it.
///
/// The tasks of this crate itself run on tokio; a paused tokio clock drives all its timers.
#[derive(Clone, Debug)]
pub struct Socket {
    /// The socket.
    pub socket: Arc<dyn AsyncUdpSocket>,
    /// Timers and tasks.
    pub runtime: Arc<dyn Runtime>,
    /// Seed of quinn's choices (skipped packet numbers, order of transport parameters) for reproducible
    /// runs. `None` uses the operating system's random numbers. Keys never come from the seed.
    pub seed: Option<[u8; 32]>,
}

impl Socket {
    /// Binds a socket of the operating system, on tokio.
    pub fn bind(local: SocketAddr) -> io::Result<Socket> {
        Socket::from_std(std::net::UdpSocket::bind(local)?)
    }

    /// Wraps a bound socket of the operating system, on tokio.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Socket> {
        let runtime = Arc::new(TokioRuntime);
        Ok(Socket { socket: runtime.wrap_udp_socket(socket)?, runtime, seed: None })
    }

    pub(crate) fn endpoint(self, server: Option<ServerConfig>) -> io::Result<quinn::Endpoint> {
        let mut config = EndpointConfig::default();
        config.rng_seed(self.seed);
        quinn::Endpoint::new_with_abstract_socket(config, server, self.socket, self.runtime)
    }
}
