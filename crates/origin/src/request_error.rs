//! Reasons why a request to an origin fails while the link is up.

use bentpipe_flow::ResetCode;
use bentpipe_webcache::OriginError;

/// Reason why a request to an origin has no response, other than an outage of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The flow to the origin was refused, or it ended.
    #[error("{0}")]
    Flow(ResetCode),
    /// TLS with the origin of a site failed, or its certificate is not trusted.
    #[error("there is no TLS with the origin, or its certificate is not to be trusted")]
    Tls,
    /// The passenger may not open another flow now.
    #[error("the passenger has too many connections")]
    Busy,
}

impl RequestError {
    /// Returns the reason inside `error`, if there is one.
    pub fn of(error: &OriginError) -> Option<Self> {
        error.downcast_ref().copied()
    }

    /// Returns `true` if a limit refused the request or ended its flow. The limit may be only this
    /// passenger's, so no other passenger may get the error.
    pub fn is_limit(error: &OriginError) -> bool {
        matches!(Self::of(error), Some(Self::Busy | Self::Flow(ResetCode::Limit)))
    }
}

impl From<RequestError> for OriginError {
    fn from(error: RequestError) -> Self {
        Self::new(error)
    }
}

impl From<ResetCode> for RequestError {
    fn from(code: ResetCode) -> Self {
        Self::Flow(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_origin_and_link_are_not_limits() {
        let limits: Vec<_> = ResetCode::ALL
            .into_iter()
            .filter(|code| RequestError::is_limit(&RequestError::Flow(*code).into()))
            .collect();
        assert_eq!(limits, [ResetCode::Limit]);
        assert!(RequestError::is_limit(&RequestError::Busy.into()));
        let others = [RequestError::Tls.into(), OriginError::Offline, OriginError::Stalled];
        assert!(!others.iter().any(RequestError::is_limit));
    }
}
