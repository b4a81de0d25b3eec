//! The sending halves of all lanes of a session.

use bentpipe_coding::Span;

use super::sender::Sender;
use super::{DatagramSender, Lane, SendLane};
use crate::wire::header::PacketId;

/// The sending halves of all lanes.
#[derive(Debug)]
pub struct Senders {
    /// Lanes of [`Lane::RELIABLE`].
    pub reliable: [SendLane; Lane::RELIABLE.len()],
    pub datagrams: DatagramSender,
}

impl Senders {
    /// Creates lanes; a reliable lane keeps `kept_symbols` for repairs.
    pub fn new(kept_symbols: usize) -> Self {
        let reliable = Lane::RELIABLE.map(|_| SendLane::new(kept_symbols));
        Self { reliable, datagrams: DatagramSender::default() }
    }

    pub fn get(&mut self, lane: Lane) -> &mut dyn Sender {
        match lane {
            Lane::Urgent | Lane::Bulk => &mut self.reliable[lane as usize],
            Lane::Datagram => &mut self.datagrams,
        }
    }

    /// Content of a symbol that the peer has not reported.
    pub fn content_of(&self, lane: Lane, number: u64) -> Option<&[u8]> {
        match lane {
            Lane::Urgent | Lane::Bulk => self.reliable[lane as usize].content_of(number),
            Lane::Datagram => self.datagrams.content_of(number),
        }
    }

    /// Length of the coded bytes of another repair of `span`, unless it would not help.
    pub fn repair_len(&self, lane: Lane, span: Span) -> Option<usize> {
        match lane {
            Lane::Urgent | Lane::Bulk => self.reliable[lane as usize].repair_len(span),
            Lane::Datagram => self.datagrams.repair_len(span),
        }
    }

    /// Appends another repair of `span`, to be sent in `packet` besides the planned ones.
    pub fn repair_again(&self, lane: Lane, span: Span, packet: PacketId, out: &mut Vec<u8>) {
        match lane {
            Lane::Urgent | Lane::Bulk => {
                self.reliable[lane as usize].repair_again(span, packet, out);
            }
            Lane::Datagram => self.datagrams.repair_again(span, packet, out),
        }
    }

    /// Number of the lane's next new symbol.
    pub fn next_number(&self, lane: Lane) -> u64 {
        match lane {
            Lane::Urgent | Lane::Bulk => self.reliable[lane as usize].next_number(),
            Lane::Datagram => self.datagrams.next_number(),
        }
    }

    /// Makes the next reports of all lanes count as new, because packets were judged.
    pub fn mark_stale(&mut self) {
        self.reliable.iter_mut().for_each(SendLane::mark_stale);
        self.datagrams.mark_stale();
    }

    /// Bytes of unreported symbols, with bookkeeping.
    pub fn retained_bytes(&self) -> usize {
        let reliable: usize = self.reliable.iter().map(SendLane::retained_bytes).sum();
        reliable + self.datagrams.retained_bytes()
    }

    /// Bytes of reported symbols that repairs may still need.
    pub fn kept_bytes(&self) -> usize {
        self.reliable.iter().map(SendLane::kept_bytes).sum()
    }
}
