//! Limits on the cost of handshakes at a hub, for any senders and rates.
//!
//! Curve arithmetic is the largest cost. Beyond the rate of [`LoadMeter`](super::load::LoadMeter), only a message with mac2
//! is read, which proves its address. Reachable addresses are cheap too, so that each
//! [`ClientNetwork`] has a token bucket, and the curve has one for all of them. A part of that is reserved for the addresses of
//! known aircraft, which no flood from other addresses can lock out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use bentpipe_flow::ClientNetwork;
use bentpipe_units::{TokenBucket, TokenRate};

use crate::crypto::MAC_BYTES;
use crate::key::PublicKey;

/// Curve operations for reading message 1 (es, ss) …
pub const READ_OPERATIONS: u64 = 2;
/// … and for answering it (an ephemeral key, ee, se).
pub const RESPOND_OPERATIONS: u64 = 3;

/// Curve operations a second for all handshakes: 200 answered ones, or 500 of strangers.
pub const OPERATIONS_PER_S: u64 = 1000;
/// Maximum of saved operations …
pub const MAX_OPERATIONS: u64 = 1000;
/// … of which this many are reserved for addresses of known aircraft: a fleet of a hundred returns
/// at once, and then two hundred a second.
const RESERVED_FOR_AIRCRAFT: u64 = 500;
/// Bucket of the curve operations.
const OPERATIONS: TokenRate = TokenRate::new(OPERATIONS_PER_S, MAX_OPERATIONS);

/// Handshakes from one address under load: 4 per second with a burst of 16. Several aircraft may
/// share one address behind a NAT.
const OF_ADDRESS: TokenRate = TokenRate::new(4, 16);
/// Maximum number of addresses with a partly used bucket, about 70 bytes each. An entry is removed
/// when its bucket is full again, after 4 s at most. No more are added than messages read: 2,000.
const MAX_ADDRESSES: usize = 4096;
/// Interval of the removal of full buckets.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which a message that was read is not read again …
pub const REPEATS_FOR: Duration = Duration::from_secs(20);
/// … and maximum number of such messages: 100 bytes each, 8 s of the largest flood.
const MAX_REPEATS: usize = 4096;

/// Decision about a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is read now; its cost and its answer's are paid.
    Read,
    /// It comes from a known aircraft's address, and may be read when the budget permits.
    Wait,
    /// It is dropped.
    Drop,
}

/// Limiter of handshakes.
#[derive(Debug, Default)]
pub struct HandshakeLimiter {
    curve: TokenBucket,
    addresses: BTreeMap<ClientNetwork, TokenBucket>,
    pruned: Duration,
    /// Network of each aircraft's last effective handshake, and number of aircraft by network.
    homes: BTreeMap<PublicKey, ClientNetwork>,
    at_home: BTreeMap<ClientNetwork, usize>,
    repeats: Repeats,
}

impl HandshakeLimiter {
    /// Returns `true` if a message with this mac1, which covers its whole content, was read
    /// recently.
    pub fn is_repeated(&mut self, mac1: &[u8; MAC_BYTES], now: Duration) -> bool {
        self.repeats.knows(mac1, now)
    }

    /// Judges a message from `from`; `proved` says that its mac2 proves the address. If it is not
    /// answered, [`Self::unanswered`] has to be called.
    pub fn judge(
        &mut self,
        mac1: [u8; MAC_BYTES],
        from: IpAddr,
        proved: bool,
        now: Duration,
    ) -> Decision {
        let (network, cost) = (ClientNetwork::of(from), READ_OPERATIONS + RESPOND_OPERATIONS);
        let at_home = proved && self.at_home.contains_key(&network);
        let kept = if at_home { 0 } else { RESERVED_FOR_AIRCRAFT };
        let has_budget = self.curve.holds(OPERATIONS, kept + cost, now);
        if !(has_budget || at_home) || proved && !self.address_admits(network, at_home, now) {
            return Decision::Drop;
        }
        self.repeats.note(mac1, now);
        if !has_budget {
            return Decision::Wait;
        }
        self.curve.spend(cost);
        Decision::Read
    }

    /// Returns `true` if a waiting message may be read now. Its cost and its answer's are then
    /// paid.
    pub fn admits_waiting(&mut self, now: Duration) -> bool {
        self.curve.take(OPERATIONS, READ_OPERATIONS + RESPOND_OPERATIONS, now)
    }

    /// Next time at which [`Self::admits_waiting`] may be true.
    pub fn next_admission(&self) -> Duration {
        let cost = READ_OPERATIONS + RESPOND_OPERATIONS;
        self.curve.holds_at(OPERATIONS, cost).unwrap_or(Duration::MAX)
    }

    /// Refunds the answer of the last message read, which was not answered.
    pub fn unanswered(&mut self) {
        self.curve.refund(RESPOND_OPERATIONS);
    }

    /// Address of each aircraft's last effective handshake; of an IPv6 network the one that ends in
    /// zeros.
    pub fn homes(&self) -> impl Iterator<Item = (&PublicKey, IpAddr)> {
        self.homes.iter().map(|(aircraft, home)| (aircraft, home.address()))
    }

    /// Notes that a handshake of `aircraft` from `from` has taken effect.
    pub fn is_at(&mut self, aircraft: PublicKey, from: IpAddr) {
        let network = ClientNetwork::of(from);
        *self.at_home.entry(network).or_default() += 1;
        let before = self.homes.insert(aircraft, network);
        self.leave(before);
    }

