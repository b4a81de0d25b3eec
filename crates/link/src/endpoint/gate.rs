//! Bounds on the cost of handshakes at a hub, for any sender and any frequency.
//!
//! Curve arithmetic is what they cost most. Beyond the rate of [`Load`] only a message with mac2 is
//! read: its address is a true one. True addresses are cheap too, so each has a bucket of its own,
//! and over all of them there is one for the curve. Part of that is kept for the addresses at which
//! aircraft are known to be: a flood from however many others does not shut those out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::crypto::MAC_BYTES;
use crate::key::PublicKey;

/// Curve operations to read message 1 (es, ss) …
pub const READ_OPERATIONS: u64 = 2;
/// … and to answer it (an ephemeral key, ee, se).
pub const RESPOND_OPERATIONS: u64 = 3;

/// Curve operations a second that handshakes get in all: 200 that are answered, or 500 of strangers.
pub const OPERATIONS_PER_S: u32 = 1000;
/// So many may be saved up …
pub const MOST_OPERATIONS: u32 = 1000;
/// … of which so many are for addresses at which aircraft are known to be: a fleet of a hundred
/// comes back at once, and then two hundred a second.
const KEPT_FOR_AIRCRAFT: u32 = 500;

/// Handshakes from one address under load: this many at once …
const BURST_OF_ADDRESS: u32 = 16;
/// … and then so many a second. Several aircraft may share one address behind a NAT.
const PER_S_OF_ADDRESS: u32 = 4;
/// Addresses that have used up anything of their bucket, at about 60 bytes each. An entry is gone
/// when its bucket is full again, after 4 s at most, and no more come in than are read: 2,000.
const MAX_ADDRESSES: usize = 4096;
/// Interval at which full buckets are removed.
const PRUNED_EVERY: Duration = Duration::from_secs(1);

/// A message that was read is not read again for so long …
pub const REPEATS_FOR: Duration = Duration::from_secs(20);
/// … of so many, the last: 100 bytes each, and 8 s of a flood that takes all there is.
const MAX_REPEATS: usize = 4096;

/// Owner of a bucket: one IPv4 address, or one IPv6 network of 64 bits, because the owner of one of
/// its addresses has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Network(u64, bool);

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(ip) => Self(u64::from(ip.to_bits()), false),
            IpAddr::V6(ip) => Self((ip.to_bits() >> 64) as u64, true),
        }
    }

    /// An address of it.
    fn address(self) -> IpAddr {
        match self {
            Self(bits, false) => Ipv4Addr::from_bits(bits as u32).into(),
            Self(bits, true) => Ipv6Addr::from_bits(u128::from(bits) << 64).into(),
        }
    }
}

/// Fills with time, in whole tokens and a remainder of nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// In tokens × 10⁻⁹.
    level: u64,
    updated: Duration,
}

const NANOS: u64 = 1_000_000_000;

impl Bucket {
    fn full(most: u32, now: Duration) -> Self {
        Self { level: u64::from(most) * NANOS, updated: now }
    }

    fn refill(&mut self, per_s: u32, most: u32, now: Duration) {
        let passed = now.saturating_sub(self.updated).as_nanos();
        let earned = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(per_s.into());
        self.level = self.level.saturating_add(earned).min(u64::from(most) * NANOS);
        self.updated = self.updated.max(now);
    }

    fn holds(&self, tokens: u64) -> bool {
        self.level >= tokens * NANOS
    }

    fn take(&mut self, tokens: u64) {
        self.level = self.level.saturating_sub(tokens * NANOS);
    }
}

/// Fate of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is read now: it and its answer are paid for.
    Read,
    /// It is an aircraft's at home, and may be read when there is budget again.
    Wait,
    /// It is dropped.
    Drop,
}

/// Decides whether a handshake is read.
#[derive(Debug)]
pub struct Gate {
    curve: Bucket,
    addresses: BTreeMap<Network, Bucket>,
    pruned: Duration,
    /// The network that each aircraft's last effective handshake came from, and the number of aircraft
    /// by network.
    homes: BTreeMap<PublicKey, Network>,
    at_home: BTreeMap<Network, usize>,
    repeats: Repeats,
}

impl Gate {
    pub fn new() -> Self {
        Self {
            curve: Bucket::full(MOST_OPERATIONS, Duration::ZERO),
            addresses: BTreeMap::new(),
            pruned: Duration::ZERO,
            homes: BTreeMap::new(),
            at_home: BTreeMap::new(),
            repeats: Repeats::default(),
        }
    }

