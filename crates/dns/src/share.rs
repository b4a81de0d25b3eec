//! Fair shares of the pending queries, so that a client that queries unanswered names does not
//! crowd out others.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::asker::Asker;

/// Divisor of the free slots that one client may hold if nothing is evicted. A client alone gets a
/// fifth of all slots, and the next one four fifths of that.
const PART: usize = 4;

/// Returns `true` if a client that already holds `usage` slots may take `more`, with `free` left in
/// all.
///
/// ```
/// assert!(bentpipe_dns::may_hold(0, 1, 1), "the last slot is for a client that has none");
/// assert!(!bentpipe_dns::may_hold(1, 1, 7));
/// ```
pub fn may_hold(usage: usize, more: usize, free: usize) -> bool {
    more <= free && (usage == 0 || usage.saturating_add(more) <= free / PART)
}

/// Source of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Datagram from `client`, which the client repeats if no answer arrives.
    Datagram {
        /// Address of the client.
        client: SocketAddr,
        /// The client.
        asker: Asker,
        /// Address of another resolver to which it was sent, if any.
        server: Option<SocketAddr>,
    },
    /// Stream; each query on it gets an answer of its own.
    Stream(Asker),
    /// Stream to another resolver.
    Diverted(Asker),
}

impl Source {
    /// The client.
    pub fn asker(&self) -> Asker {
        match self {
            Self::Datagram { asker, .. } | Self::Stream(asker) | Self::Diverted(asker) => *asker,
        }
    }

    /// Returns `true` if it was sent to another resolver.
    pub fn is_diverted(&self) -> bool {
        matches!(self, Self::Diverted(_) | Self::Datagram { server: Some(_), .. })
    }
}

/// Usage of each client: pending queries that it began, and bytes of its waiting queries. Clients
/// without usage are not stored.
#[derive(Default)]
pub struct UsageTable {
    usage: BTreeMap<Asker, Usage>,
    /// Usage of each IPv6 network.
    networks: BTreeMap<u64, Usage>,
    /// Total bytes.
    bytes: usize,
}

/// Pending queries of a client compared with all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryUsage {
    /// The client.
    pub own: usize,
    /// All.
    pub all: usize,
    /// Maximum of all clients together.
    pub max: usize,
    /// Client with the most queries, and their number.
    pub largest: Option<(Asker, usize)>,
}

/// Usage of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pending queries.
    pub queries: usize,
    /// Bytes of waiting queries.
    pub bytes: usize,
}

impl UsageTable {
    /// Adds `more` to the usage of `asker`.
    pub fn add_usage(&mut self, asker: Asker, more: Usage) {
        self.usage.entry(asker).or_default().add(more);
        if let Some(network) = asker.network() {
            self.networks.entry(network).or_default().add(more);
        }
        self.bytes += more.bytes;
    }

    /// Subtracts `back` from the usage of `asker`.
    pub fn subtract(&mut self, asker: Asker, back: Usage) {
        subtract(&mut self.usage, asker, back);
        if let Some(network) = asker.network() {
            subtract(&mut self.networks, network, back);
        }
        self.bytes -= back.bytes;
    }

    /// Usage of `asker`.
    pub fn of(&self, asker: Asker) -> Usage {
        self.usage.get(&asker).copied().unwrap_or_default()
    }

    /// Usage of an IPv6 network.
    pub fn of_network(&self, network: u64) -> Usage {
        self.networks.get(&network).copied().unwrap_or_default()
    }

    /// Bytes of all waiting queries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Largest value of `count` for one client.
    pub fn max(&self, count: impl Fn(&Usage) -> usize) -> usize {
        self.usage.values().map(count).max().unwrap_or_default()
    }

    /// Client with the most pending queries, and their number.
    pub fn largest(&self) -> Option<(Asker, usize)> {
        let usage = self.usage.iter().map(|(asker, usage)| (*asker, usage.queries));
        usage.filter(|(_, queries)| *queries > 0).max_by_key(|(_, usage)| *usage)
    }

