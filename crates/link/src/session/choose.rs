//! The choice of the next symbol or repair, and of the path that carries it.

use std::time::Duration;

use bentpipe_schedule::Metered;

use super::Session;
use super::path::Path;
use super::spread::Race;
use crate::Class;
use crate::lane::{Lane, SLOT_BYTES, SendLane};

/// Maximum rest of the urgent bytes for which repairs wait if there are several paths.
const MAX_REST_BYTES: u64 = 16 << 10;

/// Choice for the next packet.
#[derive(Clone, Copy)]
pub enum NextSend {
    /// A retransmission.
    Lost(Lane),
    Repair(Lane),
    New(Lane),
}

impl Session {
    /// Chooses the next symbol or repair:
    ///
    /// - urgent before datagrams before bulk, unless it is the turn of a flow of another lane;
    /// - within a lane, retransmissions before repairs before new symbols, because the peer has
    ///   waited longest for what was sent first;
    /// - retransmissions of a more favoured class before those of others.
    pub(super) fn choose(&mut self, now: Duration) -> Option<NextSend> {
        let race = self.race(now);
        let next = self.next_lane_in(race.as_ref(), now);
        let may_resend = self.may_resend(race.as_ref());
        let several = race.is_some();
        for lane in Lane::RELIABLE {
            let state = &mut self.send.reliable[lane as usize];
            if let Some(class) = self.flows.take_due_burst_end(lane) {
                state.ended(class, now);
            }
            let end = self.path.new_below[lane as usize];
            if several && next.is_none() && state.is_unprotected(end) {
                state.ended_on_path(end, now);
            }
            if state.wants_protection(next == Some(lane), now, &self.repair_policy) {
                state.protect(now, &mut self.repair_policy);
            }
        }
        let class = next.and_then(|_| self.flows.next_class(now));
        let new = next.zip(class);
        let again =
            [Lane::Urgent, Lane::Datagram].map(|lane| self.choose_resend(lane, may_resend, now));
        // The first of equals.
        let again = again.into_iter().flatten().min_by_key(|(_, class)| *class);
        if let Some((choose, class)) = again
            && !new.is_some_and(|new| self.leads(new, choose, class, now))
        {
            self.repair_waits = false;
            return Some(choose);
        }
        match new {
            Some((Lane::Urgent, _)) => return Some(NextSend::New(Lane::Urgent)),
            Some((Lane::Datagram, class)) if again.is_some() || class <= Class::Network => {
                return Some(NextSend::New(Lane::Datagram));
            }
            _ => {}
        }
        let again = self.choose_resend(Lane::Bulk, may_resend, now).map(|(choose, _)| choose);
        again.or(next.map(NextSend::New))
    }

    /// Returns `true` if new data goes before a retransmission of `class`:
    ///
    /// - data of the operator's and the network's classes, before less favoured classes, as far as
    ///   the classes' shares permit;
    /// - first bytes of a passenger, before what is no more favoured, at most every other time;
    /// - urgent bytes, before datagrams.
    fn leads(&mut self, new: (Lane, Class), choose: NextSend, class: Class, now: Duration) -> bool {
        let (lane, new) = new;
        if new <= Class::Network && new < class && self.flows.precedes(class, now) {
            return true;
        }
        if lane == Lane::Bulk || new > class {
            return false;
        }
        if matches!(choose, NextSend::Lost(Lane::Datagram) | NextSend::Repair(Lane::Datagram)) {
            return lane == Lane::Urgent;
        }
        if self.repair_waits || !self.flows.next_is_new(now) {
            return false;
        }
        self.repair_waits = true;
        true
    }

    /// The lane's next retransmission or repair, and its class.
    fn choose_resend(
        &mut self,
        lane: Lane,
        may_resend: bool,
        now: Duration,
    ) -> Option<(NextSend, Class)> {
        let allowed = self.allowed(lane, now);
        loop {
            let state = self.send.get(lane);
            if let Some(lost) = state.peek(&allowed, now)
                && self.may_resend_of(lost.class, lane, may_resend, now)
            {
                return Some((NextSend::Lost(lane), lost.class));
            }
            let class = self.send.get(lane).repair_class(now)?;
            if allowed[class] {
                let may_repair = self.may_repair(lane, class, now);
                return may_repair.then_some((NextSend::Repair(lane), class));
            }
            if self.others_carry(class, lane) {
                return None;
            }
            // Otherwise the repairs of other classes would wait for its own.
            self.send.get(lane).give_up_repair();
        }
    }

    /// Returns `true` if the path in hand may carry retransmissions: the others together would not
    /// have delivered them before.
    fn may_resend(&self, race: Option<&Race>) -> bool {
        !race.is_some_and(|race| race.usual.overtake_all(|| self.resent_bytes()))
    }

    /// The same for retransmissions of `class` in `lane`; `usual` is the answer for a class that uses
    /// no metered path beside others.
    fn may_resend_of(&self, class: Class, lane: Lane, usual: bool, now: Duration) -> bool {
        let metered = self.settings.classes[class].paths.metered;
        if matches!(metered, Metered::Standby | Metered::Never) || !self.has_other_live() {
            return usual;
        }
        !self.rivals((metered, lane), |_| 0.0, now).overtake_all(|| self.resent_bytes())
    }

