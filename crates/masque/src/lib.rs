//! Client and server of HTTP/3 CONNECT and CONNECT-UDP, on quinn and h3, between gateways and for
//! standard clients.
//!
//! Two gateways share one QUIC connection with ordinary congestion control. Each TCP connection is one
//! CONNECT request on it (RFC 9114 §4.4), and each datagram flow one CONNECT-UDP request (RFC 9298).
//! The transport runs on the Internet between ground gateways. On the radio it is the baseline for
//! Bentpipe's own transport. Standard clients can use a server too.
//!
//! ```no_run
//! # async fn example(secret: bentpipe_masque::SecretKey, server_key: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
//! use bentpipe_masque::{Client, ClientConfig, Socket};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let config = ClientConfig::new("192.0.2.1:443".parse()?, server_key, secret);
//! let client = Client::connect(config, Socket::bind("0.0.0.0:0".parse()?)?)?;
//! let mut flow = client.open("example.com:80", 2, 1, "GET / HTTP/1.0\r\n\r\n".into());
//! flow.shutdown().await?;
//! let mut page = Vec::new();
//! flow.read_to_end(&mut page).await?;
//! # Ok(()) }
//! ```
//!
//! # Modules
//!
//! | Module | Content |
//! |---|---|
//! | `client`, `server` | the two sides of a connection |
//! | `connection_watch` | the fate of a connection |
//! | `flow`, `datagrams` | byte streams and datagram flows |
//! | `incoming` | a request that the server's owner accepts or refuses |
//! | `auth`, `login` | proofs of keys, and tokens of standard clients |
//! | `trust` | a server that is a gateway, or any MASQUE proxy |
//! | `unproven`, `gateways`, `settings` | limits |
//! | `refusal`, `denials` | reasons of refusals and resets, and refusals of the client itself |
//! | `quic`, `stream`, `wire`, `capsule`, `template` | HTTP/3 on quinn, and encodings |
//! | `tls`, `socket` | TLS and the UDP socket |
//!
//! # Wire format
//!
//! QUIC v1 with TLS 1.3 and ALPN `h3`. There is no 0-RTT, no session ticket and no SNI. Between
//! gateways the server's certificate is generated at each start and means nothing: a client accepts
//! any certificate that signs its handshake. The first request of the connection identifies both
//! peers.
//!
//! ## Proof of the keys
//!
//! Both peers have an X25519 key pair, the same as for the radio transport, and know each other's
//! public key. With
//!
//! - `S` = X25519(own secret, peer's public); an all-zero `S` is refused (a low-order point),
//! - `E` = the 32-byte TLS exporter (RFC 8446 §7.5) of this connection with the label
//!   `EXPORTER-bentpipe-masque` and an empty context,
//! - `K` = BLAKE2s-256(`bentpipe masque authentication v1` ‖ `S` ‖ client's public key ‖ server's
//!   public key),
//! - `proof(side)` = BLAKE2s in its keyed mode (RFC 7693) with key `K`, 32 bytes, of `side` ‖ `E`,
//!   where `side` is the ASCII word `client` or `server`,
//!
//! the client's first request is a GET of `https://bentpipe.invalid/bentpipe/session` with
//!
//! ```text
//! proxy-authorization: Bentpipe key="<base64 of its public key>", proof="<base64 of proof(client)>"
//! ```
//!
//! and the server answers it with 200 and
//!
//! ```text
//! proxy-authentication-info: Bentpipe proof="<base64 of proof(server)>"
//! ```
//!
//! (base64 with padding). The client sends nothing else before it has verified the server's proof. The
//! exporter binds the proofs to this TLS session. A man in the middle has another session with each
//! side, so it can relay neither proof.
//!
//! If the server does not know the key, or the proof is wrong, it closes the connection with
//! H3_REQUEST_REJECTED and gives no reason. Other requests on an unproven connection are answered 407,
//! a few times. A client without a proof is closed after 30 s, or after 10 s while many try. The
//! number, streams and bytes of unproven connections are bounded. At the limit, a new connection ends
//! the oldest one of the network with most.
//!
//! Test vector: client secret 32 × `01`, server secret 32 × `02`, exporter 32 × `09`:
//!
//! ```text
//! proxy-authorization: Bentpipe key="pOCSkrZRwni5dyxWn1+puxPZBrRqtoyd+dwrRAn4ogk=", proof="ogV1xrzAw1wj6qRU+Y7A6lrdaVMxXAiuovh+YE2HspI="
//! proxy-authentication-info: Bentpipe proof="GwjU8lO25yeSAMXyfZMRDLxMeVCawrm/taeWzVLQ0k4="
//! ```
//!
//! ## Flows
//!
//! A flow is a CONNECT with host and port in `:authority`. The HEADERS and the first DATA are sent
//! together, without waiting for the response. FIN ends a direction. A refusal is a status with
//! `proxy-status` (RFC 9209); see [`ResetCode`](bentpipe_flow::ResetCode) for its names, and for the codes that reset an open flow.
//! These fields are Bentpipe's own, and a server may ignore them:
//!
//! | Field | Value |
//! |---|---|
//! | `bentpipe-class` | class in decimal: 0 is the most urgent, 3 the default |
//! | `bentpipe-passenger` | the client's number for the passenger |
//! | `bentpipe-aircraft` | from a hub that forwards a flow: the public key of the aircraft in base64, a space, and the counter of its session; refused with 403 from others |
//! | `bentpipe-claim` | a class, a space and a name: the class that the client wants if the address in `:authority` belongs to the name; the server confirms it in `bentpipe-class` |
//!
//! ## Datagrams
//!
//! A datagram flow is a CONNECT-UDP (RFC 9298): an extended CONNECT (RFC 9220) with `:protocol`
//! `connect-udp`, `capsule-protocol: ?1` and the default template, `:path`
//! `/.well-known/masque/udp/{target_host}/{target_port}/`. The client sends it once it has the server's
//! SETTINGS_ENABLE_CONNECT_PROTOCOL, and datagrams directly after it. A malformed path is answered 400,
//! another `:protocol` 501. FIN ends a flow orderly.
//!
//! HTTP Datagrams travel in QUIC DATAGRAM frames if both peers have SETTINGS_H3_DATAGRAM (RFC 9297),
//! otherwise in DATAGRAM capsules on the stream. Each peer accepts both. A datagram that exceeds the
//! path MTU is refused at the sender and not sent as a capsule. So path MTU discovery works through
//! the flow. Only a hub and its egress use capsules for such datagrams: the aircraft's packets have to fit
//! the radio, and neither end can tell their sender about the path between the two.
//!
//! Between gateways two more fields are used: `bentpipe-protocol` (the IP protocol number if it is not
//! 17) and `bentpipe-source` (the sender's port). Protocols without ports have port 0 in the path.
//!
//! ## Standard clients
//!
//! A server with a [`Certificate`] also serves the clients in [`ServerConfig::logins`]. They show a
//! token with each request, as `proxy-authorization: Basic` (RFC 7617, with name and token) or `Bearer`
//! (RFC 6750). Requests without a right token are answered 407 as above. `bentpipe-protocol` is
//! answered 403.
//!
//! ## Other proxies
//!
//! The server need not be a gateway ([`Trust::Certificate`]). Then a client verifies the server's
//! certificate, sends SNI, and shows its `proxy-authorization` with each request. It sends no field of
//! Bentpipe's own, and no flow of another protocol than TCP and UDP.
//!
//! # Limitations
//!
//! Flows end with the connection that carries them, because HTTP/3 cannot resume requests. On one
//! connection quinn serves all flows in turn, whatever their class.

