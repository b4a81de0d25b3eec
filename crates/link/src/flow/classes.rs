//! Class limits of this side's sending, and waiting data.

use std::time::Duration;

use bentpipe_schedule::{Class, ClassCounters, ClassSettings, PerClass};

use super::{FlowEvent, FlowTable};
use crate::lease::Waiting;

impl FlowTable {
    /// From `now` on each class gets this of what we send.
    pub fn set_classes(&mut self, classes: PerClass<ClassSettings>, now: Duration) {
        self.terms.classes = classes;
        for (class, settings) in classes.iter() {
            self.scheduler.configure(class, *settings, now);
        }
        for class in Class::ALL {
            self.drop_overflow(class, now);
        }
    }

    /// Data that could be sent to the peer now or as its class's ceiling or its lane lets it, class
    /// by class: all unsent data of classes in which a flow has credit.
    pub fn waiting(&self) -> PerClass<Waiting> {
        PerClass::new(|class| {
            let queued = self.scheduler.class_counters(class).queued_bytes;
            let bytes = self.unsent[class] + queued;
            let waits = self.scheduler.waits(class) || self.held_of[class] > 0;
            let ceil = self.terms.classes[class].limits.ceil;
            Waiting { bytes: if waits { bytes } else { 0 }, ceil }
        })
    }

    /// Counters of a class: sent, lost and waited by its flows, and charged to it.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        self.scheduler.class_counters(class)
    }

    /// Accounts for the flow's unsent bytes beyond its share; `true` when some were given back.
    pub(super) fn settle_unsent(&mut self, id: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        let unsent = flow.send.unsent_bytes() as u64;
        let (class, counted) = std::mem::replace(&mut flow.counted, (flow.class, unsent));
        self.unsent[class] -= counted;
        self.unsent[flow.class] += unsent;
        let lent = unsent.saturating_sub(self.send_share);
        let before = std::mem::replace(&mut flow.lent_to_send, lent);
        self.send_pool.settle(flow.passenger, before, lent);
        lent < before
    }

    /// Bytes left a send buffer: whoever waited for the memory may go on.
    pub(super) fn sent_or_forgotten(&mut self, id: u64, bytes: usize) {
        self.unsent_bytes -= bytes;
        if self.settle_unsent(id) && std::mem::take(&mut self.starved) {
            for (&id, flow) in &mut self.flows {
                if std::mem::take(&mut flow.send.blocked) {
                    self.events.push_back(FlowEvent::Wake(id));
                }
            }
        }
    }
}
