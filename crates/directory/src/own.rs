//! The own statement, and when its next version is due.

use std::time::Duration;

use zeroize::Zeroizing;

use crate::Key;
use crate::entry::{Entry, MAX_INITIAL_VERSION, MAX_VERSION, Statement};
use crate::signature::SIGNATURE_BYTES;

/// Minimum interval of versions that say nothing new. Each is drawn, so that grounds which have started
/// together do not speak together.
pub const MIN_REFRESH: Duration = Duration::from_secs(60);

/// Maximum interval of versions that say nothing new.
pub const MAX_REFRESH: Duration = Duration::from_secs(180);

/// Time for which a version counts. The next one may be two minutes late.
pub const LIFETIME: Duration = Duration::from_secs(300);

/// Minimum time between two versions.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// Minimum time between two versions that differ by their load.
const MIN_LOAD_PAUSE: Duration = Duration::from_secs(10);

/// Change of the load that is worth a version: a sixteenth.
const MIN_LOAD_CHANGE: u8 = 16;

/// The own key and statement.
pub struct Own {
    secret: Zeroizing<[u8; 32]>,
    pub key: Key,
    version: u64,
    pub entry: Option<Entry>,
    /// Number of entries that were signed. It changes with the entry, also if two have one version.
    pub revision: u64,
    signed_at: Duration,
    /// Time until a version that says nothing new.
    refresh: Duration,
    /// A neighbour has a later version of an earlier process.
    is_behind: bool,
}

impl Own {
    pub fn new(secret: [u8; 32], key: Key, version: u64) -> Self {
        let (version, secret) = (version.min(MAX_INITIAL_VERSION), Zeroizing::new(secret));
        Self {
            secret,
            key,
            version,
            entry: None,
            revision: 0,
            signed_at: Duration::ZERO,
            refresh: MIN_REFRESH,
            is_behind: false,
        }
    }

    /// Signs `statement` if a version of it is due.
    pub fn state(&mut self, statement: &Statement, now: Duration, random: [u8; 64]) -> bool {
        let is_due = self.is_due(statement, now);
        if is_due {
            self.version = (self.version + 1).min(MAX_VERSION);
            let owner = (&*self.secret, self.key);
            let entry = Entry::sign(owner, self.version, LIFETIME, statement, random);
            self.refresh = refresh(&entry);
            self.entry = Some(entry);
            self.revision += 1;
            (self.signed_at, self.is_behind) = (now, false);
        }
        is_due
    }

    fn is_due(&self, statement: &Statement, now: Duration) -> bool {
        let Some(entry) = &self.entry else { return true };
        let (age, before) = (now.saturating_sub(self.signed_at), entry.statement());
        let same_but_load = Statement { load: before.load, ..statement.clone() } == *before;
        let load_differs = before.load.abs_diff(statement.load) >= MIN_LOAD_CHANGE;
        age >= self.refresh
            || age >= MIN_LOAD_PAUSE && load_differs
            || age >= MIN_PAUSE && (self.is_behind || !same_but_load)
    }

    /// Returns `true` if `entry`, which claims to be this ground's, is later than the last version.
    pub fn is_before(&self, entry: &Entry) -> bool {
        let is_later = self.entry.as_ref().is_none_or(|own| entry.order(own).is_gt());
        is_later && entry.version() >= self.version
    }

    /// Notes `entry`, which an earlier process has signed, or another one with this key. The next version
    /// is above it.
    pub fn note_later(&mut self, entry: &Entry) {
        (self.version, self.is_behind) = (entry.version(), true);
    }
}

/// Draws the interval until the next version: a signature begins with random bytes, which everybody may know.
fn refresh(entry: &Entry) -> Duration {
    let signature = &entry.bytes()[entry.bytes().len() - SIGNATURE_BYTES..];
    MIN_REFRESH + (MAX_REFRESH - MIN_REFRESH) * u32::from(signature[0]) / 255
}
