//! Common interface of the lanes' senders, for the packet that is being built.

use std::time::Duration;

use bentpipe_coding::Span;
use bentpipe_schedule::Class;

use super::{Lane, Perishable, SendLane};

/// A symbol that waits to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    pub number: u64,
    /// Length of its content.
    pub len: usize,
    /// Class that pays for it.
    pub class: Class,
}

/// A repair that waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    pub span: Span,
    /// Length of the coded bytes.
    pub len: usize,
    /// Class that asked for it, and pays.
    pub class: Class,
}

/// Gives symbols to send again, and repairs.
pub trait Sender {
    /// Symbol that [`Self::take`] would give.
    fn peek(&mut self, now: Duration) -> Option<Lost>;

    /// Takes the next symbol that is sent again, as leaving in `packet`: its content.
    fn take(&mut self, packet: u64, now: Duration) -> Option<(u64, &[u8])>;

    /// Class of the waiting repair, if there is one.
    fn repair_class(&mut self, now: Duration) -> Option<Class>;

    /// Repair that [`Self::take_repair`] would make.
    fn peek_repair(&mut self, now: Duration) -> Option<Due>;

    /// Appends the repair of `span`, as [`Self::peek_repair`] gave it, as leaving in `packet`.
    fn take_repair(&mut self, span: Span, packet: u64, now: Duration, out: &mut Vec<u8>);

    /// The next repair would not fit into a packet.
    fn give_up_repair(&mut self);
}

/// All lanes of a session.
#[derive(Debug)]
pub struct Senders {
    /// Those of [`Lane::RELIABLE`].
    pub reliable: [SendLane; Lane::RELIABLE.len()],
    pub datagrams: Perishable,
}

impl Senders {
    /// A reliable lane keeps `kept_symbols` for repairs.
    pub fn new(kept_symbols: usize) -> Self {
        let reliable = Lane::RELIABLE.map(|_| SendLane::new(kept_symbols));
        Self { reliable, datagrams: Perishable::default() }
    }

    pub fn get(&mut self, lane: Lane) -> &mut dyn Sender {
        match lane {
            Lane::Urgent | Lane::Bulk => &mut self.reliable[lane as usize],
            Lane::Datagram => &mut self.datagrams,
        }
    }

    /// The number that the lane's next new symbol will have.
    pub fn next_number(&self, lane: Lane) -> u64 {
        match lane {
            Lane::Urgent | Lane::Bulk => self.reliable[lane as usize].next_number(),
            Lane::Datagram => self.datagrams.next_number(),
        }
    }

    /// Packets have been judged: the next reports of all lanes are thought over.
    pub fn think_again(&mut self) {
        self.reliable.iter_mut().for_each(SendLane::think_again);
        self.datagrams.think_again();
    }

    /// Bytes that wait to be reported, bookkeeping included.
    pub fn retained_bytes(&self) -> usize {
        let reliable: usize = self.reliable.iter().map(SendLane::retained_bytes).sum();
        reliable + self.datagrams.retained_bytes()
    }

    /// Contents of reported symbols that repairs may still need.
    pub fn kept_bytes(&self) -> usize {
        self.reliable.iter().map(SendLane::kept_bytes).sum()
    }

    /// Returns `true` if a retransmission, or a repair, waits.
    pub fn has_queued(&mut self, now: Duration) -> bool {
        self.reliable.iter_mut().any(SendLane::has_queued) || self.datagrams.has_queued(now)
    }
}

impl Sender for SendLane {
    fn peek(&mut self, _: Duration) -> Option<Lost> {
        SendLane::peek(self)
    }

    fn take(&mut self, packet: u64, now: Duration) -> Option<(u64, &[u8])> {
        SendLane::take(self, packet, now)
    }

    fn repair_class(&mut self, _: Duration) -> Option<Class> {
        SendLane::repair_class(self)
    }

    fn peek_repair(&mut self, _: Duration) -> Option<Due> {
        SendLane::peek_repair(self)
    }

    fn take_repair(&mut self, span: Span, packet: u64, now: Duration, out: &mut Vec<u8>) {
        SendLane::take_repair(self, span, packet, now, out);
    }

    fn give_up_repair(&mut self) {
        SendLane::give_up_repair(self);
    }
}
