//! What goes into the next symbol, decided at the moment it leaves.

use std::time::Duration;

use super::table::Flow;
use super::{FlowEvent, FlowTable};
use crate::Class;
use crate::lane::Lane;
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame;

/// Below this a symbol counts as full: a STREAM head and a few bytes.
const LEAST_ROOM: usize = 32;
/// What an OPEN with the longest name takes, or any other frames of one flow's control.
const CONTROL_ROOM: usize = 300;
/// What an OPEN to an address takes with the longest claim behind it.
const CLAIM_ROOM: usize = 330;

impl FlowTable {
    /// The lane of what would be sent next; `None` when nothing waits.
    pub fn next_lane(&mut self, now: Duration) -> Option<Lane> {
        while let Some(&id) = self.control.front()
            && !self.has_control(id)
        {
            self.control.pop_front();
        }
        if !self.control.is_empty() || !self.refusals.is_empty() {
            return Some(Lane::Urgent);
        }
        loop {
            let id = self.scheduler.pick(now)?;
            if let Some(flow) = self.flows.get(&id) {
                return Some(self.lane_of(flow, now));
            }
            if self.datagram_class(id, now).is_some() {
                return Some(Lane::Datagram);
            }
            // What waited there was of no use any more: the turn is another's.
        }
    }

    /// Whether what would be sent next is a datagram that must never wait.
    pub fn next_is_urgent_datagram(&mut self, now: Duration) -> bool {
        let Some(id) = self.scheduler.pick(now).filter(|id| !self.flows.contains_key(id)) else {
            return false;
        };
        self.datagram_class(id, now).is_some_and(|class| class <= Class::Network)
    }

    /// When something may leave that only its class's ceiling holds back.
    pub fn next_ready(&mut self, now: Duration) -> Option<Duration> {
        self.scheduler.next_ready(now)
    }

