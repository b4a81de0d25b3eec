//! `[link]` of `ground.toml`: the paths to the aircraft.

use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_link::SecretKey;
use bentpipe_units::{ByteSize, Span};
use schemars::JsonSchema;
use serde::Deserialize;

use super::radio::{default_mtu, enabled};
use super::{ConfigError, Memory, Placed, Source, least, rate, seconds};
use bentpipe_transport::Transport;

/// Link to the aircraft. At least one of the three listening addresses is needed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GroundLinkTable {
    /// This gateway's private key, as written by `bentpipe keys`. A file of the same name in
    /// `$CREDENTIALS_DIRECTORY` has precedence.
    #[schemars(title = "path")]
    private_key_file: Placed<PathBuf>,
    /// UDP address of the radio transport.
    #[schemars(title = "address")]
    listen: Option<SocketAddr>,
    /// UDP address of HTTP/3.
    #[schemars(title = "address")]
    masque_listen: Option<SocketAddr>,
    /// UDP address of AeroTCP.
    #[schemars(title = "address")]
    aerotcp_listen: Option<SocketAddr>,
    /// Largest IP packet for which the paths are provisioned, as in `air.toml`. Not for HTTP/3.
    #[serde(default = "default_mtu", deserialize_with = "least::mtu")]
    #[schemars(title = "bytes")]
    mtu: usize,
    /// Marks packets on the radio with the DSCP of their class. Only with `listen`.
    #[serde(default = "enabled")]
    dscp: bool,
    /// Protects sent data with repair packets. Without them losses are retransmitted, a round trip
    /// later: for comparisons. Only with `listen`.
    #[serde(default = "enabled")]
    coding: bool,
    /// Padding that a session without a typed rate may send to measure the path before anybody has
    /// data; `"0 B"` where bytes cost money. Only with `listen`.
    #[serde(default = "rate::learn_bytes")]
    #[schemars(extend("default" = "24 kB"))]
    learn_bytes: ByteSize,
    /// Delivers passengers' QUIC in the order in which it was sent, so that recovered packets do
    /// not look lost: docs/decisions/0006-quic-in-order.md. Only with `listen`.
    #[serde(default = "enabled")]
    quic_in_order: bool,
    /// Memory of each aircraft's session. Only with `listen`.
    #[serde(default)]
    memory: Memory,
    /// Memory of all sessions together. A session may hold a third as much as is free: a lone
    /// aircraft a quarter of the memory, each of *n* busy ones 1/(*n* + 3). In addition, each open
    /// flow may hold its share of `receive` (29 kB with the defaults) in each direction. Beyond its
    /// share a session is lent no more: writers wait, and the gateway counts and logs it
    /// (docs/status.md#counters). When seven eighths are used, sessions give back what only repair
    /// packets need; then sessions that are silent for 30 s end, the longest silent one first. If
    /// the sessions are divided over processor cores, the order holds among those of each core.
    /// Only with `listen`.
    #[serde(default, deserialize_with = "least::total_memory")]
    #[schemars(
        title = "size, at least 16 MiB",
        extend("x-default" = "half of the machine's memory")
    )]
    total_memory: Option<ByteSize>,
    /// End of the session of a silent aircraft: its flows end, its keys are erased, its memory is
    /// free. Use the longest outage that flows should survive. Only with `listen`.
    #[serde(default = "session_lifetime", deserialize_with = "least::session_lifetime")]
    #[schemars(title = "time, at least 1 min")]
    session_lifetime: Span,
    /// Last address of each aircraft, kept over restarts, so that a returning fleet has priority
    /// over strangers. If it cannot be written, the log says so. Only with `listen`.
    #[schemars(title = "path", extend("x-default" = "`private-key-file` ending in `.state`, in `$STATE_DIRECTORY` if that is set"))]
    state_file: Option<PathBuf>,
}

/// Path to the aircraft.
#[derive(Debug, Clone)]
pub struct GroundLink {
    /// Private key of this gateway.
    pub private_key: SecretKey,
    /// Address of the radio transport; absent if it is not served.
    pub listen: Option<SocketAddr>,
    /// Address of HTTP/3 CONNECT; absent if it is not served.
    pub masque_listen: Option<SocketAddr>,
    /// Address of AeroTCP; absent if it is not served.
    pub aerotcp_listen: Option<SocketAddr>,
    /// Maximum size of an IP packet on the paths, bytes.
    pub mtu: usize,
    /// `true` if packets on the radio carry their class as DSCP.
    pub dscp: bool,
    /// `true` if repair packets (FEC) protect the traffic sent.
    pub coding: bool,
    /// Padding that a session may send to learn its rate before anybody has data.
    pub learn_bytes: ByteSize,
    /// `true` if received QUIC datagrams are restored to their sending order.
    pub quic_in_order: bool,
    /// Memory of each aircraft's session.
    pub memory: Memory,
    /// Memory of all sessions; default: half of the machine's memory.
    pub total_memory: Option<ByteSize>,
    /// Silence after which a session ends.
    pub session_lifetime: Span,
    /// File of the aircraft's last addresses.
    pub state_file: PathBuf,
}

const fn session_lifetime() -> Span {
    seconds(900)
}

impl GroundLinkTable {
    pub fn check(self, source: &Source<'_>) -> Result<GroundLink, ConfigError> {
        let link = GroundLink {
            private_key: source.private_key(&self.private_key_file)?,
            listen: self.listen,
            masque_listen: self.masque_listen,
            aerotcp_listen: self.aerotcp_listen,
            mtu: self.mtu,
            dscp: self.dscp,
            coding: self.coding,
            learn_bytes: self.learn_bytes,
            quic_in_order: self.quic_in_order,
            memory: self.memory,
            total_memory: self.total_memory,
            session_lifetime: self.session_lifetime,
            state_file: source.state_file(self.state_file, &self.private_key_file),
        };
        if link.served().is_empty() {
            let why = "nothing to listen on";
            let help = "write listen = \"[::]:4500\", masque-listen = \"[::]:4433\" or \
                        aerotcp-listen = \"[::]:4501\", or several, under [link]";
            return Err(ConfigError::at(source, None, why, help));
        }
        let addresses = link.listens().map(|(transport, at)| (transport.listen_key(), at));
        source.listen_apart("link", &addresses)?;
        Ok(link)
    }
}

impl GroundLink {
    /// Address of each transport.
    pub fn listens(&self) -> [(Transport, Option<SocketAddr>); 3] {
        [
            (Transport::Link, self.listen),
            (Transport::Masque, self.masque_listen),
            (Transport::AeroTcp, self.aerotcp_listen),
        ]
    }

    /// Transports with a configured address.
    pub(super) fn served(&self) -> Vec<Transport> {
        self.listens()
            .into_iter()
            .filter(|(_, at)| at.is_some())
            .map(|(transport, _)| transport)
            .collect()
    }
}
