//! `e2e-cubic`.

use super::routed::Routed;
use crate::workload::origin::Congestion;

/// The kernel's CUBIC from server to client.
pub static E2E_CUBIC: Routed = Routed {
    name: "e2e-cubic",
    about: "The kernel's CUBIC from server to client.",
    ends: Congestion::Cubic,
    receive_window: None,
};
