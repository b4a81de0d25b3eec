//! Carried traffic, for those who look now and then.

use std::time::Duration;

use bentpipe_schedule::{
    Activity, Carried, Class, ClassActivity, Most, PerClass, SeatActivity, Seen,
};

use super::FlowTable;
use crate::target::Target;

/// TCP, as IP numbers it.
const TCP: u8 = 6;

/// Traffic of a session, in total and since the last look.
///
/// What this end sent counts when it leaves for the first time, what it received when its reader
/// takes it: contents, without what the link adds to them.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    /// Age of the session: totals began then.
    pub age: Duration,
    /// Time since the last look, or since the beginning: recent counts began then.
    pub interval: Duration,
    /// `true` if its packet keys should have been replaced long ago: handshakes may be dropped.
    pub keys_overdue: bool,
    /// Each class.
    pub classes: PerClass<ClassActivity>,
    /// The busiest passengers, the busiest first, each once in every class that it uses.
    pub passengers: Vec<SeatActivity>,
    /// Number of passengers, counted in each class that they use, including those of the recent
    /// past.
    pub all_passengers: usize,
    /// The busiest flows, the busiest first.
    pub flows: Vec<FlowTraffic>,
    /// Number of flows that carried something or have something to send.
    pub all_flows: usize,
}

/// Traffic of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowTraffic {
    /// Its number in this session.
    pub id: u64,
    /// Number of its passenger.
    pub passenger: u32,
    /// The class that it is of now.
    pub class: Class,
    /// Its IP protocol: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// Destination.
    pub target: Target,
    /// Activity since it has this class.
    pub activity: Activity,
}

impl FlowTable {
    /// Traffic so far, in total and since the last call; at most so many passengers and flows.
    pub fn traffic(&mut self, most: Most, now: Duration) -> Traffic {
        let interval = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let Seen { classes, passengers, all_passengers, flows, all_flows } =
            self.scheduler.look(most);
        let flows = flows.into_iter().filter_map(|flow| {
            let (protocol, target) = self.leads_to(flow.id)?;
            let (id, passenger, class) = (flow.id, flow.passenger, flow.class);
            let activity = flow.activity;
            Some(FlowTraffic { id, passenger, class, protocol, target, activity })
        });
        Traffic {
            age: now.saturating_sub(self.began),
            interval,
            keys_overdue: false,
            classes,
            passengers,
            all_passengers,
            flows: flows.collect(),
            all_flows,
        }
    }

    /// By which IP protocol a flow leads where.
    fn leads_to(&self, id: u64) -> Option<(u8, Target)> {
        if let Some(flow) = self.flows.get(&id) {
            return Some((TCP, flow.target.clone()?));
        }
        let flow = self.datagrams.flows.get(&id)?;
        Some((flow.protocol, flow.target.clone()))
    }

    /// The reader of a stream took so many bytes.
    pub(super) fn count_received(&mut self, id: u64, bytes: usize) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let (class, passenger) = (flow.class, flow.passenger);
        let turn = flow.turn.get_or_insert_with(|| self.scheduler.add(id, class, passenger));
        self.scheduler.carried(*turn, received(bytes));
    }
}

/// Contents that left.
pub fn sent(bytes: usize) -> Carried {
    Carried { sent_bytes: bytes as u64, received_bytes: 0 }
}

