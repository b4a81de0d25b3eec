//! A URL that the halves may speak of.

use std::fmt;

use url::Url;

/// The longest URL, in bytes: longer ones are asked for across the link as ever.
pub const MAX_URL_BYTES: usize = 2048;

/// The ports that browsers ask nothing of (WHATWG Fetch, "port blocking"), in order: whoever listens there
/// speaks another protocol, and may take a request for something that it knows. 0 is none.
const BLOCKED_PORTS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
    465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
    993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667,
    6668, 6669, 6679, 6697, 10080,
];

/// An absolute `http` or `https` URL without credentials and without a fragment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Url);

/// A scheme, a host and a port (RFC 6454), as connections are kept by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// `true` for TLS.
    pub is_secure: bool,
    /// The host: a name in lower case, or an address, IPv6 in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Reason for which a text is not an [`Address`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is no URL.
    #[error("it is not an absolute URL")]
    Syntax,
    /// Something else than HTTP.
    #[error("its scheme is neither http nor https")]
    Scheme,
    /// A username or password is in it: what it opens is nobody else's.
    #[error("it has a username or a password in it")]
    Credentials,
    /// A port that browsers ask nothing of, because another protocol is spoken there, or 0.
    #[error("its port is one that browsers do not ask")]
    Port,
    /// More than [`MAX_URL_BYTES`].
    #[error("it is longer than {MAX_URL_BYTES} bytes")]
    Long,
}

impl Address {
    /// Reads an absolute URL.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.len() > MAX_URL_BYTES {
            return Err(AddressError::Long);
        }
        Self::checked(Url::parse(text).map_err(|_| AddressError::Syntax)?)
    }

    /// Resolves `reference` on a page with this base (RFC 3986 section 5, as browsers do it).
    pub fn join(&self, reference: &str) -> Result<Self, AddressError> {
        if reference.len() > MAX_URL_BYTES {
            return Err(AddressError::Long);
        }
        Self::checked(self.0.join(reference).map_err(|_| AddressError::Syntax)?)
    }

    fn checked(mut url: Url) -> Result<Self, AddressError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(AddressError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressError::Credentials);
        }
        // Both schemes have a host and a default port: the parser refuses them without.
        if url.host_str().is_none_or(str::is_empty) {
            return Err(AddressError::Syntax);
        }
        if url.port().is_some_and(|port| BLOCKED_PORTS.binary_search(&port).is_ok()) {
            return Err(AddressError::Port);
        }
        url.set_fragment(None);
        if url.as_str().len() > MAX_URL_BYTES {
            return Err(AddressError::Long);
        }
        Ok(Self(url))
    }

    /// The one spelling of it.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The host, as in [`Origin::host`].
    pub fn host(&self) -> &str {
        // checked() refuses URLs without one.
        self.0.host_str().unwrap_or_default()
    }

    /// Returns `true` if it is requested over TLS.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Origin of the address.
    pub fn origin(&self) -> Origin {
        let is_secure = self.is_secure();
        let port = self.0.port().unwrap_or(if is_secure { 443 } else { 80 });
        Origin { is_secure, host: self.host().to_owned(), port }
    }

    /// The path and the query, as a request's first line has them.
    pub fn path_and_query(&self) -> &str {
        &self.0[url::Position::BeforePath..url::Position::AfterQuery]
    }

    /// The host, and the port where it is not the scheme's own: what a `Host` header says.
    pub fn authority(&self) -> &str {
        &self.0[url::Position::BeforeHost..url::Position::AfterPort]
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_plain_web_addresses_pass() {
        let page = Address::parse("http://Example.org:80/a/b?q#part").unwrap();
        assert_eq!(page.as_str(), "http://example.org/a/b?q");
        let join = |text: &str| page.join(text).map(|address| address.to_string());
        assert_eq!(join("../c.css").as_deref(), Ok("http://example.org/c.css"));
        assert_eq!(join("//cdn.test:8080/x").as_deref(), Ok("http://cdn.test:8080/x"));
        assert_eq!(join("#top").as_deref(), Ok("http://example.org/a/b?q"));
        for (wrong, why) in [
            ("data:image/png;base64,AA==", AddressError::Scheme),
            ("javascript:alert(1)", AddressError::Scheme),
            ("file:///etc/passwd", AddressError::Scheme),
            ("ftp://example.org/", AddressError::Scheme),
            ("http://user@example.org/", AddressError::Credentials),
            ("http://:secret@example.org/", AddressError::Credentials),
            ("http://example.org:0/", AddressError::Port),
            ("http://example.org:25/", AddressError::Port),
            ("https://example.org:10080/", AddressError::Port),
            ("http://[::1/", AddressError::Syntax),
            ("http:///", AddressError::Syntax),
        ] {
            assert_eq!(join(wrong), Err(why), "{wrong}");
        }
        assert_eq!(join(&"a".repeat(MAX_URL_BYTES)), Err(AddressError::Long));
        assert_eq!(Address::parse("/relative"), Err(AddressError::Syntax));
    }

    #[test]
    fn ports_of_other_protocols_are_in_order() {
        assert!(BLOCKED_PORTS.is_sorted());
        assert!([80, 443, 8080].iter().all(|port| BLOCKED_PORTS.binary_search(port).is_err()));
    }

    #[test]
    fn a_request_is_made_of_its_parts() {
        let address = Address::parse("https://[2001:db8::1]:8443/x/y?z=1").unwrap();
        assert_eq!(address.authority(), "[2001:db8::1]:8443");
        assert_eq!(address.path_and_query(), "/x/y?z=1");
        assert_eq!(address.origin().to_string(), "https://[2001:db8::1]:8443");
        assert_eq!(Address::parse("http://a.test").unwrap().path_and_query(), "/");
    }

    proptest! {
        #[test]
        fn every_address_has_one_spelling(text in "(https?://)?[a-z0-9.@:/?#%\\[\\] -]{0,40}") {
            let base = Address::parse("http://base.test/dir/").unwrap();
            if let Ok(address) = base.join(&text) {
                prop_assert_eq!(Address::parse(address.as_str()), Ok(address.clone()));
                prop_assert!(address.path_and_query().starts_with('/'));
                prop_assert!(!address.authority().contains('@'));
            }
        }
    }
}
