//! Content of the next symbol, decided at the moment it leaves.

use std::time::Duration;

use bentpipe_schedule::PerClass;

use super::table::Flow;
use super::traffic::sent;
use super::{Bill, FlowEvent, FlowTable};
use crate::Class;
use crate::lane::Lane;
use crate::wire::codec::MAX_VARINT_BYTES;
use crate::wire::frame;

/// Below this a symbol counts as full: a STREAM head and a few bytes.
const LEAST_ROOM: usize = 32;
/// Room of an OPEN with the longest name, or of any other frames of one flow's control.
const CONTROL_ROOM: usize = 300;
/// However short control is, it counts as so much: it may take a packet by itself.
const LEAST_LEADING_BYTES: usize = 300;
/// Room of an OPEN to an address with the longest claim after it.
const CLAIM_ROOM: usize = 330;

/// Description of a filled symbol of streams and control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// The class of what ended with it, if anything did: control, or all that a flow had to send for
    /// now.
    pub ended: Option<Class>,
    /// Classes that pay for its packet.
    pub bill: Bill,
}

impl FlowTable {
    /// Fills a symbol of `lane` with up to `room` bytes of frames.
    pub fn fill(&mut self, lane: Lane, room: usize, out: &mut Vec<u8>, now: Duration) -> Content {
        let end = out.len() + room;
        let mut paid = PerClass::default();
        let leads = lane == Lane::Urgent && self.control_leads(now);
        let controls = leads && self.fill_control(end, out, &mut paid, now);
        let mut ended = controls.then_some(Class::BestEffort);
        let mut newcomer = None;
        while end - out.len() >= LEAST_ROOM {
            let Some((id, _)) = self.next_turn(now).filter(|(_, other)| *other == lane) else {
                break;
            };
            // Who has just begun does not wait for others' bytes to fill the packet.
            let (passenger, is_new) = (self.passenger(id), self.next_is_new(now));
            if newcomer.is_some_and(|newcomer| newcomer != passenger) && !is_new {
                break;
            }
            newcomer = newcomer.or(is_new.then_some(passenger));
            if self.opens(id) {
                let claims = self.flows.get(&id).is_some_and(|flow| flow.control.claim);
                if end - out.len() < if claims { CLAIM_ROOM } else { CONTROL_ROOM } {
                    break;
                }
                self.fill_opening(id, end, out, &mut paid, now);
                ended = ended.or(Some(Class::BestEffort));
                continue;
            }
            let Some(class) = self.flows.get(&id).map(|flow| flow.class) else { break };
            if !self.fill_stream(id, end, out, &mut paid, now) {
                break;
            }
            self.led_bytes = 0;
            let goes_on = self.flows.get(&id).is_some_and(|flow| self.goes_on(flow, lane, now));
            if let Some(passenger) = passenger.filter(|_| !goes_on) {
                ended = self.end_burst((passenger, class), lane).or(ended);
            }
        }
        Content { ended, bill: Bill::most(&paid) }
    }

    /// Passenger of the flow.
    fn passenger(&self, id: u64) -> Option<u32> {
        let stream = self.flows.get(&id).map(|flow| flow.passenger);
        stream.or_else(|| self.datagrams.flows.get(&id).map(|flow| flow.passenger))
    }

    /// Returns `true` if the flow's opening waits for its turn.
    fn opens(&self, id: u64) -> bool {
        let opens = self.flows.get(&id).map(|flow| flow.control.open.is_some());
        opens.unwrap_or_else(|| self.opens_datagrams(id))
    }

    /// Puts the flow's opening and what goes with it, in its turn.
    fn fill_opening(
        &mut self,
        id: u64,
        end: usize,
        out: &mut Vec<u8>,
        paid: &mut PerClass<usize>,
        now: Duration,
    ) {
        self.led_bytes = 0;
        let Some(flow) = self.flows.get_mut(&id) else {
            return self.fill_datagram_opening(id, end, out, paid, now);
        };
        let before = out.len();
        flow.put_control(id, out);
        paid[flow.class] += out.len() - before;
        if let Some(turn) = flow.turn {
            self.scheduler.spent(turn, out.len() - before, now);
        }
        // The first bytes travel with the opening, if there are any.
        self.refresh(id, now);
        if self.flows.get(&id).is_some_and(|flow| flow.send.is_ready()) {
            self.fill_stream(id, end, out, paid, now);
        }
        self.remove_if_over(id);
    }

