//! `pep-http`.

use super::gateways::Gateways;
use super::pair::Transport;

/// A PEP as in the SPDY paper: TCP split with windows by rate, round trip and open connections
/// (AeroTCP), and Split HTTP for what is in clear.
pub static PEP_HTTP: Gateways = Gateways {
    name: "pep-http",
    about: "A PEP as in the SPDY paper: TCP split with windows fixed by rate and round trip (AeroTCP), and Split HTTP for what is in clear.",
    transport: Transport::AeroTcp,
    coding: true,
    services: true,
};
