//! Errors that end the air gateway.

use bentpipe_net::SocketError;
use bentpipe_net::interception::RulesError;

use bentpipe_carriers::TransportError;
use bentpipe_net::command_socket::CommandSocketError;

/// Reason why the air gateway could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket is not available.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Transparent interception is not possible here.
    #[error(transparent)]
    Intercept(#[from] RulesError),
    /// A transport to the peer cannot start, or has ended.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The link rejects a value in the configuration.
    #[error(transparent)]
    Settings(#[from] bentpipe_link::SettingsError),
    /// The HTTP cache cannot be opened.
    #[error(transparent)]
    HttpCache(#[from] bentpipe_webcache::OpenError),
    /// The resolver cannot start.
    #[error(transparent)]
    Resolver(#[from] bentpipe_resolver::StartError),
    /// The socket of the preload is not available.
    #[error(transparent)]
    Preload(#[from] CommandSocketError),
}
