//! `split-reno`.

use super::relay::Split;
use crate::workload::origin::Congestion;

/// TCP ended on both sides of the link, Reno between.
pub static SPLIT_RENO: Split = Split {
    name: "split-reno",
    about: "Plain split TCP: ended on both sides of the link, a connection of its own with Reno between.",
    congestion: Congestion::Reno,
};
