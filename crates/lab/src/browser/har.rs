//! A browser's visit as HAR has it.

use std::time::Duration;

use serde_json::Value;
use time::OffsetDateTime;

use super::{Request, Visit};
use crate::har::{Archive, Entry, Timings};

impl Visit {
    /// The visit as a HAR 1.2 file called `title`: all times in milliseconds, from when the page was
    /// asked for. `onLoad` is that of its `load` event.
    ///
    /// What came from the browser's own cache is in it, with all of its time in `blocked`. Bodies are
    /// not. Why one failed stands in `_error`.
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
        // Nothing of the cache's crossed any network; else head and body are counted as one.
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
