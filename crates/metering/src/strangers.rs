//! Counts and logs what the link refuses.

use std::time::Duration;

use bentpipe_link::{FlowsRefused, MemoryRefused, Refused};
use tokio::time::sleep;

use crate::counters::Counters;
use crate::refusals::{Holding, Limit};

/// Polling interval.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum number of handshakes of unknown senders that a ground gateway processes per second; each
/// takes two curve operations.
pub const MAX_HANDSHAKES: usize = 500;

/// Counts the refusals that `take` returns since its previous call. `most` is the limit in the log.
/// Never returns.
pub async fn count(take: impl Fn() -> Refused, most: usize, counters: &Counters) {
    loop {
        sleep(LOOK).await;
        let refused = take();
        counters.link_strangers.add(refused.datagrams);
        counters.link_overflow_aircraft.add(refused.overflow.aircraft);
        counters.link_overflow_handshakes.add(refused.overflow.handshakes);
        count_handshakes(&refused, most, counters);
        if let Some(memory) = &refused.memory {
            count_memory(memory, counters);
        }
        if let Some(flows) = &refused.flows {
            count_flows(flows, counters);
        }
    }
}

fn count_handshakes(refused: &Refused, most: usize, counters: &Counters) {
    let Refused { handshakes, busiest, .. } = *refused;
    if handshakes == 0 {
        return;
    }
    counters.refusals.refused_times(Limit::Handshakes, handshakes, || {
        let (newcomer, holds) =
            busiest.map(|(ip, count)| (ip.to_string(), count)).unwrap_or_default();
        let (holds, held) = (holds as usize, handshakes as usize);
        let largest = Some((newcomer.clone(), holds));
        Holding { newcomer, holds, held, most, largest }
    });
}

fn count_memory(memory: &MemoryRefused, counters: &Counters) {
    let who = || {
        let (newcomer, holds) = memory.newcomer.clone().unwrap_or_default();
        let largest = memory.largest.clone().map(|(name, bytes)| (name, bytes as usize));
        let (held, most) = (memory.held as usize, memory.max as usize);
        Holding { newcomer, holds: holds as usize, held, most, largest }
    };
    if memory.refused > 0 {
        counters.refusals.refused_times(Limit::Memory, memory.refused, who);
    }
    for _ in 0..memory.ended {
        counters.refusals.evicted(Limit::Memory, who);
    }
}

fn count_flows(refused: &FlowsRefused, counters: &Counters) {
    let FlowsRefused { session, flows } = refused;
    let who = || Holding {
        newcomer: format!("{session} (passenger {})", flows.passenger).trim_start().to_owned(),
        held: flows.held,
        most: flows.max,
        ..Holding::default()
    };
    if flows.refused > 0 {
        counters.refusals.refused_times(Limit::LinkFlows, flows.refused, who);
    }
    for _ in 0..flows.ended {
        counters.refusals.evicted(Limit::LinkFlows, who);
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_link::{FlowRefusals, Overflow};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refused_strangers_are_counted() {
        let memory = MemoryRefused {
            refused: 5,
            ended: 2,
            newcomer: Some(("here".to_owned(), 1)),
            largest: Some(("there".to_owned(), 9)),
            held: 10,
            max: 11,
        };
        let busiest = Some(([192, 0, 2, 1].into(), 2));
        let overflow = Overflow { aircraft: 4, handshakes: 1 };
        let memory = Some(memory);
        let flows = FlowRefusals { refused: 2, ended: 1, passenger: 7, held: 8, max: 8 };
        let flows = Some(FlowsRefused { session: "D-A".to_owned(), flows });
        let refused = Refused { datagrams: 7, handshakes: 3, busiest, memory, overflow, flows };
        let counters = Counters::default();
        let counting = count(|| refused.clone(), MAX_HANDSHAKES, &counters);
        let waited = tokio::time::timeout(2 * LOOK + LOOK / 2, counting).await;
        assert!(waited.is_err(), "it goes on");
        assert_eq!(counters.link_strangers.get(), 14);
        assert_eq!(counters.link_overflow_aircraft.get(), 8);
        assert_eq!(counters.link_overflow_handshakes.get(), 2);
        assert_eq!(counters.refusals.count_refused(Limit::Handshakes), 6);
        assert_eq!(counters.refusals.count_refused(Limit::Memory), 10);
        assert_eq!(counters.refusals.count_evicted(Limit::Memory), 4);
        assert_eq!(counters.refusals.count_refused(Limit::LinkFlows), 4);
        assert_eq!(counters.refusals.count_evicted(Limit::LinkFlows), 2);
    }
}
