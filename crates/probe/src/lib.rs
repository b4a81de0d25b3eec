//! Measurements of an Internet access in flight, as values: the core of `bentpipe probe`.
//!
//! The method is that of the testbench of "Mile High WiFi" (Rula et al., WWW 2018, sections 3 to 5). Nothing
//! here opens a socket, reads a clock or draws a random number: times, packets and seeds are arguments. So
//! tests run hours in virtual time, and `bentpipe-probe-host` adds sockets, disk and terminal.
//!
//! | module | contents |
//! |---|---|
//! | [`clock`] | both clocks of a record, steps and suspensions |
//! | [`random`] | numbers from a seed |
//! | [`statistics`] | quantiles and distributions |
//! | [`target`] | targets and methods of pings |
//! | [`schedule`] | the times of pings, the lane of all other jobs, quiet windows |
//! | [`ping`] | pings: replies awaited, the choice of method, packets |
//! | [`loss`] | loss in windows of 100 s |
//! | [`trace`] | traceroutes |
//! | [`address`] | the public address, its autonomous system and provider |
//! | [`dns`] | pairs of lookups, and their quadrants |
//! | [`ndt7`] | goodput of one TCP connection |
//! | [`objects`] | HTTP objects, and caches in flight |
//! | [`epb`] | the part of the provisioned bandwidth that one connection uses |
//! | [`rate`] | the rate of a direction, and its limit |
//! | [`portal`] | captive portals |
//! | [`gps`] | positions of a receiver |
//! | [`record`] | records and their envelope |
//! | [`recorder`] | numbers of records, and what else ran meanwhile |
//! | [`analysis`] | figures from records |
//! | [`live`] | the live table |
//! | [`orbit`] | the kind of access, from round-trip times |
//! | [`track`] | flight tracks |
//! | [`profile`] | a recording as a link profile |
//! | [`upload`] | batches of records and their receipts |
//! | [`report`] | the page of a store, beside the values of the paper |

#![forbid(unsafe_code)]

pub mod address;
pub mod analysis;
pub mod clock;
pub mod dns;
pub mod epb;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzz;
pub mod gps;
pub mod live;
pub mod loss;
pub mod ndt7;
pub mod objects;
pub mod orbit;
pub mod ping;
pub mod portal;
pub mod profile;
pub mod random;
pub mod rate;
pub mod record;
pub mod recorder;
pub mod report;
pub mod schedule;
pub mod statistics;
pub mod target;
pub mod trace;
pub mod track;
pub mod upload;

use std::time::Duration;

#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz_packet;

/// Whole microseconds of a duration; 584,000 years at most.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
