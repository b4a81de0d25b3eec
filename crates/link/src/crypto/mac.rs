//! mac1, mac2 and cookies: protection against strangers who would make a gateway work, after
//! WireGuard (sections 5.4.4 and 5.4.7 of its paper).
//!
//! mac1 proves that the sender knows the receiver's public key, before any curve arithmetic. Under
//! load the receiver also requires mac2, with a cookie as key that only the holder of the source
//! address can have received.
//! address can have received.

use std::net::SocketAddr;
use std::time::Duration;

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::RngCore;

use super::Rng;
use crate::key::PublicKey;
use crate::wire::codec::Reader;
use crate::wire::header::{COOKIE, COOKIE_BYTES};

/// Length of mac1 and of mac2.
pub const MAC_BYTES: usize = 16;
type Mac = [u8; MAC_BYTES];

/// Validity of a cookie, and interval at which its secret changes.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(120);

/// Keys that belong to a receiver's public key.
#[derive(Clone)]
pub struct MacKey {
    mac1: [u8; 32],
    cookie: [u8; 32],
}

impl MacKey {
    /// Derives the keys of `receiver`.
    pub fn new(receiver: &PublicKey) -> Self {
        let derive = |label: &[u8]| {
            let mut hash = Blake2s256::new();
            Digest::update(&mut hash, label);
            Digest::update(&mut hash, receiver.as_bytes());
            hash.finalize().into()
        };
        Self { mac1: derive(b"bentpipe mac1"), cookie: derive(b"bentpipe cookie") }
    }

    /// Fills the last 32 bytes of `message` with mac1, and with mac2 by `cookie` (zeros without
    /// one).
    pub fn sign(&self, message: &mut [u8], cookie: Option<&[u8; MAC_BYTES]>) -> [u8; MAC_BYTES] {
        let (mac1_at, mac2_at) = (message.len() - 2 * MAC_BYTES, message.len() - MAC_BYTES);
        let mac1 = mac(&self.mac1, &message[..mac1_at]);
        message[mac1_at..mac2_at].copy_from_slice(&mac1);
        let mac2 = cookie.map_or([0; MAC_BYTES], |cookie| mac(cookie, &message[..mac2_at]));
        message[mac2_at..].copy_from_slice(&mac2);
        mac1
    }

    /// Returns `true` if `message` has a valid mac1.
    pub fn accepts(&self, message: &[u8]) -> bool {
        let Some((body, macs)) = message.split_last_chunk::<{ 2 * MAC_BYTES }>() else {
            return false;
        };
        same(&mac(&self.mac1, body), &macs[..MAC_BYTES])
    }
}

/// Returns the mac1 of a handshake message.
pub fn mac1_of(message: &[u8]) -> Option<[u8; MAC_BYTES]> {
    let (_, macs) = message.split_last_chunk::<{ 2 * MAC_BYTES }>()?;
    macs.first_chunk().copied()
}

/// The receiver's side of cookies, which stores nothing for a stranger.
pub struct CookieJar {
    key: MacKey,
    secret: [u8; 32],
    changed_at: Duration,
}

impl CookieJar {
    /// Creates a jar with a fresh secret.
    pub fn new(receiver: &PublicKey, now: Duration, rng: &mut Rng) -> Self {
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        Self { key: MacKey::new(receiver), secret, changed_at: now }
    }

    /// Returns `true` if `message` from `from` has a mac2 of the current cookie.
    pub fn accepts(&self, message: &[u8], from: SocketAddr, now: Duration) -> bool {
        let Some((body, mac2)) = message.split_last_chunk::<MAC_BYTES>() else { return false };
        now.saturating_sub(self.changed_at) < COOKIE_LIFETIME
            && same(&mac(&self.cookie(from), body), mac2)
    }

