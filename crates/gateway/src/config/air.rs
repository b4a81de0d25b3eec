//! `air.toml`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_link::{Class, PublicKey, SecretKey, Target};
use bentpipe_units::{BitRate, Span};
use ipnet::IpNet;
use serde::Deserialize;

use super::classes::class;
use super::least;
use super::modem::{ModemConfig, WrittenModem};
use super::radio::{coded, default_mtu, in_order, marked};
use super::rule::{self, WrittenHello, WrittenRule, WrittenTrusted};
use super::{
    AeroTcp, AirDns, AirIp, AirSplitHttp, AirUdp, Classes, ConfigError, DEFAULT_DRAIN,
    DEFAULT_IDLE, DEFAULT_STALL, HttpCache, Memory, Page, Preload, Quic, Raw, Site, Source,
    StatusConfig, Which, applies, folder_of, key, read, seconds, site, spanned_key, which,
};
use crate::classify::Rules;
use crate::net::ip;
use crate::relay::RelayLimits;

/// Configuration of an air gateway.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AirConfig {
    /// The way to the ground.
    pub link: AirLink,
    /// Listeners for clients.
    pub listen: Listen,
    /// Settings of AeroTCP, if it is the transport.
    pub aerotcp: Option<AeroTcp>,
    /// Guarantees and ceilings of the classes, for what this side sends.
    #[serde(default)]
    pub classes: Classes,
    /// The class of what no rule matches.
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
    /// The HTTP cache; absent where there is none.
    pub http_cache: Option<HttpCache>,
    /// Names that the gateway answers for.
    #[serde(default, rename = "site")]
    pub sites: Vec<Site>,
    /// The portal's content, fetched at night; absent where nothing is fetched ahead.
    pub preload: Option<Preload>,
    /// The page that tells passengers what this gateway does; absent where there is none.
    pub page: Option<Page>,
    /// Records of what passengers use; absent where none are kept.
    pub usage: Option<UsageConfig>,
    /// Whole pages in one round trip; absent where they cross object by object.
    pub split_http: Option<AirSplitHttp>,
    /// The resolver on board; absent where there is none.
    pub dns: Option<AirDns>,
    /// Status file; absent if none is written.
    pub status: Option<StatusConfig>,
    /// Bounds.
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

/// Records of what each passenger uses on each day, as lines of JSON.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UsageConfig {
    #[serde(rename = "directory")]
    written: toml::Spanned<PathBuf>,
    /// Directory of the files, one a day.
    #[serde(skip)]
    pub directory: PathBuf,
    /// Interval of writes; once more when the gateway stops.
    #[serde(default = "default_usage_interval")]
    pub interval: Span,
}

const fn default_usage_interval() -> Span {
    seconds(15 * 60)
}

/// Transport of the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The radio transport.
    #[default]
    Link,
    /// HTTP/3 CONNECT.
    Masque,
    /// AeroTCP, as its paper has it.
    #[serde(rename = "aerotcp")]
    AeroTcp,
}

impl Transport {
    /// Its name in configs and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Masque => "masque",
            Self::AeroTcp => "aerotcp",
        }
    }

    /// The setting under `[link]` of `ground.toml` that says where it is served.
    pub const fn listen_key(self) -> &'static str {
        match self {
            Self::Link => "listen",
            Self::Masque => "masque-listen",
            Self::AeroTcp => "aerotcp-listen",
        }
    }
}

/// Source of this gateway's sending rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseSource {
    /// `rate`, for ever.
    #[default]
    Static,
    /// The ground, which shares a beam among several; `rate` is the most.
    Granted,
    /// The modem; `rate` is the most.
    Modem,
    /// Nobody: the link is shared with strangers, and CUBIC finds the rate; `rate` is the most.
    None,
}

