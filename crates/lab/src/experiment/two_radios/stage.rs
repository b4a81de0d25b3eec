//! A session over a bundle of links in either engine.

use std::path::Path;
use std::time::Duration;

use bentpipe_link::{Class, ClassPaths, Core, Settings, Spread};

use super::bundle::Death;
use crate::emu::{LinkCounters, Testbed};
use crate::experiment::engine::{Emulator, Engine};
use crate::profile::Profile;
use crate::result::Sample;
use crate::sim::pair::{FlowKey, Pair};
use crate::sim::trace::Digest;
use crate::sim::traffic::SimTraffic;
use crate::sim::tunnel::Tunnel;
use crate::system::SystemUnderTest;
use crate::traffic::emu::{EmuTraffic, FurtherRates};
use crate::traffic::{Carry, DOWN, Passing, REQUEST_BYTES, Traffic};

/// Passenger of single objects, and the one with an endless download.
pub const READER: u32 = 1;
pub const NEIGHBOUR: u32 = 2;
/// Time after which an object counts as lost.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Number and size of the objects that warm up a session.
pub const WARM_OBJECTS: usize = 4;
pub const WARM_BYTES: u64 = 100_000;
/// Pause after an object, until nothing of it is in flight.
pub const QUIET: Duration = Duration::from_secs(4);
/// Time until a download is steady.
pub const STEADY: Duration = Duration::from_secs(30);
/// Class whose packets go by the fastest radio only.
pub const FASTEST: Class = Class::Assured;
/// Class whose packets go by each radio. The gateways need no setting for that.
pub const REDUNDANT: Class = Class::Operator;

/// Radios of a session, which may fail.
pub trait Radios {
    /// The radio of this path dies.
    fn kill(&mut self, path: usize, death: Death);
    /// It works again after this death.
    fn revive(&mut self, path: usize, death: Death);
    /// IP bytes offered to the link of this path towards the aircraft so far.
    fn sent_bytes(&mut self, path: usize) -> u64;
    /// The same away from the aircraft.
    fn returned_bytes(&mut self, path: usize) -> u64;
    /// Checks that the engine followed its model until now.
    fn finish(&mut self) -> anyhow::Result<()>;
}

/// A session over several radios, for downloads.
pub trait Stage: Radios {
    /// Time of the links.
    fn now(&mut self) -> Duration;
    /// Advances the time by `length`.
    fn pass(&mut self, length: Duration);
    /// Fetches one object of `bytes`. Returns its duration.
    fn fetch(&mut self, bytes: u64, patience: Duration) -> Sample;
    /// Starts a download of `class` for a passenger. Returns its number, or `None` if there is no
    /// session.
    fn start(&mut self, class: Class, passenger: u32, bytes: u64) -> Option<usize>;
    /// Bytes of a download that have arrived.
    fn bytes_read(&mut self, download: usize) -> u64;
}

/// The same, for all kinds of traffic.
pub trait Cabin: Radios + Traffic {}

impl<T: Radios + Traffic> Cabin for T {}

/// Start of a session.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// Engine of the session.
    pub engine: &'a Engine<'a>,
    /// Baseline that crosses the emulated links instead of the gateways.
    pub baseline: Option<&'static dyn SystemUnderTest>,
    /// The links, one for each path.
    pub links: &'a [Profile],
    /// Origin of the rates at which the ground sends on paths besides the first.
    pub rates: FurtherRates,
    /// Seed of the session.
    pub seed: u64,
}

impl Start<'_> {
    /// Starts the session, and waits until it is up.
    pub fn stage(&self) -> anyhow::Result<Box<dyn Stage>> {
        let simulated = |pair: Pair| -> anyhow::Result<Box<dyn Stage>> {
            let tunnel = Tunnel::over(pair.with_digest(Digest::of_sizes()), &self.links[0])?;
            Ok(Box::new(Simulated { tunnel, flows: Vec::new() }))
        };
        self.with(simulated, |emulated| Box::new(emulated))
    }

    /// The same, for all kinds of traffic.
    pub fn cabin(&self) -> anyhow::Result<Box<dyn Cabin>> {
        let simulated = |pair: Pair| -> anyhow::Result<Box<dyn Cabin>> {
            Ok(Box::new(SimTraffic::over(pair, &self.links[0])?))
        };
        self.with(simulated, |emulated| Box::new(emulated))
    }

    fn with<T: ?Sized>(
        &self,
        simulated: impl FnOnce(Pair) -> anyhow::Result<Box<T>>,
        emulated: impl FnOnce(EmuTraffic) -> Box<T>,
    ) -> anyhow::Result<Box<T>> {
        let Self { engine, baseline, links, rates, seed } = *self;
        match engine {
            Engine::Sim => simulated(pair(links, rates, seed)),
            Engine::Emu(Emulator { folder, .. }) => {
                Ok(emulated(self::emulated(folder, baseline, links, rates, seed)?))
            }
        }
    }
}

fn pair(links: &[Profile], rates: FurtherRates, seed: u64) -> Pair {
    let mut settings = Settings::default();
    for (class, spread) in [(FASTEST, Spread::Fastest), (REDUNDANT, Spread::Each)] {
        settings.classes[class].paths = ClassPaths { spread, ..ClassPaths::default() };
    }
    match rates {
        FurtherRates::Typed => Pair::bundle(links, &settings, seed),
        FurtherRates::Learned => Pair::bundle_learning(links, &settings, seed),
    }
}

