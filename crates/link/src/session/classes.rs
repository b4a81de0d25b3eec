//! Class limits and counters of a session.

use std::time::Duration;

use bentpipe_flow::{LinkState, PathState, PathUse, Traffic};
use bentpipe_schedule::{Class, ClassCounters, ClassSettings, PerClass, SnapshotLimits};

use super::Session;
use super::paths::terms_of;
use crate::settings::{SettingsError, check_classes};

impl Session {
    /// Sets the limits of each class for what this end sends.
    pub fn set_classes(
        &mut self,
        classes: PerClass<ClassSettings>,
        now: Duration,
    ) -> Result<(), SettingsError> {
        check_classes(&classes, self.settings.mtu_bytes)?;
        self.settings.classes = classes;
        self.flows.set_classes(classes, now);
        Ok(())
    }

    /// Counters of a class: bytes sent, lost and delayed by its flows, and bytes charged to it.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        self.flows.class_counters(class)
    }

    /// Returns the traffic in total and since the last call: all classes, and at most `max`
    /// passengers and flows, the busiest first. Visits all of them once.
    pub fn traffic(&mut self, max: SnapshotLimits, now: Duration) -> Traffic {
        Traffic {
            keys_overdue: self.has_overdue_keys(now),
            sending: self.sending(now),
            receiving: self.receiving(),
            link: self.link_state(now),
            paths: self.path_states(now),
            ..self.flows.traffic(max, now)
        }
    }

    fn link_state(&self, now: Duration) -> LinkState {
        let counters = self.counters();
        LinkState {
            round_trip: self.round_trip(),
            silence: now.saturating_sub(self.heard_at()),
            outage: self.outage(now),
            outages: self.unheard(now),
            mtu_bytes: counters.mtu_bytes,
            queue: self.path.lease.queue(),
            sent_bytes: counters.bytes_sent,
            repair_bytes: counters.repair_bytes,
            retransmission_bytes: counters.retransmission_bytes,
            judged_packets: counters.packets_judged,
            lost_packets: counters.packets_lost,
            breaker_trips: counters.breaker_trips,
        }
    }
}

impl Session {
    /// State of every path, by number.
    fn path_states(&mut self, now: Duration) -> Vec<PathState> {
        let mut states = Vec::with_capacity(1 + self.others.len());
        for id in 0..self.max_paths {
            if !self.select(id) {
                continue;
            }
            let sending = self.sending(now);
            let use_now = self.path_use(now);
            let path = &self.path;
            states.push(PathState {
                number: id,
                name: terms_of(&self.settings, id).0.to_owned(),
                peer: path.peer,
                use_now,
                sending,
                round_trip: path.rtt.get(),
                queue: path.lease.queue(),
                mtu_bytes: path.mtu.current() as u64,
                loss_permille: (1e3 * path.estimator.loss().rate).round() as u64,
                sent_bytes: path.sent_bytes(),
                received_bytes: path.received_bytes,
                judged_packets: path.judged_packets,
                lost_packets: path.lost_packets,
                day: path.volume.usage(),
                loses_with: self.loses_with(id),
            });
        }
        self.select_first();
        states
    }

    /// Use of the path in hand.
    fn path_use(&self, now: Duration) -> PathUse {
        match &self.path {
            path if path.volume.has_quota() && path.is_spent() => PathUse::Spent,
            path if path.validation.is_some() => PathUse::Unproven,
            path if path.outage.is_some() => PathUse::Silent,
            path if path.is_doubted => PathUse::Doubted,
            path if !self.is_used(path) => PathUse::Standby,
            path if self.has_other_live() && self.is_idle_in_bursts(path, now) => PathUse::Bulk,
            _ => PathUse::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::BitRate;

    use super::*;
    use crate::session::tests::Ends;

    #[test]
    fn data_held_back_by_a_ceiling_stays_in_the_demand() {
        let mut ends = Ends::connected(3, 1_890_000, true);
        let mut now = ends.now;
        let (_, session) = ends.air.current().expect("it is connected");
        let ceil = BitRate::from_bps(64_000);
        let mut classes = session.settings.classes;
        for class in Class::ALL {
            classes[class].limits.ceil = Some(ceil);
        }
        session.set_classes(classes, now).expect("valid classes");
        let target = "origin.example:80".parse().expect("a valid target");
        let first = [7; 16 << 10];
        session.open(&target, Class::BestEffort, 9, &first, now).expect("there is room");
        let (mut out, mut held, mut asked) = (Vec::new(), 0, Vec::new());
        let began = now;
        while now < began + Duration::from_millis(1500) {
            session.heard(now);
            session.handle_timeout(now);
            while session.transmit(now, &mut out).is_some() {
                out.clear();
            }
            if now > began + Duration::from_millis(100) {
                held += u32::from(session.flows.next_lane(now).is_none());
                asked.push(session.useful_rate(now).bps());
            }
            now += Duration::from_millis(1);
        }
        assert!(held > 1000, "held back {held} times");
        let min = asked.iter().min().copied();
        assert!(min >= Some(ceil.bps()), "{min:?} bit/s");
        let none = BitRate::from_bps(0);
        classes[Class::BestEffort].limits.ceil = Some(none);
        let refused = session.set_classes(classes, now);
        assert_eq!(refused, Err(SettingsError::NoCeil(Class::BestEffort)));
    }
}