/// The way to the ground.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AirLink {
    /// `"link"`, `"masque"` or `"aerotcp"`.
    #[serde(default)]
    pub transport: Transport,
    private_key_file: toml::Spanned<PathBuf>,
    /// Address of the ground.
    #[serde(deserialize_with = "least::somewhere")]
    pub peer: Target,
    /// Key of the ground.
    #[serde(deserialize_with = "spanned_key")]
    peer_public_key: toml::Spanned<PublicKey>,
    /// Sending rate of this side.
    #[serde(deserialize_with = "least::rate")]
    pub rate: BitRate,
    /// The largest IP packet that the path is provisioned for, bytes: never exceeded.
    #[serde(default = "default_mtu")]
    pub mtu: usize,
    /// `true` if packets on the radio show their classes by their DSCP.
    #[serde(default = "marked")]
    pub dscp: bool,
    /// `true` if repair packets protect what is sent.
    #[serde(default = "coded")]
    pub coding: bool,
    /// `true` if received datagrams of QUIC are put back in the order in which they were sent.
    #[serde(default = "in_order")]
    pub quic_in_order: bool,
    /// Memory of the session.
    #[serde(default)]
    pub memory: Memory,
    /// `"static"`, `"granted"`, `"modem"` or `"none"`: what is sent at up to `rate`.
    #[serde(default)]
    pub lease: LeaseSource,
    state_file: Option<PathBuf>,
    #[serde(rename = "modem")]
    written_modem: Option<WrittenModem>,
    /// Source of the radio's present rate, if there is one.
    #[serde(skip)]
    pub modem: Option<ModemConfig>,
    #[serde(skip)]
    private_key: Option<SecretKey>,
}

/// Listeners for clients.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Listen {
    /// SOCKS5 (RFC 1928).
    pub socks5: Option<SocketAddr>,
    /// HTTP CONNECT and absolute-form requests.
    pub http_proxy: Option<SocketAddr>,
    /// Transparent interception.
    pub tproxy: Option<Tproxy>,
    /// `"carry"` or `"reject"`: what becomes of the clients' QUIC.
    #[serde(default)]
    pub quic: Quic,
    /// Credentials of SOCKS5 and HTTP clients.
    pub auth: Option<Auth>,
    /// Networks of SOCKS5 and HTTP clients; empty for any. This machine itself is always one.
    #[serde(default)]
    pub clients: Vec<IpNet>,
}

/// Maximum number of intercepted interfaces: each has a rule of nftables and two policy rules.
const MAX_INTERFACES: usize = 64;

/// Transparent interception by nftables.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tproxy {
    /// The local port that intercepted connections are led to.
    pub port: u16,
    /// The interfaces clients come in by.
    pub interfaces: Vec<toml::Spanned<String>>,
    /// `true` drops packets that are not carried, also while no gateway runs.
    #[serde(default)]
    pub fail_closed: bool,
}

/// Credentials for the proxies.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Auth {
    /// At most 255 bytes, as RFC 1929 allows.
    #[serde(deserialize_with = "least::credential")]
    pub username: String,
    /// At most 255 bytes, as RFC 1929 allows.
    #[serde(default, deserialize_with = "least::credential")]
    pub password: String,
    /// The file that holds the password, in place of it.
    pub password_file: Option<toml::Spanned<PathBuf>>,
}

/// Bounds. A flow idles in about 6 KiB here: 10,000 take 58 MiB (`bentpipe lab bench idle`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AirLimits {
    /// Client connections at once, those that have not said yet what they want included.
    #[serde(deserialize_with = "least::one")]
    pub max_flows: usize,
    /// Maximum for one passenger.
    #[serde(deserialize_with = "least::one")]
    pub max_flows_per_passenger: usize,
    /// New ones of one passenger per second, on average; four times as many at a stretch. So that nobody
    /// uses up what the ground lets the aircraft open.
    #[serde(deserialize_with = "least::one")]
    pub flows_per_second_per_passenger: u32,
    /// `"device"` or `"address"`: how passengers are told apart.
    pub passenger: PassengerIs,
    /// Time within which a client must name its destination.
    #[serde(deserialize_with = "least::moment")]
    pub handshake_timeout: Span,
    /// A flow on which nothing moves ends after this.
    #[serde(deserialize_with = "least::moment")]
    pub idle_timeout: Span,
    /// A client that does not read what waits for it is given up after this.
    #[serde(deserialize_with = "least::moment")]
    pub stall_timeout: Span,
    /// A flow whose far end has never said anything ends after this.
    #[serde(deserialize_with = "least::moment")]
    pub answer_timeout: Span,
    /// Time for flows to finish after a stop was requested.
    pub drain_timeout: Span,
    /// Limits for UDP.
    pub udp: AirUdp,
    /// Limits for ICMP echo and other protocols.
    pub ip: AirIp,
}

