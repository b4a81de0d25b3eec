//! Addresses of the hub. A name can have several, of either family, and not all of them may be
//! reachable.

use std::net::SocketAddr;

/// Maximum number of addresses; the others of a name are not tried.
pub const MAX_PEER_ADDRESSES: usize = 8;

/// Calls at one address of a session that may go unanswered. Losses are more likely than a lost
/// address, and another address is another path.
const CALLS_OF_A_SESSION: u32 = 3;

/// The hub's addresses. Calls go to each in turn until one is answered, and then to that one until
/// calls are unanswered.
#[derive(Debug)]
pub struct PeerAddresses {
    addresses: Vec<SocketAddr>,
    /// Index of the present address.
    at: usize,
    /// Calls there since the last answer.
    unanswered: u32,
}

impl PeerAddresses {
    /// Creates a list with one address.
    pub fn new(address: SocketAddr) -> Self {
        Self { addresses: vec![address], at: 0, unanswered: 0 }
    }

    /// Adds addresses to try, in this order, if the earlier ones do not answer.
    pub fn add(&mut self, others: impl IntoIterator<Item = SocketAddr>) {
        for other in others {
            if self.addresses.len() < MAX_PEER_ADDRESSES && !self.addresses.contains(&other) {
                self.addresses.push(other);
            }
        }
    }

    /// All of them.
    pub fn all(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The present address.
    pub fn present(&self) -> SocketAddr {
        self.addresses[self.at]
    }

    /// Returns `true` if `from` is one of the hub's addresses.
    pub fn has(&self, from: SocketAddr) -> bool {
        self.addresses.contains(&from)
    }

    /// Address of the next call. In a session, it is first the address of the last answer.
    pub fn call(&mut self, has_session: bool) -> SocketAddr {
        let max = if has_session { CALLS_OF_A_SESSION } else { 1 };
        if self.unanswered >= max {
            self.at = (self.at + 1) % self.addresses.len();
            self.unanswered = 0;
        }
        self.unanswered += 1;
        self.addresses[self.at]
    }

    /// Notes an answer from `from`. Returns the address if it is one of the hub's.
    pub fn answered(&mut self, from: SocketAddr) -> Option<SocketAddr> {
        self.unanswered = 0;
        self.at = self.addresses.iter().position(|address| *address == from)?;
        Some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn an_address_without_an_answer_is_followed_by_the_next() {
        let mut addresses = PeerAddresses::new(address(1));
        addresses.add([address(2), address(1), address(3)]);
        let called: Vec<u16> = (0..5).map(|_| addresses.call(false).port()).collect();
        assert_eq!(called, [1, 2, 3, 1, 2]);
        // A late answer may come from an address called earlier.
        assert_eq!(addresses.answered(address(1)), Some(address(1)));
        assert_eq!([false; 2].map(|no| addresses.call(no)), [address(1), address(2)]);
        assert_eq!(addresses.answered(address(9)), None);
        assert!(addresses.has(address(3)) && !addresses.has(address(9)));
        let called: Vec<u16> = (0..7).map(|_| addresses.call(true).port()).collect();
        assert_eq!(called, [2, 2, 2, 3, 3, 3, 1]);
    }

    #[test]
    fn one_address_is_called_repeatedly_and_many_are_bounded() {
        let mut addresses = PeerAddresses::new(address(1));
        assert_eq!([false; 2].map(|no| addresses.call(no)), [address(1); 2]);
        addresses.add((1..100).map(address));
        assert_eq!(addresses.addresses.len(), MAX_PEER_ADDRESSES);
    }
}
