//! A table of entries that belong to holders. A full table makes room at the expense of whoever holds most.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::flows::Grip;

/// Entries of one kind, by holder.
#[derive(Default)]
pub struct Pool {
    holders: HashMap<u32, BTreeMap<u64, Arc<Grip>>>,
    /// Holders in the order of how much they hold.
    rank: BTreeSet<(usize, u32)>,
    count: usize,
}

/// The largest numbers of entries.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// For all holders.
    pub all: usize,
    /// For the holder in question.
    pub each: usize,
    /// `true` if the holder's own idlest entry may end for its next.
    pub own_may_end: bool,
}

/// No entry may end for the newcomer.
#[derive(Debug, PartialEq, Eq)]
pub struct Full {
    /// The limit that was reached.
    pub most: usize,
}

impl Pool {
    /// Entries of all holders.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Entries of `holder`.
    pub fn held(&self, holder: u32) -> usize {
        self.holders.get(&holder).map_or(0, BTreeMap::len)
    }

    /// The holder of most entries, and how many it has.
    pub fn largest(&self) -> Option<(u32, usize)> {
        self.rank.last().map(|(held, holder)| (*holder, *held))
    }

    /// The holder whose idlest entry ends before `holder` may have another; `None` if there is room.
    ///
    /// A holder at its own limit replaces its own idlest. In a full table the largest holder gives way if it
    /// still has as many as the newcomer then; so nobody loses an entry to somebody who holds more, and two
    /// equals do not take turns at evicting each other.
    pub fn pays(&self, holder: u32, most: Most) -> Result<Option<u32>, Full> {
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

    /// The entry of `holder` on which nothing has moved for longest.
    pub fn idlest(&self, holder: u32) -> Option<Arc<Grip>> {
        let entries = self.holders.get(&holder)?.values();
        entries.min_by_key(|grip| (grip.moved_ms(), grip.id())).cloned()
    }

    pub fn contains(&self, grip: &Grip) -> bool {
        let entries = self.holders.get(&grip.number());
        entries.is_some_and(|entries| entries.contains_key(&grip.id()))
    }

    /// All entries of `holder`.
    pub fn of(&self, holder: u32) -> impl Iterator<Item = &Arc<Grip>> {
        self.holders.get(&holder).into_iter().flat_map(BTreeMap::values)
    }

    pub fn enter(&mut self, grip: &Arc<Grip>) {
        let entries = self.holders.entry(grip.number()).or_default();
        let before = entries.len();
        if entries.insert(grip.id(), grip.clone()).is_none() {
            self.count += 1;
            self.moved(grip.number(), before, before + 1);
        }
    }

    pub fn leave(&mut self, grip: &Grip) {
        let Some(entries) = self.holders.get_mut(&grip.number()) else { return };
        let before = entries.len();
        if entries.remove(&grip.id()).is_none() {
            return;
        }
        if before == 1 {
            self.holders.remove(&grip.number());
        }
        self.count -= 1;
        self.moved(grip.number(), before, before - 1);
    }

    fn moved(&mut self, holder: u32, before: usize, after: usize) {
        self.rank.remove(&(before, holder));
        if after > 0 {
            self.rank.insert((after, holder));
        }
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

    const MOST: Most = Most { all: 8, each: 6, own_may_end: true };

    #[test]
    fn who_holds_most_pays_and_equals_do_not() {
        assert_eq!(pool(&[(1, 4), (2, 3)]).pays(3, MOST), Ok(None), "there is room");
        assert_eq!(pool(&[(1, 5), (2, 3)]).pays(3, MOST), Ok(Some(1)));
        assert_eq!(pool(&[(1, 5), (2, 3)]).pays(2, MOST), Ok(Some(1)));
        assert_eq!(pool(&[(1, 5), (2, 3)]).pays(1, MOST), Ok(Some(1)), "its own");
        assert_eq!(pool(&[(1, 4), (2, 4)]).pays(1, MOST), Ok(Some(1)), "its own");
        assert_eq!(pool(&[(1, 6)]).pays(1, MOST), Ok(Some(1)), "at its own limit");
        let ones: Vec<_> = (1..=8).map(|holder| (holder, 1)).collect();
        assert_eq!(pool(&ones).pays(9, MOST), Err(Full { most: 8 }), "all have one");
    }

    #[test]
    fn own_entries_stay_if_the_newcomer_can_wait() {
        let most = Most { own_may_end: false, ..MOST };
        assert_eq!(pool(&[(1, 6)]).pays(1, most), Err(Full { most: 6 }));
        assert_eq!(pool(&[(1, 4), (2, 4)]).pays(1, most), Err(Full { most: 8 }));
        assert_eq!(pool(&[(1, 5), (2, 3)]).pays(2, most), Ok(Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_idlest_is_the_one_on_which_nothing_moved_for_longest() {
        let (mut pool, began) = (Pool::default(), Instant::now());
        let grips = [1, 2, 3].map(|id| Grip::new(id, 7, began));
        for grip in &grips {
            pool.enter(grip);
            pool.enter(grip);
        }
        assert_eq!((pool.count(), pool.held(7), pool.largest()), (3, 3, Some((7, 3))));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        grips[0].touch();
        assert_eq!(pool.idlest(7).map(|grip| grip.id()), Some(2));
        pool.leave(&grips[1]);
        pool.leave(&grips[1]);
        assert_eq!(pool.idlest(7).map(|grip| grip.id()), Some(3));
        pool.leave(&grips[0]);
        pool.leave(&grips[2]);
        assert_eq!((pool.count(), pool.largest(), pool.rank.len()), (0, None, 0));
    }
}
