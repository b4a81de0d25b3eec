//! Shares of a scarce resource: external ports, held by passengers of aircraft.
//!
//! - Below half of the limit, every request is granted.
//! - Above it, each aircraft has a share: the limit divided by the number of aircraft with entries.
//! - An aircraft at its share gets an entry only by evicting one of its own.
//! - An aircraft below its share always gets an entry, if necessary by evicting one of the aircraft
//!   with most.
//!
//! The evicted entry is approximately the idlest of the passenger with most; see [`MAX_LOOKED`].
//!
//! Pure: time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of a passenger's entries compared for an eviction. Each eviction continues with
/// the next entries, so that its cost does not depend on the total.
const MAX_LOOKED: usize = 32;

/// Idle time below which an answered entry is evicted only for a passenger with fewer entries.
pub const MIN_IDLE: Duration = Duration::from_secs(10);

/// Activity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usage {
    /// `true` if an answer has been received.
    pub is_answered: bool,
    /// Time of the last datagram.
    pub moved_at: Instant,
}

/// An entry that reports its activity.
pub trait Used {
    /// Returns the entry's activity.
    fn usage(&self) -> Usage;
}

/// A passenger of an aircraft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Key of the aircraft.
    pub aircraft: [u8; 32],
    /// Number of the passenger.
    pub passenger: u32,
}

/// Identifier of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryId {
    holder: Holder,
    number: u64,
}

/// Result of a request for room.
#[derive(Debug)]
pub enum Room<E> {
    /// There is room.
    Free,
    /// This entry was evicted to make room.
    Freed(E),
    /// There is no room for this passenger.
    None,
}

/// All entries.
pub struct Shares<E> {
    limit: usize,
    total: usize,
    next: u64,
    /// Aircraft with entries.
    aircraft: HashMap<[u8; 32], Aircraft<E>>,
}

struct Aircraft<E> {
    total: usize,
    /// Passengers with entries.
    passengers: HashMap<u32, Held<E>>,
}

struct Held<E> {
    entries: BTreeMap<u64, E>,
    /// Number of the entry to compare next.
    cursor: u64,
}

impl<E: Used> Shares<E> {
    /// Creates shares with at most `limit` entries.
    pub fn new(limit: usize) -> Self {
        Self { limit, total: 0, next: 0, aircraft: HashMap::new() }
    }

    /// Makes room for one more entry of `holder`, if possible.
    pub fn room(&mut self, holder: Holder, now: Instant) -> Room<E> {
        if self.total < self.limit / 2 {
            return Room::Free;
        }
        let held = self.held(&holder.aircraft);
        let many = self.aircraft.len() + usize::from(held == 0);
        if held >= self.limit / many {
            return self.room_in(holder, now);
        }
        if self.total < self.limit {
            return Room::Free;
        }
        // The largest aircraft is above its share, because the limit is reached and this aircraft
        // is below its own share.
        match self.largest().map(|(key, _)| key).and_then(|key| {
            let passenger = self.aircraft.get(&key)?.largest()?.0;
            self.remove_idlest(Holder { aircraft: key, passenger }, |_| true)
        }) {
            Some(entry) => Room::Freed(entry),
            None => Room::None,
        }
    }

    /// Makes room within the entries of the aircraft of `holder`.
    fn room_in(&mut self, holder: Holder, now: Instant) -> Room<E> {
        let Some(aircraft) = self.aircraft.get(&holder.aircraft) else { return Room::None };
        let own = aircraft.passengers.get(&holder.passenger).map_or(0, |held| held.entries.len());
        let Some((passenger, most)) = aircraft.largest() else { return Room::None };
        let has_fewer = own + 1 < most;
        let victim = if has_fewer { passenger } else { holder.passenger };
        let may_end = |usage: Usage| {
            has_fewer
                || !usage.is_answered
                || now.saturating_duration_since(usage.moved_at) >= MIN_IDLE
        };
        let victim = Holder { aircraft: holder.aircraft, passenger: victim };
        match self.remove_idlest(victim, may_end) {
            Some(entry) => Room::Freed(entry),
            None => Room::None,
        }
    }

