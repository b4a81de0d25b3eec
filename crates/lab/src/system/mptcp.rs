//! The kernel's MPTCP (RFC 8684) between relays: its sockets, and the radio links that it uses.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpSocket;

use super::SystemError;
use crate::emu::{Congestion, Host, RADIO_INTERFACES, Testbed, further_radio, listen_on};

/// Subflows of a connection besides the first: at most one for each further radio link.
const MAX_SUBFLOWS: &str = "7";

/// Lets the connections of both hosts have a subflow on each radio link of the testbed. The air host
/// opens the subflows.
pub(super) fn use_all_radios(testbed: &Testbed) -> Result<(), SystemError> {
    let (air, ground) = (&testbed.air, &testbed.ground);
    air.run(open)?.map_err(SystemError::NoMptcp)?;
    for host in [air, ground] {
        configure(host, &["limits", "set", "subflow", MAX_SUBFLOWS])?;
    }
    for (number, interface) in (1..).zip(&RADIO_INTERFACES[1..testbed.radios()]) {
        let [own, _] = further_radio(number);
        let address = own.v4.to_string();
        configure(air, &["endpoint", "add", &address, "dev", interface, "subflow"])?;
    }
    Ok(())
}

/// Runs `ip mptcp` on a host.
fn configure(host: &Host, arguments: &[&str]) -> Result<(), SystemError> {
    let doing = "set up MPTCP with `ip mptcp` (iproute2)";
    let failed = |source| SystemError::Kernel { doing, source };
    let output = host.command("ip").arg("mptcp").args(arguments).output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(failed(io::Error::other(said.trim()))) }
}

fn open() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))
}

/// A socket for a connection.
pub(super) fn socket() -> io::Result<TcpSocket> {
    let socket = open()?;
    socket.set_nonblocking(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// Listens at `address` of `host`. Accepted connections use `congestion` on each subflow.
pub(super) fn listen(
    host: &Host,
    address: SocketAddr,
    congestion: Congestion,
) -> Result<std::net::TcpListener, SystemError> {
    let listener = host.run(|| listen_on(open()?, address, Some(congestion)))?;
    listener.map_err(|source| SystemError::Kernel { doing: "listen with MPTCP", source })
}
