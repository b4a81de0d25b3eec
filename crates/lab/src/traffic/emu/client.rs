//! The passengers' devices.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, sleep_until, timeout};

use super::fault::Fault;
use super::log::Log;
use super::order::{Order, port};
use crate::emu::Service;
use crate::emu::{EmuError, Host, SERVER, be_punctual, passenger};
use crate::traffic::{Carry, DOWN, ENDLESS, Talk, UP};

/// Bytes per read or write.
pub(super) const CHUNK_BYTES: usize = 16 << 10;
/// Size of a stream's header: its number, and its bytes in each direction.
pub(super) const HEAD_BYTES: usize = 24;
/// Size of a datagram's header: its flow's number, and its own.
pub(super) const DATAGRAM_HEAD_BYTES: usize = 8;
/// Own number of a datagram that only opens the flow.
pub(super) const HELLO: u32 = u32::MAX;
/// Interval between two such datagrams.
const HELLO_GAP: Duration = Duration::from_millis(500);
/// Polling interval for orders.
const LOOK: Duration = Duration::from_millis(5);
const MAX_DATAGRAM_BYTES: usize = 1500;

/// Starts a service in `host` that carries out orders.
pub fn start(
    host: &Host,
    log: Arc<Log>,
    mut orders: UnboundedReceiver<Order>,
) -> Result<Service, EmuError> {
    Service::start(host, move || async move {
        be_punctual();
        while let Some(order) = orders.recv().await {
            let log = log.clone();
            match order {
                Order::Carry(number, carry) => drop(tokio::spawn(async move {
                    if let Err(fault) = stream(&log, number, carry).await {
                        log.failed(fault);
                    }
                })),
                Order::Talk(number, talk) => drop(tokio::spawn(async move {
                    if let Err(fault) = beat(&log, number, talk).await {
                        log.failed(fault);
                    }
                })),
            }
        }
    })
}

async fn stream(log: &Log, number: usize, carry: Carry) -> Result<(), Fault> {
    let name = format!("stream {number} ({carry:?})");
    let socket = tcp_socket(carry.passenger);
    let socket = socket.map_err(|error| Fault::lab(format!("a socket for {name}"), error))?;
    let server = SocketAddr::new(SERVER.v4.into(), port(carry.class));
    let carried = async { carried(log, number, carry, socket.connect(server).await?).await };
    carried.await.map_err(|error| Fault::crossing(name, &error))
}

fn tcp_socket(number: u32) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(passenger(number).into(), 0))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Carries a stream on its connection.
async fn carried(log: &Log, number: usize, carry: Carry, tcp: TcpStream) -> io::Result<()> {
    let (mut read, mut write) = tcp.into_split();
    let mut first = vec![0; HEAD_BYTES.max(carry.up.min(CHUNK_BYTES as u64) as usize)];
    first[..8].copy_from_slice(&(number as u64).to_be_bytes());
    first[8..16].copy_from_slice(&carry.up.to_be_bytes());
    first[16..24].copy_from_slice(&carry.down.to_be_bytes());
    write.write_all(&first).await?;
    let rest = carry.up.saturating_sub(first.len() as u64);
    let up = async { send(&mut write, if carry.up == ENDLESS { ENDLESS } else { rest }).await };
    tokio::try_join!(up, receive(&mut read, |bytes| log.came(number, DOWN, bytes)))?;
    if log.course(number).is_done() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Writes `bytes` bytes, then ends the direction.
pub(super) async fn send(tcp: &mut OwnedWriteHalf, mut bytes: u64) -> io::Result<()> {
    let chunk = [0x5a; CHUNK_BYTES];
    while bytes > 0 {
        let now = bytes.min(CHUNK_BYTES as u64);
        tcp.write_all(&chunk[..now as usize]).await?;
        if bytes != ENDLESS {
            bytes -= now;
        }
    }
    tcp.shutdown().await
}

/// Reads until the end, and calls `came` for each part.
pub(super) async fn receive(
    tcp: &mut (impl AsyncRead + Unpin),
    mut came: impl FnMut(usize),
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match tcp.read(&mut chunk).await? {
            0 => return Ok(()),
            bytes => came(bytes),
        }
    }
}

