//! Host names in canonical form, and domains that contain them.

use std::fmt;
use std::str::FromStr;

/// Maximum length of a name in text form, without the final dot (RFC 1035 §2.3.4).
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A host name in lower case, without the final dot; never an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

/// A domain: a name and all its subdomains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(Name);

/// Reason why a text is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{written:?} is not a domain: {why}; write it like \"gov.uk\"")]
pub struct DomainError {
    /// The rejected text.
    pub written: String,
    /// Description of the fault.
    pub why: &'static str,
}

impl Name {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A sentinel that sorts before every name; it is not a valid name.
    pub(super) fn before_all() -> Self {
        Self("".into())
    }
}

impl Domain {
    /// Returns `true` if `name` is this domain or a subdomain: `gov.uk` covers `www.gov.uk`, but
    /// not `notgov.uk`.
    pub fn covers(&self, name: &Name) -> bool {
        name.0.strip_suffix(&*self.0.0).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// The domain, without a leading dot.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for Name {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let error = |why| DomainError { written: text.to_owned(), why };
        let plain = text.strip_suffix('.').unwrap_or(text);
        if plain.is_empty() || plain.len() > MAX_NAME_BYTES {
            return Err(error("a name has 1 to 253 characters"));
        }
        if !plain.is_ascii() {
            return Err(error("names of other scripts are written as in DNS (\"xn--...\")"));
        }
        for label in plain.split('.') {
            if label.is_empty() || label.len() > MAX_LABEL_BYTES {
                return Err(error("what stands between dots has 1 to 63 characters"));
            }
            // Underscores are not allowed in host names, but some names in use contain them.
            let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            if !label.bytes().all(good) {
                return Err(error("a name has letters, digits, hyphens and dots"));
            }
        }
        // As in URLs: no top-level domain is a number, so the text is some spelling of an IPv4
        // address.
        if plain.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit())) {
            return Err(error("addresses go into `prefix`"));
        }
        Ok(Self(plain.to_ascii_lowercase().into()))
    }
}

/// Parses `gov.uk`, also written `.gov.uk` or `*.gov.uk`.
impl FromStr for Domain {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let bare = text.strip_prefix("*.").or(text.strip_prefix('.')).unwrap_or(text);
        let name = bare
            .parse()
            .map_err(|DomainError { why, .. }| DomainError { written: text.to_owned(), why });
        name.map(Self)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_domain_ends_at_a_label() {
        for written in ["gov.uk", ".gov.uk", "*.gov.uk", "GOV.UK."] {
            let domain: Domain = written.parse().unwrap();
            for inside in ["gov.uk", "www.gov.uk", "A.B.Gov.Uk", "gov.uk."] {
                assert!(domain.covers(&name(inside)), "{inside}");
            }
            for outside in ["notgov.uk", "gov.uk.example", "uk", "v.uk", "gov-uk"] {
                assert!(!domain.covers(&name(outside)), "{outside}");
            }
        }
    }

    #[test]
    fn an_invalid_name_error_says_what_to_write() {
        let long = format!("{}.uk", "a".repeat(64));
        for wrong in [
            "",
            ".",
            "..uk",
            "a..b",
            "a b",
            "*",
            "gov.*",
            "192.0.2.7",
            "::1",
            "caf\u{e9}.fr",
            &long,
        ] {
            let error = wrong.parse::<Domain>().unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?} is not a domain")), "{error}");
            assert!(error.contains("write it like \"gov.uk\""), "{error}");
        }
        assert!("192.0.2.7".parse::<Name>().unwrap_err().why.contains("prefix"));
    }
}
