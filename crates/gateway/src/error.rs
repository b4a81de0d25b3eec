//! Errors that end a gateway.

use std::io;
use std::path::PathBuf;

use bentpipe_net::SocketError;
use bentpipe_net::interception::RulesError;

use crate::preload::PreloadSocketError;
use crate::transports::TransportError;

/// Reason why a gateway could not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket is not available.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Transparent interception is not possible here.
    #[error(transparent)]
    Intercept(#[from] RulesError),
    /// A transport to the peer cannot start.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The link rejects a value in the configuration.
    #[error(transparent)]
    Settings(#[from] bentpipe_link::SettingsError),
    /// The HTTP cache cannot be opened.
    #[error(transparent)]
    HttpCache(#[from] bentpipe_webcache::OpenError),
    /// The resolver's cache file cannot be read or written.
    #[error(
        "the cache of DNS answers cannot be kept in {path}: {source}\n\
         name another cache-file under [dns], in a folder that this user may write to, or leave it \
         out: then nothing is kept over a restart"
    )]
    DnsCache {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The socket of the preload is not available.
    #[error(transparent)]
    Preload(#[from] PreloadSocketError),
    /// The task of the link has ended.
    #[error(
        "the {0} transport ended by a fault of this program, and nothing is carried any more: the \
         lines above say where; please report them, and let the service manager restart it"
    )]
    Failed(&'static str),
    /// The gateway has stopped serving although no stop was requested.
    #[error(
        "the gateway stopped serving although no stop was requested: the lines above say why; \
         please report them, and let the service manager restart it"
    )]
    Ended,
    /// The system's name servers cannot be determined.
    #[error(
        "the name servers of this machine cannot be read: {0}\n\
         name some in the config: [dns] servers = [\"9.9.9.9\"]"
    )]
    Dns(String),
}
