//! The egress's table of flows: who may attach a carrier to which.
//!
//! An aircraft's sessions are ordered by the counter of their handshakes. Its air never uses a counter
//! twice. Once the egress has seen a session, carriers of earlier ones are refused: their hub is not
//! the aircraft's any more. Within a session the carriers of a flow are numbered.

use std::collections::{HashMap, hash_map};
use std::time::Duration;

use bentpipe_flow::ResetCode;

use crate::ended::Ended;
use crate::ticket::{EgressId, FlowId, Ticket, TicketKey};

/// Maximum number of aircraft. An aircraft beyond it is refused until the egress restarts.
pub const MAX_AIRCRAFT: usize = 65_536;

/// Origin of a carrier. Its hub asserts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Public key of the aircraft.
    pub aircraft: [u8; 32],
    /// Handshake counter of its session with the hub.
    pub session: u64,
}

/// Refusal of a carrier. It has no reason, so that a thief learns nothing from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The flow is unknown, or the caller has no right to it.
    Unknown,
    /// The flow has ended, as the caller may know.
    Ended(ResetCode),
}

impl Refusal {
    /// Code with which the flow ends at the air.
    pub fn code(self) -> ResetCode {
        match self {
            Self::Unknown => ResetCode::Aborted,
            Self::Ended(code) => code,
        }
    }
}

type Key = ([u8; 32], FlowId);

struct Entry<F> {
    state: State<F>,
    /// Number of the flow's last carrier.
    attempt: u32,
}

enum State<F> {
    Open(F),
    /// Over at this end. Its air may have missed the last confirmation.
    Done(F),
    Ended(ResetCode),
}

/// Contents of a registry that are not open flows.
#[derive(Debug)]
pub struct Memory<F> {
    /// Highest session of each aircraft.
    pub sessions: Vec<([u8; 32], u64)>,
    /// Flows that have ended, those of an aircraft in the order of their ends.
    pub ended: Vec<Remembered<F>>,
}

/// A flow that has ended.
#[derive(Debug)]
pub struct Remembered<F> {
    /// Public key of the aircraft.
    pub aircraft: [u8; 32],
    /// The flow.
    pub id: FlowId,
    /// Number of its last carrier.
    pub attempt: u32,
    /// Its handle if it is done, or the reason of its end.
    pub outcome: Result<F, ResetCode>,
}

/// The flows, with an owner's handle on each.
pub struct Registry<F> {
    key: TicketKey,
    flows: HashMap<Key, Entry<F>>,
    /// Ended flows that are remembered.
    ended: Ended,
    /// Highest session of each aircraft.
    sessions: HashMap<[u8; 32], u64>,
}

impl<F: Clone> Registry<F> {
    /// Creates an empty table, whose tickets are sealed with `key`.
    pub fn new(key: TicketKey) -> Self {
        Self { key, flows: HashMap::new(), ended: Ended::default(), sessions: HashMap::new() }
    }

    /// Continues with the memory of an earlier registry.
    pub fn continued(key: TicketKey, memory: Memory<F>) -> Self {
        let mut registry = Self::new(key);
        registry.sessions = memory.sessions.into_iter().collect();
        for Remembered { aircraft, id, attempt, outcome } in memory.ended {
            let state = match outcome {
                Ok(flow) => State::Done(flow),
                Err(code) => State::Ended(code),
            };
            registry.flows.insert((aircraft, id), Entry { state, attempt });
            if let Some(oldest) = registry.ended.push(aircraft, id) {
                registry.flows.remove(&oldest);
            }
        }
        registry
    }

    /// Returns what the next registry has to know, apart from open flows.
    pub fn memory(&self) -> Memory<F> {
        let sessions = self.sessions.iter().map(|(aircraft, session)| (*aircraft, *session));
        let remembered = |(aircraft, id)| {
            let entry = self.flows.get(&(aircraft, id))?;
            let outcome = match &entry.state {
                State::Open(flow) | State::Done(flow) => Ok(flow.clone()),
                State::Ended(code) => Err(*code),
            };
            Some(Remembered { aircraft, id, attempt: entry.attempt, outcome })
        };
        let ended = self.ended.iter().filter_map(remembered).collect();
        Memory { sessions: sessions.collect(), ended }
    }

