//! What each class gets of what this side sends, and what waits there.

use std::time::Duration;

use bentpipe_schedule::{Class, ClassCounters, ClassSettings, PerClass};

use super::FlowTable;
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

    /// What could be sent to the peer now or as its class's ceiling or its lane lets it, class by class: all that
    /// is unsent in those of which a flow has credit.
    pub fn waiting(&self) -> PerClass<Waiting> {
        PerClass::new(|class| {
            let queued = self.scheduler.class_counters(class).queued_bytes;
            let bytes = self.unsent[class] + queued;
            let waits = self.scheduler.waits(class) || self.held_of[class] > 0;
            let ceil = self.terms.classes[class].limits.ceil;
            Waiting { bytes: if waits { bytes } else { 0 }, ceil }
        })
    }

    /// What a class's flows sent, lost and waited, and what was charged to it.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        self.scheduler.class_counters(class)
    }
}