fn emulated(
    folder: &Path,
    baseline: Option<&'static dyn SystemUnderTest>,
    links: &[Profile],
    rates: FurtherRates,
    seed: u64,
) -> anyhow::Result<EmuTraffic> {
    let specs: Vec<_> = links.iter().map(|profile| &profile.link).collect();
    let testbed = Testbed::bundle(&specs, seed)?;
    testbed.measure()?;
    let tables = format!("\n[classes.{FASTEST}]\npaths = \"fastest\"\n");
    match baseline {
        Some(baseline) => EmuTraffic::over_baseline(testbed, &links[0], baseline, folder),
        None => EmuTraffic::bundle(testbed, links, rates, &tables, folder),
    }
}

/// A session in virtual time.
struct Simulated {
    tunnel: Tunnel,
    flows: Vec<FlowKey>,
}

/// A session in virtual time with its links.
trait Virtual {
    fn ends(&mut self) -> &mut Pair;
}

impl Virtual for Simulated {
    fn ends(&mut self) -> &mut Pair {
        self.tunnel.pair()
    }
}

impl Virtual for SimTraffic {
    fn ends(&mut self) -> &mut Pair {
        self.pair()
    }
}

impl<T: Virtual> Radios for T {
    fn kill(&mut self, path: usize, death: Death) {
        let pair = self.ends();
        let now = pair.now();
        match death {
            Death::Silent => pair.set_path_mtu(path, Some(0)),
            Death::Uplink => pair.set_return_mtu(path, Some(0)),
            Death::Carrier => {
                pair.set_path_mtu(path, Some(0));
                pair.air.unsendable(path as u8, now);
            }
        }
    }

    fn revive(&mut self, path: usize, death: Death) {
        let pair = self.ends();
        pair.set_path_mtu(path, None);
        if death == Death::Carrier {
            let now = pair.now();
            pair.air.sendable(path as u8, now);
        }
    }

    fn sent_bytes(&mut self, path: usize) -> u64 {
        self.ends().counters_of(path).map_or(0, |(forward, _)| forward.offered.bytes)
    }

    fn returned_bytes(&mut self, path: usize) -> u64 {
        self.ends().counters_of(path).map_or(0, |(_, back)| back.offered.bytes)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Stage for Simulated {
    fn now(&mut self) -> Duration {
        self.tunnel.pair().now()
    }

    fn pass(&mut self, length: Duration) {
        self.tunnel.pass(length);
    }

    fn fetch(&mut self, bytes: u64, patience: Duration) -> Sample {
        self.tunnel.fetch(bytes, patience)
    }

    fn start(&mut self, class: Class, passenger: u32, bytes: u64) -> Option<usize> {
        self.flows.push(self.tunnel.start_in(class, passenger, bytes)?);
        Some(self.flows.len() - 1)
    }

    fn bytes_read(&mut self, download: usize) -> u64 {
        self.tunnel.bytes_read(self.flows[download])
    }
}

impl Stage for EmuTraffic {
    fn now(&mut self) -> Duration {
        self.testbed().now()
    }

    fn pass(&mut self, length: Duration) {
        Passing::pass(self, length);
    }

    fn fetch(&mut self, bytes: u64, patience: Duration) -> Sample {
        let stream = self.open(carry(Class::BestEffort, 1, bytes));
        self.wait(patience, |traffic| traffic.course(stream).is_done());
        match self.course(stream).took() {
            Some(took) => Sample::Finished(took.as_secs_f64()),
            None => Sample::Cut(patience.as_secs_f64()),
        }
    }

    fn start(&mut self, class: Class, passenger: u32, bytes: u64) -> Option<usize> {
        Some(self.open(carry(class, passenger, bytes)))
    }

    fn bytes_read(&mut self, download: usize) -> u64 {
        self.course(download).got[DOWN]
    }
}

impl Radios for EmuTraffic {
    fn kill(&mut self, path: usize, death: Death) {
        match death {
            Death::Silent => self.testbed().cut(path, true),
            Death::Uplink => self.testbed().cut_uplink(path),
            Death::Carrier => {
                self.testbed().cut(path, true);
                set_carrier(self, path, false);
            }
        }
    }

    fn revive(&mut self, path: usize, death: Death) {
        self.testbed().cut(path, false);
        if death == Death::Carrier {
            set_carrier(self, path, true);
        }
    }

    fn sent_bytes(&mut self, path: usize) -> u64 {
        counters(self, path).forward.model.offered.bytes
    }

    fn returned_bytes(&mut self, path: usize) -> u64 {
        counters(self, path).return_.model.offered.bytes
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        Self::finish(self)
    }
}

/// Changes the carrier of a path's interface. If that fails, the run becomes invalid.
fn set_carrier(traffic: &EmuTraffic, path: usize, has_carrier: bool) {
    if let Err(error) = traffic.testbed().set_carrier(path, has_carrier) {
        traffic.failed("the carrier of a radio", error);
    }
}

/// Counters of a path's link. If they are not available, the run becomes invalid.
fn counters(traffic: &EmuTraffic, path: usize) -> LinkCounters {
    traffic.testbed().counters_of(path).unwrap_or_else(|error| {
        traffic.failed("the counters of a radio link", error);
        LinkCounters::default()
    })
}

fn carry(class: Class, passenger: u32, bytes: u64) -> Carry {
    Carry { class, passenger, up: REQUEST_BYTES, down: bytes }
}
