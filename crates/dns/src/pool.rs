//! *Instant names*: private addresses that stand for names. A client is answered at once, and what it
//! opens to such an address is opened by the name, which the ground resolves.
//!
//! An address stands for one name until nobody has been told of it for [`HOLD`], and is given to no
//! other name before. Numbers go round the pool, and what is assigned outlives the process in the
//! journal, so that an address that somebody still remembers leads to its own name or nowhere.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::journal::Record;
use crate::query::Query;

/// What the TTL of such an answer says: soon the real one is known.
const TTL_S: u32 = 30;

/// How long an address stands for its name after it was told of last. Browsers and phones keep
/// addresses for minutes beyond their TTL; a day covers those that sleep.
pub const HOLD: Duration = Duration::from_secs(24 * 3600);

/// The journal is told again of a name that goes on being used after this.
const REFRESH: Duration = Duration::from_secs(3600);

/// Names that have addresses at once; at some 200 bytes each, 13 MiB.
pub const MAX_NAMES: usize = 65_536;

/// What may have been assigned in the last moment before a process was killed: skipped after it.
const SKIPPED: u32 = 16_384;

/// Names assigned per second, so that no more than [`SKIPPED`] are before the journal is written.
const PER_SECOND: f64 = 1000.0;

/// Why a pool cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAPool {
    /// It has too few addresses.
    #[error("a pool needs at least 131,072 addresses: a prefix of /15 or shorter")]
    Small,
    /// It is too large to count.
    #[error("a pool of IPv6 needs a prefix of /96 or shorter")]
    SmallV6,
    /// The names are no names.
    #[error("{0:?} is not a domain: write it like \"example.com\"")]
    Domain(String),
}

/// The addresses, and what they stand for.
#[derive(Debug)]
pub struct Pool {
    v4: (Ipv4Addr, u32),
    v6: Option<Ipv6Addr>,
    /// Names at and below these alone; all where there are none.
    only: Vec<String>,
    by_name: HashMap<String, u32>,
    by_number: HashMap<u32, Held>,
    /// By the time until which each is held.
    order: BTreeSet<(Duration, u32)>,
    next: u32,
    rate: crate::limit::Bucket,
}

#[derive(Debug)]
struct Held {
    name: String,
    until: Duration,
    journal_until: Duration,
}

impl Pool {
    /// Addresses of `v4`, a prefix and its length, and of the same numbers in `v6`; for names at and
    /// below `only`, or all. `start` is where numbers begin that no journal tells of.
    pub fn new(
        (prefix, length): (Ipv4Addr, u8),
        v6: Option<(Ipv6Addr, u8)>,
        only: &[String],
        start: u32,
    ) -> Result<Self, NotAPool> {
        if !(1..=15).contains(&length) {
            return Err(NotAPool::Small);
        }
        if v6.is_some_and(|(_, length)| length > 96) {
            return Err(NotAPool::SmallV6);
        }
        let size = 1u32 << (32 - u32::from(length));
        let base = prefix.to_bits() & !(size - 1);
        let v6 = v6.map(|(prefix, length)| {
            let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv6Addr::from_bits(prefix.to_bits() & !host)
        });
        let domain = |name: &String| {
            let plain = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            let good = !plain.is_empty() && plain.bytes().all(good);
            if good { Ok(plain) } else { Err(NotAPool::Domain(name.clone())) }
        };
        let only = only.iter().map(domain).collect::<Result<_, _>>()?;
        let (by_name, by_number, order) = Default::default();
        let v4 = (Ipv4Addr::from_bits(base), size);
        let rate = crate::limit::Bucket::FULL;
        Ok(Self { v4, v6, only, by_name, by_number, order, next: start % size, rate })
    }

    /// What `ip` stands for: `None` where it is not of the pool, and no name where it stands for none.
    pub fn name_of(&self, ip: IpAddr) -> Option<Option<&str>> {
        let number = self.number_of(ip.to_canonical())?;
        Some(self.by_number.get(&number).map(|held| held.name.as_str()))
    }

    fn number_of(&self, ip: IpAddr) -> Option<u32> {
        match ip {
            IpAddr::V4(ip) => {
                let number = ip.to_bits().wrapping_sub(self.v4.0.to_bits());
                (number < self.v4.1).then_some(number)
            }
            IpAddr::V6(ip) => {
                let number = ip.to_bits().wrapping_sub(self.v6?.to_bits());
                // All below the prefix are of the pool, though few stand for anything.
                (number <= u128::from(u32::MAX)).then_some(number as u32)
            }
        }
    }

