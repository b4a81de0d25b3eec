//! Protocols over which a site is loaded.

use std::fmt;
use std::str::FromStr;

/// A way to load a site. The names are those of `experiments/README.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Plain HTTP/1.1 with several persistent connections to each domain.
    Http1,
    /// Plain HTTP/1.1 with a connection for each object.
    Http1Close,
    /// HTTP/1.1 over TLS with a full handshake on each connection.
    Http1Tls,
    /// HTTP/1.1 over TLS with an abbreviated handshake, if there was a visit before.
    Http1TlsResumed,
    /// HTTP/2 over TLS, one connection to each domain.
    Http2,
    /// HTTP/2 on one connection to a proxy that serves all domains.
    Http2Proxied,
    /// HTTP/3 with one connection to each domain, with a full handshake.
    Http3,
    /// HTTP/3 with requests in the first packets (0-RTT), if there was a visit before.
    Http3ZeroRtt,
}

/// No protocol has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no protocol {0:?}: there are {names}", names = Protocol::names())]
pub struct UnknownProtocol(String);

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 8] = [
        Self::Http1,
        Self::Http1Close,
        Self::Http1Tls,
        Self::Http1TlsResumed,
        Self::Http2,
        Self::Http2Proxied,
        Self::Http3,
        Self::Http3ZeroRtt,
    ];

    /// Name of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::Http1Close => "http/1.1-close",
            Self::Http1Tls => "http/1.1-tls",
            Self::Http1TlsResumed => "http/1.1-tls-resumed",
            Self::Http2 => "http/2",
            Self::Http2Proxied => "http/2-proxied",
            Self::Http3 => "http/3",
            Self::Http3ZeroRtt => "http/3-0rtt",
        }
    }

    /// Returns `true` if requests are encrypted.
    pub fn is_secure(self) -> bool {
        !matches!(self, Self::Http1 | Self::Http1Close)
    }

    /// Returns `true` if a connection carries many requests at once.
    pub fn is_multiplexed(self) -> bool {
        self.version() != Version::Http1
    }

    /// Returns `true` if it uses UDP.
    pub fn is_quic(self) -> bool {
        self.version() == Version::Http3
    }

    /// Returns `true` if it uses the sessions of an earlier visit, which [`super::warm`] can make.
    pub fn resumes(self) -> bool {
        matches!(self, Self::Http1TlsResumed | Self::Http3ZeroRtt)
    }

    /// HTTP version in HAR.
    pub(super) fn har_version(self) -> &'static str {
        match self.version() {
            Version::Http1 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
            Version::Http3 => "HTTP/3",
        }
    }

    pub(super) fn version(self) -> Version {
        match self {
            Self::Http1 | Self::Http1Close | Self::Http1Tls | Self::Http1TlsResumed => {
                Version::Http1
            }
            Self::Http2 | Self::Http2Proxied => Version::Http2,
            Self::Http3 | Self::Http3ZeroRtt => Version::Http3,
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

/// Version of HTTP, independent of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
    Http3,
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(text: &str) -> Result<Self, UnknownProtocol> {
        let named = Self::ALL.into_iter().find(|protocol| protocol.name() == text);
        named.ok_or_else(|| UnknownProtocol(text.into()))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
