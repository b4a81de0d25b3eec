//! Limits on connections whose client has not proved its identity.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use bentpipe_flow::ClientNetwork;
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::oneshot, time::Instant};

/// Maximum number of connections whose client has not proved its key. Each may use 64 KiB for received
/// bytes and 96 KiB for early datagrams: 40 MiB in total. From half of it on, a client must first
/// validate its address (QUIC Retry). At the limit, a new connection ends the oldest one of the network
/// with the most connections.
pub const MAX_UNPROVEN: usize = 256;

/// Maximum number of such connections from one source: an IPv4 address or an IPv6 /64. Forged addresses
/// use at most half, and leave the rest to the real owner. At the limit, new connections from the source
/// are refused.
pub(crate) const MAX_UNPROVEN_PER_SOURCE: usize = 32;

/// Age at which an unproven connection ends if at least half of [`MAX_UNPROVEN`] exist. A proof takes
/// four round trips: 3 s over a satellite, and the rest for lost packets.
pub(crate) const CROWDED_PROOF_TIMEOUT: Duration = Duration::from_secs(10);

/// Upper 48 bits of an IPv6 address.
const V6_NETWORK: u128 = u128::MAX << 80;

/// Upper 24 bits of an IPv4 address.
const V4_NETWORK: u32 = u32::MAX << 8;

/// Unproven connections.
#[derive(Default)]
pub(crate) struct Unproven(Mutex<Held>);

#[derive(Default)]
struct Held {
    /// Number of the next connection.
    next: u64,
    /// Connections by number, which is in order of age: at most [`MAX_UNPROVEN`].
    connections: BTreeMap<u64, Connection>,
    refused: RefusedConnections,
}

struct Connection {
    source: ClientNetwork,
    network: IpAddr,
    since: Instant,
    /// Channel that ends the connection.
    end: oneshot::Sender<()>,
}

/// Connections that were refused, or ended before their proof to make room.
#[derive(Debug, Default)]
pub struct RefusedConnections {
    /// Number of connections.
    pub count: u64,
    /// Number of connections of each network, an IPv4 /24 or an IPv6 /48: at most [`MAX_UNPROVEN`]
    /// networks.
    networks: HashMap<IpAddr, u64>,
}

impl RefusedConnections {
    /// The network with most of them, and their number.
    pub fn busiest(&self) -> Option<(IpAddr, u64)> {
        let busiest = self.networks.iter().max_by_key(|(network, count)| (**count, **network));
        busiest.map(|(network, count)| (*network, *count))
    }

    fn add(&mut self, network: IpAddr) {
        self.count += 1;
        if self.networks.len() < MAX_UNPROVEN || self.networks.contains_key(&network) {
            *self.networks.entry(network).or_default() += 1;
        }
    }
}

/// Permit of an unproven connection. Dropping it releases the permit.
pub(crate) struct UnprovenPermit {
    unproven: Arc<Unproven>,
    number: u64,
}

/// Decision about a new connection.
pub(crate) enum Arrival {
    /// The receiver resolves when the connection must end, or when its permit is released.
    Welcome(UnprovenPermit, oneshot::Receiver<()>),
    /// The client must validate its address first.
    Retry,
    Refused,
}

impl Unproven {
    /// Decides about a connection from `ip`. `validated` tells if the client has proved that it receives
    /// at this address.
    pub fn arrive(self: &Arc<Self>, ip: IpAddr, validated: bool) -> Arrival {
        let (source, network) = (ClientNetwork::of(ip), network(ip));
        let mut held = self.lock();
        if held.is_crowded() {
            held.end_late();
        }
        let of_source = held.connections.values().filter(|it| it.source == source).count();
        if of_source >= MAX_UNPROVEN_PER_SOURCE {
            held.refused.add(network);
            return Arrival::Refused;
        }
        if (held.is_crowded() || of_source >= MAX_UNPROVEN_PER_SOURCE / 2) && !validated {
            return Arrival::Retry;
        }
        if held.connections.len() >= MAX_UNPROVEN {
            match held.payer(network) {
                Some(number) => held.end(number),
                None => {
                    held.refused.add(network);
                    return Arrival::Refused;
                }
            }
        }
        let (end, ended) = oneshot::channel();
        let number = held.next;
        held.next += 1;
        let connection = Connection { source, network, since: Instant::now(), end };
        held.connections.insert(number, connection);
        Arrival::Welcome(UnprovenPermit { unproven: self.clone(), number }, ended)
    }

    /// Returns the connections refused or ended since the previous call.
    pub fn take_refused(&self) -> RefusedConnections {
        mem::take(&mut self.lock().refused)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock()
    }
}

impl Held {
    fn is_crowded(&self) -> bool {
        self.connections.len() >= MAX_UNPROVEN / 2
    }

    /// Ends the connections that are older than [`CROWDED_PROOF_TIMEOUT`].
    fn end_late(&mut self) {
        let late = |it: &Connection| it.since.elapsed() >= CROWDED_PROOF_TIMEOUT;
        while let Some((number, _)) = self.connections.first_key_value().filter(|it| late(it.1)) {
            self.end(*number);
        }
    }

    /// Returns the oldest connection of the network with most, if `newcomer` has fewer.
    fn payer(&self, newcomer: IpAddr) -> Option<u64> {
        // Each network's number of connections, and its oldest.
        let mut networks = HashMap::<IpAddr, (usize, u64)>::new();
        for (number, connection) in &self.connections {
            networks.entry(connection.network).or_insert((0, *number)).0 += 1;
        }
        let has = networks.get(&newcomer).map_or(0, |(count, _)| *count);
        let largest = networks.values().max_by_key(|(count, oldest)| (*count, !*oldest));
        largest.filter(|(count, _)| *count > has).map(|(_, oldest)| *oldest)
    }