/// Runs a talk. Returns only on a failure.
async fn beat(log: &Log, number: usize, talk: Talk) -> Result<(), Fault> {
    let name = format!("datagrams {number}");
    let to = SocketAddr::new(SERVER.v4.into(), port(talk.class));
    let socket = async {
        let socket = UdpSocket::bind((passenger(talk.passenger), 0)).await?;
        socket.connect(to).await.map(|()| socket)
    };
    let socket = socket.await;
    let socket = socket.map_err(|error| Fault::lab(format!("a socket for {name}"), error))?;
    let talked = talked(log, number, &talk, &socket, to).await;
    talked.map_err(|error| Fault::crossing(name, &error))
}

/// Carries a passenger's datagrams in both directions.
async fn talked(
    log: &Log,
    number: usize,
    talk: &Talk,
    socket: &UdpSocket,
    to: SocketAddr,
) -> io::Result<()> {
    let hear = async {
        let mut datagram = [0; MAX_DATAGRAM_BYTES];
        loop {
            let bytes = socket.recv(&mut datagram).await?;
            if let Some((_, which)) = head(&datagram[..bytes]).filter(|(of, _)| *of == number) {
                log.arrived(number, DOWN, which as usize);
            }
        }
    };
    let say = async {
        while log.began(number).is_none() {
            socket.send(&datagram(number, HELLO, DATAGRAM_HEAD_BYTES)).await?;
            let heard = async {
                while log.began(number).is_none() {
                    sleep(LOOK).await;
                }
            };
            let _ = timeout(HELLO_GAP, heard).await;
        }
        speak(log, number, talk, UP, socket, to).await?;
        // The server's datagrams may still follow.
        std::future::pending().await
    };
    tokio::select! {
        broken = hear => broken,
        broken = say => broken,
    }
}

/// Sends a talk's datagrams of one direction, each when it is due.
pub(super) async fn speak(
    log: &Log,
    number: usize,
    talk: &Talk,
    way: usize,
    socket: &UdpSocket,
    to: SocketAddr,
) -> io::Result<()> {
    let began = log.began(number).unwrap_or_default();
    for (which, bytes) in (0..).zip(&talk.sizes) {
        sleep_until(log.instant(began + talk.gap * which)).await;
        log.sent(number, way);
        socket.send_to(&datagram(number, which, *bytes), to).await?;
    }
    Ok(())
}

fn datagram(number: usize, which: u32, bytes: usize) -> Vec<u8> {
    let mut datagram = vec![0; bytes.max(DATAGRAM_HEAD_BYTES)];
    datagram[..4].copy_from_slice(&(number as u32).to_be_bytes());
    datagram[4..8].copy_from_slice(&which.to_be_bytes());
    datagram
}

/// Flow number and own number of a datagram.
pub(super) fn head(datagram: &[u8]) -> Option<(usize, u32)> {
    let (head, _) = datagram.split_first_chunk::<DATAGRAM_HEAD_BYTES>()?;
    let [a, b, c, d, e, f, g, h] = *head;
    Some((u32::from_be_bytes([a, b, c, d]) as usize, u32::from_be_bytes([e, f, g, h])))
}

#[cfg(test)]
mod tests {
    use bentpipe_link::Class;
    use tokio::net::TcpListener;

    use super::*;

    const CARRY: Carry = Carry { class: Class::Assured, passenger: 1, up: 100, down: 1000 };

    #[tokio::test]
    async fn a_socket_that_cannot_be_had_is_the_labs_fault() {
        // Passengers' addresses exist only in the lab's hosts, so binding to one fails here.
        let log = Log::new();
        let fault = stream(&log, log.opened(&CARRY), CARRY).await.unwrap_err();
        assert!(fault.is_of_lab(), "{fault}");
        let (gap, sizes) = (Duration::from_millis(20), vec![160]);
        let class = Class::Network;
        let talk = Talk { class, passenger: 2, gap, sizes, phase: Duration::ZERO };
        let fault = beat(&log, log.talks(&talk), talk).await.unwrap_err();
        assert!(fault.is_of_lab(), "{fault}");
    }

    #[tokio::test]
    async fn a_connection_that_ends_early_is_a_passengers_fault() {
        let log = Log::new();
        let number = log.opened(&CARRY);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, there) = tokio::join!(TcpStream::connect(address), listener.accept());
        drop(there);
        let error = carried(&log, number, CARRY, open.unwrap()).await.unwrap_err();
        let fault = Fault::crossing("stream 0", &error);
        assert!(!fault.is_of_lab(), "{fault}");
    }
}
