//! What goes into the next symbol, decided at the moment it leaves.

use std::time::Duration;

use bentpipe_schedule::PerClass;

use super::table::Flow;
use super::{Bill, FlowEvent, FlowTable};
use crate::Class;
use crate::lane::Lane;
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame;

/// Below this a symbol counts as full: a STREAM head and a few bytes.
const LEAST_ROOM: usize = 32;
/// What an OPEN with the longest name takes, or any other frames of one flow's control.
const CONTROL_ROOM: usize = 300;

/// What a symbol of streams and control came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The class of what ended with it, if anything did: control, or all that a flow had to send for
    /// now.
    pub ended: Option<Class>,
    /// Who pays for its packet.
    pub bill: Bill,
}

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

    /// The class of the flow whose turn it is, where its bytes must never wait.
    pub fn next_urgent_class(&mut self, now: Duration) -> Option<Class> {
        let id = self.scheduler.pick(now)?;
        let class = match self.flows.get(&id) {
            Some(flow) => Some(flow.class),
            None => self.datagram_class(id, now),
        };
        class.filter(|class| *class <= Class::Network)
    }

    /// Whether the flow whose turn it is goes before something of `class` that is sent again, or a
    /// repair.
    pub fn precedes(&mut self, class: Class, now: Duration) -> bool {
        self.scheduler.precedes(class, now)
    }

    /// The class pays for `bytes` that no flow's turn accounts for.
    pub fn charge(&mut self, class: Class, bytes: usize, now: Duration) {
        self.scheduler.charge(class, bytes, now);
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

    /// Fills a symbol of `lane` with up to `room` bytes of frames.
    pub fn fill(&mut self, lane: Lane, room: usize, out: &mut Vec<u8>, now: Duration) -> Content {
        let end = out.len() + room;
        let mut paid = PerClass::default();
        let controls = lane == Lane::Urgent && self.fill_control(end, out, &mut paid, now);
        let mut ended = controls.then_some(Class::BestEffort);
        while end - out.len() >= LEAST_ROOM {
            let Some(id) = self.scheduler.pick(now) else { break };
            let Some(flow) = self.flows.get(&id) else { break };
            let class = flow.class;
            if self.lane_of(flow, now) != lane || !self.fill_stream(id, end, out, &mut paid, now) {
                break;
            }
            if !self.flows.get(&id).is_some_and(|flow| self.goes_on(flow, lane, now)) {
                ended = Some(class);
            }
        }
        Content { ended, bill: Bill::most(&paid) }
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
    fn fill_control(
        &mut self,
        end: usize,
        out: &mut Vec<u8>,
        paid: &mut PerClass<usize>,
        now: Duration,
    ) -> bool {
        let before = out.len();
        while end - out.len() >= 2 * MAX_VARINT_BYTES
            && let Some((id, code)) = self.refusals.pop_front()
        {
            // Of a flow that was never taken nobody knows the class.
            frame::put_reset(out, id, code);
        }
        self.pay(Class::default(), out.len() - before, paid, now);
        while end - out.len() >= CONTROL_ROOM
            && let Some(id) = self.control.pop_front()
        {
            let Some(flow) = self.flows.get_mut(&id) else {
                self.fill_datagram_control(id, end, out, paid, now);
                continue;
            };
            let (class, head) = (flow.class, out.len());
            let control = std::mem::take(&mut flow.control);
            let opens = control.open.is_some();
            if let Some(target) = control.open {
                let credit = flow.recv.limit();
                frame::put_open(out, id, flow.class, flow.passenger, credit, &target);
                flow.opened = true;
            } else if control.credit {
                frame::put_credit(out, id, flow.recv.limit());
            }
            if let Some(code) = control.stop {
                frame::put_stop(out, id, code);
            }
            if let Some(code) = control.reset {
                frame::put_reset(out, id, code);
            }
            self.pay(class, out.len() - head, paid, now);
            if opens {
                // The first bytes travel with the opening, if there are any.
                self.refresh(id, now);
                if self.flows.get(&id).is_some_and(|flow| flow.send.is_ready()) {
                    self.fill_stream(id, end, out, paid, now);
                }
            }
            self.remove_if_over(id);
        }
        out.len() > before
    }

    /// The class pays for frames of control.
    pub(super) fn pay(
        &mut self,
        class: Class,
        bytes: usize,
        paid: &mut PerClass<usize>,
        now: Duration,
    ) {
        if bytes > 0 {
            paid[class] += bytes;
            self.charge(class, bytes, now);
        }
    }

    /// Puts one STREAM frame of the flow; `false` when there was nothing to put.
    fn fill_stream(
        &mut self,
        id: u64,
        end: usize,
        out: &mut Vec<u8>,
        paid: &mut PerClass<usize>,
        now: Duration,
    ) -> bool {
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
        paid[flow.class] += out.len() - before;
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
    use crate::flow::send::URGENT_BYTES;
    use crate::flow::{Terms, Write};

    const NOW: Duration = Duration::from_secs(10);
    const ROOM: usize = 1000;
    /// What leaves in a round trip, in these tests.
    const IN_FLIGHT: u64 = 50_000;

    /// A table with a flow that has opened, and may send `credit` bytes.
    fn table(credit: u64) -> (FlowTable, u64) {
        let mut table = FlowTable::new(
            Terms {
                opens: true,
                max_flows: 4,
                reserve: 1 << 16,
                peer_reserve: credit,
                receive_memory: 1 << 24,
                flow_send_buffer: 1 << 20,
                send_memory: 1 << 24,
                flow_idle: Duration::MAX,
                flow_unread: Duration::MAX,
                classes: PerClass::default(),
                datagram_memory: 1 << 20,
                datagram_idle: Duration::from_secs(300),
                lifetimes: crate::settings::Lifetimes::default(),
            },
            NOW,
        );
        table.tell_in_flight(IN_FLIGHT);
        let flow = table.open(b"target".to_vec(), Class::Assured, 1, NOW).expect("there is room");
        let ended = table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW).ended;
        assert_eq!(ended, Some(Class::BestEffort), "control ends what it fills");
        (table, flow)
    }

    fn unsent(table: &FlowTable) -> u64 {
        table.unsent_bytes as u64
    }

    fn write(table: &mut FlowTable, flow: u64, bytes: usize) {
        assert_eq!(table.write(flow, &vec![7; bytes], NOW), Write::Taken(bytes));
    }

    /// Sends symbols of `lane` as long as there are any; what ended with each.
    fn send(table: &mut FlowTable, lane: Lane) -> Vec<Option<Class>> {
        let mut ended = Vec::new();
        while table.next_lane(NOW) == Some(lane) {
            ended.push(table.fill(lane, ROOM, &mut Vec::new(), NOW).ended);
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
            let urgent = (1 << 19) - unsent(&table) as usize;
            assert!(urgent as u64 >= URGENT_BYTES);

            let (mut table, flow) = self::table(1 << 20);
            write(&mut table, flow, urgent + follow as usize);
            let ended = send(&mut table, Lane::Urgent);
            assert_eq!(unsent(&table), follow);
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
        assert_eq!(unsent(&table), URGENT_BYTES, "the rest has no credit");
        assert!(!ended.is_empty() && ended.iter().all(Option::is_none), "{ended:?}");

        let (mut table, flow) = self::table(1 << 20);
        write(&mut table, flow, 3 * URGENT_BYTES as usize);
        send(&mut table, Lane::Urgent);
        let ended = send(&mut table, Lane::Bulk);
        assert_eq!(ended.last(), Some(&Some(Class::Assured)), "all of it has left");
    }
}
