//! Fair holding of datagram flows: names are resolved from ever new ports, and each flow stays for
//! its idle time.

use std::collections::{BTreeMap, BTreeSet};

/// Largest part of the open datagram flows for one passenger: 256 of 2,048.
const PART_OF_ONE: usize = 8;

/// Flows that are not over, by passenger.
#[derive(Debug, Default)]
pub struct Crowd {
    flows: BTreeMap<u32, BTreeSet<u64>>,
    count: usize,
}

impl Crowd {
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn enter(&mut self, passenger: u32, flow: u64) {
        self.count += usize::from(self.flows.entry(passenger).or_default().insert(flow));
    }

    pub fn leave(&mut self, passenger: u32, flow: u64) {
        let Some(flows) = self.flows.get_mut(&passenger) else { return };
        self.count -= usize::from(flows.remove(&flow));
        if flows.is_empty() {
            self.flows.remove(&passenger);
        }
    }

    /// Flows of which one is to end before `passenger` may have another, with `most` allowed in
    /// all. They are the passenger's own if it has its full part, and otherwise, if all are taken,
    /// those of the passenger with most. A passenger with as many as that one finds no room.
    pub fn pays(&self, passenger: u32, most: usize) -> Result<Option<&BTreeSet<u64>>, Full> {
        let own = self.flows.get(&passenger);
        let held = own.map_or(0, BTreeSet::len);
        if held >= (most / PART_OF_ONE).max(1) {
            return Ok(own);
        }
        if self.count < most {
            return Ok(None);
        }
        let fattest = self.flows.values().max_by_key(|flows| flows.len());
        fattest.filter(|flows| flows.len() > held).map(Some).ok_or(Full)
    }
}

/// All flows are taken, and nobody has more than who asks.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passenger_has_a_part_and_who_has_most_makes_room() {
        let (mut crowd, most) = (Crowd::default(), 16);
        assert_eq!(crowd.pays(1, most), Ok(None));
        for flow in 0..2 {
            crowd.enter(1, flow);
        }
        assert_eq!(crowd.pays(1, most), Ok(Some(&BTreeSet::from([0, 1]))));
        for flow in 2..16 {
            crowd.enter(flow as u32, flow);
        }
        assert_eq!(crowd.count, most);
        assert_eq!(crowd.pays(99, most), Ok(Some(&BTreeSet::from([0, 1]))));
        crowd.leave(1, 0);
        crowd.leave(1, 0);
        assert_eq!((crowd.count, crowd.pays(99, most)), (most - 1, Ok(None)));
        crowd.enter(99, 16);
        assert_eq!(crowd.pays(5, most), Err(Full), "all have one");
        assert!(crowd.pays(100, most).is_ok_and(|flows| flows.is_some_and(|it| it.len() == 1)));
    }
}
