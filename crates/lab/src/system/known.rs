//! Systems under test that need only one definition each: the kernel's own TCP, plain split TCP,
//! and the gateways.

use super::gateways::Gateways;
use super::pair::Transport::{AeroTcp, Link, Masque};
use super::relay::Split;
use super::routed::Routed;
use crate::emu::Congestion::{Bbr, Cubic, Reno};

/// Reno, end to end.
pub static E2E_RENO: Routed =
    Routed::new("e2e-reno", "The kernel's Reno with SACK from server to client.", Reno);
/// CUBIC, end to end.
pub static E2E_CUBIC: Routed =
    Routed::new("e2e-cubic", "The kernel's CUBIC from server to client.", Cubic);
/// BBR, end to end.
pub static E2E_BBR: Routed = Routed::new("e2e-bbr", "The kernel's BBR from server to client.", Bbr);
/// CUBIC, end to end, without window scaling.
pub static E2E_CUBIC_64K: Routed = Routed {
    receive_window: Some(65_536),
    ..Routed::new(
        "e2e-cubic-64k",
        "The kernel's CUBIC between ends whose receive windows are held to 65,536 bytes.",
        Cubic,
    )
};

/// TCP terminated on both sides of the link, with Reno across it.
pub static SPLIT_RENO: Split = Split {
    name: "split-reno",
    about: "Plain split TCP: ended on both sides of the link, a connection of its own with Reno between.",
    congestion: Reno,
    multipath: false,
};
/// TCP terminated on both sides of the link, with CUBIC across it.
pub static SPLIT_CUBIC: Split = Split {
    name: "split-cubic",
    about: "Plain split TCP: ended on both sides of the link, a connection of its own with CUBIC between.",
    congestion: Cubic,
    multipath: false,
};
/// TCP terminated on both sides of the link, with BBR across it.
pub static SPLIT_BBR: Split = Split {
    name: "split-bbr",
    about: "Plain split TCP: ended on both sides of the link, a connection of its own with BBR between.",
    congestion: Bbr,
    multipath: false,
};

/// TCP terminated on both sides, with MPTCP and CUBIC across all radio links.
pub static SPLIT_MPTCP: Split = Split {
    name: "split-mptcp",
    about: "Plain split TCP with the kernel's MPTCP between, over all radio links: default scheduler, CUBIC on each.",
    congestion: Cubic,
    multipath: true,
};
/// TCP terminated on both sides, with MPTCP and BBR across all radio links.
pub static SPLIT_MPTCP_BBR: Split = Split {
    name: "split-mptcp-bbr",
    about: "Plain split TCP with the kernel's MPTCP between, over all radio links: default scheduler, BBR on each.",
    congestion: Bbr,
    multipath: true,
};

/// The gateways over the radio transport, without cabin services.
pub static BENTPIPE: Gateways = Gateways::new(
    "bentpipe",
    "The gateways over the radio transport, without cabin services.",
    Link,
);
/// The gateways over the radio transport without repair packets.
pub static BENTPIPE_PLAIN: Gateways = Gateways {
    coding: false,
    ..Gateways::new(
        "bentpipe-plain",
        "The gateways over the radio transport without repairs: what is lost is sent again.",
        Link,
    )
};
/// The gateways over HTTP/3.
pub static BENTPIPE_MASQUE: Gateways =
    Gateways::new("bentpipe-masque", "The gateways over HTTP/3.", Masque);
/// The gateways over AeroTCP.
pub static BENTPIPE_AEROTCP: Gateways = Gateways::new(
    "bentpipe-aerotcp",
    "The gateways over AeroTCP, which carries TCP alone.",
    AeroTcp,
);
/// The gateways over the radio transport with cabin services.
pub static BENTPIPE_SERVICES: Gateways = Gateways {
    services: true,
    ..Gateways::new(
        "bentpipe-services",
        "The gateways over the radio transport with the HTTP cache and Split HTTP, for what is in clear.",
        Link,
    )
};
/// A PEP as in the SPDY paper.
pub static PEP_HTTP: Gateways = Gateways {
    services: true,
    granted: false,
    ..Gateways::new(
        "pep-http",
        "A PEP as in the SPDY paper: TCP split with windows fixed by rate and round trip (AeroTCP), and Split HTTP for what is in clear.",
        AeroTcp,
    )
};