    fn has_control(&mut self, id: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return self.has_datagram_control(id) };
        flow.control.queued = !flow.control.is_empty();
        flow.control.queued
    }

    fn lane_of(&self, flow: &Flow, now: Duration) -> Lane {
        let urgent = flow.class <= Class::Network;
        if urgent || flow.send.is_short(now, self.quiet) { Lane::Urgent } else { Lane::Bulk }
    }

    /// Fills a symbol of `lane` with up to `room` bytes of frames. The class is of what ended with
    /// it, if anything did: control, or all that a flow had to send for now.
    pub fn fill(
        &mut self,
        lane: Lane,
        room: usize,
        out: &mut Vec<u8>,
        now: Duration,
    ) -> Option<Class> {
        let end = out.len() + room;
        let controls = lane == Lane::Urgent && self.fill_control(end, out, now);
        let mut ended = controls.then_some(Class::BestEffort);
        while end - out.len() >= LEAST_ROOM {
            let Some(id) = self.scheduler.pick(now) else { break };
            let Some(flow) = self.flows.get(&id) else { break };
            let class = flow.class;
            if self.lane_of(flow, now) != lane || !self.fill_stream(id, end, out, now) {
                break;
            }
            if !self.flows.get(&id).is_some_and(|flow| self.goes_on(flow, lane, now)) {
                ended = Some(class);
            }
        }
        ended
    }

    /// Whether enough of a flow's burst follows for reports to tell in time what was lost of it in
    /// `lane`, so that nothing has to be protected yet.
    fn goes_on(&self, flow: &Flow, lane: Lane, now: Duration) -> bool {
        let unsent = flow.send.unsent_bytes();
        if self.lane_of(flow, now) != lane {
            return unsent as u64 >= self.in_flight_bytes;
        }
        // Bulk that waits for credit waits for what is missing, which reports tell.
        flow.send.is_ready() || (lane == Lane::Bulk && unsent > 0)
    }

    /// `true` when there was any.
    fn fill_control(&mut self, end: usize, out: &mut Vec<u8>, now: Duration) -> bool {
        let before = out.len();
        while end - out.len() >= 2 * MAX_VARINT_BYTES
            && let Some((id, code)) = self.refusals.pop_front()
        {
            frame::put_reset(out, id, code);
        }
        while end - out.len() >= CONTROL_ROOM
            && let Some(id) = self.control.pop_front()
        {
            let Some(flow) = self.flows.get_mut(&id) else {
                self.fill_datagram_control(id, end, out, now);
                continue;
            };
            if flow.control.claim && end - out.len() < CLAIM_ROOM {
                self.control.push_front(id);
                break;
            }
            let control = std::mem::take(&mut flow.control);
            let opens = control.open.is_some();
            if let Some(target) = control.open {
                let credit = flow.recv.limit();
                frame::put_open(out, id, flow.class, flow.passenger, credit, &target);
                flow.opened = true;
                if let Some(claim) = flow.claim.as_ref().filter(|_| control.claim) {
                    frame::put_claim(out, id, claim);
                }
            } else if control.credit {
                frame::put_credit(out, id, flow.recv.limit());
            }
            if let Some(class) = flow.confirmed.filter(|_| control.class) {
                frame::put_class(out, id, class);
            }
            if let Some(code) = control.stop {
                frame::put_stop(out, id, code);
            }
            if let Some(code) = control.reset {
                frame::put_reset(out, id, code);
            }
            if opens {
                // The first bytes travel with the opening, if there are any.
                self.refresh(id, now);
                if self.flows.get(&id).is_some_and(|flow| flow.send.is_ready()) {
                    self.fill_stream(id, end, out, now);
                }
            }
            self.remove_if_over(id);
        }
        out.len() > before
    }

    /// Puts one STREAM frame of the flow; `false` when there was nothing to put.
    fn fill_stream(&mut self, id: u64, end: usize, out: &mut Vec<u8>, now: Duration) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        let room = end - out.len();
        let head = frame::stream_head_len(id, flow.send.offset());
        let Some(without_length) = room.checked_sub(head) else { return false };
        let (mut len, mut fin) = flow.send.next_len(without_length);
        // Bytes that do not reach the symbol's end need a length, at most three bytes of it.
        let fills = len == without_length;
        if !fills && len + 3 > without_length {
            (len, fin) = flow.send.next_len(without_length - 3);
        }
        if len == 0 && !fin {
            return false;
        }
        let length = (!fills).then_some(len as u64);
        let before = out.len();
        frame::put_stream_head(out, id, flow.send.offset(), fin, length);
        flow.send.take(len, fin, out, now, self.quiet);
        flow.active = now;
        let wake = std::mem::take(&mut flow.send.blocked);
        if let Some(turn) = flow.turn {
            self.scheduler.spent(turn, out.len() - before, now);
        }
        if wake {
            self.events.push_back(FlowEvent::Wake(id));
        }
        self.sent_or_forgotten(id, len);
        self.refresh(id, now);
        self.remove_if_over(id);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::claim::Claim;
    use crate::flow::send::URGENT_BYTES;
    use crate::flow::{Terms, Write};
    use crate::wire::frame::Frame;

    const NOW: Duration = Duration::from_secs(10);
    const ROOM: usize = 1000;
    /// What leaves in a round trip, in these tests.
    const IN_FLIGHT: u64 = 50_000;

    /// A table with a flow that has opened, and may send `credit` bytes.
    fn table(credit: u64) -> (FlowTable, u64) {
        limited(credit, Default::default())
    }

    fn limited(credit: u64, classes: [Limits; Class::ALL.len()]) -> (FlowTable, u64) {
        let mut table = FlowTable::new(Terms {
            opens: true,
            classes,
            max_flows: 4,
            reserve: 1 << 16,
            peer_reserve: credit,
            receive_memory: 1 << 24,
            flow_send_buffer: 1 << 20,
            send_memory: 1 << 24,
            flow_idle: Duration::MAX,
            flow_unread: Duration::MAX,
            datagram_memory: 1 << 20,
            datagram_idle: Duration::from_secs(300),
            lifetimes: crate::settings::Lifetimes::default(),
        });
        table.tell_in_flight(IN_FLIGHT);
        let flow = table.open(b"target".to_vec(), Class::Assured, 1, NOW).expect("there is room");
        let ended = table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW);
        assert_eq!(ended, Some(Class::BestEffort), "control ends what it fills");
        (table, flow)
    }

    fn write(table: &mut FlowTable, flow: u64, bytes: usize) {
        assert_eq!(table.write(flow, &vec![7; bytes], NOW), Write::Taken(bytes));
    }

    /// Sends symbols of `lane` as long as there are any; what ended with each.
    fn send(table: &mut FlowTable, lane: Lane) -> Vec<Option<Class>> {
        let mut ended = Vec::new();
        while table.next_lane(NOW) == Some(lane) {
            ended.push(table.fill(lane, ROOM, &mut Vec::new(), NOW));
        }
        ended
    }

    #[test]
    fn a_burst_ends_with_its_last_symbol() {
        let (mut table, flow) = table(1 << 20);
        write(&mut table, flow, 3 * ROOM);
        let ended = send(&mut table, Lane::Urgent);
        let (last, others) = ended.split_last().expect("it was sent");
        assert_eq!((*last, others.len()), (Some(Class::Assured), 3));
        assert!(others.iter().all(Option::is_none), "more of it follows: {others:?}");
    }

    #[test]
    fn what_turns_to_bulk_goes_on_if_a_round_trip_of_it_follows() {
        for (follow, goes_on) in [(IN_FLIGHT - 1, false), (IN_FLIGHT, true)] {
            let (mut table, flow) = table(1 << 20);
            // How many bytes the urgent lane takes of a burst that has no end.
            write(&mut table, flow, 1 << 19);
            send(&mut table, Lane::Urgent);
            let urgent = (1 << 19) - table.unsent_bytes() as usize;
            assert!(urgent as u64 >= URGENT_BYTES);

            let (mut table, flow) = self::table(1 << 20);
            write(&mut table, flow, urgent + follow as usize);
            let ended = send(&mut table, Lane::Urgent);
            assert_eq!(table.unsent_bytes(), follow);
            let (last, others) = ended.split_last().expect("it was sent");
            assert_eq!(last.is_none(), goes_on, "{follow} bytes follow");
            assert!(others.iter().all(Option::is_none));
        }
    }

    #[test]
    fn who_waits_for_credit_ends_what_is_urgent_and_not_what_is_bulk() {
        let (mut table, flow) = table(2 * ROOM as u64);
        write(&mut table, flow, 4 * ROOM);
        let ended = send(&mut table, Lane::Urgent);
        assert_eq!(ended.last(), Some(&Some(Class::Assured)), "nobody knows what credit brings");

        let (mut table, flow) = self::table(2 * URGENT_BYTES);
        write(&mut table, flow, 3 * URGENT_BYTES as usize);
        send(&mut table, Lane::Urgent);
        let ended = send(&mut table, Lane::Bulk);
        assert_eq!(table.unsent_bytes(), URGENT_BYTES, "the rest has no credit");
        assert!(!ended.is_empty() && ended.iter().all(Option::is_none), "{ended:?}");

        let (mut table, flow) = self::table(1 << 20);
        write(&mut table, flow, 3 * URGENT_BYTES as usize);
        send(&mut table, Lane::Urgent);
        let ended = send(&mut table, Lane::Bulk);
        assert_eq!(ended.last(), Some(&Some(Class::Assured)), "all of it has left");
    }

    #[test]
    fn a_class_waits_at_its_ceiling_and_a_confirmed_claim_leaves_it() {
        let ceil = Some(bentpipe_units::BitRate::from_bps(80_000));
        let low = Limits { rate: None, ceil };
        let (mut table, _) = limited(
            1 << 20,
            Class::ALL.map(|class| match class {
                Class::LowerEffort => low,
                _ => Limits::default(),
            }),
        );
        let claiming = table.open(b"target".to_vec(), Class::LowerEffort, 1, NOW).expect("room");
        table.claim(claiming, Claim::new("www.gov.uk", Class::Assured).expect("a short name"));
        let mut first = Vec::new();
        table.fill(Lane::Urgent, ROOM, &mut first, NOW);
        write(&mut table, claiming, 1 << 19);
        let sent = send(&mut table, Lane::Urgent).len() * ROOM;
        // What its bucket had saved up, to the packet.
        assert!((5_000..=7_000).contains(&sent), "{sent}");
        let ready = table.next_ready(NOW).expect("it waits for its ceiling alone");
        assert!(ready > NOW && ready <= NOW + Duration::from_millis(110), "{ready:?}");
        assert_eq!(table.next_lane(NOW), None);
        // No more than was claimed, and nothing for who claimed nothing.
        let confirmed = Frame::Class { flow: claiming, class: Class::Operator };
        assert_eq!(table.take_frame(confirmed, NOW), Ok(()));
        assert_eq!(table.confirmed(claiming), Some(Class::Assured));
        let more = send(&mut table, Lane::Urgent).len() * ROOM;
        assert!(more as u64 >= URGENT_BYTES / 2, "{more}");
        let other = Frame::Class { flow: 0, class: Class::Assured };
        assert!(table.take_frame(other, NOW).is_err());
    }
}
