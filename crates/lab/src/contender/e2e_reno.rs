//! `e2e-reno`.

use super::routed::Routed;
use crate::workload::origin::Congestion;

/// The kernel's Reno with SACK from server to client.
pub static E2E_RENO: Routed = Routed {
    name: "e2e-reno",
    about: "The kernel's Reno with SACK from server to client.",
    ends: Congestion::Reno,
    receive_window: None,
};
