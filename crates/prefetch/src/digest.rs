//! Digest of the air gateway's cache in a few hundred bytes: a Golomb-coded set of hashes with Rice
//! parameter 10, as in the IETF draft "Cache Digests for HTTP/2".
//!
//! Two things are simpler than in the draft. Only fresh responses are included, so there are no
//! validators. Only the newest objects of one site are included, at most [`MAX_ENTRIES`]. A whole
//! cache of 10,000 objects would take 14 kB before each page: a second of a 128 kbit/s return link.
//! An object that is missing from a digest costs little, because the air gateway cancels it as soon
//! as it is promised.

use std::collections::BTreeSet;

use blake2::{Blake2s256, Digest as _};

use crate::address::{Address, Origin};

/// Maximum number of objects in a digest, as many as a page may have. 512 of them take about 740
/// bytes.
pub const MAX_ENTRIES: usize = crate::MAX_OBJECTS;

/// Maximum size of a digest, bytes: 512 remainders, and quotients with at most twice as many bits.
pub const MAX_BYTES: usize = 1024;

/// Bits of a remainder. One in 2^10 objects that the cache lacks is mistaken for a cached one, and
/// costs the round trip that it would have cost without a push.
const REMAINDER_BITS: u32 = 10;

/// A set of hashes with false positives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheDigest {
    /// Bits per hash: a set of 2^n has n + [`REMAINDER_BITS`].
    bits: u32,
    hashes: BTreeSet<u32>,
}

/// Error for bytes that are not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the digest of the cache is malformed")]
pub struct DigestError;

impl CacheDigest {
    /// Creates a digest of the first [`MAX_ENTRIES`] objects, by their [`hash`].
    pub fn of(hashes: impl IntoIterator<Item = u64>) -> Self {
        let all: Vec<u64> = hashes.into_iter().take(MAX_ENTRIES).collect();
        if all.is_empty() {
            return Self::default();
        }
        let bits = all.len().next_power_of_two().ilog2() + REMAINDER_BITS;
        Self { bits, hashes: all.into_iter().map(|hash| cut(hash, bits)).collect() }
    }

    /// Returns `true` if the cache has this object. Wrong for about one in 1,000 objects that it
    /// lacks.
    pub fn has(&self, address: &Address) -> bool {
        !self.hashes.is_empty() && self.hashes.contains(&cut(hash(address), self.bits))
    }

    /// Encodes the digest. An empty set has no bytes. Otherwise: the number of hashes minus one in
    /// two bytes, the bits per hash beyond ten in one byte, then the differences of the sorted
    /// hashes as Rice codes, most significant bit first, padded with zeros.
    pub fn encode(&self) -> Vec<u8> {
        let Some(count) = self.hashes.len().checked_sub(1) else { return Vec::new() };
        // Both fit: there are at most MAX_ENTRIES.
        let mut out = (count as u16).to_be_bytes().to_vec();
        out.push((self.bits - REMAINDER_BITS) as u8);
        let mut bits = Bits::default();
        let mut next = 0;
        for hash in &self.hashes {
            let step = hash - next;
            (0..step >> REMAINDER_BITS).for_each(|_| bits.put(1));
            bits.put(0);
            (0..REMAINDER_BITS).rev().for_each(|bit| bits.put(step >> bit & 1));
            next = hash + 1;
        }
        out.append(&mut bits.bytes);
        out
    }

    /// Decodes the output of [`CacheDigest::encode`], and nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DigestError> {
        let (count, beyond, coded) = match bytes {
            [] => return Ok(Self::default()),
            [high, low, beyond, coded @ ..] if bytes.len() <= MAX_BYTES => {
                (u16::from_be_bytes([*high, *low]), beyond, coded)
            }
            _ => return Err(DigestError),
        };
        let (count, beyond) = (usize::from(count) + 1, u32::from(*beyond));
        // Two entries may share a hash, so there can be fewer hashes than entries.
        if beyond > MAX_ENTRIES.ilog2() || count > 1 << beyond {
            return Err(DigestError);
        }
        let bits = beyond + REMAINDER_BITS;
        let mut from = coded.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
        let mut read = || from.next().map(u32::from).ok_or(DigestError);
        let mut hashes = BTreeSet::new();
        let mut next = 0_u32;
        for _ in 0..count {
            let mut step = 0_u32;
            while read()? == 1 {
                step += 1; // at most one for each bit of MAX_BYTES
            }
            for _ in 0..REMAINDER_BITS {
                step = step << 1 | read()?;
            }
            let hash =
                next.checked_add(step).filter(|hash| hash >> bits == 0).ok_or(DigestError)?;
            hashes.insert(hash);
            next = hash + 1;
        }
        let digest = Self { bits, hashes };
        // Each digest has one encoding: the rest must be the padding.
        if digest.encode() == bytes { Ok(digest) } else { Err(DigestError) }
    }
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    used: u32,
}

impl Bits {
    fn put(&mut self, bit: u32) {
        if self.used.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= (bit as u8) << (7 - self.used % 8);
        }
        self.used += 1;
    }
}

/// First 64 bits of the BLAKE2s-256 hash of an address in the form of cache keys: with an explicit
/// port, as in `http://example.net:80/a?b=c`.
pub fn hash(address: &Address) -> u64 {
    let Origin { is_secure, host, port } = address.origin();
    let scheme = if is_secure { "https" } else { "http" };
    let filed = format!("{scheme}://{host}:{port}{}", address.path_and_query());
    let digest = Blake2s256::digest(filed);
    let (first, _) = digest.split_first_chunk::<8>().expect("BLAKE2s-256 has 32 bytes");
    u64::from_be_bytes(*first)
}

fn cut(hash: u64, bits: u32) -> u32 {
    (hash >> (u64::BITS - bits)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(count: usize) -> Vec<Address> {
        let url = |n| Address::parse(&format!("http://site.test/{n}.png")).unwrap();
        (0..count).map(url).collect()
    }

    #[test]
    fn a_digest_has_few_false_positives() {
        let have = addresses(MAX_ENTRIES);
        let digest = CacheDigest::of(have.iter().map(hash));
        assert!(have.iter().all(|one| digest.has(one)));
        assert!(digest.encode().len() <= 760, "{}", digest.encode().len());
        let other = addresses(MAX_ENTRIES + 20_000);
        let wrong = other[MAX_ENTRIES..].iter().filter(|one| digest.has(one)).count();
        assert!(wrong < 40, "{wrong} of 20,000");
        assert!(!CacheDigest::default().has(&have[0]));
        assert_eq!(CacheDigest::of(other.iter().map(hash)), digest, "only the first are told");
    }

    proptest! {
        #[test]
        fn digests_round_trip(count in 0..=MAX_ENTRIES) {
            let digest = CacheDigest::of(addresses(count).iter().map(hash));
            let bytes = digest.encode();
            prop_assert!(bytes.len() <= MAX_BYTES);
            prop_assert_eq!(CacheDigest::decode(&bytes), Ok(digest));
        }

        #[test]
        fn every_digest_has_one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
            if let Ok(digest) = CacheDigest::decode(&bytes) {
                prop_assert_eq!(digest.encode(), bytes);
            }
        }
    }
}
