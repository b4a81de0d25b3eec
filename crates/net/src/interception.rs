//! Rules of transparent interception: an nftables table, and a policy route that delivers marked
//! packets locally.
//!
//! All objects have names and numbers reserved for this gateway, so leftovers of a crashed run are
//! replaced at the next start. Only packets *received* on the named interfaces are intercepted, so
//! the gateway's own packets cannot loop.
//!
//! The rules are set by netlink; neither `nft` nor `ip` needs to be installed.

mod beside;
mod links;
pub(crate) use links::links;
mod neighbours;
mod routes;
mod sources;
mod table;
mod terms;
mod watch;
mod words;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use netlink_packet_route::AddressFamily;

pub use beside::obstacles;
pub use neighbours::shortages;
pub use sources::NEW_PER_SECOND as NEW_SOURCES_PER_SECOND;
pub use terms::{GROUP, Leads, MARK, Part, RulesError, TABLE};
pub use watch::Changes;

/// Installed rules; dropping removes them.
pub struct Rules {
    port: u16,
    interfaces: Vec<String>,
    v6: bool,
    leads: Leads,
    in_force: bool,
    /// Number of rules in the table after it was installed.
    installed: AtomicUsize,
}

impl Rules {
    /// Redirects TCP received on `interfaces`, and the packets that `leads` selects, to `port` on
    /// loopback.
    ///
    /// With `v6`, both families are intercepted if the kernel routes both.
    pub fn install(
        port: u16,
        interfaces: &[&str],
        v6: bool,
        leads: Leads,
    ) -> Result<Self, RulesError> {
        // From here on, dropping `rules` undoes the steps before a failure.
        let mut rules = Self {
            port,
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
            v6,
            leads,
            in_force: false,
            installed: AtomicUsize::new(0),
        };
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
        rules.replace_table()?;
        rules.in_force = true;
        for obstacle in obstacles(interfaces, leads.fail_closed) {
            tracing::warn!("{obstacle}");
        }
        Ok(rules)
    }

    /// Removes the leftovers of a killed gateway. The error tells why the table remains.
    pub fn remove_leftovers() -> io::Result<()> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            routes::remove(family);
        }
        table::remove()
    }

    /// Installs again what another program has removed: the table, or the policy rules. Returns
    /// `true` if something was missing.
    pub fn restore(&self) -> Result<bool, RulesError> {
        let is_missing = |found: io::Result<usize>, wanted| found.is_ok_and(|it| it != wanted);
        let mut restored = false;
        let families = [AddressFamily::Inet, AddressFamily::Inet6];
        for family in families.into_iter().take(1 + usize::from(self.v6)) {
            if is_missing(watch::policy_rules(family), self.interfaces.len()) {
                restored = true;
                routes::remove(family);
                routes::add(family, &self.names()).map_err(refused_route)?;
            }
        }
        if is_missing(watch::nft_rules(), self.installed.load(Relaxed)) {
            restored = true;
            self.replace_table()?;
        }
        Ok(restored)
    }

    /// Number of packets from new sources that were dropped since the table was installed, because
    /// their devices exceeded [`NEW_SOURCES_PER_SECOND`].
    pub fn dropped_new_sources(&self) -> io::Result<u64> {
        watch::counted_in(table::SOURCES_CHAIN)
    }

    fn replace_table(&self) -> Result<(), RulesError> {
        table::replace(self.port, &self.names(), self.v6, self.leads)?;
        // If the kernel does not list them, they cannot be missed.
        self.installed.store(watch::nft_rules().unwrap_or_default(), Relaxed);
        Ok(())
    }

    fn names(&self) -> Vec<&str> {
        self.interfaces.iter().map(String::as_str).collect()
    }

    fn add_v6(&self, interfaces: &[&str]) -> io::Result<()> {
        if self.v6 { routes::add(AddressFamily::Inet6, interfaces) } else { Ok(()) }
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        if self.leads.fail_closed {
            // Keep the table, including one of an earlier run. Without a listener its rules match
            // no socket, and its last rule drops everything.
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

/// Returns whether the process lacks a privilege. `EACCES` is not included, because it means that
/// IPv6 is disabled.
fn is_forbidden(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EPERM)
}
