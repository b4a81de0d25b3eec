//! What of the room for questions each may hold, so that nobody who asks for names that nobody answers
//! takes it from the others.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::limit::network;

/// Where nothing is taken back, one may hold one part in so many of what is still free: alone a fifth
/// of all, and the next after it four fifths of that.
const PART: usize = 4;

/// Whether one that holds `held` may hold `more` too, where `free` is left for all.
///
/// ```
/// assert!(bentpipe_dns::may_hold(0, 1, 1), "the last is for whoever has none");
/// assert!(!bentpipe_dns::may_hold(1, 1, 7));
/// ```
pub fn may_hold(held: usize, more: usize, free: usize) -> bool {
    more <= free && (held == 0 || held.saturating_add(more) <= free / PART)
}

/// Who asks, and by which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By a datagram from `client`, which comes again where no answer does.
    Datagram {
        /// Where it came from.
        client: SocketAddr,
        /// Where it was sent, where that was to another resolver.
        server: Option<SocketAddr>,
    },
    /// By a stream, on which each question has an answer of its own.
    Stream(IpAddr),
}

impl Source {
    /// The client's address.
    pub fn ip(&self) -> IpAddr {
        match self {
            Self::Datagram { client, .. } => client.ip(),
            Self::Stream(ip) => *ip,
        }
    }
}

/// What each client holds: questions under way that it began, and bytes of what it waits with.
/// Clients that hold nothing cost nothing, so there are no more of them than of what is held.
#[derive(Default)]
pub struct Holders {
    held: HashMap<IpAddr, Held>,
    /// Of all.
    bytes: usize,
}

/// What one holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Questions.
    pub questions: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Holders {
    /// `client` holds so much `more`.
    pub fn take(&mut self, client: IpAddr, more: Held) {
        let held = self.held.entry(network(client)).or_default();
        held.questions += more.questions;
        held.bytes += more.bytes;
        self.bytes += more.bytes;
    }

    /// `client` gives so much `back`.
    pub fn give(&mut self, client: IpAddr, back: Held) {
        let client = network(client);
        let Some(held) = self.held.get_mut(&client) else { return };
        held.questions -= back.questions;
        held.bytes -= back.bytes;
        self.bytes -= back.bytes;
        if *held == Held::default() {
            self.held.remove(&client);
        }
    }

    /// Bytes of all that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Who gives up something so that `client` may take `more`: the client that holds most, of what
    /// `count` counts, where it still has no less than `client` then. What a client has is taken from
    /// it only while it has more than the next, so all who want more than there is come to have alike.
    pub fn richest(
        &self,
        client: IpAddr,
        more: usize,
        count: impl Fn(&Held) -> usize,
    ) -> Option<IpAddr> {
        let own = self.held.get(&network(client)).map_or(0, &count);
        let (richest, held) = self.held.iter().max_by_key(|(_, held)| count(held))?;
        (count(held) >= own + 2 * more).then_some(*richest)
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
    fn addresses_of_one_network_are_one_client() {
        let mut holders = Holders::default();
        let ip = |n: u128| IpAddr::V6(std::net::Ipv6Addr::from_bits(0x2001_0db8 << 96 | n));
        (0..5).for_each(|n| holders.take(ip(n), ONE));
        let richest = |of| holders.richest(of, 1, |held| held.questions);
        assert_eq!((richest(ip(9)), richest(ip(1 << 64))), (None, Some(ip(0))));
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
                } else if let Some(from) = holders.richest(taker, 1, |held| held.questions) {
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
