//! `bentpipe`.

use super::gateways::Gateways;
use super::pair::Transport;

/// The gateways over the radio transport, without cabin services.
pub static BENTPIPE: Gateways = Gateways {
    name: "bentpipe",
    about: "The gateways over the radio transport, without cabin services.",
    transport: Transport::Link,
    coding: true,
    services: false,
};
