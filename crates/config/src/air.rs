//! `air.toml`.

use std::path::{Path, PathBuf};

use bentpipe_classify::Rules;
use bentpipe_flow::Target;
use bentpipe_link::{Class, PublicKey, SecretKey};
use bentpipe_net::ip;
use bentpipe_units::{BitRate, ByteSize, Span};
use serde::Deserialize;

use super::classes::class;
use super::least;
use super::listen::Listen;
use super::modem::{ModemConfig, WrittenModem};
use super::radio::{coded, default_mtu, in_order, marked};
use super::rate::{self, LeaseSource};
use super::rule::{self, WrittenHello, WrittenRule, WrittenTrusted};
use super::{
    AeroTcp, AirDns, AirIp, AirSplitHttp, AirUdp, Classes, ConfigError, DEFAULT_DRAIN,
    DEFAULT_IDLE, DEFAULT_STALL, HttpCache, Idle, Memory, Page, Preload, Raw, Site, Source,
    StatusConfig, Which, applies, folder_of, read, seconds, site, spanned_key, which,
};
use crate::relay::RelayLimits;
use crate::transport::Transport;

/// Configuration of an air gateway.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AirConfig {
    /// Path to the ground gateway.
    pub link: AirLink,
    /// Listeners for clients.
    pub listen: Listen,
    /// Settings of AeroTCP, if it is the transport.
    pub aerotcp: Option<AeroTcp>,
    /// Guarantees and ceilings of the classes, for what this side sends.
    #[serde(default)]
    pub classes: Classes,
    /// Class of flows that no rule matches.
    #[serde(default, deserialize_with = "class")]
    default_class: Class,
    #[serde(default)]
    encrypted_hello: WrittenHello,
    trusted: Option<WrittenTrusted>,
    #[serde(default, rename = "rule")]
    written_rules: Vec<toml::Spanned<WrittenRule>>,
    /// Rules that decide a flow's class.
    #[serde(skip)]
    pub rules: Rules,
    /// Protocols other than TCP, UDP and ICMP echo that are carried.
    #[serde(default)]
    pub raw: Raw,
    /// HTTP cache; absent if disabled.
    pub http_cache: Option<HttpCache>,
    /// Names that the gateway serves itself.
    #[serde(default, rename = "site")]
    pub sites: Vec<Site>,
    /// Portal content to prefetch at night; absent if nothing is prefetched.
    pub preload: Option<Preload>,
    /// Page that explains this gateway to passengers; absent if disabled.
    pub page: Option<Page>,
    /// Usage records per passenger; absent if disabled.
    pub usage: Option<UsageConfig>,
    /// Delivery of whole pages in one round trip; absent if pages cross the link object by object.
    pub split_http: Option<AirSplitHttp>,
    /// On-board resolver; absent if disabled.
    pub dns: Option<AirDns>,
    /// Status file; absent if none is written.
    pub status: Option<StatusConfig>,
    /// Resource limits.
    #[serde(default)]
    pub limits: AirLimits,
}

/// Rules and limits of the classes.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Guarantees and ceilings of the classes.
    pub classes: Classes,
    /// Rules that decide a flow's class.
    pub rules: Rules,
}

/// Usage records of each passenger per day, written as JSON lines.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UsageConfig {
    #[serde(rename = "directory")]
    written: toml::Spanned<PathBuf>,
    /// Directory of the files, one file a day.
    #[serde(skip)]
    pub directory: PathBuf,
    /// Interval of writes; records are also written when the gateway stops.
    #[serde(default = "default_usage_interval")]
    pub interval: Span,
}

const fn default_usage_interval() -> Span {
    seconds(15 * 60)
}

/// Path to the ground gateway.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AirLink {
    /// `"link"`, `"masque"` or `"aerotcp"`.
    #[serde(default)]
    pub transport: Transport,
    private_key_file: toml::Spanned<PathBuf>,
    /// Address of the ground gateway.
    #[serde(deserialize_with = "least::somewhere")]
    pub peer: Target,
    /// Public key of the ground gateway.
    #[serde(deserialize_with = "spanned_key")]
    peer_public_key: toml::Spanned<PublicKey>,
    /// Maximum sending rate of this gateway.
    #[serde(default = "rate::not_set", deserialize_with = "least::rate")]
    pub rate: BitRate,
    /// Maximum size of an IP packet on the path, bytes.
    #[serde(default = "default_mtu")]
    pub mtu: usize,
    /// `true` if packets on the radio carry their class as DSCP.
    #[serde(default = "marked")]
    pub dscp: bool,
    /// `true` if repair packets (FEC) protect the traffic sent.
    #[serde(default = "coded")]
    pub coding: bool,
    /// `true` if received QUIC datagrams are restored to their sending order.
    #[serde(default = "in_order")]
    pub quic_in_order: bool,
    /// Memory of the session.
    #[serde(default)]
    pub memory: Memory,
    #[serde(rename = "lease")]
    written_lease: Option<LeaseSource>,
    /// Padding that a session may send to learn the rate before anybody has data.
    #[serde(default = "rate::learn_bytes")]
    pub learn_bytes: ByteSize,
    state_file: Option<PathBuf>,
    #[serde(rename = "modem")]
    written_modem: Option<WrittenModem>,
    /// Source of the radio's current rate, if configured.
    #[serde(skip)]
    pub modem: Option<ModemConfig>,
    #[serde(skip)]
    private_key: Option<SecretKey>,
}

