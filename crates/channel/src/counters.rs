//! Counters of packet fates.

/// Number of packets and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// IP bytes of the packets.
    pub bytes: u64,
}

/// Totals of one direction: `offered` = `too_long` + `policed` + `queue_dropped` + `lost` +
/// `delivered`, and the packets that wait for a decision of an AQM.
///
/// A packet is counted when its fate is known. A packet counted as delivered may still be in
/// flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub offered: Count,
    /// Dropped because they exceed the link's MTU, silently as in a black hole.
    pub too_long: Count,
    /// Dropped by the policer.
    pub policed: Count,
    /// Dropped because a queue was full, or by its AQM.
    pub queue_dropped: Count,
    /// Sent and lost: to the loss process, to bit errors or to an outage.
    pub lost: Count,
    /// Sent and delivered.
    pub delivered: Count,
    /// Delivered packets marked Congestion Experienced.
    pub marked: Count,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}
