//! `ground.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bentpipe_link::PublicKey;
use bentpipe_masque::Certificate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::aircraft::AircraftTable;
use super::ground_link::GroundLinkTable;
use super::hosts::{self, HostAddresses};
use super::mesh::{self, EgressConfig, EgressTable, HubTable};
use super::origin::{self, GroundSiteTable};
use super::standard::{self, ClientTable, MasqueTable};
use super::status::StatusTable;
use super::{
    AeroTcp, AircraftConfig, Beam, Classes, ConfigError, Dial, Dns, GroundLimits, GroundLink,
    GroundSplitHttp, Placed, Raw, Source, StandardClient, StatusConfig, Upstream, Which, applies,
    read, share, which,
};

/// Settings of a ground gateway.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "ground.toml")]
pub(super) struct GroundFile {
    /// Link to the aircraft.
    link: GroundLinkTable,
    /// Capacity that the aircraft share. Only with `listen`.
    beam: Option<Placed<Beam>>,
    /// Aircraft that are served.
    #[serde(default)]
    aircraft: Vec<AircraftTable>,
    /// Hubs that forward flows of aircraft to this egress: docs/several-hubs.md. At most 64.
    #[serde(default, rename = "hub")]
    hubs: Vec<HubTable>,
    /// Egresses that dial for this hub: docs/several-hubs.md. Without one, this
    /// gateway dials itself. At most 64.
    #[serde(default, rename = "egress")]
    egresses: Vec<EgressTable>,
    /// Certificate for standard MASQUE clients; without it they are refused.
    masque: Option<MasqueTable>,
    /// Standard clients: docs/standard-clients.md.
    #[serde(default, rename = "client")]
    clients: Vec<ClientTable>,
    /// AeroTCP's parameters; needed if it is served.
    aerotcp: Option<AeroTcp>,
    /// Each class's share of the traffic to each aircraft.
    #[serde(default)]
    classes: Classes,
    /// Policy for dialling.
    #[serde(default)]
    dial: Dial,
    /// Protocols other than TCP, UDP and ICMP echo that cross: docs/other-protocols.md. Not for
    /// AeroTCP.
    raw: Option<Raw>,
    /// Name servers.
    #[serde(default)]
    dns: Dns,
    /// Names that the ground answers itself: `"intranet.example" = "10.0.0.7"`, or a list of
    /// addresses.
    #[serde(default)]
    #[schemars(extend("x-default" = "none"))]
    hosts: BTreeMap<String, HostAddresses>,
    /// Whole pages in one round trip: docs/split-http.md. Without it the ground refuses, and
    /// aircraft do not ask for pages again within 10 minutes.
    split_http: Option<GroundSplitHttp>,
    /// Names with whose origins the ground opens TLS for pages; at most 64. Needs `[split-http]`.
    #[serde(default, rename = "site")]
    sites: Vec<GroundSiteTable>,
    /// File with the current traffic: docs/status.md.
    status: Option<StatusTable>,
    /// Limits of flows and of their idle times.
    #[serde(default)]
    limits: GroundLimits,
}

/// Configuration of a ground gateway.
#[derive(Debug, Clone)]
pub struct GroundConfig {
    /// Path to the aircraft.
    pub link: GroundLink,
    /// Beam that the aircraft share; absent if each aircraft has its own rates.
    pub beam: Option<Beam>,
    /// Aircraft served.
    pub aircraft: Vec<AircraftConfig>,
    /// Keys of the hubs that forward flows here.
    pub hubs: Vec<PublicKey>,
    /// Egresses that dial for this hub.
    pub egresses: Vec<EgressConfig>,
    /// Certificate for standard MASQUE clients; if absent, they are refused.
    pub masque: Option<Arc<Certificate>>,
    /// Standard MASQUE clients served.
    pub clients: Vec<StandardClient>,
    /// AeroTCP settings, if AeroTCP is served.
    pub aerotcp: Option<AeroTcp>,
    /// Policy for dialling.
    pub dial: Dial,
    /// Protocols other than TCP, UDP and ICMP echo that are carried.
    pub raw: Raw,
    /// Name servers.
    pub dns: Dns,
    /// Names that the ground gateway resolves itself.
    pub hosts: BTreeMap<String, HostAddresses>,
    /// Delivery of whole pages in one round trip; if absent, requests for it are declined.
    pub split_http: Option<GroundSplitHttp>,
    /// Names whose pages the ground gateway fetches over TLS for aircraft that serve those names.
    pub sites: Vec<Upstream>,
    /// Status file; absent if none is written.
    pub status: Option<StatusConfig>,
    /// Resource limits.
    pub limits: GroundLimits,
    /// The file as it is written, to compare it with the next one.
    pub written: toml::Table,
}

