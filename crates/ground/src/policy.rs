//! Policy for the destinations that the ground gateway may dial.
//!
//! Aircraft may reach the Internet, but not the ground gateway's own network. These destinations
//! are refused:
//!
//! - addresses that are not globally reachable (IANA special-purpose registries, RFC 6890);
//! - the gateway's own addresses, including global ones, because services there may be internal;
//! - neighbours, which the kernel reaches without a router.
//!
//! The operator's `allow` makes exceptions. `deny` overrides everything. An IPv4 address embedded
//! in an IPv6 address (mapped, 6to4, NAT64) counts as that IPv4 address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_net::path::{End, Path, Paths};

use bentpipe_config::Dial;
use bentpipe_metering::rate_limited_log::RateLimitedLog;

/// Fixed rules and the operator's rules.
#[derive(Default)]
pub struct Policy {
    dial: Dial,
    paths: Arc<Paths>,
    log: RateLimitedLog,
}

impl Policy {
    /// Creates the policy with the operator's rules in `dial`.
    pub fn new(dial: &Dial) -> Self {
        Self { dial: dial.clone(), ..Self::default() }
    }

    /// Returns the address to dial for `ip`, or `None` if it is forbidden for `protocol` and
    /// `port`.
    pub fn permit(&self, ip: IpAddr, protocol: u8, port: u16) -> Option<IpAddr> {
        self.dial.permit(ip, protocol, port)
    }

    /// Returns the path to `address`, which must be permitted. Returns
    /// [`io::ErrorKind::PermissionDenied`] if the path ends at this machine or a neighbour that
    /// `allow` does not name.
    pub fn path(&self, address: SocketAddr) -> io::Result<Path> {
        let path = self.paths.towards(address)?;
        let ip = address.ip();
        let is_own = match path.end {
            End::Here => true,
            // If the destination is translated, the neighbour is the translator.
            End::OnLink => self.dial.inner(ip).is_none(),
            End::Beyond => false,
        };
        if !is_own || self.dial.allows(ip) {
            return Ok(path);
        }
        if path.end == End::OnLink {
            self.log.warn(
                "a passenger asked for a neighbour of this gateway: write it under [dial] allow if \
                 it may be dialled",
                &ip,
            );
        }
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// Lookup of the kernel's routes.
    pub fn paths(&self) -> Arc<Paths> {
        self.paths.clone()
    }
}
