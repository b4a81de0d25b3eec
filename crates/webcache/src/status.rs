//! Outcome of a request, for Cache-Status (RFC 9211) and for counters.

use http::{HeaderValue, StatusCode};

/// Reason why a request was forwarded to the origin (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// Nothing is stored under the key.
    UriMiss,
    /// The stored responses do not match the request's fields.
    VaryMiss,
    /// The stored response is stale, or must be validated before each reuse.
    Stale,
    /// The stored response is fresh, but the request asks for a newer one or identifies its client.
    Request,
    /// The method is not GET or HEAD.
    Method,
    /// The cache is not responsible for the request.
    Bypass,
}

/// Outcome of a request in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Served a fresh response from the store.
    Hit,
    /// Served a stale response from the store without waiting for the origin.
    StaleHit,
    /// Served a stale response from the store after the origin failed or could not be reached.
    StaleIfError,
    /// Served a response from the store after the origin validated it.
    Validated,
    /// Served the response to another client's request.
    Collapsed,
    /// Served a response that the ground gateway pushed.
    Pushed,
    /// Fetched from the origin.
    Miss(Forwarded),
    /// Failed with 504: the request has `only-if-cached`, and nothing is stored.
    OnlyIfCached,
    /// Failed: the origin gave no response.
    Failed,
}

impl Outcome {
    /// Returns `true` if the body did not cross the link for this request.
    pub fn saves_bytes(self) -> bool {
        matches!(
            self,
            Self::Hit | Self::StaleHit | Self::StaleIfError | Self::Validated | Self::Collapsed
        )
    }

    /// Returns `true` if no request crossed the link for this response.
    pub fn saves_round_trip(self) -> bool {
        matches!(self, Self::Hit | Self::StaleHit | Self::Pushed)
    }
}

impl Forwarded {
    /// Value of Cache-Status for a request that the cache only forwarded.
    pub fn field(self) -> HeaderValue {
        Member::forwarded(self).field()
    }

    fn token(self) -> &'static str {
        match self {
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Stale => "stale",
            Self::Request => "request",
            Self::Method => "method",
            Self::Bypass => "bypass",
        }
    }
}

/// This cache's member of the Cache-Status list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// `true` if the request was not forwarded. Excludes `forwarded`.
    pub hit: bool,
    /// Reason why the request was forwarded.
    pub forwarded: Option<Forwarded>,
    /// Status of the origin's response, if the client gets another one.
    pub forwarded_status: Option<StatusCode>,
    /// Remaining freshness in seconds. Negative if the response is stale.
    pub ttl: Option<i64>,
    /// `true` if the origin's response is being stored.
    pub stored: bool,
    /// `true` if the request was collapsed with another client's.
    pub collapsed: bool,
    /// A detail of our own.
    pub detail: Option<&'static str>,
}

impl Member {
    /// A member for a response from the store.
    pub fn hit() -> Self {
        Self { hit: true, ..Self::default() }
    }

    /// A member for a response that the ground gateway pushed.
    pub fn pushed() -> Self {
        Self { detail: Some("pushed"), ..Self::hit() }
    }

    /// A member for a forwarded request.
    pub fn forwarded(why: Forwarded) -> Self {
        Self { forwarded: Some(why), ..Self::default() }
    }

    /// Formats the member as a field value.
    pub fn field(self) -> HeaderValue {
        let mut text = String::from("bentpipe");
        if self.hit {
            text += "; hit";
        }
        if let Some(why) = self.forwarded {
            text += "; fwd=";
            text += why.token();
        }
        if let Some(status) = self.forwarded_status {
            text += "; fwd-status=";
            text += status.as_str();
        }
        if let Some(ttl) = self.ttl {
            text += &format!("; ttl={ttl}");
        }
        for (name, is_so) in [("; stored", self.stored), ("; collapsed", self.collapsed)] {
            text += if is_so { name } else { "" };
        }
        if let Some(detail) = self.detail {
            text += "; detail=";
            text += detail;
        }
        HeaderValue::from_str(&text).expect("it is ASCII")
    }
}