#![forbid(unsafe_code)]

mod auth;
mod behalf;
mod capsule;
mod claim;
mod client;
mod connection_watch;
mod datagrams;
mod denials;
mod flow;
mod gateways;
mod incoming;
mod login;
mod quic;
mod refusal;
mod server;
mod settings;
mod socket;
mod stream;
mod task;
mod template;
mod tls;
mod trust;
mod unproven;
mod wire;

#[cfg(test)]
mod udp_tests;
#[cfg(test)]
mod unproven_tests;

pub use auth::{PublicKey, SecretKey, public_key};
pub use behalf::Behalf;
pub use client::{Client, ClientConfig, ConnectError};
pub use connection_watch::ConnectionWatch;
pub use datagrams::{DatagramError, DatagramFlow};
pub use flow::{Flow, FlowReset};
pub use incoming::{Incoming, Payload};
pub use login::{Login, MAX_CONNECTIONS, RefusedRequests, token_hash};
pub use refusal::{from_h3_code, h3_code};
pub use server::{Server, ServerConfig};
pub use settings::{Congestion, SettingsError, Transport};
pub use socket::Socket;
pub use tls::{Certificate, TlsError};
pub use trust::{InvalidProxy, Proxy, Trust};
pub use unproven::{MAX_UNPROVEN, RefusedConnections};

/// Path of the request that proves a client's key.
const SESSION_PATH: &str = "/bentpipe/session";

const CLASS_HEADER: &str = "bentpipe-class";
/// Class claim in a request: a class, a space and a name.
const CLAIM_HEADER: &str = "bentpipe-claim";

const PASSENGER_HEADER: &str = "bentpipe-passenger";
/// Aircraft for which a hub forwards a flow: its public key in base64, a space, and the counter of its
/// session.
const AIRCRAFT_HEADER: &str = "bentpipe-aircraft";
const PROTOCOL_HEADER: &str = "bentpipe-protocol";
const SOURCE_HEADER: &str = "bentpipe-source";

/// The Capsule-Protocol field (RFC 9297 §3.4), a structured boolean.
const CAPSULE_HEADER: &str = "capsule-protocol";

/// Value of `:protocol` (RFC 9298 §3.4).
const CONNECT_UDP: &str = "connect-udp";

/// The Proxy-Authentication-Info field (RFC 9110 §11.7.3).
const INFO_HEADER: &str = "proxy-authentication-info";

/// Class of a CONNECT without `bentpipe-class`: best effort.
const DEFAULT_CLASS: u8 = 3;

/// Reason why a client or server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The socket cannot be used.
    #[error("starting QUIC on the UDP socket: {0}")]
    Socket(#[from] std::io::Error),
}
