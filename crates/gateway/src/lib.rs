//! Gateways of the aircraft and of the ground: interception, proxies, dialling, destination policy.
//!
//! - [`air`] terminates the passengers' TCP connections and opens flows to the ground gateway.
//! - [`ground`] accepts the flows of many aircraft and dials their destinations.
//! - [`transport`] contains the traits between the two, which the [`transports`] implement.
//! - [`rate`] reports the modem's rate of the radio.
//! - [`bentpipe_classify`] decides the class of a flow.
//! - [`usage`] records the usage of passengers, and [`status`] the current traffic.
//! - [`pages`] contains both ends of Split HTTP.
//! - `origin_tls` is TLS to the origins of sites.
//! - [`preload`] fetches the portal's content at night.
//! - [`refusals`] counts and logs refusals by limits.

pub mod air;
mod atomic_file;
mod bucket;
pub mod config;
mod count;
pub mod counters;
mod dns;
mod error;
mod flows;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod ground;
mod machine;
mod notify;
mod origin_tls;
pub mod pages;
mod police;
mod prefixed_io;
pub mod preload;
mod quic;
pub mod rate;
mod rate_limited_log;
pub mod refusals;
pub mod relay;
mod request_error;
pub mod status;
mod still;
mod strangers;
pub mod transport;
pub mod transports;
pub mod usage;
mod via;

pub use error::StartError;
