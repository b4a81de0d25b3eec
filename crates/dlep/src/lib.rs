//! DLEP, the Dynamic Link Exchange Protocol (RFC 8175): how a modem tells the router beside it how
//! fast its radio link is at this moment.
//!
//! Both ends are here, without sockets and clocks: time is a `Duration` since the run began, bytes
//! go in and come out. [`Seeker`] and [`Router`] are the gateway's, [`Offerer`] and [`Modem`] serve
//! the lab's modem simulator.
//!
//! # What is whose
//!
//! The byte layouts (sections 11 and 13) and the transitions of discovery and session (sections 7,
//! 8 and 12) are those of the crates `dlep-core` and `dlep-fsm` (MIT). This crate drives them:
//! cutting the TCP stream into messages, timers, bounds on what a modem may make us remember, what
//! the modem's many figures come to, and saying in words why a session ended. Their companions
//! with sockets, `dlep-net` and `dlep-daemon`, are not used: they bring in a second TLS provider,
//! and they want CAP_NET_RAW.
//!
//! | RFC 8175 | where |
//! |---|---|
//! | 7.1 peer discovery, 12.3, 12.4 | [`Seeker`], [`Offerer`] |
//! | 7.2 session initialization, 12.5, 12.6 | [`Router`], [`Modem`] |
//! | 7.3.1 heartbeats, 12.20 | [`Router::advance`]: silence for two of the peer's intervals ends a session |
//! | 7.4 termination, 12.9, 12.10 | [`Ending`] |
//! | 11.2 message framing | `wire` |
//! | 12.1 what is not recognized | a signal is ignored; a message ends the session, with status 128 (unknown message), 129 (unexpected here) or 130 (data not valid) |
//! | 12.7 session update, 12.11 to 12.17 destinations, 13.12 to 13.20 metrics | [`Rates`] |
//! | 12.18, 12.19 link characteristics | answered by the modem ("denied"); the router never asks |
//! | 13.2, 13.3 connection points | [`Offer`]; those that demand TLS are left out |
//!
//! Not supported: TLS, extensions (none is announced, so none may be used), EUI-64 destinations.

#![forbid(unsafe_code)]

mod backoff;
mod discovery;
mod ending;
mod engine;
mod modem;
mod rates;
mod router;
mod timers;
mod wire;

use std::time::Duration;

pub use backoff::Backoff;
pub use discovery::{MAX_OFFER_POINTS, Offer, Offerer, Seeker};
pub use dlep_core::{
    DEFAULT_PORT, DISCOVERY_IPV4_GROUP, DISCOVERY_IPV6_GROUP, MacAddress, StatusCode,
};
pub use ending::{By, Ending};
pub use modem::{Modem, ModemEvent, ModemSettings};
pub use rates::Rates;
pub use router::{Router, RouterEvent, RouterSettings};
pub use wire::MAX_MESSAGE_BYTES;

/// The TTL and hop limit of every DLEP packet: one that was forwarded has less (RFC 5082).
pub const TTL: u8 = 255;

/// The largest discovery signal that is read; more does not fit an Ethernet frame.
pub const MAX_SIGNAL_BYTES: usize = 1500;

/// Destinations a modem may keep up at once. At some 400 bytes each: 100 KB.
pub const MAX_DESTINATIONS: usize = 256;

/// Addresses and subnets a modem may have announced at once, all destinations together, and at
/// most this many in one message. At 17 bytes each: 17 KB.
pub const MAX_ADDRESSES: usize = 1024;

/// Time within which the peer must answer the first message.
pub const INITIALIZATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Time within which the peer must confirm the end of a session. Section 7.4 proposes four
/// heartbeat intervals; waiting that long before the next attempt gains nothing.
pub const TERMINATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a router searches for a modem (section 7.1).
pub const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);

/// The heartbeat interval announced when nothing else is set.
pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(5);

/// Maximum stored length of a peer's description of itself, in characters.
const MAX_DESCRIPTION_CHARS: usize = 64;

/// The text a peer sent, cut to a length and without anything that would upset a terminal.
fn readable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_DESCRIPTION_CHARS).collect()
}
