//! Deficit round robin with new members first (DRR++, and the list discipline of RFC 8290).

use std::collections::{BTreeMap, VecDeque};

/// One level of the hierarchy: members take turns, each for its quantum of bytes.
///
/// A member that becomes active after a pause goes to the new list and is served before the old
/// ones, for one quantum. When it pauses it must pass through the old list once before it counts as
/// new again, so that pausing on purpose gains nothing.
#[derive(Debug)]
pub(crate) struct Ring<K> {
    new: VecDeque<K>,
    old: VecDeque<K>,
    members: BTreeMap<K, Member>,
    active: usize,
}

#[derive(Debug)]
struct Member {
    deficit: i64,
    quantum: i64,
    active: bool,
}

impl<K: Ord + Copy> Default for Ring<K> {
    fn default() -> Self {
        Self { new: VecDeque::new(), old: VecDeque::new(), members: BTreeMap::new(), active: 0 }
    }
}

impl<K: Ord + Copy> Ring<K> {
    /// No member has anything to send.
    pub fn is_idle(&self) -> bool {
        self.active == 0
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// `key` has something to send.
    pub fn activate(&mut self, key: K, quantum: i64) {
        let member = self.members.entry(key).or_insert_with(|| {
            self.new.push_back(key);
            Member { deficit: quantum, quantum, active: false }
        });
        self.active += usize::from(!std::mem::replace(&mut member.active, true));
    }

    /// `key` has nothing to send.
    pub fn deactivate(&mut self, key: K) {
        if let Some(member) = self.members.get_mut(&key) {
            self.active -= usize::from(std::mem::replace(&mut member.active, false));
        }
    }

    /// `key` sent `bytes`.
    pub fn spent(&mut self, key: K, bytes: i64) {
        if let Some(member) = self.members.get_mut(&key) {
            member.deficit -= bytes;
        }
    }

    /// Whose turn it is; the answer stands until something is spent or changes.
    pub fn next(&mut self) -> Option<K> {
        if self.is_idle() {
            self.forget_paused();
            return None;
        }
        loop {
            let from_new = !self.new.is_empty();
            let list = if from_new { &mut self.new } else { &mut self.old };
            let key = *list.front()?;
            let member = self.members.get_mut(&key)?;
            if member.active && member.deficit > 0 {
                return Some(key);
            }
            list.pop_front();
            if !member.active && !from_new {
                self.members.remove(&key);
                continue;
            }
            if member.deficit <= 0 {
                member.deficit += member.quantum;
            }
            self.old.push_back(key);
        }
    }

    /// With nobody waiting, a pause costs nobody a turn.
    fn forget_paused(&mut self) {
        self.new.clear();
        self.old.clear();
        self.members.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(ring: &mut Ring<char>, bytes: i64, turns: usize) -> String {
        (0..turns)
            .map(|_| {
                let key = ring.next().unwrap();
                ring.spent(key, bytes);
                key
            })
            .collect()
    }

    #[test]
    fn turns_are_by_bytes_and_new_members_go_first() {
        let mut ring = Ring::default();
        ring.activate('a', 300);
        ring.activate('b', 300);
        assert_eq!(serve(&mut ring, 100, 8), "aaabbbaa");
        ring.activate('c', 300);
        assert_eq!(serve(&mut ring, 100, 5), "cccab");
    }

    #[test]
    fn pausing_does_not_make_a_member_new_again() {
        let mut ring = Ring::default();
        ring.activate('a', 100);
        ring.activate('b', 100);
        assert_eq!(serve(&mut ring, 100, 2), "ab");
        ring.deactivate('a');
        ring.activate('a', 100);
        ring.activate('c', 100);
        assert_eq!(serve(&mut ring, 100, 4), "cabc");
    }

    #[test]
    fn an_idle_ring_forgets() {
        let mut ring = Ring::default();
        ring.activate('a', 100);
        serve(&mut ring, 500, 1);
        ring.deactivate('a');
        assert!(ring.is_idle() && !ring.is_empty());
        assert_eq!(ring.next(), None);
        assert!(ring.is_empty());
    }
}