/// Unit in which passengers are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassengerIs {
    /// A device, as far as the kernel knows it.
    #[default]
    Device,
    /// An IPv4 address or a /64 of IPv6: if access points hide their clients' hardware addresses.
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
    /// Idle timeout of a flow of datagrams to `port`, of the IP protocol `protocol`.
    pub fn datagram_idle(&self, protocol: u8, port: u16) -> Duration {
        if protocol == ip::UDP { self.udp.idle(port) } else { self.ip.idle(protocol) }
    }

    /// Idle timeout of such a flow before anything has answered; `idle` is its timeout afterwards.
    pub fn unanswered_idle(&self, protocol: u8, idle: Duration) -> Duration {
        match protocol {
            ip::UDP => idle.min(self.udp.unanswered_timeout.into()),
            _ => idle,
        }
    }

    /// The part the relay keeps.
    pub fn relay(&self) -> RelayLimits {
        RelayLimits {
            idle: self.idle_timeout.into(),
            stall: self.stall_timeout.into(),
            answer: Some(self.answer_timeout.into()),
        }
    }
}

impl AirConfig {
    /// Reads and checks `file` and the key it names. A `chosen` transport takes the place of the one
    /// in the file.
    pub fn load(file: &Path, chosen: Option<Transport>) -> Result<Self, ConfigError> {
        Self::parse_with(file, &read(file)?, chosen)
    }

    /// Checks `text` as the content of `file`; paths in it are relative to `file`.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::parse_with(file, text, None)
    }

    /// Reads of `file` what says which class a flow has. No other file has to be there.
    pub fn load_policy(file: &Path) -> Result<Policy, ConfigError> {
        Self::parse_policy(file, &read(file)?)
    }

    /// The same of `text` as the content of `file`.
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
        if config.link.lease == LeaseSource::Modem && config.link.modem.is_none() {
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
    /// Private key of this gateway.
    pub fn private_key(&self) -> &SecretKey {
        // AirConfig::parse, the only maker of this type, has filled it.
        self.private_key.as_ref().expect("a parsed config holds its key")
    }

    /// Public key of the ground.
    pub fn peer_public_key(&self) -> PublicKey {
        *self.peer_public_key.get_ref()
    }

    /// File of the handshake counter: `state-file`, or next to the key.
    pub fn state_file(&self) -> &Path {
        // AirConfig::parse, the only maker of this type, has filled it.
        self.state_file.as_deref().expect("a parsed config knows its state file")
    }
}

