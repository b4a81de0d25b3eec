//! State of one neighbour, over all of its streams.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_units::{TokenBucket, TokenRate};

use crate::entry::{Claimed, Entry, EntryError, Statement};
use crate::{
    Key, MIN_FRAME_CHARGE, MIN_STREAM_INTERVAL, RECEIVE_BURST_BYTES, RECEIVE_BYTES_PER_SECOND,
};

/// Maximum number of grounds of which a neighbour may tell.
pub const MAX_INTRODUCED: usize = 64;

/// Rate at which a neighbour is read.
const INTAKE: TokenRate = TokenRate::new(RECEIVE_BYTES_PER_SECOND, RECEIVE_BURST_BYTES);

/// Origin of a stream between two neighbours. Two grounds that name each other as hub and egress have
/// one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// This ground opened it.
    Ours,
    /// The neighbour opened it.
    Theirs,
}

/// An entry, and the time of its arrival.
#[derive(Debug, Clone)]
pub struct StoredEntry {
    pub entry: Entry,
    pub received_at: Duration,
}

/// Result of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is the newest.
    Newest,
    /// It is stored already.
    Duplicate,
    /// A later one is stored.
    Old,
    /// There are too many.
    Refused,
}

impl Outcome {
    /// Result of `claimed` if its ground has signed it. Signatures are checked last, because most
    /// entries are stored already.
    fn of(claimed: &Claimed, stored: Option<&StoredEntry>) -> Self {
        match stored.map(|stored| claimed.unproven().order(&stored.entry)) {
            Some(Ordering::Less) => Self::Old,
            Some(Ordering::Equal) => Self::Duplicate,
            Some(Ordering::Greater) | None => Self::Newest,
        }
    }
}

/// State of one neighbour, over all of its streams.
#[derive(Default)]
pub struct PeerState {
    /// Its own entry.
    pub own: Option<StoredEntry>,
    /// Number of its own entries that were stored. It changes with the entry, also if two have one
    /// version.
    pub revision: u64,
    /// Entries of others, who are not in the own file.
    pub introduced: BTreeMap<Key, StoredEntry>,
    /// Budget of what is sent to it. A new stream does not refill it.
    pub output: TokenBucket,
    intake: TokenBucket,
    /// Start of the last stream of each side.
    began_at: BTreeMap<Side, Duration>,
}

impl StoredEntry {
    /// Returns `true` while the entry counts. Afterwards its version still keeps earlier ones out.
    pub fn is_alive(&self, now: Duration) -> bool {
        now.saturating_sub(self.received_at) < self.entry.lifetime()
    }

    /// Statement, and the time since it arrived.
    pub fn statement(&self, now: Duration) -> (&Statement, Duration) {
        (self.entry.statement(), now.saturating_sub(self.received_at))
    }
}

impl PeerState {
    /// Notes the start of a stream. Returns `false` if the last one of this side began less than
    /// [`MIN_STREAM_INTERVAL`] ago.
    pub fn begin(&mut self, side: Side, now: Duration) -> bool {
        let last = self.began_at.get(&side);
        let is_due = last.is_none_or(|last| now.saturating_sub(*last) >= MIN_STREAM_INTERVAL);
        if is_due {
            self.began_at.insert(side, now);
        }
        is_due
    }

    /// Notes that `bytes` were read.
    pub fn read(&mut self, bytes: usize, now: Duration) {
        self.intake.refill(INTAKE, now);
        self.intake.spend(bytes as u64);
    }

    /// Charges what a frame of `bytes` lacks to the minimum.
    pub fn charge_frame(&mut self, bytes: usize) {
        self.intake.spend(MIN_FRAME_CHARGE.saturating_sub(bytes as u64));
    }

    /// Time until more may be read.
    pub fn pause(&self, now: Duration) -> Duration {
        self.intake.opens_at(INTAKE).map_or(Duration::ZERO, |at| at.saturating_sub(now))
    }

    /// Takes an entry of the neighbour itself.
    pub fn take_own(&mut self, claimed: Claimed, now: Duration) -> Result<Outcome, EntryError> {
        let outcome = Outcome::of(&claimed, self.own.as_ref());
        if outcome == Outcome::Newest {
            self.own = Some(StoredEntry { entry: claimed.verify()?, received_at: now });
            self.revision += 1;
        }
        Ok(outcome)
    }

    /// Takes an entry of another ground.
    pub fn take_other(&mut self, claimed: Claimed, now: Duration) -> Result<Outcome, EntryError> {
        let key = claimed.unproven().key();
        let outcome = Outcome::of(&claimed, self.introduced.get(&key));
        if outcome != Outcome::Newest {
            return Ok(outcome);
        }
        let is_full =
            self.introduced.len() >= MAX_INTRODUCED && !self.introduced.contains_key(&key);
        let silent = is_full.then(|| self.silent(now));
        if silent == Some(None) {
            return Ok(Outcome::Refused);
        }
        let entry = claimed.verify()?;
        if let Some(silent) = silent.flatten() {
            self.introduced.remove(&silent);
        }
        self.introduced.insert(key, StoredEntry { entry, received_at: now });
        Ok(Outcome::Newest)
    }

    /// The other ground that has been silent for longest, if its entry counts no more.
    fn silent(&self, now: Duration) -> Option<Key> {
        let silent = self.introduced.iter().filter(|(_, stored)| !stored.is_alive(now));
        silent.min_by_key(|(_, stored)| stored.received_at).map(|(key, _)| *key)
    }
}
