//! Changes by passengers at servers that may be anybody's.
//!
//! What is sent to an address that a passenger dialled is answered by whoever is there, and says nothing of
//! what the cache holds under the name in Host. But the passenger who sent it shall see what it did (RFC
//! 9111 §4.4): the next time it asks for the same, the cache asks the origin first, as if the passenger had
//! told it to.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use bentpipe_webcache::Key;

/// Passengers who are remembered, and what of each: 128 KiB in all.
const MOST_PASSENGERS: usize = 512;
const MOST_OF_EACH: usize = 16;

/// Hashes of addresses, by who has changed what is there.
#[derive(Default)]
pub struct Changed(Mutex<HashMap<IpAddr, VecDeque<u64>>>);

impl Changed {
    /// `client` has changed what is under `key`.
    pub fn note(&self, client: IpAddr, key: &Key) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_PASSENGERS
            && !all.contains_key(&client)
            && let Some(other) = all.keys().next().copied()
        {
            all.remove(&other);
        }
        let own = all.entry(client).or_default();
        own.retain(|hash| *hash != key.hash64());
        if own.len() >= MOST_OF_EACH {
            own.pop_front();
        }
        own.push_back(key.hash64());
    }

    /// Returns `true` if `client` has changed the resource under `key`, and does not know its new
    /// state yet.
    pub fn take(&self, client: IpAddr, key: &Key) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = all.get_mut(&client) else { return false };
        let hash = key.hash64();
        let Some(at) = own.iter().position(|one| *one == hash) else { return false };
        own.remove(at);
        if own.is_empty() {
            all.remove(&client);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_learns_once_of_its_own_and_all_is_bounded() {
        let client = |n: u32| IpAddr::from(n.to_be_bytes());
        let key = |n: u32| Key::parse(&format!("http://a.test:80/{n}")).unwrap();
        let changed = Changed::default();
        changed.note(client(1), &key(1));
        assert!(!changed.take(client(2), &key(1)) && !changed.take(client(1), &key(2)));
        assert!(changed.take(client(1), &key(1)) && !changed.take(client(1), &key(1)));
        for n in 0..MOST_OF_EACH as u32 + 1 {
            changed.note(client(1), &key(n));
        }
        assert!(!changed.take(client(1), &key(0)) && changed.take(client(1), &key(1)));
        for n in 0..2 * MOST_PASSENGERS as u32 {
            changed.note(client(n), &key(n));
        }
        assert_eq!(changed.0.lock().unwrap().len(), MOST_PASSENGERS);
    }
}
