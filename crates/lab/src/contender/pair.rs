//! An air and a ground gateway with keys and configs of their own.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_link::SecretKey;
use bentpipe_units::BitRate;

use super::aerotcp::AeroTcp;
use super::process::Process;
use crate::profile::Profile;

/// Rate of the gateways for a link without limit: more than two cores can move.
const UNLIMITED: BitRate = BitRate::from_bps(10_000_000_000);

/// Time within which a gateway that fails at its start says so.
const START_GRACE: Duration = Duration::from_millis(300);

/// Round trip assumed for a link that has none: a window is computed from it.
const LEAST_RTT: Duration = Duration::from_millis(10);

/// Port to which intercepted connections are redirected.
const INTERCEPT_PORT: u16 = 1081;

const KEY_BYTES: usize = 32;

/// Transport between the gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The radio transport.
    Link,
    /// HTTP/3 CONNECT.
    Masque,
    /// AeroTCP.
    AeroTcp,
}

/// Description of a pair.
#[derive(Debug, Clone)]
pub struct PairSpec {
    /// Transport of the flows.
    pub transport: Transport,
    /// The round trip between the gateways.
    pub rtt: Duration,
    /// Rate of the ground.
    pub forward: BitRate,
    /// Rate of the aircraft.
    pub back: BitRate,
    /// SOCKS5 address of the air gateway.
    pub socks5: SocketAddr,
    /// HTTP proxy address of the air gateway, if any.
    pub http_proxy: Option<SocketAddr>,
    /// Address of the ground on the link.
    pub peer: SocketAddr,
    /// Networks the ground may dial although they are private.
    pub allow: Vec<String>,
    /// Names that the ground answers itself.
    pub hosts: Vec<(String, IpAddr)>,
    /// Name servers of the ground; empty: the system's.
    pub name_servers: Vec<IpAddr>,
    /// Flows at once, of all passengers and of one.
    pub max_flows: usize,
    /// New flows in a second.
    pub flows_per_second: u32,
    /// The interface whose clients the air gateway intercepts, if any.
    pub intercepts: Option<&'static str>,
    /// Treatment of intercepted QUIC.
    pub quic: PassedQuic,
    /// `true` if repair packets protect what both send over the radio transport.
    pub coding: bool,
    /// Settings of AeroTCP, if it carries the flows.
    pub aerotcp: AeroTcp,
    /// Further settings for the aircraft in the ground's file.
    pub aircraft: &'static str,
    /// Classes and rules in the files: the ground's, and the air's.
    pub classes: [String; 2],
}

/// Treatment of intercepted QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PassedQuic {
    /// It is carried, and handed on in the order in which it left.
    #[default]
    InOrder,
    /// It is carried, and handed on as it comes.
    AsItComes,
    /// It is refused.
    Refused,
}

impl PassedQuic {
    /// As `quic` under `[listen]` has it.
    const fn setting(self) -> &'static str {
        match self {
            Self::InOrder | Self::AsItComes => "carry",
            Self::Refused => "reject",
        }
    }

    /// Its setting under `[link]` of either file.
    const fn link_setting(self) -> &'static str {
        match self {
            Self::InOrder | Self::Refused => "",
            Self::AsItComes => "quic-in-order = false\n",
        }
    }
}

/// Both gateways, running until dropped.
#[derive(Debug)]
pub struct Pair {
    /// On the aircraft.
    pub air: Process,
    /// On the ground.
    pub ground: Process,
}

/// Reason for which there is no pair.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The system gives no random bytes.
    #[error("cannot make keys: {0}")]
    Random(String),
    /// The program could not be run.
    #[error("cannot run the {which} gateway: {source}")]
    Run {
        /// `air` or `ground`.
        which: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// It ended at once.
    #[error("the {which} gateway ended at its start:\n{said}")]
    Ended {
        /// `air` or `ground`.
        which: &'static str,
        /// Its last words.
        said: String,
    },
}

