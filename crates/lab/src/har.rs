//! HAR 1.2 (the HTTP Archive format, Odvarko 2012), which every browser's developer tools read. It
//! contains the page and its entries in the form that all loaders share, without bodies and
//! headers.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Value that HAR writes for a missing time or size.
const NONE: i32 = -1;

/// One load of a page.
pub(crate) struct Archive<'a> {
    /// Title of the page.
    pub title: &'a str,
    /// Wall-clock time of its beginning.
    pub begun: OffsetDateTime,
    /// Time from its beginning to its end, if it had one.
    pub loaded: Option<Duration>,
    /// Requests.
    pub entries: Vec<Entry<'a>>,
}

/// One request with its response.
pub(crate) struct Entry<'a> {
    /// Time at which it was wanted, since the beginning.
    pub started: Duration,
    /// URL of the request.
    pub url: &'a str,
    /// Version, such as `HTTP/1.1`. Empty if there was no exchange.
    pub version: &'a str,
    /// Status of the response; 0 if there was none.
    pub status: u16,
    /// Content type of the response.
    pub content_type: &'a str,
    /// Size of the decoded body.
    pub content_bytes: u64,
    /// Size of the body as received, if known.
    pub body_bytes: Option<u64>,
    /// Duration of each phase.
    pub timings: Timings,
    /// Address of the server.
    pub address: Option<String>,
    /// Number of the connection, if it had one.
    pub connection: Option<u64>,
    /// Reason why it is missing. HAR has no field for it, so it is written to `_error`, as in
    /// Chromium's files.
    pub failed: Option<&'a str>,
}

/// Phases of an entry, one after the other; `secure` is a part of `connect`. `None` if a phase did
/// not occur.
#[derive(Default)]
pub(crate) struct Timings {
    pub blocked: Duration,
    pub dns: Option<Duration>,
    pub connect: Option<Duration>,
    pub secure: Option<Duration>,
    pub send: Duration,
    pub wait: Duration,
    pub receive: Duration,
}

impl Archive<'_> {
    /// The file as JSON. All times are in milliseconds.
    pub fn json(&self) -> Value {
        json!({ "log": {
            "version": "1.2",
            "creator": { "name": "bentpipe", "version": env!("CARGO_PKG_VERSION") },
            "pages": [{
                "startedDateTime": written(self.begun),
                "id": "page",
                "title": self.title,
                "pageTimings": { "onContentLoad": NONE, "onLoad": part(self.loaded) },
            }],
            "entries": self.entries.iter().map(|entry| entry.json(self.begun)).collect::<Vec<_>>(),
        }})
    }
}

impl Entry<'_> {
    fn json(&self, begun: OffsetDateTime) -> Value {
        let timings = &self.timings;
        let mut har = json!({
            "pageref": "page",
            "startedDateTime": written(begun + self.started),
            "time": ms(timings.all()),
            "request": {
                "method": "GET",
                "url": self.url,
                "httpVersion": self.version,
                "cookies": [],
                "headers": [],
                "queryString": [],
                "headersSize": NONE,
                "bodySize": 0,
            },
            "response": {
                "status": self.status,
                "statusText": "",
                "httpVersion": self.version,
                "cookies": [],
                "headers": [],
                "content": { "size": self.content_bytes, "mimeType": self.content_type },
                "redirectURL": "",
                "headersSize": NONE,
                "bodySize": self.body_bytes.map_or(json!(NONE), |bytes| json!(bytes)),
            },
            "cache": {},
            "timings": {
                "blocked": ms(timings.blocked),
                "dns": part(timings.dns),
                "connect": part(timings.connect),
                "send": ms(timings.send),
                "wait": ms(timings.wait),
                "receive": ms(timings.receive),
                "ssl": part(timings.secure),
            },
        });
        if let Some(address) = &self.address {
            har["serverIPAddress"] = json!(address);
        }
        if let Some(connection) = self.connection {
            har["connection"] = json!(connection.to_string());
        }
        if let Some(failed) = self.failed {
            har["_error"] = json!(failed);
        }
        har
    }
}

impl Timings {
    /// Time from the beginning of the entry to its last byte.
    pub fn all(&self) -> Duration {
        let parts = [self.dns, self.connect].into_iter().flatten().sum::<Duration>();
        self.blocked + parts + self.send + self.wait + self.receive
    }
}

fn part(time: Option<Duration>) -> Value {
    time.map_or(json!(NONE), |time| json!(ms(time)))
}

/// Milliseconds, with microsecond resolution.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

fn written(at: OffsetDateTime) -> String {
    // Only a year beyond 9999 cannot be formatted.
    at.format(&Rfc3339).unwrap_or_default()
}
