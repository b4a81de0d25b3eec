//! Errors of starting a transport.

use bentpipe_net::SocketError;

use super::aerotcp::AeroTcpError;
use super::daily_limit::LimitError;
use super::handshake_counter::CounterError;

/// Reason why a transport cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Its socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A number in the configuration is out of range.
    #[error(transparent)]
    Settings(#[from] bentpipe_link::SettingsError),
    /// The beam cannot be shared as configured.
    #[error("the beam cannot work like this: {0}")]
    Beam(#[from] bentpipe_link::BeamError),
    /// The handshake counter cannot be stored.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// The use of daily limits cannot be stored.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// HTTP/3 cannot start.
    #[error(transparent)]
    Masque(#[from] bentpipe_masque::StartError),
    /// The system has no random bytes.
    #[error("the system gives no random bytes for the tickets of flows: {0}")]
    Random(std::io::Error),
    /// AeroTCP cannot work as configured.
    #[error(transparent)]
    AeroTcp(#[from] AeroTcpError),
    /// The gateway has stopped serving although no stop was requested.
    #[error(
        "the gateway stopped serving although no stop was requested: the lines above say why; \
         please report them, and let the service manager restart it"
    )]
    Ended,
    /// The transport's task has ended.
    #[error(
        "the {0} transport ended by a fault of this program, and nothing is carried any more: the \
         lines above say where; please report them, and let the service manager restart it"
    )]
    Failed(&'static str),
}
