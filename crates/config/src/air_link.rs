//! `[link]` of `air.toml`: the path to the ground gateway.

use std::path::PathBuf;

use bentpipe_flow::Target;
use bentpipe_link::{PublicKey, SecretKey};
use bentpipe_units::{BitRate, ByteSize};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::modem::{ModemConfig, ModemTable};
use super::placed::placed_text;
use super::radio::{default_mtu, enabled};
use super::rate::{self, LeaseSource};
use super::{ConfigError, Memory, Placed, Source, least};
use bentpipe_transport::Transport;

/// Link to the ground.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AirLinkTable {
    /// Transport of the flows; `--transport` overrides it.
    #[serde(default)]
    #[schemars(schema_with = "transport")]
    pub transport: Transport,
    /// This gateway's private key, as written by `bentpipe keys`. A file of the same name in
    /// `$CREDENTIALS_DIRECTORY` has precedence.
    #[schemars(title = "path")]
    private_key_file: Placed<PathBuf>,
    /// Address of the ground for this transport; each transport has a port of its own.
    #[serde(deserialize_with = "least::somewhere")]
    #[schemars(with = "String", title = "host and port")]
    peer: Target,
    /// Public key of the ground.
    #[serde(deserialize_with = "placed_text")]
    #[schemars(with = "String", title = "key")]
    peer_public_key: Placed<PublicKey>,
    /// Send rate towards the ground, or its maximum. Without it the rate is learned: docs/rate.md.
    /// AeroTCP needs it, HTTP/3 does not use it.
    #[serde(default = "rate::not_set", deserialize_with = "least::rate")]
    #[schemars(title = "rate, at least 8 kbit/s", extend("x-default" = "none"))]
    rate: BitRate,
    /// Largest IP packet for which the path is provisioned, IP header included, 1280 to 65535. The
    /// path MTU up to that is discovered. Not with `masque`.
    #[serde(default = "default_mtu", deserialize_with = "least::mtu")]
    #[schemars(title = "bytes")]
    mtu: usize,
    /// Marks packets on the radio with the DSCP of their class. Only with `link`.
    #[serde(default = "enabled")]
    dscp: bool,
    /// Protects sent data with repair packets. Without them losses are retransmitted, a round trip
    /// later: for comparisons. Only with `link`.
    #[serde(default = "enabled")]
    coding: bool,
    /// Delivers passengers' QUIC in the order in which it was sent, so that recovered packets do
    /// not look lost: docs/decisions/0006-quic-in-order.md. Only with `link`.
    #[serde(default = "enabled")]
    quic_in_order: bool,
    /// Memory of the session. Only with `link`.
    #[serde(default)]
    memory: Memory,
    /// Source of the send rate: measurements of the path, `rate` itself, the ground's grants, the
    /// modem, or CUBIC, always up to `rate`. All but `"learned"` need `rate`. Only with `link`.
    #[schemars(extend("x-default" = "`\"static\"` with `rate`, otherwise `\"learned\"`"))]
    lease: Option<LeaseSource>,
    /// Padding that a session without a typed rate may send to measure the path before anybody has
    /// data; `"0 B"` where bytes cost money. Only with `link`.
    #[serde(default = "rate::learn_bytes")]
    #[schemars(extend("default" = "24 kB"))]
    learn_bytes: ByteSize,
    /// Handshake counter, kept over restarts, and next to it what was learned of the path. The file
    /// and its folder must be writable. A running gateway holds a file ending in `.lock` next to
    /// it, so a second one does not start on it. Not with `masque`.
    #[schemars(title = "path", extend("x-default" = "`private-key-file` ending in `.state`, in `$STATE_DIRECTORY` if that is set"))]
    state_file: Option<PathBuf>,
    /// TCP connections outlive an orderly restart of either gateway: docs/operations.md. Always on
    /// with `[[hub]]`. Not for a MASQUE server of another maker.
    #[serde(default)]
    keep_flows: bool,
    /// Source of the radio's current rate: docs/modem.md. Only with `link`.
    modem: Option<ModemTable>,
}

/// Path to the ground gateway.
#[derive(Debug, Clone)]
pub struct AirLink {
    /// Transport of the flows.
    pub transport: Transport,
    /// Private key of this gateway.
    pub private_key: SecretKey,
    /// Address of the ground gateway.
    pub peer: Target,
    /// Public key of the ground gateway.
    pub peer_public_key: PublicKey,
    /// Maximum sending rate of this gateway.
    pub rate: BitRate,
    /// Maximum size of an IP packet on the path, bytes.
    pub mtu: usize,
    /// `true` if packets on the radio carry their class as DSCP.
    pub dscp: bool,
    /// `true` if repair packets (FEC) protect the traffic sent.
    pub coding: bool,
    /// `true` if received QUIC datagrams are restored to their sending order.
    pub quic_in_order: bool,
    /// Memory of the session.
    pub memory: Memory,
    /// Source of the sending rate, up to `rate`. HTTP/3 finds its own.
    pub lease: LeaseSource,
    /// Padding that a session may send to learn the rate before anybody has data.
    pub learn_bytes: ByteSize,
    /// File of the handshake counter.
    pub state_file: PathBuf,
    /// `true` if TCP flows outlive an orderly restart of either gateway.
    pub keep_flows: bool,
    /// Source of the radio's current rate, if configured.
    pub modem: Option<ModemConfig>,
}

impl AirLinkTable {
    /// Checks the table for a gateway that uses `transport`.
    pub fn check(self, source: &Source<'_>, transport: Transport) -> Result<AirLink, ConfigError> {
        let private_key = source.private_key(&self.private_key_file)?;
        if *self.peer_public_key == private_key.public() {
            let why = "this is the aircraft's own public key";
            let help = "write the ground's; `bentpipe check ground.toml` on the ground shows it";
            return Err(self.peer_public_key.error(source, why, help));
        }
        let modem = self.modem.map(|modem| modem.check(source)).transpose()?;
        let lease = match transport {
            Transport::Masque => self.lease.unwrap_or(LeaseSource::Learned),
            _ => rate::source_of(self.lease, self.rate, source)?,
        };
        if transport == Transport::AeroTcp && lease == LeaseSource::Learned {
            let why = "AeroTCP does not learn its rate, and there is none";
            let help = "write rate = \"1.89 Mbit/s\", say, or use transport = \"link\"";
            return Err(ConfigError::at(source, None, why, help));
        }
        if lease == LeaseSource::Modem && modem.is_none() {
            let why = "lease = \"modem\", but nothing says where the modem is";
            let help = "write a table [link.modem], see docs/modem.md";
            return Err(ConfigError::at(source, None, why, help));
        }
        Ok(AirLink {
            transport,
            private_key,
            peer: self.peer,
            peer_public_key: *self.peer_public_key,
            rate: self.rate,
            mtu: self.mtu,
            dscp: self.dscp,
            coding: self.coding,
            quic_in_order: self.quic_in_order,
            memory: self.memory,
            lease,
            learn_bytes: self.learn_bytes,
            state_file: source.state_file(self.state_file, &self.private_key_file),
            keep_flows: self.keep_flows,
            modem,
        })
    }
}

fn transport(_: &mut SchemaGenerator) -> Schema {
    let all = [Transport::Link, Transport::Masque, Transport::AeroTcp];
    json_schema!({
        "type": "string",
        "enum": all.map(Transport::name),
        "default": Transport::default().name(),
    })
}