impl AirConfig {
    /// The folders that this gateway writes to.
    pub fn writable(&self) -> Vec<PathBuf> {
        let files = [
            self.link.state_file.as_deref(),
            self.dns.as_ref().and_then(|dns| dns.cache_file.as_deref()),
            self.status.as_ref().map(|status| status.file.as_path()),
            self.preload.as_ref().map(|preload| preload.report.as_path()),
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

impl Listen {
    /// Returns whether a SOCKS5 or HTTP client at `ip` is served.
    pub fn admits(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let listed = || self.clients.iter().any(|network| network.contains(&ip));
        self.clients.is_empty() || ip.is_loopback() || listed()
    }

    /// Refuses a proxy that everybody who reaches it can use.
    fn check_open(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        let proxies = [("socks5", self.socks5), ("http-proxy", self.http_proxy)];
        let reached = |address: Option<SocketAddr>| address.filter(|it| !it.ip().is_loopback());
        let found = proxies.iter().find_map(|(key, address)| Some((*key, reached(*address)?)));
        let Some((key, address)) = found else { return Ok(()) };
        if self.auth.is_some() || !self.clients.is_empty() {
            return Ok(());
        }
        let why = format!("whoever reaches {address} could use the link by this proxy");
        let help = "write your passengers' networks under [listen], clients = [\"10.0.0.0/24\"], or \
                    auth, or let it listen at 127.0.0.1";
        let place = applies::place_of(source, "listen", key)?;
        Err(ConfigError::at(source, place, why, help.to_owned()))
    }

    fn check(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        if let Some(auth) = &mut self.auth {
            auth.check(source)?;
        }
        if self.socks5.is_none() && self.http_proxy.is_none() && self.tproxy.is_none() {
            let why = "nothing to listen on".to_owned();
            let help = "write at least one of socks5 = \"127.0.0.1:1080\", \
                        http-proxy = \"127.0.0.1:8080\", \
                        tproxy = { port = 1081, interfaces = [\"eth1\"] } under [listen]";
            return Err(ConfigError::at(source, None, why, help.to_owned()));
        }
        self.tproxy.as_ref().map_or(Ok(()), |tproxy| tproxy.check(source))?;
        let intercepts = |it: &Tproxy| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), it.port);
        let addresses = [
            ("socks5", self.socks5),
            ("http-proxy", self.http_proxy),
            ("tproxy", self.tproxy.as_ref().map(intercepts)),
        ];
        source.listen_apart("listen", &addresses)?;
        self.check_open(source)?;
        match &self.auth {
            Some(auth) if self.http_proxy.is_some() && auth.username.contains(':') => {
                let why = "a user's name in HTTP ends at the first colon (RFC 7617)".to_owned();
                let help = "write a username without a colon, or leave out http-proxy".to_owned();
                let place = applies::place_of(source, "listen", "auth")?;
                Err(ConfigError::at(source, place, why, help))
            }
            _ => Ok(()),
        }
    }
}

impl Tproxy {
    fn check(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        if self.port == 0 || self.interfaces.is_empty() {
            let why = "transparent interception needs a port and an interface".to_owned();
            let help = "write tproxy = { port = 1081, interfaces = [\"eth1\"] }".to_owned();
            let place = applies::place_of(source, "listen", "tproxy")?;
            return Err(ConfigError::at(source, place, why, help));
        }
        if self.interfaces.len() > MAX_INTERFACES {
            let why = format!("more than {MAX_INTERFACES} interfaces");
            let help = "name a bridge of them".to_owned();
            let place = applies::place_of(source, "listen", "tproxy")?;
            return Err(ConfigError::at(source, place, why, help));
        }
        for name in &self.interfaces {
            let text = name.get_ref();
            source.interface_name(name, "interfaces = [\"eth1\"]")?;
            if text == "lo" {
                let why = "intercepting \"lo\" would catch this machine's own connections";
                let help = "name the interface the clients come in by: interfaces = [\"eth1\"]";
                return Err(ConfigError::at(source, Some(name.span()), why.into(), help.into()));
            }
        }
        Ok(())
    }
}

impl Auth {
    /// Reads the password if it is in a file.
    fn check(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        let Some(file) = &self.password_file else {
            if self.password.is_empty() {
                let why = "the setting \"password\" is missing".to_owned();
                let help = "write password = \"…\", or password-file = \"FILE\"".to_owned();
                let place = applies::place_of(source, "listen", "auth")?;
                return Err(ConfigError::at(source, place, why, help));
            }
            return Ok(());
        };
        let wrong = |why: String, help: &str| {
            Err(ConfigError::at(source, Some(file.span()), why, help.to_owned()))
        };
        if !self.password.is_empty() {
            return wrong(
                "there is a password beside this file".to_owned(),
                "leave one of them out",
            );
        }
        let path = source.beside(file.get_ref());
        let text = match key::secret(&path) {
            Ok(text) => text,
            Err(error) => {
                let why = format!("the password in {} cannot be read: {error}", path.display());
                return wrong(why, "name a file that this user may read");
            }
        };
        let password = text.strip_suffix('\n').unwrap_or(&text);
        match least::is_credential(password) {
            true => self.password = password.to_owned(),
            false => {
                let why = format!("{} holds no password", path.display());
                return wrong(why, "write it on one line of 1 to 255 bytes");
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Auth({:?}, hidden)", self.username)
    }
}
