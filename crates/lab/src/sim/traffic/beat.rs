//! Datagrams at a constant interval in both directions: a call, or a probe.

use std::time::Duration;

use bentpipe_flow::OpenDatagrams;
use bentpipe_link::{Core, Receive, Session};

use crate::sim::pair::{FlowKey, Pair};
use crate::traffic::{DOWN, Talk, Transit, UP};

/// Datagrams at a constant interval, and their fates.
#[derive(Debug)]
pub struct Beat {
    talk: Talk,
    air: Option<FlowKey>,
    hub: Option<FlowKey>,
    began: Duration,
    sent: usize,
    /// Arrival time of each datagram, towards the aircraft and from it.
    came: [Vec<Option<Duration>>; 2],
}

impl Beat {
    pub(super) fn new(talk: Talk) -> Self {
        let came = [vec![None; talk.sizes.len()], vec![None; talk.sizes.len()]];
        Self { talk, air: None, hub: None, began: Duration::MAX, sent: 0, came }
    }

    /// Returns `true` if the flow has reached the hub.
    pub fn has_begun(&self) -> bool {
        self.hub.is_some()
    }

    /// Sending time and delay of each datagram in direction `way` (towards the aircraft, or from
    /// it). A lost datagram has no delay.
    pub fn transits(&self, way: usize) -> impl Iterator<Item = Transit> {
        let came = self.came[way][..self.sent].iter().enumerate();
        came.map(|(number, came)| {
            let left = self.began + self.talk.gap * number as u32;
            (left, came.map(|came| came - left))
        })
    }

    pub(super) fn is_named(&self, flow: u64) -> bool {
        self.hub.is_none() && self.air.is_some_and(|air| air.1 == flow)
    }

    pub(super) fn heard(&mut self, flow: FlowKey, now: Duration) {
        (self.hub, self.began) = (Some(flow), now + self.talk.phase);
    }

    /// Time at which the next datagram is due.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let goes_on = self.hub.is_some() && self.sent < self.talk.sizes.len();
        goes_on.then(|| self.began + self.talk.gap * self.sent as u32)
    }

    pub(super) fn tend(&mut self, pair: &mut Pair) {
        let now = pair.now();
        if self.air.is_none() {
            let open = OpenDatagrams {
                target: "192.0.2.7:5004".parse().expect("it is a target"),
                protocol: 17,
                source: 5004,
                class: self.talk.class,
                passenger: self.talk.passenger,
            };
            self.air = pair.air.open_datagrams(&open, now).ok();
        }
        let (Some(air), Some(hub)) = (self.air, self.hub) else { return };
        while self.next_at().is_some_and(|at| at <= now) {
            let mut payload = vec![0; self.talk.sizes[self.sent]];
            payload[..4].copy_from_slice(&(self.sent as u32).to_be_bytes());
            // A flow that has ended refuses datagrams. They count as lost.
            if let Some(session) = pair.hub.session(hub.0) {
                let _ = session.send_datagram(hub.1, &payload, now);
            }
            if let Some(session) = pair.air.session(air.0) {
                let _ = session.send_datagram(air.1, &payload, now);
            }
            self.sent += 1;
        }
        if let Some(session) = pair.air.session(air.0) {
            self.listen(DOWN, session, air.1, now);
        }
        if let Some(session) = pair.hub.session(hub.0) {
            self.listen(UP, session, hub.1, now);
        }
    }

    fn listen(&mut self, way: usize, session: &mut Session, flow: u64, now: Duration) {
        while let Receive::Taken(payload) = session.receive_datagram(flow, now) {
            let number = payload.first_chunk().map(|number| u32::from_be_bytes(*number));
            let packet = number.and_then(|number| self.came[way].get_mut(number as usize));
            let packet = packet.expect("what comes is what was sent");
            assert!(packet.replace(now).is_none(), "a datagram came twice");
        }
    }
}