    /// Forgets an aircraft that is not served any more.
    pub fn forget(&mut self, aircraft: &PublicKey) {
        let before = self.homes.remove(aircraft);
        self.leave(before);
    }

    /// Notes that an aircraft's home is not `network` any more.
    fn leave(&mut self, network: Option<ClientNetwork>) {
        if let Some(network) = network
            && let Some(aircraft) = self.at_home.get_mut(&network)
        {
            *aircraft -= 1;
            if *aircraft == 0 {
                self.at_home.remove(&network);
            }
        }
    }

    fn address_admits(&mut self, network: ClientNetwork, at_home: bool, now: Duration) -> bool {
        if now.saturating_sub(self.pruned) >= PRUNE_INTERVAL {
            self.pruned = now;
            self.addresses.retain(|_, bucket| !bucket.is_full(OF_ADDRESS, now));
        }
        let is_known = self.addresses.contains_key(&network);
        // Networks of aircraft are no more than aircraft.
        if !is_known && !at_home && self.addresses.len() >= MAX_ADDRESSES {
            return false;
        }
        self.addresses.entry(network).or_default().take(OF_ADDRESS, 1, now)
    }
}

/// Recently read messages by their mac1.
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
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn mac(number: u64) -> [u8; MAC_BYTES] {
        let mut mac = [0; MAC_BYTES];
        mac[..8].copy_from_slice(&number.to_le_bytes());
        mac
    }

    fn v6(network: u64, host: u64) -> IpAddr {
        Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(host)).into()
    }

    /// Returns how many messages of a flood are read: `per_ms` for each of `ms`, from the sources
    /// of `from`.
    fn read(
        limiter: &mut HandshakeLimiter,
        ms: u64,
        per_ms: u64,
        from: impl Fn(u64) -> IpAddr,
    ) -> u64 {
        let mut read = 0;
        for number in 0..ms * per_ms {
            let now = Duration::from_millis(number / per_ms);
            if limiter.judge(mac(number), from(number), true, now) == Decision::Read {
                limiter.unanswered();
                read += 1;
            }
        }
        read
    }

    #[test]
    fn an_address_gets_its_share_whatever_its_low_bits() {
        for from in [|_| IpAddr::from(Ipv4Addr::LOCALHOST), |number| v6(7, number)] {
            assert_eq!(read(&mut HandshakeLimiter::default(), 10_000, 1, from), 16 + 10 * 4 - 1);
        }
        let mapped = |number: u64| match number % 2 {
            0 => IpAddr::from(Ipv4Addr::LOCALHOST),
            _ => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
        };
        assert_eq!(read(&mut HandshakeLimiter::default(), 10_000, 1, mapped), 16 + 10 * 4 - 1);
    }

    #[test]
    fn many_addresses_share_one_limit_and_aircraft_go_first() {
        let mut limiter = HandshakeLimiter::default();
        let home = v6(u64::MAX, 1);
        limiter.is_at(PublicKey::from_bytes([1; 32]), home);
        let read = read(&mut limiter, 10_000, 8, |number| v6(number, 1));
        let max = (MAX_OPERATIONS - RESERVED_FOR_AIRCRAFT + 10 * 1000) / READ_OPERATIONS;
        assert!((max - 10..=max).contains(&read), "{read} of {max}");
        assert!(
            limiter.addresses.len() <= MAX_ADDRESSES && limiter.repeats.order.len() <= MAX_REPEATS
        );
        let now = Duration::from_secs(10);
        let says = limiter.judge(mac(u64::MAX), home, false, now);
        assert_eq!(says, Decision::Drop, "an unproven address");
        for number in 0..16 {
            assert_eq!(limiter.judge(mac(u64::MAX - number), home, true, now), Decision::Read);
        }
        let beyond = limiter.judge(mac(1 << 60), home, true, now);
        assert_eq!(beyond, Decision::Drop, "its share is bounded, too");
        // Unused buckets are removed.
        let later = now + Duration::from_secs(5);
        assert_eq!(limiter.judge(mac(1 << 61), home, true, later), Decision::Read);
        assert_eq!(limiter.addresses.len(), 1);
    }

    #[test]
    fn a_network_is_a_home_while_it_is_any_aircrafts_last() {
        let mut limiter = HandshakeLimiter::default();
        let key = |byte| PublicKey::from_bytes([byte; 32]);
        for (aircraft, network) in [(1, 7), (2, 7), (1, 7), (1, 8), (2, 9)] {
            limiter.is_at(key(aircraft), v6(network, 1));
        }
        let homes: Vec<_> = [7, 8, 9].map(|it| ClientNetwork::of(v6(it, 2))).to_vec();
        let counts = homes.iter().map(|home| limiter.at_home.get(home).copied());
        assert_eq!(Vec::from_iter(counts), [None, Some(1), Some(1)]);
    }

    #[test]
    fn read_messages_are_remembered_for_a_while() {
        let (mut limiter, now) = (HandshakeLimiter::default(), Duration::from_secs(9));
        let from = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(!limiter.is_repeated(&mac(1), now));
        assert_eq!(limiter.judge(mac(1), from, false, now), Decision::Read);
        assert!(limiter.is_repeated(&mac(1), now + Duration::from_secs(19)));
        assert!(!limiter.is_repeated(&mac(1), now + REPEATS_FOR));
        assert!(limiter.repeats.order.is_empty());
    }
}
