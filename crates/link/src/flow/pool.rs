//! Shared memory: who may have how much of it, on its way to us or waiting to leave.
//!
//! Every flow has its reserve, set aside for as many flows as may be open. What is left is lent on
//! top: a flow asks for what fills its link or its buffer, and gets a share of what is still free, so that the
//! first flows get all they can use and later ones smoothly less, never nothing. No passenger
//! holds more than a quarter of it.

use std::collections::BTreeMap;

use super::Pressure;

/// A flow is lent at most this part of what is free: with 256 MiB free, 4 MiB.
const FLOW_PART: u64 = 64;
/// A passenger is lent at most this part of the whole.
const PASSENGER_PART: u64 = 4;

/// Accounts for what is lent beyond the flows' reserves.
#[derive(Debug)]
pub struct Pool {
    shared: u64,
    lent: u64,
    passengers: BTreeMap<u32, u64>,
    /// Memory that others use too is short while it is on.
    pressure: Pressure,
}

impl Pool {
    /// A pool that may lend `shared` bytes.
    pub fn new(shared: u64) -> Self {
        Self { shared, lent: 0, passengers: BTreeMap::new(), pressure: Pressure::default() }
    }

    /// Nothing more is lent while `pressure` is on.
    pub fn heed(&mut self, pressure: Pressure) {
        self.pressure = pressure;
    }

    /// Total loan for a flow of `passenger` that wants `want` and has `now`.
    pub fn offer(&self, passenger: u32, want: u64, now: u64) -> u64 {
        if self.pressure.is_on() {
            return want.min(now);
        }
        let passenger_lent = self.passengers.get(&passenger).copied().unwrap_or(0);
        let free = self.shared - self.lent;
        let passenger_free = (self.shared / PASSENGER_PART).saturating_sub(passenger_lent);
        want.min(now + (free / FLOW_PART).min(passenger_free))
    }

    /// A flow of `passenger` is now lent `now` in place of `before`.
    pub fn settle(&mut self, passenger: u32, before: u64, now: u64) {
        self.lent = self.lent - before + now;
        let of_passenger = self.passengers.entry(passenger).or_insert(0);
        *of_passenger = *of_passenger - before + now;
        if *of_passenger == 0 {
            self.passengers.remove(&passenger);
        }
    }

    #[cfg(test)]
    pub fn lent(&self) -> u64 {
        self.lent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_more_is_lent_than_there_is(asks in proptest::collection::vec((0u32..6, 0u64..1 << 22), 1..500)) {
            let shared = 16 << 20;
            let mut pool = Pool::new(shared);
            let mut held = BTreeMap::new();
            for (index, (passenger, want)) in asks.into_iter().enumerate() {
                let offer = pool.offer(passenger, want, 0);
                pool.settle(passenger, 0, offer);
                held.insert(index, (passenger, offer));
                if index % 3 == 0 {
                    let (_, (passenger, before)) = held.pop_first().unwrap();
                    pool.settle(passenger, before, 0);
                }
                prop_assert!(pool.lent() <= shared);
                for passenger in 0..6 {
                    let own: u64 = held.values().filter(|(who, _)| *who == passenger).map(|(_, lent)| lent).sum();
                    prop_assert!(own <= shared / 4);
                }
            }
        }
    }

    #[test]
    fn while_memory_is_short_nobody_is_lent_more_than_it_has() {
        let (mut pool, pressure) = (Pool::new(256 << 20), Pressure::default());
        pool.heed(pressure.clone());
        pool.settle(1, 0, 5_000);
        pressure.set(true);
        assert_eq!([pool.offer(1, 9_000, 5_000), pool.offer(2, 9_000, 0)], [5_000, 0]);
        pressure.set(false);
        assert_eq!(pool.offer(2, 9_000, 0), 9_000);
    }

    #[test]
    fn a_lone_flow_gets_what_it_wants_and_a_late_one_something() {
        let mut pool = Pool::new(256 << 20);
        assert_eq!(pool.offer(1, 1_440_000, 0), 1_440_000);
        for passenger in 0..1000 {
            let offer = pool.offer(passenger, 1_440_000, 0);
            pool.settle(passenger, 0, offer);
        }
        assert!(pool.offer(2000, 1_440_000, 0) > 0);
    }
}
