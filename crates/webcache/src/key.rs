//! Key of a stored object.

use std::fmt;
use std::sync::Arc;

use blake2::{Blake2s256, Digest};

/// The longest key, in bytes. Longer addresses are never stored.
pub const MOST_KEY_BYTES: usize = 4096;

/// Scheme by which the origin is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// In clear.
    Http,
    /// With TLS, which somebody with the right to it has opened.
    Https,
}

impl Scheme {
    /// As it stands before `://`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The address of an object: scheme, host, port, path and query. What varies below it is chosen by
/// [`Selection`](crate::Selection).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of `path` (with its query; it begins with `/`) at `host`, which has no case. `None`
    /// where it is too long.
    pub fn new(scheme: Scheme, host: &str, port: u16, path: &str) -> Option<Self> {
        let host = host.to_ascii_lowercase();
        let text = format!("{}://{host}:{port}{path}", scheme.name());
        Self::parse(&text)
    }

    /// A key as [`Key::as_str`] gave it; `None` where this cannot have come from there.
    pub fn parse(text: &str) -> Option<Self> {
        let good = text.len() <= MOST_KEY_BYTES
            && text.bytes().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii())
            && text.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        good.then(|| Self(text.into()))
    }

    /// The least text that begins with `prefix`; only for comparing.
    pub(crate) fn least(prefix: &str) -> Self {
        Self(prefix.into())
    }

    /// `http://example.net:80/a?b=c`
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 64 bits of its BLAKE2s: what a digest of the cache is made of.
    pub fn hash64(&self) -> u64 {
        let hash = Blake2s256::digest(self.0.as_bytes());
        u64::from_be_bytes(hash[..8].try_into().expect("a hash of 32 bytes has 8"))
    }

    /// The key of `reference` (of a Location or Content-Location field) where it has the same origin.
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
    fn hosts_have_no_case_and_paths_have() {
        assert_eq!(key("/A?b").as_str(), "http://example.net:80/A?b");
        assert_ne!(key("/a").hash64(), key("/A").hash64());
        assert_eq!(Key::parse(key("/a").as_str()), Some(key("/a")));
        assert!(Key::new(Scheme::Http, "a", 80, &"/".repeat(MOST_KEY_BYTES)).is_none());
        assert!(Key::parse("http://a b/").is_none() && Key::parse("a").is_none());
    }

    #[test]
    fn references_stay_within_the_origin() {
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
