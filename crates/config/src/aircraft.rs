//! `[[aircraft]]` of `ground.toml`.

use bentpipe_link::{Class, PublicKey, Share};
use bentpipe_units::BitRate;
use schemars::JsonSchema;
use serde::Deserialize;

use super::classes::ClassName;
use super::placed::placed_text;
use super::rate::{self, LeaseSource};
use super::{Beam, Classes, ConfigError, Country, GroundLink, Memory, Placed, Source, least};

/// One aircraft.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AircraftTable {
    /// Its name in the log and the records.
    #[serde(deserialize_with = "least::placed_name")]
    pub name: Placed<String>,
    /// Its public key.
    #[serde(deserialize_with = "placed_text")]
    #[schemars(with = "String", title = "key")]
    pub public_key: Placed<PublicKey>,
    /// Send rate towards it, or its maximum; in a shared beam, the maximum. Without it the rate is
    /// learned, or a part of the beam. AeroTCP needs it, HTTP/3 does not use it.
    #[serde(default = "rate::not_set", deserialize_with = "least::rate")]
    #[schemars(title = "rate, at least 8 kbit/s", extend("x-default" = "none"))]
    rate: BitRate,
    /// The same for this aircraft.
    #[serde(default, deserialize_with = "least::aircraft_mtu")]
    #[schemars(title = "bytes", extend("x-default" = "that of `[link]`"))]
    mtu: Option<usize>,
    /// The same for this aircraft.
    #[schemars(extend("x-default" = "that of `[link]`"))]
    memory: Option<Memory>,
    /// `"learned"`: send what the path is measured to carry, up to `rate`; `"static"`: send at
    /// `rate`; `"none"`: CUBIC, up to `rate`. Only with `listen`.
    #[schemars(
        with = "Option<GroundLease>",
        extend("x-default" = "`\"static\"` with `rate` or in a shared beam, otherwise `\"learned\"`")
    )]
    lease: Option<LeaseSource>,
    /// Most favoured class of its flows; flows that ask for a better one get this one.
    #[serde(default)]
    highest_class: ClassName,
    /// Each class's share of the traffic to it.
    #[serde(default)]
    #[schemars(extend("x-default" = "those of the file"))]
    classes: Classes,
    /// Its weight in a beam. Needs `[beam]`.
    #[schemars(title = "1 to 1000", extend("x-default" = "1"))]
    pub weight: Option<Placed<u32>>,
    /// Its guaranteed rate in a beam, before the rest is divided. Needs `[beam]`.
    #[schemars(extend("x-default" = "16 kbit/s"))]
    pub floor: Option<Placed<BitRate>>,
    /// Its maximum of the beam's return rate. Needs `[beam]`.
    #[schemars(extend("x-default" = "all of it"))]
    pub return_rate: Option<Placed<BitRate>>,
    /// Country whose `sources` under `[dial]` its passengers get, as in `"FR"`.
    #[schemars(with = "Option<String>", title = "two letters", extend("x-default" = "none: all `sources`"))]
    country: Option<Country>,
    /// Its TCP flows at once. The next one ends the idlest flow of its heaviest passenger.
    #[serde(default = "default_max_flows", deserialize_with = "least::one")]
    max_flows: usize,
    /// Its UDP flows at once, in addition.
    #[serde(default = "default_max_flows")]
    max_datagram_flows: usize,
    /// Its flows of ICMP echo and other protocols, in addition.
    #[serde(default = "default_max_ip_flows")]
    max_ip_flows: usize,
    /// Its new flows of each kind, on average; bursts of twice as many. One passenger has an eighth
    /// of it.
    #[serde(default = "default_flows_per_second", deserialize_with = "least::one")]
    flows_per_second: u32,
}

/// Leases that the ground can have. The others are refused with a reason.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
#[expect(dead_code, reason = "it is only described")]
enum GroundLease {
    Learned,
    Static,
    None,
}

