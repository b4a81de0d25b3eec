//! Addresses of the hub: a name can have several, of either family, and not all of them need lead
//! anywhere.

use std::net::SocketAddr;

/// Addresses kept; the others of a name are not tried.
pub const MAX_PLACES: usize = 8;

/// Calls in the name of a session that may go unanswered at one address: losses are more likely than
/// that it has gone, and another address is another path.
const CALLS_OF_A_SESSION: u32 = 3;

/// The hub's addresses. Calls go to each in turn until one is answered, and from then on there,
/// until calls are not.
#[derive(Debug)]
pub struct Places {
    addresses: Vec<SocketAddr>,
    /// The one that is called.
    at: usize,
    /// Calls there since the last answer.
    unanswered: u32,
}

impl Places {
    /// One address.
    pub fn new(address: SocketAddr) -> Self {
        Self { addresses: vec![address], at: 0, unanswered: 0 }
    }

    /// Others to try, in this order, where those before do not answer.
    pub fn add(&mut self, others: impl IntoIterator<Item = SocketAddr>) {
        for other in others {
            if self.addresses.len() < MAX_PLACES && !self.addresses.contains(&other) {
                self.addresses.push(other);
            }
        }
    }

    /// Returns `true` if `from` is one of the hub's addresses: nobody else answers calls.
    pub fn has(&self, from: SocketAddr) -> bool {
        self.addresses.contains(&from)
    }

    /// Address of the next call; in a session that is first the address where calls were answered
    /// last.
    pub fn call(&mut self, has_session: bool) -> SocketAddr {
        let most = if has_session { CALLS_OF_A_SESSION } else { 1 };
        if self.unanswered >= most {
            self.at = (self.at + 1) % self.addresses.len();
            self.unanswered = 0;
        }
        self.unanswered += 1;
        self.addresses[self.at]
    }

    /// The answer came from `from`: gives it where it is one of the hub's addresses.
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
    fn what_does_not_answer_is_followed_by_the_next() {
        let mut places = Places::new(address(1));
        places.add([address(2), address(1), address(3)]);
        let called: Vec<u16> = (0..5).map(|_| places.call(false).port()).collect();
        assert_eq!(called, [1, 2, 3, 1, 2]);
        // An answer may come late, from one that was called before.
        assert_eq!(places.answered(address(1)), Some(address(1)));
        assert_eq!([false; 2].map(|no| places.call(no)), [address(1), address(2)]);
        assert_eq!(places.answered(address(9)), None);
        assert!(places.has(address(3)) && !places.has(address(9)));
        let called: Vec<u16> = (0..7).map(|_| places.call(true).port()).collect();
        assert_eq!(called, [2, 2, 2, 3, 3, 3, 1]);
    }

    #[test]
    fn one_address_is_called_again_and_again_and_many_are_bounded() {
        let mut places = Places::new(address(1));
        assert_eq!([false; 2].map(|no| places.call(no)), [address(1); 2]);
        places.add((1..100).map(address));
        assert_eq!(places.addresses.len(), MAX_PLACES);
    }
}
