//! Record of a load in progress. A load that is cut off has its figures too.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{Entry, Load, RATE_SLOT, Visit};

/// Times of a connection's handshake.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handshake {
    pub began: Instant,
    /// Time at which TLS could begin. `None` over QUIC or without TLS.
    pub secure: Option<Instant>,
    pub up: Instant,
}

/// Everything recorded about a load.
pub(super) struct Tally {
    began: Instant,
    slots: Option<usize>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    resources: Vec<Option<Times>>,
    connections: Vec<Connected>,
}

#[derive(Default)]
struct Connected {
    is_up: bool,
    is_used: bool,
    is_resumed: bool,
    is_anew: bool,
    rates: Vec<u64>,
}

/// Times of a resource so far.
#[derive(Debug, Clone)]
struct Times {
    found: Instant,
    connection: Option<usize>,
    handshake: Option<Handshake>,
    begun: Option<Instant>,
    sent: Option<Instant>,
    head: Option<Instant>,
    end: Option<Instant>,
    bytes: u64,
    status: Option<u16>,
    failed: Option<String>,
}

impl Tally {
    pub(super) fn new(began: Instant, load: &Load<'_>) -> Self {
        let slots = load.deadline.as_nanos() / RATE_SLOT.as_nanos() + 1;
        let resources = vec![None; load.site.resources.len()];
        Self {
            began,
            slots: load.rates.then_some(usize::try_from(slots).unwrap_or(usize::MAX)),
            kept: Mutex::new(Kept { resources, connections: Vec::new() }),
        }
    }

    /// Records that resource `place` may be requested from now on.
    pub(super) fn found(&self, place: usize) {
        self.kept().resources[place] = Some(Times::new(Instant::now()));
    }

    /// Records that the resource has a connection and a place on it.
    pub(super) fn begun(&self, place: usize, connection: usize, made: Option<Handshake>) {
        self.on(place, |times, now| {
            (times.begun, times.connection, times.handshake) = (Some(now), Some(connection), made);
        });
        if let Some(connected) = self.kept().connections.get_mut(connection) {
            connected.is_used = true;
        }
    }

    /// Records that the request was handed to the connection.
    pub(super) fn sent(&self, place: usize) {
        self.on(place, |times, now| times.sent = Some(now));
    }

    /// Records the arrival of the response header.
    pub(super) fn head(&self, place: usize, status: u16) {
        self.on(place, |times, now| {
            (times.head, times.status) = (Some(now), Some(status));
            // A response may arrive while the request is still being written.
            times.sent.get_or_insert(now);
        });
    }

    /// Records the arrival of bytes of the body.
    pub(super) fn received(&self, place: usize, connection: usize, bytes: usize) {
        let slot = self.began.elapsed().as_nanos() / RATE_SLOT.as_nanos();
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        let mut kept = self.kept();
        if let Some(times) = &mut kept.resources[place] {
            times.bytes += bytes as u64;
        }
        let counts = self.slots.is_some_and(|slots| slot < slots);
        if let (true, Some(connected)) = (counts, kept.connections.get_mut(connection)) {
            if connected.rates.len() <= slot {
                connected.rates.resize(slot + 1, 0);
            }
            connected.rates[slot] += bytes as u64;
        }
    }

    /// Records that the resource is complete.
    pub(super) fn ended(&self, place: usize) {
        self.on(place, |times, now| times.end = Some(now));
    }

    /// Records that the resource has failed.
    pub(super) fn failed(&self, place: usize, why: String) {
        self.on(place, |times, now| (times.end, times.failed) = (Some(now), Some(why)));
    }

    /// Returns `true` if the resource is complete and intact.
    pub(super) fn is_intact(&self, place: usize) -> bool {
        let kept = self.kept();
        kept.resources[place].as_ref().is_some_and(|it| it.end.is_some() && it.failed.is_none())
    }

    /// Registers a connection that is being opened. Returns its number.
    pub(super) fn dialled(&self) -> usize {
        let mut kept = self.kept();
        kept.connections.push(Connected::default());
        kept.connections.len() - 1
    }

    /// Records that the connection is open.
    pub(super) fn connected(&self, connection: usize) {
        if let Some(connected) = self.kept().connections.get_mut(connection) {
            connected.is_up = true;
        }
    }

    /// Records that the connection resumed an earlier session.
    pub(super) fn resumed(&self, connection: usize) {
        if let Some(connected) = self.kept().connections.get_mut(connection) {
            connected.is_resumed = true;
        }
    }

    /// Records that the connection began a new session: the TLS handshake was a full one, or the
    /// server refused 0-RTT.
    pub(super) fn anew(&self, connection: usize) {
        if let Some(connected) = self.kept().connections.get_mut(connection) {
            connected.is_anew = true;
        }
    }

    /// Result of the load, which ends now.
    pub(super) fn visit(&self, load: &Load<'_>, took: Duration, finished: bool) -> Visit {
        let kept = self.kept();
        let found = kept.resources.iter().enumerate();
        let entries = found.filter_map(|(place, times)| Some((place, times.as_ref()?)));
        let entries = entries.map(|(place, times)| times.entry(self.began, took, place, load));
        let count = |which: fn(&&Connected) -> bool| kept.connections.iter().filter(which).count();
        Visit {
            entries: entries.collect(),
            connections: count(|it| it.is_up) as u32,
            connections_dropped: count(|it| it.is_up && !it.is_used) as u32,
            connections_resumed: count(|it| it.is_resumed) as u32,
            connections_anew: count(|it| it.is_anew) as u32,
            took,
            finished,
            rates: match self.slots {
                Some(_) => kept.connections.iter().map(|it| it.rates.clone()).collect(),
                None => Vec::new(),
            },
            protocol: load.protocol,
        }
    }

    fn on(&self, place: usize, change: impl FnOnce(&mut Times, Instant)) {
        if let Some(times) = &mut self.kept().resources[place] {
            change(times, Instant::now());
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

impl Times {
    fn new(found: Instant) -> Self {
        Self {
            found,
            connection: None,
            handshake: None,
            begun: None,
            sent: None,
            head: None,
            end: None,
            bytes: 0,
            status: None,
            failed: None,
        }
    }

    /// Entry with the phases of HAR. Time before the resource was found does not count. A phase
    /// that has not ended lasts until the end of the load.
    fn entry(&self, began: Instant, took: Duration, place: usize, load: &Load<'_>) -> Entry {
        let end = self.end.unwrap_or(began + took);
        let begun = self.begun.unwrap_or(end);
        let sent = self.sent.unwrap_or(end);
        let head = self.head.unwrap_or(end);
        let made = self.handshake.map(|made| {
            let within = |at: Instant| at.clamp(self.found, begun);
            let up = within(made.up);
            (up - within(made.began), made.secure.map(|secure| up - within(secure)))
        });
        let connect = made.map(|(connect, _)| connect);
        Entry {
            resource: place,
            url: load.site.url(load.scheme(), place),
            connection: self.connection,
            started: self.found - began,
            block: (begun - self.found) - connect.unwrap_or_default(),
            connect,
            secure: made.and_then(|(_, secure)| secure),
            send: sent - begun,
            wait: head - sent,
            receive: end - head,
            bytes: self.bytes,
            status: self.status,
            failed: match (&self.failed, self.end) {
                (Some(failed), _) => Some(failed.clone()),
                (None, None) => Some("the load was cut off".into()),
                (None, Some(_)) => None,
            },
        }
    }
}
