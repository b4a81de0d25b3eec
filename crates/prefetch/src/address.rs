//! A URL that the halves may speak of.

use std::fmt;

use url::Url;

/// The longest URL, in bytes: longer ones are asked for across the link as ever.
pub const MAX_URL_BYTES: usize = 2048;

/// An absolute `http` or `https` URL without credentials and without a fragment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Url);

/// A scheme, a host and a port (RFC 6454), as connections are kept by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Whether TLS is spoken.
    pub is_secure: bool,
    /// The host: a name in lower case, or an address, IPv6 in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Why a text is no [`Address`].
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
    /// Nothing listens at port 0.
    #[error("its port is 0")]
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

    /// What `reference` means on a page whose base is this (RFC 3986 section 5, as browsers do it).
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
        if url.port() == Some(0) {
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

    /// Whether it is asked for over TLS.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Where it is to be had.
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
            ("http://[::1/", AddressError::Syntax),
            ("http:///", AddressError::Syntax),
        ] {
            assert_eq!(join(wrong), Err(why), "{wrong}");
        }
        assert_eq!(join(&"a".repeat(MAX_URL_BYTES)), Err(AddressError::Long));
        assert_eq!(Address::parse("/relative"), Err(AddressError::Syntax));
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
