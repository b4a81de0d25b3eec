//! Memory for the bytes of flows, shared among the flows of an owner and among the owners.
//!
//! Every flow has [`FREE_UNCONFIRMED_BYTES`] and [`FREE_UNREAD_BYTES`] of its own, so it always goes
//! on. Memory beyond them is charged. A flow gets more only while it has less than what its
//! owner has left, and an owner only while it has less than what all owners have left (the dynamic
//! threshold of Choudhury and Hahne, 1998). So the largest stops first, and there is always something
//! left for others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Unconfirmed bytes of a flow that are not charged. They must be more than the peer passes on before
/// it confirms ([`CONFIRM_BYTES`](crate::incoming::CONFIRM_BYTES)).
pub const FREE_UNCONFIRMED_BYTES: usize = 64 << 10;

/// Bytes that were read ahead of the user and are not charged.
pub const FREE_UNREAD_BYTES: usize = 64 << 10;

/// Maximum number of charged bytes of one aircraft at an egress. With 1,024 flows, those that are not
/// charged are 128 MiB more.
pub const MAX_AIRCRAFT_BYTES: usize = 64 << 20;

/// Maximum number of charged bytes of all aircraft at an egress.
pub const MAX_EGRESS_BYTES: usize = 512 << 20;

/// Maximum number of charged bytes of one passenger at an air.
pub const MAX_PASSENGER_BYTES: usize = 32 << 20;

/// Maximum number of charged bytes of all passengers at an air.
pub const MAX_AIR_BYTES: usize = 128 << 20;

/// Owner of flows: the key of an aircraft, or a passenger.
pub type Owner = [u8; 32];

/// The memory.
#[derive(Debug)]
pub struct Budget {
    max_of_owner: usize,
    max: usize,
    charged: Mutex<Charged>,
}

#[derive(Debug, Default)]
struct Charged {
    total: usize,
    owners: HashMap<Owner, usize>,
}

impl Budget {
    /// Creates a budget of `max` bytes, of which an owner gets at most `max_of_owner`.
    pub fn new(max_of_owner: usize, max: usize) -> Arc<Self> {
        Arc::new(Self { max_of_owner, max, charged: Mutex::default() })
    }

    /// Number of charged bytes.
    pub fn charged_bytes(&self) -> usize {
        self.charged.lock().total
    }

    /// Opens the account of a flow.
    pub fn account(self: &Arc<Self>, owner: Owner) -> Account {
        Account { budget: self.clone(), owner, bytes: 0 }
    }
}

/// Owner that stands for a passenger.
pub fn passenger(number: u32) -> Owner {
    let mut owner = [0; 32];
    owner[..4].copy_from_slice(&number.to_be_bytes());
    owner
}

/// Bytes that are charged to a flow. Dropping the account returns them.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    owner: Owner,
    bytes: usize,
}

impl Account {
    /// Charges up to `wanted` more bytes, and returns their number.
    pub fn charge(&mut self, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        let Budget { max_of_owner, max, charged } = &*self.budget;
        let mut charged = charged.lock();
        let of_owner = charged.owners.get(&self.owner).copied().unwrap_or_default();
        // After it, the flow has at most what its owner has left, and so on.
        let left_by_owner = max_of_owner.saturating_sub(of_owner).saturating_sub(self.bytes) / 2;
        let left = max.saturating_sub(charged.total).saturating_sub(of_owner) / 2;
        let granted = wanted.min(left_by_owner).min(left);
        if granted > 0 {
            charged.total += granted;
            *charged.owners.entry(self.owner).or_default() += granted;
            self.bytes += granted;
        }
        granted
    }

    /// Corrects the charge to what the flow really keeps.
    pub fn settle(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        let mut charged = self.budget.charged.lock();
        charged.total = charged.total + bytes - self.bytes;
        let of_owner = charged.owners.entry(self.owner).or_default();
        *of_owner = *of_owner + bytes - self.bytes;
        if *of_owner == 0 {
            charged.owners.remove(&self.owner);
        }
        self.bytes = bytes;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_stops_first() {
        let budget = Budget::new(400, 1_000);
        let mut hog = budget.account([1; 32]);
        assert_eq!(hog.charge(1_000), 200, "half of its owner's share");
        let mut other = budget.account([1; 32]);
        assert_eq!(other.charge(60), 60, "another flow of the same owner");
        assert_eq!(hog.charge(1), 0);
        // Owners that take what they get leave something for the next.
        let mut owners = Vec::new();
        for number in 2..20 {
            let mut account = budget.account([number; 32]);
            let got = account.charge(1_000);
            assert!(got > 0 || budget.charged_bytes() >= 999, "owner {number}");
            owners.push(account);
        }
        assert!(budget.charged_bytes() <= 1_000);
        hog.settle(10);
        assert_eq!(budget.account([30; 32]).charge(50), 50);
        drop((hog, other, owners));
        assert_eq!(budget.charged_bytes(), 0);
        assert!(budget.charged.lock().owners.is_empty());
    }
}
