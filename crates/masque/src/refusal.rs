//! Reset codes on the wire: an HTTP status with a `proxy-status` error, or an HTTP/3 error code.
//!
//! In a response a reason is a status and an error name of RFC 9209. After the response it is the
//! application error code of RESET_STREAM or STOP_SENDING (RFC 9114 §8.1), which has fewer reasons.

use bentpipe_flow::ResetCode;
use h3::error::Code;
use http::StatusCode;

/// Status of a response that refuses a CONNECT for the reason `why`.
pub(crate) fn status(why: ResetCode) -> StatusCode {
    StatusCode::from_u16(why.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Reason of a response that is not 2xx: its `proxy-status` error if that is known, otherwise the
/// best match for its status.
pub(crate) fn from_response(status: StatusCode, proxy_status: Option<&str>) -> ResetCode {
    let named = proxy_status.and_then(error_parameter).and_then(|name| {
        ResetCode::from_proxy_error(name).or(match name {
            "dns_timeout" => Some(ResetCode::NameNotFound),
            "destination_not_found" => Some(ResetCode::Unreachable),
            "http_request_denied" => Some(ResetCode::Forbidden),
            "connection_write_timeout" => Some(ResetCode::Timeout),
            _ => None,
        })
    });
    named.unwrap_or(match status.as_u16() {
        401 | 403 | 407 => ResetCode::Forbidden,
        408 | 504 => ResetCode::Timeout,
        429 | 503 => ResetCode::Limit,
        502 => ResetCode::Unreachable,
        _ => ResetCode::Internal,
    })
}

/// Error code of [`ResetCode::Lost`] between gateways. To others it means no more than that the flow
/// has ended (RFC 9114 §8).
const LOST: u64 = 0x6265_6e74;

/// HTTP/3 error code that resets an open flow for the reason `why`: H3_CONNECT_ERROR for errors of the
/// TCP connection (RFC 9114 §4.4), H3_REQUEST_CANCELLED for a flow that is not wanted any more, and
/// H3_REQUEST_REJECTED, H3_EXCESSIVE_LOAD and H3_INTERNAL_ERROR for policy, limits and internal
/// errors. A lost session has a code of its own.
pub fn h3_code(why: ResetCode) -> u64 {
    match why {
        ResetCode::Refused
        | ResetCode::Unreachable
        | ResetCode::Timeout
        | ResetCode::NameNotFound
        | ResetCode::Aborted => Code::H3_CONNECT_ERROR,
        ResetCode::Idle => Code::H3_REQUEST_CANCELLED,
        ResetCode::Forbidden => Code::H3_REQUEST_REJECTED,
        ResetCode::Limit => Code::H3_EXCESSIVE_LOAD,
        ResetCode::Internal => Code::H3_INTERNAL_ERROR,
        ResetCode::Lost => return LOST,
    }
    .value()
}

/// Reason for a peer's error code: the reverse of [`h3_code`] if it is unique, otherwise
/// [`ResetCode::Aborted`].
pub fn from_h3_code(code: u64) -> ResetCode {
    if code == LOST {
        return ResetCode::Lost;
    }
    match Code::from(code) {
        Code::H3_REQUEST_REJECTED => ResetCode::Forbidden,
        Code::H3_EXCESSIVE_LOAD => ResetCode::Limit,
        Code::H3_INTERNAL_ERROR => ResetCode::Internal,
        _ => ResetCode::Aborted,
    }
}

/// Value of `error=` in the last member of a `proxy-status` list: that of the nearest proxy
/// (RFC 9209 §2).
fn error_parameter(header: &str) -> Option<&str> {
    let member = header.rsplit(',').next()?;
    let value = member.split(';').find_map(|part| part.trim().strip_prefix("error="))?;
    Some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_round_trips_in_a_response() {
        for why in ResetCode::ALL {
            let header = format!("ground; error={}", why.proxy_error());
            assert_eq!(from_response(status(why), Some(&header)), why);
        }
    }

    #[test]
    fn unknown_responses_have_a_best_match() {
        let of = |status: u16, header| from_response(StatusCode::from_u16(status).unwrap(), header);
        assert_eq!(
            of(502, Some("a; error=dns_error, b; error=dns_timeout; rcode=2")),
            ResetCode::NameNotFound
        );
        assert_eq!(of(403, None), ResetCode::Forbidden);
        assert_eq!(of(407, Some("a")), ResetCode::Forbidden);
        assert_eq!(of(504, Some("a; error=made_up")), ResetCode::Timeout);
        assert_eq!(of(503, None), ResetCode::Limit);
        assert_eq!(of(418, None), ResetCode::Internal);
    }

    #[test]
    fn error_codes_follow_rfc_9114() {
        assert_eq!(h3_code(ResetCode::Aborted), 0x10f);
        assert_eq!(from_h3_code(0x10f), ResetCode::Aborted);
        assert_eq!(from_h3_code(0x10c), ResetCode::Aborted);
        assert_eq!(from_h3_code(h3_code(ResetCode::Limit)), ResetCode::Limit);
        assert_eq!(from_h3_code(u64::MAX), ResetCode::Aborted);
        assert_eq!(from_h3_code(h3_code(ResetCode::Lost)), ResetCode::Lost);
    }
}
