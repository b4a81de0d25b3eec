//! Counts of a gateway.
//!
//! | module | contents |
//! |---|---|
//! | [`counters`] | counters of flows, bytes, services and errors |
//! | [`experience`] | waiting times of passengers |
//! | [`refusals`] | refusals by limits, counted and logged |
//! | [`strangers`] | packets that the link refused |
//! | [`usage`] | usage of each passenger on each day |
//! | [`rate_limited_log`] | log messages at a bounded rate |
//! | `count` | one counter |

#![forbid(unsafe_code)]

mod count;
pub mod counters;
pub mod experience;
pub mod rate_limited_log;
pub mod refusals;
pub mod strangers;
pub mod usage;
