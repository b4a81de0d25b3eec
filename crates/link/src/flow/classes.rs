//! Classes of flows: their limits, claims of another class, and what waits in each.

use std::time::Duration;

use bentpipe_schedule::{Class, ClassCounters, ClassSettings, PerClass};

use super::FlowTable;
use crate::lease::Waiting;
use bentpipe_flow::Claim;

impl FlowTable {
    /// Sets the limits of each class for what this end sends.
    pub fn set_classes(&mut self, classes: PerClass<ClassSettings>, now: Duration) {
        self.limits.classes = classes;
        for (class, settings) in classes.iter() {
            self.turns.scheduler_mut().configure(class, *settings, now);
        }
        for class in Class::ALL {
            self.drop_overflow(class, now);
        }
    }

    /// Data that could be sent to the peer now, or as soon as its class's ceiling or its lane
    /// permits: all unsent data of each class in which a flow has credit.
    pub fn waiting(&self) -> PerClass<Waiting> {
        PerClass::new(|class| {
            let scheduler = self.turns.scheduler();
            let queued = scheduler.class_counters(class).queued_bytes;
            let bytes = self.send_memory.unsent()[class] + queued;
            let waits = scheduler.is_backlogged(class) || self.turns.is_held(class);
            let ceil = self.limits.classes[class].limits.ceil;
            Waiting { bytes: if waits { bytes } else { 0 }, ceil }
        })
    }

    /// Bytes that could be sent now in the urgent lane.
    pub fn urgent_bytes(&self) -> u64 {
        self.bursts.urgent_bytes()
    }

    /// Counters of a class: bytes sent, lost and delayed by its flows, and bytes charged to it.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        self.turns.scheduler().class_counters(class)
    }

    // Claims.

    /// Adds a class claim to a stream whose OPEN has not been sent yet; the claim follows the OPEN.
    pub fn claim(&mut self, id: u64, claim: Claim) {
        let stream = self.flows.stream_mut(id);
        if let Some(stream) = stream.filter(|stream| stream.state.control.open.is_some()) {
            stream.claim = Some(claim);
            stream.state.control.claim = true;
        }
    }

    /// Claim made when the stream was opened.
    pub fn claim_of(&self, id: u64) -> Option<&Claim> {
        self.flows.stream(id)?.claim.as_ref()
    }

    /// Confirms the peer's claim: the stream has `class` from now on, at both ends.
    pub fn confirm(&mut self, id: u64, class: Class, now: Duration) {
        // A favoured class is less than others.
        let class = class.max(self.highest_class);
        let Some(stream) = self.flows.stream_mut(id) else { return };
        if stream.state.ended.is_some() || stream.claim.is_none() {
            return;
        }
        stream.confirmed = Some(class);
        stream.state.control.class = true;
        self.control.push(id, &mut stream.state.control);
        self.reclass(id, class, now);
    }

    /// Moves what this end sends on the stream to `class`, if that is less favoured. Its bytes stay
    /// in order, because they wait in the flow and not in the class.
    pub fn demote(&mut self, id: u64, class: Class, now: Duration) {
        if self.flows.stream(id).is_some_and(|stream| stream.state.class < class) {
            self.reclass(id, class, now);
        }
    }

    /// Class that the ground has confirmed for the stream's claim.
    pub fn confirmed(&self, id: u64) -> Option<Class> {
        self.flows.stream(id)?.confirmed
    }

    /// Changes the stream's class.
    pub(super) fn reclass(&mut self, id: u64, class: Class, now: Duration) {
        let Some(stream) = self.flows.stream_mut(id) else { return };
        stream.state.class = class;
        if let Some(turn) = stream.state.turn {
            self.turns.scheduler_mut().reclass(turn, class, now);
        }
        self.bursts.count(stream, now);
        // The new class may have room where the old one has none.
        if self.turns.unhold(id) {
            self.refresh(id, now);
        }
    }
}