/// Limits. An idle flow takes about 6 KiB in the air gateway: 10,000 take 58 MiB (`bentpipe lab
/// bench idle`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirLimits {
    /// Concurrent client connections, including those that have not sent a request yet.
    #[serde(deserialize_with = "least::one")]
    pub max_flows: usize,
    /// Concurrent client connections of one passenger.
    #[serde(deserialize_with = "least::one")]
    pub max_flows_per_passenger: usize,
    /// New connections of one passenger per second, on average; bursts of four times as many are
    /// allowed. The limit prevents one passenger from using up the flows that the ground gateway
    /// allows the aircraft.
    #[serde(deserialize_with = "least::one")]
    pub flows_per_second_per_passenger: u32,
    /// `"device"` or `"address"`: how passengers are distinguished.
    pub passenger: PassengerIs,
    /// Time within which a client must name its destination.
    #[serde(deserialize_with = "least::moment")]
    pub handshake_timeout: Span,
    /// Idle time after which a flow ends.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// Time after which a client that does not read pending data is disconnected.
    #[serde(deserialize_with = "least::moment")]
    pub stall_timeout: Span,
    /// Time after which a flow ends if its destination has never answered.
    #[serde(deserialize_with = "least::moment")]
    pub answer_timeout: Span,
    /// Time for flows to finish after a stop was requested.
    pub drain_timeout: Span,
    /// Limits for UDP.
    pub udp: AirUdp,
    /// Limits for ICMP echo and other protocols.
    pub ip: AirIp,
}

/// Unit by which passengers are distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassengerIs {
    /// A device, if the kernel knows its hardware address.
    #[default]
    Device,
    /// An IPv4 address or an IPv6 /64, for access points that hide their clients' hardware
    /// addresses.
    Address,
}

impl Default for AirLimits {
    fn default() -> Self {
        Self {
            max_flows: 4_096,
            max_flows_per_passenger: 1_024,
            flows_per_second_per_passenger: 50,
            passenger: PassengerIs::Device,
            handshake_timeout: seconds(10),
            idle_timeout: DEFAULT_IDLE,
            stall_timeout: DEFAULT_STALL,
            answer_timeout: seconds(180),
            drain_timeout: DEFAULT_DRAIN,
            udp: AirUdp::default(),
            ip: AirIp::default(),
        }
    }
}

impl AirLimits {
    /// Idle timeout of a datagram flow of IP protocol `protocol` to `port`.
    pub fn datagram_idle(&self, protocol: u8, port: u16) -> Idle {
        if protocol == ip::UDP { self.udp.idle(port) } else { self.ip.idle(protocol) }
    }

    /// Limits that the relay enforces.
    pub fn relay(&self) -> RelayLimits {
        RelayLimits {
            idle: self.idle_timeout.into(),
            stall: self.stall_timeout.into(),
            answer: Some(self.answer_timeout.into()),
        }
    }
}

impl AirConfig {
    /// Reads and checks `file` and the key that it names. A `chosen` transport overrides the one in
    /// the file.
    pub fn load(file: &Path, chosen: Option<Transport>) -> Result<Self, ConfigError> {
        Self::parse_with(file, &read(file)?, chosen)
    }