/// Contents that their reader took.
pub fn received(bytes: usize) -> Carried {
    Carried { sent_bytes: 0, received_bytes: bytes as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use crate::flow::Receive;
    use crate::flow::fill::tests::empty;
    use crate::lane::Lane;
    use crate::wire::frame::{Frame, OpenDatagrams};

    const NOW: Duration = Duration::from_secs(10);
    const MOST: Most = Most { passengers: 64, flows: 64 };

    fn opened(table: &mut FlowTable, target: &str, class: Class, passenger: u32) -> u64 {
        let mut encoded = Vec::new();
        let target: Target = target.parse().expect("it is one");
        target.encode(&mut encoded).expect("it fits");
        table.open(encoded, class, passenger, NOW).expect("there is room")
    }

    /// Sends all there is.
    fn drain(table: &mut FlowTable) {
        while let Some(lane) = table.next_lane(NOW) {
            match lane {
                Lane::Datagram => drop(table.fill_datagrams(1000, true, &mut Vec::new(), NOW)),
                lane => drop(table.fill(lane, 1000, &mut Vec::new(), NOW)),
            }
        }
    }

    #[test]
    fn of_ten_thousand_flows_the_busiest_are_told() {
        let (flows, mut table) = (10_000, empty(10_000, 1 << 20));
        for n in 0..flows {
            let flow = opened(&mut table, &format!("host{n}.test:443"), Class::BestEffort, n / 5);
            table.write(flow, &vec![7; 1 + n as usize % 700], NOW);
        }
        drain(&mut table);
        let traffic = table.traffic(MOST, NOW + Duration::from_secs(5));
        assert_eq!((traffic.flows.len(), traffic.passengers.len()), (64, 64));
        assert_eq!((traffic.all_flows, traffic.all_passengers), (10_000, 2000));
        assert_eq!(
            (traffic.age, traffic.interval),
            (Duration::from_secs(5), Duration::from_secs(5))
        );
        assert!(traffic.flows.iter().all(|flow| flow.activity.total.carried.sent_bytes >= 696));
        let of_class = &traffic.classes[Class::BestEffort].total;
        let all: u64 = (0..flows).map(|n| 1 + u64::from(n) % 700).sum();
        assert_eq!((of_class.sent.carried.sent_bytes, of_class.flows), (all, 10_000));
        let again = table.traffic(MOST, NOW + Duration::from_secs(6));
        assert_eq!(again.interval, Duration::from_secs(1));
        assert!(again.flows.iter().all(|flow| flow.activity.recent.carried.both() == 0));
    }

    #[test]
    fn flows_are_told_by_where_they_lead_and_what_was_read() {
        let mut table = empty(64, 1 << 20);
        let stream = opened(&mut table, "origin.example:443", Class::Assured, 3);
        let target: Target = "192.0.2.7:53".parse().expect("it is one");
        let (class, passenger) = (Class::BestEffort, 4);
        let open =
            OpenDatagrams { target: target.clone(), protocol: 17, source: 9, class, passenger };
        let datagrams = table.open_datagrams(&open, NOW).expect("it fits").expect("there is room");
        table.write(stream, &[7; 300], NOW);
        table.send_datagram(datagrams, &[7; 60], 1200, NOW).expect("it is open");
        drain(&mut table);
        let came = Frame::Stream { flow: stream, offset: 0, fin: false, data: &[7; 500] };
        table.take_frame(came, NOW).expect("it may");
        table.take_frame(Frame::Datagram { flow: datagrams, payload: &[7; 90] }, NOW).expect("too");
        // What nobody has read has not been carried yet.
        let carried = |table: &mut FlowTable, flow| {
            let traffic = table.traffic(MOST, NOW);
            let found = traffic.flows.into_iter().find(|it| it.id == flow).expect("it is there");
            let carried = found.activity.total.carried;
            (found.protocol, found.target.to_string(), carried.sent_bytes, carried.received_bytes)
        };
        assert_eq!(carried(&mut table, stream), (6, "origin.example:443".into(), 300, 0));
        assert_eq!(carried(&mut table, datagrams), (17, "192.0.2.7:53".into(), 60, 0));
        table.read(stream, &mut [0; 400], NOW);
        assert!(matches!(table.receive_datagram(datagrams, NOW), Receive::Taken(_)));
        assert_eq!(carried(&mut table, stream).3, 400);
        assert_eq!(carried(&mut table, datagrams).3, 90);
        assert_eq!(table.traffic(MOST, NOW).passengers.len(), 2);
    }
}