    /// The answer to `query`, where this may give one: an address, or that there is none of this
    /// family; and what the journal has to know first.
    ///
    /// Who wants signatures would find none, and is left to the ground.
    pub fn answer(&mut self, query: &Query, now: Duration) -> Option<(Vec<u8>, Option<Record>)> {
        let kind = query.key.kind();
        let wanted = matches!(kind, RecordType::A | RecordType::AAAA) && !query.key.dnssec_ok();
        let name = query.key.host_name().filter(|name| wanted && self.may(name))?;
        let (number, record) = self.assign(name, now)?;
        let reply = match (kind, self.v6) {
            // The name may have one; its client shall use the other family, whichever it asks for first.
            (RecordType::AAAA, None) => query.reply(ResponseCode::NoError, None),
            _ => self.write(query, number),
        };
        Some((reply, record))
    }

    /// Names without a dot are of the cabin's own network, and those under `.invalid`, `.local` and
    /// the like of none at all (RFC 6761, RFC 6762).
    fn may(&self, name: &str) -> bool {
        let Some((_, top)) = name.rsplit_once('.') else { return false };
        let special = ["invalid", "local", "localhost", "test", "onion", "arpa", "internal", "alt"];
        let below = |domain: &String| {
            name.strip_suffix(domain.as_str())
                .is_some_and(|head| head.is_empty() || head.ends_with('.'))
        };
        !special.contains(&top) && (self.only.is_empty() || self.only.iter().any(below))
    }

    fn assign(&mut self, name: String, now: Duration) -> Option<(u32, Option<Record>)> {
        let until = now + HOLD;
        if let Some(number) = self.by_name.get(&name).copied() {
            let held = self.by_number.get_mut(&number)?;
            self.order.remove(&(held.until, number));
            self.order.insert((until, number));
            held.until = until;
            let say = until > held.journal_until + REFRESH;
            if say {
                held.journal_until = until;
            }
            let record = Record::Instant { number, until, name };
            return Some((number, say.then_some(record)));
        }
        self.expire(now);
        if self.by_name.len() >= MAX_NAMES || !self.rate.take(PER_SECOND, PER_SECOND, now) {
            return None;
        }
        let number = self.free_number()?;
        self.hold(number, name.clone(), until);
        Some((number, Some(Record::Instant { number, until, name })))
    }

    /// The next that stands for nothing. The first and the last of a network are no hosts.
    fn free_number(&mut self) -> Option<u32> {
        for _ in 0..=MAX_NAMES + 2 {
            let number = self.next;
            self.next = (number + 1) % self.v4.1;
            let host = number != 0 && number != self.v4.1 - 1;
            if host && !self.by_number.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }

    fn hold(&mut self, number: u32, name: String, until: Duration) {
        self.by_name.insert(name.clone(), number);
        self.by_number.insert(number, Held { name, until, journal_until: until });
        self.order.insert((until, number));
    }

    /// Names that nobody has been told of for [`HOLD`] are forgotten.
    fn expire(&mut self, now: Duration) {
        while let Some((_, number)) = self.order.first().copied().filter(|(at, _)| *at <= now) {
            self.order.pop_first();
            if let Some(held) = self.by_number.remove(&number) {
                self.by_name.remove(&held.name);
            }
        }
    }

    /// Takes back what an earlier run has assigned, and begins behind it.
    pub fn restore(&mut self, record: Record, now: Duration) {
        let Record::Instant { number, until, name } = record else { return };
        let sane = number < self.v4.1 && until <= now + HOLD && self.by_name.len() < MAX_NAMES;
        self.next = number.wrapping_add(SKIPPED) % self.v4.1;
        if !sane || until <= now {
            return;
        }
        if let Some(old) = self.by_number.remove(&number) {
            self.by_name.remove(&old.name);
            self.order.remove(&(old.until, number));
        }
        if let Some(old) = self.by_name.remove(&name)
            && let Some(held) = self.by_number.remove(&old)
        {
            self.order.remove(&(held.until, old));
        }
        self.hold(number, name, until);
    }

    /// For a new journal.
    pub fn records(&self, now: Duration) -> Vec<Record> {
        let mut held: Vec<_> = self.by_number.iter().filter(|(_, it)| it.until > now).collect();
        // The one assigned last comes last, so that numbers go on behind it.
        held.sort_by_key(|(number, _)| {
            number.wrapping_sub(self.next).wrapping_add(self.v4.1) % self.v4.1
        });
        let record = |(number, held): (&u32, &Held)| Record::Instant {
            number: *number,
            until: held.until,
            name: held.name.clone(),
        };
        held.into_iter().map(record).collect()
    }

    fn write(&self, query: &Query, number: u32) -> Vec<u8> {
        let ip = match (query.key.kind(), self.v6) {
            (RecordType::AAAA, Some(prefix)) => {
                Ipv6Addr::from_bits(prefix.to_bits() | u128::from(number)).into()
            }
            _ => Ipv4Addr::from_bits(self.v4.0.to_bits() | number).into(),
        };
        query.addresses(&[ip], TTL_S)
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