    /// Checks `text` as the content of `file`; paths in it are relative to `file`.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(file, text, None)
    }

    /// Reads only the settings that determine a flow's class. No other file needs to exist.
    pub fn load_policy(file: &Path) -> Result<Policy, ConfigError> {
        Self::parse_policy(file, &read(file)?)
    }

    /// Reads the same settings from `text`, the content of `file`.
    pub fn parse_policy(file: &Path, text: &str) -> Result<Policy, ConfigError> {
        let source = Source { file, text };
        which::expect(&source, Which::Air)?;
        let mut config: Self = source.parse()?;
        config.check_policy(&source)?;
        Ok(Policy { classes: config.classes, rules: config.rules })
    }

    fn check_policy(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        self.classes.check(source)?;
        let written = std::mem::take(&mut self.written_rules);
        self.rules = rule::rules(source, written, self.default_class, self.encrypted_hello)?;
        self.rules.trusted = self.trusted.take().map(Into::into).unwrap_or_default();
        Ok(())
    }

    fn parse_with(file: &Path, text: &str, chosen: Option<Transport>) -> Result<Self, ConfigError> {
        let source = Source { file, text };
        which::expect(&source, Which::Air)?;
        let mut config: Self = source.parse()?;
        let link = &mut config.link;
        link.transport = chosen.unwrap_or(link.transport);
        applies::at_air(&source, link.transport, chosen.is_some())?;
        let private_key = source.private_key(&link.private_key_file)?;
        if link.peer_public_key() == private_key.public() {
            let why = "this is the aircraft's own public key".to_owned();
            let help = "write the ground's; `bentpipe check ground.toml` on the ground shows it";
            let place = Some(link.peer_public_key.span());
            return Err(ConfigError::at(&source, place, why, help.to_owned()));
        }
        link.private_key = Some(private_key);
        link.state_file = Some(match link.state_file.take() {
            Some(path) => source.beside(&path),
            None => source.beside(link.private_key_file.get_ref()).with_extension("state"),
        });
        link.modem = link.written_modem.take().map(|modem| modem.check(&source)).transpose()?;
        if link.transport != Transport::Masque {
            let lease = rate::source_of(link.written_lease, link.rate, &source)?;
            link.written_lease = Some(lease);
        }
        if link.transport == Transport::AeroTcp && link.lease() == LeaseSource::Learned {
            let why = "AeroTCP does not learn its rate, and there is none".to_owned();
            let help = "write rate = \"1.89 Mbit/s\", say, or use transport = \"link\"".to_owned();
            return Err(ConfigError::at(&source, None, why, help));
        }
        if config.link.lease() == LeaseSource::Modem && config.link.modem.is_none() {
            let why = "lease = \"modem\", but nothing says where the modem is".to_owned();
            let help = "write a table [link.modem], see docs/modem.md".to_owned();
            return Err(ConfigError::at(&source, None, why, help));
        }
        config.listen.check(&source)?;
        config.check_policy(&source)?;
        if let Some(usage) = &mut config.usage {
            usage.check(&source)?;
        }
        if let Some(status) = &mut config.status {
            status.check(&source)?;
        }
        if let Some(dns) = &mut config.dns {
            dns.check(&source, config.listen.tproxy.as_ref())?;
        }
        if let Some(cache) = &mut config.http_cache {
            cache.check(&source)?;
        } else if !config.sites.is_empty() {
            let why = "there is a [[site]], and no cache to answer for it".to_owned();
            let help = "write [http-cache] too".to_owned();
            return Err(ConfigError::at(&source, None, why, help));
        }
        if let Some(preload) = &mut config.preload {
            preload.check(&source, config.http_cache.as_ref())?;
        }
        site::load(&mut config.sites, &source)?;
        if config.split_http.is_none() && config.sites.iter().any(|site| site.loaded().split_http) {
            let why = "a [[site]] has split-http = true, and there is no such table".to_owned();
            let help = "write [split-http] too".to_owned();
            return Err(ConfigError::at(&source, None, why, help));
        }
        Ok(config)
    }
}

impl UsageConfig {
    fn check(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        self.directory = source.beside(self.written.get_ref());
        if self.interval.duration().as_secs() == 0 {
            let why = format!("records every {} would be all that is done", self.interval);
            let help = "write how often: interval = \"15 min\"".to_owned();
            return Err(ConfigError::at(source, None, why, help));
        }
        if self.directory.is_dir() {
            return Ok(());
        }
        let why = format!("{} is not a directory", self.directory.display());
        let help = "make it, and let the gateway's user write there".to_owned();
        Err(ConfigError::at(source, Some(self.written.span()), why, help))
    }
}

impl AirLink {
    /// Source of the sending rate, up to `rate`. HTTP/3 finds its own.
    pub fn lease(&self) -> LeaseSource {
        self.written_lease.unwrap_or(LeaseSource::Learned)
    }

    /// Private key of this gateway.
    pub fn private_key(&self) -> &SecretKey {
        // AirConfig::parse, the only constructor, has set it.
        self.private_key.as_ref().expect("a parsed config holds its key")
    }

    /// Public key of the ground gateway.
    pub fn peer_public_key(&self) -> PublicKey {
        *self.peer_public_key.get_ref()
    }

    /// File of the handshake counter: `state-file`, or next to the key.
    pub fn state_file(&self) -> &Path {
        // AirConfig::parse, the only constructor, has set it.
        self.state_file.as_deref().expect("a parsed config knows its state file")
    }
}

impl AirConfig {
    /// Directories that this gateway writes to.
    pub fn writable(&self) -> Vec<PathBuf> {
        let files = [
            self.link.state_file.as_deref(),
            self.dns.as_ref().and_then(|dns| dns.cache_file.as_deref()),
            self.status.as_ref().map(|status| status.file.as_path()),
            self.preload.as_ref().map(|preload| preload.socket.as_path()),
        ];
        let folders = [
            self.usage.as_ref().map(|usage| usage.directory.clone()),
            self.http_cache.as_ref().and_then(|cache| cache.directory().cloned()),
        ];
        files
            .into_iter()
            .flatten()
            .filter_map(folder_of)
            .chain(folders.into_iter().flatten())
            .collect()
    }
}