impl PairSpec {
    /// For the link of `profile`, told its rates; the ground listens at `peer`.
    pub fn new(profile: &Profile, socks5: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            transport: Transport::Link,
            rtt: profile.link.rtt().max(LEAST_RTT),
            forward: profile.link.forward.rate().unwrap_or(UNLIMITED),
            back: profile.link.return_.rate().unwrap_or(UNLIMITED),
            socks5,
            http_proxy: None,
            peer,
            allow: Vec::new(),
            hosts: Vec::new(),
            // Nothing in a world has a name, and this machine may have no name servers.
            name_servers: vec![Ipv4Addr::LOCALHOST.into()],
            max_flows: 1024,
            flows_per_second: 500,
            intercepts: None,
            quic: PassedQuic::default(),
            coding: true,
            aircraft: "",
            aerotcp: AeroTcp::adaptive(profile),
            classes: Default::default(),
        }
    }

    fn air_toml(&self, ground: &SecretKey) -> String {
        let transport = match self.transport {
            Transport::Link => "link",
            Transport::Masque => "masque",
            Transport::AeroTcp => "aerotcp",
        };
        let mut text = format!(
            "[link]\ntransport = \"{transport}\"\nprivate-key-file = \"air.key\"\n\
             peer = \"{}\"\npeer-public-key = \"{}\"\nrate = \"{} bit/s\"\n{}{}\n\
             [listen]\nsocks5 = \"{}\"\nclients = [\"0.0.0.0/0\"]\n",
            self.peer,
            ground.public(),
            self.back.bps(),
            self.quic.link_setting(),
            self.coding_setting(),
            self.socks5
        );
        if let Some(http_proxy) = self.http_proxy {
            writeln!(text, "http-proxy = \"{http_proxy}\"").expect("a string takes all");
        }
        if let Some(interface) = self.intercepts {
            let (port, quic) = (INTERCEPT_PORT, self.quic.setting());
            writeln!(
                text,
                "tproxy = {{ port = {port}, interfaces = [{interface:?}] }}\nquic = {quic:?}"
            )
            .expect("a string takes all");
        }
        self.write_aerotcp(&mut text);
        let flows = self.max_flows;
        write!(
            text,
            "\n[limits]\nmax-flows = {flows}\nmax-flows-per-passenger = {flows}\n\
             flows-per-second-per-passenger = {}\n",
            self.flows_per_second
        )
        .expect("a string takes all");
        text + &self.classes[1]
    }

    fn ground_toml(&self, air: &SecretKey) -> String {
        let listen = match self.transport {
            Transport::Link => "listen",
            Transport::Masque => "masque-listen",
            Transport::AeroTcp => "aerotcp-listen",
        };
        let mut text = format!(
            "[link]\nprivate-key-file = \"ground.key\"\n{listen} = \"{}\"\n{}{}\n\
             [dial]\nallow = {:?}\n\n[dns]\nservers = {:?}\n\n\
             [[aircraft]]\nname = \"lab\"\npublic-key = \"{}\"\nrate = \"{} bit/s\"\n\
             max-flows = {}\nflows-per-second = {}\nhighest-class = \"operator\"\n{}",
            self.peer,
            self.quic.link_setting(),
            self.coding_setting(),
            self.allow,
            self.name_servers.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
            air.public(),
            self.forward.bps(),
            self.max_flows,
            self.flows_per_second,
            self.aircraft
        );
        self.write_aerotcp(&mut text);
        text.push_str("\n[hosts]\n");
        for (name, ip) in &self.hosts {
            writeln!(text, "\"{name}\" = \"{ip}\"").expect("a string takes all");
        }
        text + &self.classes[0]
    }

    /// Writes keys and configs into `folder`: `air.toml`, `ground.toml` and what they name.
    pub fn write(&self, folder: &Path) -> Result<(), PairError> {
        let (air_key, ground_key) = (new_key()?, new_key()?);
        for (name, text) in [
            ("air.key", air_key.to_base64()),
            ("ground.key", ground_key.to_base64()),
            ("air.toml", self.air_toml(&ground_key)),
            ("ground.toml", self.ground_toml(&air_key)),
        ] {
            let path = folder.join(name);
            write_private(&path, &text).map_err(|source| PairError::Write { path, source })?;
        }
        Ok(())
    }
}

