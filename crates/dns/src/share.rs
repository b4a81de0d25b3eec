//! Shares of the room for questions, so that a client that asks for names that nobody answers does
//! not take it from the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use crate::limit::{client, network};

/// Part of the free room that one may hold if nothing is taken back: alone a fifth of all, and the
/// next after it four fifths of that.
const PART: usize = 4;

/// Returns `true` if a client that holds `held` may hold `more` too, with `free` left for all.
///
/// ```
/// assert!(bentpipe_dns::may_hold(0, 1, 1), "the last is for whoever has none");
/// assert!(!bentpipe_dns::may_hold(1, 1, 7));
/// ```
pub fn may_hold(held: usize, more: usize, free: usize) -> bool {
    more <= free && (held == 0 || held.saturating_add(more) <= free / PART)
}

/// Source of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By a datagram from `client`, which comes again where no answer does.
    Datagram {
        /// Address of the client.
        client: SocketAddr,
        /// Address of the other resolver to which it was sent, if any.
        server: Option<SocketAddr>,
    },
    /// By a stream, on which each question has an answer of its own.
    Stream(IpAddr),
    /// By a stream to another resolver.
    Diverted(IpAddr),
}

impl Source {
    /// The client's address.
    pub fn ip(&self) -> IpAddr {
        match self {
            Self::Datagram { client, .. } => client.ip(),
            Self::Stream(ip) | Self::Diverted(ip) => *ip,
        }
    }

    /// Returns `true` if it was meant for another resolver.
    pub fn is_diverted(&self) -> bool {
        matches!(self, Self::Diverted(_) | Self::Datagram { server: Some(_), .. })
    }
}

/// Holdings of each client: questions in progress that it began, and bytes of its waiting queries.
/// A client that holds nothing costs nothing, so there are no more clients than holdings.
#[derive(Default)]
pub struct Holders {
    held: HashMap<IpAddr, Held>,
    /// Holdings of each network of IPv6.
    networks: HashMap<u64, Held>,
    /// Total bytes.
    bytes: usize,
}

/// Questions under way, by holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The client.
    pub own: usize,
    /// All.
    pub all: usize,
    /// The most that all may hold.
    pub most: usize,
    /// The one that holds most, and how many.
    pub largest: Option<(IpAddr, usize)>,
}

/// Holdings of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Questions.
    pub questions: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Holders {
    /// The client at `ip` holds so much `more`.
    pub fn take(&mut self, ip: IpAddr, more: Held) {
        self.held.entry(client(ip)).or_default().add(more);
        if let Some(network) = network(ip) {
            self.networks.entry(network).or_default().add(more);
        }
        self.bytes += more.bytes;
    }

    /// The client at `ip` gives so much `back`.
    pub fn give(&mut self, ip: IpAddr, back: Held) {
        give(&mut self.held, client(ip), back);
        if let Some(network) = network(ip) {
            give(&mut self.networks, network, back);
        }
        self.bytes -= back.bytes;
    }

    /// Holdings of the client at `ip`.
    pub fn of(&self, ip: IpAddr) -> Held {
        self.held.get(&client(ip)).copied().unwrap_or_default()
    }

    /// Holdings of the network.
    pub fn of_network(&self, network: u64) -> Held {
        self.networks.get(&network).copied().unwrap_or_default()
    }

    /// Bytes of all that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most that one holds, of what `count` counts.
    pub fn most(&self, count: impl Fn(&Held) -> usize) -> usize {
        self.held.values().map(count).max().unwrap_or_default()
    }

    /// The client that holds most questions, and how many.
    pub fn largest(&self) -> Option<(IpAddr, usize)> {
        let held = self.held.iter().map(|(ip, held)| (*ip, held.questions));
        held.filter(|(_, questions)| *questions > 0).max_by_key(|(ip, held)| (*held, *ip))
    }

    /// Client among those that are `among` that gives up something so that the client at `ip` may
    /// take `more`. It is the client that holds most of what `count` counts, if it then still has
    /// no less than the other. A client loses something only while it has more than the next, so
    /// all who want more than there is come to have alike.
    pub fn richest(
        &self,
        ip: IpAddr,
        among: impl Fn(IpAddr) -> bool,
        more: usize,
        count: impl Fn(&Held) -> usize,
    ) -> Option<IpAddr> {
        let own = count(&self.of(ip));
        let held = self.held.iter().filter(|(ip, _)| among(**ip));
        let (richest, held) = held.max_by_key(|(_, held)| count(held))?;
        (count(held) >= own + 2 * more).then_some(*richest)
    }
}

impl Held {
    fn add(&mut self, more: Self) {
        self.questions += more.questions;
        self.bytes += more.bytes;
    }
}

fn give<K: Eq + Hash>(all: &mut HashMap<K, Held>, from: K, back: Held) {
    let Some(held) = all.get_mut(&from) else { return };
    held.questions -= back.questions;
    held.bytes -= back.bytes;
    if *held == Held::default() {
        all.remove(&from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    const ONE: Held = Held { questions: 1, bytes: 100 };

    #[test]
    fn what_is_given_back_is_free() {
        let mut holders = Holders::default();
        (0..5).for_each(|_| holders.take(client(1), ONE));
        assert_eq!((holders.bytes(), holders.held.len()), (500, 1));
        (0..5).for_each(|_| holders.give(client(1), ONE));
        assert_eq!((holders.bytes(), holders.held.len()), (0, 0));
    }

    #[test]
    fn what_a_network_holds_is_what_its_clients_do() {
        let mut holders = Holders::default();
        let ip = |n: u128| IpAddr::V6(std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        let network = network(ip(0)).unwrap();
        (0..5).for_each(|n| holders.take(ip(n), ONE));
        holders.take(ip(4), ONE);
        holders.take(ip(1 << 64), ONE);
        assert_eq!(holders.of_network(network), Held { questions: 6, bytes: 600 });
        let richest = |of, in_network: bool| {
            let among = |it| !in_network || crate::limit::network(it) == Some(network);
            holders.richest(of, among, 1, |held| held.questions)
        };
        assert_eq!((richest(ip(9), true), richest(ip(1), true)), (Some(ip(4)), None));
        (0..5).for_each(|n| holders.give(ip(n), ONE));
        holders.give(ip(4), ONE);
        assert_eq!((holders.networks.len(), holders.held.len()), (1, 1));
    }

    proptest! {
        /// Whoever takes all that it gets, in whatever order: none has two more than one that wants more.
        #[test]
        fn all_come_to_have_alike(takers in prop::collection::vec(0u8..60, 1..3000)) {
            const ALL: usize = 100;
            let mut holders = Holders::default();
            let (mut all, mut denied) = (0, Vec::new());
            for taker in takers {
                let taker = client(taker);
                if all < ALL {
                    all += 1;
                } else if let Some(from) = holders.richest(taker, |_| true, 1, |held| held.questions) {
                    holders.give(from, ONE);
                } else {
                    denied.push((taker, holders.held.get(&taker).copied().unwrap_or_default()));
                    let most = holders.held.values().map(|held| held.questions).max().unwrap();
                    prop_assert!(most <= denied.last().unwrap().1.questions + 1);
                    continue;
                }
                holders.take(taker, ONE);
                prop_assert_eq!(holders.bytes(), all * 100);
            }
        }
    }
}
