//! *Instant names*: private addresses that stand for names. A client is answered at once, and what it
//! opens to such an address is opened by the name, which the ground resolves.
//!
//! An address stands for one name until nobody has been told of it for [`HOLD`], and is given to no
//! other name before. Numbers go round the pool, and what is assigned outlives the process in the
//! journal, so that an address that somebody still remembers leads to its own name or nowhere.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::journal::Record;
use crate::limit::{client, network, part_of_network};
use crate::query::Query;

/// TTL of such an answer: soon the real one is known.
const TTL_S: u32 = 30;

/// Time for which an address stands for its name after the last answer. Browsers and phones keep
/// addresses for minutes beyond their TTL; a day covers those that sleep.
pub const HOLD: Duration = Duration::from_secs(24 * 3600);

/// The journal is told again of a name that goes on being used after this.
const REFRESH: Duration = Duration::from_secs(3600);

/// Names that have addresses at once; at some 350 bytes each, 22 MiB.
pub const MAX_NAMES: usize = 65_536;

/// Names that one client has begun and that have addresses at once, so that nobody who makes up names takes
/// the addresses of others. All clients of a /64 of IPv6 have three quarters of [`MAX_NAMES`].
pub const MAX_NAMES_OF_ONE: usize = MAX_NAMES / 16;

/// A name that nobody has opened anything to gives its address up for another after this: its TTL is over
/// long since. The number is not used again before all others of the pool have been, which takes 20 minutes
/// at least.
const IDLE: Duration = Duration::from_secs(600);

/// The client that names of an earlier run count for.
const NOBODY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Numbers that may have been assigned in the last moment before a process was killed: skipped
/// after it.
const SKIPPED: u32 = 16_384;

/// Names assigned per second, so that no more than [`SKIPPED`] are before the journal is written.
const PER_SECOND: f64 = 1000.0;

/// Reason for which a pool cannot be used.
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
    /// Names that nobody has used, by when somebody was told of them last: of all, and of each client.
    unused: BTreeSet<(Duration, u32)>,
    unused_of: BTreeSet<(IpAddr, Duration, u32)>,
    /// Names that each client has begun, and all of each network of IPv6.
    begun: HashMap<IpAddr, usize>,
    begun_in: HashMap<u64, usize>,
    next: u32,
    rate: crate::limit::Bucket,
}

