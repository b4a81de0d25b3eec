//! `bentpipe-services`.

use super::gateways::Gateways;
use super::pair::Transport;

/// The gateways over the radio transport with the HTTP cache and Split HTTP, for what is in clear.
pub static BENTPIPE_SERVICES: Gateways = Gateways {
    name: "bentpipe-services",
    about: "The gateways over the radio transport with the HTTP cache and Split HTTP, for what is in clear.",
    transport: Transport::Link,
    coding: true,
    services: true,
};
