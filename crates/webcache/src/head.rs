//! A stored answer without its body, and what it says of its age.

use std::time::Duration;

use http::header::{AGE, DATE, EXPIRES, HeaderName, HeaderValue, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};

use crate::directives::Directives;
use crate::vary::Selection;

/// A moment, since the Unix epoch. Clocks of aircraft lie, so nothing here compares one with a moment
/// that an origin names; only the times of two fields of one answer, and two moments of ours.
pub type Moment = Duration;

/// Fields that concern one connection, or one answer to one client (RFC 9111 §3.1); those that
/// Connection names come besides.
const NOT_KEPT: [HeaderName; 9] = [
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

/// Fields that say how the body is made, which a 304 cannot change (§3.2).
const OF_THE_BODY: [HeaderName; 4] = [
    http::header::CONTENT_ENCODING,
    http::header::CONTENT_LENGTH,
    http::header::CONTENT_RANGE,
    http::header::CONTENT_TYPE,
];

/// Freshness that the operator allows beyond what origins state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The most that an answer without times of its own is taken for fresh: a tenth of the time since
    /// it was last changed, and never more than this (§4.2.2).
    pub heuristic_most: Duration,
    /// Time after its freshness for which an answer may be used while the ground cannot be reached
    /// (§4.2.4).
    pub offline_stale: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            heuristic_most: Duration::from_secs(24 * 3600),
            offline_stale: Duration::from_secs(24 * 3600),
        }
    }
}

/// Freshness lifetime of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Since it was made at the origin.
    pub fresh: Duration,
    /// `true` if the origin stated it.
    pub explicit: bool,
}

/// An answer as it is stored, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its status.
    pub status: StatusCode,
    /// Its fields, without those of one connection; always with Date.
    pub headers: HeaderMap,
    /// Requests that it fits.
    pub selection: Selection,
    /// Time of its request, or of its last confirmation.
    pub requested_at: Moment,
    /// Time of its arrival, or of its last confirmation.
    pub received_at: Moment,
    /// `true` if its address had no query: an address with a query never has heuristic freshness
    /// alone.
    pub guessable: bool,
    /// `true` if it was invalidated.
    pub invalidated: bool,
    /// `true` if it stays, whatever else wants its place.
    pub pinned: bool,
}

/// The most fields that a stored head grows to by what 304s say: at 32 KiB for all of them, which a record
/// holds, far more than origins send.
const MAX_FRESHENED_FIELDS: usize = 96;

impl Head {
    /// Its Cache-Control.
    pub fn directives(&self) -> Directives {
        Directives::of_response(&self.headers)
    }

    /// Freshness lifetime (§4.2.1).
    pub fn lifetime(&self, rules: &Rules) -> Lifetime {
        let lifetime = self.lifetime_said(rules);
        if !self.is_error() {
            return lifetime;
        }
        let most = if may_keep_error(self.status) { MAX_ERROR_FRESH } else { Duration::ZERO };
        Lifetime { fresh: lifetime.fresh.min(most), ..lifetime }
    }

    /// Tells if its status is an error.
    pub fn is_error(&self) -> bool {
        self.status.is_client_error() || self.status.is_server_error()
    }

    fn lifetime_said(&self, rules: &Rules) -> Lifetime {
        let said = self.directives();
        let explicit = |fresh| Lifetime { fresh, explicit: true };
        if let Some(seconds) = said.s_maxage.or(said.max_age) {
            return explicit(Duration::from_secs(seconds));
        }
        let made = date(&self.headers, &DATE).unwrap_or(self.received_at);
        if self.headers.contains_key(EXPIRES) && !said.is_targeted {
            // What is no date, "0" above all, or two that differ, has passed (§5.3).
            let expires = date(&self.headers, &EXPIRES).unwrap_or_default();
            return explicit(expires.saturating_sub(made));
        }
        let guessable = self.guessable && (said.public || guessable(self.status));
        let changed = date(&self.headers, &LAST_MODIFIED).filter(|_| guessable);
        let since = changed.map_or(Duration::ZERO, |changed| made.saturating_sub(changed));
        Lifetime { fresh: (since / 10).min(rules.heuristic_most), explicit: false }
    }

