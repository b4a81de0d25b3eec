//! Charging of a packet to classes.
//!
//! A symbol may hold frames of several classes. Each class pays for its own frames. The packet's
//! overhead, and the cost of retransmissions, are paid by the class with the most bytes in the
//! symbol. A few favoured bytes that share a packet with many bytes of another class did not cause
//! that packet, and should not pay for it out of their guaranteed rate.

use bentpipe_schedule::{Class, PerClass};

/// Charge of a packet: the class that pays for what is not paid yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketCharge {
    pub class: Class,
    /// The most favoured class with bytes in the packet; it decides the packet's mark.
    pub best: Class,
    /// Bytes of the packet that are paid already, each by its own class.
    pub paid: usize,
}

impl PacketCharge {
    /// Charges the whole packet to `class`.
    pub fn of(class: Class) -> Self {
        Self { class, best: class, paid: 0 }
    }

    /// Adds `bytes` next to the symbol that nobody pays for: reports and lease messages are the
    /// network's own. With them the packet is marked as best effort at least, because packets marked
    /// as lower effort may starve.
    pub fn with_uncoded(self, bytes: usize) -> Self {
        let min = if bytes > 0 { Class::BestEffort } else { self.best };
        Self { paid: self.paid + bytes, best: self.best.min(min), ..self }
    }

    /// Charges the rest to the class with the most bytes in the symbol; of two equals, to the more
    /// favoured one.
    pub fn of_symbol(paid: &PerClass<usize>) -> Self {
        let max = paid.iter().rev().max_by_key(|(_, bytes)| **bytes);
        let class = max.map_or(Class::default(), |(class, _)| class);
        let best = Self::best_of(paid).unwrap_or(class);
        Self { class, best, paid: paid.iter().map(|(_, bytes)| bytes).sum() }
    }

    /// The most favoured class with bytes in the symbol.
    pub fn best_of(paid: &PerClass<usize>) -> Option<Class> {
        paid.iter().find(|(_, bytes)| **bytes > 0).map(|(best, _)| best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_with_most_bytes_pays_and_of_two_equals_the_more_favoured() {
        let mut paid = PerClass::default();
        paid[Class::Operator] = 20;
        paid[Class::LowerEffort] = 1400;
        let best = Class::Operator;
        assert_eq!(
            PacketCharge::of_symbol(&paid),
            PacketCharge { class: Class::LowerEffort, best, paid: 1420 }
        );
        paid[Class::Assured] = 1400;
        assert_eq!(
            PacketCharge::of_symbol(&paid),
            PacketCharge { class: Class::Assured, best, paid: 2820 }
        );
    }

    #[test]
    fn a_packet_with_a_report_is_not_marked_as_lower_effort() {
        let low = PacketCharge::of(Class::LowerEffort);
        assert_eq!(low.with_uncoded(0), low);
        let with_report = low.with_uncoded(30);
        assert_eq!(
            (with_report.class, with_report.best, with_report.paid),
            (low.class, Class::BestEffort, 30)
        );
        assert_eq!(PacketCharge::of(Class::Assured).with_uncoded(30).best, Class::Assured);
    }
}
