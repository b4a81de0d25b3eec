//! `bentpipe-masque`.

use super::gateways::Gateways;
use super::pair::Transport;

/// The gateways over HTTP/3.
pub static BENTPIPE_MASQUE: Gateways = Gateways {
    name: "bentpipe-masque",
    about: "The gateways over HTTP/3.",
    transport: Transport::Masque,
    coding: true,
    services: false,
};
