//! Refusals by limits: every one is counted, and the log shows the holders.
//!
//! A refusal that only the refused client notices looks like a broken network. Therefore every
//! limit reports here when it refuses or evicts:
//!
//! ```text
//! counters.refusals.refused(Limit::UdpFlows, || Holding { … });
//! counters.refusals.evicted(Limit::UdpFlows, || Holding { … });
//! ```
//!
//! The closure runs only if a line is due. Each [`Limit`] has its own log interval, so that a flood
//! at one limit does not hide another.

use std::fmt;

use crate::count::Count;
use crate::rate_limited_log::RateLimitedLog;

/// A limit shared by the passengers of an air gateway, or by the aircraft of a ground gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Concurrent TCP connections.
    TcpFlows,
    /// Concurrent UDP flows.
    UdpFlows,
    /// Concurrent flows of ICMP echo and other protocols.
    IpFlows,
    /// New TCP connections per second.
    TcpOpens,
    /// New UDP flows per second.
    UdpOpens,
    /// New flows of ICMP echo and other protocols per second.
    IpOpens,
    /// Passengers tracked at the same time.
    Passengers,
    /// Concurrent connections to the operator's sites.
    SiteConnections,
    /// External UDP ports of the ground gateway.
    UdpPorts,
    /// Ephemeral ports of the kernel, which other programs use too.
    KernelPorts,
    /// Flows of a protocol without ports to one destination.
    RawDestinations,
    /// DNS queries, per second or pending.
    DnsQuestions,
    /// Fake-IP addresses (instant names).
    InstantNames,
    /// Slots for pages and downloads of Split HTTP.
    Pages,
    /// Link handshakes processed per second.
    Handshakes,
    /// Memory of all sessions of the link, in bytes.
    Memory,
    /// Flows of one session of the link.
    LinkFlows,
    /// Descriptors of the process.
    Descriptors,
    /// New source addresses of one device per second; counts packets.
    NewSources,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Self; 19] = [
        Self::TcpFlows,
        Self::UdpFlows,
        Self::IpFlows,
        Self::TcpOpens,
        Self::UdpOpens,
        Self::IpOpens,
        Self::Passengers,
        Self::SiteConnections,
        Self::UdpPorts,
        Self::KernelPorts,
        Self::RawDestinations,
        Self::DnsQuestions,
        Self::InstantNames,
        Self::Pages,
        Self::Handshakes,
        Self::Memory,
        Self::LinkFlows,
        Self::Descriptors,
        Self::NewSources,
    ];

    /// `true` if the limit is a rate of new flows. A [`Holding`] then has the open flows, and `most`
    /// is new flows per second.
    const fn is_opening_rate(self) -> bool {
        matches!(self, Self::TcpOpens | Self::UdpOpens | Self::IpOpens)
    }

    /// Name in counters and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpFlows => "tcp-flows",
            Self::UdpFlows => "udp-flows",
            Self::IpFlows => "ip-flows",
            Self::TcpOpens => "tcp-opens",
            Self::UdpOpens => "udp-opens",
            Self::IpOpens => "ip-opens",
            Self::Passengers => "passengers",
            Self::SiteConnections => "site-connections",
            Self::UdpPorts => "udp-ports",
            Self::KernelPorts => "kernel-ports",
            Self::RawDestinations => "raw-destinations",
            Self::DnsQuestions => "dns-questions",
            Self::InstantNames => "instant-names",
            Self::Pages => "pages",
            Self::Handshakes => "handshakes",
            Self::Memory => "memory",
            Self::LinkFlows => "link-flows",
            Self::Descriptors => "descriptors",
            Self::NewSources => "new-sources",
        }
    }
}

/// State of a limit when it refused or evicted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// The newcomer, by its label in usage records or the aircraft's name.
    pub newcomer: String,
    /// Amount that the newcomer holds.
    pub holds: usize,
    /// Amount that all holders have together.
    pub held: usize,
    /// The limit that was reached: the newcomer's or the total.
    pub most: usize,
    /// The largest holder, and its amount.
    pub largest: Option<(String, usize)>,
}

/// Counts and logs refusals by limits.
#[derive(Debug, Default)]
pub struct Refusals([One; Limit::ALL.len()]);

#[derive(Debug, Default)]
struct One {
    refused: Count,
    evicted: Count,
    log: RateLimitedLog,
}

impl Refusals {
    /// Reports that a newcomer was refused. `who` must not wait for a lock that the caller holds.
    pub fn refused(&self, limit: Limit, who: impl FnOnce() -> Holding) {
        self.refused_times(limit, 1, who);
    }

