//! Handling of a request: for Cache-Status (RFC 9211), and for counting.

use http::{HeaderValue, StatusCode};

/// Reason for which a request went to the origin (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// Nothing is stored under its address.
    UriMiss,
    /// The stored answers fit other requests.
    VaryMiss,
    /// The stored answer is too old, or has to be confirmed each time.
    Stale,
    /// The stored answer is fresh, but the request itself asks for more, or shows who is asking.
    Request,
    /// Its method.
    Method,
    /// It is none of the cache's business.
    Bypass,
}

/// Handling of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered from here at once, being fresh.
    Hit,
    /// Answered from here at once, being stale.
    StaleHit,
    /// Answered from here, being stale, because the origin failed or could not be reached: its answer was
    /// waited for.
    StoodIn,
    /// Answered from here after the origin confirmed it.
    Validated,
    /// Answered by a fetch that was under way for somebody else.
    Collapsed,
    /// Answered by what the ground has sent unasked, or was sending.
    Pushed,
    /// Fetched.
    Miss(Forwarded),
    /// Not answered: it was to come from here alone, and is not here.
    NotHere,
    /// The origin gave no answer.
    Failed,
}

impl Outcome {
    /// Returns `true` if the answer's body did not cross the link for this request.
    pub fn saves_bytes(self) -> bool {
        matches!(
            self,
            Self::Hit | Self::StaleHit | Self::StoodIn | Self::Validated | Self::Collapsed
        )
    }

    /// Returns `true` if no request crossed the link for the answer.
    pub fn saves_round_trip(self) -> bool {
        matches!(self, Self::Hit | Self::StaleHit | Self::Pushed)
    }
}

impl Forwarded {
    /// The member for this cache in Cache-Status where it has only passed a request on.
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

/// The member for this cache in Cache-Status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// `true` if the request did not go further; never with `forwarded`.
    pub hit: bool,
    /// Reason for which it went further.
    pub forwarded: Option<Forwarded>,
    /// Status from the origin, if the client gets another.
    pub forwarded_status: Option<StatusCode>,
    /// For how many seconds the answer is still fresh; negative, for how many it has been stale.
    pub ttl: Option<i64>,
    /// `true` if the origin's answer is being stored.
    pub stored: bool,
    /// `true` if somebody else's request went further.
    pub collapsed: bool,
    /// In a word of our own.
    pub detail: Option<&'static str>,
}

impl Member {
    /// Answered from here.
    pub fn hit() -> Self {
        Self { hit: true, ..Self::default() }
    }

    /// The ground had sent it, or was sending it.
    pub fn pushed() -> Self {
        Self { detail: Some("pushed"), ..Self::hit() }
    }

    /// It went further.
    pub fn forwarded(why: Forwarded) -> Self {
        Self { forwarded: Some(why), ..Self::default() }
    }

    /// As it is written.
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
