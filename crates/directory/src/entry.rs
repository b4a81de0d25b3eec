//! Entries: the signed statements of grounds about themselves.
//!
//! | bytes | contents |
//! |---|---|
//! | 32 | public key of the ground |
//! | 8 | version |
//! | 2 | lifetime in seconds |
//! | 1 | flags: hub 1, egress 2, leaving 4, place 8 |
//! | 1 | load: 255 is full |
//! | 8 | place, if the flag is set: latitude and longitude in 10⁻⁶ degrees |
//! | 1 | number of addresses |
//! | | the addresses, as targets of the radio protocol |
//! | | anything; later versions may have more |
//! | 64 | signature of everything before |
//!
//! Integers are in network order.

use std::cmp::Ordering;
use std::time::Duration;

use bentpipe_flow::{Host, Target};

use crate::Key;
use crate::signature::{SIGNATURE_BYTES, is_signed, sign};

/// Maximum number of addresses: a name, or one address of each family.
pub const MAX_ADDRESSES: usize = 2;

/// Maximum length of an entry. One with two of the longest names has 636 bytes.
pub const MAX_ENTRY_BYTES: usize = 768;

/// Maximum time for which an entry counts, whatever it says.
pub const MAX_LIFETIME: Duration = Duration::from_secs(300);

/// Maximum version.
pub const MAX_VERSION: u64 = 1 << 63;

/// Maximum version before the first one of a process. A broken clock leaves room for 2^62 more.
pub const MAX_INITIAL_VERSION: u64 = 1 << 62;

const HUB: u8 = 1;
const EGRESS: u8 = 2;
const LEAVING: u8 = 4;
const PLACE: u8 = 8;

/// Parts of a degree.
const MICRO: f64 = 1e6;

/// A ground's statement about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statement {
    /// It has egresses, and forwards flows of its aircraft to them.
    pub is_hub: bool,
    /// It dials for hubs.
    pub is_egress: bool,
    /// It is about to stop.
    pub is_leaving: bool,
    /// Used part of its flows; 255 is all of them.
    pub load: u8,
    /// Its place on the Earth.
    pub place: Option<Place>,
    /// Its addresses, at most [`MAX_ADDRESSES`].
    pub addresses: Vec<Target>,
}

/// A place on the Earth, in millionths of a degree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    latitude: i32,
    longitude: i32,
}

/// Reason for which bytes are not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an entry of the directory is invalid: {0}")]
pub struct EntryError(pub &'static str);

/// An entry that claims to be by a ground: nobody has checked its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed(Entry);

/// An entry that its ground has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    key: Key,
    version: u64,
    lifetime: Duration,
    statement: Statement,
    /// The entry as its ground has written it.
    bytes: Box<[u8]>,
}

impl Place {
    /// Creates the place with these degrees; `None` if there is no such place.
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        // NaN is in no range.
        let is_there = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        let micro = |degrees: f64| (degrees * MICRO).round() as i32;
        is_there.then(|| Self { latitude: micro(latitude), longitude: micro(longitude) })
    }

    /// Latitude and longitude in degrees.
    pub fn degrees(self) -> (f64, f64) {
        (f64::from(self.latitude) / MICRO, f64::from(self.longitude) / MICRO)
    }
}

