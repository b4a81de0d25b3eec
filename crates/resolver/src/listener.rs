//! Plain DNS listeners, for passengers that are configured to use the resolver.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_dns::{Asker, Source};
use bentpipe_net as net;
use bentpipe_net::udp::enlarge_buffer;
use futures_util::future::BoxFuture;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

use super::resolver::{By, Resolver};
use bentpipe_dns::io::MAX_QUERY_BYTES;
use bentpipe_metering::counters::Counters;
use bentpipe_metering::rate_limited_log::RateLimitedLog;
use bentpipe_uplink::Uplink;

/// Maximum number of system-assigned UDP ports tried, because TCP's port of the same number may be
/// taken.
const MAX_PORTS: u32 = 16;

/// Maximum number of packets read from one socket before other tasks run.
const MAX_AT_A_TURN: usize = 64;

/// Requested socket buffer: 1 MiB holds a cabin's burst.
const SOCKET_BUFFER: usize = 1 << 20;

/// UDP sockets and TCP listeners.
pub struct Listeners {
    udp: Vec<Arc<Datagrams>>,
    tcp: Vec<TcpListener>,
}

impl Listeners {
    /// Binds UDP and TCP at each address.
    pub fn bind(addresses: impl Iterator<Item = SocketAddr>) -> Result<Self, net::SocketError> {
        let (mut udp, mut tcp) = (Vec::new(), Vec::new());
        for address in addresses {
            let mut tries = if address.port() == 0 { MAX_PORTS } else { 1 };
            let (datagrams, listener) = loop {
                tries -= 1;
                match pair(address) {
                    Ok(pair) => break pair,
                    Err(error) if tries == 0 => return Err(error),
                    Err(_) => {}
                }
            };
            udp.push(Arc::new(datagrams));
            tcp.push(listener);
        }
        Ok(Self { udp, tcp })
    }

    /// Addresses of the listeners.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.udp.iter().filter_map(|it| it.known.socket.local_addr().ok()).collect()
    }

    /// Serves each listener. Never returns.
    pub fn serve<'a>(
        &'a self,
        resolver: &'a Arc<Resolver>,
        uplink: &'a Arc<Uplink>,
    ) -> Vec<BoxFuture<'a, ()>> {
        let mut serving: Vec<BoxFuture<'a, ()>> = Vec::new();
        for sockets in &self.udp {
            // Queries may arrive at the first one until the other is bound.
            for Sender { socket, .. } in [&sockets.known, &sockets.unproven] {
                serving.push(Box::pin(serve(socket, sockets, resolver, uplink)));
            }
        }
        for listener in &self.tcp {
            let (resolver, uplink) = (resolver.clone(), uplink.clone());
            serving.push(Box::pin(bentpipe_uplink::accept::accept(
                listener,
                &uplink.clone(),
                move |tcp, permit| {
                    let resolver = resolver.clone();
                    async move {
                        // Move the permit into the task, so that it lasts as long as the
                        // connection.
                        let permit = permit;
                        resolver.serve_stream(tcp, By::Listener, permit.asker()).await;
                    }
                },
            )));
        }
        serving
    }
}

/// UDP sockets bound to the same address and port.
///
/// While the kernel resolves a neighbour, answers to it count against the socket's buffer. Spoofed
/// clients are never resolved. Answers to clients without a known device therefore use a separate
/// socket, whose queue does not delay other answers.
struct Datagrams {
    known: Sender,
    unproven: Sender,
}

struct Sender {
    socket: UdpSocket,
    log: RateLimitedLog,
}

impl Datagrams {
    /// Binds the sockets. The kernel delivers queries to the one bound last.
    fn bind(address: SocketAddr) -> io::Result<Self> {
        // It fails if another program has the port, because the option is not set yet.
        let unproven = std::net::UdpSocket::bind(address)?;
        let address = unproven.local_addr()?;
        let known = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        let both = [SockRef::from(&unproven), SockRef::from(&known)];
        for socket in &both {
            socket.set_nonblocking(true)?;
            socket.set_reuse_address(true)?;
        }
        known.bind(&address.into())?;
        // No other program may share the port.
        for socket in &both {
            socket.set_reuse_address(false)?;
        }
        // The system may grant less, which is sufficient.
        let _ = known.set_recv_buffer_size(SOCKET_BUFFER);
        enlarge_buffer(&known);
        Ok(Self { known: Sender::new(known.into())?, unproven: Sender::new(unproven)? })
    }

    /// Sends `answer` to a client. Never waits: a client that does not get it repeats its query.
    fn send(&self, answer: &[u8], (to, asker): (SocketAddr, Asker), counters: &Counters) {
        let (sender, what) = match asker {
            Asker::Unproven => (&self.unproven, "no answers to DNS clients without a known device"),
            _ => (&self.known, "cannot send a DNS answer"),
        };
        if let Err(error) = sender.socket.try_send_to(answer, to) {
            counters.dns_unsent.add(1);
            sender.log.warn(what, &error);
        }
    }
}

impl Sender {
    fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        Ok(Self { socket: UdpSocket::from_std(socket)?, log: RateLimitedLog::default() })
    }
}

/// Binds UDP and TCP at one address, and at the same port if the system assigns it.
fn pair(address: SocketAddr) -> Result<(Datagrams, TcpListener), net::SocketError> {
    let datagrams = Datagrams::bind(address).map_err(net::SocketError::bind("dns", address))?;
    let bound = datagrams.known.socket.local_addr();
    let bound = bound.map_err(net::SocketError::bind("dns", address))?;
    let listener = TcpListener::from_std(net::listen_tcp("dns", bound)?);
    Ok((datagrams, listener.map_err(net::SocketError::bind("dns", bound))?))
}

/// Answers the queries that arrive at `socket`, one of `sockets`.
async fn serve(
    socket: &UdpSocket,
    sockets: &Arc<Datagrams>,
    resolver: &Arc<Resolver>,
    uplink: &Uplink,
) {
    let mut buffer = vec![0; MAX_QUERY_BYTES];
    loop {
        // Fails only when the runtime is shutting down.
        if socket.readable().await.is_err() {
            return;
        }
        for _ in 0..MAX_AT_A_TURN {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let asker = uplink.asker(from.ip());
                    answer(sockets, resolver, &buffer[..length], (from, asker), &uplink.counters);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An error caused by an answer of ours.
                Err(_) => {}
            }
        }
        tokio::task::yield_now().await;
    }
}

fn answer(
    sockets: &Arc<Datagrams>,
    resolver: &Resolver,
    message: &[u8],
    (from, asker): (SocketAddr, Asker),
    counters: &Arc<Counters>,
) {
    let (way_back, counted) = (sockets.clone(), counters.clone());
    let later = Box::new(move |answer: &[u8]| way_back.send(answer, (from, asker), &counted));
    let source = Source::Datagram { client: from, asker, server: None };
    if let Some(answer) = resolver.query(source, message, resolver.packet(), later) {
        sockets.send(&answer, (from, asker), counters);
    }
}
