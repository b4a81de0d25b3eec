//! Counters of a session.

/// Totals since the session began, and what it holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub packets_sent: u64,
    /// IP bytes sent, with headers.
    pub bytes_sent: u64,
    /// Authenticated packets received.
    pub packets_received: u64,
    /// Symbols sent for the first time.
    pub symbols_sent: u64,
    /// Symbols retransmitted because they were reported missing, or as probes.
    pub retransmissions_sent: u64,
    /// Copies of symbols that went on another path too.
    pub copies_sent: u64,
    /// Their bytes.
    pub copy_bytes: u64,
    /// Repair symbols sent, most of them before any loss was known.
    pub repairs_sent: u64,
    /// Fragments sent, of symbols made for larger packets than the path carries now.
    pub fragments_sent: u64,
    /// Probes of the path's MTU sent.
    pub mtu_probes_sent: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Bytes of symbols sent for the first time, with their frames.
    pub symbol_bytes: u64,
    /// Bytes of retransmitted symbols.
    pub retransmission_bytes: u64,
    /// Bytes of repairs.
    pub repair_bytes: u64,
    /// Bytes of reports.
    pub report_bytes: u64,
    /// Symbols received more than once.
    pub symbols_redundant: u64,
    /// Symbols recovered from repairs.
    pub symbols_recovered: u64,
    /// Repairs received without use.
    pub repairs_redundant: u64,
    /// Datagrams sent for the first time.
    pub datagrams_sent: u64,
    /// Datagrams received for an open flow.
    pub datagrams_received: u64,
    /// Datagrams that were lost and expired before a retransmission or repair.
    pub datagrams_abandoned: u64,
    /// Datagrams that expired before they were sent.
    pub datagrams_expired: u64,
    /// Datagrams dropped unsent, because a queue stood for too long or memory was full; and
    /// received ones, because their reader did not keep up.
    pub datagrams_dropped: u64,
    /// Datagrams that waited because they arrived before the opening of their flow.
    pub datagrams_early: u64,
    /// Datagrams received for a flow that is over.
    pub datagrams_unknown: u64,
    /// Sent packets that the peer's reports count as lost.
    pub packets_lost: u64,
    /// Sent packets that the peer's reports account for, lost or not.
    pub packets_judged: u64,
    /// Times the breaker cut the rate because a queue did not drain or too much was lost.
    pub breaker_trips: u64,
    /// Times the session was closed because the peer broke the protocol.
    pub violations: u64,
    /// Size of the largest packet that carries data now, with its IP header.
    pub mtu_bytes: u64,
    /// Flows open now.
    pub flows: u64,
    /// Bytes held now: unsent, unreported and unread.
    pub held_bytes: u64,
    /// Bytes kept for repairs alone.
    pub coded_bytes: u64,
}
