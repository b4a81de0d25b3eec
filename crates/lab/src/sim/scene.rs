//! One session of the radio transport over a link, observed: its downloads, the rivals beside it,
//! and a [`Record`] of the direction towards the aircraft.
//!
//! ```
//! use std::time::Duration;
//!
//! use bentpipe_lab::profile::Profile;
//! use bentpipe_lab::record::OWN_FLOW;
//! use bentpipe_lab::record::Span;
//! use bentpipe_lab::sim::scene::Scene;
//! use bentpipe_link::Settings;
//!
//! let mss = Profile::named("mss").unwrap();
//! let rate = mss.link.forward.rate().unwrap();
//! let typed = Settings { rate, ..Settings::default() };
//! let mut scene = Scene::new(&mss, &typed, &typed, Vec::new(), 1).unwrap();
//! scene.start_bulk().unwrap();
//! scene.pass(Duration::from_secs(20));
//! let record = scene.record();
//! assert!(record.utilisation(Span::of_seconds(10.0, 20.0)) > 0.9);
//! assert_eq!(record.drop_share(OWN_FLOW, Span::of_seconds(0.0, 20.0)), 0.0);
//! ```

use std::sync::Arc;
use std::time::Duration;

use bentpipe_channel::DirectionSpec;
use bentpipe_link::Settings;
use parking_lot::Mutex;

use super::pair::{FlowKey, Pair};
use super::rival::Rival;
use super::trace::Digest;
use super::transfer::NoSession;
use super::tunnel::Tunnel;
use crate::profile::Profile;
use crate::record::Passage;
use crate::record::{Reading, Record};
use crate::result::Sample;

/// Interval of readings.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// A session and what was observed of it.
pub struct Scene {
    tunnel: Tunnel,
    forward: DirectionSpec,
    passages: Arc<Mutex<Vec<Passage>>>,
    readings: Vec<Reading>,
    bulk: Option<FlowKey>,
}

impl Scene {
    /// A session over `profile`'s radio link with these settings of its ends, beside `rivals`. The
    /// rival at index `n` has the flow `n + 1`. Returns once the session is up, before it has
    /// carried anything.
    pub fn new(
        profile: &Profile,
        air: &Settings,
        hub: &Settings,
        rivals: Vec<Box<dyn Rival>>,
        seed: u64,
    ) -> Result<Self, NoSession> {
        let mut pair = Pair::with(profile, air, hub, seed).with_digest(Digest::of_sizes());
        for rival in rivals {
            pair.join(rival);
        }
        let passages: Arc<Mutex<Vec<Passage>>> = Arc::default();
        let tap = passages.clone();
        pair.set_taps(Box::new(move |passage| tap.lock().push(passage)), Box::new(drop));
        let tunnel = Tunnel::over(pair, profile)?;
        let forward = profile.link.forward.clone();
        let mut scene = Self { tunnel, forward, passages, readings: Vec::new(), bulk: None };
        scene.read();
        Ok(scene)
    }

    /// Time since the run began.
    pub fn now(&mut self) -> Duration {
        self.tunnel.pair().now()
    }

    /// Starts an endless download. `None` if there is no session.
    pub fn start_bulk(&mut self) -> Option<()> {
        self.bulk = Some(self.tunnel.start_bulk()?);
        Some(())
    }

    /// Advances the time by `length`, with readings at [`INTERVAL`].
    pub fn pass(&mut self, length: Duration) {
        let end = self.now() + length;
        while self.now() < end {
            let rest = end - self.now();
            self.tunnel.pass(rest.min(INTERVAL));
            self.read();
        }
    }

    /// Advances the time to `at`, if it is in the future.
    pub fn pass_until(&mut self, at: Duration) {
        let now = self.now();
        self.pass(at.saturating_sub(now));
    }

    /// Fetches one object of `bytes`, without readings. Returns its duration.
    pub fn fetch(&mut self, bytes: u64, patience: Duration) -> Sample {
        self.tunnel.fetch(bytes, patience)
    }

    /// The tunnel, for its counters and its ends.
    pub fn tunnel(&mut self) -> &mut Tunnel {
        &mut self.tunnel
    }

    /// Payload bytes that a rival has received.
    pub fn rival_bytes(&mut self, flow: u64) -> u64 {
        self.tunnel.pair().rival(flow).map_or(0, Rival::received_bytes)
    }

    /// Record so far.
    pub fn record(&self) -> Record {
        Record::new(self.forward.clone(), self.passages.lock().clone(), self.readings.clone())
    }

