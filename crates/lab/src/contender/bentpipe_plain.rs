//! `bentpipe-plain`.

use super::gateways::Gateways;
use super::pair::Transport;

/// The gateways over the radio transport without repairs: what is lost is sent again.
pub static BENTPIPE_PLAIN: Gateways = Gateways {
    name: "bentpipe-plain",
    about: "The gateways over the radio transport without repairs: what is lost is sent again.",
    transport: Transport::Link,
    coding: false,
    services: false,
};