    /// Returns `true` if a message with this mac1, which covers all that is in it, was read
    /// recently.
    pub fn is_repeated(&mut self, mac1: &[u8; MAC_BYTES], now: Duration) -> bool {
        self.repeats.knows(mac1, now)
    }

    /// Judges a message from `from`; `proved` when its mac2 proves that it is from there. Give back
    /// what the answer costs if there is none ([`Self::unanswered`]).
    pub fn judge(
        &mut self,
        mac1: [u8; MAC_BYTES],
        from: IpAddr,
        proved: bool,
        now: Duration,
    ) -> Verdict {
        let (network, cost) = (Network::of(from), READ_OPERATIONS + RESPOND_OPERATIONS);
        let at_home = proved && self.at_home.contains_key(&network);
        let kept = if at_home { 0 } else { u64::from(KEPT_FOR_AIRCRAFT) };
        self.curve.refill(OPERATIONS_PER_S, MOST_OPERATIONS, now);
        let has_budget = self.curve.holds(kept + cost);
        if !(has_budget || at_home) || proved && !self.address_admits(network, at_home, now) {
            return Verdict::Drop;
        }
        self.repeats.note(mac1, now);
        if !has_budget {
            return Verdict::Wait;
        }
        self.curve.take(cost);
        Verdict::Read
    }

    /// Returns `true` if a message that waits may be read now. It and its answer are then paid for.
    pub fn admits_waiting(&mut self, now: Duration) -> bool {
        let cost = READ_OPERATIONS + RESPOND_OPERATIONS;
        self.curve.refill(OPERATIONS_PER_S, MOST_OPERATIONS, now);
        let admits = self.curve.holds(cost);
        self.curve.take(if admits { cost } else { 0 });
        admits
    }

    /// The time at which [`Self::admits_waiting`] may be true next.
    pub fn next_admission(&self) -> Duration {
        let missing = (READ_OPERATIONS + RESPOND_OPERATIONS) * NANOS;
        let missing = missing.saturating_sub(self.curve.level);
        self.curve.updated + Duration::from_nanos(missing.div_ceil(OPERATIONS_PER_S.into()))
    }

    /// Gives back the cost of the answer: the message read last was not answered.
    pub fn unanswered(&mut self) {
        self.curve.level += RESPOND_OPERATIONS * NANOS;
    }

    /// The address from which each aircraft's last handshake came that took effect: of an IPv6 network
    /// the one that ends in zeros.
    pub fn homes(&self) -> impl Iterator<Item = (&PublicKey, IpAddr)> {
        self.homes.iter().map(|(aircraft, home)| (aircraft, home.address()))
    }

    /// A handshake of `aircraft` that came from `from` has taken effect.
    pub fn is_at(&mut self, aircraft: PublicKey, from: IpAddr) {
        let network = Network::of(from);
        *self.at_home.entry(network).or_default() += 1;
        if let Some(before) = self.homes.insert(aircraft, network)
            && let Some(aircraft) = self.at_home.get_mut(&before)
        {
            *aircraft -= 1;
            if *aircraft == 0 {
                self.at_home.remove(&before);
            }
        }
    }

    fn address_admits(&mut self, network: Network, at_home: bool, now: Duration) -> bool {
        if now.saturating_sub(self.pruned) >= PRUNED_EVERY {
            self.pruned = now;
            self.addresses.retain(|_, bucket| {
                bucket.refill(PER_S_OF_ADDRESS, BURST_OF_ADDRESS, now);
                !bucket.holds(BURST_OF_ADDRESS.into())
            });
        }
        let is_known = self.addresses.contains_key(&network);
        // Those of aircraft are no more than there are aircraft.
        if !is_known && !at_home && self.addresses.len() >= MAX_ADDRESSES {
            return false;
        }
        let bucket = self.addresses.entry(network).or_insert(Bucket::full(BURST_OF_ADDRESS, now));
        bucket.refill(PER_S_OF_ADDRESS, BURST_OF_ADDRESS, now);
        let admits = bucket.holds(1);
        bucket.take(u64::from(admits));
        admits
    }
}

/// The messages that were read of late, by their mac1.
#[derive(Debug, Default)]
struct Repeats {
    known: BTreeSet<[u8; MAC_BYTES]>,
    order: VecDeque<(Duration, [u8; MAC_BYTES])>,
}

