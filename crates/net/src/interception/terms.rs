//! Names and numbers of the rules, the selected packets, and errors.

use std::io;

/// Name of the nftables table; there is one air gateway per network namespace.
pub const TABLE: &str = "bentpipe_air";

/// Mark of intercepted packets, "bp" in ASCII. It is also the number and priority of their routing
/// table, before the main table's 32766.
pub const MARK: u32 = 0x6270;

/// NFLOG group to which other packets are copied, "bp" in ASCII.
pub const GROUP: u16 = 0x6270;

/// Failure to install the rules.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The process may not configure the network.
    #[error(
        "transparent interception needs CAP_NET_ADMIN: run as root, set \
         AmbientCapabilities=CAP_NET_ADMIN in the systemd unit, or leave tproxy out of [listen] \
         and let clients use socks5 or http-proxy"
    )]
    Permission,
    /// The kernel refused a rule.
    #[error(
        "the kernel refused the rules of interception: {source}\ntransparent interception needs a \
         kernel with {what}; without it leave tproxy out of [listen] and let clients use socks5 or \
         http-proxy"
    )]
    Refused {
        /// Kernel feature that the rule needs.
        what: &'static str,
        /// Part of nftables that is missing, if any.
        part: Option<Part>,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Packets intercepted in addition to TCP, and the treatment of the rest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leads {
    /// Intercepts UDP.
    pub udp: bool,
    /// Copies packets that are neither TCP nor UDP to [`GROUP`].
    pub others: bool,
    /// `true` if all other packets are dropped, even after the gateway has stopped.
    pub fail_closed: bool,
}

/// A kernel feature that a rule needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// nftables itself.
    Tables,
    /// Lookups in the routing table.
    Fib,
    /// Redirection to local sockets.
    Tproxy,
    /// Copies of packets by NFLOG.
    Log,
    /// Sets that packets change, and limits in them.
    Limits,
}

impl Part {
    /// Name of the feature, with its configuration option and module.
    pub const fn described(self) -> &'static str {
        match self {
            Self::Tables => "nftables (CONFIG_NF_TABLES_INET, module nf_tables)",
            Self::Fib => "nftables' fib (CONFIG_NFT_FIB_INET, module nft_fib_inet)",
            Self::Tproxy => "nftables' tproxy (CONFIG_NFT_TPROXY, module nft_tproxy)",
            Self::Log => "nftables' log and NFLOG (CONFIG_NFT_LOG, module nft_log)",
            Self::Limits => "nftables' dynamic sets and limit (CONFIG_NFT_LIMIT, module nft_limit)",
        }
    }
}
