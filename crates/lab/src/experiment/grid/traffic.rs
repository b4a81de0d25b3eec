//! Sent bytes, by purpose.

use bentpipe_link::Counters;

/// Bytes that one end sent in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traffic {
    /// IP bytes, including headers.
    pub bytes: u64,
    /// Payload bytes, written by the owners of flows.
    pub payload_bytes: u64,
    /// Bytes by purpose.
    pub kinds: Kinds,
    /// Bytes that the rate would have allowed in that time.
    pub possible_bytes: f64,
}

/// IP bytes and packets by content.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Kinds {
    /// Packets with a symbol that is sent for the first time, and packets with neither symbol nor
    /// report.
    pub source_bytes: f64,
    /// Packets that protect symbols before any loss is reported.
    pub repair_bytes: f64,
    /// Packets with symbols that were reported missing, or probes for them.
    pub retransmission_bytes: f64,
    /// Packets with reports.
    pub report_bytes: f64,
    /// Symbols sent for the first time.
    pub sources: u64,
    /// Repair packets and retransmissions.
    pub repairs: u64,
}

/// Overhead of a packet around a symbol or repair symbol: the headers of IPv4 and UDP (28), our
/// header and the AEAD's tag (28), and the symbol's tag and number (4).
const PACKET_BYTES: u64 = 28 + 28 + 4;

/// Bytes sent between two counts, by kind.
fn kinds(before: &Counters, after: &Counters) -> Kinds {
    let since = |count: fn(&Counters) -> u64| count(after) - count(before);
    let sources = since(|it| it.symbols_sent);
    let repairs = since(|it| it.repairs_sent);
    let again = since(|it| it.retransmissions_sent);
    let repair_bytes = since(|it| it.repair_bytes) + repairs * PACKET_BYTES;
    let retransmission_bytes = since(|it| it.retransmission_bytes) + again * PACKET_BYTES;
    let report_bytes = since(|it| it.report_bytes);
    let others = repair_bytes + retransmission_bytes + report_bytes;
    Kinds {
        source_bytes: since(|it| it.bytes_sent).saturating_sub(others) as f64,
        repair_bytes: repair_bytes as f64,
        retransmission_bytes: retransmission_bytes as f64,
        report_bytes: report_bytes as f64,
        sources,
        repairs: repairs + again,
    }
}

impl Traffic {
    /// Traffic between two counts. `payload_bytes` of it are payload, and `possible_bytes` is the
    /// capacity.
    pub fn between(
        before: &Counters,
        after: &Counters,
        payload_bytes: u64,
        possible_bytes: f64,
    ) -> Self {
        let bytes = after.bytes_sent - before.bytes_sent;
        let kinds = kinds(before, after);
        Self { bytes, payload_bytes, kinds, possible_bytes }
    }

    /// Sum of both.
    pub fn and(self, other: Self) -> Self {
        let (a, b) = (self.kinds, other.kinds);
        Self {
            bytes: self.bytes + other.bytes,
            payload_bytes: self.payload_bytes + other.payload_bytes,
            kinds: Kinds {
                source_bytes: a.source_bytes + b.source_bytes,
                repair_bytes: a.repair_bytes + b.repair_bytes,
                retransmission_bytes: a.retransmission_bytes + b.retransmission_bytes,
                report_bytes: a.report_bytes + b.report_bytes,
                sources: a.sources + b.sources,
                repairs: a.repairs + b.repairs,
            },
            possible_bytes: self.possible_bytes + other.possible_bytes,
        }
    }

    /// Fraction of the sent bytes in headers and frames around source symbols.
    pub fn header(&self) -> f64 {
        (self.kinds.source_bytes - self.payload_bytes as f64).max(0.0) / self.sent()
    }

    /// Fraction of the sent bytes in repair packets.
    pub fn repair(&self) -> f64 {
        self.kinds.repair_bytes / self.sent()
    }

    /// Fraction of the sent bytes in retransmissions.
    pub fn retransmission(&self) -> f64 {
        self.kinds.retransmission_bytes / self.sent()
    }

    /// Fraction of the sent bytes in reports.
    pub fn ack(&self) -> f64 {
        self.kinds.report_bytes / self.sent()
    }

    /// Repair packets and retransmissions per source packet.
    pub fn redundancy(&self) -> f64 {
        self.kinds.repairs as f64 / self.kinds.sources.max(1) as f64
    }

    /// Fraction of the sent bytes that is not payload.
    pub fn overhead(&self) -> f64 {
        1.0 - self.payload_bytes as f64 / self.sent()
    }

    fn sent(&self) -> f64 {
        self.bytes.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_of_a_kind_and_the_shares_are_of_all() {
        let before = Counters { bytes_sent: 50_000, symbols_sent: 40, ..Counters::default() };
        let after = Counters {
            bytes_sent: before.bytes_sent + 110 * 1000 + 2 * 80,
            symbols_sent: before.symbols_sent + 100,
            retransmissions_sent: 6,
            retransmission_bytes: 6 * 940,
            repairs_sent: 4,
            repair_bytes: 4 * 940,
            reports_sent: 2,
            report_bytes: 160,
            ..Counters::default()
        };
        let traffic = Traffic::between(&before, &after, 90_000, 1e6);
        let all = traffic.header() + traffic.repair() + traffic.retransmission() + traffic.ack();
        let payload = traffic.payload_bytes as f64 / traffic.bytes as f64;
        assert!((all + payload - 1.0).abs() < 1e-9, "{all}");
        assert!((traffic.overhead() - all).abs() < 1e-9);
        assert!((traffic.redundancy() - 0.1).abs() < 1e-9);
        assert!(traffic.header() > 0.08 && traffic.retransmission() > traffic.repair());
        let twice = traffic.and(traffic);
        assert_eq!((twice.bytes, twice.header()), (2 * traffic.bytes, traffic.header()));
    }
}
