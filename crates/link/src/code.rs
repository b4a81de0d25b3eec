//! Reset codes: the reason for which a flow was reset, as one byte.

use std::fmt;

/// The reason a flow ended other than by both sides finishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ResetCode {
    /// The destination refused the connection (ECONNREFUSED).
    Refused = 0,
    /// No route to the destination (EHOSTUNREACH, ENETUNREACH).
    Unreachable = 1,
    /// The destination did not answer in time.
    Timeout = 2,
    /// The destination's name has no address.
    NameNotFound = 3,
    /// The ground's policy does not allow the destination.
    Forbidden = 4,
    /// A limit on flows is reached.
    Limit = 5,
    /// Nothing moved on the flow for longer than its idle limit.
    Idle = 6,
    /// The application at the other end broke the connection off.
    Aborted = 7,
    /// Something failed inside a gateway.
    Internal = 8,
}

impl ResetCode {
    /// Every code.
    pub const ALL: [Self; 9] = [
        Self::Refused,
        Self::Unreachable,
        Self::Timeout,
        Self::NameNotFound,
        Self::Forbidden,
        Self::Limit,
        Self::Idle,
        Self::Aborted,
        Self::Internal,
    ];

    /// The byte that stands for this code on the wire.
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// The code a wire byte stands for. A byte of a later version is
    /// [`ResetCode::Internal`]: the flow ends either way.
    pub fn from_u8(byte: u8) -> Self {
        Self::ALL.get(usize::from(byte)).copied().unwrap_or(Self::Internal)
    }

    /// The name used in headers, logs and metrics.
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
        }
    }
}

impl fmt::Display for ResetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Refused => "the destination refused the connection",
            Self::Unreachable => "there is no route to the destination",
            Self::Timeout => "the destination did not answer in time",
            Self::NameNotFound => "the destination's name has no address",
            Self::Forbidden => "the destination is not allowed",
            Self::Limit => "too many connections are open",
            Self::Idle => "the connection was idle for too long",
            Self::Aborted => "the other end broke the connection off",
            Self::Internal => "the gateway failed",
        })
    }
}

impl std::error::Error for ResetCode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_bytes_read_back() {
        for (byte, code) in (0..).zip(ResetCode::ALL) {
            assert_eq!(code.to_u8(), byte);
            assert_eq!(ResetCode::from_u8(byte), code);
        }
        assert_eq!(ResetCode::from_u8(200), ResetCode::Internal);
    }
}
