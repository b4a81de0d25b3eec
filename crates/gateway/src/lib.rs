//! Both gateways under one name, for the command, the lab and the tests of the pair.
//!
//! - [`air`] terminates the passengers' TCP connections and opens flows to the ground gateway.
//! - [`ground`] accepts the flows of many aircraft and dials their destinations.
//! - [`transport`] contains the traits between the two, which the [`transports`] implement.
//! - [`config`] is the two config files.
//! - [`rate`] reports the modem's rate of the radio.
//! - [`relay`] copies bytes between a TCP connection and a flow.
//! - [`usage`] records the usage of passengers, [`experience`] their waits, and [`status`] the current
//!   traffic.
//! - [`counters`] counts, and [`refusals`] counts and logs refusals by limits.
//! - [`pages`] contains both ends of Split HTTP.
//! - [`preload`] fetches the portal's content at night.
//!
//! This crate has no code of its own except the entry points of a fuzz target.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;

pub use bentpipe_air as air;
pub use bentpipe_carriers as transports;
pub use bentpipe_config as config;
pub use bentpipe_ground as ground;
pub use bentpipe_metering::{counters, experience, refusals, usage};
pub use bentpipe_modem as rate;
pub use bentpipe_preload as preload;
pub use bentpipe_relay as relay;
pub use bentpipe_split_http as pages;
pub use bentpipe_status as status;
pub use bentpipe_transport as transport;
