//! UDP ASSOCIATE (RFC 1928 section 7): a relay for one client's datagrams, for the lifetime of the
//! TCP connection that requested it.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use bentpipe_link::Class;
use bentpipe_net::ip;
use bentpipe_net::udp::{self, Control, Heard};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UdpSocket};

use super::wire::{self, Reply};
use crate::client_packet::Sent;
use crate::datagrams::{Back, Key, Problem, Table};
use bentpipe_config::Quic;
use bentpipe_transport::quic::is_quic;
use bentpipe_uplink::Uplink;

/// Maximum number of datagrams read from one association before other tasks run.
const MAX_AT_A_TURN: usize = 64;

/// Hop limit assumed for the client's packets, which is unknown here.
const HOP_LIMIT: u8 = 64;

/// Relays the datagrams of `client` until `tcp` ends. `port` is the source port declared by the
/// client.
pub async fn serve(mut tcp: TcpStream, client: IpAddr, port: u16, quic: Quic, uplink: Arc<Uplink>) {
    let socket = match bind(&tcp).await {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            uplink.log.warn("cannot bind a relay for a SOCKS5 client", &error);
            // The client may have gone already.
            let _ = tcp.write_all(&wire::reply(Reply::Failed)).await;
            return;
        }
    };
    let Ok(bound) = socket.local_addr() else { return };
    if tcp.write_all(&wire::reply_bound(Reply::Succeeded, bound)).await.is_err() {
        return;
    }
    let table = Table::new(uplink.clone(), Relay(socket.clone()));
    let port = AtomicU16::new(port);
    let association = Association { table, socket, client, port, quic, uplink };
    tokio::select! {
        () = association.run() => {}
        () = ended(&mut tcp) => {}
    }
}

/// Binds a socket at the TCP connection's local address, so that the client reaches it on the same
/// path.
async fn bind(tcp: &TcpStream) -> io::Result<UdpSocket> {
    let ip = tcp.local_addr()?.ip();
    let socket = UdpSocket::bind((ip, 0)).await?;
    udp::tell_headers(&socket, ip.is_ipv6())?;
    Ok(socket)
}

/// Waits for the connection's end, and ignores its data.
async fn ended(tcp: &mut TcpStream) {
    let mut ignored = [0; 64];
    while tcp.read(&mut ignored).await.is_ok_and(|bytes| bytes > 0) {}
}

struct Association {
    table: Arc<Table<Relay>>,
    socket: Arc<UdpSocket>,
    client: IpAddr,
    /// Source port of the client; 0 while it is unknown.
    port: AtomicU16,
    quic: Quic,
    uplink: Arc<Uplink>,
}

impl Association {
    async fn run(&self) {
        // Fails only when the runtime is shutting down.
        while self.socket.readable().await.is_ok() {
            udp::with_room(|buffer, control| self.turn(buffer, control));
            tokio::task::yield_now().await;
        }
    }

    fn turn(&self, buffer: &mut [u8], control: &mut Control) {
        for _ in 0..MAX_AT_A_TURN {
            let heard = || udp::heard(&*self.socket, buffer, control);
            match self.socket.try_io(Interest::READABLE, heard) {
                Ok(heard) => self.take(&heard, &buffer[..heard.bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An answer of ours reached a closed port of the client.
                Err(_) => {}
            }
        }
    }

    fn take(&self, heard: &Heard, bytes: &[u8]) {
        let counters = &self.uplink.counters;
        let Some(from) = heard.from else { return };
        let port = self.port.load(Relaxed);
        let its_own = from.ip().to_canonical() == self.client && (port == 0 || from.port() == port);
        let Some((target, payload)) = wire::datagram(bytes).filter(|_| its_own) else {
            counters.datagrams_unknown.add(1);
            return;
        };
        // From now on, other ports of the client are ignored.
        self.port.store(from.port(), Relaxed);
        let key = Key { protocol: ip::UDP, client: from, target };
        if self.quic == Quic::Reject && is_quic(key.target.port, payload) && !self.table.knows(&key)
        {
            // SOCKS5 cannot report the refusal.
            counters.quic_rejected.add(1);
            return;
        }
        let traffic_class = heard.traffic_class;
        self.table.send(key, Sent { hop_limit: HOP_LIMIT, traffic_class, payload, cut_bytes: 0 });
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.table.close();
    }
}

/// Sender of datagrams to the client.
struct Relay(Arc<UdpSocket>);

impl Back for Relay {
    fn deliver(&self, key: &Key, class: Class, payload: &[u8]) -> bool {
        let mut datagram = Vec::with_capacity(64 + payload.len());
        wire::put_datagram_head(&key.target, &mut datagram);
        datagram.extend_from_slice(payload);
        udp::send(&*self.0, &datagram, key.client, None, class.dscp().traffic_class(0)).is_ok()
    }

    /// SOCKS5 cannot report problems; counters record them.
    fn explain(&self, _: &Key, _: &Sent<'_>, _: Problem) {}

    fn knows_clients(&self) -> bool {
        true
    }
}
