//! Protocols over which a site is loaded.

use std::fmt;
use std::str::FromStr;

use rustls::SupportedProtocolVersion;

/// A way to load a site, by the names of `experiments/README.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// In clear, several connections to each domain, kept open.
    Http1,
    /// In clear, a connection for each object.
    Http1Close,
    /// Over TLS with a full handshake on each connection.
    Http1Tls,
    /// Over TLS with an abbreviated handshake, where there was a visit before.
    Http1TlsResumed,
    /// Over TLS, one connection to each domain.
    Http2,
    /// One connection to a proxy that serves all domains.
    Http2Proxied,
    /// Over QUIC, one connection to each domain, a full handshake.
    Http3,
    /// Over QUIC, requests in the first packets, where there was a visit before.
    Http3ZeroRtt,
}

/// The name is not a protocol's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no protocol {0:?}: there are {names}", names = Protocol::names())]
pub struct UnknownProtocol(String);

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246: two round trips, one for a session that is resumed.
    Tls12,
    /// RFC 8446: one round trip.
    Tls13,
}

impl Protocol {
    /// All of them.
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

    /// Its name.
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

    /// Returns `true` if it crosses the network in UDP.
    pub fn is_quic(self) -> bool {
        self.version() == Version::Http3
    }

    /// Returns `true` if an earlier visit matters; [`super::warm`] makes one.
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

/// The version of HTTP alone.
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

impl TlsVersion {
    pub(crate) fn version(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::Tls12 => &rustls::version::TLS12,
            Self::Tls13 => &rustls::version::TLS13,
        }
    }
}

impl FromStr for TlsVersion {
    type Err = UnknownTls;

    fn from_str(text: &str) -> Result<Self, UnknownTls> {
        match text {
            "1.2" => Ok(Self::Tls12),
            "1.3" => Ok(Self::Tls13),
            _ => Err(UnknownTls(text.into())),
        }
    }
}

/// The text is not a version of TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no TLS {0:?} here: write 1.2 or 1.3")]
pub struct UnknownTls(String);
