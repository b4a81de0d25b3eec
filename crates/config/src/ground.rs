//! `ground.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bentpipe_link::{Class, PublicKey, SecretKey};
use bentpipe_net::ip;
use bentpipe_prefetch::plan::NameList;
use bentpipe_units::{BitRate, ByteSize, Span};
use serde::Deserialize;

use super::classes::{class, default_class};
use super::hosts::{self, HostAddresses};
use super::least;
use super::radio::{coded, default_mtu, in_order, marked};
use super::rate::{self, LeaseSource};
use super::{
    AeroTcp, Beam, Classes, ConfigError, DEFAULT_DRAIN, DEFAULT_IDLE, DEFAULT_STALL, Dial,
    GroundIp, GroundSite, GroundSplitHttp, GroundUdp, Idle, Masque, Memory, Raw, Source,
    StandardClient, StatusConfig, Transport, Which, applies, from_text, origin, read, seconds,
    spanned_key, standard, which,
};
use crate::relay::RelayLimits;

/// Configuration of a ground gateway.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroundConfig {
    /// Path to the aircraft.
    pub link: GroundLink,
    /// Beam that the aircraft share; absent if each aircraft has its own rates.
    beam: Option<toml::Spanned<Beam>>,
    /// Aircraft served.
    #[serde(default)]
    pub aircraft: Vec<AircraftConfig>,
    /// Settings for standard MASQUE clients; if absent, they are refused.
    pub masque: Option<Masque>,
    /// Standard MASQUE clients served.
    #[serde(default, rename = "client")]
    pub clients: Vec<StandardClient>,
    /// AeroTCP settings, if AeroTCP is served.
    pub aerotcp: Option<AeroTcp>,
    /// Guarantees and ceilings of the classes, for the traffic sent to each aircraft.
    #[serde(default)]
    pub classes: Classes,
    /// `[dial]` table.
    #[serde(default)]
    pub dial: Dial,
    /// Protocols other than TCP, UDP and ICMP echo that are carried.
    #[serde(default)]
    pub raw: Raw,
    /// Name servers.
    #[serde(default)]
    pub dns: Dns,
    /// Names that the ground gateway resolves itself.
    #[serde(default)]
    pub hosts: BTreeMap<String, HostAddresses>,
    /// Delivery of whole pages in one round trip; if absent, requests for it are declined.
    pub split_http: Option<GroundSplitHttp>,
    /// Names whose pages the ground gateway fetches over TLS for aircraft that serve those names.
    #[serde(default, rename = "site")]
    pub sites: Vec<GroundSite>,
    /// Status file; absent if none is written.
    pub status: Option<StatusConfig>,
    /// Resource limits.
    #[serde(default)]
    pub limits: GroundLimits,
}

/// Path to the aircraft.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroundLink {
    private_key_file: toml::Spanned<PathBuf>,
    /// Address of the radio transport; absent if it is not served.
    pub listen: Option<SocketAddr>,
    /// Address of HTTP/3 CONNECT; absent if it is not served.
    pub masque_listen: Option<SocketAddr>,
    /// Address of AeroTCP; absent if it is not served.
    pub aerotcp_listen: Option<SocketAddr>,
    /// Maximum size of an IP packet on the paths, bytes.
    #[serde(default = "default_mtu")]
    pub mtu: usize,
    /// `true` if packets on the radio carry their class as DSCP.
    #[serde(default = "marked")]
    pub dscp: bool,
    /// `true` if repair packets (FEC) protect the traffic sent.
    #[serde(default = "coded")]
    pub coding: bool,
    /// Padding that a session may send to learn its rate before anybody has data.
    #[serde(default = "rate::learn_bytes")]
    pub learn_bytes: ByteSize,
    /// `true` if received QUIC datagrams are restored to their sending order.
    #[serde(default = "in_order")]
    pub quic_in_order: bool,
    /// Memory of each aircraft's session.
    #[serde(default)]
    pub memory: Memory,
    /// Memory of all sessions; default: half of the machine's memory.
    #[serde(default, deserialize_with = "least::total_memory")]
    pub total_memory: Option<ByteSize>,
    /// Silence after which a session ends.
    #[serde(default = "session_lifetime", deserialize_with = "least::session_lifetime")]
    pub session_lifetime: Span,
    /// Absolute path once parsed.
    state_file: Option<PathBuf>,
    #[serde(skip)]
    private_key: Option<SecretKey>,
}

