//! A stream with a client on the aircraft and a server behind the hub.

use std::time::Duration;

use bentpipe_link::{Class, Core, OpenError, Read, Session, Target, Write};

use super::{DOWN, UP};
use crate::sim::pair::{FlowKey, Pair};

/// As many bytes as there is time for.
pub const ENDLESS: u64 = u64::MAX;
/// A request as long as a browser's short ones; it travels with the flow's opening.
pub const REQUEST_BYTES: u64 = crate::sim::tunnel::REQUEST_BYTES;

/// What a stream carries.
#[derive(Debug, Clone, Copy)]
pub struct Carry {
    /// As what.
    pub class: Class,
    /// Whose.
    pub passenger: u32,
    /// Bytes from the aircraft: a request, or an upload.
    pub up: u64,
    /// Bytes towards it, sent once all from it have come; at once where those are [`ENDLESS`].
    pub down: u64,
}

/// What became of it.
#[derive(Debug)]
pub struct Stream {
    carry: Carry,
    air: Option<FlowKey>,
    hub: Option<FlowKey>,
    /// Still to be written: at the hub, and at the air.
    left: [u64; 2],
    got: [u64; 2],
    opened_at: Duration,
    heard_at: Option<Duration>,
    answered_at: Option<Duration>,
    first_at: Option<Duration>,
    done_at: Option<Duration>,
    /// Which ends have let go of it.
    released: [bool; 2],
}

impl Stream {
    pub(super) fn new(carry: Carry, opened_at: Duration) -> Self {
        Self {
            carry,
            air: None,
            hub: None,
            left: [carry.down, carry.up],
            got: [0; 2],
            opened_at,
            heard_at: None,
            answered_at: None,
            first_at: None,
            done_at: None,
            released: [false; 2],
        }
    }

    /// Bytes that came, towards the aircraft and from it.
    pub fn got(&self) -> [u64; 2] {
        self.got
    }

    /// All that was to come to the aircraft is there.
    pub fn is_done(&self) -> bool {
        self.done_at.is_some()
    }

    /// From the opening to the last byte on the aircraft.
    pub fn took(&self) -> Option<Duration> {
        Some(self.done_at? - self.opened_at)
    }

    /// When it was opened.
    pub fn opened_at(&self) -> Duration {
        self.opened_at
    }

    /// How long its first bytes took: the answer's from the hub to the aircraft, and the opening's
    /// to the hub.
    pub fn first_transits(&self) -> [Option<Duration>; 2] {
        let down = self.first_at.zip(self.answered_at).map(|(came, left)| came - left);
        [down, self.heard_at.map(|heard| heard - self.opened_at)]
    }

    pub(super) fn is_named(&self, flow: u64) -> bool {
        self.hub.is_none() && self.air.is_some_and(|air| air.1 == flow)
    }

    pub(super) fn heard(&mut self, flow: FlowKey, now: Duration) {
        (self.hub, self.heard_at) = (Some(flow), Some(now));
    }

    /// Both ends have let go of it.
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

    /// Tried again until there is room for a flow.
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

    /// The server's end: hears the request, then answers.
    fn serve(&mut self, session: &mut Session, flow: u64, buffer: &mut [u8], now: Duration) {
        let ended = self.read(UP, session, flow, buffer, now);
        if self.carry.up == ENDLESS || self.got[UP] >= self.carry.up {
            self.answered_at.get_or_insert(now);
            self.write(DOWN, session, flow, buffer, now);
        }
        self.let_go(DOWN, ended, session, flow);
    }

    /// The client's end.
    fn fetch(&mut self, session: &mut Session, flow: u64, buffer: &mut [u8], now: Duration) {
        self.write(UP, session, flow, buffer, now);
        let ended = self.read(DOWN, session, flow, buffer, now);
        if self.got[DOWN] > 0 {
            self.first_at.get_or_insert(now);
        }
        if self.got[DOWN] >= self.carry.down {
            self.done_at.get_or_insert(now);
        }
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

    /// Reads what there is; `true` when no more will come.
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
                Read::Taken(bytes) => self.got[way] += bytes as u64,
                Read::Blocked => return false,
                Read::Finished | Read::Reset(_) => return true,
            }
        }
    }

    /// An end that sent all and read all lets go of the flow.
    fn let_go(&mut self, end: usize, ended: bool, session: &mut Session, flow: u64) {
        if ended && self.left[end] == 0 {
            session.release(flow);
            self.released[end] = true;
        }
    }
}