    /// Bytes of the retransmissions and repairs that wait.
    fn resent_bytes(&self) -> u64 {
        let packet_bytes = self.path.mtu.current() as u64;
        // Symbols without protection need about as many repairs as are lost of them.
        let loss = self.repair_policy.loss.rate;
        let of = |lane: &SendLane| {
            let repairs = lane.repairs_ready() + (lane.unprotected() as f64 * loss) as u64;
            lane.queued_bytes() as u64 + repairs * packet_bytes
        };
        self.send.reliable.iter().map(of).sum()
    }

    /// Bytes that wait in the urgent lane, and in all lanes, with their retransmissions and repairs.
    pub(super) fn waiting_bytes(&self) -> (u64, u64) {
        let waiting = self.flows.waiting();
        let all: u64 = Class::ALL.into_iter().map(|class| waiting[class].bytes).sum();
        let again = self.resent_bytes();
        (self.flows.urgent_bytes().min(all).saturating_add(again), all.saturating_add(again))
    }

    /// Returns `true` if the path in hand should carry the lane's next repair, which is of `class`.
    fn may_repair(&mut self, lane: Lane, class: Class, now: Duration) -> bool {
        if !self.has_other_live() || self.goes_on_each(class) {
            return true;
        }
        let (urgent, all) = self.waiting_bytes();
        let waiting = if lane == Lane::Bulk { all } else { urgent };
        // What follows of a burst goes before the repairs of what was sent of it, here or elsewhere.
        let is_partial = self.send.reliable.get(lane as usize).is_some_and(SendLane::is_partial);
        let ends_soon = lane == Lane::Urgent && urgent <= MAX_REST_BYTES;
        if (is_partial || ends_soon) && self.next_lane(now) == Some(lane) {
            return false;
        }
        // The burst that may have taken the symbols of a path may also take a repair there, or on a path
        // that loses at the same times.
        let state = self.send.reliable.get(lane as usize);
        let burst = self.repair_policy.burst.as_secs_f64();
        let is_hit =
            |path: &Path, source: u8| path.id == source || self.lose_together(path.id, source);
        let carried = |path: &Path| {
            state.is_some_and(|state| {
                self.paths().any(|of| is_hit(path, of.id) && state.repairs_symbols_of(of.id))
            })
        };
        let metered = self.settings.classes[class].paths.metered;
        let wait_s = |path: &Path| if carried(path) { burst } else { 0.0 };
        !self.rivals((metered, lane), wait_s, now).overtake(waiting)
    }

    /// Returns `true` if the path in hand has something of `lane` to resend.
    pub(super) fn has_resend_in(&mut self, lane: Lane, now: Duration) -> bool {
        let may_resend = self.may_resend(self.race(now).as_ref());
        self.send.reliable[lane as usize].has_ended()
            || self.choose_resend(lane, may_resend, now).is_some()
    }

    /// Returns `true` if there is a symbol that the peer would accept.
    pub(super) fn has_symbols(&mut self, now: Duration) -> bool {
        let race = self.race(now);
        let may_resend = self.may_resend(race.as_ref());
        let ends = self.send.reliable.iter().any(SendLane::has_ended);
        ends || self.next_lane_in(race.as_ref(), now).is_some()
            || (race.is_some() && self.ends_here())
            || Lane::ALL.into_iter().any(|lane| self.choose_resend(lane, may_resend, now).is_some())
    }

    /// Returns `true` if symbols of the path in hand wait for their protection. It sends no more of them
    /// if others deliver the rest earlier.
    fn ends_here(&self) -> bool {
        let is_unprotected = |lane: Lane| {
            let state = &self.send.reliable[lane as usize];
            state.is_unprotected(self.path.new_below[lane as usize])
        };
        self.repair_policy.coded && Lane::RELIABLE.into_iter().any(is_unprotected)
    }

    /// Chooses the oldest symbol for a probe, so that the answer reveals everything else that is
    /// missing.
    pub(super) fn choose_probe(&mut self, probing: bool) -> Option<NextSend> {
        if !probing {
            return None;
        }
        for lane in Lane::RELIABLE {
            let carried = self.carried(lane);
            let state = &mut self.send.reliable[lane as usize];
            if state.has_probe(&carried) {
                state.probe_oldest(&carried);
                return Some(NextSend::Lost(lane));
            }
        }
        None
    }

    /// The lane of the next new symbol; flows of full lanes do not delay others.
    pub(super) fn next_lane(&mut self, now: Duration) -> Option<Lane> {
        self.next_lane_in(self.race(now).as_ref(), now)
    }

    fn next_lane_in(&mut self, race: Option<&Race>, now: Duration) -> Option<Lane> {
        let window = self.lane_window();
        let open = Lane::ALL.map(|lane| self.may_send_new(lane, window));
        let rooms = self.rooms(open, race, now);
        self.flows.set_room(rooms, now);
        self.flows.next_lane(now)
    }

    fn may_send_new(&self, lane: Lane, window: usize) -> bool {
        let Some(lane) = self.send.reliable.get(lane as usize) else {
            return self.send.datagrams.has_room();
        };
        let longest = self.path.max_plaintext() + SLOT_BYTES;
        lane.retained_bytes() + longest <= window && lane.has_room()
    }
}
