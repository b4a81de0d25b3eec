//! Export of a browser's visit as HAR.

use std::time::Duration;

use serde_json::Value;
use time::OffsetDateTime;

use super::{Request, Visit};
use crate::har::{Archive, Entry, Timings};

impl Visit {
    /// The visit as a HAR 1.2 file called `title`. All times are in milliseconds since the page was
    /// requested. `onLoad` is the time of its `load` event.
    ///
    /// Responses from the browser's own cache are included, with all of their time in `blocked`.
    /// Bodies are not included. `_error` gives the reason of a failure.
    pub fn har(&self, title: &str) -> Value {
        let first = self.record.requests().first();
        let begun = first.map_or(0.0, |first| first.asked_at);
        let wanted = first.map_or(0.0, |first| first.wanted);
        let entries = self.record.requests().iter().map(|request| entry(request, wanted));
        let begun = OffsetDateTime::from_unix_timestamp_nanos((begun * 1e9) as i128);
        Archive {
            title,
            begun: begun.unwrap_or(OffsetDateTime::UNIX_EPOCH),
            loaded: self.loaded,
            entries: entries.collect(),
        }
        .json()
    }
}

fn entry(request: &Request, begun: f64) -> Entry<'_> {
    let phases = request.phases();
    let there = |time: Duration| (!time.is_zero()).then_some(time);
    Entry {
        started: Duration::try_from_secs_f64(request.wanted - begun).unwrap_or_default(),
        url: &request.url,
        version: match request.protocol.as_str() {
            "http/1.0" => "HTTP/1.0",
            "http/1.1" => "HTTP/1.1",
            "h2" => "HTTP/2",
            "h3" => "HTTP/3",
            other => other,
        },
        status: request.status,
        content_type: &request.content_type,
        content_bytes: request.body_bytes,
        // A response from the cache crossed no network. Otherwise header and body are counted
        // together.
        body_bytes: request.is_cached.then_some(0),
        timings: Timings {
            blocked: phases.blocked,
            dns: there(phases.dns),
            connect: there(phases.connect),
            secure: there(phases.secure),
            send: phases.send,
            wait: phases.wait,
            receive: phases.receive,
        },
        address: request.address.clone(),
        connection: request.connection,
        failed: request.failed.as_deref(),
    }
}
