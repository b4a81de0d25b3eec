//! `bentpipe-aerotcp`.

use super::gateways::Gateways;
use super::pair::Transport;

/// The gateways over AeroTCP, which carries TCP alone.
pub static BENTPIPE_AEROTCP: Gateways = Gateways {
    name: "bentpipe-aerotcp",
    about: "The gateways over AeroTCP, which carries TCP alone.",
    transport: Transport::AeroTcp,
    coding: true,
    services: false,
};
