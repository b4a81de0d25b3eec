//! `air.toml`.

use std::path::{Path, PathBuf};

use bentpipe_classify::Rules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::air_link::AirLinkTable;
use super::classes::ClassName;
use super::dns::DnsTable;
use super::http::HttpCacheTable;
use super::listen::ListenTable;
use super::mesh::{self, AirHub, AirHubTable};
use super::modem::ModemConfig;
use super::preload::PreloadTable;
use super::radio_path::{self, RadioPathTable};
use super::rule::{self, RuleTable, TrustedTable};
use super::site::{self, SiteTable};
use super::status::StatusTable;
use super::usage::UsageTable;
use super::{
    AeroTcp, AirDns, AirLimits, AirLink, AirSplitHttp, Classes, ConfigError, HttpCache, Listen,
    Page, Placed, Preload, RadioPath, Raw, Site, Source, StatusConfig, UsageConfig, Which, applies,
    folder_of, read, which,
};
use bentpipe_transport::Transport;

/// Settings of an air gateway.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "air.toml")]
pub(super) struct AirFile {
    /// Link to the ground.
    link: AirLinkTable,
    /// Further hubs, called in turn while the one under `[link]` is silent. With them, TCP flows go on
    /// at another hub: docs/several-hubs.md. At most 8.
    #[serde(default, rename = "hub")]
    hubs: Vec<AirHubTable>,
    /// Listeners for passengers' connections; at least one of the three kinds.
    listen: ListenTable,
    /// Radios that one session uses at once, at most 8: docs/several-radios.md. Without any, packets
    /// leave by the default route. Only with `link`.
    #[serde(default, rename = "path")]
    paths: Vec<RadioPathTable>,
    /// AeroTCP's parameters; needed if it is the transport.
    aerotcp: Option<AeroTcp>,
    /// Each class's share of the traffic that this side sends.
    #[serde(default)]
    classes: Classes,
    /// Class of flows that no rule matches.
    #[serde(default)]
    default_class: ClassName,
    /// Status of the outer name of an Encrypted Client Hello: no name, or the connection's name.
    #[serde(default)]
    encrypted_hello: EncryptedHello,
    /// Passengers whose marks count without a rule.
    trusted: Option<TrustedTable>,
    /// Rules for the class of a flow; the first match decides; at most 256.
    #[serde(default, rename = "rule")]
    rules: Vec<Placed<RuleTable>>,
    /// Protocols other than TCP, UDP and ICMP echo that cross: docs/other-protocols.md. Not for
    /// AeroTCP.
    raw: Option<Raw>,
    /// Shared HTTP cache: docs/http-cache.md.
    http_cache: Option<HttpCacheTable>,
    /// Names that the gateway serves with the operator's certificates; at most 64. Needs
    /// `[http-cache]`.
    #[serde(default, rename = "site")]
    sites: Vec<SiteTable>,
    /// Content of the portal, fetched by `bentpipe preload`: docs/cabin-services.md#portal-content.
    /// Needs `[http-cache]`.
    preload: Option<PreloadTable>,
    /// Page that informs passengers about this gateway.
    page: Option<Page>,
    /// Records of passengers' usage.
    usage: Option<UsageTable>,
    /// Whole pages in one round trip: docs/split-http.md. It serves `http` addresses at the HTTP
    /// proxy. With `http-cache` it also serves intercepted port 80, and sites with
    /// `split-http = true`. The ground needs a table of its own.
    split_http: Option<AirSplitHttp>,
    /// On-board resolver: docs/dns.md.
    dns: Option<DnsTable>,
    /// File with the current traffic: docs/status.md.
    status: Option<StatusTable>,
    /// Limits of flows and of their idle times.
    #[serde(default)]
    limits: AirLimits,
}

/// Status of the outer name of an Encrypted Client Hello.
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EncryptedHello {
    #[default]
    Unknown,
    OuterName,
}

/// Configuration of an air gateway.
#[derive(Debug, Clone)]
pub struct AirConfig {
    /// Path to the ground gateway.
    pub link: AirLink,
    /// Further hubs, called in turn while the present one is silent.
    pub hubs: Vec<AirHub>,
    /// Radios of the session; if there are none, it uses the default route.
    pub paths: Vec<RadioPath>,
    /// Listeners for clients.
    pub listen: Listen,
    /// Settings of AeroTCP, if it is the transport.
    pub aerotcp: Option<AeroTcp>,
    /// Guarantees and ceilings of the classes, for what this side sends.
    pub classes: Classes,
    /// Rules that decide a flow's class.
    pub rules: Rules,
    /// Protocols other than TCP, UDP and ICMP echo that are carried.
    pub raw: Raw,
    /// HTTP cache; absent if disabled.
    pub http_cache: Option<HttpCache>,
    /// Names that the gateway serves itself.
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

impl AirConfig {
    /// Reads and checks `file` and the key that it names. A `chosen` transport overrides the one in
    /// the file.
    pub fn load(file: &Path, chosen: Option<Transport>) -> Result<Self, ConfigError> {
        Self::parse_with(file, &read(file)?, chosen)
    }

