//! The encrypted resolver as others see it: the certificate that it shows, and what devices are told of
//! it. Both follow a reload together, so that no device is sent to a name that the certificate is not for.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_dns::Designated;
use bentpipe_dns::designated::Endpoint;

use super::tls::{Certificates, PATH_TEMPLATE, Secure};
use crate::config::Encrypted;

/// Listeners that were bound when the gateway started.
pub struct Offer {
    certificates: Arc<Certificates>,
    /// Over TLS, then over HTTPS.
    addresses: [Vec<SocketAddr>; 2],
    /// Addresses of the plain resolver.
    plain: Vec<IpAddr>,
}

impl Offer {
    /// Offer of the listeners `secure`, next to the plain resolver at the addresses `plain`.
    pub fn new(secure: &Secure, plain: impl Iterator<Item = SocketAddr>) -> Self {
        Self {
            certificates: secure.certificates(),
            addresses: secure.addresses(),
            plain: plain.map(|address| address.ip().to_canonical()).collect(),
        }
    }

    /// From now on connections to come are shown the certificate of `config`.
    pub fn show(&self, config: &Encrypted) {
        self.certificates.set(config);
    }

    /// Answer for devices that search for the encrypted resolver, if `config` names it.
    pub fn designated(&self, config: &Encrypted) -> Option<Designated> {
        let mut endpoints = Vec::new();
        for (addresses, doh_path) in self.addresses.iter().zip([None, Some(PATH_TEMPLATE)]) {
            for address in addresses {
                let port = address.port();
                let ips = reached_at(address.ip(), &self.plain);
                endpoints.extend(ips.into_iter().map(|ip| Endpoint { ip, port, doh_path }));
            }
        }
        Designated::new(config.name()?.as_str(), &endpoints)
    }
}

/// Addresses at which a listener at `ip` is reached: a wildcard listener at every address of the
/// plain resolver, as far as it has that family.
fn reached_at(ip: IpAddr, plain: &[IpAddr]) -> Vec<IpAddr> {
    match ip.to_canonical() {
        IpAddr::V4(all) if all.is_unspecified() => {
            plain.iter().copied().filter(IpAddr::is_ipv4).collect()
        }
        // It takes IPv4 too, see `net::bind_tcp`.
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
