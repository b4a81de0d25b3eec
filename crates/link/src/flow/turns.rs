//! Turns of the flows in each lane, and those left out for now.

use std::time::Duration;

use super::FlowTable;
use super::table::Flow;
use crate::Class;
use crate::lane::Lane;

/// Control goes before the flows' turns up to so many bytes; then one of them has its turn. It is the
/// most part of a packet, so that control has half of the link at most while anything else waits.
const MOST_LEADING_BYTES: usize = 1200;

impl FlowTable {
    /// Tells which lanes take another symbol. Flows of a lane that takes none give their turns to
    /// others until it does.
    pub fn tell_room(&mut self, rooms: [bool; Lane::ALL.len()], now: Duration) {
        self.rooms = rooms;
        for lane in Lane::ALL {
            if rooms[lane as usize] {
                for (id, class) in std::mem::take(&mut self.held[lane as usize]) {
                    self.held_of[class] -= 1;
                    self.refresh(id, now);
                    self.refresh_datagrams(id, now);
                }
            }
        }
    }

    /// The lane of what would be sent next; `None` when nothing waits that its lane has room for.
    pub fn next_lane(&mut self, now: Duration) -> Option<Lane> {
        if self.control_leads(now) {
            return Some(Lane::Urgent);
        }
        self.next_turn(now).map(|(_, lane)| lane)
    }

    /// The flow whose turn it is, and the lane of what it would send.
    pub(super) fn next_turn(&mut self, now: Duration) -> Option<(u64, Lane)> {
        loop {
            let id = self.scheduler.pick(now)?;
            let stream = self.flows.get(&id).map(|flow| self.lane_of(flow, now));
            let lane = match stream {
                Some(lane) => lane,
                None if self.opens_datagrams(id) => Lane::Urgent,
                None if self.datagram_class(id, now).is_some() => Lane::Datagram,
                // What waited there was of no use any more: the turn is another's.
                None => continue,
            };
            if self.rooms[lane as usize] {
                return Some((id, lane));
            }
            self.hold(id, lane);
        }
    }

    /// The class of the flow whose turn it is.
    pub fn next_class(&mut self, now: Duration) -> Option<Class> {
        let (id, _) = self.next_turn(now)?;
        let stream = self.flows.get(&id).map(|flow| flow.class);
        stream.or_else(|| self.datagrams.flows.get(&id).map(|flow| flow.class))
    }

    /// Returns `true` if the passenger whose turn it is has just begun, or asks for little.
    pub fn next_is_new(&mut self, now: Duration) -> bool {
        self.next_turn(now).is_some() && self.scheduler.picks_new(now)
    }

    /// Returns `true` if the flow whose turn it is goes before a retransmission or repair of
    /// `class`.
    pub fn precedes(&mut self, class: Class, now: Duration) -> bool {
        self.scheduler.precedes(class, now)
    }

    /// The class pays for `bytes` that no flow's turn accounts for.
    pub fn charge(&mut self, class: Class, bytes: usize, now: Duration) {
        self.scheduler.charge(class, bytes, now);
    }

    /// The lane is full: the flow's turn is another's until it is not.
    fn hold(&mut self, id: u64, lane: Lane) {
        let stream = self.flows.get(&id).map(|flow| (flow.class, flow.turn));
        let datagrams = self.datagrams.flows.get(&id).map(|flow| (flow.class, Some(flow.turn)));
        let Some((class, Some(turn))) = stream.or(datagrams) else { return };
        self.scheduler.deactivate(turn);
        self.unhold(id);
        self.held[lane as usize].insert(id, class);
        self.held_of[class] += 1;
    }

    /// Time at which something may leave that only its class's ceiling delays.
    pub fn next_ready(&mut self, now: Duration) -> Option<Duration> {
        self.scheduler.next_ready(now)
    }

    /// Returns `true` if control is next. It goes before the flows, which are not charged for it;
    /// but at most [`MOST_LEADING_BYTES`] of it while a flow waits.
    pub(super) fn control_leads(&mut self, now: Duration) -> bool {
        while let Some(&id) = self.control.front()
            && !self.has_control(id)
        {
            self.control.pop_front();
        }
        self.rooms[Lane::Urgent as usize]
            && !(self.control.is_empty() && self.refusals.is_empty())
            && (self.led_bytes < MOST_LEADING_BYTES || self.next_turn(now).is_none())
    }

