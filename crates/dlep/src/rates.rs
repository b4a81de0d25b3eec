//! Reduction of a modem's metrics to one set of rates.

use std::time::Duration;

use dlep_core::{LinkMetrics, MacAddress};

/// Link rates and latency reported by a modem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rates {
    /// Current data rate (transmit), CDRT, section 13.15: from the router to the radio link. Zero:
    /// nothing can be sent at present.
    pub transmit_bps: u64,
    /// Current data rate (receive), CDRR, section 13.14. Zero: not reported.
    pub receive_bps: u64,
    /// Latency, section 13.16. Zero: not reported.
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

/// Selects the metrics that apply:
///
/// - With one destination up, its metrics apply.
/// - With several, the metrics of the slowest with a rate above zero apply, because the path of our
///   packets is unknown here.
/// - Without any, the session-wide metrics apply.
///
/// A Session Update overwrites the metrics of every destination (section 12.7), and a destination
/// starts with those of the session (section 12.11). With one destination, the latest report
/// therefore applies. Multicast destinations are ignored.
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
    fn the_slowest_active_destination_applies() {
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
