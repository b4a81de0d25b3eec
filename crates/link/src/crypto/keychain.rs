//! The packet keys of a session: those in use, and for a while those before.
//!
//! A key has three ages. At its lifetime new ones are asked for. At half of [`reject_after`] they are
//! *overdue*: somebody may be dropping the handshakes and passing the data, to keep one key in use. At
//! [`reject_after`] they are erased, and nothing is sealed or opened until a handshake makes new ones.
//!
//! An outage ends no session by that: the session waits without keys, and the next handshake resumes
//! it.

use std::time::Duration;

use super::Keys;
use crate::wire::header::DataHeader;

/// Keys are erased after so many of their lifetimes …
const REJECT_LIFETIMES: u32 = 4;
/// … and not before this.
pub const MIN_REJECT_AFTER: Duration = Duration::from_secs(3600);

/// The age at which keys with this lifetime are erased.
pub fn reject_after(lifetime: Duration) -> Duration {
    lifetime.saturating_mul(REJECT_LIFETIMES).max(MIN_REJECT_AFTER)
}

/// The packet keys of one session.
pub struct Keychain {
    keys: Keys,
    /// Those before, and until when late packets may come under them.
    old: Option<(Keys, Duration)>,
    lifetime: Duration,
    /// The last [`Aged`] that was passed on.
    told: Told,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Overdue,
    Erased,
}

/// An age that the keys reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aged {
    /// They are overdue, and work until they are of this age.
    Overdue(Duration),
    /// They are erased.
    Erased,
}

impl Keychain {
    /// Those of a session that begins under `keys`, which should be replaced after `lifetime`.
    pub fn new(keys: Keys, lifetime: Duration) -> Self {
        Self { keys, old: None, lifetime, told: Told::Nothing }
    }

    /// New keys: those before open late packets for `late`, and are erased then.
    pub fn replace(&mut self, keys: Keys, late: Duration, now: Duration) {
        self.old = Some((std::mem::replace(&mut self.keys, keys), now + late));
        self.told = Told::Nothing;
    }

    /// The indices under which packets come.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        let old = self.old.as_ref().map(|(keys, _)| keys.local);
        std::iter::once(self.keys.local).chain(old)
    }

    /// Opens a packet under the keys it names; see [`Keys::open`].
    pub fn open(&mut self, header: &DataHeader, sealed: &[u8], plaintext: &mut Vec<u8>) -> bool {
        if header.receiver == self.keys.local {
            return self.keys.open(header, sealed, plaintext);
        }
        let old = self.old.as_mut().filter(|(keys, _)| keys.local == header.receiver);
        old.is_some_and(|(keys, _)| keys.open(header, sealed, plaintext))
    }

    /// Seals a packet under the newest keys; see [`Keys::seal`].
    pub fn seal(&mut self, path: u8, number: u64, plaintext: &[u8], out: &mut Vec<u8>) -> bool {
        self.keys.seal(path, number, plaintext, out)
    }

    /// Returns `true` if nothing can be sent until there are new keys.
    pub fn is_used_up(&self) -> bool {
        self.keys.is_used_up()
    }

    /// Returns `true` if new keys should be made.
    pub fn is_worn(&self, now: Duration) -> bool {
        self.keys.is_worn(now, self.lifetime)
    }

    /// The time at which they are worn by age.
    pub fn worn_at(&self) -> Duration {
        self.keys.made_at + self.lifetime
    }

    /// Returns `true` if new keys should have been made long ago.
    pub fn is_overdue(&self, now: Duration) -> bool {
        self.keys.is_used_up() || now >= self.keys.made_at + reject_after(self.lifetime) / 2
    }

    /// Erases what is due by `now`. Tells once of each age of the newest keys.
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
            let told = std::mem::replace(&mut self.told, Told::Erased);
            return (told != Told::Erased).then_some(Aged::Erased);
        }
        if self.told == Told::Nothing && self.is_overdue(now) {
            self.told = Told::Overdue;
            return Some(Aged::Overdue(reject_after));
        }
        None
    }

    /// The time at which [`Self::handle_timeout`] is due next.
    pub fn next_timeout(&self) -> Option<Duration> {
        let old = self.old.as_ref().map(|(_, until)| *until);
        let reject_after = reject_after(self.lifetime);
        let aged = match self.told {
            Told::Nothing => Some(self.keys.made_at + reject_after / 2),
            Told::Overdue => Some(self.keys.made_at + reject_after),
            Told::Erased => None,
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
    fn keys_are_asked_for_are_overdue_and_end() {
        let (air, hub) = two_ends(1, Duration::ZERO);
        let (mut air, mut hub) = (Keychain::new(air, LIFETIME), Keychain::new(hub, LIFETIME));
        assert!(!air.is_worn(LIFETIME - Duration::from_nanos(1)) && air.is_worn(LIFETIME));
        let (half, end) = (MIN_REJECT_AFTER / 2, MIN_REJECT_AFTER);
        let just_before = end - Duration::from_nanos(1);
        assert_eq!(air.next_timeout(), Some(half));
        assert_eq!(air.handle_timeout(half), Some(Aged::Overdue(end)));
        assert_eq!(air.handle_timeout(just_before), None, "it is told once");
        assert!(air.is_overdue(half) && passes(&mut air, &mut hub, 0));
        assert_eq!(air.next_timeout(), Some(end));
        let mut packet = Vec::new();
        assert!(air.seal(0, 1, b"late", &mut packet));
        for side in [&mut air, &mut hub] {
            assert_eq!(side.handle_timeout(end), Some(Aged::Erased));
            assert_eq!((side.handle_timeout(end), side.next_timeout()), (None, None));
            assert!(side.is_used_up() && side.is_overdue(end) && side.is_worn(end));
            assert!(!side.seal(0, 2, b"more", &mut Vec::new()));
        }
        let (header, sealed) = DataHeader::parse(&packet).expect("it has a header");
        assert!(!hub.open(&header, sealed, &mut Vec::new()));
        // A handshake makes all well again.
        let (new_air, new_hub) = two_ends(2, end);
        air.replace(new_air, Duration::ZERO, end);
        hub.replace(new_hub, Duration::ZERO, end);
        assert!(passes(&mut air, &mut hub, 3) && !air.is_overdue(end));
    }

    #[test]
    fn old_keys_open_late_packets_for_a_while_only() {
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
    fn a_key_is_refused_after_too_many_forgeries() {
        let (air, hub) = two_ends(5, Duration::ZERO);
        let (mut air, mut hub) = (Keychain::new(air, LIFETIME), Keychain::new(hub, LIFETIME));
        let mut forged = Vec::new();
        assert!(air.seal(0, 0, b"hello", &mut forged));
        *forged.last_mut().expect("it has a tag") ^= 1;
        let (header, sealed) = DataHeader::parse(&forged).expect("it has a header");
        hub.newest().fail(MAX_FORGERIES_PER_KEY / 2 - 1);
        assert!(!hub.is_worn(Duration::ZERO));
        assert!(!hub.open(&header, sealed, &mut Vec::new()));
        assert!(hub.is_worn(Duration::ZERO) && passes(&mut air, &mut hub, 1));
        hub.newest().fail(MAX_FORGERIES_PER_KEY / 2 - 1);
        assert!(passes(&mut air, &mut hub, 2), "one below the limit");
        assert!(!hub.open(&header, sealed, &mut Vec::new()));
        assert!(!passes(&mut air, &mut hub, 3) && hub.is_used_up());
    }
}