    /// Returns the reply to `message`, which only a sender that knows the message's mac1 can read.
    pub fn reply(
        &mut self,
        message: &[u8],
        sender: u32,
        from: SocketAddr,
        now: Duration,
        rng: &mut Rng,
    ) -> Vec<u8> {
        if now.saturating_sub(self.changed_at) >= COOKIE_LIFETIME {
            rng.fill_bytes(&mut self.secret);
            self.changed_at = now;
        }
        let mac1 = &message[message.len() - 2 * MAC_BYTES..message.len() - MAC_BYTES];
        let mut nonce = [0; 24];
        rng.fill_bytes(&mut nonce);
        let payload = Payload { msg: &self.cookie(from), aad: mac1 };
        let sealed = cipher(&self.key.cookie)
            .encrypt(&XNonce::from(nonce), payload)
            .expect("16 bytes are within the cipher's limit");
        let mut out = Vec::with_capacity(COOKIE_BYTES);
        out.extend_from_slice(&[COOKIE, 0, 0, 0]);
        out.extend_from_slice(&sender.to_le_bytes());
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        out
    }

    fn cookie(&self, from: SocketAddr) -> Mac {
        let mut address = match from.ip() {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        address.extend_from_slice(&from.port().to_le_bytes());
        mac(&self.secret, &address)
    }
}

/// The initiator's side of cookies: the cookie it received, and the mac1 that a reply must match.
#[derive(Default)]
pub struct CookieMonitor {
    last_mac1: Option<Mac>,
    cookie: Option<(Mac, Duration)>,
}

/// A cookie reply that matches nothing we sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieError;

impl CookieMonitor {
    /// Signs a message with the last cookie, if that is still valid.
    pub fn sign(&mut self, key: &MacKey, message: &mut [u8], now: Duration) {
        let cookie = self.cookie.filter(|(_, at)| now.saturating_sub(*at) < COOKIE_LIFETIME);
        self.last_mac1 = Some(key.sign(message, cookie.as_ref().map(|(cookie, _)| cookie)));
    }

    /// Handles a cookie reply. The next message is signed with its cookie.
    pub fn take(&mut self, key: &MacKey, reply: &[u8], now: Duration) -> Result<(), CookieError> {
        let mut reader = Reader::new(reply);
        reader.take(8).map_err(|_| CookieError)?;
        let nonce: [u8; 24] = reader.array().map_err(|_| CookieError)?;
        let aad = self.last_mac1.as_ref().ok_or(CookieError)?;
        let payload = Payload { msg: reader.rest(), aad };
        let cookie =
            cipher(&key.cookie).decrypt(&XNonce::from(nonce), payload).map_err(|_| CookieError)?;
        self.cookie = Some((cookie.try_into().map_err(|_| CookieError)?, now));
        self.last_mac1 = None;
        Ok(())
    }
}

fn cipher(key: &[u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.into())
}

fn mac(key: &[u8], message: &[u8]) -> Mac {
    let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(key)
        .expect("BLAKE2s takes keys of up to 32 bytes");
    Update::update(&mut mac, message);
    mac.finalize_fixed().into()
}

/// Compares in constant time.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SecretKey;
    use rand::SeedableRng;

    #[test]
    fn a_cookie_validates_messages_from_its_address_only() {
        let mut rng = Rng::seed_from_u64(1);
        let hub = SecretKey::generate(&mut rng).public();
        let key = MacKey::new(&hub);
        let (mut jar, mut monitor) =
            (CookieJar::new(&hub, Duration::ZERO, &mut rng), CookieMonitor::default());
        let (here, elsewhere) =
            ("192.0.2.1:4500".parse().unwrap(), "192.0.2.2:4500".parse().unwrap());
        let now = Duration::from_secs(5);

        let mut message = vec![7; 100];
        monitor.sign(&key, &mut message, now);
        assert!(key.accepts(&message) && !jar.accepts(&message, here, now));

        let reply = jar.reply(&message, 9, here, now, &mut rng);
        assert_eq!(reply.len(), COOKIE_BYTES);
        monitor.take(&key, &reply, now).unwrap();
        assert_eq!(monitor.take(&key, &reply, now), Err(CookieError), "a reply answers once");

        monitor.sign(&key, &mut message, now);
        assert!(jar.accepts(&message, here, now));
        assert!(!jar.accepts(&message, elsewhere, now));
        assert!(!jar.accepts(&message, here, now + COOKIE_LIFETIME));
        message[3] ^= 1;
        assert!(!key.accepts(&message));
    }
}