    /// Returns `true` if the flow's control waits; only then it is in the queue. Control that waits
    /// for an opening leaves with it, in the flow's turn.
    pub(super) fn has_control(&mut self, id: u64) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return self.has_datagram_control(id) };
        flow.control.queued = flow.control.open.is_none() && !flow.control.is_empty();
        flow.control.queued
    }

    pub(super) fn lane_of(&self, flow: &Flow, now: Duration) -> Lane {
        let urgent = flow.class <= Class::Network || flow.control.open.is_some();
        if urgent || flow.send.is_short(now, self.quiet) { Lane::Urgent } else { Lane::Bulk }
    }

    /// Turns of the scheduler, and what is counted, follow what the flow could send.
    pub(super) fn refresh(&mut self, id: u64, now: Duration) {
        self.count_ready(id, now);
        self.take_turn(id, now);
    }

    /// Turns of the scheduler follow what the flow could send.
    pub(super) fn take_turn(&mut self, id: u64, now: Duration) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let sends = flow.control.open.is_some() || (flow.opened && flow.send.is_ready());
        if sends && flow.ended.is_none() {
            let (class, passenger) = (flow.class, flow.passenger);
            let turn = flow.turn.get_or_insert_with(|| self.scheduler.add(id, class, passenger));
            self.scheduler.activate(*turn, now);
        } else if let Some(turn) = flow.turn {
            self.scheduler.deactivate(turn);
        }
    }

    /// The flow waits for no room any more.
    pub(super) fn unhold(&mut self, id: u64) {
        for class in self.held.iter_mut().filter_map(|held| held.remove(&id)) {
            self.held_of[class] -= 1;
        }
    }

    pub(super) fn queue_control(&mut self, id: u64) {
        let stream = self.flows.get_mut(&id).map(|flow| &mut flow.control);
        let control = match stream {
            Some(control) => Some(control),
            None => self.datagrams.flows.get_mut(&id).map(|flow| &mut flow.control),
        };
        if let Some(control) = control
            && !std::mem::replace(&mut control.queued, true)
        {
            self.control.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_schedule::{ClassSettings, Limits, PerClass};
    use bentpipe_units::BitRate;

    use super::*;
    use crate::code::ResetCode;
    use crate::flow::Receive;
    use crate::flow::fill::tests::empty;
    use crate::wire::frame::OpenDatagrams;

    const NOW: Duration = Duration::from_secs(10);
    const ROOM: usize = 1000;
    const MANY: usize = 4096;
    /// As many flows of datagrams as one passenger may have.
    const OF_ONE: usize = MANY / 16;

    fn datagrams(table: &mut FlowTable, class: Class, passenger: u32) -> u64 {
        let target = "origin.example:53".parse().expect("it is one");
        let open = OpenDatagrams { target, protocol: 17, source: 53, class, passenger };
        let opened = table.open_datagrams(&open, NOW).expect("it fits");
        let flow = opened.expect("there is room");
        table.send_datagram(flow, &[7; 60], 1200, NOW).expect("it is open");
        flow
    }

    /// Fills the next packet, whatever it is; its lane and length.
    fn next(table: &mut FlowTable) -> Option<(Lane, usize)> {
        let (lane, mut out) = (table.next_lane(NOW)?, Vec::new());
        match lane {
            Lane::Datagram => drop(table.fill_datagrams(ROOM, true, &mut out, NOW)),
            lane => drop(table.fill(lane, ROOM, &mut out, NOW)),
        }
        assert!(!out.is_empty(), "an empty packet of {lane:?}");
        Some((lane, out.len()))
    }

    #[test]
    fn who_opens_flow_after_flow_keeps_nobody_waiting_for_longer_than_a_turn() {
        let mut table = empty(MANY, 1 << 20);
        for _ in 0..OF_ONE {
            datagrams(&mut table, Class::BestEffort, 1);
        }
        let flow = table.open(b"target".to_vec(), Class::BestEffort, 2, NOW).expect("it fits");
        table.write(flow, b"GET", NOW);
        let packets = (0..).take_while(|_| {
            let waits = !table.flows[&flow].opened;
            waits && next(&mut table).is_some()
        });
        assert!(packets.count() <= 4, "a turn is three of these packets");
        let openings = table.datagrams.flows.values().filter(|flow| !flow.opened).count();
        assert!(openings > OF_ONE / 2, "only {openings} wait behind it");
        while next(&mut table).is_some() {}
        assert!(table.datagrams.flows.values().all(|flow| flow.opened));
        assert_eq!(table.datagram_counts().sent, OF_ONE as u64);
    }

    #[test]
    fn nobody_holds_all_flows_of_datagrams() {
        let mut table = empty(64, 1 << 20);
        let most = table.most_datagram_flows() / 8;
        let mine: Vec<_> = (0..most).map(|_| datagrams(&mut table, Class::BestEffort, 1)).collect();
        while next(&mut table).is_some() {}
        // All but one go on, and that one makes room.
        let later = NOW + Duration::from_secs(1);
        for &flow in mine.iter().skip(1) {
            table.send_datagram(flow, &[7; 60], 1200, later).expect("it is open");
        }
        let another = datagrams(&mut table, Class::BestEffort, 1);
        let of = |table: &mut FlowTable, flow| table.receive_datagram(flow, later);
        assert_eq!(of(&mut table, mine[0]), Receive::Reset(ResetCode::Limit));
        assert!(
            mine[1..].iter().chain([&another]).all(|&it| of(&mut table, it) == Receive::Blocked)
        );
        // Seven more take all that is left; who comes then has one of theirs.
        for passenger in 2..=8 {
            (0..most).for_each(|_| _ = datagrams(&mut table, Class::BestEffort, passenger));
        }
        assert_eq!(table.datagrams.crowd.count(), table.most_datagram_flows());
        datagrams(&mut table, Class::BestEffort, 9);
        assert_eq!(table.datagrams.crowd.count(), table.most_datagram_flows());
        assert!(table.len() <= 64);
    }

    #[test]
    fn what_nobody_reads_is_dropped_when_it_is_of_no_use_any_more() {
        let mut table = empty(MANY, 1 << 20);
        let [call, other] = [1, 2].map(|who| datagrams(&mut table, Class::Network, who));
        let lifetime = table.terms.lifetimes.of(Class::Network);
        let came = |table: &mut FlowTable, flow, at| {
            table.take_datagram(flow, bytes::Bytes::from_static(&[7; 100]), at);
        };
        came(&mut table, call, NOW);
        came(&mut table, call, NOW + lifetime / 2);
        assert_eq!(table.datagrams.incoming_bytes, 328);
        let late = NOW + lifetime;
        assert!(matches!(table.receive_datagram(call, late), Receive::Taken(_)));
        assert_eq!(table.receive_datagram(call, late), Receive::Blocked, "the first is gone");
        assert_eq!((table.datagram_counts().dropped, table.datagrams.incoming_bytes), (1, 0));
        // Who reads nothing at all keeps nobody's memory.
        table.terms.datagram_memory = 3 * 164;
        (0..3).for_each(|_| came(&mut table, call, late));
        came(&mut table, other, late);
        assert_eq!(table.receive_datagram(other, late), Receive::Blocked, "there is no room");
        let later = late + Duration::from_secs(1);
        came(&mut table, other, later);
        assert!(matches!(table.receive_datagram(other, later), Receive::Taken(_)));
        assert_eq!((table.datagram_counts().dropped, table.datagrams.incoming_bytes), (5, 0));
        came(&mut table, call, later);
        table.reap(later + Duration::from_secs(1));
        assert_eq!((table.datagram_counts().dropped, table.datagrams.incoming_bytes), (6, 0));
    }

    #[test]
    fn what_a_flow_holds_when_it_ends_is_counted() {
        let mut table = empty(MANY, 1 << 20);
        let flow = datagrams(&mut table, Class::BestEffort, 1);
        table.send_datagram(flow, &[7; 60], 1200, NOW).expect("it is open");
        table.reset(flow, ResetCode::Aborted);
        assert_eq!(table.datagram_counts().dropped, 2);
        let counters = table.class_counters(Class::BestEffort);
        assert_eq!((counters.sent.dropped_packets, counters.queued_bytes), (2, 0));
        // Too long for any packet by now.
        let flow = datagrams(&mut table, Class::BestEffort, 1);
        next(&mut table);
        table.send_datagram(flow, &[7; 1100], 1200, NOW).expect("it was not then");
        assert_eq!(table.fill_datagrams(ROOM, true, &mut Vec::new(), NOW), None);
        assert_eq!(table.class_counters(Class::BestEffort).sent.dropped_packets, 3);
    }

    #[test]
    fn openings_stay_below_the_ceiling_of_their_class() {
        let mut table = empty(MANY, 1 << 20);
        let mut classes: PerClass<ClassSettings> = PerClass::default();
        let ceil = Some(BitRate::from_bps(64_000));
        classes[Class::LowerEffort].limits = Limits { rate: None, ceil };
        table.set_classes(classes, NOW);
        for _ in 0..OF_ONE {
            datagrams(&mut table, Class::LowerEffort, 1);
        }
        let mut bytes = 0;
        while let Some((_, len)) = next(&mut table) {
            bytes += len;
        }
        assert!((6000..=6000 + ROOM).contains(&bytes), "{bytes} bytes at once");
        assert!(table.next_ready(NOW).is_some_and(|ready| ready > NOW));
        datagrams(&mut table, Class::BestEffort, 2);
        assert_eq!(next(&mut table).map(|(lane, _)| lane), Some(Lane::Urgent), "of another class");
    }

    #[test]
    fn control_goes_first_but_has_no_more_than_half() {
        let mut table = empty(MANY, 1 << 20);
        let bulk = table.open(b"target".to_vec(), Class::BestEffort, 2, NOW).expect("it fits");
        table.write(bulk, &vec![7; 1 << 20], NOW);
        let flows: Vec<_> = (0..200).map(|_| datagrams(&mut table, Class::BestEffort, 1)).collect();
        while table.next_lane(NOW) != Some(Lane::Bulk)
            || table.datagrams.flows.values().any(|flow| !flow.opened)
        {
            next(&mut table);
        }
        let mut lanes = Vec::new();
        for flow in flows {
            table.reset(flow, ResetCode::Aborted);
            table.write(bulk, &[7; ROOM], NOW);
            lanes.push(next(&mut table).expect("there is enough").0);
        }
        assert_eq!(lanes[..4], [Lane::Urgent; 4]);
        let bulk = lanes.iter().filter(|lane| **lane == Lane::Bulk).count();
        assert_eq!(bulk, lanes.len() / 5, "one for each four short ones of control");
    }

    #[test]
    fn a_full_lane_keeps_no_other_waiting() {
        let mut table = empty(MANY, 1 << 20);
        let bulk = table.open(b"target".to_vec(), Class::BestEffort, 1, NOW).expect("it fits");
        table.write(bulk, &vec![7; 1 << 20], NOW);
        while table.next_lane(NOW) != Some(Lane::Bulk) {
            next(&mut table);
        }
        table.tell_room([true, false, true], NOW);
        assert_eq!(table.next_lane(NOW), None);
        let waits = |table: &FlowTable| table.waiting()[Class::BestEffort].bytes;
        assert!(waits(&table) > 0, "it waits all the same");
        let call = datagrams(&mut table, Class::Network, 2);
        assert_eq!(next(&mut table).map(|(lane, _)| lane), Some(Lane::Urgent), "its opening");
        table.send_datagram(call, &[7; 60], 1200, NOW).expect("it is open");
        table.write(bulk, &[7; 100], NOW);
        assert_eq!(next(&mut table).map(|(lane, _)| lane), Some(Lane::Datagram));
        assert_eq!(table.next_lane(NOW), None);
        table.tell_room([true; 3], NOW);
        assert_eq!(table.next_lane(NOW), Some(Lane::Bulk));
        table.tell_room([true, false, true], NOW);
        table.next_lane(NOW);
        table.reset(bulk, ResetCode::Aborted);
        table.release(bulk);
        while next(&mut table).is_some() {}
        assert_eq!((table.held_of[Class::BestEffort], table.flows.len()), (0, 0));
    }
}
