//! `split-bbr`.

use super::relay::Split;
use crate::workload::origin::Congestion;

/// TCP ended on both sides of the link, BBR between.
pub static SPLIT_BBR: Split = Split {
    name: "split-bbr",
    about: "Plain split TCP: ended on both sides of the link, a connection of its own with BBR between.",
    congestion: Congestion::Bbr,
};
