//! Public names that resolve to private addresses (DNS rebinding).

use std::net::IpAddr;

use bentpipe_dns::{Answer, Key, is_private};
use bentpipe_prefetch::plan::NameList;
use ipnet::IpNet;

use bentpipe_config::{self, PrivateAddresses};
use bentpipe_metering::rate_limited_log::RateLimitedLog;

/// Withholds answers of name servers that contain a private address. Passengers could not reach
/// such an address through the ground gateway, but a web page could use the answer to attack hosts
/// on board.
pub struct PrivateFilter {
    drops: bool,
    /// Names that may resolve to private addresses.
    names: NameList,
    /// Networks that the ground gateway may dial, so names may resolve to them.
    allow: Vec<IpNet>,
    log: RateLimitedLog,
}

impl PrivateFilter {
    /// Creates a filter from `config`. Names may also resolve to the networks in `allow`.
    pub fn new(config: &bentpipe_config::Dns, allow: &[IpNet]) -> Self {
        let drops = config.private == PrivateAddresses::Drop;
        let (names, allow) = (config.private_names.clone(), allow.to_vec());
        Self { drops, names, allow, log: RateLimitedLog::default() }
    }

    /// Returns whether `answer` to a query for `key` is withheld, and logs it if so.
    pub fn withholds(&self, key: &Key, answer: &Answer) -> bool {
        let Some(ip) = self.private_address(key, answer) else { return false };
        let what = format!("{key:?} leads to {ip}");
        self.log.warn(
            "an answer with a private address was withheld; [dns] private-names lets a name have one",
            &what,
        );
        true
    }

    fn private_address(&self, key: &Key, answer: &Answer) -> Option<IpAddr> {
        if !self.drops || key.host_name().is_some_and(|name| self.names.names(&name)) {
            return None;
        }
        let is_allowed = |ip: IpAddr| self.allow.iter().any(|net| net.contains(&ip.to_canonical()));
        answer.find_address(|ip| is_private(ip) && !is_allowed(ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_dns::Query;

    /// Returns whether an answer with the address `ip` for `name` is withheld.
    fn withholds(settings: &str, name: &str, ip: &str) -> bool {
        let config: bentpipe_config::Dns = toml::from_str(settings).unwrap();
        let filter = PrivateFilter::new(&config, &["10.7.0.0/16".parse().unwrap()]);
        let labels =
            name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
        let head = [0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let message: Vec<u8> = head.into_iter().chain(labels).chain([0, 0, 1, 0, 1]).collect();
        let query = Query::parse(&message).unwrap();
        let answer = query.addresses(&[ip.parse().unwrap()], 60);
        filter.withholds(&query.key, &Answer::parse(&query.key, &answer).unwrap())
    }

    #[test]
    fn names_of_the_internet_lead_to_the_internet() {
        assert!(withholds("", "evil.test", "10.0.0.1") && withholds("", "evil.test", "127.0.0.1"));
        assert!(!withholds("", "good.test", "192.0.2.1"));
        assert!(!withholds("", "ours.test", "10.7.0.1"), "the ground may dial it");
        assert!(!withholds("private = \"pass\"", "evil.test", "10.0.0.1"));
    }

    #[test]
    fn named_ones_may_lead_elsewhere() {
        let settings = "private-names = [\"Portal.test\"]";
        assert!(!withholds(settings, "portal.test", "10.0.0.1"));
        assert!(!withholds(settings, "www.portal.test", "10.0.0.1"));
        assert!(withholds(settings, "notportal.test", "10.0.0.1"));
    }
}
