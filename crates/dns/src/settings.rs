//! Lifetimes of answers, and limits on questions.

use std::time::Duration;

/// Settings of the operator. The defaults are for a link of some 800 ms.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Answers are kept within this many bytes; an address costs some 400, so 16 MiB are about
    /// 40,000 of them.
    pub memory_bytes: usize,
    /// Answers that say they hold shorter are kept this long.
    pub min_ttl: Duration,
    /// Answers that say they hold longer are asked for again after this.
    pub max_ttl: Duration,
    /// Denials that say they hold longer are asked for again after this (RFC 2308 section 5).
    pub max_negative_ttl: Duration,
    /// For this long after its time is over an answer is given nevertheless, while it is asked for
    /// anew (RFC 8767); zero never does.
    pub max_stale: Duration,
    /// TTL of a stale answer (RFC 8767 section 4).
    pub stale_ttl: Duration,
    /// Pause after a failure before the next attempt; twice as long after each further failure, up
    /// to five minutes (RFC 9520 section 3.2).
    pub failure_ttl: Duration,
    /// Names asked for at least this often within a lifetime are asked for again before it ends; 0
    /// never does.
    pub prefetch_hits: u32,
    /// Names asked for again like this per second, on average; two seconds' worth at a stretch.
    pub prefetch_per_second: f64,
    /// Bytes of answers that are taken of the ground unasked when the resolver begins without knowing
    /// anything; 0 takes none.
    pub warm_start_bytes: u32,
    /// Queries that one client (an address) may send per second, on average; 64 times as many all of a
    /// network of IPv6 (a /64) that the ground has answered of late, and as many all others of it.
    pub client_per_second: f64,
    /// And at a stretch: a page's worth.
    pub client_burst: f64,
    /// Questions under way to the ground; each with its clients is some 1 KiB, so 1,024 are 1 MiB.
    pub max_asks: usize,
    /// Answers over UDP are never larger than this, so that they go in one packet.
    pub udp_bytes: u16,
}

/// RFC 9520 section 3.2: at most five minutes.
pub const MAX_FAILURE: Duration = Duration::from_secs(300);

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_bytes: 16 << 20,
            min_ttl: Duration::ZERO,
            max_ttl: Duration::from_secs(24 * 3600),
            max_negative_ttl: Duration::from_secs(3600),
            max_stale: Duration::from_secs(24 * 3600),
            stale_ttl: Duration::from_secs(30),
            failure_ttl: Duration::from_secs(5),
            prefetch_hits: 3,
            prefetch_per_second: 5.0,
            warm_start_bytes: 0,
            client_per_second: 100.0,
            client_burst: 400.0,
            max_asks: 1024,
            udp_bytes: 1232,
        }
    }
}
