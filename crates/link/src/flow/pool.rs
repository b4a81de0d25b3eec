//! Shared memory, lent to flows on top of their reserves.
//!
//! Every flow has a reserve, set aside for the maximum number of flows. The rest is lent: a flow asks
//! for what fills its link or its buffer, and gets a part of what is free at each call. So the first
//! flows soon get all they can use, and later flows less. A passenger who holds a quarter of the pool
//! is lent nothing more.

use std::collections::BTreeMap;

use super::Pressure;

/// Divisor of the free memory for one increase of a flow's loan: with 256 MiB free, 4 MiB.
const FLOW_PART: u64 = 64;
/// Divisor of the pool for the largest loan to a passenger.
const PASSENGER_PART: u64 = 4;

/// Accounts of the memory lent beyond the flows' reserves.
#[derive(Debug)]
pub struct Pool {
    shared: u64,
    lent: u64,
    passengers: BTreeMap<u32, u64>,
    /// Shortage of memory that other sessions use too.
    pressure: Pressure,
}

impl Pool {
    /// Creates a pool that may lend `shared` bytes.
    pub fn new(shared: u64) -> Self {
        Self { shared, lent: 0, passengers: BTreeMap::new(), pressure: Pressure::default() }
    }

    /// Lends nothing more while `pressure` is on.
    pub fn set_pressure(&mut self, pressure: Pressure) {
        self.pressure = pressure;
    }

    /// Total loan for a flow of `passenger` that wants `want` and has `held`.
    pub fn offer(&self, passenger: u32, want: u64, held: u64) -> u64 {
        if self.pressure.is_on() {
            return want.min(held);
        }
        let passenger_lent = self.passengers.get(&passenger).copied().unwrap_or(0);
        let free = self.shared - self.lent;
        let passenger_free = (self.shared / PASSENGER_PART).saturating_sub(passenger_lent);
        want.min(held + (free / FLOW_PART).min(passenger_free))
    }

    /// Changes the loan of a flow of `passenger` from `before` to `now`.
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
    use crate::flow::Lending;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn loans_never_exceed_the_pool(asks in proptest::collection::vec((0u32..6, 0u64..1 << 22), 1..500)) {
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
    fn under_pressure_no_loan_grows() {
        let (mut pool, pressure) = (Pool::new(256 << 20), Pressure::default());
        pool.set_pressure(pressure.clone());
        pool.settle(1, 0, 5_000);
        pressure.set(Lending::NoLoans);
        assert_eq!([pool.offer(1, 9_000, 5_000), pool.offer(2, 9_000, 0)], [5_000, 0]);
        pressure.set(Lending::Free);
        assert_eq!(pool.offer(2, 9_000, 0), 9_000);
    }

    #[test]
    fn a_lone_flow_gets_all_it_wants_and_a_late_one_gets_some() {
        let mut pool = Pool::new(256 << 20);
        assert_eq!(pool.offer(1, 1_440_000, 0), 1_440_000);
        for passenger in 0..1000 {
            let offer = pool.offer(passenger, 1_440_000, 0);
            pool.settle(passenger, 0, offer);
        }
        assert!(pool.offer(2000, 1_440_000, 0) > 0);
    }
}