    /// Age at `now` (§4.2.3), or `None` if our clock has gone back since it arrived: then nobody
    /// knows.
    ///
    /// The age is the corrected one: what Age says, how long the answer took, and how long it has been
    /// here. The apparent age, our clock less Date, is left out as §4.2.3 allows.
    pub fn age(&self, now: Moment) -> Option<Duration> {
        let resident = now.checked_sub(self.received_at)?;
        let delay = self.received_at.saturating_sub(self.requested_at);
        let mut values = self.headers.get_all(AGE).iter();
        // Of a list the first counts; what is no number is left out (§5.1).
        let text = values.next().and_then(|value| value.to_str().ok()).unwrap_or("0");
        let first = text.split(',').next().unwrap_or_default().trim();
        let said: u64 = first.parse().unwrap_or_default();
        Some(Duration::from_secs(said.min(1 << 31)) + delay + resident)
    }

    /// Remaining freshness at `now` in seconds; negative if it is stale.
    pub fn remaining(&self, rules: &Rules, now: Moment) -> i64 {
        let Some(age) = self.age(now).filter(|_| !self.invalidated) else { return -(1 << 31) };
        let fresh = self.lifetime(rules).fresh;
        // Whole seconds, rounded down, so that what has a fraction left is not fresh for nothing.
        match fresh.checked_sub(age) {
            Some(left) => left.as_secs() as i64,
            None => -((age - fresh).as_secs() as i64) - 1,
        }
    }

    /// Takes over what a 304, or the answer to HEAD, says now (§3.2).
    pub fn freshen(&mut self, newer: &HeaderMap, requested_at: Moment, received_at: Moment) {
        let mut newer = kept(newer);
        OF_WHO_ASKED.iter().for_each(|name| drop(newer.remove(*name)));
        let replaced: Vec<HeaderName> =
            newer.keys().filter(|name| !OF_THE_BODY.contains(name)).cloned().collect();
        for name in &replaced {
            let is_new = self.headers.remove(name).is_none();
            // An origin that says ever new things is not listened to without end.
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

/// Fields of a 304 that are for the one who asked, and not for those who get what it confirms.
const OF_WHO_ASKED: [&str; 3] = ["set-cookie", "set-cookie2", "www-authenticate"];

/// Returns `true` if `newer`, the fields of a 304, restricts the confirmed answer to one client.
pub(crate) fn is_for_one(newer: &HeaderMap) -> bool {
    let said = Directives::of_response(newer);
    said.private || said.no_store
}

/// The statuses that may be guessed fresh (RFC 9110 §15.1), and are kept without further words.
pub(crate) fn guessable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 410)
}

/// The longest that an error is fresh: enough for what a cabin asks for at once.
///
/// Whoever gets an origin to refuse a request of one's own refuses it to everybody for so long (cache-poisoned
/// denial of service).
pub(crate) const MAX_ERROR_FRESH: Duration = Duration::from_secs(10);

/// The errors that are about an address, and may be for everybody; all others may be about one request.
pub(crate) fn may_keep_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 404 | 410)
}

/// `headers` without those of one connection.
pub(crate) fn kept(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let connection = headers.get_all(http::header::CONNECTION).iter();
    let listed: Vec<HeaderName> = connection
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed.iter().chain(&NOT_KEPT) {
        kept.remove(name);
    }
    kept
}

/// The date in the field `name`, where it is there once and is one (RFC 9110 §5.6.7).
pub(crate) fn date(headers: &HeaderMap, name: &HeaderName) -> Option<Moment> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.any(|other| other != first) {
        return None;
    }
    let date = httpdate::parse_http_date(first.to_str().ok()?.trim()).ok()?;
    date.duration_since(std::time::UNIX_EPOCH).ok()
}

/// The last second that an HTTP date can say: the end of the year 9999.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// `moment` as a field's value.
pub(crate) fn http_date(moment: Moment) -> HeaderValue {
    let time = std::time::UNIX_EPOCH + moment.min(LAST_DATE);
    let text = httpdate::fmt_http_date(time);
    HeaderValue::from_str(&text).expect("a date is ASCII")
}