impl PairSpec {
    /// Setting `coding` under `[link]` of either file.
    const fn coding_setting(&self) -> &'static str {
        if self.coding { "" } else { "coding = false\n" }
    }

    /// Writes AeroTCP's settings, if it carries the flows. Both ends have the same.
    fn write_aerotcp(&self, text: &mut String) {
        if self.transport == Transport::AeroTcp {
            text.push_str(&self.aerotcp.toml(self.rtt));
        }
    }
}

impl Pair {
    /// Writes keys and configs into `folder` and starts the commands there: both the `bentpipe`
    /// program, wherever each is to run.
    pub fn start(
        spec: &PairSpec,
        folder: &Path,
        air: Command,
        ground: Command,
    ) -> Result<Self, PairError> {
        spec.write(folder)?;
        Self::launch(folder, air, ground)
    }

    /// The same with the files that are in `folder`.
    pub(crate) fn launch(folder: &Path, air: Command, ground: Command) -> Result<Self, PairError> {
        let run = |which: &'static str, mut command: Command| {
            command.arg(which).arg("--config").arg(folder.join(format!("{which}.toml")));
            Process::start(command, &folder.join(format!("{which}.log")))
                .map_err(|source| PairError::Run { which, source })
        };
        let mut pair = Self { ground: run("ground", ground)?, air: run("air", air)? };
        let began = Instant::now();
        while began.elapsed() < START_GRACE {
            pair.check()?;
            thread::sleep(START_GRACE / 10);
        }
        Ok(pair)
    }

    /// Checks that both still run.
    pub fn check(&mut self) -> Result<(), PairError> {
        for (which, process) in [("ground", &mut self.ground), ("air", &mut self.air)] {
            if process.ended().is_some() {
                return Err(PairError::Ended { which, said: process.tail() });
            }
        }
        Ok(())
    }
}

/// A new private key.
pub(crate) fn new_key() -> Result<SecretKey, PairError> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| PairError::Random(error.to_string()))?;
    Ok(SecretKey::from_bytes(bytes))
}

/// Key files are for their owner alone.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_gateway::config::{AeroTcp as TableOfAeroTcp, AirConfig, GroundConfig};

    #[test]
    fn the_configs_are_ones_the_gateways_take() {
        let folder = tempfile::tempdir().unwrap();
        let (air_key, ground_key) = (new_key().unwrap(), new_key().unwrap());
        for (name, key) in [("air.key", &air_key), ("ground.key", &ground_key)] {
            fs::write(folder.path().join(name), key.to_base64()).unwrap();
        }
        let socks5 = "127.0.0.1:1080".parse().unwrap();
        let peer = "198.18.2.2:4500".parse().unwrap();
        for profile in Profile::all().unwrap() {
            for transport in [Transport::Link, Transport::Masque, Transport::AeroTcp] {
                let spec = PairSpec {
                    transport,
                    http_proxy: Some("127.0.0.1:8080".parse().unwrap()),
                    allow: vec!["198.18.3.0/24".into()],
                    hosts: vec![("page.test".into(), "192.0.2.7".parse().unwrap())],
                    aerotcp: AeroTcp::shared(&profile, 10),
                    ..PairSpec::new(&profile, socks5, peer)
                };
                let air =
                    AirConfig::parse(&folder.path().join("air.toml"), &spec.air_toml(&ground_key));
                let air = air.unwrap();
                assert_eq!(air.link.rate, spec.back);
                let ground = spec.ground_toml(&air_key);
                let ground = GroundConfig::parse(&folder.path().join("ground.toml"), &ground);
                let ground = ground.unwrap();
                assert_eq!(ground.aircraft[0].rate, spec.forward);
                let told = |of: Option<TableOfAeroTcp>| {
                    of.map(|it| (it.connections, it.peak_rate, it.buffer_factor))
                };
                let AeroTcp { connections, peak_rate, buffer_factor } = spec.aerotcp;
                let carries = transport == Transport::AeroTcp;
                let meant = carries.then_some((connections, peak_rate, buffer_factor));
                assert_eq!([told(air.aerotcp), told(ground.aerotcp)], [meant; 2]);
            }
        }
    }
}
