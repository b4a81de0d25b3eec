//! The Bentpipe radio transport between an air gateway and a ground gateway (the *hub*).
//!
//! It is encrypted, paced at a lease, reliable by symbol and delivered by flow. The specification is
//! `docs/protocol.md`; the vectors in `docs/vectors` are recomputed by tests.
//!
//! - A *session* lives from a handshake to a CLOSE, over key changes, address changes and outages.
//! - A *flow* is a byte stream, or a series of datagrams, to one [`Target`](bentpipe_flow::Target). Only the air opens flows.
//! - A packet's contents are chosen when the pacer releases it: class, then passenger, then flow.
//! - Repair packets protect the ends of bursts and datagrams; lost bulk is retransmitted.
//!
//! The core is sans-IO: [`AirCore`] and [`HubCore`] take datagrams, the time and a random seed, and
//! return datagrams and events. [`io`] is the async edge, which moves datagrams between a core and a
//! socket. It is the default feature `io`; without it the crate needs no tokio, libc or nix.
//!
//! # Example
//!
//! Two ends in memory, without loss or delay:
//!
//! ```
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! use bentpipe_link::{
//!     AirConfig, AirCore, Aircraft, Class, Core, FlowEvent, HubConfig, HubCore, Read, SecretKey,
//!     Settings,
//! };
//! use bentpipe_units::BitRate;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (air_key, hub_key) = (SecretKey::from_bytes([1; 32]), SecretKey::from_bytes([2; 32]));
//! let air_address: SocketAddr = "192.0.2.1:40000".parse()?;
//! let hub_address: SocketAddr = "198.51.100.1:4500".parse()?;
//! let settings = Settings { rate: BitRate::from_bps(2_000_000), ..Settings::default() };
//!
//! let aircraft = Aircraft {
//!     key: air_key.public(),
//!     settings: settings.clone(),
//!     highest_class: Class::BestEffort,
//! };
//! let config = AirConfig {
//!     secret: air_key,
//!     hub: hub_key.public(),
//!     address: hub_address,
//!     settings,
//!     first_counter: 1,
//! };
//! // Outside simulations, seeds must be unpredictable.
//! let mut air = AirCore::new(config, [3; 32]);
//! let mut hub = HubCore::new(HubConfig { secret: hub_key, aircraft: vec![aircraft] }, [4; 32]);
//!
//! let (mut is_open, mut received) = (false, Vec::new());
//! let mut datagram = Vec::new();
//! for now in (0..1000).map(Duration::from_millis) {
//!     air.handle_timeout(now);
//!     hub.handle_timeout(now);
//!     while air.transmit(now, &mut datagram).is_some() {
//!         hub.handle_datagram(&std::mem::take(&mut datagram), air_address, false, now);
//!     }
//!     while hub.transmit(now, &mut datagram).is_some() {
//!         air.handle_datagram(&std::mem::take(&mut datagram), hub_address, false, now);
//!     }
//!     if !is_open && air.current().is_some() {
//!         air.open(&"example.com:80".parse()?, Class::BestEffort, 1, b"hello", now)?;
//!         is_open = true;
//!     }
//!     while let Some((session, event)) = hub.next_event() {
//!         let (FlowEvent::Opened { flow, .. } | FlowEvent::Wake(flow)) = event else { continue };
//!         let mut buffer = [0; 64];
//!         if let Some(session) = hub.session(session)
//!             && let Read::Taken(bytes) = session.read(flow, &mut buffer, now)
//!         {
//!             received.extend_from_slice(&buffer[..bytes]);
//!         }
//!     }
//! }
//! assert_eq!(received, b"hello");
//! # Ok(()) }
//! ```
//!
//! # Modules
//!
//! From the wire up; each uses only those above it.
//!
//! | module | contents |
//! |---|---|
//! | `wire` | byte layouts, parsed once and strictly |
//! | `crypto`, [`secure`] | handshake, packet keys, replay window; [`secure`] offers them to other transports |
//! | `redundancy` | the number of repairs that the measured loss requires |
//! | `lane` | numbered symbols: what is unreported, what repairs protect, what has arrived |
//! | `congestion` | CUBIC with HyStart++ and Careful Resume, for paths without a lease |
//! | `lease` | the rate that may be used, grants from a shared beam, the circuit breaker |
//! | `flow` | streams with credit, datagrams, and the contents of the next symbol |
//! | `session` | packets in, packets out |
//! | `endpoint` | the air's end and the hub's end |
//! | [`io`] | sockets, and flows as `AsyncRead + AsyncWrite` |
//!
//! # Bounds
//!
//! Every queue has a bound. [`Settings`] names the bounds of a session with their cost:
//!
//! | setting | default | bounds |
//! |---|---|---|
//! | `receive_memory` | 512 MiB | received bytes that wait for their reader |
//! | `send_memory` | 256 MiB | unreported symbols, and bytes that wait to be sent |
//! | `code_memory` | 16 MiB | symbols kept for repairs |
//! | `datagram_memory` | 20 MiB | received datagrams that wait for their reader |
//! | `max_flows` | 4,096 | open flows |

#![forbid(unsafe_code)]

mod congestion;
mod crypto;
mod curve;
mod endpoint;
mod flow;
#[cfg(feature = "io")]
pub mod io;
mod key;
mod lane;
mod lease;
mod memory;
mod pacer;
mod path_settings;
mod quota;
mod redundancy;
mod rtt;
pub mod secure;
mod session;
mod settings;
mod settings_error;
mod spare;
mod status;
#[cfg(test)]
mod vectors;
mod wire;

pub use bentpipe_schedule::{
    Activity, Class, ClassActivity, ClassCounters, ClassPaths, ClassSettings, DelayHistogram, Dscp,
    Limits, Metered, PassengerActivity, PerClass, SnapshotLimits, Spread,
};
pub use endpoint::{
    AirConfig, AirCore, Aircraft, Core, Filter, Flows, FlowsRefused, HubConfig, HubCore,
    MAX_SHARDS, MemoryRefused, Overflow, Refused, SessionId, ShardFleet, ShardMessage,
    shard_of_packet,
};
pub use flow::{FlowEvent, FlowRefusals, Read, Receive, SendError, Write};
pub use key::{KEY_BYTES, KeyError, PublicKey, SecretKey};
pub use lease::{BeamError, IDLE_GRANT, Lease, LeaseMode, MODEM_LEASE, ModemRate, Share, Source};
pub use memory::{REMEMBERED_LIFETIME, Remembered};
pub use quota::PathQuota;
pub use session::{OpenError, Session};
pub use settings::{
    Control, DEFAULT_LEARN_BYTES, Lifetimes, MAX_PATHS, MAX_RATE, MIN_MTU_BYTES, MIN_RATE,
    MIN_RESERVE_BYTES, MIN_SESSION_LIFETIME, PathSettings, Settings, SettingsError,
};
pub use status::Counters;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use wire::fuzz::fuzz;
