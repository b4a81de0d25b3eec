//! The rules of transparent interception: an nftables table, and a policy route
//! that delivers the marked packets locally.
//!
//! All of it carries this gateway's own names and numbers. Whatever a crashed run
//! left behind is replaced at the next start. Only what *comes in* by the named
//! interfaces is intercepted, so nothing the gateway itself sends can loop.
//!
//! The kernel is asked by netlink: neither `nft` nor `ip` has to be installed.

mod beside;
mod routes;
mod table;
mod words;

use std::io;

use netlink_packet_route::AddressFamily;

pub use beside::obstacles;
pub use table::Part;

/// The nftables table; one air gateway per network namespace.
pub const TABLE: &str = "bentpipe_air";

/// The mark of intercepted packets, "bp" in ASCII, and with it the number and
/// priority of the routing table they use: before the main one's 32766.
pub const MARK: u32 = 0x6270;

/// Failure to put the rules in force.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The process may not change the network.
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
        /// The part of the kernel that the rule needs.
        what: &'static str,
        /// The part of nftables, if it is one.
        part: Option<Part>,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Packets that are intercepted besides TCP, and the end of the rest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leads {
    /// UDP.
    pub udp: bool,
    /// All but TCP and UDP: copied to `capture::GROUP`.
    pub others: bool,
    /// `true` if everything else is dropped, also after the gateway has stopped.
    pub fail_closed: bool,
}

/// Rules in force; dropping removes them.
pub struct Rules {
    v6: bool,
    fail_closed: bool,
    in_force: bool,
}

impl Rules {
    /// Leads TCP that comes in by `interfaces`, and what `leads` says, to `port` on loopback.
    ///
    /// With `v6`, both families are intercepted if the kernel routes both.
    pub fn install(
        port: u16,
        interfaces: &[&str],
        v6: bool,
        leads: Leads,
    ) -> Result<Self, RulesError> {
        // From here on dropping removes whatever was done before a failure.
        let mut rules = Self { v6, fail_closed: leads.fail_closed, in_force: false };
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            routes::remove(family);
        }
        routes::add(AddressFamily::Inet, interfaces).map_err(refused_route)?;
        if let Err(error) = rules.add_v6(interfaces) {
            if is_forbidden(&error) {
                return Err(RulesError::Permission);
            }
            tracing::warn!(%error, "IPv6 is not intercepted: the kernel refused its local route");
            rules.v6 = false;
        }
        table::replace(port, interfaces, rules.v6, leads)?;
        rules.in_force = true;
        for obstacle in obstacles(interfaces, leads.fail_closed) {
            tracing::warn!("{obstacle}");
        }
        Ok(rules)
    }

    /// Removes what a gateway left that was killed. An error says why the table stays.
    pub fn remove_leftovers() -> io::Result<()> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            routes::remove(family);
        }
        table::remove()
    }

    fn add_v6(&self, interfaces: &[&str]) -> io::Result<()> {
        if self.v6 { routes::add(AddressFamily::Inet6, interfaces) } else { Ok(()) }
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        if self.fail_closed {
            // The table stays, also that of an earlier run if this one has none. Without a listener
            // its rules lead nowhere, and its last one drops everything.
            if self.in_force {
                tracing::warn!(
                    "fail-closed: what comes in from the cabin is dropped until a gateway runs \
                     again; `nft delete table inet {TABLE}` ends that"
                );
            }
        } else if let Err(error) = table::remove()
            && self.in_force
        {
            tracing::warn!(%error, "the rules stay: `nft delete table inet {TABLE}`");
        }
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            routes::remove(family);
        }
    }
}

fn refused_route(source: io::Error) -> RulesError {
    if is_forbidden(&source) {
        return RulesError::Permission;
    }
    let what = "policy routing (CONFIG_IP_MULTIPLE_TABLES)";
    RulesError::Refused { what, part: None, source }
}

/// Returns whether the process lacks a privilege. `EACCES` means IPv6 that is off.
fn is_forbidden(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EPERM)
}
