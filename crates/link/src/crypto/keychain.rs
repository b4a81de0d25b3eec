//! Packet keys of a session: the present ones, and for a while the previous ones.
//!
//! A key has three ages:
//!
//! - at its lifetime, new keys are requested;
//! - at half of [`reject_after`] it is *overdue*: an attacker may drop handshakes and pass data, to
//!   keep one key in use;
//! - at [`reject_after`] it is erased, and nothing is sealed or opened until a handshake makes new
//!   keys.
//!
//! An outage does not end a session by that: the session waits without keys, and the next handshake
//! resumes it.

use std::time::Duration;

use super::Keys;
use crate::wire::header::DataHeader;

/// Age at which keys are erased, in lifetimes …
const REJECT_LIFETIMES: u32 = 4;
/// … and its minimum.
pub const MIN_REJECT_AFTER: Duration = Duration::from_secs(3600);

/// Returns the age at which keys with this lifetime are erased.
pub fn reject_after(lifetime: Duration) -> Duration {
    lifetime.saturating_mul(REJECT_LIFETIMES).max(MIN_REJECT_AFTER)
}

/// The packet keys of one session.
pub struct Keychain {
    keys: Keys,
    /// The previous keys, and the time until which they open late packets.
    old: Option<(Keys, Duration)>,
    lifetime: Duration,
    /// The last [`Aged`] that was returned.
    reported_age: ReportedAge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedAge {
    Nothing,
    Overdue,
    Erased,
}

/// An age that the keys have reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aged {
    /// They are overdue, and work until this age.
    Overdue(Duration),
    /// They are erased.
    Erased,
}

impl Keychain {
    /// Creates the keychain of a session that begins with `keys`, to be replaced after `lifetime`.
    pub fn new(keys: Keys, lifetime: Duration) -> Self {
        Self { keys, old: None, lifetime, reported_age: ReportedAge::Nothing }
    }

    /// Replaces the keys. The previous ones open late packets for `late`, and are then erased.
    pub fn replace(&mut self, keys: Keys, late: Duration, now: Duration) {
        self.old = Some((std::mem::replace(&mut self.keys, keys), now + late));
        self.reported_age = ReportedAge::Nothing;
    }

