//! Counters of a session.

/// Totals since the session began, and what it holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub packets_sent: u64,
    /// IP bytes sent, headers included.
    pub bytes_sent: u64,
    /// Authenticated packets received.
    pub packets_received: u64,
    /// Symbols sent for the first time.
    pub symbols_sent: u64,
    /// Symbols sent again because they were reported missing, or as probes.
    pub retransmissions_sent: u64,
    /// Combinations of symbols sent, most of them before any loss was known.
    pub repairs_sent: u64,
    /// Fragments sent, of symbols made for larger packets than the path carries now.
    pub fragments_sent: u64,
    /// Probes of the path's MTU sent.
    pub mtu_probes_sent: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Bytes of symbols sent for the first time, their frames included.
    pub symbol_bytes: u64,
    /// Bytes of symbols sent again.
    pub retransmission_bytes: u64,
    /// Bytes of repairs.
    pub repair_bytes: u64,
    /// Bytes of reports.
    pub report_bytes: u64,
    /// Symbols that came more than once.
    pub symbols_redundant: u64,
    /// Symbols that repairs brought back.
    pub symbols_recovered: u64,
    /// Repairs that told nothing new.
    pub repairs_redundant: u64,
    /// Datagrams that left for the first time.
    pub datagrams_sent: u64,
    /// Datagrams that came for a flow that is open.
    pub datagrams_received: u64,
    /// Datagrams that were lost, and over before anything brought them back.
    pub datagrams_abandoned: u64,
    /// Datagrams that waited to be sent until they were of no use.
    pub datagrams_expired: u64,
    /// Datagrams dropped before they left, since a queue stood for too long or memory was full; and
    /// received ones, since their reader did not keep up.
    pub datagrams_dropped: u64,
    /// Datagrams that came before their flow was opened, and waited.
    pub datagrams_early: u64,
    /// Datagrams that came for a flow that is over.
    pub datagrams_unknown: u64,
    /// Packets of ours that the peer's reports count as lost.
    pub packets_lost: u64,
    /// Packets of ours that the peer's reports account for, lost or not.
    pub packets_judged: u64,
    /// Times the breaker found a queue that did not drain, or too much loss, and cut the rate.
    pub breaker_trips: u64,
    /// Times the session was broken off because the peer broke the protocol.
    pub violations: u64,
    /// The largest packet that carries data now, IP header included.
    pub mtu_bytes: u64,
    /// Flows open now.
    pub flows: u64,
    /// Bytes held now: unsent, unreported and unread.
    pub held_bytes: u64,
    /// Bytes kept for repairs alone.
    pub coded_bytes: u64,
}
