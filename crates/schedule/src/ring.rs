//! Deficit round robin with new members first (DRR++, and the list discipline of RFC 8290).

use crate::arena::Arena;

/// Bytes that a member sends in its turn: two packets, so that turns are short.
pub(crate) const QUANTUM_BYTES: i64 = 3000;

/// No place.
const NONE: u32 = u32::MAX;

/// One level of the hierarchy: members take turns, each for its quantum of bytes.
///
/// A member that becomes active after a pause goes to the new list and is served before the old
/// ones, for one quantum. When it pauses it must pass through the old list once before it counts as
/// new again, so that pausing on purpose gains nothing.
///
/// Its members are places of an [`Arena`], which every call is given; the lists are threaded through
/// them, so that nothing is allocated and leaving takes no search. All calls are O(1), `next` and
/// `deactivate` amortised over the calls that made members active and the quanta that were sent.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    new: List,
    old: List,
    active: u32,
}

/// A place's part in its ring.
#[derive(Debug, Default)]
pub(crate) struct Member {
    prev: u32,
    next: u32,
    list: Option<Which>,
    active: bool,
    deficit: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    New,
    Old,
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

impl Member {
    pub fn is_active(&self) -> bool {
        self.active
    }
}

impl Ring {
    /// No member has anything to send.
    pub fn is_idle(&self) -> bool {
        self.active == 0
    }

    /// `index` has something to send.
    pub fn activate<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        let member = &mut arena[index].member;
        if std::mem::replace(&mut member.active, true) {
            return;
        }
        self.active += 1;
        if member.list.is_none() {
            member.deficit = QUANTUM_BYTES;
            self.append(arena, Which::New, index);
        }
    }

    /// `index` has nothing to send.
    pub fn deactivate<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        if std::mem::replace(&mut arena[index].member.active, false) {
            self.active -= 1;
            if self.is_idle() {
                self.forget_paused(arena);
            }
        }
    }

    /// `index` is no member any more.
    pub fn remove<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        self.deactivate(arena, index);
        self.unlink(arena, index);
    }

    /// `index` sent `bytes`.
    pub fn spent<T>(&mut self, arena: &mut Arena<T>, index: u32, bytes: usize) {
        arena[index].member.deficit -= i64::try_from(bytes).unwrap_or(i64::MAX >> 8);
    }

    /// Member whose turn it is; the answer stands until something is spent or changes.
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
                self.append(arena, Which::Old, index);
            }
        }
    }

    /// Returns `true` if `index`, whose turn it is, is served ahead of the old members.
    pub fn is_new(&self, index: u32) -> bool {
        self.new.first == index
    }

    /// With nobody waiting, a pause costs nobody a turn.
    fn forget_paused<T>(&mut self, arena: &mut Arena<T>) {
        for list in [Which::New, Which::Old] {
            let mut index = std::mem::take(self.list(list)).first;
            while index != NONE {
                let member = &mut arena[index].member;
                member.list = None;
                index = member.next;
            }
        }
    }

    fn list(&mut self, which: Which) -> &mut List {
        match which {
            Which::New => &mut self.new,
            Which::Old => &mut self.old,
        }
    }

    fn append<T>(&mut self, arena: &mut Arena<T>, which: Which, index: u32) {
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

    fn serve(ring: &mut Ring, arena: &mut Arena<char>, bytes: usize, turns: usize) -> String {
        (0..turns)
            .map(|_| {
                let index = ring.next(arena).unwrap();
                ring.spent(arena, index, bytes);
                arena[index].value
            })
            .collect()
    }

    fn setup() -> (Ring, Arena<char>, [u32; 3]) {
        let mut arena = Arena::default();
        let members = ['a', 'b', 'c'].map(|name| arena.insert(name));
        (Ring::default(), arena, members)
    }

    #[test]
    fn turns_are_by_bytes_and_new_members_go_first() {
        let (mut ring, mut arena, [a, b, c]) = setup();
        ring.activate(&mut arena, a);
        ring.activate(&mut arena, b);
        assert_eq!(serve(&mut ring, &mut arena, 1000, 8), "aaabbbaa");
        ring.activate(&mut arena, c);
        assert_eq!(serve(&mut ring, &mut arena, 1000, 5), "cccab");
    }

    #[test]
    fn pausing_does_not_make_a_member_new_again() {
        let (mut ring, mut arena, [a, b, c]) = setup();
        ring.activate(&mut arena, a);
        ring.activate(&mut arena, b);
        assert_eq!(serve(&mut ring, &mut arena, 3000, 2), "ab");
        ring.deactivate(&mut arena, a);
        ring.activate(&mut arena, a);
        ring.activate(&mut arena, c);
        assert_eq!(serve(&mut ring, &mut arena, 3000, 4), "cabc");
    }

    #[test]
    fn an_idle_ring_forgets() {
        let (mut ring, mut arena, [a, b, _]) = setup();
        ring.activate(&mut arena, a);
        serve(&mut ring, &mut arena, 9000, 1);
        ring.deactivate(&mut arena, a);
        assert!(ring.is_idle());
        assert_eq!(ring.next(&mut arena), None);
        ring.activate(&mut arena, a);
        ring.activate(&mut arena, b);
        assert_eq!(serve(&mut ring, &mut arena, 3000, 3), "aba");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn a_ring_always_finds_who_is_active(
            steps in proptest::collection::vec((0usize..6, 0u8..4), 1..200),
        ) {
            let mut arena = Arena::default();
            let members: Vec<u32> = (0..6).map(|n| arena.insert(n)).collect();
            let (mut ring, mut active) = (Ring::default(), [false; 6]);
            for (who, what) in steps {
                let index = members[who];
                match what {
                    0 => ring.activate(&mut arena, index),
                    1 => ring.deactivate(&mut arena, index),
                    2 => ring.remove(&mut arena, index),
                    _ => ring.spent(&mut arena, index, 1500),
                }
                active[who] = what == 0 || (what == 3 && active[who]);
                let next = ring.next(&mut arena);
                prop_assert_eq!(next.is_some(), active.contains(&true));
                if let Some(next) = next {
                    prop_assert!(active[arena[next].value]);
                    ring.spent(&mut arena, next, 1000);
                }
            }
        }
    }
}
