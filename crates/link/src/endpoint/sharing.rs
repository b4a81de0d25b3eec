//! Division of a beam's two directions among the aircraft of a hub.
//!
//! Towards the aircraft the hub is the only sender, so that every session simply gets its part,
//! again every [`TICK`]. From the aircraft the rate is granted, with the [`Beam`] as ledger.
//!
//! A session without a demand has its floor, and is not visited until it is touched. So a tick
//! costs as much as the active sessions, however many others there are.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use bentpipe_units::BitRate;

use super::SessionId;
use crate::key::PublicKey;
use crate::lease::{
    Beam, BeamError, Demand, GRANT_LIFETIME, IDLE_GRANT, Share, Want, check, divide_beside,
};
use crate::session::Session;

/// Maximum wait of an aircraft with new data for its part by weight; until then it has its floor. A
/// division among 200 aircraft takes some 10 us. Demands within one tick are answered together.
const TICK: Duration = Duration::from_millis(20);

/// Sessions of the hub.
pub trait Sessions {
    /// Every session.
    fn all(&self) -> Vec<SessionId>;
    /// A session, and its aircraft.
    fn get(&mut self, id: SessionId) -> Option<(PublicKey, &mut Session)>;
    /// Notes that the rate of a session changed.
    fn touch(&mut self, id: SessionId);
    /// Session of an aircraft.
    fn id_of(&self, aircraft: &PublicKey) -> Option<SessionId>;
}

/// A shared beam, and its division.
#[derive(Default)]
pub struct Sharing {
    forward: Option<Forward>,
    back: Option<Beam<PublicKey>>,
    next: Option<Duration>,
    /// A demand has not been answered yet.
    asked: bool,
    /// Time of the last answers to demands.
    answered: Option<Duration>,
    /// Sessions whose part may change: those with a demand at the last division, and those touched
    /// since.
    unsure: BTreeSet<SessionId>,
    /// The part of every session may change.
    all_unsure: bool,
    /// Sessions by aircraft, for the sum of their floors.
    present: BTreeSet<PublicKey>,
    /// A demand that cannot be met was logged.
    complained: bool,
}

struct Forward {
    rate: BitRate,
    shares: Vec<(PublicKey, Share)>,
    /// Sum of the floors of all present aircraft, in bit/s.
    floors: u128,
}

impl Forward {
    fn share_of(&self, key: &PublicKey) -> Share {
        let known = self.shares.binary_search_by(|(of, _)| of.cmp(key));
        known.map_or(Share::default(), |at| self.shares[at].1)
    }

    fn floor_of(&self, key: &PublicKey) -> BitRate {
        self.share_of(key).floor.max(IDLE_GRANT)
    }

    /// Returns `true` if not even the floors fit, so that every part depends on which aircraft are
    /// present.
    fn is_cut(&self) -> bool {
        self.floors > u128::from(self.rate.bps())
    }
}

impl Sharing {
    /// Sets the rates of the two directions; `None` for one that is not shared. Floors that do not
    /// fit are refused when sharing begins; if a beam shrinks below them later, all are cut.
    pub fn set_rates(
        &mut self,
        forward: Option<BitRate>,
        back: Option<BitRate>,
        shares: impl Iterator<Item = (PublicKey, Share)>,
        now: Duration,
    ) -> Result<(), BeamError> {
        let shares: Vec<_> = shares.collect();
        let begin =
            [forward.filter(|_| self.forward.is_none()), back.filter(|_| self.back.is_none())];
        for rate in begin.into_iter().flatten() {
            check(rate, shares.iter().map(|(_, share)| *share))?;
        }
        match (&mut self.back, back) {
            (Some(beam), Some(rate)) => beam.set_rate(rate),
            (held, Some(rate)) => {
                *held = Some(Beam::new(rate, shares.iter().copied(), GRANT_LIFETIME)?);
            }
            (held, None) => *held = None,
        }
        self.forward = forward.map(|rate| {
            let mut forward = Forward { rate, shares, floors: 0 };
            let floors = self.present.iter().map(|key| forward.floor_of(key).bps());
            forward.floors = floors.map(u128::from).sum();
            forward
        });
        self.all_unsure = true;
        self.next = Some(now);
        Ok(())
    }

    /// Sets the rates of a beam in use, and the shares in it. A direction that is not shared stays
    /// so.
    pub fn change(
        &mut self,
        forward: Option<BitRate>,
        back: Option<BitRate>,
        shares: impl Iterator<Item = (PublicKey, Share)>,
        now: Duration,
    ) {
        let shares: Vec<_> = shares.collect();
        if let (Some(beam), Some(rate)) = (&mut self.back, back) {
            beam.set_rate(rate);
            beam.set_members(shares.iter().copied());
        }
        if let (Some(held), Some(rate)) = (&mut self.forward, forward) {
            let mut changed = Forward { rate, shares, floors: 0 };
            let floors = self.present.iter().map(|key| changed.floor_of(key).bps());
            changed.floors = floors.map(u128::from).sum();
            *held = changed;
            self.all_unsure = true;
        }
        if self.back.is_some() || self.forward.is_some() {
            self.next = Some(now);
        }
    }

