//! Stored header of a response: its freshness and its age.

use std::time::Duration;

use http::header::{AGE, CONTENT_LENGTH, DATE, EXPIRES, HeaderName, HeaderValue, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};

use crate::directives::{self, Directives};
use crate::vary::Selection;

/// A moment, as time since the Unix epoch. The clock of an aircraft may be wrong, so it is never
/// compared with an origin's clock. Only two fields of one response, or two of our own moments, are
/// compared.
pub type Moment = Duration;

/// Fields that concern one connection, or one response to one client (RFC 9111 §3.1). The fields
/// that Connection names are added.
const HOP_BY_HOP: [HeaderName; 9] = [
    http::header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    http::header::PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-authentication-info"),
    http::header::TE,
    http::header::TRAILER,
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
];

/// Fields that describe the body, which a 304 cannot change (§3.2).
const REPRESENTATION_FIELDS: [HeaderName; 4] = [
    http::header::CONTENT_ENCODING,
    http::header::CONTENT_LENGTH,
    http::header::CONTENT_RANGE,
    http::header::CONTENT_TYPE,
];

/// Freshness that the operator grants beyond the origins' own statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Maximum heuristic freshness. A response without explicit freshness is fresh for a tenth of
    /// the time since its last modification, but not longer than this (§4.2.2).
    pub max_heuristic_freshness: Duration,
    /// Maximum staleness at which a response may be used while the origin cannot be reached
    /// (§4.2.4).
    pub max_offline_staleness: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_heuristic_freshness: Duration::from_secs(24 * 3600),
            max_offline_staleness: Duration::from_secs(24 * 3600),
        }
    }
}

/// Freshness lifetime of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Lifetime, counted from the response's generation at the origin.
    pub fresh: Duration,
    /// `true` if the origin stated the lifetime.
    pub explicit: bool,
}

/// Status and fields of a stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Status.
    pub status: StatusCode,
    /// Fields without hop-by-hop ones. Date is always present.
    pub headers: HeaderMap,
    /// Requests that the response fits.
    pub selection: Selection,
    /// Time of the request, or of the last validation request.
    pub requested_at: Moment,
    /// Arrival of the response, or of the last validation.
    pub received_at: Moment,
    /// `true` if the key has no query. A response with a query in its key is not fresh by
    /// heuristics alone.
    pub heuristic_ok: bool,
    /// `true` if the response must be validated before its next use.
    pub invalidated: bool,
    /// `true` if the response must not be evicted.
    pub pinned: bool,
}

/// Maximum number of field names that 304 responses can add up to. A record holds 32 KiB of fields,
/// far more than origins send.
const MAX_FRESHENED_FIELDS: usize = 96;

impl Head {
    /// Parses Cache-Control.
    pub fn directives(&self) -> Directives {
        Directives::of_response(&self.headers)
    }

    /// Freshness lifetime (§4.2.1).
    pub fn lifetime(&self, rules: &Rules) -> Lifetime {
        let lifetime = self.stated_lifetime(rules);
        if !self.is_error() {
            return lifetime;
        }
        let most = if may_keep_error(self.status) { MAX_ERROR_FRESH } else { Duration::ZERO };
        Lifetime { fresh: lifetime.fresh.min(most), ..lifetime }
    }

    /// Returns `true` if the status is an error.
    pub fn is_error(&self) -> bool {
        self.status.is_client_error() || self.status.is_server_error()
    }

