//! Parameters on which the servers of a site and its clients agree.

use std::str::FromStr;

use rustls::SupportedProtocolVersion;

/// Default maximum of concurrent requests on a connection of HTTP/2 or HTTP/3: the value of many
/// servers, including that of Rural-PAWS.
pub const DEFAULT_MAX_STREAMS: u32 = 100;
/// Connection-level window of QUIC, as in Chromium: 200 Mbit/s at 600 ms.
pub const QUIC_WINDOW_BYTES: u64 = 15 << 20;

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246: two round trips, or one with session resumption.
    Tls12,
    /// RFC 8446: one round trip.
    Tls13,
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

/// The text does not name a supported version of TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no TLS {0:?} here: write 1.2 or 1.3")]
pub struct UnknownTls(String);