    /// Reserves an identifier for an entry of `holder`, for use with [`add`](Self::add).
    pub fn entry_id(&mut self, holder: Holder) -> EntryId {
        self.next += 1;
        EntryId { holder, number: self.next }
    }

    /// Adds `entry`.
    pub fn add(&mut self, entry_id: EntryId, entry: E) {
        let EntryId { holder, number } = entry_id;
        let new = || Aircraft { total: 0, passengers: HashMap::new() };
        let aircraft = self.aircraft.entry(holder.aircraft).or_insert_with(new);
        let new = || Held { entries: BTreeMap::new(), cursor: 0 };
        let held = aircraft.passengers.entry(holder.passenger).or_insert_with(new);
        if held.entries.insert(number, entry).is_none() {
            aircraft.total += 1;
            self.total += 1;
        }
    }

    /// Removes an entry if it is present.
    pub fn remove(&mut self, entry_id: EntryId) -> Option<E> {
        let EntryId { holder, number } = entry_id;
        let aircraft = self.aircraft.get_mut(&holder.aircraft)?;
        let held = aircraft.passengers.get_mut(&holder.passenger)?;
        let entry = held.entries.remove(&number)?;
        if held.entries.is_empty() {
            aircraft.passengers.remove(&holder.passenger);
        }
        aircraft.total -= 1;
        self.total -= 1;
        if aircraft.total == 0 {
            self.aircraft.remove(&holder.aircraft);
        }
        Some(entry)
    }

    /// Total number of entries, and the limit.
    pub fn total(&self) -> (usize, usize) {
        (self.total, self.limit)
    }

    /// Number of entries of an aircraft.
    pub fn held(&self, aircraft: &[u8; 32]) -> usize {
        self.aircraft.get(aircraft).map_or(0, |it| it.total)
    }

    /// The aircraft with the most entries, and their number.
    pub fn largest(&self) -> Option<([u8; 32], usize)> {
        let counts = self.aircraft.iter().map(|(key, it)| (*key, it.total));
        counts.max_by_key(|(key, total)| (*total, *key))
    }

    /// Removes the idlest of the next entries of `holder` for which `may_end` is true. Unanswered
    /// entries come first.
    fn remove_idlest(&mut self, holder: Holder, may_end: impl Fn(Usage) -> bool) -> Option<E> {
        let aircraft = self.aircraft.get_mut(&holder.aircraft)?;
        let held = aircraft.passengers.get_mut(&holder.passenger)?;
        let after = held.entries.range(held.cursor..);
        let looked = after.chain(held.entries.range(..held.cursor)).take(MAX_LOOKED);
        let mut idlest: Option<(Usage, u64)> = None;
        let mut last = held.cursor;
        for (number, entry) in looked {
            last = *number;
            let usage = entry.usage();
            if may_end(usage) && idlest.is_none_or(|(best, _)| usage < best) {
                idlest = Some((usage, *number));
            }
        }
        held.cursor = last + 1;
        let (_, number) = idlest?;
        self.remove(EntryId { holder, number })
    }
}

