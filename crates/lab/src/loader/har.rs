//! Export of a visit as HAR.

use serde_json::Value;
use time::OffsetDateTime;

use super::{Entry, Load, Visit};
use crate::har::{self, Archive, Timings};

impl Visit {
    /// The visit of `load` as a HAR 1.2 file, with all times in milliseconds. `begun` is the
    /// wall-clock time of its beginning.
    ///
    /// Names need no resolution, so `dns` is −1. Bodies are not included. A failed entry has the
    /// reason in `_error`, as in Chromium's files. Its status is 0 if there was no response.
    pub fn har(&self, load: &Load<'_>, begun: OffsetDateTime) -> Value {
        let entries = self.entries.iter().map(|entry| self.entry(entry, load)).collect();
        let loaded = self.finished.then_some(self.took);
        Archive { title: &load.site.name, begun, loaded, entries }.json()
    }

    fn entry<'a>(&self, entry: &'a Entry, load: &Load<'a>) -> har::Entry<'a> {
        let resource = &load.site.resources[entry.resource];
        har::Entry {
            started: entry.started,
            url: &entry.url,
            version: self.protocol.har_version(),
            status: entry.status.unwrap_or(0),
            content_type: resource.content_type(),
            content_bytes: entry.bytes,
            body_bytes: Some(entry.bytes),
            timings: Timings {
                blocked: entry.block,
                dns: None,
                connect: entry.connect,
                secure: entry.secure,
                send: entry.send,
                wait: entry.wait,
                receive: entry.receive,
            },
            address: Some(load.site.domains[resource.domain].address.to_string()),
            connection: entry.connection.map(|number| number as u64),
            failed: entry.failed.as_deref(),
        }
    }
}