impl GroundConfig {
    /// Directories that this gateway writes to.
    pub fn writable(&self) -> Vec<PathBuf> {
        let status = self.status.as_ref().map(|status| status.file.as_path());
        let state = self.link.listen.map(|_| self.link.state_file.as_path());
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
        let file = source.parse::<GroundFile>()?;
        Ok(GroundConfig { written: source.parse()?, ..file.check(&source)? })
    }
}

impl GroundFile {
    fn check(self, source: &Source<'_>) -> Result<GroundConfig, ConfigError> {
        let link = self.link.check(source)?;
        applies::at_ground(source, &link.served())?;
        hosts::check(&self.hosts, source)?;
        self.dial.check(source)?;
        self.classes.check(source)?;
        check_identities(&self.aircraft, &link, source)?;
        let own = link.private_key.public();
        let taken: Vec<_> = self.aircraft.iter().map(|one| *one.public_key).chain([own]).collect();
        let hubs = mesh::hubs(&self.hubs, &taken, source)?;
        let egresses = mesh::egresses(self.egresses, &taken, source)?;
        if let Some(beam) = self.beam.as_ref().filter(|_| !hubs.is_empty()) {
            mesh::check_beam(beam, &link, source)?;
        }
        let beam = self.beam.as_deref();
        let aircraft = self.aircraft.into_iter();
        let aircraft: Vec<_> = aircraft
            .map(|one| one.check(&link, beam, &self.classes, source))
            .collect::<Result<_, _>>()?;
        let status = self.status.map(|status| status.check(source)).transpose()?;
        let masque = self.masque.map(|masque| masque.check(source)).transpose()?;
        let sites = origin::check(self.sites, &self.dial, source)?;
        if self.split_http.is_none() && !sites.is_empty() {
            let why = "there is a [[site]], and nothing that fetches its pages";
            return Err(ConfigError::at(source, None, why, "write [split-http] too"));
        }
        let clients = standard::check(self.clients, masque.is_some(), source)?;
        if let Some(beam) = &self.beam {
            share::check(beam, &aircraft, source)?;
        }
        Ok(GroundConfig {
            link,
            beam: self.beam.map(Placed::into_inner),
            aircraft,
            hubs,
            egresses,
            masque,
            clients,
            aerotcp: self.aerotcp,
            dial: self.dial,
            raw: self.raw.unwrap_or_default(),
            dns: self.dns,
            hosts: self.hosts,
            split_http: self.split_http,
            sites,
            status,
            limits: self.limits,
            written: toml::Table::new(),
        })
    }
}

/// Rejects two aircraft with the same key or name, and an aircraft with the ground's key.
fn check_identities(
    aircraft: &[AircraftTable],
    link: &GroundLink,
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    let own = link.private_key.public();
    let (mut keys, mut names) = (BTreeSet::new(), BTreeSet::new());
    for AircraftTable { name, public_key, .. } in aircraft {
        let (why, help) = if **public_key == own {
            let help = "write the aircraft's; `bentpipe check air.toml` on board shows it";
            ("this is the ground's own public key".to_owned(), help)
        } else if !keys.insert(**public_key) {
            let help = "every aircraft has its own: make one with `bentpipe keys`";
            (format!("{:?} has the key of another aircraft", **name), help)
        } else if !names.insert(&**name) {
            let help = "every aircraft has its own: the log and the records go by it";
            let why = format!("{:?} is the name of another aircraft", **name);
            return Err(name.error(source, why, help));
        } else {
            continue;
        };
        return Err(public_key.error(source, why, help));
    }
    Ok(())
}