    /// Returns `true` if enough of a flow's burst follows for reports to reveal in time what was
    /// lost of it in `lane`, so that nothing has to be protected yet.
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
            if !self.has_control(id) {
                continue;
            }
            match self.flows.get_mut(&id) {
                Some(flow) => {
                    let (class, head) = (flow.class, out.len());
                    flow.put_control(id, out);
                    self.pay(class, out.len() - head, paid, now);
                    self.remove_if_over(id);
                }
                None => self.fill_datagram_control(id, out, paid, now),
            }
        }
        self.led_bytes += (out.len() - before).max(LEAST_LEADING_BYTES);
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
            self.scheduler.carried(turn, sent(len));
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

impl Flow {
    /// Puts all the control that waits.
    fn put_control(&mut self, id: u64, out: &mut Vec<u8>) {
        let control = std::mem::take(&mut self.control);
        if let Some(target) = control.open {
            frame::put_open(out, id, self.class, self.passenger, self.recv.limit(), &target);
            self.opened = true;
            if let Some(claim) = self.claim.as_ref().filter(|_| control.claim) {
                frame::put_claim(out, id, claim);
            }
        } else if control.credit {
            frame::put_credit(out, id, self.recv.limit());
        }
        if let Some(class) = self.confirmed.filter(|_| control.class) {
            frame::put_class(out, id, class);
        }
        if let Some(code) = control.stop {
            frame::put_stop(out, id, code);
        }
        if let Some(code) = control.reset {
            frame::put_reset(out, id, code);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::claim::Claim;
    use crate::code::ResetCode;
    use crate::flow::send::URGENT_BYTES;
    use crate::flow::{Terms, Write};
    use crate::wire::frame::Frame;
    use crate::{ClassSettings, Limits};

    const NOW: Duration = Duration::from_secs(10);
    const ROOM: usize = 1000;
    /// Bytes that leave in a round trip, in these tests.
    const IN_FLIGHT: u64 = 50_000;

    /// A table without flows, which may each send `credit` bytes.
    pub(in crate::flow) fn empty(max_flows: usize, credit: u64) -> FlowTable {
        FlowTable::new(
            Terms {
                opens: true,
                max_flows,
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
        )
    }

    /// A table with a flow that has opened, and may send `credit` bytes.
    fn table(credit: u64) -> (FlowTable, u64) {
        limited(credit, PerClass::default())
    }

    fn limited(credit: u64, classes: PerClass<ClassSettings>) -> (FlowTable, u64) {
        let mut table = empty(4, credit);
        table.set_classes(classes, NOW);
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
    fn what_somebody_begins_with_is_not_filled_up_with_others_bytes() {
        let mut table = empty(8, 1 << 20);
        let page = table.open(b"target".to_vec(), Class::BestEffort, 1, NOW).expect("room");
        write(&mut table, page, 20 * ROOM);
        for _ in 0..5 {
            assert_eq!(table.next_lane(NOW), Some(Lane::Urgent));
            table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW);
        }
        let first = table.open(b"target".to_vec(), Class::BestEffort, 2, NOW).expect("room");
        write(&mut table, first, 200);
        let second = table.open(b"target".to_vec(), Class::BestEffort, 3, NOW).expect("room");
        write(&mut table, second, 200);
        assert!(table.next_is_new(NOW));
        let mut out = Vec::new();
        table.fill(Lane::Urgent, ROOM, &mut out, NOW);
        assert!((400..480).contains(&out.len()), "both that began, and no more: {}", out.len());
        assert!(!table.next_is_new(NOW));
        out.clear();
        table.fill(Lane::Urgent, ROOM, &mut out, NOW);
        assert_eq!(out.len(), ROOM, "the page goes on");
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
    fn an_object_of_a_page_ends_nothing_while_a_round_trip_of_the_page_follows() {
        const OBJECTS: usize = 12;
        const BYTES: usize = 10 * ROOM;
        let mut table = empty(OBJECTS + 1, 1 << 20);
        table.tell_in_flight(IN_FLIGHT);
        let mut open = |passenger| {
            let flow = table.open(b"target".to_vec(), Class::BestEffort, passenger, NOW);
            table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW);
            flow.expect("there is room")
        };
        let page: Vec<u64> = (0..OBJECTS).map(|_| open(1)).collect();
        let other = open(2);
        for flow in &page {
            write(&mut table, *flow, BYTES);
        }
        write(&mut table, other, ROOM / 2);
        let (mut ends, mut sent) = (Vec::new(), 0);
        while table.next_lane(NOW) == Some(Lane::Urgent) {
            let before = unsent(&table);
            let ended = table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW).ended;
            sent += before - unsent(&table);
            ends.extend(ended.map(|_| (sent, unsent(&table))));
        }
        assert_eq!(unsent(&table), 0);
        // The other passenger's is protected at once; of the page what ends with less behind it.
        assert!(ends[0].0 < 4 * ROOM as u64, "{ends:?}");
        let behind: Vec<u64> = ends[1..].iter().map(|(_, behind)| *behind).collect();
        assert!(behind.iter().all(|behind| *behind < IN_FLIGHT), "{ends:?}");
        assert_eq!(behind.last(), Some(&0));
    }

    /// A table in which a small object of a class has left, and the end of its burst is put off for what
    /// a large one has.
    fn put_off(large: Class) -> (FlowTable, u64, Vec<Option<Class>>) {
        let mut table = empty(2, 1 << 20);
        table.tell_in_flight(IN_FLIGHT);
        let mut open = |class| {
            let flow = table.open(b"target".to_vec(), class, 1, NOW).expect("there is room");
            table.claim(flow, Claim::new("www.gov.uk", Class::Assured).expect("a short name"));
            table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW);
            flow
        };
        let (object, rest) = (open(Class::BestEffort), open(large));
        write(&mut table, object, ROOM / 2);
        write(&mut table, rest, IN_FLIGHT as usize + 8 * ROOM);
        let ended = (0..6).map(|_| table.fill(Lane::Urgent, ROOM, &mut Vec::new(), NOW).ended);
        let ended = ended.collect();
        (table, rest, ended)
    }

    #[test]
    fn an_end_that_was_put_off_counts_once_nothing_more_follows() {
        let (mut table, rest, ended) = put_off(Class::BestEffort);
        assert!(ended.iter().all(Option::is_none), "{ended:?}");
        assert_eq!(table.ended_since(Lane::Urgent), None);
        table.reset(rest, ResetCode::Aborted);
        assert_eq!(table.ended_since(Lane::Urgent), Some(Class::BestEffort));
        assert_eq!(table.ended_since(Lane::Urgent), None, "once");
    }

    #[test]
    fn an_end_that_was_put_off_counts_once_the_rest_is_another_class() {
        let (mut table, rest, _) = put_off(Class::BestEffort);
        let confirmed = Frame::Class { flow: rest, class: Class::Assured };
        assert_eq!(table.take_frame(confirmed, NOW), Ok(()));
        assert_eq!(table.ended_since(Lane::Urgent), Some(Class::BestEffort));
    }

    #[test]
    fn bytes_of_another_class_put_no_end_off() {
        let (_, _, ended) = put_off(Class::LowerEffort);
        assert!(ended.contains(&Some(Class::BestEffort)), "{ended:?}");
    }

    #[test]
    fn what_was_quiet_follows_in_the_urgent_lane() {
        let (mut table, flow) = table(1 << 20);
        write(&mut table, flow, 3 * URGENT_BYTES as usize);
        send(&mut table, Lane::Urgent);
        send(&mut table, Lane::Bulk);
        let later = NOW + Duration::from_secs(60);
        let bytes = IN_FLIGHT as usize;
        assert_eq!(table.write(flow, &vec![7; bytes], later), Write::Taken(bytes));
        let owner = (1, Class::Assured);
        assert_eq!(table.end_burst(owner, Lane::Bulk), Some(Class::Assured));
        assert_eq!(table.end_burst(owner, Lane::Urgent), None);
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

    #[test]
    fn a_class_waits_at_its_ceiling_and_a_confirmed_claim_leaves_it() {
        let ceil = Some(bentpipe_units::BitRate::from_bps(80_000));
        let low = Limits { rate: None, ceil };
        let mut classes = PerClass::<ClassSettings>::default();
        classes[Class::LowerEffort].limits = low;
        let (mut table, _) = limited(1 << 20, classes);
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
