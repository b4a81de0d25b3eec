//! Traffic statistics: totals, and what was carried since the last request.

use std::time::Duration;

use bentpipe_flow::{FlowTraffic, Target, Traffic};
use bentpipe_schedule::{Snapshot, SnapshotLimits};

use super::FlowTable;
use super::state::Flow;

/// IP protocol number of TCP.
const TCP: u8 = 6;

impl FlowTable {
    /// Returns the traffic in total and since the last call, with at most `max` passengers and
    /// flows.
    pub fn traffic(&mut self, max: SnapshotLimits, now: Duration) -> Traffic {
        let interval = now.saturating_sub(std::mem::replace(&mut self.last_traffic, now));
        let Snapshot { classes, passengers, all_passengers, flows, all_flows } =
            self.turns.scheduler_mut().snapshot(max);
        let flows = flows.into_iter().filter_map(|flow| {
            let (protocol, target) = self.destination(flow.id)?;
            let (id, passenger, class) = (flow.id, flow.passenger, flow.class);
            let activity = flow.activity;
            Some(FlowTraffic { id, passenger, class, protocol, target, activity })
        });
        Traffic {
            age: now.saturating_sub(self.began),
            interval,
            classes,
            passengers,
            all_passengers,
            flows: flows.collect(),
            all_flows,
            ..Traffic::default()
        }
    }

    /// IP protocol and destination of a flow.
    fn destination(&self, id: u64) -> Option<(u8, Target)> {
        let flow = self.flows.get(id)?;
        let protocol = match flow {
            Flow::Stream(_) => TCP,
            Flow::Datagrams(datagrams) => datagrams.protocol,
        };
        Some((protocol, flow.state().target.clone()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Receive;
    use crate::flow::fill::tests::empty;
    use crate::lane::Lane;
    use bentpipe_flow::Target;
    use bentpipe_flow::{Class, OpenDatagrams};

    use crate::wire::frame::Frame;

    const NOW: Duration = Duration::from_secs(10);
    const MOST: SnapshotLimits = SnapshotLimits { passengers: 64, flows: 64 };

    fn opened(table: &mut FlowTable, target: &str, class: Class, passenger: u32) -> u64 {
        let mut encoded = Vec::new();
        let target: Target = target.parse().expect("a valid target");
        target.encode(&mut encoded).expect("it fits");
        table.open(encoded, class, passenger, NOW).expect("there is room")
    }

    /// Sends everything that waits.
    fn drain(table: &mut FlowTable) {
        while let Some(lane) = table.next_lane(NOW) {
            match lane {
                Lane::Datagram => drop(table.fill_datagrams(1000, true, &mut Vec::new(), NOW)),
                lane => drop(table.fill(lane, 1000, &mut Vec::new(), NOW)),
            }
        }
    }

    #[test]
    fn the_busiest_of_ten_thousand_flows_are_reported() {
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
        assert!(traffic.flows.iter().all(|flow| flow.activity.total.payload.sent_bytes >= 696));
        let of_class = &traffic.classes[Class::BestEffort].total;
        let all: u64 = (0..flows).map(|n| 1 + u64::from(n) % 700).sum();
        assert_eq!((of_class.sent.payload.sent_bytes, of_class.flows), (all, 10_000));
        let again = table.traffic(MOST, NOW + Duration::from_secs(6));
        assert_eq!(again.interval, Duration::from_secs(1));
        assert!(again.flows.iter().all(|flow| flow.activity.recent.payload.both() == 0));
    }

    #[test]
    fn flows_are_reported_with_their_destination_and_what_was_read() {
        let mut table = empty(64, 1 << 20);
        let stream = opened(&mut table, "origin.example:443", Class::Assured, 3);
        let target: Target = "192.0.2.7:53".parse().expect("a valid target");
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
            let carried = found.activity.total.payload;
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
