//! `[[path]]` of `air.toml`: the radios of one session.

use std::net::{IpAddr, SocketAddr};

use bentpipe_link::MAX_PATHS;
use bentpipe_units::{BitRate, ByteSize};
use schemars::JsonSchema;
use serde::Deserialize;

use super::modem::{ModemConfig, ModemTable};
use super::rate::{self, LeaseSource};
use super::{AirLink, ConfigError, Placed, Source, least};

/// A radio.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RadioPathTable {
    /// Its name in the log, the status and the metrics.
    #[serde(deserialize_with = "least::placed_name")]
    name: Placed<String>,
    /// Interface that its packets leave by. It may come and go.
    #[schemars(title = "name")]
    interface: Option<Placed<String>>,
    /// Address that its packets are sent from. Needed without `interface`.
    #[schemars(title = "IP address", with = "Option<String>", extend("x-default" = "as the kernel chooses"))]
    local_address: Option<Placed<IpAddr>>,
    /// Address of the ground for this radio.
    #[schemars(title = "address", with = "Option<String>", extend("x-default" = "`peer` of `[link]`"))]
    peer: Option<Placed<SocketAddr>>,
    /// Send rate on it, or its maximum.
    #[serde(default, deserialize_with = "least::path_rate")]
    #[schemars(
        title = "rate, at least 8 kbit/s",
        with = "Option<String>",
        extend("x-default" = "the first radio has that of `[link]`, others learn theirs")
    )]
    rate: Option<BitRate>,
    /// Its bytes cost money: it carries data only while no other radio does.
    #[serde(default)]
    metered: bool,
    /// Maximum bytes in a day of UTC, both directions together with IP headers, at least 256 KiB. Then
    /// nothing goes there until the next day. Kept over restarts.
    #[serde(default, deserialize_with = "least::daily_limit")]
    #[schemars(title = "size", extend("x-default" = "none"))]
    daily_limit: Option<ByteSize>,
    /// Largest IP packet for which it is provisioned, at most that of `[link]`.
    #[serde(default, deserialize_with = "least::aircraft_mtu")]
    #[schemars(title = "bytes", extend("x-default" = "that of `[link]`"))]
    mtu: Option<usize>,
    /// Source of its current rate: docs/modem.md. The first radio has that of `[link]`.
    modem: Option<ModemTable>,
}

/// A radio of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct RadioPath {
    /// Name in the log, the status and the metrics.
    pub name: String,
    /// Interface that its packets leave by.
    pub interface: Option<String>,
    /// Address that its packets are sent from.
    pub local_address: Option<IpAddr>,
    /// Address of the ground, if it is not that of the link.
    pub peer: Option<SocketAddr>,
    /// Rate at which this gateway sends on it, or the maximum.
    pub rate: BitRate,
    /// Source of the rate.
    pub lease: LeaseSource,
    /// It carries data only while no other radio does.
    pub metered: bool,
    /// Maximum bytes in a day, both directions together.
    pub daily_limit: Option<ByteSize>,
    /// Maximum size of an IP packet, bytes.
    pub mtu: usize,
    /// Source of its current rate.
    pub modem: Option<ModemConfig>,
}

/// Checks the radios of an air gateway with `link`.
pub(super) fn check(
    tables: Vec<RadioPathTable>,
    link: &AirLink,
    source: &Source<'_>,
) -> Result<Vec<RadioPath>, ConfigError> {
    if let Some(beyond) = tables.get(usize::from(MAX_PATHS)) {
        let why = format!("more than {MAX_PATHS} radios");
        return Err(beyond.name.error(source, why, "a session has no more paths: leave some out"));
    }
    let mut paths: Vec<RadioPath> = Vec::with_capacity(tables.len());
    for table in tables {
        if paths.iter().any(|path| path.name == *table.name) {
            let why = format!("two radios are called {:?}", *table.name);
            return Err(table.name.error(source, why, "give each a name of its own"));
        }
        let path = table.check(paths.is_empty(), link, source)?;
        paths.push(path);
    }
    Ok(paths)
}

impl RadioPathTable {
    fn check(
        self,
        is_first: bool,
        link: &AirLink,
        source: &Source<'_>,
    ) -> Result<RadioPath, ConfigError> {
        if let Some(interface) = &self.interface {
            source.check_interface(interface, "interface = \"wwan0\"")?;
        }
        if self.interface.is_none() && self.local_address.is_none() {
            let why = format!("nothing says which radio {:?} is", *self.name);
            let help = "write interface = \"wwan0\", say, or local-address = \"192.0.2.7\"";
            return Err(self.name.error(source, why, help));
        }
        if let Some(peer) =
            self.peer.as_ref().filter(|it| it.port() == 0 || it.ip().is_unspecified())
        {
            let why = format!("nothing can be sent to {}", **peer);
            let help = "write the address and port at which the ground listens";
            return Err(peer.error(source, why, help));
        }
        if is_first && self.modem.is_some() && link.modem.is_some() {
            let why = format!("{:?} has a modem, and so has [link]", *self.name);
            let help = "the first radio is that of [link]: leave one of the two modems out";
            return Err(self.name.error(source, why, help));
        }
        let modem = self.modem.map(|modem| modem.check(source)).transpose()?;
        let (rate, lease) = match self.rate {
            Some(rate) => (rate, LeaseSource::Static),
            None if is_first => (link.rate, link.lease),
            None => (rate::not_set(), LeaseSource::Learned),
        };
        Ok(RadioPath {
            name: self.name.into_inner(),
            interface: self.interface.map(Placed::into_inner),
            local_address: self.local_address.map(Placed::into_inner),
            peer: self.peer.map(Placed::into_inner),
            rate,
            lease,
            metered: self.metered,
            daily_limit: self.daily_limit,
            mtu: self.mtu.unwrap_or(link.mtu).min(link.mtu),
            modem: modem.or_else(|| link.modem.clone().filter(|_| is_first)),
        })
    }
}
