//! Interception at the air host, as in the air gateway: TCP over IPv4 that arrives on the cabin's
//! interface for any address beyond this host.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use bentpipe_net::interception::{Leads, Rules};
use tokio::net::{TcpListener, TcpStream};

/// Port to which intercepted connections are redirected.
const PORT: u16 = 1081;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Interception rules and the listener to which they redirect. Make and drop this value on a thread
/// of the air host, because dropping it removes the rules of the thread's network.
pub struct Interception {
    // Fields drop in order, so the rules never redirect to a listener that is gone.
    _rules: Rules,
    listener: TcpListener,
}

impl Interception {
    /// Starts interception. Must be called within a runtime.
    pub fn start() -> Result<Self, String> {
        let listener =
            listen().map_err(|error| format!("cannot listen on port {PORT}: {error}"))?;
        let leads = Leads::default();
        let rules = Rules::install(PORT, &["cabin"], false, leads);
        Ok(Self { _rules: rules.map_err(|error| error.to_string())?, listener })
    }

    /// The next connection, and the destination that its client chose.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddrV4)> {
        loop {
            let (tcp, _) = self.listener.accept().await?;
            // A connection that has already closed has no address. A client that connects directly
            // to the listener has no destination.
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
