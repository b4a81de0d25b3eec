//! Interception at the air host, as the air gateway does it: TCP over IPv4 that comes in by the
//! cabin's interface, to any address beyond this host.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use bentpipe_gateway::air::rules::{Leads, Rules};
use tokio::net::{TcpListener, TcpStream};

/// Port to which intercepted connections are redirected.
const PORT: u16 = 1081;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// The rules and the listener that they lead to. To be made, and dropped, on a thread of the air
/// host: dropping it removes the rules of the thread's own network.
pub struct Interception {
    // Fields drop in order: no connection is led to a listener that has gone.
    _rules: Rules,
    listener: TcpListener,
}

impl Interception {
    /// Begins; within a runtime.
    pub fn start() -> Result<Self, String> {
        let listener =
            listen().map_err(|error| format!("cannot listen on port {PORT}: {error}"))?;
        let leads = Leads::default();
        let rules = Rules::install(PORT, &["cabin"], false, leads);
        Ok(Self { _rules: rules.map_err(|error| error.to_string())?, listener })
    }

    /// The next connection, and where its client meant it to go.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddrV4)> {
        loop {
            let (tcp, _) = self.listener.accept().await?;
            // An accepted connection that has gone by now has no address any more, and who connects
            // to the listener itself goes nowhere.
            if let Ok(SocketAddr::V4(target)) = tcp.local_addr()
                && !target.ip().is_loopback()
            {
                return Ok((tcp, target));
            }
        }
    }
}

fn listen() -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_ip_transparent_v4(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}