    /// Takes an open flow out, for another registry. Returns the number of its last carrier.
    pub fn take(&mut self, aircraft: [u8; 32], id: FlowId) -> Option<u32> {
        let key = (aircraft, id);
        match self.flows.get(&key)?.state {
            State::Open(_) => self.flows.remove(&key).map(|entry| entry.attempt),
            _ => None,
        }
    }

    /// Adds an open flow of another registry. Returns `false` if the flow is known.
    pub fn adopt(&mut self, aircraft: [u8; 32], id: FlowId, attempt: u32, flow: F) -> bool {
        let entry = self.flows.entry((aircraft, id));
        let is_new = matches!(entry, hash_map::Entry::Vacant(_));
        entry.or_insert(Entry { state: State::Open(flow), attempt });
        is_new
    }

    /// Key of the tickets.
    pub fn key(&self) -> &TicketKey {
        &self.key
    }

    /// Admits the carrier of an OPEN. A new flow gets its handle from `create`; `true` tells that it is
    /// new.
    pub fn open(
        &mut self,
        caller: &Caller,
        id: FlowId,
        attempt: u32,
        create: impl FnOnce() -> F,
    ) -> Result<(F, bool), Refusal> {
        let key = (caller.aircraft, id);
        if self.flows.get(&key).is_some_and(|entry| attempt <= entry.attempt) {
            return Err(Refusal::Unknown);
        }
        self.fence(caller)?;
        if let Some(entry) = self.flows.get_mut(&key) {
            return entry.attach(attempt).map(|flow| (flow, false));
        }
        let flow = create();
        self.flows.insert(key, Entry { state: State::Open(flow.clone()), attempt });
        Ok((flow, true))
    }

    /// Admits the carrier of a RESUME.
    pub fn resume(
        &mut self,
        caller: &Caller,
        (id, attempt): (FlowId, u32),
        ticket: &Ticket,
        now: Duration,
    ) -> Result<F, Refusal> {
        // First, so that neither a forged ticket nor a late carrier moves the fence.
        if !self.key.holds(ticket, &caller.aircraft, &id, caller.session, now) {
            return Err(Refusal::Unknown);
        }
        let key = (caller.aircraft, id);
        if self.flows.get(&key).is_none_or(|entry| attempt <= entry.attempt) {
            return Err(Refusal::Unknown);
        }
        self.fence(caller)?;
        self.flows.get_mut(&key).ok_or(Refusal::Unknown)?.attach(attempt)
    }

    /// Number of the egress.
    pub fn egress(&self) -> EgressId {
        self.key.egress()
    }

    /// Issues a ticket for a flow.
    pub fn ticket(&self, caller: &Caller, id: &FlowId, now: Duration) -> Ticket {
        self.key.issue(&caller.aircraft, id, caller.session, now)
    }

    /// Ends a flow: it is done, or over for `reason`. Both are kept for its air, which may ask again.
    pub fn end(&mut self, aircraft: [u8; 32], id: FlowId, reason: Option<ResetCode>) {
        let Some(entry) = self.flows.get_mut(&(aircraft, id)) else { return };
        let is_remembered = !matches!(entry.state, State::Open(_));
        entry.state = match (reason, &entry.state) {
            (Some(code), _) => State::Ended(code),
            (None, State::Open(flow)) => State::Done(flow.clone()),
            (None, _) => return,
        };
        if !is_remembered && let Some(oldest) = self.ended.push(aircraft, id) {
            self.flows.remove(&oldest);
        }
    }

    /// Number of flows that have not ended.
    pub fn len(&self) -> usize {
        self.flows.values().filter(|entry| matches!(entry.state, State::Open(_))).count()
    }

    /// Returns `true` if there is no flow.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses callers of an earlier session than the highest.
    fn fence(&mut self, caller: &Caller) -> Result<(), Refusal> {
        if self.sessions.len() >= MAX_AIRCRAFT && !self.sessions.contains_key(&caller.aircraft) {
            return Err(Refusal::Unknown);
        }
        let highest = self.sessions.entry(caller.aircraft).or_default();
        if caller.session < *highest {
            return Err(Refusal::Ended(ResetCode::Lost));
        }
        *highest = caller.session;
        Ok(())
    }
}