/// One aircraft.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AircraftConfig {
    /// Name in the log.
    #[serde(deserialize_with = "least::name")]
    pub name: String,
    /// Public key of the aircraft.
    #[serde(deserialize_with = "spanned_key")]
    public_key: toml::Spanned<PublicKey>,
    /// Sending rate to the aircraft; a ceiling if a beam is shared. HTTP/3 finds its own rate.
    #[serde(default = "rate::not_set", deserialize_with = "least::rate")]
    pub rate: BitRate,
    /// Maximum size of an IP packet on the path, bytes; default: `mtu` under `[link]`.
    pub mtu: Option<usize>,
    /// Memory of the session; default: `memory` under `[link]`.
    pub memory: Option<Memory>,
    #[serde(rename = "lease")]
    written_lease: Option<LeaseSource>,
    /// Highest class of the aircraft's flows. Flows that request a higher class get this class.
    #[serde(default = "default_class", deserialize_with = "class")]
    pub highest_class: Class,
    /// Class settings for the traffic sent to this aircraft. Classes not written here use the
    /// ground's settings.
    #[serde(default)]
    pub classes: Classes,
    /// Weight against other aircraft if a shared beam is congested. Default: 1.
    pub(super) weight: Option<toml::Spanned<u32>>,
    /// Rate from a shared beam before the rest is divided. Default: 16 kbit/s.
    pub(super) floor: Option<toml::Spanned<BitRate>>,
    /// Maximum grant of a shared beam's return rate. Default: all of it.
    pub(super) return_rate: Option<toml::Spanned<BitRate>>,
    /// Concurrent TCP flows of the aircraft.
    #[serde(default = "default_max_flows", deserialize_with = "least::one")]
    pub max_flows: usize,
    /// Concurrent UDP flows of the aircraft, counted separately.
    #[serde(default = "default_max_flows")]
    pub max_datagram_flows: usize,
    /// Concurrent flows of ICMP echo and other protocols, counted separately.
    #[serde(default = "default_max_ip_flows")]
    pub max_ip_flows: usize,
    /// New flows of each kind per second, on average; bursts of twice as many are allowed.
    #[serde(default = "default_flows_per_second", deserialize_with = "least::one")]
    pub flows_per_second: u32,
}

/// Name servers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Dns {
    /// Addresses, with a port if it is not 53. If empty, the system's name servers are used.
    pub servers: Vec<NameServer>,
    /// Rate at which an aircraft that connects is sent its frequent answers; if absent, none are
    /// sent.
    pub push_rate: Option<BitRate>,
    /// Name servers whose authentic-data bit (AD) is passed on; always true of servers on this
    /// machine.
    pub trusted: Vec<IpAddr>,
    /// Treatment of answers with addresses that are not on the Internet.
    pub private: PrivateAddresses,
    /// Names that may have such addresses, each including its subdomains.
    #[serde(deserialize_with = "super::split_http::names")]
    pub private_names: NameList,
}

/// Treatment of an answer with a private address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrivateAddresses {
    /// Withholds the answer: the aircraft gets an empty one with the error "Blocked".
    #[default]
    Drop,
    /// Passes the address on.
    Pass,
}

/// A name server: `"9.9.9.9"` or `"127.0.0.1:5353"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameServer(pub SocketAddr);

/// Limits. An idle flow takes about 5 KiB: 10,000 take 50 MiB.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GroundLimits {
    /// Concurrent TCP flows of all aircraft.
    #[serde(deserialize_with = "least::one")]
    pub max_flows: usize,
    /// Idle time after which a flow ends.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// Time after which a destination that does not read pending data is disconnected.
    #[serde(deserialize_with = "least::moment")]
    pub stall_timeout: Span,
    /// Time for flows to finish after a stop was requested.
    pub drain_timeout: Span,
    /// Limits for UDP.
    pub udp: GroundUdp,
    /// Limits for ICMP echo and other protocols.
    pub ip: GroundIp,
}

