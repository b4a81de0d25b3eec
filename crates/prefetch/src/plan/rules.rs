//! The operator's rules: sites whose pages and objects are fetched.

use std::collections::BTreeSet;

use crate::address::Address;

/// Maximum number of names in a list. A `BTreeSet` of them takes about 200 KiB.
pub const MAX_NAMES: usize = 4096;

/// Port of `https`, on which gateways serve the sites whose certificates they have.
const HTTPS: u16 = 443;

/// Host names, each with its subdomains. `example.org` includes `www.example.org`, but not
/// `notexample.org`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList(BTreeSet<String>);

/// Reason why a list is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameListError {
    /// Not a host name.
    #[error("{0:?} is not a host name: write it like \"example.org\"")]
    Name(String),
    /// More than `MAX_NAMES` names.
    #[error("there are more than {MAX_NAMES} names in it")]
    Many,
}

/// Sites whose pages and objects are fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// If not empty, only these are fetched.
    pub allow: NameList,
    /// Never fetched. Overrides `allow`.
    pub deny: NameList,
    /// Names for which the air gateway has a certificate, so that it can serve pushed objects.
    /// Subdomains are not included.
    pub secure: NameList,
}

impl NameList {
    /// Creates a list of `names`, in any case, with or without a final dot.
    pub fn new(names: impl IntoIterator<Item = String>) -> Result<Self, NameListError> {
        let names = names.into_iter().map(|name| {
            let plain = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
            let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            let good = plain.bytes().all(letters)
                && plain.split('.').all(|label| (1..=63).contains(&label.len()));
            if good { Ok(plain) } else { Err(NameListError::Name(name)) }
        });
        let list = names.collect::<Result<BTreeSet<String>, _>>()?;
        if list.len() > MAX_NAMES { Err(NameListError::Many) } else { Ok(Self(list)) }
    }

    /// Returns `true` if `host` is one of the names, or a subdomain of one. A final dot does not count.
    pub fn names(&self, host: &str) -> bool {
        let mut rest = Some(host.strip_suffix('.').unwrap_or(host));
        while let Some(name) = rest {
            if self.0.contains(name) {
                return true;
            }
            rest = name.split_once('.').map(|(_, parent)| parent);
        }
        false
    }

    /// Returns `true` if `host` itself is one of the names.
    pub fn holds(&self, host: &str) -> bool {
        self.0.contains(host.strip_suffix('.').unwrap_or(host))
    }

    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Rules {
    /// Returns `true` if pages and objects of `host` may be fetched.
    pub fn permit(&self, host: &str) -> bool {
        !self.deny.names(host) && (self.allow.is_empty() || self.allow.names(host))
    }

    /// Returns `true` if `page` may be fetched. Over TLS, only pages of sites with a certificate.
    pub fn serve(&self, page: &Address) -> bool {
        let is_of_site = || self.secure.holds(page.host()) && page.origin().port == HTTPS;
        self.permit(page.host()) && (!page.is_secure() || is_of_site())
    }

    /// Returns `true` if a browser that shows `page` will request `address` from the air gateway.
    /// Over TLS it does so only for names with a certificate. A page that came over TLS requests
    /// nothing without TLS.
    pub fn may_be_served(&self, address: &Address, page: &Address) -> bool {
        if address.is_secure() {
            let of_site = self.secure.holds(address.host()) && address.origin().port == HTTPS;
            return of_site || page.is_secure() && page.origin() == address.origin();
        }
        !page.is_secure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> NameList {
        NameList::new(names.iter().map(|name| (*name).to_owned())).unwrap()
    }

    #[test]
    fn a_name_includes_its_subdomains() {
        let list = list(&["Example.org.", "a.b.test"]);
        for host in ["example.org", "www.example.org", "x.a.b.test"] {
            assert!(list.names(host), "{host}");
        }
        for host in ["notexample.org", "org", "b.test", "example.org.evil.test", "192.0.2.1"] {
            assert!(!list.names(host), "{host}");
        }
        for wrong in ["", "a..b", "http://a.test", "*.a.test", "a/b"] {
            assert!(NameList::new([wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn denial_wins_and_tls_needs_a_certificate() {
        let rules = Rules {
            allow: list(&["a.test", "b.test"]),
            deny: list(&["ads.a.test"]),
            secure: list(&["owned.test"]),
        };
        assert!(
            rules.permit("www.a.test") && !rules.permit("ads.a.test") && !rules.permit("c.test")
        );
        assert!(rules.permit("www.a.test.") && !rules.permit("ads.a.test."), "a final dot");
        let url = |text: &str| Address::parse(text).unwrap();
        let sites = Rules { secure: rules.secure.clone(), ..Rules::default() };
        assert!(sites.serve(&url("https://owned.test/")) && sites.serve(&url("http://x.test/")));
        for page in ["https://owned.test:8443/", "https://below.owned.test/", "https://x.test/"] {
            assert!(!sites.serve(&url(page)), "{page}");
        }
        assert!(!rules.serve(&url("https://owned.test/")), "it is not among those allowed");
        let served = |one: &str, page: &str| rules.may_be_served(&url(one), &url(page));
        assert!(served("http://x.test/", "http://a.test/"));
        assert!(!served("https://x.test/", "http://a.test/"));
        assert!(served("https://owned.test/", "http://a.test/"));
        assert!(!served("https://owned.test:8443/", "http://a.test/"));
        assert!(!served("https://below.owned.test/", "http://a.test/"), "another certificate");
        assert!(served("https://a.test/x", "https://a.test/"));
        assert!(!served("https://cdn.test/x", "https://a.test/"));
        assert!(!served("http://a.test/x", "https://a.test/"), "browsers block mixed content");
    }
}
