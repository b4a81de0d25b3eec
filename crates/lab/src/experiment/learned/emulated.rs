//! A session between real gateways and kernels, observed like one in virtual time.

use std::path::Path;
use std::time::Duration;

use bentpipe_channel::DirectionSpec;
use bentpipe_link::Class;

use super::stage::Stage;
use crate::emu::{Congestion, Observation, Others, Testbed};
use crate::profile::Profile;
use crate::record::{Reading, Record};
use crate::result::Sample;
use crate::sim::scene::INTERVAL;
use crate::system::pair::Rates;
use crate::traffic::emu::EmuTraffic;
use crate::traffic::{Carry, ClassLimits, DOWN, ENDLESS, Passing, REQUEST_BYTES, Traffic};

/// Passenger of all transfers.
const PASSENGER: u32 = 1;

/// A session over an emulated link. Other senders are kernels' TCP connections.
pub struct EmulatedScene {
    // Fields drop in order: everything that uses the testbed before the testbed.
    others: Vec<Others>,
    observation: Observation,
    traffic: EmuTraffic,
    forward: DirectionSpec,
    /// Time of the traffic at which the run began.
    began: Duration,
    /// Bytes on the link before the run began.
    measured_bytes: u64,
    /// Other senders that have not begun, the latest first.
    due: Vec<(Congestion, Duration)>,
    bulk: Option<usize>,
    readings: Vec<Reading>,
}

impl EmulatedScene {
    /// Measures the link of `profile` and starts both gateways. Returns once the session is up.
    pub fn start(
        profile: &Profile,
        rates: Rates,
        mut others: Vec<(Congestion, Duration)>,
        seed: u64,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let testbed = Testbed::new(&profile.link, None, seed)?;
        testbed.measure()?;
        let limits = ClassLimits::default();
        let mut traffic = EmuTraffic::on(testbed, profile, &limits, rates, folder)?;
        let observation = traffic.testbed().observe();
        others.sort_by_key(|(_, from)| std::cmp::Reverse(*from));
        let measured_bytes = link_bytes(&mut traffic);
        let mut scene = Self {
            others: Vec::new(),
            observation,
            forward: profile.link.forward.clone(),
            began: traffic.now(),
            measured_bytes,
            due: others,
            bulk: None,
            readings: Vec::new(),
            traffic,
        };
        scene.read();
        Ok(scene)
    }

    fn read(&mut self) {
        let at = self.now();
        let read_bytes = self.bulk.map_or(0, |stream| self.traffic.course(stream).got[DOWN]);
        let link_bytes = link_bytes(&mut self.traffic) - self.measured_bytes;
        let rate_bps = self.traffic.hub_rate_bps();
        self.readings.push(Reading { at, rate_bps, read_bytes, link_bytes });
    }

    /// Starts the senders that are due.
    fn begin_others(&mut self) {
        let now = self.now();
        while let Some((congestion, _)) = self.due.pop_if(|(_, from)| *from <= now) {
            match self.traffic.testbed().others(1, congestion, true) {
                Ok(others) => self.others.push(others),
                Err(error) => self.traffic.failed("other senders", error),
            }
        }
    }
}

impl Stage for EmulatedScene {
    fn now(&mut self) -> Duration {
        self.traffic.now() - self.began
    }

    fn pass(&mut self, length: Duration) {
        let end = self.now() + length;
        while self.now() < end {
            self.begin_others();
            let now = self.now();
            let next = self.due.last().map_or(end, |(_, from)| *from).min(end).max(now);
            self.traffic.pass((next - now).min(INTERVAL));
            self.read();
        }
    }

    fn start_bulk(&mut self) -> Result<(), String> {
        self.bulk = Some(self.traffic.open(carry(ENDLESS)));
        Ok(())
    }

    fn fetch(&mut self, bytes: u64, patience: Duration) -> Sample {
        let stream = self.traffic.open(carry(bytes));
        self.traffic.wait(patience, |traffic| traffic.course(stream).is_done());
        match self.traffic.course(stream).took() {
            Some(took) => Sample::Finished(took.as_secs_f64()),
            None => Sample::Cut(patience.as_secs_f64()),
        }
    }

    fn record(&self) -> Result<Record, String> {
        self.traffic.finish().map_err(|error| format!("{error:#}"))?;
        let passages = self.observation.passages().map_err(|error| error.to_string())?;
        Ok(Record::new(self.forward.clone(), passages, self.readings.clone()))
    }
}

fn carry(bytes: u64) -> Carry {
    Carry { class: Class::BestEffort, passenger: PASSENGER, up: REQUEST_BYTES, down: bytes }
}

/// IP bytes offered to the link in both directions.
fn link_bytes(traffic: &mut EmuTraffic) -> u64 {
    traffic.counted().link.iter().map(|counters| counters.offered.bytes).sum()
}
