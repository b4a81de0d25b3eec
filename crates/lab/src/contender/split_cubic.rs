//! `split-cubic`.

use super::relay::Split;
use crate::workload::origin::Congestion;

/// TCP ended on both sides of the link, CUBIC between.
pub static SPLIT_CUBIC: Split = Split {
    name: "split-cubic",
    about: "Plain split TCP: ended on both sides of the link, a connection of its own with CUBIC between.",
    congestion: Congestion::Cubic,
};
