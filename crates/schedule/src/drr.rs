//! Deficit round robin with new members first (DRR++; list discipline of RFC 8290).

use crate::arena::{Arena, ListKind};

/// Bytes that a member sends per turn: two packets, so that turns are short.
pub(crate) const QUANTUM_BYTES: i64 = 3000;

/// Marks the end of a list.
const NONE: u32 = u32::MAX;

/// One level of the hierarchy: members take turns, each for a quantum of bytes.
///
/// A member that becomes active after a pause joins the new list. It is served before the old list,
/// for one quantum. A member that pauses must pass through the old list once before it counts as
/// new again, so a deliberate pause gains nothing.
///
/// Members are slots of an [`Arena`], which every call receives. The lists are linked through the
/// slots: nothing is allocated, and leaving needs no search. All calls are O(1); `next` and
/// `deactivate` are amortised over activations and quanta sent.
#[derive(Debug, Default)]
pub(crate) struct Drr {
    new: List,
    old: List,
    active: u32,
}

#[derive(Debug)]
struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Drr {
    /// Returns `true` if no member has anything to send.
    pub fn is_idle(&self) -> bool {
        self.active == 0
    }

    /// Marks `index` as having something to send.
    pub fn activate<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        let member = &mut arena[index].member;
        if std::mem::replace(&mut member.active, true) {
            return;
        }
        self.active += 1;
        if member.list.is_none() {
            member.deficit = QUANTUM_BYTES;
            self.append(arena, ListKind::New, index);
        }
    }

    /// Marks `index` as having nothing to send.
    pub fn deactivate<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        if std::mem::replace(&mut arena[index].member.active, false) {
            self.active -= 1;
            if self.is_idle() {
                self.clear_lists(arena);
            }
        }
    }

    /// Removes `index` from the round robin.
    pub fn remove<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        self.deactivate(arena, index);
        self.unlink(arena, index);
    }

    /// Charges `bytes` that `index` sent.
    pub fn spent<T>(&mut self, arena: &mut Arena<T>, index: u32, bytes: usize) {
        arena[index].member.deficit -= i64::try_from(bytes).unwrap_or(i64::MAX >> 8);
    }

    /// Member whose turn it is. The answer stays valid until a member sends or changes state.
    pub fn next<T>(&mut self, arena: &mut Arena<T>) -> Option<u32> {
        if self.is_idle() {
            return None;
        }
        loop {
            let from_new = self.new.first != NONE;
            let index = if from_new { self.new.first } else { self.old.first };
            let member = &mut arena[index].member;
            if member.active && member.deficit > 0 {
                return Some(index);
            }
            let leaves = !member.active && !from_new;
            if member.deficit <= 0 {
                member.deficit += QUANTUM_BYTES;
            }
            self.unlink(arena, index);
            if !leaves {
                self.append(arena, ListKind::Old, index);
            }
        }
    }

    /// Returns `true` if `index`, whose turn it is, is served before the old members.
    pub fn is_new(&self, index: u32) -> bool {
        self.new.first == index
    }

    /// Clears both lists. Nobody is waiting, so a pause costs nobody a turn.
    fn clear_lists<T>(&mut self, arena: &mut Arena<T>) {
        for list in [ListKind::New, ListKind::Old] {
            let mut index = std::mem::take(self.list(list)).first;
            while index != NONE {
                let member = &mut arena[index].member;
                member.list = None;
                index = member.next;
            }
        }
    }

    fn list(&mut self, which: ListKind) -> &mut List {
        match which {
            ListKind::New => &mut self.new,
            ListKind::Old => &mut self.old,
        }
    }

    fn append<T>(&mut self, arena: &mut Arena<T>, which: ListKind, index: u32) {
        let list = self.list(which);
        let prev = std::mem::replace(&mut list.last, index);
        if prev == NONE {
            list.first = index;
        } else {
            arena[prev].member.next = index;
        }
        let member = &mut arena[index].member;
        (member.prev, member.next, member.list) = (prev, NONE, Some(which));
    }

    fn unlink<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        let member = &mut arena[index].member;
        let (prev, next) = (member.prev, member.next);
        let Some(which) = member.list.take() else { return };
        let list = self.list(which);
        if prev == NONE {
            list.first = next;
        } else {
            arena[prev].member.next = next;
        }
        if next == NONE {
            self.list(which).last = prev;
        } else {
            arena[next].member.prev = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn serve(drr: &mut Drr, arena: &mut Arena<char>, bytes: usize, turns: usize) -> String {
        (0..turns)
            .map(|_| {
                let index = drr.next(arena).unwrap();
                drr.spent(arena, index, bytes);
                arena[index].value
            })
            .collect()
    }

    fn setup() -> (Drr, Arena<char>, [u32; 3]) {
        let mut arena = Arena::default();
        let members = ['a', 'b', 'c'].map(|name| arena.insert(name));
        (Drr::default(), arena, members)
    }

    #[test]
    fn turns_are_by_bytes_and_new_members_go_first() {
        let (mut drr, mut arena, [a, b, c]) = setup();
        drr.activate(&mut arena, a);
        drr.activate(&mut arena, b);
        assert_eq!(serve(&mut drr, &mut arena, 1000, 8), "aaabbbaa");
        drr.activate(&mut arena, c);
        assert_eq!(serve(&mut drr, &mut arena, 1000, 5), "cccab");
    }

    #[test]
    fn pausing_does_not_make_a_member_new_again() {
        let (mut drr, mut arena, [a, b, c]) = setup();
        drr.activate(&mut arena, a);
        drr.activate(&mut arena, b);
        assert_eq!(serve(&mut drr, &mut arena, 3000, 2), "ab");
        drr.deactivate(&mut arena, a);
        drr.activate(&mut arena, a);
        drr.activate(&mut arena, c);
        assert_eq!(serve(&mut drr, &mut arena, 3000, 4), "cabc");
    }

    #[test]
    fn an_idle_round_robin_forgets_its_members() {
        let (mut drr, mut arena, [a, b, _]) = setup();
        drr.activate(&mut arena, a);
        serve(&mut drr, &mut arena, 9000, 1);
        drr.deactivate(&mut arena, a);
        assert!(drr.is_idle());
        assert_eq!(drr.next(&mut arena), None);
        drr.activate(&mut arena, a);
        drr.activate(&mut arena, b);
        assert_eq!(serve(&mut drr, &mut arena, 3000, 3), "aba");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn next_always_returns_an_active_member(
            steps in proptest::collection::vec((0usize..6, 0u8..4), 1..200),
        ) {
            let mut arena = Arena::default();
            let members: Vec<u32> = (0..6).map(|n| arena.insert(n)).collect();
            let (mut drr, mut active) = (Drr::default(), [false; 6]);
            for (who, what) in steps {
                let index = members[who];
                match what {
                    0 => drr.activate(&mut arena, index),
                    1 => drr.deactivate(&mut arena, index),
                    2 => drr.remove(&mut arena, index),
                    _ => drr.spent(&mut arena, index, 1500),
                }
                active[who] = what == 0 || (what == 3 && active[who]);
                let next = drr.next(&mut arena);
                prop_assert_eq!(next.is_some(), active.contains(&true));
                if let Some(next) = next {
                    prop_assert!(active[arena[next].value]);
                    drr.spent(&mut arena, next, 1000);
                }
            }
        }
    }
}
