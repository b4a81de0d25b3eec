//! The calling end of handshakes, which repeats them until one is answered.
//!
//! Each call names the session that the caller has. The answer names the same session, which
//! continues under new keys, or another: then the caller's session is over.

use std::collections::VecDeque;
use std::time::Duration;

use rand::RngCore;

use crate::crypto::{
    Aeads, CookieMonitor, InitPayload, Keys, MacKey, ResponsePayload, Rng, SentInit,
};
use crate::key::{PublicKey, SecretKey};
use crate::wire::header::{COOKIE, COOKIE_BYTES, RESPONSE, RESPONSE_BYTES};

/// Maximum number of handshakes that may still be answered; a late answer to an early one counts.
const MAX_ATTEMPTS: usize = 4;
/// Minimum interval of handshakes, on short paths.
const MIN_ATTEMPT_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum interval of handshakes …
pub(super) const MAX_ATTEMPT_INTERVAL: Duration = Duration::from_secs(10);
/// … and during a session, whose flows wait. Each interval is up to a quarter shorter, so that a
/// fleet that lost its hub at one moment does not call it again at one moment.
const MAX_SESSION_ATTEMPT_INTERVAL: Duration = Duration::from_secs(4);
/// Minimum interval of frequent calls. They wait for 1.5 round trips, so that a RESPONSE or a COOKIE comes
/// before the next call.
const MIN_FREQUENT_INTERVAL: Duration = Duration::from_millis(500);
/// Time without an answer in which calls are frequent, if flows wait for a hub: as long as they wait.
const MAX_FREQUENT: Duration = Duration::from_secs(120);

/// Initiator of a peer, with the calls that may still be answered.
pub struct Initiator {
    prologue: &'static [u8],
    secret: SecretKey,
    peer: PublicKey,
    /// mac1 and mac2 keys of what we send …
    mac: MacKey,
    /// … and of what we receive.
    own_mac: MacKey,
    cookies: CookieMonitor,
    instance: u64,
    session_instance: u64,
    counter: u64,
    attempts: VecDeque<SentInit>,
    next_attempt: Duration,
    attempt_interval: Option<Duration>,
    /// Calls are frequent for [`MAX_FREQUENT`].
    calls_often: bool,
    /// Maximum number of paths that we offer.
    max_paths: u8,
    /// Path of the next call.
    path: u8,
    /// Time of the first unanswered call.
    unanswered_since: Option<Duration>,
}

/// Answer to a call.
pub struct Answer {
    /// Keys for what is sent from now on.
    pub keys: Keys,
    /// Payload of the peer.
    pub payload: ResponsePayload,
    /// `true` if the session continues; otherwise another begins.
    pub resumes: bool,
    /// Time from message 1 to its answer.
    pub round_trip: Duration,
    /// Path of message 1.
    pub path: u8,
}

impl Initiator {
    /// Creates a caller that calls `peer` at once, in the protocol that `prologue` names.
    /// `first_counter` must be above every counter that this key has ever used.
    pub fn new(
        prologue: &'static [u8],
        secret: SecretKey,
        peer: PublicKey,
        first_counter: u64,
        rng: &mut Rng,
    ) -> Self {
        Self {
            prologue,
            own_mac: MacKey::new(&secret.public()),
            secret,
            peer,
            mac: MacKey::new(&peer),
            cookies: CookieMonitor::default(),
            instance: rng.next_u64().max(1),
            session_instance: 0,
            counter: first_counter,
            attempts: VecDeque::new(),
            next_attempt: Duration::ZERO,
            attempt_interval: None,
            calls_often: false,
            max_paths: 1,
            path: 0,
            unanswered_since: None,
        }
    }

    /// Time of the next call.
    pub fn next_attempt(&self) -> Duration {
        self.next_attempt
    }

    /// Puts the next call off until `at`.
    pub fn postpone(&mut self, at: Duration) {
        self.next_attempt = at;
    }

    /// Time of the first call that nobody has answered since.
    pub fn unanswered_since(&self) -> Option<Duration> {
        self.unanswered_since
    }

    /// Makes calls frequent in the first two minutes without an answer, or not.
    pub fn set_calls_often(&mut self, calls_often: bool) {
        self.calls_often = calls_often;
    }

    /// Sets the number of paths to offer, and the path of the next call.
    pub fn set_paths(&mut self, max_paths: u8, path: u8) {
        (self.max_paths, self.path) = (max_paths, path);
    }

