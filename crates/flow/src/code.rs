//! Reset codes: the reason for a flow's reset, in one byte.

use std::fmt;

/// Reason for a flow's end, unless both sides finished it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ResetCode {
    /// The destination refused the connection (ECONNREFUSED).
    Refused = 0,
    /// No route to the destination (EHOSTUNREACH, ENETUNREACH).
    Unreachable = 1,
    /// The destination did not answer in time.
    Timeout = 2,
    /// The destination's name has no address, or the name servers did not answer.
    NameNotFound = 3,
    /// The ground's policy does not allow the destination.
    Forbidden = 4,
    /// A limit on flows is reached.
    Limit = 5,
    /// The flow was idle for longer than its limit.
    Idle = 6,
    /// The application at the other end aborted the connection.
    Aborted = 7,
    /// Something failed inside a gateway.
    Internal = 8,
    /// The session between the gateways ended, and the flow with it.
    Lost = 9,
}

impl ResetCode {
    /// Every code.
    pub const ALL: [Self; 10] = [
        Self::Refused,
        Self::Unreachable,
        Self::Timeout,
        Self::NameNotFound,
        Self::Forbidden,
        Self::Limit,
        Self::Idle,
        Self::Aborted,
        Self::Internal,
        Self::Lost,
    ];

    /// Byte on the wire.
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// Returns the code of a wire byte. A byte of a later version is [`ResetCode::Internal`]: the
    /// flow ends either way.
    pub fn from_u8(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or(Self::Internal)
    }

    /// Status of the HTTP response to a request that fails for this reason.
    pub const fn http_status(self) -> u16 {
        self.row().0
    }

    /// The `error` parameter of `Proxy-Status` (RFC 9209, section 2.3).
    pub const fn proxy_error(self) -> &'static str {
        self.row().1
    }

    /// Returns the code with this [`proxy_error`](Self::proxy_error).
    pub fn from_proxy_error(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.proxy_error() == name)
    }

    /// Status and name in HTTP: the one table for CONNECT, CONNECT-UDP and plain requests.
    const fn row(self) -> (u16, &'static str) {
        match self {
            Self::Refused => (502, "connection_refused"),
            Self::Unreachable => (502, "destination_ip_unroutable"),
            Self::Timeout => (504, "connection_timeout"),
            Self::NameNotFound => (502, "dns_error"),
            Self::Forbidden => (403, "destination_ip_prohibited"),
            Self::Limit => (503, "connection_limit_reached"),
            Self::Idle => (504, "connection_read_timeout"),
            Self::Aborted => (502, "connection_terminated"),
            Self::Internal => (500, "proxy_internal_error"),
            Self::Lost => (503, "destination_unavailable"),
        }
    }

    /// Name in headers, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::NameNotFound => "name-not-found",
            Self::Forbidden => "forbidden",
            Self::Limit => "limit",
            Self::Idle => "idle",
            Self::Aborted => "aborted",
            Self::Internal => "internal",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for ResetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Refused => "the destination refused the connection",
            Self::Unreachable => "there is no route to the destination",
            Self::Timeout => "the destination did not answer in time",
            Self::NameNotFound => "the destination's name cannot be resolved",
            Self::Forbidden => "the destination is not allowed",
            Self::Limit => "too many connections are open",
            Self::Idle => "the connection was idle for too long",
            Self::Aborted => "the other end broke the connection off",
            Self::Internal => "the gateway failed",
            Self::Lost => "the session between the gateways ended",
        })
    }
}

impl std::error::Error for ResetCode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_bytes_round_trip() {
        for (byte, code) in (0..).zip(ResetCode::ALL) {
            assert_eq!(code.to_u8(), byte);
            assert_eq!(ResetCode::from_u8(byte), code);
            assert_eq!(ResetCode::from_proxy_error(code.proxy_error()), Some(code));
        }
        assert_eq!(ResetCode::from_u8(200), ResetCode::Internal);
    }
}
