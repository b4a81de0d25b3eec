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
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod ground;
mod prefixed_io;

pub use bentpipe_carriers as transports;
pub use bentpipe_config as config;
pub use bentpipe_metering::{counters, refusals, usage};
pub use bentpipe_modem as rate;
pub use bentpipe_preload as preload;
pub use bentpipe_relay as relay;
pub use bentpipe_split_http as pages;
pub use bentpipe_status as status;
pub use bentpipe_transport as transport;
pub use error::StartError;

use bentpipe_dns::io as dns;
use bentpipe_metering::{rate_limited_log, strangers};
use bentpipe_origin::{request_error, tls as origin_tls, via};
use bentpipe_relay::{bucket, flows, police};
use bentpipe_status::notify;
use bentpipe_transport::{quic, still};
