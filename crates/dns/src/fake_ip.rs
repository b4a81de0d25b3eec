//! Fake-IP addresses (*instant names*): private addresses that stand for names. The resolver
//! answers a client at once, and a flow to such an address is opened by name, which the ground
//! resolves.
//!
//! An address stands for one name until [`HOLD`] after the last answer with it. Until then it is
//! not reused for another name, except if a client's share or the pool is full: idle names then
//! lose their addresses earlier, which lead nowhere. Numbers are assigned round-robin, and
//! assignments survive in the journal. An address that a client still remembers therefore leads to
//! its own name or nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use bentpipe_flow::quota::ClientQuota;
use bentpipe_units::{TokenBucket, TokenRate};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::asker::Asker;
use crate::journal::Record;
use crate::query::Query;

/// TTL of fake-IP answers: short, because the real answer is known soon.
const TTL_S: u32 = 30;

/// Time for which an address stands for its name after the last answer. Browsers and phones keep
/// addresses for minutes beyond their TTL; a day covers sleeping devices.
pub const HOLD: Duration = Duration::from_secs(24 * 3600);

/// Interval at which the journal entry of a name in use is renewed.
const REFRESH: Duration = Duration::from_secs(3600);

/// Maximum number of names with addresses: 65,536 × about 350 bytes = 22 MiB.
pub const MAX_NAMES: usize = 65_536;

/// Maximum number of names that one client has begun, so that a client with random names does not
/// exhaust the pool. All clients of an IPv6 /64 share three quarters of [`MAX_NAMES`].
pub const MAX_NAMES_OF_ONE: usize = MAX_NAMES / 16;

/// Time after which an unused name (to which nobody opened a flow) may lose its address to another.
/// Its TTL is long over. The number is not reused before all others of the pool, which takes at
/// least 20 minutes.
const IDLE: Duration = Duration::from_secs(600);

/// The same for a name to which somebody opened a flow. It also counts from the last answer: later
/// flows to the address do not extend it.
const USED_IDLE: Duration = Duration::from_secs(3600);

/// Client to which names of an earlier run are attributed.
const NOBODY: Asker = Asker::Address(IpAddr::V6(Ipv6Addr::UNSPECIFIED));

/// Numbers skipped after a restart, because they may have been assigned just before the process was
/// killed.
const SKIPPED: u32 = 16_384;

/// Maximum names assigned per second, so that at most [`SKIPPED`] are assigned before the journal
/// is written. The burst is one second's worth.
const NAMES_PER_SECOND: TokenRate = TokenRate::new(1000, 1000);

/// Reason why a pool is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Too few addresses.
    #[error("a pool needs at least 131,072 addresses: a prefix of /15 or shorter")]
    Small,
    /// IPv6 prefix too long.
    #[error("a pool of IPv6 needs a prefix of /96 or shorter")]
    SmallV6,
    /// Invalid domain.
    #[error("{0:?} is not a domain: write it like \"example.com\"")]
    Domain(String),
}

/// Use of a pool, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUsage {
    /// Names that the client began.
    pub own: usize,
    /// Names of all clients.
    pub all: usize,
    /// The client's limit if it has reached that, otherwise the limit of all names.
    pub max: usize,
}

/// Pool of fake-IP addresses and their names.
#[derive(Debug)]
pub struct FakeIpPool {
    v4: (Ipv4Addr, u32),
    v6: Option<Ipv6Addr>,
    /// Domains to which the pool is limited, subdomains included; empty means all.
    domains: Vec<String>,
    by_name: BTreeMap<String, u32>,
    by_number: BTreeMap<u32, Assignment>,
    /// Assignments by the end of their hold time.
    order: BTreeSet<(Duration, u32)>,
    /// Unused names by the time of their last answer.
    unused: BTreeSet<(Duration, u32)>,
    /// Names by the client that began them: unused ones first, then by the time of their last answer.
    by_client: BTreeSet<(Asker, bool, Duration, u32)>,
    /// Number of names that each client began.
    begun: ClientQuota<Asker>,
    next: u32,
    rate: TokenBucket,
    /// `true` if a limit refused a name since the last call of [`FakeIpPool::take_refused`].
    refused: bool,
}

#[derive(Debug)]
struct Assignment {
    name: String,
    answered_at: Duration,
    until: Duration,
    journal_until: Duration,
    /// Client whose query began it.
    client: Asker,
    /// `true` once a client has opened a flow to its address.
    is_used: bool,
}

impl Assignment {
    /// Place of the assignment with this number among those of its client.
    fn place(&self, number: u32) -> (Asker, bool, Duration, u32) {
        (self.client, self.is_used, self.answered_at, number)
    }
}