const fn session_lifetime() -> Span {
    seconds(900)
}

const fn default_max_flows() -> usize {
    4_096
}

const fn default_max_ip_flows() -> usize {
    1_024
}

const fn default_flows_per_second() -> u32 {
    500
}

impl Default for GroundLimits {
    fn default() -> Self {
        Self {
            max_flows: 65_536,
            idle_timeout: DEFAULT_IDLE,
            stall_timeout: DEFAULT_STALL,
            drain_timeout: DEFAULT_DRAIN,
            udp: GroundUdp::default(),
            ip: GroundIp::default(),
        }
    }
}

impl GroundLimits {
    /// Idle timeout of a datagram flow of IP protocol `protocol` to `port`.
    pub fn datagram_idle(&self, protocol: u8, port: u16) -> Idle {
        if protocol == ip::UDP { self.udp.idle(port) } else { self.ip.idle(protocol) }
    }

    /// Limits that the relay enforces.
    pub fn relay(&self) -> RelayLimits {
        RelayLimits {
            idle: self.idle_timeout.into(),
            stall: self.stall_timeout.into(),
            answer: None,
        }
    }
}

impl GroundConfig {
    /// Directories that this gateway writes to.
    pub fn writable(&self) -> Vec<PathBuf> {
        let status = self.status.as_ref().map(|status| status.file.as_path());
        let state = self.link.listen.and(self.link.state_file.as_deref());
        status.into_iter().chain(state).filter_map(super::folder_of).collect()
    }

    /// Reads and checks `file` and the key that it names.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(file, &read(file)?)
    }

    /// Checks `text` as the content of `file`; paths in it are relative to `file`.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let source = Source { file, text };
        which::expect(&source, Which::Ground)?;
        let mut config: Self = source.parse()?;
        config.link.private_key = Some(source.private_key(&config.link.private_key_file)?);
        config.link.state_file = Some(match config.link.state_file.take() {
            Some(path) => source.beside(&path),
            None => source.beside(config.link.private_key_file.get_ref()).with_extension("state"),
        });
        let served = config.link.served();
        if served.is_empty() {
            let why = "nothing to listen on".to_owned();
            let help = "write listen = \"[::]:4500\", masque-listen = \"[::]:4433\" or \
                        aerotcp-listen = \"[::]:4501\", or several, under [link]";
            return Err(ConfigError::at(&source, None, why, help.to_owned()));
        }
        config.link.check_addresses(&source)?;
        applies::at_ground(&source, &served)?;
        hosts::check(&config.hosts, &source)?;
        config.dial.check(&source)?;
        let (mut seen, mut names) = (BTreeSet::new(), BTreeSet::new());
        config.classes.check(&source)?;
        let radio = config.link.listen.is_some();
        let is_shared = config.beam().is_some_and(|beam| beam.forward.is_some());
        for aircraft in &mut config.aircraft {
            aircraft.settle_lease(radio, is_shared, &source)?;
            if config.link.aerotcp_listen.is_some() && aircraft.rate == rate::not_set() {
                let why =
                    format!("AeroTCP does not learn its rate, and {:?} has none", aircraft.name);
                let help = "write rate = \"1.89 Mbit/s\", say, or leave aerotcp-listen out";
                let place = Some(aircraft.public_key.span());
                return Err(ConfigError::at(&source, place, why, help.to_owned()));
            }
            aircraft.classes.check(&source)?;
            aircraft.classes = aircraft.classes.or(&config.classes);
        }
        let own = config.link.private_key().public();
        for aircraft in &config.aircraft {
            if aircraft.key() == own {
                let why = "this is the ground's own public key".to_owned();
                let help = "write the aircraft's; `bentpipe check air.toml` on board shows it";
                let place = Some(aircraft.public_key.span());
                return Err(ConfigError::at(&source, place, why, help.to_owned()));
            }
            if !seen.insert(aircraft.key()) {
                let why = format!("{:?} has the key of another aircraft", aircraft.name);
                let help = "every aircraft has its own: make one with `bentpipe keys`".to_owned();
                return Err(ConfigError::at(&source, Some(aircraft.public_key.span()), why, help));
            }
            if !names.insert(&aircraft.name) {
                let why = format!("{:?} is the name of another aircraft", aircraft.name);
                let help =
                    "every aircraft has its own: the log and the records go by it".to_owned();
                return Err(ConfigError::at(&source, Some(aircraft.public_key.span()), why, help));
            }
            aircraft.check_share(config.beam(), &source)?;
        }
        if let Some(status) = &mut config.status {
            status.check(&source)?;
        }
        if let Some(masque) = &mut config.masque {
            masque.load(&source)?;
        }
        origin::load(&mut config.sites, &config.dial, &source)?;
        if config.split_http.is_none() && !config.sites.is_empty() {
            let why = "there is a [[site]], and nothing that fetches its pages".to_owned();
            let help = "write [split-http] too".to_owned();
            return Err(ConfigError::at(&source, None, why, help));
        }
        standard::check(&config.clients, config.masque.as_ref(), &source)?;
        if let Some(beam) = &config.beam {
            beam.get_ref().check(&config.aircraft, &source, beam.span())?;
        }
        Ok(config)
    }

    /// Beam that the aircraft share.
    pub fn beam(&self) -> Option<&Beam> {
        self.beam.as_ref().map(toml::Spanned::get_ref)
    }
}

