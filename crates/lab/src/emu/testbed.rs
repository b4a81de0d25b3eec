//! A testbed: four hosts, the emulated links between them, and their common clock.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bentpipe_channel::{Direction, DirectionSpec, LinkSpec};
use parking_lot::Mutex;

use super::capture::Capture;
use super::error::EmuError;
use super::host::Host;
use super::net::{self, Interface, Route};
use super::observation::Observation;
use super::plan::{AIR, AIR_CABIN, CLIENT, GROUND, GROUND_INTERNET, PASSENGERS, SERVER, SITES};
use super::tun;
use super::wire::{Wire, WireCounters};

/// An emulated network: client – air – \[radio link\] – ground – \[terrestrial path\] – server.
///
/// The interfaces are called `cabin` on client and air, `radio` on air and ground, and `internet`
/// on ground and server.
///
/// Everything is routed, so the client reaches the server end to end without a gateway. Dropping
/// the testbed stops its links. A host's namespace ends with the last handle to it.
#[derive(Debug)]
pub struct Testbed {
    /// The passenger's device.
    pub client: Host,
    /// Host of the air gateway; routes for the client.
    pub air: Host,
    /// Host of the ground gateway; routes between the radio link and the terrestrial path.
    pub ground: Host,
    /// The origin server.
    pub server: Host,
    pub(super) radio: EmulatedLink,
    /// Radio links besides the first ([`Testbed::bundle`]).
    pub(super) further: Vec<EmulatedLink>,
    pub(super) terrestrial: Option<EmulatedLink>,
    /// Hosts of the other users ([`Testbed::others`]), once they exist.
    pub(super) other_hosts: Mutex<Option<[Host; 2]>>,
}

/// Counters of both directions of an emulated link, and of the packets in front of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Towards the client.
    pub forward: WireCounters,
    /// Away from the client.
    pub return_: WireCounters,
    /// Packets lost in front of the link because the emulator did not fetch them in time.
    pub unfetched: u64,
}

impl LinkCounters {
    /// Packets that the emulator lost although the model did not. If there are any, the run is not
    /// valid.
    pub fn unmodelled(&self) -> u64 {
        let wire = |direction: &WireCounters| direction.overflowed + direction.refused;
        wire(&self.forward) + wire(&self.return_) + self.unfetched
    }
}

/// Place of the direction towards the aircraft among those of a wire.
const FORWARD: usize = 1;

impl Testbed {
    /// Brings up a testbed with the radio link `link`. Its terrestrial path is `terrestrial`, or an
    /// unimpaired cable for `None`. In both, *forward* is towards the client. The same seed gives
    /// the same losses to the same packets.
    pub fn new(
        link: &LinkSpec,
        terrestrial: Option<&LinkSpec>,
        seed: u64,
    ) -> Result<Self, EmuError> {
        let epoch = Instant::now();
        let (client, air) = (Host::new("client")?, Host::new("air")?);
        let (ground, server) = (Host::new("ground")?, Host::new("server")?);
        for (host, forwards) in [(&client, false), (&air, true), (&ground, true), (&server, false)]
        {
            net::prepare(host, forwards)?;
        }
        let [client_if, cabin_if] = [CLIENT.on("cabin"), AIR_CABIN.on("cabin")];
        let [air_if, ground_if] = [AIR.on("radio"), GROUND.on("radio")];
        let [internet_if, server_if] = [GROUND_INTERNET.on("internet"), SERVER.on("internet")];

        net::cable((&client, &client_if), (&air, &cabin_if))?;
        let radio = EmulatedLink::new(
            "radio",
            epoch,
            (&air, air_if.clone()),
            (&ground, ground_if.clone()),
            link,
            direction_seed(seed, 0),
        )?;
        let terrestrial = match terrestrial {
            Some(path) => Some(EmulatedLink::new(
                "terrestrial",
                epoch,
                (&ground, internet_if.clone()),
                (&server, server_if.clone()),
                path,
                direction_seed(seed, 2),
            )?),
            None => {
                net::cable((&ground, &internet_if), (&server, &server_if))?;
                None
            }
        };
        net::own_network(&client, PASSENGERS)?;
        net::lead_network(&air, PASSENGERS, client_if.v4)?;
        net::own_network(&server, SITES)?;
        net::lead_network(&ground, SITES, server_if.v4)?;
        net::route(&client, &Route::default(&cabin_if))?;
        net::route(&air, &Route::default(&ground_if))?;
        net::route(&ground, &Route::network(&cabin_if, &air_if))?;
        net::route(&server, &Route::default(&internet_if))?;
        let other_hosts = Mutex::default();
        let further = Vec::new();
        Ok(Self { client, air, ground, server, radio, further, terrestrial, other_hosts })
    }

