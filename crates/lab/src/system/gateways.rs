//! The gateways as a system under test: the real programs, on the air and the ground host.

use std::net::SocketAddr;

use bentpipe_link::Settings;
use bentpipe_units::ByteSize;

use super::aerotcp::AeroTcp;
use super::pair::{Pair, PairSpec, Transport, radios};
use super::{Running, Spread, Stage, SystemError, SystemUnderTest};
use crate::emu::{AIR_CABIN, GROUND, GROUND_INTERNET};

/// SOCKS5 port of the air gateway in the cabin; intercepted clients do not need it.
const SOCKS_PORT: u16 = 1080;
const LINK_PORT: u16 = 4500;

/// Further networks of the server: one address for each domain of a site.
const SITES: &str = "198.19.0.0/16";

/// A configuration of the gateways.
#[derive(Debug)]
pub struct Gateways {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) transport: Transport,
    /// `true` if repair packets protect data on the link.
    pub(super) coding: bool,
    /// `true` if the cabin services for plain HTTP are enabled.
    pub(super) services: bool,
    /// `true` if it is granted a rate; otherwise it takes the link's.
    pub(super) granted: bool,
}

impl Gateways {
    pub(super) const fn new(name: &'static str, about: &'static str, transport: Transport) -> Self {
        Self { name, about, transport, coding: true, services: false, granted: true }
    }
}

impl SystemUnderTest for Gateways {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn carries_udp(&self) -> bool {
        self.transport != Transport::AeroTcp
    }

    fn starts_cold(&self) -> bool {
        true
    }

    fn is_granted(&self) -> bool {
        self.granted
    }

    fn spread(&self) -> Spread {
        Spread::Narrow
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Box<dyn Running>, SystemError> {
        let socks5 = SocketAddr::new(AIR_CABIN.v4.into(), SOCKS_PORT);
        let peer = SocketAddr::new(GROUND.v4.into(), LINK_PORT);
        let mut tables = if self.services { services() } else { Default::default() };
        if !stage.beside.is_empty() {
            let links: Vec<_> = [stage.profile].into_iter().chain(stage.beside).collect();
            tables[1] += &radios(&links);
        }
        let aerotcp = AeroTcp::declared(stage.settings, stage.profile)?;
        let spec = PairSpec {
            transport: self.transport,
            allow: vec![format!("{}/24", GROUND_INTERNET.v4), SITES.into()],
            hosts: stage.hosts.to_vec(),
            intercepts: Some("cabin"),
            coding: self.coding,
            aerotcp,
            aircraft: if self.transport == Transport::Link { ROOM } else { "" },
            classes: tables,
            ..PairSpec::new(stage.profile, socks5, peer)
        };
        let program = stage.program.to_string_lossy();
        let (air, ground) =
            (stage.testbed.air.command(&program), stage.testbed.ground.command(&program));
        Ok(Box::new(Pair::start(&spec, stage.folder, air, ground)?))
    }
}

/// Ground settings for the aircraft that let each upload of a cabin begin with 1 MB.
const ROOM: &str =
    "max-datagram-flows = 256\nmax-ip-flows = 16\nmemory = { receive = \"3 GiB\" }\n";

/// Link settings of the ground gateway in a run over the radio transport, for use in virtual time.
/// The aircraft's file does not set memory, so the air gateway has the defaults.
pub fn roomy() -> Settings {
    Settings {
        receive_memory: ByteSize::from_bytes(3 << 30),
        flow_reserve: ByteSize::from_bytes(1_000_000),
        max_flows: 1360,
        ..Settings::default()
    }
}

/// Configuration tables of the cabin services: for the ground, and for the air.
fn services() -> [String; 2] {
    ["\n[split-http]\n".into(), "\n[http-cache]\n\n[split-http]\n".into()]
}

impl Running for Pair {
    fn check(&mut self) -> Result<(), SystemError> {
        Ok(Pair::check(self)?)
    }

    fn said(&self) -> String {
        format!(
            "\nthe air gateway's last lines:\n{}\nthe ground gateway's:\n{}",
            self.air.tail(),
            self.ground.tail()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use bentpipe_gateway::config::{AirConfig, GroundConfig};
    use bentpipe_gateway::transports::link::{air_config, hub_config};

    #[test]
    fn virtual_time_has_the_room_that_the_files_give() {
        let folder = tempfile::tempdir().unwrap();
        let [socks5, peer] = ["127.0.0.1:1080", "198.18.2.2:4500"].map(|it| it.parse().unwrap());
        let profile = Profile::named("mss").unwrap();
        let spec = PairSpec { aircraft: ROOM, ..PairSpec::new(&profile, socks5, peer) };
        spec.write(folder.path()).unwrap();
        let room = |one: &Settings| {
            let Settings { receive_memory, send_memory, code_memory, .. } = *one;
            (receive_memory, send_memory, code_memory, one.flow_reserve, one.max_flows)
        };
        let ground = GroundConfig::load(&folder.path().join("ground.toml")).unwrap();
        let ground = hub_config(&ground).unwrap().aircraft.remove(0).settings;
        assert_eq!(room(&ground), room(&roomy()));
        let air = AirConfig::load(&folder.path().join("air.toml"), None).unwrap();
        let air = air_config(&air, peer, 1).unwrap().settings;
        let defaults = Settings::default();
        assert_eq!(air.receive_memory, defaults.receive_memory);
        assert_eq!(
            (air.send_memory, air.code_memory),
            (defaults.send_memory, defaults.code_memory)
        );
    }
}