    fn stated_lifetime(&self, rules: &Rules) -> Lifetime {
        let directives = self.directives();
        let explicit = |fresh| Lifetime { fresh, explicit: true };
        if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
            return explicit(Duration::from_secs(seconds));
        }
        let made = date(&self.headers, &DATE).unwrap_or(self.received_at);
        if self.headers.contains_key(EXPIRES) && !directives.is_targeted {
            // An invalid date such as "0", or two different dates, is in the past (§5.3).
            let expires = date(&self.headers, &EXPIRES).unwrap_or_default();
            return explicit(expires.saturating_sub(made));
        }
        let heuristic =
            self.heuristic_ok && (directives.public || is_heuristically_cacheable(self.status));
        let changed = date(&self.headers, &LAST_MODIFIED).filter(|_| heuristic);
        let since = changed.map_or(Duration::ZERO, |changed| made.saturating_sub(changed));
        Lifetime { fresh: (since / 10).min(rules.max_heuristic_freshness), explicit: false }
    }

    /// Corrected age at `now` (§4.2.3), or `None` if our clock went back since the arrival.
    ///
    /// The age is the sum of the Age field, the response delay and the resident time. The apparent
    /// age (our clock minus Date) is not used, as §4.2.3 allows.
    pub fn age(&self, now: Moment) -> Option<Duration> {
        let resident = now.checked_sub(self.received_at)?;
        let delay = self.received_at.saturating_sub(self.requested_at);
        let mut values = self.headers.get_all(AGE).iter();
        // The first of several values counts. An invalid one is ignored (§5.1).
        let text = values.next().and_then(|value| value.to_str().ok()).unwrap_or("0");
        let first = text.split(',').next().unwrap_or_default().trim();
        let seconds = directives::seconds(Some(first.as_bytes())).unwrap_or_default();
        Some(Duration::from_secs(seconds) + delay + resident)
    }

    /// Remaining freshness at `now`, seconds. Negative if the response is stale.
    pub fn remaining(&self, rules: &Rules, now: Moment) -> i64 {
        let Some(age) = self.age(now).filter(|_| !self.invalidated) else { return UNUSABLE };
        let fresh = self.lifetime(rules).fresh;
        // Rounded down to whole seconds. A response with a fraction of a second left is not fresh.
        match fresh.checked_sub(age) {
            Some(left) => left.as_secs() as i64,
            None => -((age - fresh).as_secs() as i64) - 1,
        }
    }

    /// Updates the header from a 304 or from the answer to a HEAD (§3.2).
    pub fn freshen(&mut self, newer: &HeaderMap, requested_at: Moment, received_at: Moment) {
        let mut newer = stored_fields(newer);
        PERSONAL_FIELDS.iter().for_each(|name| drop(newer.remove(*name)));
        let replaced: Vec<HeaderName> =
            newer.keys().filter(|name| !REPRESENTATION_FIELDS.contains(name)).cloned().collect();
        for name in &replaced {
            let is_new = self.headers.remove(name).is_none();
            // An origin cannot add fields without limit.
            if is_new && self.headers.keys_len() >= MAX_FRESHENED_FIELDS {
                continue;
            }
            for value in newer.get_all(name) {
                self.headers.append(name.clone(), value.clone());
            }
        }
        if !replaced.contains(&AGE) {
            self.headers.remove(AGE);
        }
        if !replaced.contains(&DATE) {
            self.headers.insert(DATE, http_date(received_at));
        }
        self.requested_at = requested_at;
        self.received_at = received_at;
        self.invalidated = false;
    }
}

/// Remaining freshness of a response that must be validated: staler than any limit permits.
const UNUSABLE: i64 = -(1 << 31);

/// Fields of a 304 that are meant for its client alone.
const PERSONAL_FIELDS: [&str; 3] = ["set-cookie", "set-cookie2", "www-authenticate"];

/// Returns `true` if a 304 with these fields restricts the response to one client.
pub(crate) fn is_for_one(newer: &HeaderMap) -> bool {
    let directives = Directives::of_response(newer);
    directives.private || directives.no_store
}

/// Returns `true` for a status that is heuristically cacheable (RFC 9110 §15.1). Of those, 206, 405, 414
/// and 501 are not stored without explicit freshness.
pub(crate) fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 410)
}

/// Maximum freshness of an error, long enough for the simultaneous requests of one cabin.
///
/// If a client makes an origin refuse a request, all clients get the refusal for this time
/// (cache-poisoned denial of service).
pub(crate) const MAX_ERROR_FRESH: Duration = Duration::from_secs(10);

/// Returns `true` for an error that concerns the address. All other errors may concern one request.
pub(crate) fn may_keep_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 410)
}

/// Content-Length, if it is a number.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Removes hop-by-hop fields.
pub(crate) fn stored_fields(headers: &HeaderMap) -> HeaderMap {
    let mut stored = headers.clone();
    let connection = headers.get_all(http::header::CONNECTION).iter();
    let listed: Vec<HeaderName> = connection
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        stored.remove(name);
    }
    stored
}

/// Parses the date field `name`, if all its values are equal (RFC 9110 §5.6.7).
pub(crate) fn date(headers: &HeaderMap, name: &HeaderName) -> Option<Moment> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.any(|other| other != first) {
        return None;
    }
    let date = httpdate::parse_http_date(first.to_str().ok()?.trim()).ok()?;
    date.duration_since(std::time::UNIX_EPOCH).ok()
}

/// The last second that an HTTP date can express: the end of the year 9999.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// Formats `moment` as an HTTP date.
pub(crate) fn http_date(moment: Moment) -> HeaderValue {
    let time = std::time::UNIX_EPOCH + moment.min(LAST_DATE);
    let text = httpdate::fmt_http_date(time);
    HeaderValue::from_str(&text).expect("a date is ASCII")
}
