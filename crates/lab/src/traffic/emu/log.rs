//! Events of clients and servers, on one clock.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::fault::Fault;
use crate::traffic::{Carry, Course, Talk, Transit};

/// The log, shared by all clients and servers of a testbed.
pub struct Log {
    epoch: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of events so far. An experiment can wait for a change.
    events: u64,
    streams: Vec<Course>,
    talks: Vec<Beat>,
    fault: Option<Fault>,
}

struct Beat {
    talk: Talk,
    /// Time of the first datagram, once it is known.
    began: Option<Duration>,
    /// Sending times, towards the aircraft and from it.
    sent: [Vec<Duration>; 2],
    /// Arrival times.
    came: [Vec<Option<Duration>>; 2],
}

impl Log {
    /// An empty log, which begins now.
    pub fn new() -> Self {
        Self { epoch: Instant::now(), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Time since the log began.
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Converts a time of the log to tokio's clock.
    pub fn instant(&self, at: Duration) -> tokio::time::Instant {
        (self.epoch + at).into()
    }

    /// Waits until there are more than `seen` events, but at most until `end`. Returns the number
    /// of events then.
    pub fn wait(&self, seen: u64, end: Duration) -> u64 {
        let left = end.saturating_sub(self.now());
        let mut state = self.lock();
        self.changed.wait_while_for(&mut state, |state| state.events == seen, left);
        state.events
    }

    /// Registers a new stream. Returns its number.
    pub fn opened(&self, carry: &Carry) -> usize {
        let (now, mut state) = (self.now(), self.lock());
        state.streams.push(Course::new(carry, now));
        state.streams.len() - 1
    }

    pub fn course(&self, stream: usize) -> Course {
        self.lock().streams[stream]
    }

    /// Records that the server has read a stream's header.
    pub fn heard(&self, stream: usize) {
        let now = self.now();
        self.of(stream, |course| course.heard_at = course.heard_at.or(Some(now)));
        self.happened();
    }

    /// Records that the server begins its response.
    pub fn answered(&self, stream: usize) {
        let now = self.now();
        self.of(stream, |course| course.answered_at = course.answered_at.or(Some(now)));
    }

    /// Records the arrival of bytes.
    pub fn came(&self, stream: usize, way: usize, bytes: usize) {
        let (now, mut is_news) = (self.now(), false);
        self.of(stream, |course| {
            is_news = course.got[way] == 0;
            is_news |= course.came(way, bytes as u64, now);
        });
        if is_news {
            self.happened();
        }
    }

    /// Registers a talk. Returns its number.
    pub fn talks(&self, talk: &Talk) -> usize {
        let came = [vec![None; talk.sizes.len()], vec![None; talk.sizes.len()]];
        let beat = Beat { talk: talk.clone(), began: None, sent: Default::default(), came };
        let mut state = self.lock();
        state.talks.push(beat);
        state.talks.len() - 1
    }

    /// Datagrams to send; `None` for an unknown number.
    pub fn talk(&self, number: usize) -> Option<Talk> {
        self.lock().talks.get(number).map(|beat| beat.talk.clone())
    }

    /// Records that the flow has reached the server, and begins at `at`. Returns `false` if that
    /// was known.
    pub fn begins(&self, number: usize, at: Duration) -> bool {
        let mut state = self.lock();
        let beat = state.talks.get_mut(number).filter(|beat| beat.began.is_none());
        let is_new = beat.map(|beat| beat.began = Some(at)).is_some();
        drop(state);
        self.happened();
        is_new
    }

    pub fn began(&self, number: usize) -> Option<Duration> {
        self.lock().talks[number].began
    }

    /// Records the sending of the next datagram of this direction.
    pub fn sent(&self, number: usize, way: usize) {
        let now = self.now();
        self.lock().talks[number].sent[way].push(now);
    }

    /// Records the arrival of a datagram.
    pub fn arrived(&self, number: usize, way: usize, which: usize) {
        let (now, mut state) = (self.now(), self.lock());
        let place = state.talks.get_mut(number).and_then(|beat| beat.came[way].get_mut(which));
        let is_new = place.is_some_and(|place| place.replace(now).is_none());
        if !is_new {
            let what = format!("datagram {which} of flow {number}");
            state.fail(Fault::passenger(what, "came twice or unasked"));
        }
        drop(state);
        self.happened();
    }

    pub fn transits(&self, number: usize, way: usize) -> Vec<Transit> {
        let state = self.lock();
        let beat = &state.talks[number];
        let came = beat.sent[way].iter().zip(&beat.came[way]);
        came.map(|(left, came)| (*left, came.map(|came| came.saturating_sub(*left)))).collect()
    }

    /// Records a fault.
    pub fn failed(&self, fault: Fault) {
        self.lock().fail(fault);
        self.happened();
    }

    /// The first fault of the lab, if any, otherwise the first of all faults.
    pub fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    fn of(&self, stream: usize, what: impl FnOnce(&mut Course)) {
        let mut state = self.lock();
        match state.streams.get_mut(stream) {
            Some(course) => what(course),
            None => state.fail(Fault::passenger("a stream", format!("says it is number {stream}"))),
        }
    }

    fn happened(&self) {
        self.lock().events += 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn fail(&mut self, fault: Fault) {
        let is_worse = |one: &Fault| fault.is_of_lab() && !one.is_of_lab();
        if self.fault.as_ref().is_none_or(is_worse) {
            self.fault = Some(fault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_lab_outweighs_those_of_passengers_before_it() {
        let log = Log::new();
        assert_eq!(log.fault(), None);
        let faults = [
            Fault::passenger("stream 1", "reset"),
            Fault::passenger("stream 2", "reset"),
            Fault::lab("the server", "ended"),
            Fault::lab("the clients", "ended"),
        ];
        for (fault, kept) in faults.iter().zip([0, 0, 2, 2]) {
            log.failed(fault.clone());
            assert_eq!(log.fault().as_ref(), Some(&faults[kept]));
        }
    }

    #[test]
    fn bytes_that_nobody_sent_are_a_passengers_fault() {
        let log = Log::new();
        log.heard(7);
        assert!(!log.fault().unwrap().is_of_lab());
        let log = Log::new();
        log.arrived(3, 0, 0);
        assert!(!log.fault().unwrap().is_of_lab());
    }
}