    /// Client from which `asker` may take `more` of what `count` counts, among those that satisfy
    /// `among`. It is the client with the most, if after the transfer it still has no less than
    /// `asker`. Clients that want more than there is therefore converge to equal shares.
    pub fn largest_holder(
        &self,
        asker: Asker,
        among: impl Fn(Asker) -> bool,
        more: usize,
        count: impl Fn(&Usage) -> usize,
    ) -> Option<Asker> {
        let own = count(&self.of(asker));
        let usage = self.usage.iter().filter(|(other, _)| among(**other));
        let (largest_holder, usage) = usage.max_by_key(|(_, usage)| count(usage))?;
        (count(usage) >= own + 2 * more).then_some(*largest_holder)
    }
}

impl Usage {
    fn add(&mut self, more: Self) {
        self.queries += more.queries;
        self.bytes += more.bytes;
    }
}

fn subtract<K: Ord>(all: &mut BTreeMap<K, Usage>, from: K, back: Usage) {
    let Some(usage) = all.get_mut(&from) else { return };
    usage.queries -= back.queries;
    usage.bytes -= back.bytes;
    if *usage == Usage::default() {
        all.remove(&from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client(n: u8) -> Asker {
        [10, 0, 0, n].into()
    }

    const ONE: Usage = Usage { queries: 1, bytes: 100 };

    #[test]
    fn what_is_given_back_is_free() {
        let mut usages = UsageTable::default();
        (0..5).for_each(|_| usages.add_usage(client(1), ONE));
        assert_eq!((usages.bytes(), usages.usage.len()), (500, 1));
        (0..5).for_each(|_| usages.subtract(client(1), ONE));
        assert_eq!((usages.bytes(), usages.usage.len()), (0, 0));
    }

    #[test]
    fn network_usage_is_the_sum_of_its_clients() {
        let mut usages = UsageTable::default();
        let ip = |n: u128| Asker::from(std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        let network = ip(0).network().unwrap();
        (0..5).for_each(|n| usages.add_usage(ip(n), ONE));
        usages.add_usage(ip(4), ONE);
        usages.add_usage(ip(1 << 64), ONE);
        assert_eq!(usages.of_network(network), Usage { queries: 6, bytes: 600 });
        let largest_holder = |of, in_network: bool| {
            let among = |it: Asker| !in_network || it.network() == Some(network);
            usages.largest_holder(of, among, 1, |usage| usage.queries)
        };
        assert_eq!((largest_holder(ip(9), true), largest_holder(ip(1), true)), (Some(ip(4)), None));
        (0..5).for_each(|n| usages.subtract(ip(n), ONE));
        usages.subtract(ip(4), ONE);
        assert_eq!((usages.networks.len(), usages.usage.len()), (1, 1));
    }

    proptest! {
        /// Whatever the order of takers: no client has two more than another one that wants more.
        #[test]
        fn shares_converge(takers in prop::collection::vec(0u8..60, 1..3000)) {
            const ALL: usize = 100;
            let mut usages = UsageTable::default();
            let (mut all, mut denied) = (0, Vec::new());
            for taker in takers {
                let taker = client(taker);
                if all < ALL {
                    all += 1;
                } else if let Some(from) = usages.largest_holder(taker, |_| true, 1, |usage| usage.queries) {
                    usages.subtract(from, ONE);
                } else {
                    denied.push((taker, usages.usage.get(&taker).copied().unwrap_or_default()));
                    let max = usages.usage.values().map(|usage| usage.queries).max().unwrap();
                    prop_assert!(max <= denied.last().unwrap().1.queries + 1);
                    continue;
                }
                usages.add_usage(taker, ONE);
                prop_assert_eq!(usages.bytes(), all * 100);
            }
        }
    }
}