    /// Sources of the radios' current rates, each with the number of its path.
    pub fn modems(&self) -> impl Iterator<Item = (u8, &ModemConfig)> {
        let alone = self.link.modem.as_ref().filter(|_| self.paths.is_empty());
        let of_paths = self.paths.iter().map(|path| path.modem.as_ref());
        let of_paths = (0..).zip(of_paths).filter_map(|(path, modem)| Some((path, modem?)));
        alone.map(|modem| (0, modem)).into_iter().chain(of_paths)
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
        let file = AirFile::parse(&source)?;
        let rules = file.rules(&source)?;
        Ok(Policy { classes: file.classes, rules })
    }

    fn parse_with(file: &Path, text: &str, chosen: Option<Transport>) -> Result<Self, ConfigError> {
        let source = Source { file, text };
        let file = AirFile::parse(&source)?;
        let transport = chosen.unwrap_or(file.link.transport);
        applies::at_air(&source, transport, chosen.is_some())?;
        file.check(&source, transport)
    }

    /// Directories that this gateway writes to.
    pub fn writable(&self) -> Vec<PathBuf> {
        let files = [
            Some(self.link.state_file.as_path()),
            self.dns.as_ref().and_then(|dns| dns.cache_file.as_deref()),
            self.status.as_ref().map(|status| status.file.as_path()),
            self.preload.as_ref().map(|preload| preload.socket.as_path()),
        ];
        let folders = [
            self.usage.as_ref().map(|usage| usage.directory.clone()),
            self.http_cache.as_ref().and_then(|cache| cache.settings.directory.clone()),
        ];
        files
            .into_iter()
            .flatten()
            .filter_map(folder_of)
            .chain(folders.into_iter().flatten())
            .collect()
    }
}

impl AirFile {
    fn parse(source: &Source<'_>) -> Result<Self, ConfigError> {
        which::expect(source, Which::Air)?;
        source.parse()
    }

    /// Checks the settings that determine a flow's class.
    fn rules(&self, source: &Source<'_>) -> Result<Rules, ConfigError> {
        self.classes.check(source)?;
        Ok(Rules {
            rules: rule::check(source, &self.rules)?,
            default: self.default_class.0,
            trusted: self.trusted.as_ref().map(TrustedTable::check).unwrap_or_default(),
            encrypted_hello: match self.encrypted_hello {
                EncryptedHello::Unknown => bentpipe_classify::EncryptedHello::Unknown,
                EncryptedHello::OuterName => bentpipe_classify::EncryptedHello::OuterName,
            },
        })
    }

    fn check(self, source: &Source<'_>, transport: Transport) -> Result<AirConfig, ConfigError> {
        let rules = self.rules(source)?;
        let link = self.link.check(source, transport)?;
        let own = link.private_key.public();
        let hubs = mesh::air_hubs(self.hubs, own, link.peer_public_key, source)?;
        let paths = radio_path::check(self.paths, &link, source)?;
        let listen = self.listen.check(source)?;
        let usage = self.usage.map(|usage| usage.check(source)).transpose()?;
        let status = self.status.map(|status| status.check(source)).transpose()?;
        let dns = self.dns.map(|dns| dns.check(source, listen.tproxy.is_some())).transpose()?;
        let http_cache = self.http_cache.map(|cache| cache.check(source)).transpose()?;
        if http_cache.is_none() && !self.sites.is_empty() {
            let why = "there is a [[site]], and no cache to answer for it";
            return Err(ConfigError::at(source, None, why, "write [http-cache] too"));
        }
        let sites = site::check(self.sites, source)?;
        let preload = self.preload.map(|it| it.check(source, http_cache.is_some(), &sites));
        if self.split_http.is_none() && sites.iter().any(|site| site.split_http) {
            let why = "a [[site]] has split-http = true, and there is no such table";
            return Err(ConfigError::at(source, None, why, "write [split-http] too"));
        }
        Ok(AirConfig {
            link,
            hubs,
            paths,
            listen,
            aerotcp: self.aerotcp,
            classes: self.classes,
            rules,
            raw: self.raw.unwrap_or_default(),
            http_cache,
            sites,
            preload: preload.transpose()?,
            page: self.page,
            usage,
            split_http: self.split_http,
            dns,
            status,
            limits: self.limits,
        })
    }
}
