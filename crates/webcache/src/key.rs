//! Keys of stored objects.

use std::fmt;
use std::sync::Arc;

use blake2::{Blake2s256, Digest};

/// Maximum length of a key, bytes. Objects with a longer address are never stored.
pub const MAX_KEY_BYTES: usize = 4096;

/// Scheme of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS, opened by somebody who is entitled to do so.
    Https,
}

impl Scheme {
    /// Name of the scheme in a URL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Address of an object: scheme, host, port, path and query. A [`Selection`](crate::Selection)
/// chooses among the responses under one key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Creates the key of a path at a host. `path` begins with `/` and includes the query. The case
    /// of `host` does not matter. Returns `None` if the key is too long.
    pub fn new(scheme: Scheme, host: &str, port: u16, path: &str) -> Option<Self> {
        let host = host.to_ascii_lowercase();
        let text = format!("{}://{host}:{port}{path}", scheme.name());
        Self::parse(&text)
    }

    /// Parses the output of [`Key::as_str`]. Returns `None` if `text` cannot be such output.
    pub fn parse(text: &str) -> Option<Self> {
        let good = text.len() <= MAX_KEY_BYTES
            && text.bytes().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii())
            && text.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        good.then(|| Self(text.into()))
    }

    /// The smallest key in sort order that begins with `prefix`. Only for comparisons.
    pub(crate) fn least(prefix: &str) -> Self {
        Self(prefix.into())
    }

    /// The key as text, for example `http://example.net:80/a?b=c`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 64 bits of the key's BLAKE2s hash, for cache digests.
    pub fn hash64(&self) -> u64 {
        let hash = Blake2s256::digest(self.0.as_bytes());
        u64::from_be_bytes(hash[..8].try_into().expect("a hash of 32 bytes has 8"))
    }

    /// Key of `reference`, a Location or Content-Location value, if it has the same origin.
    pub fn same_origin(&self, reference: &str) -> Option<Self> {
        let after_scheme = self.0.find("://")? + 3;
        let path_at = after_scheme + self.0[after_scheme..].find('/')?;
        let origin = &self.0[..path_at];
        if reference.starts_with('/') && !reference.starts_with("//") {
            return Self::parse(&format!("{origin}{reference}"));
        }
        let uri: http::Uri = reference.parse().ok()?;
        let scheme = match uri.scheme_str()? {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let default = if scheme == Scheme::Http { 80 } else { 443 };
        let port = uri.port_u16().unwrap_or(default);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let key = Self::new(scheme, uri.host()?, port, path)?;
        key.0.strip_prefix(origin)?.starts_with('/').then_some(key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> Key {
        Key::new(Scheme::Http, "Example.NET", 80, path).unwrap()
    }

    #[test]
    fn hosts_ignore_case_and_paths_do_not() {
        assert_eq!(key("/A?b").as_str(), "http://example.net:80/A?b");
        assert_ne!(key("/a").hash64(), key("/A").hash64());
        assert_eq!(Key::parse(key("/a").as_str()), Some(key("/a")));
        assert!(Key::new(Scheme::Http, "a", 80, &"/".repeat(MAX_KEY_BYTES)).is_none());
        assert!(Key::parse("http://a b/").is_none() && Key::parse("a").is_none());
    }

    #[test]
    fn references_to_other_origins_have_no_key() {
        let base = key("/x/y");
        assert_eq!(base.same_origin("/a"), Some(key("/a")));
        assert_eq!(base.same_origin("http://EXAMPLE.net/a?b"), Some(key("/a?b")));
        for other in [
            "//evil/a",
            "http://example.net:81/a",
            "https://example.net/",
            "http://example.net.evil/",
        ] {
            assert_eq!(base.same_origin(other), None, "{other}");
        }
    }
}
