//! Gateways of the aircraft and of the ground: interception, proxies, dialling, destination policy.
//!
//! [`air`] ends the passengers' TCP connections and asks the far end for flows;
//! [`ground`] takes the flows of many aircraft and dials their destinations. What
//! lies between them is behind the traits in [`far`]. What the modem knows of the
//! radio comes by [`rate`]; what a flow's class is, [`classify`] says, and
//! [`usage`] what passengers used, and
//! [`status`] what is carried now. [`pages`] are the two ends of Split HTTP,
//! `single` packs the heads of what is asked for beside them, `origin_tls` is TLS with the origins of sites,
//! [`preload`] fetches the portal's content at night. What limits refuse is counted and logged by [`refusals`].

pub mod air;
mod bucket;
pub mod classify;
pub mod config;
pub mod counters;
mod dns;
pub mod far;
mod flows;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod ground;
mod machine;
pub mod net;
mod notify;
mod origin_tls;
pub mod pages;
mod police;
pub mod preload;
mod quic;
mod quiet;
pub mod rate;
pub mod refusals;
pub mod relay;
mod replay;
mod single;
pub mod status;
mod still;
pub mod usage;
