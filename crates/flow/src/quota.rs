//! Quotas: the usage of each holder of something scarce, and the holder that gives way.
//!
//! Three bounds limit a client: its own, that of its IPv6 /64, and the total. At the total, the
//! largest holder gives way to a newcomer if it still has no less than the newcomer afterwards. So
//! nobody loses anything to a larger holder, two equal holders do not evict each other in turn, and
//! holders that want more than there is converge to equal shares.

use std::collections::{BTreeMap, BTreeSet};

/// Usage of each holder, in entries or bytes. A holder without usage is not stored.
#[derive(Debug, Clone)]
pub struct Holdings<K> {
    held: BTreeMap<K, usize>,
    /// Holders in the order of their usage.
    order: BTreeSet<(usize, K)>,
    total: usize,
}

/// Client whose usage a [`ClientQuota`] counts.
pub trait Client: Copy + Ord {
    /// IPv6 /64 from which the client may choose its address; `None` if it has no choice.
    fn network(&self) -> Option<u64>;
}

/// Usage of clients, and of the IPv6 networks from which they choose their addresses.
#[derive(Debug, Clone)]
pub struct ClientQuota<K> {
    clients: Holdings<K>,
    networks: Holdings<u64>,
}

/// Maximum part of `all` for one IPv6 network. A quarter is left to others, whatever addresses are
/// forged in it.
pub const fn part_of_network(all: usize) -> usize {
    all - all / 4
}

/// Divisor of the free slots that one client may hold if nothing is evicted. A client alone gets a
/// fifth of all slots, and the next one four fifths of that.
const PART: usize = 4;

/// Returns `true` if a client that already holds `usage` slots may take `more`, with `free` left in
/// all.
///
/// ```
/// assert!(bentpipe_flow::quota::may_hold(0, 1, 1), "the last slot is for a client that has none");
/// assert!(!bentpipe_flow::quota::may_hold(1, 1, 7));
/// ```
pub const fn may_hold(usage: usize, more: usize, free: usize) -> bool {
    more <= free && (usage == 0 || usage.saturating_add(more) <= free / PART)
}

/// Returns `true` if a holder of `held` gives way to a newcomer that holds `own` and takes `more`.
pub const fn gives_way(held: usize, own: usize, more: usize) -> bool {
    held >= own.saturating_add(more).saturating_add(more)
}

impl<K> Default for Holdings<K> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), order: BTreeSet::new(), total: 0 }
    }
}

impl<K: Clone + Ord> Holdings<K> {
    /// Usage of all holders.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Usage of `holder`.
    pub fn of(&self, holder: &K) -> usize {
        self.held.get(holder).copied().unwrap_or(0)
    }

    /// Returns `true` if nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Number of holders.
    pub fn holders(&self) -> usize {
        self.held.len()
    }

    /// The largest holder, and its usage.
    pub fn largest(&self) -> Option<(K, usize)> {
        self.order.last().map(|(held, holder)| (holder.clone(), *held))
    }

    /// Largest holder that satisfies `among`, if it [gives way](gives_way) to a newcomer that
    /// holds `own` and takes `more`.
    pub fn payer(&self, own: usize, more: usize, among: impl Fn(&K) -> bool) -> Option<K> {
        let (held, holder) = self.order.iter().rev().find(|(_, holder)| among(holder))?;
        gives_way(*held, own, more).then(|| holder.clone())
    }

    /// Adds `more` to the usage of `holder`.
    pub fn add(&mut self, holder: K, more: usize) {
        let before = self.of(&holder);
        self.total += more;
        self.change(holder, before, before + more);
    }

    /// Subtracts `back` from the usage of `holder`, or all of it if that is less.
    pub fn remove(&mut self, holder: K, back: usize) {
        let before = self.of(&holder);
        let back = back.min(before);
        self.total -= back;
        self.change(holder, before, before - back);
    }

    fn change(&mut self, holder: K, before: usize, after: usize) {
        self.order.remove(&(before, holder.clone()));
        if after > 0 {
            self.order.insert((after, holder.clone()));
            self.held.insert(holder, after);
        } else {
            self.held.remove(&holder);
        }
    }
}

impl<K: Clone + Ord> FromIterator<K> for Holdings<K> {
    /// Counts the entries of each holder.
    fn from_iter<T: IntoIterator<Item = K>>(entries: T) -> Self {
        let mut holdings = Self::default();
        entries.into_iter().for_each(|holder| holdings.add(holder, 1));
        holdings
    }
}

