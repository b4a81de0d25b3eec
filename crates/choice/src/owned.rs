//! A bounded table whose entries have owners.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use bentpipe_flow::quota::Holdings;

use crate::Passenger;

/// Entries of passengers. When the table is full, the idlest entry goes of the passenger with most entries in
/// the aircraft with most. So an aircraft that invents passengers takes nothing from others.
pub struct Owned<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys by owner, the idlest of each first.
    order: BTreeMap<(Passenger, u64), K>,
    aircraft: Holdings<[u8; 32]>,
    passengers: HashMap<[u8; 32], Holdings<u32>>,
    max: usize,
    uses: u64,
}

struct Entry<V> {
    owner: Passenger,
    used: u64,
    value: V,
}

impl<K: Clone + Eq + Hash, V> Owned<K, V> {
    /// Creates a table for at most `max` entries.
    pub fn new(max: usize) -> Self {
        let (entries, order, aircraft, passengers) = Default::default();
        Self { entries, order, aircraft, passengers, max, uses: 0 }
    }

    /// Number of entries.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The value of `key`, which is used now.
    pub fn touch(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        self.order.remove(&(entry.owner, entry.used));
        self.order.insert((entry.owner, self.uses), key.clone());
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// The value of `key`, which is used now. Without one, `owner` gets what `create` returns.
    pub fn obtain(&mut self, key: &K, owner: Passenger, create: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(key) {
            self.make_room();
            self.aircraft.add(owner.0, 1);
            self.passengers.entry(owner.0).or_default().add(owner.1, 1);
            self.entries.insert(key.clone(), Entry { owner, used: 0, value: create() });
        }
        self.touch(key).expect("it was found or inserted")
    }

    fn make_room(&mut self) {
        if self.entries.len() < self.max {
            return;
        }
        let Some((aircraft, _)) = self.aircraft.largest() else { return };
        let Some(held) = self.passengers.get_mut(&aircraft) else { return };
        let Some((passenger, _)) = held.largest() else { return };
        let payer = (aircraft, passenger);
        let Some((&place, _)) = self.order.range((payer, 0)..).next() else { return };
        if let Some(key) = self.order.remove(&place) {
            self.entries.remove(&key);
            held.remove(passenger, 1);
            if held.is_empty() {
                self.passengers.remove(&aircraft);
            }
            self.aircraft.remove(aircraft, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_most_loses_the_idlest() {
        let (mine, others) = (([1; 32], 1), ([1; 32], 2));
        let mut table = Owned::new(4);
        table.obtain(&0, mine, || ());
        for key in 1..100 {
            table.obtain(&key, others, || ());
            table.touch(&1);
        }
        assert_eq!(table.len(), 4);
        assert!(table.get(&0).is_some(), "another's entry went");
        assert!(table.get(&1).is_some(), "an entry in use went");
        assert!(table.get(&99).is_some() && table.get(&2).is_none());
    }

    #[test]
    fn an_aircraft_that_invents_passengers_pays_itself() {
        let (mine, mut table) = ([1; 32], Owned::new(8));
        (0..3).for_each(|key| *table.obtain(&key, (mine, 1), || ()) = ());
        (100..200).for_each(|key| *table.obtain(&key, ([2; 32], key), || ()) = ());
        assert!((0..3).all(|key| table.get(&key).is_some()));
    }
}
