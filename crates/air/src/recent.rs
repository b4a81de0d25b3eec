//! A client's latest packets, for quotation in ICMP errors.

use std::collections::VecDeque;

use bentpipe_net::ip;

use super::client_packet::Sent;
use bentpipe_transport::datagram::Quote;

/// Maximum length that an ICMP error quotes (RFC 4443 section 2.4 (c)).
pub const MAX_QUOTED_BYTES: usize = 1280;

/// Number of echoes per flow that errors may still refer to; traceroute sends 16 at once by
/// default.
const MAX_ECHOES: usize = 32;

/// Stored bytes of each echo: the header, and the following bytes by which programs recognize their
/// packets. 32 × 64 bytes = 2 KiB.
const MAX_ECHO_BYTES: usize = 64;

/// Latest packets of one flow. Several echoes are kept, because an error identifies the echo; of
/// other flows, only the last packet is kept.
pub struct Recent {
    packets: VecDeque<Packet>,
    is_echo: bool,
}

/// Start of a packet.
#[derive(Default)]
struct Packet {
    hop_limit: u8,
    traffic_class: u8,
    payload: Vec<u8>,
    cut_bytes: usize,
}

impl Recent {
    /// Creates an empty history for a flow of `protocol`.
    pub fn new(protocol: u8) -> Self {
        Self { packets: VecDeque::new(), is_echo: ip::is_echo(protocol) }
    }

    /// Stores a packet sent by the client.
    pub fn keep(&mut self, sent: &Sent<'_>) {
        let (most, max_bytes) =
            if self.is_echo { (MAX_ECHOES, MAX_ECHO_BYTES) } else { (1, MAX_QUOTED_BYTES) };
        let full = self.packets.len() >= most;
        // Reuse the oldest packet's memory.
        let mut packet = full.then(|| self.packets.pop_front()).flatten().unwrap_or_default();
        packet.fill(sent, max_bytes);
        self.packets.push_back(packet);
    }

    /// Returns the last packet.
    pub fn last(&self) -> Option<Sent<'_>> {
        self.packets.back().map(Packet::sent)
    }

    /// Returns the packet that an error with this quote refers to. The ground gateway replaces the
    /// identifier of echoes, but keeps their sequence numbers.
    pub fn quoted(&self, quote: Option<Quote>) -> Option<Sent<'_>> {
        match quote {
            Some(quote) if self.is_echo => {
                let newest_first = self.packets.iter().rev();
                let sequence = |packet: &&Packet| packet.payload.get(6..8) == Some(&quote[6..8]);
                newest_first.into_iter().find(sequence).map(Packet::sent)
            }
            _ => self.last(),
        }
    }
}

impl Packet {
    fn fill(&mut self, sent: &Sent<'_>, max_bytes: usize) {
        (self.hop_limit, self.traffic_class) = (sent.hop_limit, sent.traffic_class);
        let (quoted, cut) = sent.payload.split_at(sent.payload.len().min(max_bytes));
        self.payload.clear();
        self.payload.extend_from_slice(quoted);
        self.cut_bytes = sent.cut_bytes + cut.len();
    }

    fn sent(&self) -> Sent<'_> {
        Sent {
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            payload: &self.payload,
            cut_bytes: self.cut_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(payload: &[u8]) -> Sent<'_> {
        Sent { hop_limit: 64, traffic_class: 0, payload, cut_bytes: 0 }
    }

    #[test]
    fn an_error_finds_the_echo_it_is_about() {
        let mut recent = Recent::new(ip::ICMP);
        let echo = |sequence: u8| [&[8, 0, 0, 0, 0, 7, 0, sequence][..], &[sequence; 100]].concat();
        for sequence in 0..=40 {
            recent.keep(&sent(&echo(sequence)));
        }
        let found = |sequence: u8| {
            let found = recent.quoted(Some([8, 0, 9, 9, 9, 9, 0, sequence]))?;
            Some((found.payload.to_vec(), found.cut_bytes))
        };
        assert_eq!(found(40), Some((echo(40)[..64].to_vec(), 44)));
        assert_eq!(found(9), Some((echo(9)[..64].to_vec(), 44)));
        assert_eq!(found(8), None, "32 are kept");
        assert_eq!(recent.quoted(None).unwrap().payload[7], 40);
    }

    #[test]
    fn of_other_flows_the_last_is_quoted() {
        for protocol in [ip::UDP, 50] {
            let mut recent = Recent::new(protocol);
            assert!(recent.last().is_none());
            recent.keep(&sent(b"first"));
            recent.keep(&sent(&[7; 60_000]));
            assert_eq!(recent.packets.len(), 1);
            let last = recent.quoted(Some([1; 8])).unwrap();
            assert_eq!((last.payload.len(), last.cut_bytes), (1280, 60_000 - 1280));
        }
    }
}
