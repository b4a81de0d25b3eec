//! Servers for passengers: one port for each class, for streams and for datagrams.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::Class;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::client::{HEAD_BYTES, HELLO, head, receive, send, speak};
use super::fault::Fault;
use super::fault::is_of_this_host;
use super::log::Log;
use super::order::port;
use crate::emu::Service;
use crate::emu::{EmuError, Host, SERVER, be_punctual};
use crate::traffic::{DOWN, ENDLESS, UP};

/// Time from the first datagram of a flow until the talk begins. By then, both ends know the flow.
const START: Duration = Duration::from_millis(50);
const MAX_DATAGRAM_BYTES: usize = 1500;

/// Starts the servers in `host`.
pub fn start(host: &Host, log: Arc<Log>) -> Result<Service, EmuError> {
    let address = |class| SocketAddr::new(SERVER.v4.into(), port(class));
    let mut sockets = Vec::new();
    for class in Class::ALL {
        sockets.push((host.tcp_listener(address(class))?, host.udp_socket(address(class))?));
    }
    Service::start(host, move || async move {
        be_punctual();
        let serving = sockets.into_iter().map(|(tcp, udp)| {
            let log = log.clone();
            async move {
                if let Err(error) = tokio::try_join!(streams(tcp, &log), datagrams(udp, &log)) {
                    log.failed(Fault::lab("the server", error));
                }
            }
        });
        futures_util::future::join_all(serving).await;
    })
}

async fn streams(listener: std::net::TcpListener, log: &Arc<Log>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        let tcp = match listener.accept().await {
            Ok((tcp, _)) => tcp,
            Err(error) if is_of_this_host(&error) => return Err(error),
            // An error of the new connection itself (accept(2)), which its client sees too.
            Err(_) => continue,
        };
        let log = log.clone();
        // The client sees a failure too.
        tokio::spawn(async move { drop(serve(tcp, &log).await) });
    }
}

async fn serve(mut tcp: TcpStream, log: &Log) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let mut head = [0; HEAD_BYTES];
    tcp.read_exact(&mut head).await?;
    let (fields, _) = head.as_chunks::<8>();
    let [number, up, down] = [0, 1, 2].map(|at| u64::from_be_bytes(fields[at]));
    let number = number as usize;
    log.heard(number);
    log.came(number, UP, HEAD_BYTES);
    let (mut read, mut write) = tcp.into_split();
    let hear = |bytes| log.came(number, UP, bytes);
    if up == ENDLESS {
        log.answered(number);
        return tokio::try_join!(receive(&mut read, hear), send(&mut write, down)).map(drop);
    }
    // The end of the request may come later: a relay may keep it back.
    receive(&mut (&mut read).take(up.saturating_sub(HEAD_BYTES as u64)), hear).await?;
    log.answered(number);
    send(&mut write, down).await
}

async fn datagrams(socket: std::net::UdpSocket, log: &Arc<Log>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let socket = Arc::new(UdpSocket::from_std(socket)?);
    let mut datagram = [0; MAX_DATAGRAM_BYTES];
    loop {
        let (bytes, from) = socket.recv_from(&mut datagram).await?;
        let Some((number, which)) = head(&datagram[..bytes]) else { continue };
        if which != HELLO {
            log.arrived(number, UP, which as usize);
            continue;
        }
        let Some(talk) = log.talk(number) else { continue };
        if log.begins(number, log.now() + START + talk.phase) {
            let (log, socket) = (log.clone(), socket.clone());
            tokio::spawn(async move {
                if let Err(error) = speak(&log, number, &talk, DOWN, &socket, from).await {
                    log.failed(Fault::crossing(
                        format!("datagrams {number} at the server"),
                        &error,
                    ));
                }
            });
        }
    }
}