impl FakeIpPool {
    /// Creates a pool with the addresses of `v4` (prefix and length) and the same numbers in `v6`,
    /// for `domains` and their subdomains, or all names. Numbers begin at `start` unless a
    /// journal says otherwise.
    pub fn new(
        (prefix, length): (Ipv4Addr, u8),
        v6: Option<(Ipv6Addr, u8)>,
        domains: &[String],
        start: u32,
    ) -> Result<Self, PoolError> {
        if !(1..=15).contains(&length) {
            return Err(PoolError::Small);
        }
        if v6.is_some_and(|(_, length)| length > 96) {
            return Err(PoolError::SmallV6);
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
            if good { Ok(plain) } else { Err(PoolError::Domain(name.clone())) }
        };
        let domains = domains.iter().map(domain).collect::<Result<_, _>>()?;
        let (by_name, by_number, order) = Default::default();
        let (unused, by_client, begun) = Default::default();
        let (v4, next) = ((Ipv4Addr::from_bits(base), size), start % size);
        let rate = TokenBucket::default();
        Ok(Self {
            v4,
            v6,
            domains,
            by_name,
            by_number,
            order,
            unused,
            by_client,
            begun,
            next,
            rate,
            refused: false,
        })
    }

    /// Name of `ip`, to which a client opens a flow. Returns `None` if `ip` is not in the pool, and
    /// `Some(None)` if it stands for no name.
    pub fn name_of(&mut self, ip: IpAddr) -> Option<Option<&str>> {
        let number = self.number_of(ip.to_canonical())?;
        let Some(assignment) = self.by_number.get_mut(&number) else { return Some(None) };
        if !assignment.is_used {
            self.by_client.remove(&assignment.place(number));
            assignment.is_used = true;
            self.by_client.insert(assignment.place(number));
            self.unused.remove(&(assignment.answered_at, number));
        }
        Some(Some(&assignment.name))
    }

    fn number_of(&self, ip: IpAddr) -> Option<u32> {
        match ip {
            IpAddr::V4(ip) => {
                let number = ip.to_bits().wrapping_sub(self.v4.0.to_bits());
                (number < self.v4.1).then_some(number)
            }
            IpAddr::V6(ip) => {
                let number = ip.to_bits().wrapping_sub(self.v6?.to_bits());
                // All addresses of the prefix belong to the pool, although few stand for a name.
                (number <= u128::from(u32::MAX)).then_some(number as u32)
            }
        }
    }

    /// Answer to `query` of `from`, if the pool may answer it: an address, or that there is none in
    /// this family. Also returns the record that the journal must store first.
    ///
    /// Queries for signatures are left to the ground, because the pool has none.
    pub fn answer(
        &mut self,
        query: &Query,
        from: Asker,
        now: Duration,
    ) -> Option<(Vec<u8>, Option<Record>)> {
        let kind = query.key.kind();
        let supported = matches!(kind, RecordType::A | RecordType::AAAA) && !query.key.dnssec_ok();
        let name = query.key.host_name().filter(|name| supported && self.is_eligible(name))?;
        let (number, record) = self.assign(name, from, now)?;
        let reply = match (kind, self.v6) {
            // The name may have an address in this family. The client must use the other family,
            // whichever it queries first.
            (RecordType::AAAA, None) => query.reply(ResponseCode::NoError, None),
            _ => self.write(query, number),
        };
        Some((reply, record))
    }

    /// Returns `true` if a limit refused a name since the last call.
    pub(crate) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Number of names that `client` began, of all names, and their limits.
    pub fn usage(&self, client: Asker) -> PoolUsage {
        let own = self.begun.of(client);
        let max = if own >= MAX_NAMES_OF_ONE { MAX_NAMES_OF_ONE } else { MAX_NAMES };
        PoolUsage { own, all: self.by_name.len(), max }
    }

    /// Returns `true` if the pool may answer for `name`. Names without a dot belong to the cabin's
    /// own network, and those under `.invalid`, `.local` and so on to none at all (RFC 6761, RFC
    /// 6762).
    fn is_eligible(&self, name: &str) -> bool {
        let Some((_, top)) = name.rsplit_once('.') else { return false };
        let special = ["invalid", "local", "localhost", "test", "onion", "arpa", "internal", "alt"];
        let below = |domain: &String| {
            name.strip_suffix(domain.as_str())
                .is_some_and(|head| head.is_empty() || head.ends_with('.'))
        };
        !special.contains(&top) && (self.domains.is_empty() || self.domains.iter().any(below))
    }

    fn assign(
        &mut self,
        name: String,
        client: Asker,
        now: Duration,
    ) -> Option<(u32, Option<Record>)> {
        let until = now + HOLD;
        if let Some(number) = self.by_name.get(&name).copied() {
            let write_again = self.renew(number, now)?;
            let record = Record::FakeIp { number, until, name };
            return Some((number, write_again.then_some(record)));
        }
        self.expire(now);
        let may_begin = self.rate.take(NAMES_PER_SECOND, 1, now) && self.make_room(client, now);
        let Some(number) = may_begin.then(|| self.free_number()).flatten() else {
            self.refused = true;
            return None;
        };
        self.insert(number, name.clone(), (now, until), client);
        Some((number, Some(Record::FakeIp { number, until, name })))
    }