    /// Reports several refusals at once.
    pub fn refused_times(&self, limit: Limit, times: u64, who: impl FnOnce() -> Holding) {
        let one = self.of(limit);
        one.refused.add(times);
        if let Some(unsaid) = one.log.turn() {
            warn(limit, "the newcomer was refused", &who(), unsaid);
        }
    }

    /// Reports that the idlest entry of the largest holder was evicted. `who` must not wait for a
    /// lock that the caller holds.
    pub fn evicted(&self, limit: Limit, who: impl FnOnce() -> Holding) {
        let one = self.of(limit);
        one.evicted.add(1);
        if let Some(unsaid) = one.log.turn() {
            warn(limit, "the idlest of the largest holder ended to make room", &who(), unsaid);
        }
    }

    /// Returns every count by name: `refused-<limit>` and `evicted-<limit>`.
    pub fn all(&self) -> impl Iterator<Item = (String, u64)> {
        Limit::ALL.into_iter().flat_map(|limit| {
            let (one, name) = (self.of(limit), limit.name());
            let refused = (format!("refused-{name}"), one.refused.get());
            [refused, (format!("evicted-{name}"), one.evicted.get())]
        })
    }

    /// Number of newcomers refused by `limit`.
    pub fn count_refused(&self, limit: Limit) -> u64 {
        self.of(limit).refused.get()
    }

    /// Number of entries evicted by `limit`.
    pub fn count_evicted(&self, limit: Limit) -> u64 {
        self.of(limit).evicted.get()
    }

    fn of(&self, limit: Limit) -> &One {
        &self.0[limit as usize]
    }
}

fn warn(limit: Limit, outcome: &str, who: &Holding, unsaid: u64) {
    let name = limit.name();
    if limit.is_opening_rate() {
        let rate = OpeningRate(who);
        return tracing::warn!(limit = %name, unsaid, "a limit was reached, {outcome}: {rate}");
    }
    tracing::warn!(limit = %name, unsaid, "a limit was reached, {outcome}: {who}");
}

/// Text for a newcomer that opens flows too fast.
struct OpeningRate<'a>(&'a Holding);

impl fmt::Display for OpeningRate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holding { newcomer, holds, held, most, largest } = self.0;
        write!(f, "{newcomer} opens more than {most} a second, and has {holds} of {held} open")?;
        match largest {
            Some((name, holds)) => write!(f, ", {name} holds most ({holds})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { newcomer, holds, held, most, largest } = self;
        write!(f, "{newcomer} holds {holds} of {held}, the limit is {most}")?;
        match largest {
            Some((name, holds)) => write!(f, ", {name} holds most ({holds})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn limits_are_in_the_order_of_their_numbers() {
        for (at, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, at, "{}", limit.name());
        }
    }

    #[test]
    fn every_limit_is_explained() {
        let page = include_str!("../../../docs/status.md");
        for limit in Limit::ALL {
            let name = limit.name().replace('-', "_");
            let row = format!("| `refused_{name}`, `evicted_{name}` | ");
            assert!(page.contains(&row), "docs/status.md lacks {row}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_noisy_limit_hides_no_other() {
        let (refusals, asked) = (Refusals::default(), Cell::new(0));
        let who = || {
            asked.set(asked.get() + 1);
            Holding::default()
        };
        for _ in 0..1_000 {
            refusals.refused(Limit::UdpFlows, who);
        }
        assert_eq!(asked.get(), 1, "the log has one line of them");
        refusals.evicted(Limit::TcpFlows, who);
        assert_eq!(asked.get(), 2);
        let told: Vec<_> = refusals.all().filter(|(_, count)| *count > 0).collect();
        let of = |name: &str, count| (name.to_owned(), count);
        assert_eq!(told, [of("evicted-tcp-flows", 1), of("refused-udp-flows", 1_000)]);
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        refusals.refused(Limit::UdpFlows, who);
        assert_eq!(asked.get(), 3, "one line an interval");
    }

    #[test]
    fn a_line_says_who_holds_how_much() {
        let largest = Some(("02:00:00:00:00:01".to_owned(), 4_000));
        let newcomer = "10.0.0.7".to_owned();
        let who = Holding { newcomer, holds: 3, held: 4_096, most: 4_096, largest };
        let line =
            "10.0.0.7 holds 3 of 4096, the limit is 4096, 02:00:00:00:00:01 holds most (4000)";
        assert_eq!(who.to_string(), line);
        let line = "10.0.0.7 opens more than 50 a second, and has 3 of 4096 open, \
                    02:00:00:00:00:01 holds most (4000)";
        assert_eq!(OpeningRate(&Holding { most: 50, ..who }).to_string(), line);
    }
}
