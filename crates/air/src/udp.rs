//! Interception of UDP: receives clients' packets to any destination, and answers from that
//! destination's address. Other protocols, see `ip.rs`, share the table of flows and the sender.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bentpipe_dns::Source;
use bentpipe_link::Class;
use bentpipe_net::ip::UDP;
use bentpipe_net::udp::{self, Control, Heard};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::answers::Answers;
use super::capture::Capture;
use super::client_packet::Sent;
use super::datagrams::{Back, Key, Table};
use super::ip;
use super::packet::Message;
use super::raw::Raw;
use super::services::Services;
use bentpipe_config::Quic;
use bentpipe_resolver::Resolver;
use bentpipe_transport::quic::is_quic;

/// Maximum number of packets read from one socket before other tasks run.
const MAX_AT_A_TURN: usize = 64;

/// Receive buffer of one socket, through which all passengers' UDP comes. The kernel doubles it for
/// its bookkeeping: 8 MiB hold about 3,600 full packets, 43 ms of 1 Gbit/s while this thread is busy.
const INGRESS_BUFFER_BYTES: usize = 4 << 20;

/// Sockets for intercepted UDP and for the answers.
pub struct Udp {
    sockets: Vec<UdpSocket>,
    raw: Raw,
    /// Capture of packets of other protocols, if the kernel supports it.
    pub capture: Option<Capture>,
}

impl Udp {
    /// Binds the sockets at `port` of loopback, like the TCP listeners.
    pub fn bind(port: u16, v6: bool) -> io::Result<Self> {
        let raw = Raw::open(v6)?;
        let mut sockets = vec![listen(Ipv4Addr::LOCALHOST.into(), port)?];
        if v6 {
            sockets.push(listen(Ipv6Addr::LOCALHOST.into(), port)?);
        }
        Ok(Self { sockets, raw, capture: None })
    }

    /// Handles received packets. Never returns. Dropping the future ends the flows.
    pub async fn serve(self, services: Arc<Services>, quic: Quic, raw: bentpipe_config::Raw) {
        let uplink = services.uplink.clone();
        let known = uplink.clone();
        let whose = move |client| known.whose(client);
        let answers = Answers::new(self.raw, uplink.counters.clone(), whose);
        let table = Table::new(uplink.clone(), answers);
        let _flows = CloseOnDrop(table.clone());
        let serving = self.sockets.iter().map(|socket| {
            let (table, services, drops) = (table.clone(), services.clone(), Drops::default());
            let server = Server { table, services, quic, drops };
            async move { server.serve(socket).await }
        });
        let other = async {
            if let Some(capture) = &self.capture {
                let (table, uplink) = (table.clone(), uplink.clone());
                ip::Server { table, uplink, raw }.serve(capture).await;
            }
        };
        tokio::join!(futures_util::future::join_all(serving), other);
    }
}

struct CloseOnDrop(Arc<Table<Answers>>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn listen(ip: IpAddr, port: u16) -> io::Result<UdpSocket> {
    let v6 = ip.is_ipv6();
    let address = SocketAddr::new(ip, port);
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::DGRAM,
        Some(socket2::Protocol::UDP),
    )?;
    if v6 {
        socket.set_ip_transparent_v6(true)?;
    } else {
        socket.set_ip_transparent_v4(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    let socket = UdpSocket::from_std(socket.into())?;
    udp::tell_headers(&socket, v6)?;
    udp::tell_original(&socket, v6)?;
    udp::tell_drops(&socket)?;
    udp::size_receive_buffer(&socket, INGRESS_BUFFER_BYTES)?;
    Ok(socket)
}

/// Packets that the kernel has dropped at a socket, as far as they are counted.
#[derive(Default)]
struct Drops(AtomicU32);

impl Drops {
    /// Returns the drops since the previous call. `sum` is the kernel's, which wraps around; packets
    /// without it have none.
    fn new_of(&self, sum: u32) -> u64 {
        if sum == 0 { 0 } else { sum.wrapping_sub(self.0.swap(sum, Relaxed)).into() }
    }
}

struct Server {
    table: Arc<Table<Answers>>,
    services: Arc<Services>,
    quic: Quic,
    drops: Drops,
}

impl Server {
    async fn serve(&self, socket: &UdpSocket) {
        loop {
            // Fails only when the runtime is shutting down.
            if socket.readable().await.is_err() {
                return;
            }
            udp::with_room(|buffer, control| self.turn(socket, buffer, control));
            tokio::task::yield_now().await;
        }
    }

    fn turn(&self, socket: &UdpSocket, buffer: &mut [u8], control: &mut Control) {
        for _ in 0..MAX_AT_A_TURN {
            let heard = socket.try_io(Interest::READABLE, || udp::heard(socket, buffer, control));
            match heard {
                Ok(heard) => {
                    let counters = &self.services.uplink.counters;
                    counters.datagrams_overrun.add(self.drops.new_of(heard.drops));
                    self.take(&heard, &buffer[..heard.bytes]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error caused by a reply of ours.
                Err(_) => {}
            }
        }
    }

    fn take(&self, heard: &Heard, payload: &[u8]) {
        let (Some(client), Some(target), Some(hop_limit)) =
            (heard.from, heard.original, heard.hop_limit)
        else {
            self.services.uplink.counters.datagrams_unknown.add(1);
            return;
        };
        // Only packets to the socket itself have a loopback destination. RFC 1122 section 3.2.2
        // forbids errors about sources that are not a single host.
        let nobody = |ip: IpAddr| ip.is_unspecified() || ip.is_multicast() || ip.is_loopback();
        if nobody(client.ip()) || nobody(target.ip()) || client.port() == 0 || target.port() == 0 {
            self.services.uplink.counters.datagrams_unknown.add(1);
            return;
        }
        let sent = Sent { hop_limit, traffic_class: heard.traffic_class, payload, cut_bytes: 0 };
        let key = Key { protocol: UDP, client, target: target.into() };
        let answers = self.table.back();
        if hop_limit <= 1 {
            answers.say(&key, &sent, Message::HopLimit);
        } else if self.quic == Quic::Reject
            && is_quic(target.port(), payload)
            && !self.table.knows(&key)
        {
            self.services.uplink.counters.quic_rejected.add(1);
            answers.say(&key, &sent, Message::PortUnreachable);
        } else if let Some(resolver) =
            self.services.intercepting().filter(|_| target.port() == bentpipe_dns::io::PORT)
        {
            self.ask(resolver, key, target, payload);
        } else {
            self.table.send(key, sent);
        }
    }
}

impl Server {
    /// Passes a client's query to the on-board resolver. The answer is sent from the address that
    /// was queried.
    fn ask(&self, resolver: &Resolver, key: Key, server: SocketAddr, payload: &[u8]) {
        let (table, client) = (self.table.clone(), key.client);
        let back = key.clone();
        let later = move |answer: &[u8]| {
            table.back().deliver(&back, Class::BestEffort, answer);
        };
        let source = Source::Datagram {
            client,
            asker: self.services.uplink.asker(client.ip()),
            server: Some(server),
        };
        if let Some(answer) = resolver.query(source, payload, resolver.packet(), Box::new(later)) {
            self.table.back().deliver(&key, Class::BestEffort, &answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_the_kernel_are_counted_once() {
        let drops = Drops::default();
        let counted = [0, 3, 3, 10, u32::MAX, 4].map(|sum| drops.new_of(sum));
        assert_eq!(counted, [0, 3, 0, 7, u64::from(u32::MAX) - 10, 5]);
    }
}
