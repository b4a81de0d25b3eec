//! Congestion control of a kernel's sockets.

use std::io;
use std::net::SocketAddr;

use super::{EmuError, Host};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A kernel's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// Reno, with SACK.
    Reno,
    /// CUBIC, the default of nearly every kernel.
    Cubic,
    /// BBR, version 1 in current kernels.
    Bbr,
}

impl Congestion {
    /// Name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    /// Makes `socket` use this congestion control. The error explains how to get it into the
    /// kernel.
    pub fn set(self, socket: &socket2::Socket) -> io::Result<()> {
        let name = self.name();
        socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
            let help =
                format!("the kernel gives no {name} ({error}): `modprobe tcp_{name}` loads it");
            io::Error::new(error.kind(), help)
        })
    }
}

/// Listens at `address`. Accepted connections use `congestion`, or the kernel's default for `None`.
pub fn listen_here(
    address: SocketAddr,
    congestion: Option<Congestion>,
) -> io::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(address);
    listen_on(socket2::Socket::new(domain, socket2::Type::STREAM, None)?, address, congestion)
}

/// Like [`listen_here`], on a given socket.
pub fn listen_on(
    socket: socket2::Socket,
    address: SocketAddr,
    congestion: Option<Congestion>,
) -> io::Result<std::net::TcpListener> {
    socket.set_reuse_address(true)?;
    congestion.map_or(Ok(()), |congestion| congestion.set(&socket))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Listens at `address` of `host`. Accepted connections use `congestion`, or the kernel's default
/// for `None`.
pub fn listen(
    host: &Host,
    address: SocketAddr,
    congestion: Congestion,
) -> Result<std::net::TcpListener, EmuError> {
    host.run(|| listen_here(address, Some(congestion)))?.map_err(|source| EmuError::Configure {
        host: host.name(),
        doing: format!("listen on {address} with {}", congestion.name()),
        source: source.into(),
    })
}
