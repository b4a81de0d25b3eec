//! DLEP, the Dynamic Link Exchange Protocol (RFC 8175): a modem reports the current rate of its
//! radio link to the router next to it.
//!
//! The crate implements both ends without sockets and clocks. Time is a `Duration` since the run
//! began; bytes go in and come out. The gateway uses [`RouterDiscovery`] and [`Router`]. The lab's
//! modem simulator uses [`ModemDiscovery`] and [`Modem`].
//!
//! ```
//! use std::time::Duration;
//! use bentpipe_dlep::{Modem, ModemSettings, Rates, Router, RouterEvent, RouterSettings};
//!
//! let now = Duration::ZERO;
//! let rates =
//!     Rates { transmit_bps: 4_000_000, receive_bps: 20_000_000, latency: Duration::from_millis(300) };
//! let settings =
//!     ModemSettings { description: "modem".into(), heartbeat: Duration::from_secs(5), rates };
//! let (mut router, mut modem) =
//!     (Router::new(&RouterSettings::default(), now), Modem::new(&settings, now));
//!
//! modem.receive(now, &router.take_output());
//! router.receive(now, &modem.take_output());
//! assert!(matches!(router.poll_event(), Some(RouterEvent::Up { .. })));
//! assert_eq!(router.poll_event(), Some(RouterEvent::Rates(Some(rates))));
//! ```
//!
//! # Dependencies
//!
//! The byte layouts (sections 11 and 13) and the transitions of discovery and session (sections 7,
//! 8 and 12) come from the crates `dlep-core` and `dlep-fsm` (MIT). This crate drives them. It
//! adds:
//!
//! - splitting the TCP stream into messages
//! - timers
//! - bounds on what a modem can make us store
//! - reduction of the modem's metrics to one rate
//! - reasons in words for the end of a session
//!
//! Their companions with sockets, `dlep-net` and `dlep-daemon`, are not used: they add a second TLS
//! provider and require CAP_NET_RAW.
//!
//! # Coverage of RFC 8175
//!
//! | section | implementation |
//! |---|---|
//! | 7.1 peer discovery, 12.3, 12.4 | [`RouterDiscovery`], [`ModemDiscovery`] |
//! | 7.2 session initialization, 12.5, 12.6 | [`Router`], [`Modem`] |
//! | 7.3.1 heartbeats, 12.20 | [`Router::advance`]: silence for two of the peer's intervals ends a session |
//! | 7.4 termination, 12.9, 12.10 | [`EndReason`] |
//! | 11.2 message framing | `wire` |
//! | 12.1 unrecognized input | a signal is ignored; a message ends the session, with status 128 (unknown message), 129 (unexpected here) or 130 (data not valid) |
//! | 12.7 session update, 12.11 to 12.17 destinations, 13.12 to 13.20 metrics | [`Rates`] |
//! | 12.18, 12.19 link characteristics | the modem answers "denied"; the router never requests them |
//! | 13.2, 13.3 connection points | [`Offer`]; points that require TLS are left out |
//!
//! Not supported: TLS, extensions (none is announced, so none may be used), EUI-64 destinations.

#![forbid(unsafe_code)]

mod backoff;
mod discovery;
mod end_reason;
mod engine;
mod modem;
mod rates;
mod router;
mod timers;
mod wire;

use std::time::Duration;

pub use backoff::Backoff;
pub use discovery::{MAX_OFFER_POINTS, ModemDiscovery, Offer, RouterDiscovery};
pub use dlep_core::{
    DEFAULT_PORT, DISCOVERY_IPV4_GROUP, DISCOVERY_IPV6_GROUP, MacAddress, StatusCode,
};
pub use end_reason::{EndReason, Side};
pub use modem::{Modem, ModemEvent, ModemSettings};
pub use rates::Rates;
pub use router::{Router, RouterEvent, RouterSettings};
pub use wire::MAX_MESSAGE_BYTES;

/// TTL and hop limit of every DLEP packet. A forwarded packet has less (RFC 5082).
pub const TTL: u8 = 255;

/// Maximum size of a discovery signal. A larger one does not fit an Ethernet frame.
pub const MAX_SIGNAL_BYTES: usize = 1500;

/// Maximum number of destinations that are up at once: 256 × about 400 bytes = 100 KB.
pub const MAX_DESTINATIONS: usize = 256;

/// Maximum number of addresses and subnets that a modem may have announced, over all destinations,
/// and maximum number in one message: 1024 × 17 bytes = 17 KB.
pub const MAX_ADDRESSES: usize = 1024;

/// Time within which the peer must answer the first message.
pub const INITIALIZATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Time within which the peer must confirm the end of a session. Section 7.4 proposes four
/// heartbeat intervals, but waiting that long before the next attempt gains nothing.
pub const TERMINATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a router sends discovery signals (section 7.1).
pub const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);

/// Default heartbeat interval.
pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(5);

/// Maximum stored length of a peer's description of itself, in characters.
const MAX_DESCRIPTION_CHARS: usize = 64;

/// Text from the peer, shortened and without control characters, which could disturb a terminal.
fn sanitize(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_DESCRIPTION_CHARS).collect()
}
