//! Reduction of a modem's many figures to one rate.

use std::time::Duration;

use dlep_core::{LinkMetrics, MacAddress};

/// A modem's report of its link, as far as it concerns a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rates {
    /// The current data rate (transmit), CDRT, section 13.15: from the router into the air.
    /// Zero: nothing goes at present.
    pub transmit_bps: u64,
    /// The current data rate (receive), CDRR, section 13.14. Zero: the modem does not say.
    pub receive_bps: u64,
    /// Section 13.16. Zero: the modem does not say.
    pub latency: Duration,
}

impl From<&LinkMetrics> for Rates {
    fn from(metrics: &LinkMetrics) -> Self {
        Self {
            transmit_bps: metrics.current_data_rate_tx_bps,
            receive_bps: metrics.current_data_rate_rx_bps,
            latency: metrics.latency,
        }
    }
}

/// Selects the figures that count. With one destination up, its figures count. With several, those
/// of the slowest that carries anything count, because it is not known here which of them our
/// packets take. Without any, those of the modem itself count.
///
/// A Session Update overwrites the figures of every destination (section 12.7), and a destination
/// begins with those of the session (section 12.11): so with one destination, what was told last
/// counts. Multicast destinations do not count.
pub(crate) fn of<'a>(
    session: &LinkMetrics,
    destinations: impl Iterator<Item = (&'a MacAddress, &'a LinkMetrics)>,
) -> Rates {
    let unicast = destinations.filter(|(mac, _)| mac.as_bytes()[0] & 1 == 0);
    let slowest = unicast
        .map(|(_, metrics)| Rates::from(metrics))
        .min_by_key(|rates| (rates.transmit_bps == 0, *rates));
    slowest.unwrap_or_else(|| Rates::from(session))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(transmit_bps: u64) -> LinkMetrics {
        LinkMetrics { current_data_rate_tx_bps: transmit_bps, ..LinkMetrics::default() }
    }

    #[test]
    fn the_slowest_destination_that_carries_anything_counts() {
        let mac = |last| MacAddress::new_eui48([2, 0, 0, 0, 0, last]);
        let group = MacAddress::BROADCAST;
        let transmit = |destinations: &[(MacAddress, u64)]| {
            let each: Vec<_> = destinations.iter().map(|(m, bps)| (*m, metrics(*bps))).collect();
            of(&metrics(9), each.iter().map(|(mac, metrics)| (mac, metrics))).transmit_bps
        };
        assert_eq!(transmit(&[]), 9);
        assert_eq!(transmit(&[(mac(1), 4)]), 4);
        assert_eq!(transmit(&[(mac(1), 4), (mac(2), 3), (mac(3), 0)]), 3);
        assert_eq!(transmit(&[(mac(1), 0)]), 0);
        assert_eq!(transmit(&[(group, 1)]), 9);
    }
}
