//! Datagrams, timers and events of a hub: each goes to the session that it concerns.

use std::net::SocketAddr;
use std::time::Duration;

use super::{HubCore, Member};
use crate::Dscp;
use crate::crypto::InitPayload;
use crate::endpoint::aircraft::params_of;
use crate::endpoint::shard_message::Content;
use crate::endpoint::{Core, Filter, SessionId, ShardMessage};
use crate::flow::FlowEvent;
use crate::key::PublicKey;
use crate::session::Session;
use crate::wire::header::{DATA, INIT};

impl Core for HubCore {
    type Session = Session;

    fn filter(&self) -> Option<Filter> {
        Some(self.responder.filter())
    }

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
        match datagram.first() {
            Some(&INIT) => self.take_init(datagram, from, now),
            Some(first) if first & 0xf0 == DATA => self.take_data(datagram, from, ce, now),
            _ => {}
        }
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        // Handshakes are the network's own.
        (self.ect, self.dscp) = (false, Dscp::EF);
        let farewell = self.farewells.pop_front();
        if let Some((reply, to)) = farewell.or_else(|| self.responder.next_reply()) {
            out.extend_from_slice(&reply);
            return Some(to);
        }
        // Sessions after the last one served, then from the first on.
        let last = self.turn;
        self.transmit_of(last.saturating_add(1)..=SessionId::MAX, now, out)
            .or_else(|| self.transmit_of(0..=last, now, out))
    }

    fn is_ect(&self) -> bool {
        self.ect
    }

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn too_large(&mut self, (to, _): (SocketAddr, u8), bytes: usize, now: Duration) -> bool {
        for id in self.addresses.get(&to).cloned().unwrap_or_default() {
            if let Some(session) = self.session(id) {
                session.too_large(to, |_| true, bytes, now);
            }
        }
        true
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        while let Some(id) = self.agenda.next_untimed() {
            self.settle(id);
            let Some(Member { session, .. }) = self.sessions.get_mut(&id) else { continue };
            self.visits += 1;
            let at = session.next_timeout(now);
            self.agenda.set_timer(id, at, now);
            if session.is_unpaused(at) {
                self.agenda.ask_again(id);
            }
        }
        let others = [
            self.sharing.next_timeout(),
            self.bottlenecks.next_timeout(),
            self.budget.next_timeout(),
        ];
        let timers = [self.agenda.next_timer(), self.responder.next_timeout()];
        let timers = timers.into_iter().chain(others);
        timers.flatten().min().unwrap_or(Duration::MAX)
    }

    fn next_timer(&mut self, now: Duration) -> &'static str {
        let sessions = self.sessions.values_mut().map(|member| member.session.next_timer(now));
        let others = [
            (self.responder.next_timeout(), "handshakes"),
            (self.sharing.next_timeout(), "shares of the beam"),
            (self.bottlenecks.next_timeout(), "shared bottlenecks"),
            (self.budget.next_timeout(), "memory budget"),
        ];
        let others = others.into_iter().filter_map(|(at, name)| at.map(|at| (at, name)));
        others.chain(sessions).min().map_or("none", |(_, name)| name)
    }

    fn handle_timeout(&mut self, now: Duration) {
        let terms =
            |key: &PublicKey, payload: &InitPayload| params_of(&self.aircraft, key, payload);
        self.responder.handle_timeout(now, &mut self.rng, terms);
        self.agenda.time_passed();
        for id in self.agenda.due(now) {
            self.visits += 1;
            let Some(session) = self.session(id) else { continue };
            session.handle_timeout(now);
            if session.has_vanished(now) {
                self.drop_vanished(id);
            }
        }
        if self.budget.is_due(now) {
            self.reclaim(now);
            if self.budget.is_short() {
                let message = |shard| (shard, ShardMessage(Content::MemoryIsShort));
                self.messages.extend(self.shard.others().map(message));
            }
        }
        if self.sharing.next_timeout().is_some_and(|at| at <= now) {
            self.share_out(now);
        }
        if self.bottlenecks.next_timeout().is_some_and(|at| at <= now) {
            self.compare_queues(now);
        }
    }

    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(id) = self.agenda.next_eventful() {
            self.visits += 1;
            let member = self.sessions.get_mut(&id);
            match member.and_then(|member| member.session.next_event()) {
                Some(event) => return Some((id, event)),
                None => self.agenda.had_no_event(id),
            }
        }
        None
    }

    fn sessions_begun(&self) -> u64 {
        self.responder.sessions_begun()
    }

    fn next_message(&mut self) -> Option<(usize, ShardMessage)> {
        if let Some((shard, received, from)) = self.responder.next_call() {
            return Some((shard, ShardMessage(Content::Call { received, from })));
        }
        self.messages.pop_front()
    }

    fn handle_message(&mut self, message: ShardMessage, now: Duration) {
        match message.0 {
            Content::Call { received, from } => {
                let terms = |key: &PublicKey, payload: &InitPayload| {
                    params_of(&self.aircraft, key, payload)
                };
                self.responder.take_call(received, from, now, &mut self.rng, terms);
                self.report_used_counter(from);
            }
            // The next timeout is due now.
            Content::MemoryIsShort => {}
        }
    }

    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        // Writers may fill many sessions before the driver runs.
        let reached = std::mem::replace(&mut self.reached, id);
        if reached != id {
            self.settle(reached);
        }
        self.settle(id);
        let Member { session, .. } = self.sessions.get_mut(&id)?;
        self.agenda.touch(id);
        self.sharing.touch(id);
        Some(session)
    }

    fn close(&mut self) {
        self.sessions().for_each(|(_, _, session)| session.close());
    }
}
