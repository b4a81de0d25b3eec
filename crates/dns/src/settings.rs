//! Settings: lifetimes of answers, limits on queries.

use std::time::Duration;

/// Settings of the operator. The defaults suit a link with a round trip of about 800 ms.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Memory of the cache. An address answer costs about 400 bytes, so 16 MiB hold about 40,000.
    pub memory_bytes: usize,
    /// Minimum lifetime of answers; shorter TTLs are raised to it.
    pub min_ttl: Duration,
    /// Maximum lifetime of answers; longer TTLs are cut to it.
    pub max_ttl: Duration,
    /// Maximum lifetime of denials (RFC 2308 section 5).
    pub max_negative_ttl: Duration,
    /// Time after its lifetime for which an answer is still served while it is refreshed (RFC
    /// 8767). Zero disables stale answers.
    pub max_stale: Duration,
    /// TTL of a stale answer (RFC 8767 section 4).
    pub stale_ttl: Duration,
    /// Pause after a failure before the next attempt. It doubles with each further failure, up to
    /// five minutes (RFC 9520 section 3.2).
    pub failure_ttl: Duration,
    /// Number of hits within a lifetime from which a name is prefetched before the lifetime ends. 0
    /// disables prefetching.
    pub prefetch_hits: u32,
    /// Prefetches per second on average. The burst is two seconds' worth.
    pub prefetch_per_second: u64,
    /// Bytes of pushed answers accepted from the ground when the resolver starts with an empty
    /// cache. 0 accepts none.
    pub warm_start_bytes: u32,
    /// Queries per second that one client (a device, or an address of an unknown device) may send,
    /// on average. All clients of an IPv6 /64 that the ground has answered recently share 64 times
    /// as many; all other clients of the /64 share the same amount again.
    pub client_per_second: u64,
    /// Burst of one client: the queries of a page.
    pub client_burst: u64,
    /// Maximum number of pending queries to the ground. With its clients each costs about 1 KiB:
    /// 1,024 × 1 KiB = 1 MiB.
    pub max_asks: usize,
    /// Maximum size of answers over UDP, so that they fit in one packet.
    pub udp_bytes: u16,
}

/// Maximum pause after failures (RFC 9520 section 3.2).
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
            prefetch_per_second: 5,
            warm_start_bytes: 0,
            client_per_second: 100,
            client_burst: 400,
            max_asks: 1024,
            udp_bytes: 1232,
        }
    }
}
