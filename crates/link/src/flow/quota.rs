//! Fair shares of the open datagram flows, and a count of refusals. DNS clients use a new port for
//! each query, and each flow stays open for its idle time.

use std::collections::{BTreeMap, BTreeSet};

/// Divisor of the open datagram flows for the largest share of one passenger: 256 of 2,048.
const PASSENGER_PART: usize = 8;

/// Open datagram flows by passenger.
#[derive(Debug, Default)]
pub struct DatagramQuota {
    flows: BTreeMap<u32, BTreeSet<u64>>,
    count: usize,
}

impl DatagramQuota {
    /// Number of open datagram flows.
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

    /// Flows of which one has to end before `passenger` may open another; `None` if none has to. At
    /// most `max` flows are allowed in total.
    ///
    /// - If the passenger has its full share, they are its own.
    /// - If all flows are taken, they are those of the passenger with the most.
    /// - If no passenger has more than this one, there is no room.
    pub fn victims(&self, passenger: u32, max: usize) -> Result<Option<&BTreeSet<u64>>, Full> {
        let own = self.flows.get(&passenger);
        let held = own.map_or(0, BTreeSet::len);
        if held >= (max / PASSENGER_PART).max(1) {
            return Ok(own);
        }
        if self.count < max {
            return Ok(None);
        }
        let largest = self.flows.values().max_by_key(|flows| flows.len());
        largest.filter(|flows| flows.len() > held).map(Some).ok_or(Full)
    }
}

/// Flows of a session that its limits refused or ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowRefusals {
    /// Flows that were not opened or accepted.
    pub refused: u64,
    /// Datagram flows that ended for others.
    pub ended: u64,
    /// Number of the last newcomer's passenger.
    pub passenger: u32,
    /// Open flows at that time.
    pub held: usize,
    /// The limit that was reached.
    pub max: usize,
}

impl FlowRefusals {
    /// Returns `true` if there were none.
    pub fn is_empty(&self) -> bool {
        self.refused + self.ended == 0
    }

    /// Counts a refusal or an end for a flow of `passenger`.
    pub fn count(&mut self, is_refused: bool, passenger: u32, held: usize, max: usize) {
        let count = if is_refused { &mut self.refused } else { &mut self.ended };
        *count += 1;
        (self.passenger, self.held, self.max) = (passenger, held, max);
    }
}

/// All flows are taken, and no passenger has more than the one that asks.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passenger_has_a_share_and_the_largest_holder_makes_room() {
        let (mut quota, max) = (DatagramQuota::default(), 16);
        assert_eq!(quota.victims(1, max), Ok(None));
        for flow in 0..2 {
            quota.enter(1, flow);
        }
        assert_eq!(quota.victims(1, max), Ok(Some(&BTreeSet::from([0, 1]))));
        for flow in 2..16 {
            quota.enter(flow as u32, flow);
        }
        assert_eq!(quota.count, max);
        assert_eq!(quota.victims(99, max), Ok(Some(&BTreeSet::from([0, 1]))));
        quota.leave(1, 0);
        quota.leave(1, 0);
        assert_eq!((quota.count, quota.victims(99, max)), (max - 1, Ok(None)));
        quota.enter(99, 16);
        assert_eq!(quota.victims(5, max), Err(Full), "all have one");
        assert!(quota.victims(100, max).is_ok_and(|flows| flows.is_some_and(|it| it.len() == 1)));
    }
}
