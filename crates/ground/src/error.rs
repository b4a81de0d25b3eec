//! Errors that end the ground gateway.

use bentpipe_net::SocketError;

use bentpipe_carriers::TransportError;

/// Reason why the ground gateway could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket is not available.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A transport to the aircraft cannot start, or has ended.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The link rejects a value in the configuration.
    #[error(transparent)]
    Settings(#[from] bentpipe_link::SettingsError),
    /// The system's name servers cannot be determined.
    #[error(
        "the name servers of this machine cannot be read: {0}\n\
         name some in the config: [dns] servers = [\"9.9.9.9\"]"
    )]
    Dns(String),
}
