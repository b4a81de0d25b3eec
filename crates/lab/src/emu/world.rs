//! A world: four hosts, the emulated links between them, and the clock they share.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bentpipe_channel::{Direction, DirectionSpec, LinkSpec};

use super::capture::Capture;
use super::error::EmuError;
use super::host::Host;
use super::net::{self, Interface, Route};
use super::tun;
use super::wire::{Wire, WireCounters};

/// The client's address in the cabin. All addresses are those of RFC 2544's benchmark network and
/// of a unique local IPv6 prefix; every world has the same ones, as no two can see each other.
pub const CLIENT: Addresses = Addresses::new(1, 2);
/// The air gateway's address in the cabin.
pub const AIR_CABIN: Addresses = Addresses::new(1, 1);
/// The air gateway's address on the radio link.
pub const AIR: Addresses = Addresses::new(2, 1);
/// The ground gateway's address on the radio link.
pub const GROUND: Addresses = Addresses::new(2, 2);
/// The ground gateway's address on the terrestrial path.
pub const GROUND_INTERNET: Addresses = Addresses::new(3, 1);
/// The server's address.
pub const SERVER: Addresses = Addresses::new(3, 2);

/// Other terminals of the radio link, and the air's address towards them.
pub(super) const TERMINALS: Addresses = Addresses::new(4, 2);
pub(super) const TERMINALS_AIR: Addresses = Addresses::new(4, 1);
/// Hosts to which other users talk, and the ground's address towards these.
pub(super) const CORRESPONDENTS: Addresses = Addresses::new(5, 2);
pub(super) const CORRESPONDENTS_GROUND: Addresses = Addresses::new(5, 1);

/// The address of a further device ([`World::add_device`]).
pub const DEVICE: Addresses = Addresses::new(6, 2);

/// The passengers' network: all of its addresses are the client's, a device for each.
const PASSENGERS: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 18, 128, 0), 17);

/// Address of passenger `number`, of fewer than 2^15.
pub fn passenger(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(PASSENGERS.0.to_bits() | (number & 0x7fff))
}

/// The sites' network: all of its addresses are the server's, a domain each.
const SITES: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 0, 0), 16);

/// Address of site `number`, of fewer than 2^16.
pub fn site(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(SITES.0.to_bits() | (number & 0xffff))
}

/// Returns `true` if a site may have this address.
pub fn is_site(address: IpAddr) -> bool {
    let IpAddr::V4(address) = address else { return false };
    address.to_bits() >> (32 - SITES.1) == SITES.0.to_bits() >> (32 - SITES.1)
}

/// An interface's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The IPv4 address, in a /24.
    pub v4: Ipv4Addr,
    /// The IPv6 address, in a /64.
    pub v6: Ipv6Addr,
}

impl Addresses {
    pub(super) const fn new(network: u8, host: u8) -> Self {
        let v4 = Ipv4Addr::new(198, 18, network, host);
        let v6 = Ipv6Addr::new(0xfd00, 0xbe9, 0xb19e, network as u16, 0, 0, 0, host as u16);
        Self { v4, v6 }
    }

    /// Both, IPv4 first.
    pub fn both(self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }

    pub(super) fn on(self, name: &'static str) -> Interface {
        Interface { name, v4: self.v4, v6: self.v6 }
    }
}

/// An emulated network: client – air – \[radio link\] – ground – \[terrestrial path\] – server.
///
/// The interfaces are called `cabin` on client and air, `radio` on air and ground, and `internet`
/// on ground and server.
/// Everything is routed, so the client reaches the server end to end without any gateway. Dropping
/// the world stops its links; a host's namespace goes with the last handle to it.
#[derive(Debug)]
pub struct World {
    /// The passenger's device.
    pub client: Host,
    /// The air gateway; routes for the client.
    pub air: Host,
    /// The ground gateway; routes between the radio link and the terrestrial path.
    pub ground: Host,
    /// The origin server.
    pub server: Host,
    pub(super) radio: EmulatedLink,
    pub(super) terrestrial: Option<EmulatedLink>,
    /// The other users' ([`World::others`]), once there are any.
    pub(super) other_hosts: Mutex<Option<[Host; 2]>>,
}

/// Counters of both directions of an emulated link, and of the packets before it.
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
    /// Packets that the emulator lost though the model did not: with any, a run is worth nothing.
    pub fn unmodelled(&self) -> u64 {
        let wire = |direction: &WireCounters| direction.overflowed + direction.refused;
        wire(&self.forward) + wire(&self.return_) + self.unfetched
    }
}

impl World {
    /// Brings up a world whose radio link is `link`, and whose terrestrial path is `terrestrial`
    /// or else an unimpaired cable. In both, *forward* is towards the client. The same seed gives
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
        Ok(Self { client, air, ground, server, radio, terrestrial, other_hosts })
    }

    /// The declared round trip between ground and server; zero where it is a cable.
    pub fn terrestrial_rtt(&self) -> Duration {
        self.terrestrial.as_ref().map_or(Duration::ZERO, |path| path.spec.rtt())
    }

    /// Counters of the radio link.
    pub fn radio_counters(&self) -> Result<LinkCounters, EmuError> {
        self.radio.counters()
    }

    /// Writes what is offered to the radio link from now on into a new pcapng file at `path`, until
    /// what is returned is dropped or there is another.
    pub fn capture(&self, path: &Path) -> io::Result<Capture> {
        Capture::start(self.radio.wire.tap().clone(), self.radio.epoch, path)
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

/// A link of the world: a TUN device at either end and the wire between them.
#[derive(Debug)]
pub(super) struct EmulatedLink {
    pub name: &'static str,
    pub epoch: Instant,
    /// The end nearer to the client, then the farther one.
    pub ends: [End; 2],
    pub spec: LinkSpec,
    /// Seeds of the models, in the order of the ends that their packets leave.
    pub seeds: [u64; 2],
    wire: Wire,
}

impl EmulatedLink {
    fn new(
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

    /// The counters of the direction that leaves the near end (`0`) or the far end (`1`).
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

/// The seed of a world's first (0) or second (2) link; the link's other direction takes the next
/// one. All four differ, for any two worlds too, so that their losses are independent.
fn direction_seed(seed: u64, direction: u64) -> u64 {
    seed.wrapping_mul(4).wrapping_add(direction)
}

/// The direction of `spec` that leaves the near end (`0`) or the far end (`1`).
pub(super) fn direction_from(spec: &LinkSpec, end: usize) -> &DirectionSpec {
    if end == 0 { &spec.return_ } else { &spec.forward }
}