impl Statement {
    fn put(&self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.is_hub, HUB)
            | flag(self.is_egress, EGRESS)
            | flag(self.is_leaving, LEAVING)
            | flag(self.place.is_some(), PLACE);
        out.extend([flags, self.load]);
        if let Some(Place { latitude, longitude }) = self.place {
            out.extend(latitude.to_be_bytes());
            out.extend(longitude.to_be_bytes());
        }
        let at = out.len();
        out.push(0);
        for address in self.addresses.iter().take(MAX_ADDRESSES) {
            // A name that is not one is left out.
            if address.encode(out).is_ok() {
                out[at] += 1;
            }
        }
    }

    fn read(left: &mut Left<'_>) -> Result<Self, EntryError> {
        let [flags, load] = left.array()?;
        let place = match flags & PLACE {
            0 => None,
            _ => {
                let mut degrees =
                    || left.array().map(|it| f64::from(i32::from_be_bytes(it)) / MICRO);
                let place = Place::new(degrees()?, degrees()?);
                Some(place.ok_or(EntryError("its place is not on the Earth"))?)
            }
        };
        let [count] = left.array()?;
        if usize::from(count) > MAX_ADDRESSES {
            return Err(EntryError("it has too many addresses"));
        }
        let addresses = (0..count).map(|_| left.target()).collect::<Result<_, _>>()?;
        let [is_hub, is_egress, is_leaving] = [HUB, EGRESS, LEAVING].map(|flag| flags & flag != 0);
        Ok(Self { is_hub, is_egress, is_leaving, load, place, addresses })
    }
}

impl Entry {
    /// Signs `statement` by the private key `secret`, to which `key` belongs. `random` has to be drawn for
    /// this entry.
    pub fn sign(
        (secret, key): (&[u8; 32], Key),
        version: u64,
        lifetime: Duration,
        statement: &Statement,
        random: [u8; 64],
    ) -> Self {
        let lifetime = lifetime.min(MAX_LIFETIME);
        let mut bytes = key.to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend((lifetime.as_secs() as u16).to_be_bytes()); // at most MAX_LIFETIME
        statement.put(&mut bytes);
        bytes.extend(sign(secret, &bytes, random));
        Self { key, version, lifetime, statement: statement.clone(), bytes: bytes.into() }
    }

    /// Public key of the ground.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Version: of two entries of a ground, the later has the higher one.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Time for which the entry counts.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Contents.
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    /// The entry as its ground has written it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Order of the entries of a ground; the greatest counts. A ground that signs two entries with one
    /// version has an order too, so that all agree.
    pub fn order(&self, other: &Self) -> Ordering {
        self.version.cmp(&other.version).then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl Claimed {
    /// Reads an entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        if bytes.len() > MAX_ENTRY_BYTES {
            return Err(EntryError("it is too long"));
        }
        let signed = bytes.len().checked_sub(SIGNATURE_BYTES).ok_or(SHORT)?;
        let mut left = Left(&bytes[..signed]);
        let (key, version) = (left.array()?, u64::from_be_bytes(left.array()?));
        if version > MAX_VERSION {
            return Err(EntryError("its version is too high"));
        }
        let lifetime = Duration::from_secs(u16::from_be_bytes(left.array()?).into());
        let lifetime = lifetime.min(MAX_LIFETIME);
        let statement = Statement::read(&mut left)?;
        Ok(Self(Entry { key, version, lifetime, statement, bytes: bytes.into() }))
    }

    /// The entry, about whose origin nothing is known.
    pub fn unproven(&self) -> &Entry {
        &self.0
    }

    /// Returns the entry if its ground has signed it.
    pub fn verify(self) -> Result<Entry, EntryError> {
        let (signed, signature) = self.0.bytes.split_at(self.0.bytes.len() - SIGNATURE_BYTES);
        match is_signed(&self.0.key, signed, signature) {
            true => Ok(self.0),
            false => Err(EntryError("its ground has not signed it")),
        }
    }
}

const SHORT: EntryError = EntryError("it is too short");

/// Bytes that are left to read.
struct Left<'a>(&'a [u8]);

impl Left<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], EntryError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*head)
    }

    fn target(&mut self) -> Result<Target, EntryError> {
        let decoded = Target::decode(self.0);
        let (target, length) = decoded.map_err(|_| EntryError("it has an invalid address"))?;
        if let Host::Service(_) = target.host {
            return Err(EntryError("a service is not an address"));
        }
        self.0 = &self.0[length..];
        Ok(target)
    }
}

#[cfg(test)]
mod tests;
