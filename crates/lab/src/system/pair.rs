//! An air and a ground gateway with their own keys and configuration files.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_link::SecretKey;
use bentpipe_units::BitRate;

use super::aerotcp::AeroTcp;
pub use super::pair_error::PairError;
use super::process::Process;
use crate::emu::RADIO_INTERFACES;
use crate::profile::Profile;

/// Rate of the gateways for an unlimited link. Two cores cannot reach it.
const UNLIMITED: BitRate = BitRate::from_bps(10_000_000_000);

/// Time within which a gateway that cannot start ends.
const START_GRACE: Duration = Duration::from_millis(300);

/// Minimum round trip for the computation of a window.
const MIN_RTT: Duration = Duration::from_millis(10);

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

/// Origin of the gateways' rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rates {
    /// The rates of the link are in the files.
    #[default]
    Typed,
    /// The gateways learn their rates.
    Learned,
    /// The gateways learn their rates from data alone, without padding.
    LearnedUnpadded,
    /// CUBIC below this rate.
    Congestion(BitRate),
}

/// Description of a pair.
#[derive(Debug, Clone)]
pub struct PairSpec {
    /// Transport of the flows.
    pub transport: Transport,
    /// Round-trip time between the gateways.
    pub rtt: Duration,
    /// Rate at which the ground sends.
    pub forward: BitRate,
    /// Rate at which the aircraft sends.
    pub back: BitRate,
    /// Origin of the rates.
    pub rates: Rates,
    /// SOCKS5 address of the air gateway.
    pub socks5: SocketAddr,
    /// HTTP proxy address of the air gateway, if any.
    pub http_proxy: Option<SocketAddr>,
    /// Address of the ground on the link.
    pub peer: SocketAddr,
    /// Private networks that the ground may dial nevertheless.
    pub allow: Vec<String>,
    /// Names that the ground resolves from this list.
    pub hosts: Vec<(String, IpAddr)>,
    /// Name servers of the ground. If empty, it uses the system's.
    pub name_servers: Vec<IpAddr>,
    /// Maximum concurrent flows, of all passengers and of each one.
    pub max_flows: usize,
    /// Maximum new flows per second.
    pub flows_per_second: u32,
    /// The interface whose clients the air gateway intercepts, if any.
    pub intercepts: Option<&'static str>,
    /// Treatment of intercepted QUIC.
    pub quic: PassedQuic,
    /// `true` if repair packets protect what both gateways send over the radio transport.
    pub coding: bool,
    /// Settings of AeroTCP, used if it carries the flows.
    pub aerotcp: AeroTcp,
    /// Further settings for the aircraft in the ground's file.
    pub aircraft: &'static str,
    /// Classes and rules in the configuration files: of the ground, then of the air.
    pub classes: [String; 2],
}

/// Treatment of intercepted QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PassedQuic {
    /// QUIC is carried and delivered in sending order.
    #[default]
    InOrder,
    /// QUIC is carried and delivered in arrival order.
    AsItComes,
    /// QUIC is refused.
    Refused,
}

impl PassedQuic {
    /// Value of `quic` under `[listen]`.
    const fn setting(self) -> &'static str {
        match self {
            Self::InOrder | Self::AsItComes => "carry",
            Self::Refused => "reject",
        }
    }

    /// Setting under `[link]` of either file.
    const fn link_setting(self) -> &'static str {
        match self {
            Self::InOrder | Self::Refused => "",
            Self::AsItComes => "quic-in-order = false\n",
        }
    }
}

impl Rates {
    /// Settings of a sender whose link has `rate`.
    fn setting(self, rate: BitRate) -> String {
        match self {
            Self::Typed => format!("rate = \"{} bit/s\"\n", rate.bps()),
            Self::Learned | Self::LearnedUnpadded => String::new(),
            Self::Congestion(cap) => {
                format!("rate = \"{} bit/s\"\nlease = \"none\"\n", cap.bps())
            }
        }
    }

    /// Setting under `[link]` of either file.
    const fn padding_setting(self) -> &'static str {
        match self {
            Self::LearnedUnpadded => "learn-bytes = \"0 B\"\n",
            _ => "",
        }
    }
}

/// Tables of `air.toml` for the radios of a testbed with these links: each with its interface and its
/// rate.
pub fn radios(links: &[&Profile]) -> String {
    let mut text = String::new();
    for (Profile { name, link, .. }, interface) in links.iter().zip(RADIO_INTERFACES) {
        writeln!(text, "\n[[path]]\nname = \"{name} by {interface}\"\ninterface = {interface:?}")
            .expect("a string takes all");
        if let Some(rate) = link.return_.rate() {
            writeln!(text, "rate = \"{} bit/s\"", rate.bps()).expect("a string takes all");
        }
    }
    text
}

/// Both gateways; they run until dropped.
#[derive(Debug)]
pub struct Pair {
    /// The air gateway.
    pub air: Process,
    /// The ground gateway.
    pub ground: Process,
}

impl PairSpec {
    /// Specification for the link of `profile`, with its rates. The ground listens at `peer`.
    pub fn new(profile: &Profile, socks5: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            transport: Transport::Link,
            rtt: profile.link.rtt().max(MIN_RTT),
            forward: profile.link.forward.rate().unwrap_or(UNLIMITED),
            back: profile.link.return_.rate().unwrap_or(UNLIMITED),
            rates: Rates::Typed,
            socks5,
            http_proxy: None,
            peer,
            allow: Vec::new(),
            hosts: Vec::new(),
            // A testbed has no names to resolve, and this machine may have no name servers.
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
             peer = \"{}\"\npeer-public-key = \"{}\"\n{}{}{}{}\n\
             [listen]\nsocks5 = \"{}\"\nclients = [\"0.0.0.0/0\"]\n",
            self.peer,
            ground.public(),
            self.rates.setting(self.back),
            self.rates.padding_setting(),
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
            "[link]\nprivate-key-file = \"ground.key\"\n{listen} = \"{}\"\n{}{}{}\n\
             [dial]\nallow = {:?}\n\n[dns]\nservers = {:?}\n\n\
             [[aircraft]]\nname = \"lab\"\npublic-key = \"{}\"\n{}\
             max-flows = {}\nflows-per-second = {}\nhighest-class = \"operator\"\n{}",
            self.peer,
            self.rates.padding_setting(),
            self.quic.link_setting(),
            self.coding_setting(),
            self.allow,
            self.name_servers.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
            air.public(),
            self.rates.setting(self.forward),
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

    /// Writes keys and configuration files into `folder`: `air.toml`, `ground.toml` and the files
    /// they refer to.
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

    /// Writes AeroTCP's settings if it carries the flows. They are the same for both ends.
    fn write_aerotcp(&self, text: &mut String) {
        if self.transport == Transport::AeroTcp {
            text.push_str(&self.aerotcp.toml(self.rtt));
        }
    }
}

impl Pair {
    /// Writes keys and configuration files into `folder` and starts both commands there. Each
    /// command is the `bentpipe` program on the host where it is to run.
    pub fn start(
        spec: &PairSpec,
        folder: &Path,
        air: Command,
        ground: Command,
    ) -> Result<Self, PairError> {
        spec.write(folder)?;
        Self::launch(folder, air, ground)
    }

    /// Starts both commands with the existing files in `folder`.
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

/// Writes a file that only its owner may read, such as a key.
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
    fn generated_configs_are_accepted_by_the_gateways() {
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
                    aerotcp: AeroTcp { connections: Some(10), ..AeroTcp::adaptive(&profile) },
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
