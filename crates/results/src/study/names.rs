//! Systems under test and protocols that a cell may name.

/// Systems under test that a cell may name. `experiments/README.md` describes them.
pub const SYSTEMS: [&str; 16] = [
    "e2e-reno",
    "e2e-cubic",
    "e2e-bbr",
    "e2e-cubic-64k",
    "split-reno",
    "split-cubic",
    "split-bbr",
    "split-mptcp",
    "pep-fixed",
    "pep-http",
    "kcptun",
    "bentpipe",
    "bentpipe-plain",
    "bentpipe-aerotcp",
    "bentpipe-masque",
    "bentpipe-services",
];

/// Protocols that a cell may name.
pub const PROTOCOLS: [&str; 8] = [
    "http/1.1",
    "http/1.1-close",
    "http/1.1-tls",
    "http/1.1-tls-resumed",
    "http/2",
    "http/2-proxied",
    "http/3",
    "http/3-0rtt",
];