/// One aircraft.
#[derive(Debug, Clone, PartialEq)]
pub struct AircraftConfig {
    /// Name in the log.
    pub name: String,
    /// Public key of the aircraft.
    pub key: PublicKey,
    /// Sending rate to the aircraft; a ceiling if a beam is shared. HTTP/3 finds its own rate.
    pub rate: BitRate,
    /// Maximum size of an IP packet on the path, bytes; default: `mtu` under `[link]`.
    pub mtu: Option<usize>,
    /// Memory of the session; default: `memory` under `[link]`.
    pub memory: Option<Memory>,
    /// Source of the sending rate, up to `rate`. A beam divides a static rate.
    pub lease: LeaseSource,
    /// Highest class of the aircraft's flows. Flows that request a higher class get this class.
    pub highest_class: Class,
    /// Class settings for the traffic sent to this aircraft.
    pub classes: Classes,
    /// Share of the beam.
    pub share: Share,
    /// Country of its passengers' source addresses.
    pub country: Option<Country>,
    /// Concurrent TCP flows of the aircraft.
    pub max_flows: usize,
    /// Concurrent UDP flows of the aircraft, counted separately.
    pub max_datagram_flows: usize,
    /// Concurrent flows of ICMP echo and other protocols, counted separately.
    pub max_ip_flows: usize,
    /// New flows of each kind per second, on average; bursts of twice as many are allowed.
    pub flows_per_second: u32,
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

impl AircraftTable {
    /// Checks the aircraft of a gateway with `link`, `beam` and `classes`.
    pub fn check(
        self,
        link: &GroundLink,
        beam: Option<&Beam>,
        classes: &Classes,
        source: &Source<'_>,
    ) -> Result<AircraftConfig, ConfigError> {
        let is_shared = beam.is_some_and(|beam| beam.forward.is_some());
        let lease = self.lease(link.listen.is_some(), is_shared, source)?;
        if link.aerotcp_listen.is_some() && self.rate == rate::not_set() {
            let why = format!("AeroTCP does not learn its rate, and {:?} has none", *self.name);
            let help = "write rate = \"1.89 Mbit/s\", say, or leave aerotcp-listen out";
            return Err(self.public_key.error(source, why, help));
        }
        self.classes.check(source)?;
        Ok(AircraftConfig {
            share: self.share(beam, self.rate, source)?,
            name: self.name.into_inner(),
            key: *self.public_key,
            rate: self.rate,
            country: self.country,
            mtu: self.mtu,
            memory: self.memory,
            lease,
            highest_class: self.highest_class.0,
            classes: self.classes.or(classes),
            max_flows: self.max_flows,
            max_datagram_flows: self.max_datagram_flows,
            max_ip_flows: self.max_ip_flows,
            flows_per_second: self.flows_per_second,
        })
    }

    /// Source of the sending rate. `is_radio` is `true` if the radio transport is served,
    /// `is_shared` if the aircraft share a forward rate.
    fn lease(
        &self,
        is_radio: bool,
        is_shared: bool,
        source: &Source<'_>,
    ) -> Result<LeaseSource, ConfigError> {
        let wrong = |why: String, help| Err(self.public_key.error(source, why, help));
        match self.lease {
            Some(LeaseSource::Granted | LeaseSource::Modem) => wrong(
                format!("the lease of {:?} is not one of the ground's", *self.name),
                "write lease = \"learned\", \"static\" or \"none\", or leave it out",
            ),
            Some(LeaseSource::Learned) if is_shared => wrong(
                format!("{:?} has lease = \"learned\", and the beam has the rate", *self.name),
                "leave lease out, or share no forward rate under [beam]",
            ),
            written if !is_radio => Ok(written.unwrap_or(LeaseSource::Learned)),
            None if is_shared => Ok(LeaseSource::Static),
            written => rate::source_of(written, self.rate, source),
        }
    }
}
