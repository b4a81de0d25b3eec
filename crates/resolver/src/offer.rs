//! The encrypted resolver as clients see it: its certificate, and its announcement to devices. A
//! reload changes both together, so that the announced name always matches the certificate.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_dns::Designated;
use bentpipe_dns::designated::Endpoint;

use super::certificates::Certificates;
use bentpipe_config::Encrypted;

/// Announced path of queries (RFC 9461 section 5).
const PATH_TEMPLATE: &str = "/dns-query{?dns}";

/// Encrypted listeners bound at startup, with their announcement.
pub struct Offer {
    certificates: Arc<Certificates>,
    /// Addresses of DNS over TLS, then over HTTPS.
    addresses: [Vec<SocketAddr>; 2],
    /// Addresses of the plain resolver.
    plain: Vec<IpAddr>,
}

impl Offer {
    /// Creates the offer. `addresses` are those of DNS over TLS and over HTTPS, and `plain` those
    /// of the plain resolver.
    pub fn new(
        certificates: Arc<Certificates>,
        addresses: [Vec<SocketAddr>; 2],
        plain: impl Iterator<Item = SocketAddr>,
    ) -> Self {
        Self {
            certificates,
            addresses,
            plain: plain.map(|address| address.ip().to_canonical()).collect(),
        }
    }

    /// Uses the certificate of `config` for new connections.
    pub fn show(&self, config: &Encrypted) {
        self.certificates.set(config);
    }

    /// Answer to devices' discovery of the encrypted resolver, if `config` names it.
    pub fn designated(&self, config: &Encrypted) -> Option<Designated> {
        let mut endpoints = Vec::new();
        for (addresses, doh_path) in self.addresses.iter().zip([None, Some(PATH_TEMPLATE)]) {
            for address in addresses {
                let port = address.port();
                let ips = reached_at(address.ip(), &self.plain);
                endpoints.extend(ips.into_iter().map(|ip| Endpoint { ip, port, doh_path }));
            }
        }
        Designated::new(config.name.as_ref()?.as_str(), &endpoints)
    }
}

/// Addresses at which clients reach a listener at `ip`. A wildcard listener is reached at every
/// address of the plain resolver in its family.
fn reached_at(ip: IpAddr, plain: &[IpAddr]) -> Vec<IpAddr> {
    match ip.to_canonical() {
        IpAddr::V4(all) if all.is_unspecified() => {
            plain.iter().copied().filter(IpAddr::is_ipv4).collect()
        }
        // It also accepts IPv4, see `net::bind_tcp`.
        IpAddr::V6(all) if all.is_unspecified() => plain.to_vec(),
        own => vec![own],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_a_family_that_is_not_served() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let plain = [ip("10.0.0.1"), ip("fd00::1")];
        for (at, expected) in [
            ("0.0.0.0", &plain[..1]),
            ("::", &plain[..]),
            ("10.0.0.2", &[ip("10.0.0.2")]),
            ("::ffff:10.0.0.2", &[ip("10.0.0.2")]),
            ("fd00::2", &[ip("fd00::2")]),
        ] {
            assert_eq!(reached_at(ip(at), &plain), expected, "{at}");
        }
    }
}
