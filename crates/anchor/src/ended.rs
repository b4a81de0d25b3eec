//! Order of the ended flows that an egress remembers, shared among the aircraft.

use std::collections::{BTreeMap, VecDeque};

use crate::ticket::FlowId;

/// Maximum number of ended flows whose reason is kept for their air.
pub const MAX_ENDED: usize = 4_096;

/// Maximum number of these flows of one aircraft.
pub const MAX_ENDED_OF_AIRCRAFT: usize = 1_024;

/// Ended flows of all aircraft.
#[derive(Debug, Default)]
pub struct Ended {
    /// Flows of each aircraft, the oldest first. No queue is empty.
    flows: BTreeMap<[u8; 32], VecDeque<FlowId>>,
    count: usize,
}

impl Ended {
    /// Remembers a flow. Returns the flow to forget if there are too many: the oldest of the aircraft
    /// that has too many, or of the aircraft with most.
    pub fn push(&mut self, aircraft: [u8; 32], id: FlowId) -> Option<([u8; 32], FlowId)> {
        let own = self.flows.entry(aircraft).or_default();
        own.push_back(id);
        self.count += 1;
        let payer = if own.len() > MAX_ENDED_OF_AIRCRAFT {
            aircraft
        } else if self.count > MAX_ENDED {
            *self.flows.iter().max_by_key(|(_, flows)| flows.len())?.0
        } else {
            return None;
        };
        let flows = self.flows.get_mut(&payer)?;
        let oldest = flows.pop_front()?;
        if flows.is_empty() {
            self.flows.remove(&payer);
        }
        self.count -= 1;
        Some((payer, oldest))
    }

    /// All flows, those of an aircraft in the order of their ends.
    pub fn iter(&self) -> impl Iterator<Item = ([u8; 32], FlowId)> {
        self.flows.iter().flat_map(|(aircraft, flows)| flows.iter().map(|id| (*aircraft, *id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> FlowId {
        (number as u128).to_be_bytes()
    }

    #[test]
    fn an_aircraft_with_many_flows_costs_others_none() {
        let mut ended = Ended::default();
        for number in 0..MAX_ENDED_OF_AIRCRAFT {
            assert_eq!(ended.push([1; 32], id(number)), None);
        }
        let oldest = ended.push([1; 32], id(9_999));
        assert_eq!(oldest, Some(([1; 32], id(0))), "its own share is full");
        let mut forgotten = BTreeMap::<_, usize>::new();
        for number in 0..2 * MAX_ENDED {
            // 200 aircraft with few flows each.
            if let Some((payer, _)) = ended.push([2 + (number % 200) as u8; 32], id(number)) {
                *forgotten.entry(payer).or_default() += 1;
            }
            if number == 3_000 {
                assert!(forgotten.is_empty());
            }
        }
        assert_eq!(ended.flows.values().map(VecDeque::len).sum::<usize>(), MAX_ENDED);
        assert_eq!(ended.count, MAX_ENDED);
        let (of_first, fair) = (ended.flows[&[1; 32]].len(), MAX_ENDED / 201);
        assert!((fair..fair + 2).contains(&of_first), "the largest pays: {of_first}");
    }
}