impl Repeats {
    fn knows(&mut self, mac1: &[u8; MAC_BYTES], now: Duration) -> bool {
        while self.order.front().is_some_and(|(at, _)| now >= *at + REPEATS_FOR) {
            self.forget_oldest();
        }
        self.known.contains(mac1)
    }

    fn note(&mut self, mac1: [u8; MAC_BYTES], now: Duration) {
        if self.known.insert(mac1) {
            self.order.push_back((now, mac1));
        }
        if self.order.len() > MAX_REPEATS {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, mac1)) = self.order.pop_front() {
            self.known.remove(&mac1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u64) -> [u8; MAC_BYTES] {
        let mut mac = [0; MAC_BYTES];
        mac[..8].copy_from_slice(&number.to_le_bytes());
        mac
    }

    fn v6(network: u64, host: u64) -> IpAddr {
        Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(host)).into()
    }

    /// Number of a flood's messages that are read: `per_ms` for each of `ms`, from the sources of
    /// `from`.
    fn read(gate: &mut Gate, ms: u64, per_ms: u64, from: impl Fn(u64) -> IpAddr) -> u64 {
        let mut read = 0;
        for number in 0..ms * per_ms {
            let now = Duration::from_millis(number / per_ms);
            if gate.judge(mac(number), from(number), true, now) == Verdict::Read {
                gate.unanswered();
                read += 1;
            }
        }
        read
    }

    #[test]
    fn one_address_gets_its_share_whatever_its_low_bits() {
        for from in [|_| IpAddr::from(Ipv4Addr::LOCALHOST), |number| v6(7, number)] {
            assert_eq!(read(&mut Gate::new(), 10_000, 1, from), 16 + 10 * 4 - 1);
        }
        let mapped = |number: u64| match number % 2 {
            0 => IpAddr::from(Ipv4Addr::LOCALHOST),
            _ => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
        };
        assert_eq!(read(&mut Gate::new(), 10_000, 1, mapped), 16 + 10 * 4 - 1);
    }

    #[test]
    fn many_addresses_share_one_bound_and_an_aircraft_s_own_goes_first() {
        let mut gate = Gate::new();
        let home = v6(u64::MAX, 1);
        gate.is_at(PublicKey::from_bytes([1; 32]), home);
        let read = read(&mut gate, 10_000, 8, |number| v6(number, 1));
        let most = (u64::from(MOST_OPERATIONS - KEPT_FOR_AIRCRAFT) + 10 * 1000) / READ_OPERATIONS;
        assert!((most - 10..=most).contains(&read), "{read} of {most}");
        assert!(gate.addresses.len() <= MAX_ADDRESSES && gate.repeats.order.len() <= MAX_REPEATS);
        let now = Duration::from_secs(10);
        let says = gate.judge(mac(u64::MAX), home, false, now);
        assert_eq!(says, Verdict::Drop, "anybody can say where he is");
        for number in 0..16 {
            assert_eq!(gate.judge(mac(u64::MAX - number), home, true, now), Verdict::Read);
        }
        let beyond = gate.judge(mac(1 << 60), home, true, now);
        assert_eq!(beyond, Verdict::Drop, "its share is bounded, too");
        // What is not used is forgotten.
        let later = now + Duration::from_secs(5);
        assert_eq!(gate.judge(mac(1 << 61), home, true, later), Verdict::Read);
        assert_eq!(gate.addresses.len(), 1);
    }

    #[test]
    fn a_network_is_a_home_while_any_aircraft_was_there_last() {
        let mut gate = Gate::new();
        let key = |byte| PublicKey::from_bytes([byte; 32]);
        for (aircraft, network) in [(1, 7), (2, 7), (1, 7), (1, 8), (2, 9)] {
            gate.is_at(key(aircraft), v6(network, 1));
        }
        let homes: Vec<_> = [7, 8, 9].map(|it| Network::of(v6(it, 2))).to_vec();
        let counts = homes.iter().map(|home| gate.at_home.get(home).copied());
        assert_eq!(Vec::from_iter(counts), [None, Some(1), Some(1)]);
    }

    #[test]
    fn what_was_read_is_known_for_a_while() {
        let (mut gate, now) = (Gate::new(), Duration::from_secs(9));
        let from = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(!gate.is_repeated(&mac(1), now));
        assert_eq!(gate.judge(mac(1), from, false, now), Verdict::Read);
        assert!(gate.is_repeated(&mac(1), now + Duration::from_secs(19)));
        assert!(!gate.is_repeated(&mac(1), now + REPEATS_FOR));
        assert!(gate.repeats.order.is_empty());
    }
}
