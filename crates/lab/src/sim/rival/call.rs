//! A stranger's call: packets at a constant rate, and their delay and loss.

use std::time::Duration;

use super::{End, Rival, Sent};

/// Interval of packets, as of the usual codecs.
const INTERVAL: Duration = Duration::from_millis(20);
/// Payload of a packet: 160 bytes in 20 ms are 64 kbit/s.
const VOICE_BYTES: usize = 160;
/// RTP header (RFC 3550 section 5.1).
const RTP_BYTES: usize = 12;

/// A call in one direction.
#[derive(Debug)]
pub struct Call {
    from: End,
    next: Duration,
    end: Duration,
    /// Time of every packet sent.
    sent_at: Vec<Duration>,
    /// Time of sending and delay of every packet that arrived.
    arrived: Vec<(Duration, Duration)>,
}

impl Call {
    /// A call sent by `from` between two times.
    pub fn new(from: End, start: Duration, end: Duration) -> Self {
        Self { from, next: start, end, sent_at: Vec::new(), arrived: Vec::new() }
    }

    /// Time of sending and delay of every packet that arrived, in the order of arrival.
    pub fn arrived(&self) -> &[(Duration, Duration)] {
        &self.arrived
    }

    /// Packets sent so far.
    pub fn sent(&self) -> usize {
        self.sent_at.len()
    }
}

impl Rival for Call {
    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<Sent> {
        if now < self.next || self.next >= self.end {
            return None;
        }
        out.clear();
        out.extend_from_slice(&(self.sent_at.len() as u32).to_be_bytes());
        out.resize(RTP_BYTES + VOICE_BYTES, 0);
        self.sent_at.push(now);
        self.next += INTERVAL;
        Some(Sent { by: self.from, is_ect: false })
    }

    fn receive(&mut self, _end: End, datagram: &[u8], _ce: bool, now: Duration) {
        let Some(number) = datagram.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) else {
            return;
        };
        if let Some(at) = self.sent_at.get(number as usize) {
            self.arrived.push((*at, now.saturating_sub(*at)));
        }
    }

    fn next_timeout(&mut self, _now: Duration) -> Option<Duration> {
        (self.next < self.end).then_some(self.next)
    }

    fn handle_timeout(&mut self, _now: Duration) {}

    fn received_bytes(&self) -> u64 {
        (self.arrived.len() * VOICE_BYTES) as u64
    }
}