    /// Records another answer with the number. Returns `true` if the journal must store it again.
    fn renew(&mut self, number: u32, now: Duration) -> Option<bool> {
        let (assignment, until) = (self.by_number.get_mut(&number)?, now + HOLD);
        self.order.remove(&(assignment.until, number));
        self.order.insert((until, number));
        if !assignment.is_used {
            self.unused.remove(&(assignment.answered_at, number));
            self.unused.insert((now, number));
        }
        self.by_client.remove(&assignment.place(number));
        (assignment.answered_at, assignment.until) = (now, until);
        self.by_client.insert(assignment.place(number));
        let write_again = until > assignment.journal_until + REFRESH;
        if write_again {
            assignment.journal_until = until;
        }
        Some(write_again)
    }

    /// Returns `true` if `client` may begin a name. An idle name is released for it if necessary: one
    /// of its own if it has used its share, otherwise one of the client that began most, or else the
    /// oldest unused one.
    fn make_room(&mut self, client: Asker, now: Duration) -> bool {
        let has_share = self.begun.of(client) >= MAX_NAMES_OF_ONE
            || self.begun.full_network(client, 1, MAX_NAMES).is_some();
        let idle = if has_share {
            self.idlest(client, now)
        } else if self.by_name.len() >= MAX_NAMES {
            let payer = self.begun.payer(client, 1, None);
            payer.and_then(|payer| self.idlest(payer, now)).or_else(|| self.oldest_unused(now))
        } else {
            return true;
        };
        if let Some(number) = idle {
            self.release(number);
        }
        idle.is_some()
    }

    /// Idlest name that `client` began and that may be released, preferably an unused one.
    fn idlest(&self, client: Asker, now: Duration) -> Option<u32> {
        let idlest = |is_used, patience| {
            let first = (client, is_used, Duration::ZERO, 0);
            let all = first..=(client, is_used, Duration::MAX, u32::MAX);
            let (_, _, answered_at, number) = *self.by_client.range(all).next()?;
            (answered_at + patience <= now).then_some(number)
        };
        idlest(false, IDLE).or_else(|| idlest(true, USED_IDLE))
    }

    fn oldest_unused(&self, now: Duration) -> Option<u32> {
        let (answered_at, number) = *self.unused.first()?;
        (answered_at + IDLE <= now).then_some(number)
    }

    /// Next free number. The first and the last address of a network are not hosts.
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

    fn insert(
        &mut self,
        number: u32,
        name: String,
        (answered_at, until): (Duration, Duration),
        client: Asker,
    ) {
        self.by_name.insert(name.clone(), number);
        self.order.insert((until, number));
        self.unused.insert((answered_at, number));
        self.begun.add(client, 1);
        let assignment =
            Assignment { name, answered_at, until, journal_until: until, client, is_used: false };
        self.by_client.insert(assignment.place(number));
        self.by_number.insert(number, assignment);
    }

    /// Releases a number.
    fn release(&mut self, number: u32) {
        let Some(assignment) = self.by_number.remove(&number) else { return };
        self.by_name.remove(&assignment.name);
        self.order.remove(&(assignment.until, number));
        self.unused.remove(&(assignment.answered_at, number));
        self.by_client.remove(&assignment.place(number));
        self.begun.remove(assignment.client, 1);
    }

    /// Releases names whose hold time is over.
    fn expire(&mut self, now: Duration) {
        while let Some((_, number)) = self.order.first().copied().filter(|(at, _)| *at <= now) {
            self.release(number);
        }
    }

    /// Restores an assignment of an earlier run; new numbers begin after it.
    pub fn restore(&mut self, record: Record, now: Duration) {
        let Record::FakeIp { number, until, name } = record else { return };
        let sane = number < self.v4.1 && until <= now + HOLD && self.by_name.len() < MAX_NAMES;
        self.next = number.wrapping_add(SKIPPED) % self.v4.1;
        if !sane || until <= now {
            return;
        }
        self.release(number);
        if let Some(old) = self.by_name.get(&name).copied() {
            self.release(old);
        }
        // Its use and its client are unknown.
        self.insert(number, name, (now, until), NOBODY);
    }

    /// Records of all assignments, for a new journal.
    pub fn records(&self, now: Duration) -> Vec<Record> {
        let mut assignments: Vec<_> =
            self.by_number.iter().filter(|(_, it)| it.until > now).collect();
        // The latest assignment comes last, so that numbering continues after it.
        assignments.sort_by_key(|(number, _)| {
            number.wrapping_sub(self.next).wrapping_add(self.v4.1) % self.v4.1
        });
        let record = |(number, assignment): (&u32, &Assignment)| Record::FakeIp {
            number: *number,
            until: assignment.until,
            name: assignment.name.clone(),
        };
        assignments.into_iter().map(record).collect()
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
mod tests;
