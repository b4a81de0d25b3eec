//! Socket errors, with instructions.

use std::io;
use std::net::SocketAddr;

/// A socket that a service needs is not available.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A socket could not be bound.
    #[error("cannot listen on {address} for {what}: {source}\n{}", bind_help(.source))]
    Bind {
        /// Service that failed.
        what: &'static str,
        /// Its address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// A socket handed over by the service manager cannot be used.
    #[error(
        "the inherited socket {name:?} cannot be used: {source}\n\
         LISTEN_FDNAMES may name UDP sockets \"link\", \"masque\" and \"aerotcp\" and TCP \
         listeners \"socks5\", \"http-proxy\" and \"page\""
    )]
    Inherited {
        /// Name of the socket in LISTEN_FDNAMES.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
}

impl SocketError {
    /// Converts a system error into one that names the service `what` and its `address`.
    pub fn bind(what: &'static str, address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Bind { what, address, source }
    }
}

fn bind_help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program has this port: `ss -lntup` shows which; stop it or choose another port"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher port, run as root, or \
             set AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit"
        }
        _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            "this kernel gives no sockets of that family: name an IPv4 address"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address: `ip addr` lists those it has"
        }
        _ => "choose another address in the config",
    }
}
