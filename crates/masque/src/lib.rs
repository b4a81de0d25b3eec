//! HTTP/3 CONNECT and CONNECT-UDP between gateways and for standard clients, on quinn and h3:
//! client and server.
//!
//! Each TCP connection is one CONNECT request (RFC 9114 §4.4) of one QUIC connection between two
//! gateways, and each flow of datagrams one CONNECT-UDP request (RFC 9298), under ordinary
//! congestion control. It runs on the open Internet between ground gateways, and on the radio as
//! the baseline that Bentpipe's own transport is measured against. Clients that know nothing of us
//! may use a server too.
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
//! # On the wire
//!
//! QUIC v1 with TLS 1.3 and ALPN `h3`; no 0-RTT, no session tickets, no SNI. The server's
//! certificate is made anew at each start and means nothing: a client accepts any that signs its
//! handshake. Who both ends are is shown by the first request of the connection.
//!
//! ## Proving the keys
//!
//! Both ends have an X25519 key pair, the same that the radio transport uses, and know each other's
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
//! (base64 with padding). The client sends nothing else before it has verified that. The exporter
//! ties the proofs to this TLS session, so that a man in the middle, who has another session with
//! each side, can relay neither. A server to which the key is unknown or the proof wrong closes the
//! connection with H3_REQUEST_REJECTED and says no more; other requests on an unproven connection
//! are answered 407, a few times, and a client that proves nothing is closed after 30 s. What
//! unproven clients may hold of the server's memory is bounded in number, streams and bytes.
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
//! `:method` CONNECT, `:authority` host and port, and two fields of ours that a server may ignore:
//! `bentpipe-class` (a decimal number, 0 the most urgent, 3 the default) and `bentpipe-passenger`
//! (the client's own number for who this is). The request's HEADERS and its first DATA leave
//! together, without awaiting the response. A client may add `bentpipe-claim`, a class and a name with a
//! space between: the class it wants if the authority's address is the name's. A server that finds so
//! answers with the class in `bentpipe-class`. A refusal is a status with `proxy-status` (RFC 9209);
//! see [`Refusal`] for its names and for the codes that reset an open flow. FIN ends a direction.
//!
//! ## Datagrams
//!
//! CONNECT-UDP as RFC 9298 has it: an extended CONNECT (RFC 9220) with `:protocol` `connect-udp`,
//! `capsule-protocol: ?1` and the default template, `:path`
//! `/.well-known/masque/udp/{target_host}/{target_port}/`. The client sends it once it has the
//! server's SETTINGS_ENABLE_CONNECT_PROTOCOL, and datagrams at once thereafter. HTTP Datagrams
//! travel in QUIC DATAGRAM frames where both sides have SETTINGS_H3_DATAGRAM (RFC 9297), else in
//! DATAGRAM capsules on the stream; each side takes both. One that is larger than the path is
//! refused where it would be sent, never moved to a capsule, so that path MTU discovery works
//! through the flow. FIN ends a flow in order. Three more fields of ours, between gateways only:
//! `bentpipe-protocol` (the IP protocol number where it is not 17), `bentpipe-source` (the sender's
//! own port) and, for what has no ports, port 0 in the path. A malformed path is answered 400,
//! another `:protocol` 501.
//!
//! ## Standard clients
//!
//! A server with a [`Certificate`] serves the clients in its [`ServerConfig::logins`] too. They show
//! a token with each request, as `proxy-authorization: Basic` (RFC 7617, their name and the token)
//! or `Bearer` (RFC 6750); others are answered 407 as above. `bentpipe-protocol` is answered 403
//! there.
//!
//! # What it does not do
//!
//! Flows end with the connection that carries them: HTTP/3 cannot resume requests. Within one
//! connection quinn serves all flows in turn, whatever their class.

#![forbid(unsafe_code)]

mod auth;
mod capsule;
mod claim;
mod client;
mod datagrams;
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
mod template;
mod tls;
mod unproven;
mod wire;

#[cfg(test)]
mod udp_tests;
#[cfg(test)]
mod unproven_tests;

pub use auth::{PublicKey, SecretKey, public_key};
pub use claim::Claim;
pub use client::{Client, ClientConfig, ConnectError};
pub use datagrams::{DatagramError, DatagramFlow};
pub use flow::{Flow, FlowReset};
pub use incoming::{Carries, Incoming};
pub use login::{Login, MAX_CONNECTIONS, token_hash};
pub use refusal::Refusal;
pub use server::{Server, ServerConfig};
pub use settings::{Congestion, SettingsError, Transport};
pub use socket::Socket;
pub use tls::{Certificate, TlsError};

/// Path on which a client proves its key.
const SESSION_PATH: &str = "/bentpipe/session";

const CLASS_HEADER: &str = "bentpipe-class";
/// In a request: a class, a space, and the name that would give it.
const CLAIM_HEADER: &str = "bentpipe-claim";

const PASSENGER_HEADER: &str = "bentpipe-passenger";
const PROTOCOL_HEADER: &str = "bentpipe-protocol";
const SOURCE_HEADER: &str = "bentpipe-source";

/// RFC 9297 §3.4; its value is a structured boolean.
const CAPSULE_HEADER: &str = "capsule-protocol";

/// The value of `:protocol` (RFC 9298 §3.4).
const CONNECT_UDP: &str = "connect-udp";

/// RFC 9110 §11.7.3.
const INFO_HEADER: &str = "proxy-authentication-info";

/// The class of a CONNECT that names none: best effort.
const DEFAULT_CLASS: u8 = 3;

/// A client or server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The socket cannot be used.
    #[error("starting QUIC on the UDP socket: {0}")]
    Socket(#[from] std::io::Error),
}
