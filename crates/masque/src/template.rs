//! The URI template of CONNECT-UDP (RFC 9298 §2) in its default form (§3):
//! `/.well-known/masque/udp/{target_host}/{target_port}/`.

use std::net::{Ipv4Addr, Ipv6Addr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const PREFIX: &str = "/.well-known/masque/udp/";

/// Characters that must be escaped in a variable: all but RFC 3986's unreserved ones (RFC 6570
/// §3.2.2).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Longest DNS name in characters (RFC 1035 §2.3.4).
const MAX_NAME: usize = 253;

/// Host and port of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    host: String,
    port: u16,
}

impl Target {
    /// Parses `host:port`, with an IPv6 address in brackets.
    pub fn from_authority(authority: &str) -> Option<Target> {
        let (host, port) = authority.rsplit_once(':')?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Target::new(bare.unwrap_or(host), port).filter(|to| bare.is_some() == to.is_v6())
    }

    /// Parses the path of a request. Returns `None` if the path does not match the template. Port
    /// 0, which no UDP target has, is for protocols without ports.
    pub fn from_path(path: &str) -> Option<Target> {
        let (host, rest) = path.strip_prefix(PREFIX)?.split_once('/')?;
        let port = rest.strip_suffix('/')?;
        Target::new(&percent_decode_str(host).decode_utf8().ok()?, port)
    }

    /// Formats `host:port`, with an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        let Target { host, port } = self;
        if self.is_v6() { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Formats the path of a request.
    pub fn path(&self) -> String {
        format!("{PREFIX}{}/{}/", utf8_percent_encode(&self.host, RESERVED), self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn new(host: &str, port: &str) -> Option<Target> {
        // Only digits: the number parser would accept a sign.
        let port = port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse().ok())??;
        // The parser rejects zone identifiers, which are meaningless to a peer (RFC 9298 §3).
        let known = host.parse::<Ipv4Addr>().is_ok() || host.parse::<Ipv6Addr>().is_ok();
        (known || is_name(host)).then(|| Target { host: host.to_owned(), port })
    }

    fn is_v6(&self) -> bool {
        self.host.contains(':')
    }
}

/// Returns `true` for letters, digits, hyphens and underscores between dots. Other names must be
/// A-labels.
fn is_name(host: &str) -> bool {
    let labels = host.strip_suffix('.').unwrap_or(host);
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    host.len() <= MAX_NAME + 1
        && labels.len() <= MAX_NAME
        && labels.split('.').all(|label| !label.is_empty() && label.bytes().all(good))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(path: &str) -> Option<String> {
        Target::from_path(path).map(|target| target.authority())
    }

    #[test]
    fn examples_of_rfc_9298_are_parsed() {
        for (path, authority) in [
            ("/.well-known/masque/udp/192.0.2.6/443/", "192.0.2.6:443"),
            ("/.well-known/masque/udp/2001%3Adb8%3A%3A42/443/", "[2001:db8::42]:443"),
            ("/.well-known/masque/udp/target.example.com/443/", "target.example.com:443"),
        ] {
            assert_eq!(parsed(path).as_deref(), Some(authority));
            assert_eq!(Target::from_authority(authority).unwrap().path(), path);
        }
        assert_eq!(
            parsed("/.well-known/masque/udp/2001%3adb8::42/443/").unwrap(),
            "[2001:db8::42]:443"
        );
    }

    #[test]
    fn malformed_paths_are_refused() {
        let long = format!("/.well-known/masque/udp/{}/1/", "a".repeat(MAX_NAME + 1));
        for bad in [
            "",
            "/",
            "/.well-known/masque/udp/",
            "/.well-known/masque/udp/a/1",
            "/.well-known/masque/udp/a/1/2/",
            "/.well-known/masque/udp//1/",
            "/.well-known/masque/udp/a//",
            "/.well-known/masque/udp/a/65536/",
            "/.well-known/masque/udp/a/+1/",
            "/.well-known/masque/udp/a/-1/",
            "/.well-known/masque/udp/a/1/?x=y",
            "/.well-known/masque/udp/a%2Fb/1/",
            "/.well-known/masque/udp/a%00/1/",
            "/.well-known/masque/udp/a%/1/",
            "/.well-known/masque/udp/%FF/1/",
            "/.well-known/masque/udp/a%20b/1/",
            "/.well-known/masque/udp/a..b/1/",
            "/.well-known/masque/udp/a%3A80/1/",
            "/.well-known/masque/udp/%5B::1%5D/1/",
            "/.well-known/masque/udp/fe80::1%25eth0/1/",
            "/.well-known/masque/ip/a/1/",
            &long,
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
        for bad in ["", "a", "a:", ":1", "::1:1", "[::1]", "[a]:1", "[1.2.3.4]:1", "a:b:1", "u@a:1"]
        {
            assert_eq!(Target::from_authority(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn targets_round_trip(name in "[a-z0-9_-]{1,20}(\\.[A-Z0-9]{1,20}){0,5}", v6: u128, v4: u32, port: u16) {
            let v6 = format!("[{}]", Ipv6Addr::from(v6));
            for host in [name, v6, Ipv4Addr::from(v4).to_string()] {
                let authority = format!("{host}:{port}");
                let path = Target::from_authority(&authority).unwrap().path();
                prop_assert!(path.parse::<http::uri::PathAndQuery>().is_ok());
                prop_assert_eq!(parsed(&path), Some(authority));
            }
        }

        #[test]
        fn any_path_is_survived(path in "(/\\.well-known/masque/udp/)?.{0,80}") {
            if let Some(target) = Target::from_path(&path) {
                let authority = target.authority();
                prop_assert!(authority.parse::<http::uri::Authority>().is_ok(), "{}", authority);
                prop_assert_eq!(Target::from_authority(&authority), Some(target));
            }
        }
    }
}
