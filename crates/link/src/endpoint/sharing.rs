//! A beam's two directions, divided among the aircraft of a hub.
//!
//! Towards the aircraft the hub itself is the only sender, so every session is simply given its
//! part, anew every [`TICK`]. From the aircraft it takes grants, whose ledger is the [`Beam`].
//!
//! A session that wants nothing has its floor, and is not looked at until it is touched. So a tick
//! costs what the sessions that are in use cost, however many others there are.

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

/// Maximum wait of an aircraft with new data for its part by weight; until then it has its floor.
/// Dividing among 200 aircraft takes some 10 us. Demands that come closer together than this are
/// answered together.
const TICK: Duration = Duration::from_millis(20);

/// The sessions of the hub.
pub trait Sessions {
    /// Every one.
    fn all(&self) -> Vec<SessionId>;
    /// One, and whose it is.
    fn get(&mut self, id: SessionId) -> Option<(PublicKey, &mut Session)>;
    /// Says that the rate of one has changed.
    fn touch(&mut self, id: SessionId);
    /// That of an aircraft.
    fn id_of(&self, aircraft: &PublicKey) -> Option<SessionId>;
}

/// Shared beam, and its division.
#[derive(Default)]
pub struct Sharing {
    forward: Option<Forward>,
    back: Option<Beam<PublicKey>>,
    next: Option<Duration>,
    /// A demand has not been answered.
    asked: bool,
    /// Time of the last answers to demands.
    answered: Option<Duration>,
    /// Sessions that may want another part than they have: those that wanted something when their
    /// parts were last divided, and those that were touched since.
    unsure: BTreeSet<SessionId>,
    /// Every session may have to have another part.
    all_unsure: bool,
    /// Sessions by aircraft, for the sum of their floors.
    present: BTreeSet<PublicKey>,
    /// It was said that somebody asks in vain.
    complained: bool,
}

struct Forward {
    rate: BitRate,
    shares: Vec<(PublicKey, Share)>,
    /// The floors of all that are here, in bit/s.
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

    /// Returns whether not even the floors fit: then everybody's part depends on who is here.
    fn is_cut(&self) -> bool {
        self.floors > u128::from(self.rate.bps())
    }
}

impl Sharing {
    /// The rates of the two directions from `now` on, `None` where one is not shared. Floors that
    /// do not fit are refused when sharing begins; if a beam shrinks below them, all are cut.
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

    /// An aircraft begins a session.
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

    /// A session of an aircraft is over.
    pub fn left(&mut self, key: &PublicKey, id: SessionId) {
        self.unsure.remove(&id);
        if self.present.remove(key)
            && let Some(forward) = &mut self.forward
        {
            self.all_unsure |= forward.is_cut();
            forward.floors -= u128::from(forward.floor_of(key).bps());
        }
    }

    /// The wish of a session may have changed.
    pub fn touch(&mut self, id: SessionId) {
        if self.forward.is_some() {
            self.unsure.insert(id);
        }
    }

    /// An aircraft, which the log calls `name`, says what it wants to send. It is answered at the next [`Self::divide`], which
    /// is due at once if the last answers are a [`TICK`] old.
    pub fn asked(&mut self, key: PublicKey, name: &dyn Display, demand: &Demand, now: Duration) {
        match &mut self.back {
            Some(beam) => {
                beam.asked(key, demand, now);
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

    /// A packet left for an aircraft: where all were idle, dividing begins again.
    pub fn sent(&mut self, now: Duration) {
        if self.forward.is_some() {
            self.next = Some(self.next.map_or(now, |next| next.min(now + TICK)));
        }
    }

    /// Time at which [`Self::divide`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.next
    }

    /// Gives sessions their parts, and tells the aircraft theirs.
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

    /// `true` while anybody has something to be sent.
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
            let Some((key, session)) = sessions.get(id) else { continue };
            let (weight, floor) = (forward.share_of(&key).weight, forward.floor_of(&key));
            wants.push(Want { weight, floor, most: session.useful_rate(now) });
            wanting.push(id);
            others -= u128::from(floor.bps());
        }
        let parts = divide_beside(others, forward.rate, &wants);
        for ((id, want), part) in wanting.into_iter().zip(wants).zip(parts) {
            set_part(sessions, id, Some(part));
            if want.most.bps() > 0 {
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