    /// Receiver indices of the session's packets.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        let old = self.old.as_ref().map(|(keys, _)| keys.local);
        std::iter::once(self.keys.local).chain(old)
    }

    /// Opens a packet with the keys it names; see [`Keys::open`].
    pub fn open(&mut self, header: &DataHeader, sealed: &[u8], plaintext: &mut Vec<u8>) -> bool {
        if header.receiver == self.keys.local {
            return self.keys.open(header, sealed, plaintext);
        }
        let old = self.old.as_mut().filter(|(keys, _)| keys.local == header.receiver);
        old.is_some_and(|(keys, _)| keys.open(header, sealed, plaintext))
    }

    /// Seals a packet with the newest keys; see [`Keys::seal`].
    pub fn seal(&mut self, path: u8, number: u64, plaintext: &[u8], out: &mut Vec<u8>) -> bool {
        self.keys.seal(path, number, plaintext, out)
    }

    /// Returns `true` if nothing can be sent until there are new keys.
    pub fn is_used_up(&self) -> bool {
        self.keys.is_used_up()
    }

    /// Returns `true` if new keys should be requested.
    pub fn needs_rekey(&self, now: Duration) -> bool {
        self.keys.needs_rekey(now, self.lifetime)
    }

    /// Time at which they should be requested by age.
    pub fn rekey_at(&self) -> Duration {
        self.keys.made_at + self.lifetime
    }

    /// Returns `true` if new keys should have been made long ago.
    pub fn is_overdue(&self, now: Duration) -> bool {
        self.keys.is_used_up() || now >= self.keys.made_at + reject_after(self.lifetime) / 2
    }

    /// Erases what is due by `now`. Returns each age of the newest keys once.
    pub fn handle_timeout(&mut self, now: Duration) -> Option<Aged> {
        if self.old.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.old = None;
        }
        let reject_after = reject_after(self.lifetime);
        if now >= self.keys.made_at + reject_after {
            self.keys.erase();
            self.old = None;
        }
        if self.keys.is_used_up() {
            let reported_age = std::mem::replace(&mut self.reported_age, ReportedAge::Erased);
            return (reported_age != ReportedAge::Erased).then_some(Aged::Erased);
        }
        if self.reported_age == ReportedAge::Nothing && self.is_overdue(now) {
            self.reported_age = ReportedAge::Overdue;
            return Some(Aged::Overdue(reject_after));
        }
        None
    }

    /// Time at which [`Self::handle_timeout`] should be called.
    pub fn next_timeout(&self) -> Option<Duration> {
        let old = self.old.as_ref().map(|(_, until)| *until);
        let reject_after = reject_after(self.lifetime);
        let aged = match self.reported_age {
            ReportedAge::Nothing => Some(self.keys.made_at + reject_after / 2),
            ReportedAge::Overdue => Some(self.keys.made_at + reject_after),
            ReportedAge::Erased => None,
        };
        old.into_iter().chain(aged).min()
    }

    /// The newest keys.
    #[cfg(test)]
    pub fn newest(&mut self) -> &mut Keys {
        &mut self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::erasure_tests::two_ends;
    use crate::crypto::keys::MAX_FORGERIES_PER_KEY;

    const LIFETIME: Duration = Duration::from_secs(900);

    /// Returns `true` if a packet from `from` to `to` is opened.
    fn passes(from: &mut Keychain, to: &mut Keychain, number: u64) -> bool {
        let (mut packet, mut plaintext) = (Vec::new(), Vec::new());
        if !from.seal(0, number, b"hello", &mut packet) {
            return false;
        }
        let (header, sealed) = DataHeader::parse(&packet).expect("it has a header");
        to.open(&header, sealed, &mut plaintext)
    }

    #[test]
    fn keys_are_requested_become_overdue_and_end() {
        let (air, hub) = two_ends(1, Duration::ZERO);
        let (mut air, mut hub) = (Keychain::new(air, LIFETIME), Keychain::new(hub, LIFETIME));
        assert!(!air.needs_rekey(LIFETIME - Duration::from_nanos(1)) && air.needs_rekey(LIFETIME));
        let (half, end) = (MIN_REJECT_AFTER / 2, MIN_REJECT_AFTER);
        let just_before = end - Duration::from_nanos(1);
        assert_eq!(air.next_timeout(), Some(half));
        assert_eq!(air.handle_timeout(half), Some(Aged::Overdue(end)));
        assert_eq!(air.handle_timeout(just_before), None, "it is reported once");
        assert!(air.is_overdue(half) && passes(&mut air, &mut hub, 0));
        assert_eq!(air.next_timeout(), Some(end));
        let mut packet = Vec::new();
        assert!(air.seal(0, 1, b"late", &mut packet));
        for side in [&mut air, &mut hub] {
            assert_eq!(side.handle_timeout(end), Some(Aged::Erased));
            assert_eq!((side.handle_timeout(end), side.next_timeout()), (None, None));
            assert!(side.is_used_up() && side.is_overdue(end) && side.needs_rekey(end));
            assert!(!side.seal(0, 2, b"more", &mut Vec::new()));
        }
        let (header, sealed) = DataHeader::parse(&packet).expect("it has a header");
        assert!(!hub.open(&header, sealed, &mut Vec::new()));
        // A handshake restores the session.
        let (new_air, new_hub) = two_ends(2, end);
        air.replace(new_air, Duration::ZERO, end);
        hub.replace(new_hub, Duration::ZERO, end);
        assert!(passes(&mut air, &mut hub, 3) && !air.is_overdue(end));
    }

    #[test]
    fn previous_keys_open_late_packets_for_a_while_only() {
        let (air, hub) = two_ends(3, Duration::ZERO);
        let (mut old_air, mut hub) = (Keychain::new(air, LIFETIME), Keychain::new(hub, LIFETIME));
        let (new_air, new_hub) = two_ends(4, Duration::ZERO);
        let late = Duration::from_secs(2);
        hub.replace(new_hub, late, Duration::ZERO);
        assert!(passes(&mut old_air, &mut hub, 0));
        assert!(passes(&mut Keychain::new(new_air, LIFETIME), &mut hub, 0));
        assert_eq!(hub.next_timeout(), Some(late));
        assert_eq!(hub.handle_timeout(late), None);
        assert!(!passes(&mut old_air, &mut hub, 1));
        assert_eq!(hub.indices().count(), 1);
    }

    #[test]
    fn packets_sealed_by_the_peer_count_towards_key_use() {
        let (air, hub) = two_ends(6, Duration::ZERO);
        let half = air.aead().max_packets_per_key() / 2;
        let (mut air, mut hub) = (Keychain::new(air, LIFETIME), Keychain::new(hub, LIFETIME));
        for (number, worn) in [(1000, false), (998 + half, false), (999 + half, true)] {
            assert!(passes(&mut hub, &mut air, number));
            assert_eq!(air.needs_rekey(Duration::ZERO), worn, "{number}");
        }
        assert!(!hub.needs_rekey(Duration::ZERO), "it sealed few itself");
    }

    #[test]
    fn a_key_is_refused_after_too_many_forgeries() {
        let (air, hub) = two_ends(5, Duration::ZERO);
        let (mut air, mut hub) = (Keychain::new(air, LIFETIME), Keychain::new(hub, LIFETIME));
        let mut forged = Vec::new();
        assert!(air.seal(0, 0, b"hello", &mut forged));
        *forged.last_mut().expect("it has a tag") ^= 1;
        let (header, sealed) = DataHeader::parse(&forged).expect("it has a header");
        hub.newest().fail(MAX_FORGERIES_PER_KEY / 2 - 1);
        assert!(!hub.needs_rekey(Duration::ZERO));
        assert!(!hub.open(&header, sealed, &mut Vec::new()));
        assert!(hub.needs_rekey(Duration::ZERO) && passes(&mut air, &mut hub, 1));
        hub.newest().fail(MAX_FORGERIES_PER_KEY / 2 - 1);
        assert!(passes(&mut air, &mut hub, 2), "one below the limit");
        assert!(!hub.open(&header, sealed, &mut Vec::new()));
        assert!(!passes(&mut air, &mut hub, 3) && hub.is_used_up());
    }
}
