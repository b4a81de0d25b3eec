//! Reports of a rate source, and their publication.

use std::time::Duration;

use bentpipe_units::BitRate;
use tokio::sync::watch;

/// Minimum reported rate. A modem may report zero while its link is down, but a rate of zero would
/// stop even the probes that detect the link's return. This rate allows 100 bytes every 0.1 s.
pub const MIN_RATE: BitRate = BitRate::from_bps(8_000);

/// Maximum reported rate: faster than any radio, and small enough that sums cannot overflow.
pub const MAX_RATE: BitRate = BitRate::from_bps(100_000_000_000);

/// Report of a modem about its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModemRates {
    /// Rate from here into the air, between [`MIN_RATE`] and [`MAX_RATE`]. The modem counts IP
    /// packets, and `per_packet_overhead` for each.
    pub transmit: BitRate,
    /// Rate from the air to here, if the modem reports it.
    pub receive: Option<BitRate>,
    /// One-way delay through the modem and its link, if the modem reports it.
    pub latency: Option<Duration>,
    /// Bytes that the modem counts for each packet in addition to the IP packet; from the
    /// configuration.
    pub per_packet_overhead: u16,
    /// The modem reports a rate of zero: its link carries nothing.
    pub is_down: bool,
}

/// Publisher of a source's reports.
pub(crate) struct Publisher {
    pub said: watch::Sender<Option<ModemRates>>,
    pub per_packet_overhead: u16,
}

impl Publisher {
    /// Publishes rates. Returns `true` if they have changed.
    pub fn say(
        &self,
        transmit: BitRate,
        receive: Option<BitRate>,
        latency: Option<Duration>,
    ) -> bool {
        self.replace(Some(ModemRates {
            transmit: transmit.clamp(MIN_RATE, MAX_RATE),
            receive: receive.map(|rate| rate.min(MAX_RATE)),
            latency,
            per_packet_overhead: self.per_packet_overhead,
            is_down: transmit.bps() == 0,
        }))
    }

    /// Returns `true` if no rate is published at present.
    pub fn is_silent(&self) -> bool {
        self.said.borrow().is_none()
    }

    /// Withdraws the published rates. Returns `true` if there were any.
    pub fn unsay(&self) -> bool {
        self.replace(None)
    }

    fn replace(&self, rates: Option<ModemRates>) -> bool {
        self.said.send_if_modified(|said| {
            let news = *said != rates;
            *said = rates;
            news
        })
    }
}
