//! A visit as HAR 1.2 has it (the HTTP Archive format, Odvarko 2012), which every browser's developer
//! tools read.

use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Entry, Load, Visit};

/// What HAR writes for a time or a size that there is not.
const NONE: i32 = -1;

impl Visit {
    /// The visit of `load` as a HAR file: all times in milliseconds. `begun` is the wall clock's time
    /// at its beginning.
    ///
    /// Names were known beforehand, so `dns` is −1. Bodies are not in it. An entry that failed says so
    /// in `_error`, as Chromium's do; where no answer came its status is 0.
    pub fn har(&self, load: &Load<'_>, begun: OffsetDateTime) -> Value {
        let entries = self.entries.iter().map(|entry| self.entry(entry, load, begun));
        let time = if self.finished { json!(ms(self.took)) } else { json!(NONE) };
        json!({ "log": {
            "version": "1.2",
            "creator": { "name": "bentpipe", "version": env!("CARGO_PKG_VERSION") },
            "pages": [{
                "startedDateTime": written(begun),
                "id": "page",
                "title": load.site.name,
                "pageTimings": { "onContentLoad": NONE, "onLoad": time },
            }],
            "entries": entries.collect::<Vec<_>>(),
        }})
    }

    fn entry(&self, entry: &Entry, load: &Load<'_>, begun: OffsetDateTime) -> Value {
        let resource = &load.site.resources[entry.resource];
        let version = self.protocol.har_version();
        let connect = |time: Option<Duration>| time.map_or(json!(NONE), |time| json!(ms(time)));
        let mut har = json!({
            "pageref": "page",
            "startedDateTime": written(begun + entry.started),
            "time": ms(entry.time()),
            "request": {
                "method": "GET",
                "url": entry.url,
                "httpVersion": version,
                "cookies": [],
                "headers": [],
                "queryString": [],
                "headersSize": NONE,
                "bodySize": 0,
            },
            "response": {
                "status": entry.status.unwrap_or(0),
                "statusText": "",
                "httpVersion": version,
                "cookies": [],
                "headers": [],
                "content": { "size": entry.bytes, "mimeType": resource.content_type() },
                "redirectURL": "",
                "headersSize": NONE,
                "bodySize": entry.bytes,
            },
            "cache": {},
            "timings": {
                "blocked": ms(entry.block),
                "dns": NONE,
                "connect": connect(entry.connect),
                "send": ms(entry.send),
                "wait": ms(entry.wait),
                "receive": ms(entry.receive),
                "ssl": connect(entry.secure),
            },
            "serverIPAddress": load.site.domains[resource.domain].address.to_string(),
        });
        if let Some(connection) = entry.connection {
            har["connection"] = json!(connection.to_string());
        }
        if let Some(failed) = &entry.failed {
            har["_error"] = json!(failed);
        }
        har
    }
}

/// Milliseconds, to the microsecond.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

fn written(at: OffsetDateTime) -> String {
    // Only a year beyond 9999 cannot be written.
    at.format(&Rfc3339).unwrap_or_default()
}
