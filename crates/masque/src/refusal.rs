//! Reasons for which a flow was not opened, or was cut: on the wire an HTTP status and a
//! `proxy-status` error, or an HTTP/3 error code.

use std::fmt;

use h3::error::Code;
use http::StatusCode;

/// Reason for which a flow was refused or reset.
///
/// Before the response it travels as a status and an error name of RFC 9209; after it as the
/// application error code of RESET_STREAM or STOP_SENDING (RFC 9114 §8.1), which knows fewer
/// reasons: see [`Refusal::h3_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The destination refused the connection.
    Refused,
    /// There is no route to the destination, or no connection to the ground.
    Unreachable,
    /// The destination did not answer in time.
    Timeout,
    /// The name does not exist or could not be resolved.
    NameNotFound,
    /// The far end's policy forbids the destination, or does not know this client.
    Forbidden,
    /// A limit of the far end is reached.
    Limit,
    /// The flow was reaped after its idle limit.
    Idle,
    /// The connection was cut by the peer (a TCP RST) or its carrier was lost.
    Aborted,
    /// A fault in the far end itself, or an answer that makes no sense.
    Internal,
}

/// Each reason with its status and its name in the registry of RFC 9209 §2.3.
const TABLE: [(Refusal, u16, &str); 9] = [
    (Refusal::Refused, 502, "connection_refused"),
    (Refusal::Unreachable, 502, "destination_ip_unroutable"),
    (Refusal::Timeout, 504, "connection_timeout"),
    (Refusal::NameNotFound, 502, "dns_error"),
    (Refusal::Forbidden, 403, "destination_ip_prohibited"),
    (Refusal::Limit, 503, "connection_limit_reached"),
    (Refusal::Idle, 504, "connection_read_timeout"),
    (Refusal::Aborted, 502, "connection_terminated"),
    (Refusal::Internal, 500, "proxy_internal_error"),
];

impl Refusal {
    /// The status that answers a CONNECT refused for this reason.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The `error` parameter of `proxy-status` (RFC 9209 §2.3).
    pub fn proxy_error(self) -> &'static str {
        self.row().2
    }

    /// The reason behind a response that is not 2xx: its `proxy-status` error when it names one we
    /// know, else the nearest reason for its status.
    pub fn from_response(status: StatusCode, proxy_status: Option<&str>) -> Refusal {
        let named = proxy_status.and_then(error_parameter).and_then(|name| {
            let known = TABLE.iter().find(|row| row.2 == name).map(|row| row.0);
            known.or(match name {
                "dns_timeout" => Some(Refusal::NameNotFound),
                "destination_not_found" | "destination_unavailable" => Some(Refusal::Unreachable),
                "http_request_denied" => Some(Refusal::Forbidden),
                "connection_write_timeout" => Some(Refusal::Timeout),
                _ => None,
            })
        });
        named.unwrap_or(match status.as_u16() {
            401 | 403 | 407 => Refusal::Forbidden,
            408 | 504 => Refusal::Timeout,
            429 | 503 => Refusal::Limit,
            502 => Refusal::Unreachable,
            _ => Refusal::Internal,
        })
    }

    /// The HTTP/3 error code that resets an open flow for this reason: H3_CONNECT_ERROR for
    /// whatever befell the TCP connection (RFC 9114 §4.4), H3_REQUEST_CANCELLED for a flow that is
    /// no longer wanted, H3_REQUEST_REJECTED, H3_EXCESSIVE_LOAD and H3_INTERNAL_ERROR for policy,
    /// limits and faults.
    pub fn h3_code(self) -> u64 {
        match self {
            Refusal::Refused
            | Refusal::Unreachable
            | Refusal::Timeout
            | Refusal::NameNotFound
            | Refusal::Aborted => Code::H3_CONNECT_ERROR,
            Refusal::Idle => Code::H3_REQUEST_CANCELLED,
            Refusal::Forbidden => Code::H3_REQUEST_REJECTED,
            Refusal::Limit => Code::H3_EXCESSIVE_LOAD,
            Refusal::Internal => Code::H3_INTERNAL_ERROR,
        }
        .value()
    }

    /// Meaning of a peer's error code: the reverse of [`Refusal::h3_code`] if that has one, and
    /// [`Refusal::Aborted`] for anything else.
    pub fn from_h3_code(code: u64) -> Refusal {
        match Code::from(code) {
            Code::H3_REQUEST_REJECTED => Refusal::Forbidden,
            Code::H3_EXCESSIVE_LOAD => Refusal::Limit,
            Code::H3_INTERNAL_ERROR => Refusal::Internal,
            _ => Refusal::Aborted,
        }
    }

    fn row(self) -> (Refusal, u16, &'static str) {
        // Declared in the order of the enum; the test below holds it to that.
        TABLE[self as usize]
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Refused => "the destination refused the connection",
            Refusal::Unreachable => "the destination cannot be reached",
            Refusal::Timeout => "the destination did not answer in time",
            Refusal::NameNotFound => "the name could not be resolved",
            Refusal::Forbidden => "the destination is forbidden",
            Refusal::Limit => "a limit is reached",
            Refusal::Idle => "the flow was idle for too long",
            Refusal::Aborted => "the connection was cut",
            Refusal::Internal => "an internal error of the far end",
        })
    }
}

/// The value of `error=` in the last member of a `proxy-status` list, which is the proxy nearest to
/// the reader (RFC 9209 §2).
fn error_parameter(header: &str) -> Option<&str> {
    let member = header.rsplit(',').next()?;
    let value = member.split(';').find_map(|part| part.trim().strip_prefix("error="))?;
    Some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_response() {
        for (place, (refusal, ..)) in TABLE.into_iter().enumerate() {
            assert_eq!(refusal as usize, place, "TABLE is in the enum's order");
            let header = format!("ground; error={}", refusal.proxy_error());
            let back = Refusal::from_response(refusal.status(), Some(&header));
            assert_eq!(back, refusal);
        }
    }

    #[test]
    fn other_peoples_answers_have_a_nearest_reason() {
        let of = |status: u16, header| {
            Refusal::from_response(StatusCode::from_u16(status).unwrap(), header)
        };
        assert_eq!(
            of(502, Some("a; error=dns_error, b; error=dns_timeout; rcode=2")),
            Refusal::NameNotFound
        );
        assert_eq!(of(403, None), Refusal::Forbidden);
        assert_eq!(of(407, Some("a")), Refusal::Forbidden);
        assert_eq!(of(504, Some("a; error=made_up")), Refusal::Timeout);
        assert_eq!(of(503, None), Refusal::Limit);
        assert_eq!(of(418, None), Refusal::Internal);
    }

    #[test]
    fn codes_of_the_standard() {
        assert_eq!(Refusal::Aborted.h3_code(), 0x10f);
        assert_eq!(Refusal::from_h3_code(0x10f), Refusal::Aborted);
        assert_eq!(Refusal::from_h3_code(0x10c), Refusal::Aborted);
        assert_eq!(Refusal::from_h3_code(Refusal::Limit.h3_code()), Refusal::Limit);
        assert_eq!(Refusal::from_h3_code(u64::MAX), Refusal::Aborted);
    }
}
