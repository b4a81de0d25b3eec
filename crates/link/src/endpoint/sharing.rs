//! A beam's two directions, divided among the aircraft of a hub.
//!
//! Towards the aircraft the hub itself is the only sender, so every session is simply given its
//! part, anew every [`TICK`]. From the aircraft it takes grants, whose ledger is the [`Beam`].

use std::fmt::Display;
use std::time::Duration;

use bentpipe_units::BitRate;

use crate::key::PublicKey;
use crate::lease::{
    Beam, BeamError, Demand, GRANT_LIFETIME, IDLE_GRANT, Share, Want, check, divide,
};
use crate::session::Session;

/// How long an aircraft that begins to be sent something waits at most for a part by its weight;
/// until then it has its floor. Dividing among 200 aircraft takes some 10 us.
const TICK: Duration = Duration::from_millis(20);

/// What is shared, and how.
#[derive(Default)]
pub struct Sharing {
    forward: Option<Forward>,
    back: Option<Beam<PublicKey>>,
    next: Option<Duration>,
    /// It was said that somebody asks in vain.
    complained: bool,
}

struct Forward {
    rate: BitRate,
    shares: Vec<(PublicKey, Share)>,
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
        self.forward = forward.map(|rate| Forward { rate, shares });
        self.next = Some(now);
        Ok(())
    }

    /// An aircraft begins a session.
    pub fn joined(&mut self, key: PublicKey) {
        if let Some(beam) = &mut self.back {
            beam.joined(key);
        }
    }

    /// An aircraft, which the log calls `name`, says what it wants to send. It is answered at the next [`Self::divide`], which
    /// is due at once.
    pub fn asked(&mut self, key: PublicKey, name: &dyn Display, demand: &Demand, now: Duration) {
        match &mut self.back {
            Some(beam) => {
                beam.asked(key, demand, now);
                self.next = Some(now);
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

    /// When [`Self::divide`] is due.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.next
    }

    /// Gives every session its part, and tells the aircraft theirs.
    pub fn divide<'a>(
        &mut self,
        sessions: impl Iterator<Item = (PublicKey, &'a mut Session)>,
        now: Duration,
    ) {
        let mut sessions: Vec<_> = sessions.collect();
        let mut next = self.divide_forward(&mut sessions, now).then(|| now + TICK);
        if let Some(beam) = &mut self.back {
            let grants = beam.grants(now);
            for (key, grant) in grants {
                if let Some((_, session)) = sessions.iter_mut().find(|(of, _)| *of == key) {
                    session.grant(grant, now);
                }
            }
            let end = beam.next_end(now);
            next = [next, end].into_iter().flatten().min();
        }
        self.next = next;
    }

    /// `true` while anybody has something to be sent.
    fn divide_forward(&self, sessions: &mut [(PublicKey, &mut Session)], now: Duration) -> bool {
        let Some(forward) = &self.forward else {
            for (_, session) in sessions {
                session.set_part(None);
            }
            return false;
        };
        let share_of = |key: &PublicKey| {
            let known = forward.shares.binary_search_by(|(of, _)| of.cmp(key));
            known.map_or(Share::default(), |at| forward.shares[at].1)
        };
        let wants: Vec<Want> = sessions
            .iter_mut()
            .map(|(key, session)| {
                let share = share_of(key);
                let (weight, floor) = (share.weight, share.floor.max(IDLE_GRANT));
                Want { weight, floor, most: session.useful_rate(now) }
            })
            .collect();
        for ((_, session), part) in sessions.iter_mut().zip(divide(forward.rate, &wants)) {
            session.set_part(Some(part));
        }
        wants.iter().any(|want| want.most.bps() > 0)
    }
}
