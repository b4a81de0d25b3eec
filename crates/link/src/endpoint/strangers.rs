//! Counts of what an end refused.

use std::net::IpAddr;

use crate::flow::FlowRefusals;

/// Addresses that are counted one by one.
const MAX_CALLERS: usize = 8;

/// Refusals of an end since it was asked last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Datagrams that were for nobody here.
    pub datagrams: u64,
    /// Handshakes with a right mac1 that the budget of the curve, or the lack of a proof of their address,
    /// kept from being read, or that no aircraft had made.
    pub handshakes: u64,
    /// An address from which most of these handshakes came, and a lower bound of their number. Nobody has
    /// proved that it is a true one.
    pub busiest: Option<(IpAddr, u64)>,
    /// At the ground: refusals for the memory of all sessions; `None` without any.
    pub memory: Option<MemoryRefused>,
    /// At a ground in several shards: datagrams that a shard was too slow for.
    pub overflow: Overflow,
    /// Flows that the limits of sessions refused or ended; `None` without any.
    pub flows: Option<FlowsRefused>,
}

/// Flows that the limits of sessions refused or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowsRefused {
    /// Label of the session with the last one; empty at the air.
    pub session: String,
    /// Counts of all sessions, and the last newcomer.
    pub flows: FlowRefusals,
}

/// Datagrams that were dropped because their sender's share of an inbox was full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overflow {
    /// Datagrams with the receiver index of an aircraft.
    pub aircraft: u64,
    /// Handshakes.
    pub handshakes: u64,
}

impl Overflow {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            aircraft: self.aircraft + other.aircraft,
            handshakes: self.handshakes + other.handshakes,
        }
    }
}

/// Refusals for the memory that all sessions of a hub share, with who holds how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRefused {
    /// Times that a writer had to wait, because its session held its share.
    pub refused: u64,
    /// Sessions of silent aircraft that ended.
    pub ended: u64,
    /// The last aircraft whose writer had to wait, and the bytes that its session holds.
    pub newcomer: Option<(String, u64)>,
    /// The aircraft whose session holds the most bytes, and their number.
    pub largest: Option<(String, u64)>,
    /// Bytes that all sessions hold.
    pub held: u64,
    /// Memory of all sessions.
    pub max: u64,
}

impl Refused {
    /// Refusals of two shards together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let memory = match (self.memory, other.memory) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        };
        Self {
            datagrams: self.datagrams + other.datagrams,
            handshakes: self.handshakes + other.handshakes,
            busiest: self.busiest.into_iter().chain(other.busiest).max_by_key(|(_, count)| *count),
            memory,
            overflow: self.overflow.and(other.overflow),
            flows: match (self.flows, other.flows) {
                (Some(one), Some(other)) => Some(one.and(other)),
                (one, other) => one.or(other),
            },
        }
    }
}

impl FlowsRefused {
    /// Adds the refusals of `other`, which are later.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let (refused, ended) = (self.flows.refused, self.flows.ended);
        let FlowsRefused { session, mut flows } = other;
        flows.refused += refused;
        flows.ended += ended;
        Self { session, flows }
    }
}

impl MemoryRefused {
    fn and(self, other: Self) -> Self {
        let largest = self.largest.into_iter().chain(other.largest).max_by_key(|(_, held)| *held);
        Self {
            refused: self.refused + other.refused,
            ended: self.ended + other.ended,
            newcomer: self.newcomer.or(other.newcomer),
            largest,
            held: self.held.max(other.held),
            max: self.max,
        }
    }
}

/// Refused handshakes by caller, in constant memory (Misra and Gries, "Finding repeated elements", 1982).
#[derive(Debug, Default)]
pub struct Callers {
    total: u64,
    counts: Vec<(IpAddr, u64)>,
}

impl Callers {
    /// Counts a handshake from `caller`.
    pub fn refused(&mut self, caller: IpAddr) {
        self.total += 1;
        if let Some((_, count)) = self.counts.iter_mut().find(|(known, _)| *known == caller) {
            *count += 1;
        } else if self.counts.len() < MAX_CALLERS {
            self.counts.push((caller, 1));
        } else {
            self.counts.iter_mut().for_each(|(_, count)| *count -= 1);
            self.counts.retain(|(_, count)| *count > 0);
        }
    }

    /// The counts since the last call, together with those of dropped `datagrams`.
    pub fn take(&mut self, datagrams: u64) -> Refused {
        let Self { total, counts } = std::mem::take(self);
        let busiest = counts.into_iter().max_by_key(|(_, count)| *count);
        Refused { datagrams, handshakes: total, busiest, ..Refused::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_caller_is_known_among_many() {
        let mut callers = Callers::default();
        let caller = |n: u16| IpAddr::from([10, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
        for n in 0..3_000 {
            callers.refused(caller(n));
            callers.refused(caller(7));
        }
        let Refused { datagrams, handshakes, busiest, .. } = callers.take(5);
        assert_eq!((datagrams, handshakes), (5, 6_000));
        let (busiest, count) = busiest.unwrap();
        assert_eq!(busiest, caller(7));
        assert!((1..=3_001).contains(&count), "{count}");
        assert_eq!(callers.take(0), Refused::default());
    }
}