impl GroundLink {
    /// Private key of this gateway.
    pub fn private_key(&self) -> &SecretKey {
        // GroundConfig::parse, the only constructor, has set it.
        self.private_key.as_ref().expect("a parsed config holds its key")
    }

    /// File of the aircraft's last addresses: `state-file`, or next to the key.
    pub fn state_file(&self) -> &Path {
        // GroundConfig::parse, the only constructor, has set it.
        self.state_file.as_deref().expect("a parsed config knows its state file")
    }

    /// Address of each transport.
    pub fn listens(&self) -> [(Transport, Option<SocketAddr>); 3] {
        [
            (Transport::Link, self.listen),
            (Transport::Masque, self.masque_listen),
            (Transport::AeroTcp, self.aerotcp_listen),
        ]
    }

    fn check_addresses(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        let addresses = self.listens().map(|(transport, at)| (transport.listen_key(), at));
        source.listen_apart("link", &addresses)
    }

    /// Transports with a configured address.
    fn served(&self) -> Vec<Transport> {
        self.listens()
            .into_iter()
            .filter(|(_, at)| at.is_some())
            .map(|(transport, _)| transport)
            .collect()
    }
}

impl AircraftConfig {
    /// Source of the sending rate, up to `rate`. A beam divides a static rate.
    pub fn lease(&self) -> LeaseSource {
        self.written_lease.unwrap_or(LeaseSource::Learned)
    }

    fn settle_lease(
        &mut self,
        radio: bool,
        is_shared: bool,
        source: &Source<'_>,
    ) -> Result<(), ConfigError> {
        let wrong = |why: String, help: &str| {
            let place = Some(self.public_key.span());
            Err(ConfigError::at(source, place, why, help.to_owned()))
        };
        let written = self.written_lease;
        if let Some(LeaseSource::Granted | LeaseSource::Modem) = written {
            let why = format!("the lease of {:?} is not one of the ground's", self.name);
            return wrong(
                why,
                "write lease = \"learned\", \"static\" or \"none\", or leave it out",
            );
        }
        if is_shared && written == Some(LeaseSource::Learned) {
            let why = format!("{:?} has lease = \"learned\", and the beam has the rate", self.name);
            return wrong(why, "leave lease out, or share no forward rate under [beam]");
        }
        if !radio {
            return Ok(());
        }
        let is_beams = is_shared && written.is_none();
        self.written_lease = Some(match is_beams {
            true => LeaseSource::Static,
            false => rate::source_of(written, self.rate, source)?,
        });
        Ok(())
    }

    /// Public key of the aircraft.
    pub fn key(&self) -> PublicKey {
        *self.public_key.get_ref()
    }
}

impl<'de> Deserialize<'de> for NameServer {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from_text(from)
    }
}

impl FromStr for NameServer {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
        let address = bare.or_else(|_| text.parse()).ok().filter(|address| address.port() != 0);
        address.map(Self).ok_or_else(|| {
            format!("{text:?} is not the address of a name server: write it like \"9.9.9.9\"")
        })
    }
}