    /// Notes that an aircraft began a session.
    pub fn joined(&mut self, key: PublicKey, id: SessionId) {
        if let Some(beam) = &mut self.back {
            beam.joined(key);
        }
        self.touch(id);
        if self.present.insert(key)
            && let Some(forward) = &mut self.forward
        {
            forward.floors += u128::from(forward.floor_of(&key).bps());
            self.all_unsure |= forward.is_cut();
        }
    }

    /// Notes that an aircraft's session is over.
    pub fn left(&mut self, key: &PublicKey, id: SessionId) {
        self.unsure.remove(&id);
        if self.present.remove(key)
            && let Some(forward) = &mut self.forward
        {
            self.all_unsure |= forward.is_cut();
            forward.floors -= u128::from(forward.floor_of(key).bps());
        }
    }

    /// Notes that the demand of a session may have changed.
    pub fn touch(&mut self, id: SessionId) {
        if self.forward.is_some() {
            self.unsure.insert(id);
        }
    }

    /// Handles a DEMAND of an aircraft, which the log calls `name`. It is answered at the next
    /// [`Self::divide`], which is due at once if the last answers are a [`TICK`] old.
    pub fn asked(&mut self, key: PublicKey, name: &dyn Display, demand: &Demand, now: Duration) {
        match &mut self.back {
            Some(beam) => {
                beam.on_demand(key, demand, now);
                self.asked = true;
                let at = self.answered.map_or(now, |answered| now.max(answered + TICK));
                self.next = Some(self.next.map_or(at, |next| next.min(at)));
            }
            None if !std::mem::replace(&mut self.complained, true) => {
                tracing::warn!(
                    aircraft = %name,
                    "it asks for a rate to send at, and there is no beam to grant from: configure \
                     the beam's return rate here, or a static lease there"
                );
            }
            None => {}
        }
    }

    /// Notes a packet to an aircraft, after which division resumes.
    pub fn sent(&mut self, now: Duration) {
        if self.forward.is_some() {
            self.next = Some(self.next.map_or(now, |next| next.min(now + TICK)));
        }
    }

    /// Time at which [`Self::divide`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.next
    }

    /// Sets the sessions' parts, and grants the aircraft theirs.
    pub fn divide(&mut self, sessions: &mut impl Sessions, now: Duration) {
        let mut next = self.divide_forward(sessions, now).then(|| now + TICK);
        if std::mem::take(&mut self.asked) {
            self.answered = Some(now);
        }
        if let Some(beam) = &mut self.back {
            for (key, grant) in beam.grants(now) {
                if let Some(id) = sessions.id_of(&key)
                    && let Some((_, session)) = sessions.get(id)
                {
                    session.grant(grant, now);
                    sessions.touch(id);
                }
            }
            let end = beam.next_end(now);
            next = [next, end].into_iter().flatten().min();
        }
        self.next = next;
    }

    /// Divides the direction towards the aircraft. Returns `true` while any session has something
    /// to send.
    fn divide_forward(&mut self, sessions: &mut impl Sessions, now: Duration) -> bool {
        let unsure = std::mem::take(&mut self.unsure);
        let all = std::mem::take(&mut self.all_unsure);
        let ids = if all { sessions.all() } else { unsure.into_iter().collect() };
        let Some(forward) = &self.forward else {
            ids.into_iter().for_each(|id| set_part(sessions, id, None));
            return false;
        };
        let (mut wants, mut wanting, mut others) = (Vec::new(), Vec::new(), forward.floors);
        for id in ids {
            let Some((_, session)) = sessions.get(id) else { continue };
            let Share { weight, floor, .. } = session.share();
            let floor = floor.max(IDLE_GRANT);
            wants.push(Want { weight, floor, max: session.useful_rate(now) });
            wanting.push(id);
            others -= u128::from(floor.bps());
        }
        let parts = divide_beside(others, forward.rate, &wants);
        for ((id, want), part) in wanting.into_iter().zip(wants).zip(parts) {
            set_part(sessions, id, Some(part));
            if want.max.bps() > 0 {
                self.unsure.insert(id);
            }
        }
        !self.unsure.is_empty()
    }
}

fn set_part(sessions: &mut impl Sessions, id: SessionId, part: Option<BitRate>) {
    if sessions.get(id).is_some_and(|(_, session)| session.set_part(part)) {
        sessions.touch(id);
    }
}
