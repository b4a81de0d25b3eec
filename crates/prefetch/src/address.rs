//! URLs that both gateways can process.

use std::fmt;

use url::Url;

/// Maximum length of a URL, bytes. Longer ones are requested across the link as usual.
pub const MAX_URL_BYTES: usize = 2048;

/// Ports that browsers refuse to use (WHATWG Fetch, "port blocking"), sorted. Servers on them speak
/// other protocols, and may misinterpret a request. 0 is not a port.
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

/// A scheme, a host and a port (RFC 6454).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// `true` for TLS.
    pub is_secure: bool,
    /// Host: a name in lower case, or an address, IPv6 in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Reason why a text is not an [`Address`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not a URL.
    #[error("it is not an absolute URL")]
    Syntax,
    /// Neither `http` nor `https`.
    #[error("its scheme is neither http nor https")]
    Scheme,
    /// The URL has a username or a password, so its content is personal.
    #[error("it has a username or a password in it")]
    Credentials,
    /// Port 0, or a port that browsers refuse because it belongs to another protocol.
    #[error("its port is one that browsers do not ask")]
    Port,
    /// More than [`MAX_URL_BYTES`].
    #[error("it is longer than {MAX_URL_BYTES} bytes")]
    Long,
}

impl Address {
    /// Parses an absolute URL.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.len() > MAX_URL_BYTES {
            return Err(AddressError::Long);
        }
        Self::checked(Url::parse(text).map_err(|_| AddressError::Syntax)?)
    }

    /// Resolves `reference` against this base (RFC 3986 section 5, like browsers do).
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
        // The parser guarantees a host and a default port for both schemes.
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

    /// The normalized text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Host, as in [`Origin::host`].
    pub fn host(&self) -> &str {
        // checked() refuses URLs without a host.
        self.0.host_str().unwrap_or_default()
    }

    /// Returns `true` for `https`.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Origin of the address.
    pub fn origin(&self) -> Origin {
        let is_secure = self.is_secure();
        let port = self.0.port().unwrap_or(if is_secure { 443 } else { 80 });
        Origin { is_secure, host: self.host().to_owned(), port }
    }

    /// Path and query, as in a request line.
    pub fn path_and_query(&self) -> &str {
        &self.0[url::Position::BeforePath..url::Position::AfterQuery]
    }

    /// Value for the `Host` field: the host, and the port unless it is the scheme's default.
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
    fn only_plain_web_addresses_are_accepted() {
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
    fn blocked_ports_are_sorted() {
        assert!(BLOCKED_PORTS.is_sorted());
        assert!([80, 443, 8080].iter().all(|port| BLOCKED_PORTS.binary_search(port).is_err()));
    }

    #[test]
    fn parts_of_an_address_form_a_request() {
        let address = Address::parse("https://[2001:db8::1]:8443/x/y?z=1").unwrap();
        assert_eq!(address.authority(), "[2001:db8::1]:8443");
        assert_eq!(address.path_and_query(), "/x/y?z=1");
        assert_eq!(address.origin().to_string(), "https://[2001:db8::1]:8443");
        assert_eq!(Address::parse("http://a.test").unwrap().path_and_query(), "/");
    }

    proptest! {
        #[test]
        fn every_address_has_one_normal_form(text in "(https?://)?[a-z0-9.@:/?#%\\[\\] -]{0,40}") {
            let base = Address::parse("http://base.test/dir/").unwrap();
            if let Ok(address) = base.join(&text) {
                prop_assert_eq!(Address::parse(address.as_str()), Ok(address.clone()));
                prop_assert!(address.path_and_query().starts_with('/'));
                prop_assert!(!address.authority().contains('@'));
            }
        }
    }
}
