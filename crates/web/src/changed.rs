//! Changes made by passengers at unverified servers.
//!
//! A request to an address that a passenger dialled is answered by any server there, so it must not
//! affect objects cached under the name in Host. But the passenger should see the effect of the
//! request (RFC 9111 §4.4): at its next request for the same resource, the cache revalidates with
//! the origin first.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use bentpipe_webcache::Key;
use parking_lot::Mutex;

/// Maximum number of passengers, and of resources for each: 128 KiB in total.
const MAX_PASSENGERS: usize = 512;
const MAX_OF_EACH: usize = 16;

/// Hashes of changed resources, by the passenger who changed them.
#[derive(Default)]
pub struct Changed(Mutex<HashMap<IpAddr, VecDeque<u64>>>);

impl Changed {
    /// Records that `client` has changed the resource under `key`.
    pub fn note(&self, client: IpAddr, key: &Key) {
        let mut all = self.0.lock();
        if all.len() >= MAX_PASSENGERS
            && !all.contains_key(&client)
            && let Some(other) = all.keys().next().copied()
        {
            all.remove(&other);
        }
        let own = all.entry(client).or_default();
        own.retain(|hash| *hash != key.hash64());
        if own.len() >= MAX_OF_EACH {
            own.pop_front();
        }
        own.push_back(key.hash64());
    }

    /// Returns `true`, and forgets the change, if `client` has changed the resource under `key`.
    pub fn take(&self, client: IpAddr, key: &Key) -> bool {
        let mut all = self.0.lock();
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
        for n in 0..MAX_OF_EACH as u32 + 1 {
            changed.note(client(1), &key(n));
        }
        assert!(!changed.take(client(1), &key(0)) && changed.take(client(1), &key(1)));
        for n in 0..2 * MAX_PASSENGERS as u32 {
            changed.note(client(n), &key(n));
        }
        assert_eq!(changed.0.lock().len(), MAX_PASSENGERS);
    }
}