    /// Raises the counter to `first` if that is above, because another gateway may have used the
    /// next ones.
    pub fn raise_counter(&mut self, first: u64) {
        self.counter = self.counter.max(first);
    }

    /// Appends message 1 with our rate and the first credit of each flow. The next call follows
    /// after one and a half times the answer time of a path of `round_trip`, and then after ever
    /// longer intervals.
    pub fn call(
        &mut self,
        (rate_bps, reserve_bytes): (u64, u32),
        round_trip: Duration,
        now: Duration,
        rng: &mut Rng,
        out: &mut Vec<u8>,
    ) {
        let Self { counter, instance, session_instance: resumes, max_paths, path, .. } = *self;
        let aeads = Aeads::of_this_machine();
        let payload = InitPayload {
            counter,
            instance,
            resumes,
            rate_bps,
            reserve_bytes,
            aeads,
            max_paths,
            path,
        };
        self.counter += 1;
        let since = *self.unanswered_since.get_or_insert(now);
        let Self { prologue, secret, peer, .. } = self;
        let (attempt, mut message) = SentInit::start(prologue, secret, peer, &payload, now, rng);
        self.cookies.sign(&self.mac, &mut message, now);
        if self.attempts.len() == MAX_ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back(attempt);
        let before = self.attempt_interval.unwrap_or(round_trip);
        let is_frequent = self.calls_often && now.saturating_sub(since) < MAX_FREQUENT;
        let max = match is_frequent {
            true => (round_trip * 3 / 2).clamp(MIN_FREQUENT_INTERVAL, MAX_ATTEMPT_INTERVAL),
            false => MAX_ATTEMPT_INTERVAL,
        };
        let interval = (before * 3 / 2).clamp(MIN_ATTEMPT_INTERVAL, max);
        self.attempt_interval = Some(interval);
        self.next_attempt = now + self.jittered(interval, is_frequent.then_some(max));
        out.extend_from_slice(&message);
    }

    /// Handles a datagram that is not a session's packet: an answer, if it matches one of our
    /// calls. Anything else is dropped before any curve arithmetic.
    pub fn take(&mut self, datagram: &[u8], now: Duration) -> Option<Answer> {
        match (datagram.first(), datagram.len()) {
            (Some(&RESPONSE), RESPONSE_BYTES) => self.take_response(datagram, now),
            (Some(&COOKIE), COOKIE_BYTES) => {
                let named = SentInit::named_in(datagram);
                let ours = self.attempts.back().is_some_and(|attempt| Some(attempt.index) == named);
                if ours && self.cookies.take(&self.mac, datagram, now).is_ok() {
                    self.next_attempt = now; // at once: a reply is accepted once for each attempt
                }
                None
            }
            _ => None,
        }
    }

    /// Notes that the session is over, so that none is resumed.
    pub fn forget_session(&mut self) {
        self.session_instance = 0;
    }

    /// Shortens an interval during a session, or between frequent calls, which are at most `frequent`
    /// apart.
    fn jittered(&self, interval: Duration, frequent: Option<Duration>) -> Duration {
        let session = (self.session_instance != 0).then_some(MAX_SESSION_ATTEMPT_INTERVAL);
        let max = match frequent.into_iter().chain(session).min() {
            Some(max) if interval >= max => max,
            _ => return interval,
        };
        // SplitMix64's last step spreads what differs by aircraft and by call.
        let mixed = (self.instance ^ self.counter).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let share = (mixed >> 56) as u32; // of 256
        max - max * share / 1024
    }

    fn take_response(&mut self, message: &[u8], now: Duration) -> Option<Answer> {
        // The cheapest check first: an attacker off the path does not know the index.
        let index = SentInit::named_in(message)?;
        let at = self.attempts.iter().position(|attempt| attempt.index == index)?;
        if !self.own_mac.accepts(message) {
            return None;
        }
        let attempt = self.attempts.remove(at)?;
        let (round_trip, path) = (now.saturating_sub(attempt.sent_at), attempt.path);
        let (keys, payload) = match attempt.finish(message, now) {
            Ok(finished) => finished,
            Err(attempt) => {
                // A forgery must not use up the attempt.
                self.attempts.insert(at, *attempt);
                return None;
            }
        };
        self.attempts.clear();
        self.attempt_interval = None;
        self.unanswered_since = None;
        let resumes = payload.instance == self.session_instance;
        self.session_instance = payload.instance;
        Some(Answer { keys, payload, resumes, round_trip, path })
    }
}

#[cfg(test)]
#[path = "initiator_tests.rs"]
mod tests;