impl<K> Default for ClientQuota<K> {
    fn default() -> Self {
        Self { clients: Holdings::default(), networks: Holdings::default() }
    }
}

impl<K: Client> ClientQuota<K> {
    /// Adds `more` to the usage of `client`.
    pub fn add(&mut self, client: K, more: usize) {
        self.clients.add(client, more);
        if let Some(network) = client.network() {
            self.networks.add(network, more);
        }
    }

    /// Subtracts `back` from the usage of `client`.
    pub fn remove(&mut self, client: K, back: usize) {
        self.clients.remove(client, back);
        if let Some(network) = client.network() {
            self.networks.remove(network, back);
        }
    }

    /// Usage of each client.
    pub fn clients(&self) -> &Holdings<K> {
        &self.clients
    }

    /// Usage of `client`.
    pub fn of(&self, client: K) -> usize {
        self.clients.of(&client)
    }

    /// Usage of all clients.
    pub fn total(&self) -> usize {
        self.clients.total()
    }

    /// Network of `client`, if its [part](part_of_network) of `all` does not suffice for `more`.
    pub fn full_network(&self, client: K, more: usize, all: usize) -> Option<u64> {
        let is_full = |network: &u64| self.networks.of(network) + more > part_of_network(all);
        client.network().filter(is_full)
    }

    /// Client that gives way to `client`, which takes `more`; if there is a `network`, one of it.
    pub fn payer(&self, client: K, more: usize, network: Option<u64>) -> Option<K> {
        let among = |other: &K| network.is_none() || other.network() == network;
        self.clients.payer(self.of(client), more, among)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A client of a network, if that is not 0.
    impl Client for (u64, u8) {
        fn network(&self) -> Option<u64> {
            (self.0 > 0).then_some(self.0)
        }
    }

    #[test]
    fn holders_without_usage_are_removed() {
        let mut holdings = Holdings::from_iter([1, 2, 1]);
        assert_eq!((holdings.total(), holdings.of(&1), holdings.largest()), (3, 2, Some((1, 2))));
        holdings.remove(1, 2);
        holdings.remove(2, 9);
        holdings.remove(3, 1);
        assert_eq!((holdings.total(), holdings.largest()), (0, None));
        assert!(holdings.is_empty() && holdings.order.is_empty());
    }

    #[test]
    fn a_network_has_the_usage_of_its_clients_and_a_part_of_all() {
        let mut quota = ClientQuota::default();
        (0..5).for_each(|n| quota.add((7, n), 1));
        quota.add((7, 4), 1);
        quota.add((8, 1), 3);
        quota.add((0, 1), 4);
        assert_eq!((quota.total(), quota.of((7, 4)), quota.clients().holders()), (13, 2, 7));
        assert_eq!(quota.full_network((7, 9), 1, 8), Some(7), "six of eight");
        assert_eq!(quota.full_network((7, 9), 1, 10), None);
        assert_eq!(quota.full_network((0, 9), 1, 0), None, "no network, no part");
        assert_eq!(quota.payer((7, 9), 1, Some(7)), Some((7, 4)));
        assert_eq!(quota.payer((7, 1), 1, Some(7)), None, "it has one itself");
        assert_eq!(quota.payer((7, 1), 1, None), Some((0, 1)));
        (0..5).for_each(|n| quota.remove((7, n), 2));
        quota.remove((8, 1), 3);
        quota.remove((0, 1), 4);
        assert!(quota.clients.is_empty() && quota.networks.is_empty());
    }

    proptest! {
        /// Whatever the order of takers: no client has two more than another one that wants more.
        #[test]
        fn shares_converge(takers in prop::collection::vec(0u8..60, 1..3000)) {
            const ALL: usize = 100;
            let mut holdings = Holdings::default();
            for taker in takers {
                let own = holdings.of(&taker);
                if holdings.total() >= ALL {
                    let Some(payer) = holdings.payer(own, 1, |_| true) else {
                        prop_assert!(holdings.largest().unwrap().1 <= own + 1);
                        continue;
                    };
                    holdings.remove(payer, 1);
                }
                holdings.add(taker, 1);
                prop_assert!(holdings.total() <= ALL);
            }
        }
    }
}
