//! A stream with a client on the aircraft and a server behind the hub.

use std::time::Duration;

use bentpipe_flow::Target;
use bentpipe_link::{Core, OpenError, Read, Session, Write};

use crate::sim::pair::{FlowKey, Pair};
use crate::traffic::{Carry, Course, DOWN, ENDLESS, REQUEST_BYTES, UP};

/// A stream and its progress.
#[derive(Debug)]
pub struct Stream {
    carry: Carry,
    air: Option<FlowKey>,
    hub: Option<FlowKey>,
    /// Bytes to write: at the hub, and at the air.
    left: [u64; 2],
    course: Course,
    /// Indicates for each end if it has released the flow.
    released: [bool; 2],
}

impl Stream {
    pub(super) fn new(carry: Carry, opened_at: Duration) -> Self {
        Self {
            carry,
            air: None,
            hub: None,
            left: [carry.down, carry.up],
            course: Course::new(&carry, opened_at),
            released: [false; 2],
        }
    }

    /// Progress so far.
    pub fn course(&self) -> Course {
        self.course
    }

    pub(super) fn is_named(&self, flow: u64) -> bool {
        self.hub.is_none() && self.air.is_some_and(|air| air.1 == flow)
    }

    pub(super) fn heard(&mut self, flow: FlowKey, now: Duration) {
        (self.hub, self.course.heard_at) = (Some(flow), Some(now));
    }

    /// Returns `true` if both ends have released the flow.
    pub(super) fn is_over(&self) -> bool {
        self.released == [true; 2]
    }

    pub(super) fn tend(&mut self, pair: &mut Pair, buffer: &mut [u8]) {
        let now = pair.now();
        if self.air.is_none() {
            self.open(pair, buffer);
        }
        if let Some(hub) = self.hub.filter(|_| !self.released[DOWN])
            && let Some(session) = pair.hub.session(hub.0)
        {
            self.serve(session, hub.1, buffer, now);
        }
        if let Some(air) = self.air.filter(|_| !self.released[UP])
            && let Some(session) = pair.air.session(air.0)
        {
            self.fetch(session, air.1, buffer, now);
        }
    }

    /// Opens the flow. Repeated until there is room for one.
    fn open(&mut self, pair: &mut Pair, buffer: &mut [u8]) {
        let target: Target = "origin.example:80".parse().expect("the target is well formed");
        let Carry { class, passenger, up, .. } = self.carry;
        let first = &buffer[..up.min(REQUEST_BYTES) as usize];
        match pair.air.open(&target, class, passenger, first, pair.now()) {
            Ok((air, taken)) => {
                self.air = Some(air);
                self.took_up(UP, taken);
            }
            Err(OpenError::NotConnected | OpenError::TooManyFlows(_)) => {}
            Err(OpenError::Target(error)) => unreachable!("the target is well formed: {error}"),
        }
    }

    /// Server side: reads the request, then answers.
    fn serve(&mut self, session: &mut Session, flow: u64, buffer: &mut [u8], now: Duration) {
        let ended = self.read(UP, session, flow, buffer, now);
        if self.carry.up == ENDLESS || self.course.got[UP] >= self.carry.up {
            self.course.answered_at.get_or_insert(now);
            self.write(DOWN, session, flow, buffer, now);
        }
        self.let_go(DOWN, ended, session, flow);
    }

    /// Client side: writes the request, then reads the answer.
    fn fetch(&mut self, session: &mut Session, flow: u64, buffer: &mut [u8], now: Duration) {
        self.write(UP, session, flow, buffer, now);
        let ended = self.read(DOWN, session, flow, buffer, now);
        self.let_go(UP, ended, session, flow);
    }

    fn write(
        &mut self,
        way: usize,
        session: &mut Session,
        flow: u64,
        buffer: &[u8],
        now: Duration,
    ) {
        if self.left[way] == 0 {
            return;
        }
        loop {
            let most = buffer.len().min(usize::try_from(self.left[way]).unwrap_or(usize::MAX));
            match session.write(flow, &buffer[..most], now) {
                Write::Taken(bytes) if bytes > 0 => self.took_up(way, bytes),
                _ => break,
            }
        }
        if self.left[way] == 0 {
            session.finish(flow);
        }
    }

    fn took_up(&mut self, way: usize, bytes: usize) {
        if self.left[way] != ENDLESS {
            self.left[way] -= bytes as u64;
        }
    }

    /// Reads everything available. Returns `true` if the direction has ended.
    fn read(
        &mut self,
        way: usize,
        session: &mut Session,
        flow: u64,
        buffer: &mut [u8],
        now: Duration,
    ) -> bool {
        loop {
            match session.read(flow, buffer, now) {
                Read::Taken(bytes) => {
                    self.course.came(way, bytes as u64, now);
                }
                Read::Blocked => return false,
                Read::Finished | Read::Reset(_) => return true,
            }
        }
    }

    /// Releases the flow at an end that has sent and read everything.
    fn let_go(&mut self, end: usize, ended: bool, session: &mut Session, flow: u64) {
        if ended && self.left[end] == 0 {
            session.release(flow);
            self.released[end] = true;
        }
    }
}