impl<F: Clone> Entry<F> {
    /// Admits carrier number `attempt`, which is higher than the last.
    fn attach(&mut self, attempt: u32) -> Result<F, Refusal> {
        self.attempt = attempt;
        match &self.state {
            State::Open(flow) | State::Done(flow) => Ok(flow.clone()),
            State::Ended(code) => Err(Refusal::Ended(*code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ended::MAX_ENDED_OF_AIRCRAFT;

    const NOW: Duration = Duration::from_secs(1);

    fn registry() -> Registry<u32> {
        Registry::new(TicketKey::new([1; 32], [2; 8]))
    }

    fn caller(session: u64) -> Caller {
        Caller { aircraft: [3; 32], session }
    }

    #[test]
    fn a_carrier_is_admitted_once() {
        let (mut registry, id) = (registry(), [4; 16]);
        assert_eq!(registry.open(&caller(1), id, 0, || 7), Ok((7, true)));
        assert_eq!(registry.open(&caller(1), id, 0, || 8), Err(Refusal::Unknown), "a recording");
        assert_eq!(registry.open(&caller(1), id, 1, || 8), Ok((7, false)), "the answer was lost");
        let ticket = registry.ticket(&caller(1), &id, NOW);
        assert_eq!(registry.resume(&caller(1), (id, 2), &ticket, NOW), Ok(7));
        assert_eq!(registry.resume(&caller(2), (id, 2), &ticket, NOW), Err(Refusal::Unknown));
        assert_eq!(registry.resume(&caller(2), (id, 3), &ticket, NOW), Ok(7));
    }

    #[test]
    fn the_highest_session_owns_the_flows() {
        let (mut registry, id) = (registry(), [4; 16]);
        registry.open(&caller(5), id, 0, || 7).unwrap();
        let ticket = registry.ticket(&caller(5), &id, NOW);
        assert_eq!(registry.resume(&caller(6), (id, 1), &ticket, NOW), Ok(7));
        let late = Err(Refusal::Ended(ResetCode::Lost));
        assert_eq!(registry.resume(&caller(5), (id, 9), &ticket, NOW), late);
        assert_eq!(registry.open(&caller(5), [9; 16], 0, || 8).map(|it| it.0), late);
        let thief = Caller { aircraft: [8; 32], session: 100 };
        assert_eq!(registry.resume(&thief, (id, 50), &ticket, NOW), Err(Refusal::Unknown));
        assert_eq!(registry.resume(&caller(6), (id, 2), &ticket, NOW), Ok(7), "nothing moved");
    }

    #[test]
    fn the_reason_of_an_end_is_kept_for_its_air() {
        let (mut registry, id) = (registry(), [4; 16]);
        registry.open(&caller(5), id, 0, || 7).unwrap();
        let ticket = registry.ticket(&caller(5), &id, NOW);
        registry.end([3; 32], id, Some(ResetCode::Refused));
        assert!(registry.is_empty());
        let reason = Err(Refusal::Ended(ResetCode::Refused));
        assert_eq!(registry.resume(&caller(6), (id, 1), &ticket, NOW), reason);
        registry.open(&caller(6), [5; 16], 0, || 8).unwrap();
        registry.end([3; 32], [5; 16], None);
        let ticket = registry.ticket(&caller(6), &[5; 16], NOW);
        assert_eq!(registry.resume(&caller(6), ([5; 16], 1), &ticket, NOW), Ok(8), "its last word");
        for other in 0..=MAX_ENDED_OF_AIRCRAFT as u32 {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&other.to_be_bytes());
            registry.open(&caller(6), id, 0, || 1).unwrap();
            registry.end([3; 32], id, Some(ResetCode::Idle));
        }
        assert_eq!(registry.flows.len(), MAX_ENDED_OF_AIRCRAFT, "the oldest is gone");
    }
}
