//! The present loss of a connection, from counters that only grow.

/// Number of packets over which the loss is counted.
const SPAN_PACKETS: u64 = 1000;

/// Loss of the last thousand packets.
#[derive(Debug, Default)]
pub struct PresentLoss {
    sent: u64,
    lost: u64,
    loss: f64,
}

impl PresentLoss {
    /// Takes the counters of the connection, and returns its loss. It is 0 until enough was sent.
    pub fn of(&mut self, sent: u64, lost: u64) -> f64 {
        if sent < self.sent || lost < self.lost {
            // Another connection.
            *self = Self::default();
        }
        if sent - self.sent >= SPAN_PACKETS {
            self.loss = (lost - self.lost) as f64 / (sent - self.sent) as f64;
            (self.sent, self.lost) = (sent, lost);
        }
        self.loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_present_counts() {
        let mut loss = PresentLoss::default();
        assert_eq!(loss.of(10, 1), 0.0, "too few packets");
        assert_eq!(loss.of(1000, 50), 0.05);
        assert_eq!(loss.of(1500, 50), 0.05);
        assert_eq!(loss.of(2000, 50), 0.0);
        assert_eq!(loss.of(3000, 200), 0.15);
        assert_eq!(loss.of(20, 3), 0.0, "another connection");
    }
}
