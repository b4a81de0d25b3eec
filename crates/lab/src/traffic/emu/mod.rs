//! Passengers' traffic through the gateways, between real kernels.
//!
//! Both gateways run in this process, each on a thread inside its host, so that the lab can read
//! the link's counters of each class. All their packets go through the kernels of
//! [`crate::emu::Testbed`]. Passengers are addresses of the client's host, intercepted by TPROXY.
//! Rules in the air gateway's configuration map a flow's destination port to its class. Clients and
//! servers share a clock and run at real-time priority, because their wake-up latency is not a
//! property of the link.
//!
//! The difference from `sim`: waiting times include the kernels, the gateways and other load of
//! this machine. A testbed is measured before it is used, and a run in which the emulator lost a
//! packet is invalid.

mod client;
pub mod fault;
pub(crate) mod gateways;
mod log;
mod order;
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::Class;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Carry, ClassLimits, Counted, Course, Talk, Traffic, Transit};
use crate::emu::{Service, Testbed};
use crate::profile::Profile;
use crate::scratch::no_folder;
use crate::system::pair::{PassedQuic, Rates, radios};
use crate::system::{Running, Stage, SystemUnderTest};
use fault::Fault;
use gateways::{Gateways, More};
use log::Log;
use order::Order;

/// A running testbed with its traffic. It runs until dropped.
pub struct EmuTraffic {
    log: Arc<Log>,
    /// Number of the log's events that have been seen.
    seen: u64,
    // Fields drop in order: clients and servers, the gateways, their links. The experiment itself
    // bounds the number of orders.
    orders: UnboundedSender<Order>,
    _client: Service,
    _server: Service,
    system: System,
    testbed: Testbed,
}

/// System that carries the traffic.
enum System {
    /// The gateways in this process.
    Gateways(Gateways),
    /// A baseline, which runs until it is dropped. Its counters are unknown.
    Baseline { _running: Box<dyn Running> },
}

/// Origin of the rates at which the ground sends on radios besides the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FurtherRates {
    /// Those of the links. The ground's file has no setting for that, so the lab sets them itself.
    #[default]
    Typed,
    /// The ground learns them, as it does by its file.
    Learned,
}

impl EmuTraffic {
    /// Brings up the radio link of `profile`, measures it, and starts the gateways with `limits`.
    /// Their files are in a new folder below `folder`.
    pub fn start(
        profile: &Profile,
        limits: &ClassLimits,
        seed: u64,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let testbed = Testbed::new(&profile.link, None, seed)?;
        testbed.measure()?;
        Self::on(testbed, profile, limits, Rates::Typed, folder)
    }

    /// Like [`Self::start`], in a testbed that has been measured, with rates of this origin.
    pub fn on(
        testbed: Testbed,
        profile: &Profile,
        limits: &ClassLimits,
        rates: Rates,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let more = More { rates, ..More::default() };
        Self::with(testbed, profile, limits, more, folder)
    }

    /// A session over all of `links` at once, in a testbed that has been measured and has these
    /// links. `tables` are in both gateways' files.
    pub fn bundle(
        testbed: Testbed,
        links: &[Profile],
        rates: FurtherRates,
        tables: &str,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let further = links[1..].iter().filter_map(|link| link.link.forward.rate());
        let ground_rates = match rates {
            FurtherRates::Typed => further.collect(),
            FurtherRates::Learned => Vec::new(),
        };
        let (air, ground) = (radios(&links.iter().collect::<Vec<_>>()) + tables, tables.to_owned());
        let more = More { air, ground, ground_rates, ..More::default() };
        Self::with(testbed, &links[0], &ClassLimits::default(), more, folder)
    }

    fn with(
        testbed: Testbed,
        profile: &Profile,
        limits: &ClassLimits,
        more: More,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in(folder).map_err(no_folder)?;
        let quic = PassedQuic::default();
        let gateways = Gateways::start_with(&testbed, profile, limits, quic, more, folder.path())?;
        gateways.wait()?;
        Self::over(testbed, System::Gateways(gateways))
    }

    /// Traffic over `baseline` in a testbed that has been measured. It cannot be one of the
    /// gateways.
    pub fn over_baseline(
        testbed: Testbed,
        profile: &Profile,
        baseline: &dyn SystemUnderTest,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir_in(folder).map_err(no_folder)?;
        let stage = Stage {
            testbed: &testbed,
            profile,
            beside: &[],
            folder: folder.path(),
            program: Path::new(""),
            hosts: &[],
            settings: &toml::Table::new(),
        };
        let running = baseline.start(&stage)?;
        Self::over(testbed, System::Baseline { _running: running })
    }

    fn over(testbed: Testbed, system: System) -> anyhow::Result<Self> {
        let log = Arc::new(Log::new());
        let _server = server::start(&testbed.server, log.clone())?;
        let (orders, ordered) = unbounded_channel();
        let _client = client::start(&testbed.client, log.clone(), ordered)?;
        Ok(Self { log, seen: 0, orders, _client, _server, system, testbed })
    }

    /// Testbed of the traffic.
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Checks that there was no fault until now.
    pub fn finish(&self) -> anyhow::Result<()> {
        if let Some(fault) = self.log.fault() {
            return Err(fault.into());
        }
        self.testbed.sound_counters()?;
        Ok(())
    }

    /// Rate at which the hub sends, in bit/s; zero if it is unknown.
    pub fn hub_rate_bps(&self) -> f64 {
        self.gateways().and_then(Gateways::hub_rate).map_or(0.0, |rate| rate.bps() as f64)
    }

    fn gateways(&self) -> Option<&Gateways> {
        match &self.system {
            System::Gateways(gateways) => Some(gateways),
            System::Baseline { .. } => None,
        }
    }

    /// Notes that the lab failed to do `what`, which makes the run invalid.
    pub fn failed(&self, what: &str, why: impl std::fmt::Display) {
        self.log.failed(Fault::lab(what, why));
    }

    fn order(&self, order: Order) {
        if self.orders.send(order).is_err() {
            self.log.failed(Fault::lab("the clients", "have ended"));
        }
    }
}

impl Traffic for EmuTraffic {
    fn now(&self) -> Duration {
        self.log.now()
    }

    fn open(&mut self, carry: Carry) -> usize {
        let number = self.log.opened(&carry);
        self.order(Order::Carry(number, carry));
        number
    }

    fn course(&self, stream: usize) -> Course {
        self.log.course(stream)
    }

    fn talk(&mut self, talk: Talk) -> usize {
        let number = self.log.talks(&talk);
        self.order(Order::Talk(number, talk));
        number
    }

    fn has_begun(&self, talk: usize) -> bool {
        self.log.began(talk).is_some()
    }

    fn transits(&self, talk: usize, way: usize) -> Vec<Transit> {
        self.log.transits(talk, way)
    }

    fn step(&mut self, end: Duration) {
        self.seen = self.log.wait(self.seen, end);
    }

    fn counted(&mut self) -> Counted {
        let link = match self.testbed.radio_counters() {
            Ok(counters) => [counters.forward.model, counters.return_.model],
            Err(error) => {
                self.log.failed(Fault::lab("the link's counters", error));
                Default::default()
            }
        };
        let sent = self.gateways().map(Gateways::counters).unwrap_or_default();
        Counted { at: self.now(), sent, link }
    }

    fn class_bytes(&mut self, class: Class) -> [u64; 2] {
        self.gateways().map(|gateways| gateways.class_bytes(class)).unwrap_or_default()
    }
}