#[derive(Debug)]
struct Held {
    name: String,
    told_at: Duration,
    until: Duration,
    journal_until: Duration,
    /// The client whose query began it.
    client: IpAddr,
    /// True once somebody has opened something to its address.
    is_used: bool,
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
        let (unused, unused_of, begun, begun_in) = Default::default();
        let (v4, next) = ((Ipv4Addr::from_bits(base), size), start % size);
        let rate = crate::limit::Bucket::FULL;
        Ok(Self {
            v4,
            v6,
            only,
            by_name,
            by_number,
            order,
            unused,
            unused_of,
            begun,
            begun_in,
            next,
            rate,
        })
    }

    /// Name for which `ip` stands, to which somebody opens a flow: `None` if it is not of the pool,
    /// and `Some(None)` if it stands for none.
    pub fn name_of(&mut self, ip: IpAddr) -> Option<Option<&str>> {
        let number = self.number_of(ip.to_canonical())?;
        let Some(held) = self.by_number.get_mut(&number) else { return Some(None) };
        if !std::mem::replace(&mut held.is_used, true) {
            self.unused.remove(&(held.told_at, number));
            self.unused_of.remove(&(held.client, held.told_at, number));
        }
        Some(Some(&held.name))
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

    /// The answer to `query` of the client at `from`, where this may give one: an address, or that there is
    /// none of this family; and what the journal has to know first.
    ///
    /// Who wants signatures would find none, and is left to the ground.
    pub fn answer(
        &mut self,
        query: &Query,
        from: IpAddr,
        now: Duration,
    ) -> Option<(Vec<u8>, Option<Record>)> {
        let kind = query.key.kind();
        let wanted = matches!(kind, RecordType::A | RecordType::AAAA) && !query.key.dnssec_ok();
        let name = query.key.host_name().filter(|name| wanted && self.may(name))?;
        let (number, record) = self.assign(name, client(from), now)?;
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

    fn assign(
        &mut self,
        name: String,
        client: IpAddr,
        now: Duration,
    ) -> Option<(u32, Option<Record>)> {
        let until = now + HOLD;
        if let Some(number) = self.by_name.get(&name).copied() {
            let say = self.told(number, now)?;
            let record = Record::Instant { number, until, name };
            return Some((number, say.then_some(record)));
        }
        self.expire(now);
        if !self.rate.take(PER_SECOND, PER_SECOND, now) || !self.make_room(client, now) {
            return None;
        }
        let number = self.free_number()?;
        self.hold(number, name.clone(), (now, until), client);
        Some((number, Some(Record::Instant { number, until, name })))
    }

    /// Somebody is told of its name again; whether the journal has to know.
    fn told(&mut self, number: u32, now: Duration) -> Option<bool> {
        let (held, until) = (self.by_number.get_mut(&number)?, now + HOLD);
        self.order.remove(&(held.until, number));
        self.order.insert((until, number));
        if !held.is_used {
            self.unused.remove(&(held.told_at, number));
            self.unused.insert((now, number));
            self.unused_of.remove(&(held.client, held.told_at, number));
            self.unused_of.insert((held.client, now, number));
        }
        (held.told_at, held.until) = (now, until);
        let say = until > held.journal_until + REFRESH;
        if say {
            held.journal_until = until;
        }
        Some(say)
    }

    /// Returns whether `client` may begin a name, for which one that nobody has used ends if need be: its own where
    /// it has its share, or else the oldest.
    fn make_room(&mut self, client: IpAddr, now: Duration) -> bool {
        let of_network = network(client).and_then(|network| self.begun_in.get(&network));
        let has_share = self.begun.get(&client).is_some_and(|begun| *begun >= MAX_NAMES_OF_ONE)
            || of_network.is_some_and(|begun| *begun >= part_of_network(MAX_NAMES));
        let oldest = if has_share {
            let own = (client, Duration::ZERO, 0)..=(client, Duration::MAX, u32::MAX);
            self.unused_of.range(own).next().map(|(_, told_at, number)| (*told_at, *number))
        } else if self.by_name.len() >= MAX_NAMES {
            self.unused.first().copied()
        } else {
            return true;
        };
        let idle = oldest.filter(|(told_at, _)| *told_at + IDLE <= now);
        if let Some((_, number)) = idle {
            self.release(number);
        }
        idle.is_some()
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

    fn hold(
        &mut self,
        number: u32,
        name: String,
        (told_at, until): (Duration, Duration),
        client: IpAddr,
    ) {
        self.by_name.insert(name.clone(), number);
        self.order.insert((until, number));
        self.unused.insert((told_at, number));
        self.unused_of.insert((client, told_at, number));
        *self.begun.entry(client).or_default() += 1;
        if let Some(network) = network(client) {
            *self.begun_in.entry(network).or_default() += 1;
        }
        let held = Held { name, told_at, until, journal_until: until, client, is_used: false };
        self.by_number.insert(number, held);
    }

    /// The number stands for nothing any more.
    fn release(&mut self, number: u32) {
        let Some(held) = self.by_number.remove(&number) else { return };
        self.by_name.remove(&held.name);
        self.order.remove(&(held.until, number));
        self.unused.remove(&(held.told_at, number));
        self.unused_of.remove(&(held.client, held.told_at, number));
        one_less(&mut self.begun, &held.client);
        if let Some(network) = network(held.client) {
            one_less(&mut self.begun_in, &network);
        }
    }

    /// Names that nobody has been told of for [`HOLD`] are forgotten.
    fn expire(&mut self, now: Duration) {
        while let Some((_, number)) = self.order.first().copied().filter(|(at, _)| *at <= now) {
            self.release(number);
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
        self.release(number);
        if let Some(old) = self.by_name.get(&name).copied() {
            self.release(old);
        }
        // Nobody knows whether it was used, nor by whom.
        self.hold(number, name, (now, until), NOBODY);
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

fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: &K) {
    let Some(count) = counts.get_mut(of) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(of);
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