    fn end(&mut self, number: u64) {
        if let Some(connection) = self.connections.remove(&number) {
            self.refused.add(connection.network);
            // The connection may have ended at this moment.
            let _ = connection.end.send(());
        }
    }
}

impl Drop for UnprovenPermit {
    fn drop(&mut self) {
        self.unproven.lock().connections.remove(&self.number);
    }
}

/// Network of a connection: the IPv4 /24, or the IPv6 /48, which is the usual size for one site.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & V6_NETWORK).into(),
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & V4_NETWORK).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Permits that `ips` get.
    fn places(
        unproven: &Arc<Unproven>,
        ips: impl Iterator<Item = IpAddr>,
        validated: bool,
    ) -> Vec<(UnprovenPermit, oneshot::Receiver<()>)> {
        let arrive = |ip| match unproven.arrive(ip, validated) {
            Arrival::Welcome(permit, ended) => Some((permit, ended)),
            Arrival::Retry | Arrival::Refused => None,
        };
        ips.filter_map(arrive).collect()
    }

    fn is_ended(place: &mut (UnprovenPermit, oneshot::Receiver<()>)) -> bool {
        place.1.try_recv().is_ok()
    }

    /// Address of host `n` in the IPv4 network of number `network`.
    fn v4(network: u8, n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, network, n).into()
    }

    #[test]
    fn one_source_is_bounded() {
        let unproven = Arc::new(Unproven::default());
        let one = |n: u64| IpAddr::from(Ipv6Addr::from_bits(0x2001 << 112 | u128::from(n) << 40));
        let forged = places(&unproven, (0..100).map(one), false);
        assert_eq!(forged.len(), MAX_UNPROVEN_PER_SOURCE / 2);
        assert!(matches!(unproven.arrive(one(7), false), Arrival::Retry));
        let real = places(&unproven, (0..100).map(one), true);
        assert_eq!(real.len(), MAX_UNPROVEN_PER_SOURCE / 2);
        assert!(matches!(unproven.arrive(one(7), true), Arrival::Refused));
        let other = places(&unproven, ["192.0.2.1".parse().unwrap()].into_iter(), false);
        assert_eq!(other.len(), 1);
        let mapped = places(&unproven, ["::ffff:192.0.2.1".parse().unwrap()].into_iter(), false);
        assert_eq!(mapped.len(), 1);
        assert_eq!(unproven.lock().connections.len(), MAX_UNPROVEN_PER_SOURCE + 2);
        drop((forged, real, other, mapped));
        assert!(unproven.lock().connections.is_empty());
    }

    #[test]
    fn all_sources_are_bounded() {
        let unproven = Arc::new(Unproven::default());
        let four = |n: u32| IpAddr::from(Ipv4Addr::from_bits(n));
        let forged = places(&unproven, (0..1000).map(four), false);
        assert_eq!(forged.len(), MAX_UNPROVEN / 2);
        let real = places(&unproven, (0..=255).map(four), true);
        assert_eq!(forged.len() + real.len(), MAX_UNPROVEN);
        // All are of one network, which may end none of its own for itself.
        assert!(matches!(unproven.arrive(four(3), true), Arrival::Refused));
        drop(real);
        assert!(matches!(unproven.arrive(four(3), true), Arrival::Welcome(..)));
    }

    #[test]
    fn the_oldest_of_the_largest_network_ends_for_a_newcomer() {
        let unproven = Arc::new(Unproven::default());
        let mut few = places(&unproven, (0..10).map(|n| v4(1, n)), true);
        // A stranger with an IPv6 /48 has a new /64 for each connection.
        let v6 = |n: u128| IpAddr::from(Ipv6Addr::from_bits(0x2001 << 112 | n << 64));
        let mut many = places(&unproven, (0..246).map(v6), true);
        assert_eq!(few.len() + many.len(), MAX_UNPROVEN);
        assert!(matches!(unproven.arrive(v6(300), true), Arrival::Refused));
        // A forged address ends nobody.
        assert!(matches!(unproven.arrive(v4(2, 1), false), Arrival::Retry));
        let newcomers = places(&unproven, [v4(2, 1), v4(1, 100)].into_iter(), true);
        assert_eq!(newcomers.len(), 2);
        assert_eq!(many.iter_mut().map(is_ended).filter(|it| *it).count(), 2);
        assert!(!few.iter_mut().any(is_ended));
        assert!(unproven.lock().connections.contains_key(&many[2].0.number));
        let refused = unproven.take_refused();
        assert_eq!((refused.count, refused.busiest()), (3, Some((network(v6(0)), 3))));
        assert_eq!(unproven.take_refused().count, 0);
        // A permit that was taken does not release another's.
        drop(many);
        assert_eq!(unproven.lock().connections.len(), few.len() + newcomers.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_has_less_time_for_its_proofs() {
        let unproven = Arc::new(Unproven::default());
        let mut early = places(&unproven, (0..20).map(|n| v4(0, n)), true);
        tokio::time::advance(CROWDED_PROOF_TIMEOUT).await;
        let mut later = places(&unproven, (0..128).map(|n| v4(n, 1)), true);
        assert_eq!(later.len(), MAX_UNPROVEN / 2);
        assert!(early.iter_mut().all(is_ended) && !later.iter_mut().any(is_ended));
        assert_eq!(unproven.lock().connections.len(), MAX_UNPROVEN / 2);
        tokio::time::advance(CROWDED_PROOF_TIMEOUT).await;
        let newcomer = places(&unproven, [v4(200, 1)].into_iter(), true);
        assert_eq!((newcomer.len(), unproven.lock().connections.len()), (1, 1));
        assert!(later.iter_mut().all(is_ended));
    }
}
