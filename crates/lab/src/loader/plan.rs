//! Description of a page load.

use std::time::Duration;

use super::{Protocol, Qlog};
use crate::emu::Congestion;
use crate::site::{Ports, Site, TlsVersion};

/// Connections to one domain over HTTP/1.1, as in Chromium, Firefox and Safari.
pub const DEFAULT_CONNECTIONS: usize = 6;

/// Flow-control window of one stream of HTTP/2 or HTTP/3 at the client, as in Chromium. It allows
/// 80 Mbit/s at a round trip of 600 ms.
pub const STREAM_WINDOW_BYTES: u32 = 6 << 20;

/// Slot length of [`Visit::rates`](super::Visit::rates).
pub const RATE_SLOT: Duration = Duration::from_millis(100);

/// A page load.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Site to load.
    pub site: &'a Site,
    /// Protocol of the load.
    pub protocol: Protocol,
    /// Maximum connections to each domain over HTTP/1.1. With [`Load::connect_retry`] also the
    /// maximum attempts for one connection over HTTP/2.
    pub connections: usize,
    /// Maximum concurrent requests on one connection of HTTP/2 or HTTP/3. `None` means
    /// [`DEFAULT_MAX_STREAMS`](crate::site::DEFAULT_MAX_STREAMS).
    pub max_streams: Option<u32>,
    /// Version of TLS over TCP. QUIC always uses 1.3.
    pub tls: TlsVersion,
    /// Time after which another TCP connection is tried if the handshake of the first has not
    /// completed (Chrome's `kMaxConnectRetryIntervalMs`, Rural-PAWS section VIII).
    pub connect_retry: Option<Duration>,
    /// Size to which the document's request header is padded, in the form of HTTP/1.1. The other
    /// requests have the same user agent, and so nearly the same size.
    pub header_bytes: Option<usize>,
    /// Enables TCP Fast Open (RFC 7413): a request is sent with the SYN if the server is known from
    /// before.
    pub fast_open: bool,
    /// Congestion control of QUIC.
    pub congestion: Congestion,
    /// Time at which the load is cut off.
    pub deadline: Duration,
    /// `true` if the bytes of each connection are counted in slots of [`RATE_SLOT`].
    pub rates: bool,
    /// Log of QUIC's connections, if any.
    pub qlog: Option<&'a Qlog>,
    /// Ports of the servers.
    pub ports: Ports,
}

impl<'a> Load<'a> {
    /// A load with six connections, TLS 1.3, CUBIC and the protocols' default ports.
    pub fn new(site: &'a Site, protocol: Protocol, deadline: Duration) -> Self {
        Self {
            site,
            protocol,
            connections: DEFAULT_CONNECTIONS,
            max_streams: None,
            tls: TlsVersion::Tls13,
            connect_retry: None,
            header_bytes: None,
            fast_open: false,
            congestion: Congestion::Cubic,
            deadline,
            rates: false,
            qlog: None,
            ports: Ports::default(),
        }
    }

    /// Scheme of the document's URL.
    pub fn scheme(&self) -> &'static str {
        if self.protocol.is_secure() { "https" } else { "http" }
    }
}