    /// Declared round-trip time between ground and server. Zero if the path is a cable.
    pub fn terrestrial_rtt(&self) -> Duration {
        self.terrestrial.as_ref().map_or(Duration::ZERO, |path| path.spec.rtt())
    }

    /// Counters of the radio link.
    pub fn radio_counters(&self) -> Result<LinkCounters, EmuError> {
        self.radio.counters()
    }

    /// Counters of the radio link, if the emulator lost no packet that the model of a radio link
    /// delivered.
    pub fn sound_counters(&self) -> Result<LinkCounters, EmuError> {
        let counters = self.radio_counters()?;
        let mut lost = counters.unmodelled();
        for link in &self.further {
            lost += link.counters()?.unmodelled();
        }
        if lost == 0 { Ok(counters) } else { Err(EmuError::Unmodelled(lost)) }
    }

    /// Writes packets offered to the radio link from now on into a new pcapng file at `path`. The
    /// capture ends when the returned value is dropped or another capture starts.
    pub fn capture(&self, path: &Path) -> io::Result<Capture> {
        Capture::start(self.radio.wire.tap().clone(), self.radio.epoch, path)
    }

    /// Begins to record the passage of every packet towards the aircraft through the radio link.
    pub fn observe(&self) -> Observation {
        Observation::start(self.radio.wire.observer(FORWARD).clone(), self.radio.epoch.elapsed())
    }

    /// Counters of the terrestrial path; `None` if it is a cable.
    pub fn terrestrial_counters(&self) -> Result<Option<LinkCounters>, EmuError> {
        self.terrestrial.as_ref().map(EmulatedLink::counters).transpose()
    }
}

/// One end of an emulated link.
#[derive(Debug)]
pub(super) struct End {
    pub host: Host,
    pub interface: Interface,
}

/// A link of the testbed: a TUN device at either end and the wire between them.
#[derive(Debug)]
pub(super) struct EmulatedLink {
    pub name: &'static str,
    pub epoch: Instant,
    /// The end nearer to the client, then the farther one.
    pub ends: [End; 2],
    pub spec: LinkSpec,
    /// Seeds of the models, in the order of the sending ends.
    pub seeds: [u64; 2],
    pub wire: Wire,
}

impl EmulatedLink {
    pub fn new(
        name: &'static str,
        epoch: Instant,
        near: (&Host, Interface),
        far: (&Host, Interface),
        spec: &LinkSpec,
        seed: u64,
    ) -> Result<Self, EmuError> {
        let device = |(host, interface): &(&Host, Interface)| {
            let fd = host.run(|| tun::create(host.name(), interface.name))??;
            net::address(host, interface)?;
            Ok(fd)
        };
        let devices = [device(&near)?, device(&far)?];
        let seeds = [seed, seed.wrapping_add(1)];
        let directions = [0, 1].map(|end| Direction::new(direction_from(spec, end), seeds[end]));
        let wire = Wire::start(name, epoch, devices, directions)?;
        let end = |(host, interface): (&Host, Interface)| End { host: host.clone(), interface };
        Ok(Self { name, epoch, ends: [end(near), end(far)], spec: spec.clone(), seeds, wire })
    }

    /// Counters of the direction that leaves the near end (`0`) or the peer (`1`).
    pub fn wire_counters(&self, from: usize) -> WireCounters {
        self.wire.counters()[from]
    }

    pub fn counters(&self) -> Result<LinkCounters, EmuError> {
        let [return_, forward] = self.wire.counters();
        let mut unfetched = 0;
        for end in &self.ends {
            unfetched += net::dropped(&end.host, end.interface.name)?;
        }
        Ok(LinkCounters { forward, return_, unfetched })
    }
}

/// Seed of a testbed's first (0) or second (2) link. The link's other direction takes the next one.
/// All four differ, also between two testbeds, so that their losses are independent.
pub(super) fn direction_seed(seed: u64, direction: u64) -> u64 {
    seed.wrapping_mul(4).wrapping_add(direction)
}

/// The direction of `spec` that leaves the near end (`0`) or the peer (`1`).
pub(super) fn direction_from(spec: &LinkSpec, end: usize) -> &DirectionSpec {
    if end == 0 { &spec.return_ } else { &spec.forward }
}
