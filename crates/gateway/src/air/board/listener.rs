//! Listeners for passengers that are told of the resolver.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::Source;
use futures_util::future::{BoxFuture, join_all};
use tokio::net::{TcpListener, UdpSocket};

use super::{Board, By, Serving, cannot};
use crate::air::intake::Intake;
use crate::net;

/// Ports of UDP that are tried where the system chooses one: TCP's of the same number may be taken.
const MOST_PORTS: u32 = 16;

/// Packets taken from one socket before other tasks have their turn.
const MOST_AT_A_TURN: usize = 64;

/// No query is larger; what is cut off makes it unreadable.
const MOST_QUERY: usize = 4096;

/// Interval of log lines with counts, if there are any.
const COUNTS_EVERY: Duration = Duration::from_secs(15 * 60);

/// Requested socket buffer: a cabin's burst waits in 1 MiB.
const SOCKET_BUFFER: usize = 1 << 20;

/// The sockets.
pub struct Listeners {
    udp: Vec<Arc<UdpSocket>>,
    tcp: Vec<TcpListener>,
}

impl Listeners {
    /// Binds UDP and TCP at each address.
    pub fn bind(addresses: impl Iterator<Item = SocketAddr>) -> Result<Self, net::StartError> {
        let (mut udp, mut tcp) = (Vec::new(), Vec::new());
        for address in addresses {
            let mut tries = if address.port() == 0 { MOST_PORTS } else { 1 };
            let (socket, listener) = loop {
                tries -= 1;
                match pair(address) {
                    Ok(pair) => break pair,
                    Err(error) if tries == 0 => return Err(error),
                    Err(_) => {}
                }
            };
            udp.push(Arc::new(socket));
            tcp.push(listener);
        }
        Ok(Self { udp, tcp })
    }

    /// Their addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.udp.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }
}

/// UDP and TCP at one address, and at one port where the system chooses it.
fn pair(address: SocketAddr) -> Result<(UdpSocket, TcpListener), net::StartError> {
    let socket = std::net::UdpSocket::bind(address).map_err(cannot("dns", address))?;
    // More than the system allows is not given, and not needed.
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER);
    let bound = socket.local_addr().map_err(cannot("dns", address))?;
    socket.set_nonblocking(true).map_err(cannot("dns", address))?;
    let socket = UdpSocket::from_std(socket).map_err(cannot("dns", address))?;
    let listener = TcpListener::from_std(net::listen_tcp("dns", bound)?);
    Ok((socket, listener.map_err(cannot("dns", bound))?))
}

impl Serving {
    /// Serves, for ever.
    pub async fn run(&mut self, board: &Arc<Board>, intake: &Arc<Intake>) {
        let Self { listeners, secure, asked, keeper } = self;
        let mut serving: Vec<BoxFuture<'_, ()>> =
            vec![Box::pin(board.carry(asked)), Box::pin(tell_counts(board))];
        for socket in &listeners.udp {
            serving.push(Box::pin(datagrams(socket, board)));
        }
        for listener in &listeners.tcp {
            let (board, intake) = (board.clone(), intake.clone());
            serving.push(Box::pin(crate::air::accept(
                listener,
                &intake.clone(),
                move |tcp, ticket| {
                    let board = board.clone();
                    async move {
                        // All of it, so that it lasts as long as the connection.
                        let ticket = ticket;
                        board.serve_stream(tcp, By::Listener, ticket.client).await;
                    }
                },
            )));
        }
        serving.extend(secure.iter().flat_map(|secure| secure.serve(board, intake)));
        if let Some(keeper) = keeper {
            serving.push(Box::pin(keeper.keep(board)));
        }
        join_all(serving).await;
    }

    /// Writes what is not written yet.
    pub async fn finish(&mut self, board: &Board) {
        if let Some(keeper) = &mut self.keeper {
            keeper.finish(board).await;
        }
    }
}

/// Logs what happened, now and then.
async fn tell_counts(board: &Board) {
    let mut told = None;
    loop {
        tokio::time::sleep(COUNTS_EVERY).await;
        let (counts, (answers, bytes)) = (board.counts(), board.lock().kept());
        if told.replace(counts) != Some(counts) {
            tracing::info!(?counts, answers, bytes, "DNS so far");
        }
    }
}

async fn datagrams(socket: &Arc<UdpSocket>, board: &Arc<Board>) {
    let mut buffer = vec![0; MOST_QUERY];
    loop {
        // Fails only when the runtime is going away.
        if socket.readable().await.is_err() {
            return;
        }
        for _ in 0..MOST_AT_A_TURN {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, from)) => datagram(socket, board, &buffer[..length], from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An error that an answer of ours has caused.
                Err(_) => {}
            }
        }
        tokio::task::yield_now().await;
    }
}

fn datagram(socket: &Arc<UdpSocket>, board: &Board, message: &[u8], from: SocketAddr) {
    let way_back = socket.clone();
    // A client whose answer does not go asks again.
    let later = Box::new(move |answer: &[u8]| drop(way_back.try_send_to(answer, from)));
    let source = Source::Datagram { client: from, server: None };
    if let Some(answer) = board.query(source, message, board.packet(), later) {
        let _ = socket.try_send_to(&answer, from);
    }
}
