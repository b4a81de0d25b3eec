//! `e2e-bbr`.

use super::routed::Routed;
use crate::workload::origin::Congestion;

/// The kernel's BBR from server to client.
pub static E2E_BBR: Routed = Routed {
    name: "e2e-bbr",
    about: "The kernel's BBR from server to client.",
    ends: Congestion::Bbr,
    receive_window: None,
};