impl<E> Aircraft<E> {
    /// The passenger with the most entries, and their number.
    fn largest(&self) -> Option<(u32, usize)> {
        let counts = self.passengers.iter().map(|(number, held)| (*number, held.entries.len()));
        counts.max_by_key(|(number, count)| (*count, *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Flow {
        usage: Usage,
        of: Holder,
    }

    impl Used for Flow {
        fn usage(&self) -> Usage {
            self.usage
        }
    }

    fn holder(aircraft: u8, passenger: u32) -> Holder {
        Holder { aircraft: [aircraft; 32], passenger }
    }

    /// Opens an entry for `holder` as the gateway does. Returns the entry, and the holder whose
    /// entry was evicted.
    fn open(
        shares: &mut Shares<Flow>,
        holder: Holder,
        is_answered: bool,
    ) -> Option<(EntryId, Option<Holder>)> {
        let now = Instant::now();
        let freed = match shares.room(holder, now) {
            Room::Free => None,
            Room::Freed(flow) => Some(flow.of),
            Room::None => return None,
        };
        let entry_id = shares.entry_id(holder);
        shares.add(entry_id, Flow { usage: Usage { is_answered, moved_at: now }, of: holder });
        Some((entry_id, freed))
    }

    /// One passenger of each of 30 aircraft requests 30,000 entries, all answered and in use.
    #[tokio::test(start_paused = true)]
    async fn each_aircraft_has_its_share_and_newcomers_have_theirs() {
        let mut shares = Shares::new(900);
        let mut refused = 0;
        for wanted in 0..30_000_u32 {
            let who = holder((wanted % 30) as u8, 1);
            match open(&mut shares, who, true) {
                Some((_, freed)) => assert_eq!(freed, None),
                None => refused += 1,
            }
        }
        assert_eq!(shares.total(), (900, 900));
        assert!((0..30).all(|n| shares.held(&[n; 32]) == 30));
        assert_eq!(refused, 30_000 - 900);
        // One more aircraft gets its share from those above theirs.
        for n in 0..900 / 31 {
            let (_, freed) = open(&mut shares, holder(99, n as u32), true).unwrap();
            assert!(freed.is_some_and(|from| from.aircraft != [99; 32]));
        }
        assert!(open(&mut shares, holder(99, 0), true).is_none());
        assert_eq!(shares.total().0, 900);
    }

    #[tokio::test(start_paused = true)]
    async fn one_aircraft_alone_may_have_all_and_gives_it_back() {
        let mut shares = Shares::new(1_000);
        for _ in 0..1_000 {
            assert!(open(&mut shares, holder(1, 7), true).is_some());
        }
        assert!(open(&mut shares, holder(1, 7), true).is_none(), "all are in use");
        for _ in 0..500 {
            let (_, freed) = open(&mut shares, holder(2, 1), true).unwrap();
            assert_eq!(freed, Some(holder(1, 7)));
        }
        assert!(open(&mut shares, holder(2, 1), true).is_none());
        assert_eq!((shares.held(&[1; 32]), shares.held(&[2; 32])), (500, 500));
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_mappings_end_before_idle_ones() {
        let mut shares = Shares::new(4);
        let mut entry_ids = Vec::new();
        for is_answered in [true, false, true, true] {
            entry_ids.push(open(&mut shares, holder(1, 1), is_answered).unwrap().0);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(open(&mut shares, holder(1, 1), true).is_some());
        assert!(shares.remove(entry_ids[1]).is_none(), "it has ended for the newcomer");
        assert!(open(&mut shares, holder(1, 1), true).is_none());
        tokio::time::advance(MIN_IDLE).await;
        assert!(open(&mut shares, holder(1, 1), true).is_some());
        assert!(shares.remove(entry_ids[0]).is_none(), "it was the idlest");
        assert!(shares.remove(entry_ids[2]).is_some() && shares.remove(entry_ids[3]).is_some());
        assert_eq!(shares.total().0, 2);
    }

    /// A passenger with thousands of entries does not exclude the others of the aircraft.
    #[tokio::test(start_paused = true)]
    async fn passengers_of_one_aircraft_have_what_the_greediest_has_more() {
        let mut shares = Shares::new(300);
        while open(&mut shares, holder(1, 1), true).is_some() {}
        for n in 0..99 {
            assert_eq!(open(&mut shares, holder(1, 2), true).unwrap().1, Some(holder(1, 1)), "{n}");
            assert_eq!(open(&mut shares, holder(1, 3), true).unwrap().1, Some(holder(1, 1)), "{n}");
        }
        assert_eq!(shares.total().0, 300);
        while open(&mut shares, holder(1, 4), true).is_some() {}
        let of = |n| shares.aircraft[&[1; 32]].passengers[&n].entries.len();
        assert!((1..=4).all(|n| of(n).abs_diff(75) <= 1), "{:?}", [of(1), of(2), of(3), of(4)]);
    }

    #[test]
    fn nothing_is_kept_of_whoever_holds_nothing() {
        let mut shares = Shares::new(10);
        let entry_id = open(&mut shares, holder(1, 1), false).unwrap().0;
        assert!(shares.remove(entry_id).is_some() && shares.remove(entry_id).is_none());
        assert!(shares.aircraft.is_empty() && shares.total().0 == 0);
    }
}
