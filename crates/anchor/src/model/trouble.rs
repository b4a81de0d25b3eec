//! Trouble in a flight: hubs change and die, carriers break, somebody replays records, and users leave.

use std::time::Duration;

use bentpipe_flow::ResetCode;
use rand::Rng;

use super::{AIRCRAFT, FLOWS, World};
use crate::registry::Caller;
use crate::wire::Control;

impl World {
    /// Something happens to a hub, or to an observer of the network.
    pub fn trouble(&mut self) {
        match self.rng.random_range(0..6) {
            // The aircraft changes its hub: the old carriers stay until the new ones are accepted.
            0 => {
                self.session += 1;
                for flow in 0..FLOWS {
                    if self.flows[flow].carrier.is_some() {
                        let next = self.begin(flow);
                        if let Some(given_up) = self.flows[flow].next.replace(next) {
                            self.carriers[given_up].air = None;
                            self.carriers[given_up].cut.get_or_insert(ResetCode::Lost);
                        }
                    }
                }
            }
            // A hub dies, with all its carriers.
            1 => {
                let session = self.rng.random_range(1..=self.session);
                for carrier in &mut self.carriers {
                    if carrier.session == session {
                        carrier.cut.get_or_insert(ResetCode::Lost);
                    }
                }
                self.session += 1;
            }
            // One carrier breaks.
            2 if !self.carriers.is_empty() => {
                let index = self.rng.random_range(0..self.carriers.len());
                self.carriers[index].cut.get_or_insert(ResetCode::Lost);
            }
            // Somebody replays what a carrier began with, in the same session or a later one.
            3 if !self.carriers.is_empty() => {
                let index = self.rng.random_range(0..self.carriers.len());
                if self.carriers[index].was_admitted {
                    self.replay(index);
                }
            }
            4 if self.rng.random_range(0..4) == 0 => {
                let flow = self.rng.random_range(0..FLOWS);
                self.user_leaves(flow);
            }
            _ => {}
        }
    }

    /// Replays the record with which an admitted carrier began.
    fn replay(&mut self, index: usize) {
        let carrier = &self.carriers[index];
        let session = self.rng.random_range(carrier.session..=self.session);
        let caller = Caller { aircraft: AIRCRAFT, session };
        let (first, _) = Control::first(&carrier.first).unwrap().unwrap();
        let admitted = match first {
            Control::Open { id, attempt, .. } => {
                self.registry.open(&caller, id, attempt, || usize::MAX).map(|(far, _)| far)
            }
            Control::Resume { id, attempt, ticket, .. } => {
                let thief = Caller { aircraft: [9; 32], session: u64::MAX };
                let stolen = self.registry.resume(&thief, (id, u32::MAX), &ticket, Duration::ZERO);
                assert!(stolen.is_err(), "another aircraft's ticket");
                self.registry.resume(&caller, (id, attempt), &ticket, Duration::ZERO)
            }
            other => panic!("{other:?}"),
        };
        assert!(admitted.is_err(), "a recording was admitted");
    }

    /// A user stops reading, or resets its flow.
    fn user_leaves(&mut self, number: usize) {
        let code = [ResetCode::Refused, ResetCode::Idle][self.rng.random_range(0..2)];
        let far = self.far.iter().position(|far| far.id == [number as u8; 16] && !far.is_left);
        let flow = &mut self.flows[number];
        match (self.rng.random_range(0..4), far) {
            (0, _) if flow.ended.is_none() && !flow.air.reads_no_more() => {
                flow.air.stop_reading(code);
            }
            (1, Some(far)) if !self.far[far].end.reads_no_more() => {
                self.far[far].end.stop_reading(code);
            }
            (2, _) if flow.ended.is_none() && !flow.air.is_done() => {
                (flow.ended, flow.is_left) = (Some(code), true);
                for (index, code) in
                    [(flow.carrier.take(), code), (flow.next.take(), ResetCode::Lost)]
                {
                    if let Some(index) = index {
                        self.carriers[index].cut.get_or_insert(code);
                    }
                }
            }
            (3, Some(far)) if !self.far[far].end.is_done() => self.egress_ends(far, Some(code)),
            _ => {}
        }
    }
}
