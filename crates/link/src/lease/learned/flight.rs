//! Unreported data: the amount that may be sent before the next report.

use std::time::Duration;

use super::packets::{INITIAL_PACKETS, PACKET_BYTES, bytes_in};

/// Round trips of data that may be unreported. Reports come eight times in a round trip, and one
/// may be lost.
const MAX_IN_FLIGHT: f64 = 1.22;
/// The same on short paths, for timers.
const IN_FLIGHT_SLACK: Duration = Duration::from_millis(60);
/// Maximum wait for a report that permits more data, in round trips.
const HOLD: f64 = 1.5;
/// Packets that are sent after that without a report.
const PROBE_PACKETS: u64 = 2;
/// Bytes that may be unreported before as many are reported: 4 MiB are a round trip at 56 Mbit/s ×
/// 600 ms. A peer that lies about the first arrivals gains no more.
pub const UNPROVEN_BYTES: u64 = 4 << 20;
/// Idle time after which the rate has to be confirmed, with ever fewer packets.
const CONFIRM_AFTER: Duration = Duration::from_secs(60);

/// Bytes in flight, and the wait for a report once they are too many.
#[derive(Debug, Default)]
pub struct Flight {
    /// Bytes since the newest reported packet.
    unreported_bytes: u64,
    /// Time at which too many packets were unreported.
    held_at: Option<Duration>,
    /// Bytes of the first packets whose arrivals confirm the rate, until they have.
    unconfirmed_bytes: Option<u64>,
    /// Bytes that reports were about.
    reported_bytes: u64,
    /// Data had to wait for a report once.
    was_held: bool,
}

/// Bytes that may be unreported at a capacity and a round trip.
pub fn window(capacity_bps: Option<f64>, rtt: Duration) -> u64 {
    let initial = INITIAL_PACKETS * PACKET_BYTES;
    let Some(capacity) = capacity_bps else { return initial };
    let time = rtt.mul_f64(MAX_IN_FLIGHT).max(rtt + IN_FLIGHT_SLACK);
    bytes_in(capacity, time) + initial
}

impl Flight {
    /// Bytes since the newest reported packet.
    pub fn unreported_bytes(&self) -> u64 {
        self.unreported_bytes
    }

    /// Returns `true` if data must wait for a report.
    pub fn is_held(&self) -> bool {
        self.held_at.is_some()
    }

    /// Returns `true` if as much was sent as may be unreported at first, and nearly all of it is reported.
    pub fn is_window_reported(&self) -> bool {
        self.was_held && self.reported_bytes >= (INITIAL_PACKETS - 1) * PACKET_BYTES
    }

    /// Counts a packet that the window does not limit.
    pub fn probe(&mut self, bytes: usize) {
        self.unreported_bytes += bytes as u64;
    }

    /// Counts a packet. The next one waits if `window` is full.
    pub fn sent(&mut self, bytes: usize, window: u64, now: Duration) {
        self.unreported_bytes += bytes as u64;
        if self.unreported_bytes >= self.limit(window) && self.held_at.is_none() {
            self.held_at = Some(now);
            self.was_held = true;
        }
    }

    /// Takes the bytes that a report is about, and those that it leaves unreported.
    pub fn reported(&mut self, bytes: u64, in_flight_bytes: u64, window: u64) {
        self.reported_bytes += bytes;
        self.unreported_bytes = in_flight_bytes;
        let limit = self.limit(window);
        self.held_at = self.held_at.filter(|_| in_flight_bytes >= limit);
    }

    /// Ends the wait for a report.
    pub fn release(&mut self) {
        self.held_at = None;
    }

    /// Rate of the packets after the first ones that have to confirm the rate: as many again in a round
    /// trip. So the path is not idle until their report comes.
    pub fn unconfirmed_bps(&self, rtt: Duration) -> Option<f64> {
        let first = self.unconfirmed_bytes.filter(|most| self.unreported_bytes >= *most)?;
        Some(8.0 * first as f64 / rtt.as_secs_f64())
    }

    /// Forgets everything in flight, because an outage lost it.
    pub fn clear(&mut self) {
        self.held_at = None;
        self.unreported_bytes = 0;
    }

    /// Limits the first packets after `idle`, if the rate has to be confirmed after it. Returns
    /// whether it has to be.
    pub fn begin_confirmation(&mut self, idle: Duration, round_trip_bytes: u64) -> bool {
        if idle <= CONFIRM_AFTER {
            return false;
        }
        let most = (round_trip_bytes as f64 * CONFIRM_AFTER.div_duration_f64(idle)) as u64;
        self.unconfirmed_bytes = Some(most.max(INITIAL_PACKETS * PACKET_BYTES));
        true
    }

    /// Notes that arrivals have confirmed the rate.
    pub fn confirmed(&mut self) {
        self.unconfirmed_bytes = None;
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self, rtt: Duration) -> Option<Duration> {
        self.held_at.map(|at| at + rtt.mul_f64(HOLD))
    }

    /// Permits two packets if no report has come for long.
    pub fn handle_timeout(&mut self, rtt: Duration, window: u64, now: Duration) {
        if self.next_timeout(rtt).is_some_and(|at| at <= now) {
            self.held_at = None;
            self.unreported_bytes = self.limit(window).saturating_sub(PROBE_PACKETS * PACKET_BYTES);
        }
    }

    fn limit(&self, window: u64) -> u64 {
        let window = window.min(self.reported_bytes.max(UNPROVEN_BYTES));
        self.unconfirmed_bytes.map_or(window, |first| window.min(2 * first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    const WINDOW: u64 = 1_800_000;

    #[test]
    fn after_a_long_pause_as_much_as_the_first_packets_follows_in_a_round_trip() {
        let mut flight = Flight::default();
        assert!(!flight.begin_confirmation(Duration::from_secs(60), 1_500_000));
        assert!(flight.begin_confirmation(Duration::from_secs(600), 1_500_000));
        for sent in (0..300_000).step_by(1500) {
            let is_first = sent < 150_000;
            assert_eq!(flight.unconfirmed_bps(RTT), (!is_first).then_some(2e6), "{sent}");
            assert!(!flight.is_held());
            flight.sent(1500, WINDOW, Duration::from_secs(700));
        }
        assert!(flight.is_held());
        flight.confirmed();
        flight.reported(150_000, 150_000, WINDOW);
        assert!(!flight.is_held());
        assert_eq!(flight.unconfirmed_bps(RTT), None);
    }
}
