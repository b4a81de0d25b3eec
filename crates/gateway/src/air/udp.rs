//! Interception of UDP: what clients send anywhere comes here, and answers come from there. Those of
//! other protocols, see `ip.rs`, share the table of flows and the way back.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bentpipe_dns::Source;
use bentpipe_link::Class;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::answers::Answers;
use super::board::{self, Board};
use super::capture::Capture;
use super::datagrams::{Back, Key, Table};
use super::intake::Intake;
use super::ip;
use super::packet::Message;
use super::raw::Raw;
use super::sent::Sent;
use crate::config::Quic;
use crate::net::ip::UDP;
use crate::net::udp::{self, Control, Heard};
use crate::quic::is_quic;

/// Packets taken from one socket before other tasks have their turn.
const MOST_AT_A_TURN: usize = 64;

/// Sockets for intercepted UDP and for the answers.
pub struct Udp {
    sockets: Vec<UdpSocket>,
    raw: Raw,
    /// Source of packets of other protocols, on kernels that can give them.
    pub capture: Option<Capture>,
}

impl Udp {
    /// Binds them at `port` of loopback, as the TCP listeners are.
    pub fn bind(port: u16, v6: bool) -> io::Result<Self> {
        let raw = Raw::open(v6)?;
        let mut sockets = vec![listen(Ipv4Addr::LOCALHOST.into(), port)?];
        if v6 {
            sockets.push(listen(Ipv6Addr::LOCALHOST.into(), port)?);
        }
        Ok(Self { sockets, raw, capture: None })
    }

    /// Carries what comes, for ever. Dropping the future ends the flows.
    pub async fn serve(self, intake: Arc<Intake>, quic: Quic, raw: crate::config::Raw) {
        let answers = Answers::new(self.raw, intake.counters.clone());
        let table = Table::new(intake.clone(), answers);
        let _flows = CloseOnDrop(table.clone());
        let serving = self.sockets.iter().map(|socket| {
            let server = Server { table: table.clone(), intake: intake.clone(), quic };
            async move { server.serve(socket).await }
        });
        let other = async {
            if let Some(capture) = &self.capture {
                let (table, intake) = (table.clone(), intake.clone());
                ip::Server { table, intake, raw }.serve(capture).await;
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
    Ok(socket)
}

struct Server {
    table: Arc<Table<Answers>>,
    intake: Arc<Intake>,
    quic: Quic,
}

impl Server {
    async fn serve(&self, socket: &UdpSocket) {
        loop {
            // Fails only when the runtime is going away.
            if socket.readable().await.is_err() {
                return;
            }
            udp::with_room(|buffer, control| self.turn(socket, buffer, control));
            tokio::task::yield_now().await;
        }
    }

    fn turn(&self, socket: &UdpSocket, buffer: &mut [u8], control: &mut Control) {
        for _ in 0..MOST_AT_A_TURN {
            let heard = socket.try_io(Interest::READABLE, || udp::heard(socket, buffer, control));
            match heard {
                Ok(heard) => self.take(&heard, &buffer[..heard.bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error that a reply of ours has caused.
                Err(_) => {}
            }
        }
    }

    fn take(&self, heard: &Heard, payload: &[u8]) {
        let (Some(client), Some(target), Some(hop_limit)) =
            (heard.from, heard.original, heard.hop_limit)
        else {
            self.intake.counters.datagrams_unknown.add(1);
            return;
        };
        // Only what was sent to the socket itself ends at loopback; and RFC 1122 section 3.2.2
        // wants no errors about senders that are nobody.
        let nobody = |ip: IpAddr| ip.is_unspecified() || ip.is_multicast() || ip.is_loopback();
        if nobody(client.ip()) || nobody(target.ip()) || client.port() == 0 || target.port() == 0 {
            self.intake.counters.datagrams_unknown.add(1);
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
            self.intake.counters.quic_rejected.add(1);
            answers.say(&key, &sent, Message::PortUnreachable);
        } else if let Some(board) =
            self.intake.intercepting().filter(|_| target.port() == board::PORT)
        {
            self.ask(board, key, target, payload);
        } else {
            self.table.send(key, sent);
        }
    }
}

impl Server {
    /// Gives a client's query to the resolver on board. What it says comes from where it was asked.
    fn ask(&self, board: &Board, key: Key, server: SocketAddr, payload: &[u8]) {
        let (table, client) = (self.table.clone(), key.client);
        let back = key.clone();
        let later = move |answer: &[u8]| {
            table.back().deliver(&back, Class::BestEffort, answer);
        };
        let source = Source::Datagram { client, server: Some(server) };
        if let Some(answer) = board.query(source, payload, board.packet(), Box::new(later)) {
            self.table.back().deliver(&key, Class::BestEffort, &answer);
        }
    }
}
