//! Errors of the resolver's start.

use std::io;
use std::path::PathBuf;

use bentpipe_net::SocketError;

/// Reason why the resolver could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket is not available.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The cache file cannot be read or written.
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
}
