//! Claims: what a flow's class would be if its name were true, and that it is.

use std::time::Duration;

use bentpipe_schedule::Class;

use super::table::FlowTable;
use super::{FlowEvent, Violation};
use crate::claim::Claim;

impl FlowTable {
    /// The claim travels behind the flow's OPEN, which has not left yet.
    pub fn claim(&mut self, id: u64, claim: Claim) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.control.open.is_some()) {
            flow.claim = Some(claim);
            flow.control.claim = true;
        }
    }

    /// Claim made when the flow was opened.
    pub fn claim_of(&self, id: u64) -> Option<&Claim> {
        self.flows.get(&id)?.claim.as_ref()
    }

    /// Confirms the peer's claim: the flow is of `class` from now on, at both ends.
    pub fn confirm(&mut self, id: u64, class: Class, now: Duration) {
        let class = class.max(self.highest_class); // the most favoured is the least
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.ended.is_some() || flow.claim.is_none() {
            return;
        }
        flow.confirmed = Some(class);
        flow.control.class = true;
        self.queue_control(id);
        self.reclass(id, class, now);
    }

    /// Moves what this end sends by the flow to `class` from now on, if that is no better. Its
    /// bytes stay in their order: they wait in the flow, not in the class.
    pub fn demote(&mut self, id: u64, class: Class, now: Duration) {
        if self.flows.get(&id).is_some_and(|flow| flow.class < class) {
            self.reclass(id, class, now);
        }
    }

    /// The class that the ground gave the flow for its claim, once it has.
    pub fn confirmed(&self, id: u64) -> Option<Class> {
        self.flows.get(&id)?.confirmed
    }

    pub(super) fn peer_claims(
        &mut self,
        id: u64,
        claim: Claim,
        now: Duration,
    ) -> Result<(), Violation> {
        if self.terms.opens {
            return Err(Violation("only the air claims"));
        }
        if let Some(flow) = self.live(id, now)? {
            flow.claim.get_or_insert(claim);
        }
        Ok(())
    }

    pub(super) fn peer_confirms(
        &mut self,
        id: u64,
        class: Class,
        now: Duration,
    ) -> Result<(), Violation> {
        if !self.terms.opens {
            return Err(Violation("only the ground confirms claims"));
        }
        let Some(flow) = self.live(id, now)? else { return Ok(()) };
        let Some(claim) = &flow.claim else {
            return Err(Violation("a class for a flow that claimed none"));
        };
        // No more than was asked for.
        let class = class.max(claim.class);
        flow.confirmed = Some(class);
        self.reclass(id, class, now);
        self.events.push_back(FlowEvent::Wake(id));
        Ok(())
    }

    /// The flow goes on in another class.
    fn reclass(&mut self, id: u64, class: Class, now: Duration) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.class = class;
        if let Some(turn) = flow.turn {
            self.scheduler.reclass(turn, class, now);
        }
        self.count_ready(id, now);
    }
}
