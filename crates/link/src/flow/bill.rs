//! Charging of a packet to classes.
//!
//! A symbol may hold frames of several classes. Each pays for its own; what the packet adds, and what
//! it costs to send the symbol again, is paid by the class that has most of it. For a few favoured
//! bytes that found room behind many of another class did not make that packet, and should not pay
//! for it out of what they are guaranteed; nor do many bytes travel at the expense of a few.

use bentpipe_schedule::{Class, PerClass};

/// The class that pays for what nobody has paid yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bill {
    pub class: Class,
    /// The most favoured class that has anything in the packet: how the packet is marked.
    pub best: Class,
    /// Bytes of the packet that are paid, each by its own class.
    pub paid: usize,
}

impl Bill {
    /// Nothing is paid yet.
    pub fn of(class: Class) -> Self {
        Self { class, best: class, paid: 0 }
    }

    /// `bytes` beside the symbol are paid already: reports and what is said of leases are the
    /// network's own. They must not wait for ever, as what is marked as lower effort may.
    pub fn beside(self, bytes: usize) -> Self {
        let least = if bytes > 0 { Class::BestEffort } else { self.best };
        Self { paid: self.paid + bytes, best: self.best.min(least), ..self }
    }

    /// Class that pays the rest: the one that put most into the symbol; of two equals, the more
    /// favoured.
    pub fn most(paid: &PerClass<usize>) -> Self {
        let most = paid.iter().rev().max_by_key(|(_, bytes)| **bytes);
        let class = most.map_or(Class::default(), |(class, _)| class);
        let best = paid.iter().find(|(_, bytes)| **bytes > 0).map_or(class, |(best, _)| best);
        Self { class, best, paid: paid.iter().map(|(_, bytes)| bytes).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_pays_and_the_more_favoured_of_two() {
        let mut paid = PerClass::default();
        paid[Class::Operator] = 20;
        paid[Class::LowerEffort] = 1400;
        let best = Class::Operator;
        assert_eq!(Bill::most(&paid), Bill { class: Class::LowerEffort, best, paid: 1420 });
        paid[Class::Assured] = 1400;
        assert_eq!(Bill::most(&paid), Bill { class: Class::Assured, best, paid: 2820 });
    }

    #[test]
    fn a_report_is_not_marked_as_what_may_starve() {
        let low = Bill::of(Class::LowerEffort);
        assert_eq!(low.beside(0), low);
        let beside = low.beside(30);
        assert_eq!((beside.class, beside.best, beside.paid), (low.class, Class::BestEffort, 30));
        assert_eq!(Bill::of(Class::Assured).beside(30).best, Class::Assured);
    }
}
