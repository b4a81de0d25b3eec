//! Fate of the packets offered so far, as counts.

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
}

/// The totals of one direction: `offered` = `too_long` + `queue_dropped` +
/// `lost` + `delivered`.
///
/// A packet is counted when it is offered, as its fate is known then: one counted as delivered
/// may still be on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Everything offered.
    pub offered: Count,
    /// Refused because the link's MTU is smaller: nobody is told, as in a black hole.
    pub too_long: Count,
    /// Refused because the queue was full.
    pub queue_dropped: Count,
    /// Sent, and lost on the way: to the loss process, to bit errors or to an outage.
    pub lost: Count,
    /// Sent, and arriving.
    pub delivered: Count,
    /// Delivered packets that were marked Congestion Experienced.
    pub marked: Count,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}
