//! Careful resume (RFC 9959): the rate that an earlier session learned on the same path.
//!
//! | phase | rule |
//! |---|---|
//! | reconnaissance | the first ten packets are reported. The round trip is like the earlier one, and most packets arrived |
//! | unvalidated | their arrivals show as much as the earlier rate: it is used. They show less: their rate is used. They show nothing, because they arrived together: half of the earlier rate is used |
//! | validating | the first train, at twice that rate |
//! | safe retreat | a queue or losses lower the rate to what arrives, as always |

use std::time::Duration;

use super::packets::{INITIAL_PACKETS, PACKET_BYTES};
use crate::congestion::is_same_path;
use crate::lease::Observation;

/// Part of the earlier rate that is used if arrivals show nothing.
const JUMP: f64 = 0.5;
/// Share of the earlier rate from which on the measured rate confirms it.
const CONFIRMS: f64 = 0.8;
/// Part of the first packets whose loss makes the path another one.
const MAX_LOST_PART: u64 = 4;

/// Rate that an earlier session learned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Earlier {
    pub bps: f64,
    /// Its round trip.
    pub rtt: Duration,
}

/// First rate of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct First {
    pub bps: f64,
    /// Both the arrivals and the earlier session show it.
    pub is_confirmed: bool,
}

/// Choice of the first rate.
#[derive(Debug)]
pub struct Resume {
    earlier: Option<Earlier>,
    judged: u64,
    lost: u64,
    bytes: u64,
}

impl Resume {
    pub fn new(earlier: Option<Earlier>) -> Self {
        Self { earlier, judged: 0, lost: 0, bytes: 0 }
    }

    /// First rate after a report, if one is known. `measured_bps` is what the arrivals show.
    pub fn first(&mut self, measured_bps: Option<f64>, seen: &Observation) -> Option<First> {
        self.judged += seen.judged;
        self.lost += seen.lost;
        self.bytes += seen.judged_bytes;
        let is_same = |earlier: &Earlier| {
            is_same_path(earlier.rtt, seen.rtt) && self.lost * MAX_LOST_PART <= self.judged
        };
        let Some(earlier) = self.earlier.filter(is_same) else {
            self.earlier = None;
            return measured_bps.map(|bps| First { bps, is_confirmed: false });
        };
        let Some(measured) = measured_bps else {
            let is_enough = self.bytes >= (INITIAL_PACKETS - 1) * PACKET_BYTES;
            return is_enough.then_some(First { bps: JUMP * earlier.bps, is_confirmed: false });
        };
        let is_confirmed = measured >= CONFIRMS * earlier.bps;
        Some(First { bps: measured.min(earlier.bps), is_confirmed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    fn report(judged: u64, lost: u64, rtt: Duration) -> Observation {
        Observation {
            now: Duration::from_secs(1),
            rtt,
            sent_at: Duration::ZERO,
            arrived: Duration::ZERO,
            judged,
            lost,
            judged_bytes: judged * PACKET_BYTES,
            in_flight_bytes: 0,
            longest_loss: lost,
        }
    }

    fn first(measured_mbps: Option<f64>, seen: &Observation) -> Option<(f64, bool)> {
        let mut resume = Resume::new(Some(Earlier { bps: 10e6, rtt: RTT }));
        let first = resume.first(measured_mbps.map(|mbps| mbps * 1e6), seen);
        first.map(|first| (first.bps / 1e6, first.is_confirmed))
    }

    #[test]
    fn the_earlier_rate_is_used_as_far_as_the_first_packets_confirm_it() {
        let ten = report(10, 0, RTT);
        assert_eq!(first(Some(10.5), &ten), Some((10.0, true)));
        assert_eq!(first(Some(50.0), &ten), Some((10.0, true)), "a train has to show more");
        assert_eq!(first(Some(9.0), &ten), Some((9.0, true)));
        assert_eq!(first(Some(4.0), &ten), Some((4.0, false)), "the path carries less now");
        assert_eq!(first(None, &ten), Some((5.0, false)), "they arrived together");
        assert_eq!(first(None, &report(4, 0, RTT)), None, "some are on their way");
    }

    #[test]
    fn another_path_has_no_earlier_rate() {
        for other in [report(10, 0, RTT / 2), report(10, 0, RTT * 10), report(10, 3, RTT)] {
            assert_eq!(first(None, &other), None);
            assert_eq!(first(Some(50.0), &other), Some((50.0, false)));
        }
        let mut resume = Resume::new(Some(Earlier { bps: 10e6, rtt: RTT }));
        assert_eq!(resume.first(None, &report(4, 3, RTT)), None);
        assert_eq!(resume.first(None, &report(10, 0, RTT)), None, "it stays forgotten");
    }
}
