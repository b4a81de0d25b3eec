//! Packets and errors received on an external port.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_net::ip;
use bentpipe_net::udp::{self, Control, ErrorHeard};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::Instant;

use super::peer::{LastActivity, Peer, Peers};
use crate::udp::raw_socket;
use bentpipe_metering::counters::Counters;
use bentpipe_transport::DatagramError;
use bentpipe_transport::datagram::{Datagram, IcmpError};

/// Maximum number of packets and errors read from one socket before other tasks run.
const MAX_AT_A_TURN: usize = 64;

/// Passes on packets received on an external port.
pub(super) struct Reader {
    pub(super) protocol: u8,
    pub(super) socket: Arc<UdpSocket>,
    pub(super) peers: Peers,
    pub(super) counters: Arc<Counters>,
}

impl Reader {
    pub(super) async fn run(self) {
        loop {
            // Fails only when the runtime is shutting down.
            let Ok(ready) = self.socket.ready(Interest::READABLE | Interest::ERROR).await else {
                return;
            };
            if ready.is_error() {
                udp::with_room(|buffer, control| self.errors(buffer, control));
            }
            if ready.is_readable() {
                udp::with_room(|buffer, control| self.packets(buffer, control));
            }
            tokio::task::yield_now().await;
        }
    }

    fn packets(&self, buffer: &mut [u8], control: &mut Control) {
        for _ in 0..MAX_AT_A_TURN {
            let heard = || udp::heard(&*self.socket, buffer, control);
            match self.socket.try_io(Interest::READABLE, heard) {
                Ok(heard) => {
                    let peer = heard.from.and_then(|from| {
                        let bytes = &buffer[..heard.bytes];
                        Some((self.peer(from)?, raw_socket::payload(self.protocol, from, bytes)?))
                    });
                    match peer {
                        Some((peer, payload)) => self.pass(&peer, payload),
                        None => self.counters.datagrams_unknown.add(1),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The error queue reports the details.
                Err(_) => {}
            }
        }
    }

    fn pass(&self, peer: &Peer, payload: &[u8]) {
        *peer.moved.lock() = LastActivity { at: Instant::now(), is_answered: true };
        match peer.flow.send(&Datagram::Payload(payload).encoded()) {
            Ok(()) => {
                self.counters.datagrams_to_link.add(1);
                self.counters.datagram_bytes_to_link.add(payload.len() as u64);
            }
            Err(DatagramError::TooLarge { .. }) => self.counters.datagrams_too_large.add(1),
            Err(DatagramError::Policed) => self.counters.datagrams_policed.add(1),
            Err(DatagramError::Ended) => self.counters.datagrams_dropped.add(1),
        }
    }

    fn errors(&self, buffer: &mut [u8], control: &mut Control) {
        for _ in 0..MAX_AT_A_TURN {
            let heard = || udp::heard_error(&*self.socket, buffer, control);
            let Ok(heard) = self.socket.try_io(Interest::ERROR, heard) else { return };
            if heard.is_known {
                continue;
            }
            let peer = heard.from.and_then(|to| self.peer(to));
            let (Some(peer), Some(error)) = (peer, heard.error) else {
                self.counters.datagrams_unknown.add(1);
                continue;
            };
            // Routers need not quote anything beyond UDP's header.
            let quote = if self.protocol == ip::UDP { &[] } else { &buffer[..heard.bytes] };
            let mut error = icmp_error(&error, heard.hop_limit);
            error.quote = quote.first_chunk().copied();
            peer.explain(error, &self.counters);
        }
    }

    fn peer(&self, address: SocketAddr) -> Option<Peer> {
        self.peers.lock().get(&plain(address)).cloned()
    }
}

fn icmp_error(heard: &ErrorHeard, hop_limit: Option<u8>) -> IcmpError {
    let from = heard.from.ip();
    let rest = match (from, heard.kind, heard.code) {
        // The MTU: ICMP has it in the last two bytes, ICMPv6 in all four.
        (IpAddr::V4(_), 3, 4) | (IpAddr::V6(_), 2, _) => heard.info.to_be_bytes(),
        _ => [0; 4],
    };
    let hop_limit = hop_limit.unwrap_or_default();
    IcmpError { from, kind: heard.kind, code: heard.code, rest, hop_limit, quote: None }
}

/// Removes the scope ID that the kernel adds, which is meaningless for a global address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}
