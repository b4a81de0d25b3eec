//! A table of entries owned by holders. A full table evicts an entry of the largest holder.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bentpipe_flow::quota::Holdings;

use super::Grip;

/// Entries of one kind, by holder.
#[derive(Default)]
pub struct Pool {
    count: Holdings<u32>,
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

impl PoolLimits {
    /// Returns the holder whose idlest entry must be evicted before `holder` gets another; `None`
    /// if there is room.
    ///
    /// A holder at its own limit replaces its own idlest entry. In a full table, the largest holder
    /// [gives way](bentpipe_flow::quota::gives_way).
    pub fn payer(self, entries: &Holdings<u32>, holder: u32) -> Result<Option<u32>, Full> {
        let own = entries.of(&holder);
        if own >= self.each {
            let may_end = self.own_may_end && own > 0;
            return if may_end { Ok(Some(holder)) } else { Err(Full { most: self.each }) };
        }
        if entries.total() < self.all {
            return Ok(None);
        }
        match entries.payer(own, 1, |_| true) {
            Some(largest) => Ok(Some(largest)),
            None if own > 0 && self.own_may_end => Ok(Some(holder)),
            None => Err(Full { most: self.all }),
        }
    }
}

impl Pool {
    /// All entries.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Grip>> {
        self.holders.values().flat_map(BTreeMap::values)
    }

    /// Number of entries of each holder.
    pub fn count(&self) -> &Holdings<u32> {
        &self.count
    }

    /// Returns the entry of `holder` that has been inactive for longest.
    pub fn idlest(&self, holder: u32) -> Option<Arc<Grip>> {
        let entries = self.holders.get(&holder)?.values();
        entries.min_by_key(|grip| (grip.moved_ms(), grip.id())).cloned()
    }

    /// Returns the entry that has been inactive for longest among those of holders that satisfy
    /// `among`. It reads the whole table.
    pub fn idlest_among(&self, among: impl Fn(u32) -> bool) -> Option<Arc<Grip>> {
        let holders = self.holders.iter().filter(|(holder, _)| among(**holder));
        let entries = holders.flat_map(|(_, entries)| entries.values());
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
            self.count.add(grip.number(), 1);
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
        self.count.remove(grip.number(), 1);
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

    fn pays(held: &[(u32, usize)], holder: u32, most: PoolLimits) -> Result<Option<u32>, Full> {
        most.payer(pool(held).count(), holder)
    }

    const MOST: PoolLimits = PoolLimits { all: 8, each: 6, own_may_end: true };

    #[test]
    fn the_largest_holder_loses_and_equals_do_not() {
        assert_eq!(pays(&[(1, 4), (2, 3)], 3, MOST), Ok(None), "there is room");
        assert_eq!(pays(&[(1, 5), (2, 3)], 3, MOST), Ok(Some(1)));
        assert_eq!(pays(&[(1, 5), (2, 3)], 2, MOST), Ok(Some(1)));
        assert_eq!(pays(&[(1, 5), (2, 3)], 1, MOST), Ok(Some(1)), "its own");
        assert_eq!(pays(&[(1, 4), (2, 4)], 1, MOST), Ok(Some(1)), "its own");
        assert_eq!(pays(&[(1, 6)], 1, MOST), Ok(Some(1)), "at its own limit");
        let ones: Vec<_> = (1..=8).map(|holder| (holder, 1)).collect();
        assert_eq!(pays(&ones, 9, MOST), Err(Full { most: 8 }), "all have one");
    }

    #[test]
    fn own_entries_stay_if_the_newcomer_can_wait() {
        let most = PoolLimits { own_may_end: false, ..MOST };
        assert_eq!(pays(&[(1, 6)], 1, most), Err(Full { most: 6 }));
        assert_eq!(pays(&[(1, 4), (2, 4)], 1, most), Err(Full { most: 8 }));
        assert_eq!(pays(&[(1, 5), (2, 3)], 2, most), Ok(Some(1)));
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
            (pool.count.total(), pool.count.of(&7), pool.count.largest()),
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
        assert_eq!((pool.count.total(), pool.count.largest(), pool.holders.len()), (0, None, 0));
    }
}
