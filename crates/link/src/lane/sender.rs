//! Common interface of the lanes' senders: what a packet asks of a lane while it is built.

use std::time::Duration;

use bentpipe_coding::Span;
use bentpipe_schedule::{Class, PerClass};

use crate::wire::header::PacketId;

/// A symbol that waits for retransmission.
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

/// Source of retransmissions and repairs.
pub trait Sender {
    /// Returns the symbol that [`Self::take`] would take, of the classes in `allowed`.
    fn peek(&mut self, allowed: &PerClass<bool>, now: Duration) -> Option<Lost>;

    /// Takes the next symbol to be retransmitted in `packet`, of the classes in `allowed`: its number
    /// and content.
    fn take(
        &mut self,
        allowed: &PerClass<bool>,
        packet: PacketId,
        now: Duration,
    ) -> Option<(u64, &[u8])>;

    /// Class of the waiting repair, if there is one.
    fn repair_class(&mut self, now: Duration) -> Option<Class>;

    /// Returns the repair that [`Self::take_repair`] would make.
    fn peek_repair(&mut self, now: Duration) -> Option<Due>;

    /// Appends the repair of `span`, as returned by [`Self::peek_repair`], to be sent in `packet`.
    fn take_repair(&mut self, span: Span, packet: PacketId, now: Duration, out: &mut Vec<u8>);

    /// Gives up the next repair, which would not fit into a packet.
    fn give_up_repair(&mut self);
}

/// Every class, for tests.
#[cfg(test)]
pub fn every_class() -> PerClass<bool> {
    PerClass::new(|_| true)
}
