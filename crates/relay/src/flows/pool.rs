//! A table of entries owned by holders. A full table evicts an entry of the largest holder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::Grip;

/// Number of entries of each holder.
#[derive(Default)]
pub struct Rank {
    held: HashMap<u32, usize>,
    /// Holders, ordered by number of entries.
    order: BTreeSet<(usize, u32)>,
    count: usize,
}

/// Entries of one kind, by holder.
#[derive(Default)]
pub struct Pool {
    rank: Rank,
    holders: HashMap<u32, BTreeMap<u64, Arc<Grip>>>,
}

/// Limits on the number of entries.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// Limit for all holders together.
    pub all: usize,
    /// Limit for the requesting holder.
    pub each: usize,
    /// `true` if the holder's idlest entry may be evicted for its own new one.
    pub own_may_end: bool,
}

/// No entry may be evicted for the newcomer.
#[derive(Debug, PartialEq, Eq)]
pub struct Full {
    /// The limit that was reached.
    pub most: usize,
}

impl Rank {
    /// Number of entries of all holders.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of entries of `holder`.
    pub fn held(&self, holder: u32) -> usize {
        self.held.get(&holder).copied().unwrap_or(0)
    }

    /// The largest holder, and its number of entries.
    pub fn largest(&self) -> Option<(u32, usize)> {
        self.order.last().map(|(held, holder)| (*holder, *held))
    }

    /// Returns the holder whose idlest entry must be evicted before `holder` gets another; `None`
    /// if there is room.
    ///
    /// A holder at its own limit replaces its own idlest entry. In a full table, the largest holder
    /// loses an entry if it still has at least as many as the newcomer afterwards. So nobody loses
    /// an entry to a larger holder, and two equal holders do not evict each other in turn.
    pub fn pays(&self, holder: u32, most: PoolLimits) -> Result<Option<u32>, Full> {
        let held = self.held(holder);
        if held >= most.each {
            let own = most.own_may_end && held > 0;
            return if own { Ok(Some(holder)) } else { Err(Full { most: most.each }) };
        }
        if self.count < most.all {
            return Ok(None);
        }
        match self.largest() {
            Some((largest, count)) if count >= held + 2 => Ok(Some(largest)),
            _ if held > 0 && most.own_may_end => Ok(Some(holder)),
            _ => Err(Full { most: most.all }),
        }
    }

    /// Adds one entry of `holder`.
    pub fn add(&mut self, holder: u32) {
        let before = self.held(holder);
        self.count += 1;
        self.moved(holder, before, before + 1);
    }

    /// Removes one entry of `holder`.
    pub fn remove(&mut self, holder: u32) {
        let before = self.held(holder);
        if let Some(after) = before.checked_sub(1) {
            self.count -= 1;
            self.moved(holder, before, after);
        }
    }

    fn moved(&mut self, holder: u32, before: usize, after: usize) {
        self.order.remove(&(before, holder));
        if after > 0 {
            self.order.insert((after, holder));
            self.held.insert(holder, after);
        } else {
            self.held.remove(&holder);
        }
    }
}

impl Pool {
    /// Number of entries of each holder.
    pub fn rank(&self) -> &Rank {
        &self.rank
    }

    /// Returns the entry of `holder` that has been inactive for longest.
    pub fn idlest(&self, holder: u32) -> Option<Arc<Grip>> {
        let entries = self.holders.get(&holder)?.values();
        entries.min_by_key(|grip| (grip.moved_ms(), grip.id())).cloned()
    }

    /// Returns `true` if the entry is still in the table.
    pub fn contains(&self, grip: &Grip) -> bool {
        let entries = self.holders.get(&grip.number());
        entries.is_some_and(|entries| entries.contains_key(&grip.id()))
    }

    /// Returns all entries of `holder`.
    pub fn of(&self, holder: u32) -> impl Iterator<Item = &Arc<Grip>> {
        self.holders.get(&holder).into_iter().flat_map(BTreeMap::values)
    }

    /// Adds an entry. Returns `false` if it is already present.
    pub fn enter(&mut self, grip: &Arc<Grip>) -> bool {
        let entries = self.holders.entry(grip.number()).or_default();
        let is_new = entries.insert(grip.id(), grip.clone()).is_none();
        if is_new {
            self.rank.add(grip.number());
        }
        is_new
    }

    /// Removes an entry. Returns `false` if it is not present.
    pub fn leave(&mut self, grip: &Grip) -> bool {
        let Some(entries) = self.holders.get_mut(&grip.number()) else { return false };
        if entries.remove(&grip.id()).is_none() {
            return false;
        }
        if entries.is_empty() {
            self.holders.remove(&grip.number());
        }
        self.rank.remove(grip.number());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn pool(held: &[(u32, usize)]) -> Pool {
        let (mut pool, mut id) = (Pool::default(), 0);
        for (holder, count) in held {
            for _ in 0..*count {
                id += 1;
                pool.enter(&Grip::new(id, *holder, Instant::now()));
            }
        }
        pool
    }

    const MOST: PoolLimits = PoolLimits { all: 8, each: 6, own_may_end: true };

    #[test]
    fn who_holds_most_pays_and_equals_do_not() {
        assert_eq!(pool(&[(1, 4), (2, 3)]).rank.pays(3, MOST), Ok(None), "there is room");
        assert_eq!(pool(&[(1, 5), (2, 3)]).rank.pays(3, MOST), Ok(Some(1)));
        assert_eq!(pool(&[(1, 5), (2, 3)]).rank.pays(2, MOST), Ok(Some(1)));
        assert_eq!(pool(&[(1, 5), (2, 3)]).rank.pays(1, MOST), Ok(Some(1)), "its own");
        assert_eq!(pool(&[(1, 4), (2, 4)]).rank.pays(1, MOST), Ok(Some(1)), "its own");
        assert_eq!(pool(&[(1, 6)]).rank.pays(1, MOST), Ok(Some(1)), "at its own limit");
        let ones: Vec<_> = (1..=8).map(|holder| (holder, 1)).collect();
        assert_eq!(pool(&ones).rank.pays(9, MOST), Err(Full { most: 8 }), "all have one");
    }

    #[test]
    fn own_entries_stay_if_the_newcomer_can_wait() {
        let most = PoolLimits { own_may_end: false, ..MOST };
        assert_eq!(pool(&[(1, 6)]).rank.pays(1, most), Err(Full { most: 6 }));
        assert_eq!(pool(&[(1, 4), (2, 4)]).rank.pays(1, most), Err(Full { most: 8 }));
        assert_eq!(pool(&[(1, 5), (2, 3)]).rank.pays(2, most), Ok(Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_idlest_is_the_one_on_which_nothing_moved_for_longest() {
        let (mut pool, began) = (Pool::default(), Instant::now());
        let grips = [1, 2, 3].map(|id| Grip::new(id, 7, began));
        for grip in &grips {
            pool.enter(grip);
            pool.enter(grip);
        }
        assert_eq!(
            (pool.rank.count(), pool.rank.held(7), pool.rank.largest()),
            (3, 3, Some((7, 3)))
        );
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        grips[0].touch();
        assert_eq!(pool.idlest(7).map(|grip| grip.id()), Some(2));
        pool.leave(&grips[1]);
        pool.leave(&grips[1]);
        assert_eq!(pool.idlest(7).map(|grip| grip.id()), Some(3));
        pool.leave(&grips[0]);
        pool.leave(&grips[2]);
        assert_eq!((pool.rank.count(), pool.rank.largest(), pool.rank.order.len()), (0, None, 0));
    }
}
