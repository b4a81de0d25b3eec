//! `e2e-cubic-64k`.

use super::routed::Routed;
use crate::workload::origin::Congestion;

/// The kernel's CUBIC between ends whose receive windows are held to 65,536 bytes.
pub static E2E_CUBIC_64K: Routed = Routed {
    name: "e2e-cubic-64k",
    about: "The kernel's CUBIC between ends whose receive windows are held to 65,536 bytes.",
    ends: Congestion::Cubic,
    receive_window: Some(65_536),
};