    fn read(&mut self) {
        let at = self.now();
        let rate_bps = self.tunnel.hub_rate_bps().unwrap_or(0.0);
        let read_bytes = self.bulk.map_or(0, |flow| self.tunnel.bytes_read(flow));
        let (forward, back) = self.tunnel.pair().counters();
        let link_bytes = forward.offered.bytes + back.offered.bytes;
        self.readings.push(Reading { at, rate_bps, read_bytes, link_bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::OWN_FLOW;
    use crate::record::Span;
    use crate::sim::rival::bulk::Controller;
    use crate::sim::rival::{Bulk, Call, End, Session};
    use bentpipe_link::Control;
    use bentpipe_units::BitRate;

    fn profile(text: &str) -> Profile {
        let link = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
        Profile { name: "test".into(), about: String::new(), link, terrestrial: None }
    }

    /// 10 Mbit/s and 100 ms in both directions, with a queue of 1 BDP.
    fn short() -> Profile {
        profile(
            "forward = { rate = '10 Mbit/s', delay = '50 ms' }\n\
             return = { rate = '10 Mbit/s', delay = '50 ms' }",
        )
    }

    fn typed(rate_bps: u64) -> Settings {
        Settings { rate: BitRate::from_bps(rate_bps), ..Settings::default() }
    }

    fn cubic() -> Settings {
        Settings { control: Control::Congestion, ..typed(1_000_000_000) }
    }

    fn scene(settings: &Settings, rivals: Vec<Box<dyn Rival>>) -> Scene {
        Scene::new(&short(), settings, settings, rivals, 1).unwrap()
    }

    #[test]
    fn a_typed_rate_is_used_from_the_first_packet_on() {
        let mut scene = scene(&typed(10_000_000), Vec::new());
        let start = scene.now();
        scene.start_bulk().unwrap();
        scene.pass(Duration::from_secs(10));
        let record = scene.record();
        let first = record.first_full_packet(OWN_FLOW, start).unwrap();
        let span = Span { from: first, to: Duration::from_secs(10) };
        assert!(record.time_to(OWN_FLOW, 0.9, span).unwrap() < Duration::from_millis(100));
        assert!(record.queue(OWN_FLOW, 0.95, span).unwrap() < Duration::from_millis(5));
        assert!(record.excess(OWN_FLOW).unwrap() < 1.01);
        let rows = record.trace(OWN_FLOW);
        let last = rows.last().unwrap();
        assert!((last.rate_bps - 10e6).abs() < 1.0 && last.delivered_bps > 9e6, "{last:?}");
    }

    #[test]
    fn quic_and_a_session_with_cubic_share_the_link() {
        let rival = Bulk::new(Controller::Cubic, Duration::ZERO, 2).unwrap();
        let mut scene = scene(&cubic(), vec![Box::new(rival)]);
        scene.start_bulk().unwrap();
        scene.pass(Duration::from_secs(60));
        let span = Span::of_seconds(20.0, 60.0);
        let record = scene.record();
        let both = [0, 1].map(|flow| record.delivered_bps(flow, span) / 10e6);
        assert!(both[0] + both[1] > 0.9, "{both:?}");
        assert!(both.iter().all(|share| (0.2..0.8).contains(share)), "{both:?}");
        assert!(scene.rival_bytes(1) > 10_000_000);
        // Both fill the queue until it drops.
        assert!(record.drop_share(1, span) > 0.0);
        assert!(record.queue(0, 0.95, span).unwrap() > Duration::from_millis(50));
    }

    #[test]
    fn a_deep_queue_full_of_losses_does_not_end_quic() {
        let deep = profile(
            "forward = { rate = '20 Mbit/s', delay = '300 ms', queue = '3 BDP' }\n\
             return = { rate = '20 Mbit/s', delay = '300 ms' }",
        );
        let cubic = |start, seed| -> Box<dyn Rival> {
            let start = Duration::from_secs(start);
            Box::new(Bulk::new(Controller::Cubic, start, seed).unwrap())
        };
        let idle = typed(20_000_000);
        let rivals = vec![cubic(5, 2), cubic(1, 3)];
        let mut scene = Scene::new(&deep, &idle, &idle, rivals, 1).unwrap();
        scene.pass(Duration::from_secs(80));
        let record = scene.record();
        let rates = [1, 2].map(|flow| record.delivered_bps(flow, Span::of_seconds(40.0, 80.0)));
        assert!(rates[0] + rates[1] > 15e6, "{rates:?}");
    }

    #[test]
    fn quic_with_bbr_fills_the_link_in_spite_of_losses() {
        let lossy = profile(
            "forward = { rate = '10 Mbit/s', delay = '50 ms', loss = '3 %' }\n\
             return = { rate = '10 Mbit/s', delay = '50 ms' }",
        );
        let share = |controller| {
            let rival = Bulk::new(controller, Duration::ZERO, 2).unwrap();
            let mut scene =
                Scene::new(&lossy, &cubic(), &cubic(), vec![Box::new(rival)], 1).unwrap();
            scene.pass(Duration::from_secs(40));
            scene.record().delivered_bps(1, Span::of_seconds(20.0, 40.0)) / 9.7e6
        };
        assert!(share(Controller::Bbr) > 0.7, "{}", share(Controller::Bbr));
        assert!(share(Controller::Cubic) < 0.5, "{}", share(Controller::Cubic));
    }

    #[test]
    fn a_call_and_another_session_measure_the_same_queue() {
        let second = Duration::from_secs(1);
        let settings = typed(10_000_000);
        let call = Call::new(End::Hub, 5 * second, 15 * second);
        let other = Session::new(&settings, &settings, 10 * second, 3);
        let mut scene = scene(&typed(9_000_000), vec![Box::new(call), Box::new(other)]);
        scene.start_bulk().unwrap();
        scene.pass(20 * second);
        let record = scene.record();
        let alone = record.queue(1, 0.95, Span::of_seconds(5.0, 10.0)).unwrap();
        assert!(alone < Duration::from_millis(5), "{alone:?}");
        // From 10 s on, twice the rate of the link is sent until the breakers act.
        let beside = record.queue(1, 0.95, Span::of_seconds(10.0, 15.0)).unwrap();
        assert!(beside > Duration::from_millis(50), "{beside:?}");
        assert!(scene.rival_bytes(2) > 1_000_000);
        assert!(scene.rival_bytes(1) > 60_000, "64 kbit/s for 10 s are 80 kB");
    }
}
