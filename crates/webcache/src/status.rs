//! What was done with a request: for Cache-Status (RFC 9211), and for counting.

use http::HeaderValue;

/// Why a request went to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// Nothing is stored under its address.
    UriMiss,
    /// What is stored there fits other requests.
    VaryMiss,
    /// What is stored there is too old.
    Stale,
    /// The request itself asks for it.
    Request,
    /// Its method.
    Method,
    /// It is none of the cache's business.
    Bypass,
}

/// What was done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered from here at once, being fresh.
    Hit,
    /// Answered from here at once, being stale.
    StaleHit,
    /// Answered from here after the origin confirmed it, or because it did not answer.
    Validated,
    /// Answered by a fetch that was under way for somebody else.
    Collapsed,
    /// Answered by what the ground has pushed, or was pushing.
    Pushed,
    /// Fetched.
    Miss(Forwarded),
    /// Not answered: it was to come from here alone, and is not here.
    NotHere,
    /// The origin gave no answer.
    Failed,
}

impl Outcome {
    /// Whether the answer's body did not cross the link for this request.
    pub fn saves_bytes(self) -> bool {
        matches!(self, Self::Hit | Self::StaleHit | Self::Validated | Self::Collapsed)
    }

    /// Whether the answer came without any wait for the far side of the link.
    pub fn saves_round_trip(self) -> bool {
        matches!(self, Self::Hit | Self::StaleHit | Self::Pushed)
    }

    /// The member for this cache in Cache-Status. `ttl` is how many seconds the answer is still fresh;
    /// `stored` whether it was stored now.
    pub fn field(self, ttl: Option<i64>, stored: bool) -> HeaderValue {
        let mut text = String::from("bentpipe");
        text += match self {
            Self::Hit | Self::StaleHit | Self::Pushed => "; hit",
            Self::Validated => "; fwd=stale; fwd-status=304",
            Self::Collapsed => "; fwd=uri-miss; collapsed",
            Self::Miss(Forwarded::UriMiss) => "; fwd=uri-miss",
            Self::Miss(Forwarded::VaryMiss) => "; fwd=vary-miss",
            Self::Miss(Forwarded::Stale) => "; fwd=stale",
            Self::Miss(Forwarded::Request) => "; fwd=request",
            Self::Miss(Forwarded::Method) => "; fwd=method",
            Self::Miss(Forwarded::Bypass) | Self::NotHere | Self::Failed => "; fwd=bypass",
        };
        if let Some(ttl) = ttl {
            text += &format!("; ttl={ttl}");
        }
        if stored {
            text += "; stored";
        }
        if self == Self::Pushed {
            text += "; detail=pushed";
        }
        HeaderValue::from_str(&text).expect("it is ASCII")
    }
}
