//! Who the clients are: a stable small number for each address, and how much each may hold.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bucket::Bucket;

pub use crate::flows::Kind;

/// Clients told apart: a wide-body's cabin ten times over, in about 400 KiB.
pub const MAX_PASSENGERS: usize = 4096;

/// The number that clients beyond [`MAX_PASSENGERS`] at once have in common.
pub const EVERYONE_ELSE: u32 = 0;

/// All clients seen lately.
pub struct Passengers {
    table: Mutex<Table>,
    limits: [Limit; Kind::COUNT],
}

/// A bound on flows of one [`Kind`].
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Of all clients.
    pub all: usize,
    /// Of one.
    pub each: usize,
    /// New ones of one per second, on average; absent: as many as it likes.
    pub each_per_second: Option<u32>,
}

/// Seconds of its average rate that a client may open at a stretch.
const BURST_SECONDS: f64 = 2.0;

#[derive(Default)]
struct Table {
    known: HashMap<IpAddr, Passenger>,
    /// Flows of clients that found the table full.
    others: Held,
    open: [usize; Kind::COUNT],
    clock: u64,
}

struct Passenger {
    number: u32,
    held: Held,
    seen: u64,
}

/// What one client holds.
#[derive(Default)]
struct Held {
    open: [usize; Kind::COUNT],
    /// Since it opened its first.
    opening: [Option<Bucket>; Kind::COUNT],
}

/// The right to one flow, given back when dropped.
pub struct Ticket {
    passengers: Arc<Passengers>,
    kind: Kind,
    /// The client's address.
    pub client: IpAddr,
    /// The client's number.
    pub number: u32,
}

impl Passengers {
    /// A table with these bounds, in the order of [`Kind`].
    pub fn new(limits: [Limit; Kind::COUNT]) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), limits })
    }

    /// Admits one more flow of `client`, unless a limit is reached.
    pub fn admit(self: &Arc<Self>, client: IpAddr, kind: Kind) -> Option<Ticket> {
        let client = client.to_canonical();
        let number = self.lock().admit(client, kind, self.limits[kind as usize])?;
        Some(Ticket { passengers: self.clone(), kind, client, number })
    }

    /// Flows of `kind` open now.
    pub fn open(&self, kind: Kind) -> usize {
        self.lock().open[kind as usize]
    }

    /// The addresses of the clients that have these numbers now.
    pub fn addresses(&self, numbers: &HashSet<u32>) -> Vec<(u32, IpAddr)> {
        let table = self.lock();
        let known = table.known.iter().map(|(ip, passenger)| (passenger.number, *ip));
        known.filter(|(number, _)| numbers.contains(number)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn admit(&mut self, client: IpAddr, kind: Kind, limit: Limit) -> Option<u32> {
        let kind = kind as usize;
        if self.open[kind] >= limit.all {
            return None;
        }
        if !self.known.contains_key(&client)
            && let Some(number) = self.free_number()
        {
            self.known.insert(client, Passenger { number, held: Held::default(), seen: 0 });
        }
        self.clock += 1;
        let (number, held) = match self.known.get_mut(&client) {
            Some(passenger) => {
                passenger.seen = self.clock;
                (passenger.number, &mut passenger.held)
            }
            None => (EVERYONE_ELSE, &mut self.others),
        };
        if held.open[kind] >= limit.each || !held.may_open(kind, limit.each_per_second) {
            return None;
        }
        held.open[kind] += 1;
        self.open[kind] += 1;
        Some(number)
    }

    /// The next number, or that of the client without flows seen longest ago.
    fn free_number(&mut self) -> Option<u32> {
        if self.known.len() < MAX_PASSENGERS {
            // Fits: at most MAX_PASSENGERS, and numbers are taken in turn.
            return Some(self.known.len() as u32 + 1);
        }
        let idle =
            self.known.iter().filter(|(_, passenger)| passenger.held.open == [0; Kind::COUNT]);
        let oldest = idle.min_by_key(|(_, passenger)| passenger.seen).map(|(ip, _)| *ip)?;
        self.known.remove(&oldest).map(|passenger| passenger.number)
    }

    fn leave(&mut self, client: IpAddr, kind: Kind, number: u32) {
        let kind = kind as usize;
        self.open[kind] -= 1;
        if number == EVERYONE_ELSE {
            self.others.open[kind] -= 1;
        } else if let Some(passenger) = self.known.get_mut(&client) {
            passenger.held.open[kind] -= 1;
        }
    }
}

impl Held {
    fn may_open(&mut self, kind: usize, per_second: Option<u32>) -> bool {
        let Some(rate) = per_second else { return true };
        let bucket = || Bucket::new(f64::from(rate), BURST_SECONDS);
        self.opening[kind].get_or_insert_with(bucket).take()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.passengers.lock().leave(self.client, self.kind, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::Kind::{Datagrams, Streams};
    use super::*;
    use std::net::Ipv4Addr;

    fn ip(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    fn table(all: usize, each: usize) -> Arc<Passengers> {
        let each_per_second = None;
        let datagrams = Limit { all: 2, each: 1, each_per_second };
        Passengers::new([Limit { all, each, each_per_second }, datagrams, datagrams])
    }

    #[tokio::test(start_paused = true)]
    async fn opening_is_paced_for_each() {
        let paced = Limit { all: 100, each: 100, each_per_second: Some(2) };
        let table = Passengers::new([Limit { each_per_second: None, ..paced }, paced, paced]);
        let opened = |client| table.admit(client, Datagrams).is_some();
        assert_eq!((0..9).filter(|_| opened(ip(1))).count(), 4);
        assert!(opened(ip(2)), "another client");
        assert!(table.admit(ip(1), Streams).is_some(), "another kind");
        tokio::time::advance(std::time::Duration::from_millis(500)).await;
        assert_eq!((0..9).filter(|_| opened(ip(1))).count(), 1);
    }

    #[test]
    fn datagrams_have_bounds_of_their_own() {
        let table = table(5, 3);
        let stream = table.admit(ip(1), Streams).unwrap();
        let datagrams = table.admit(ip(1), Datagrams).unwrap();
        assert_eq!(stream.number, datagrams.number);
        assert!(table.admit(ip(1), Datagrams).is_none());
        let other = table.admit(ip(2), Datagrams).unwrap();
        assert!(table.admit(ip(3), Datagrams).is_none(), "two in all");
        drop(stream);
        assert_eq!((table.open(Streams), table.open(Datagrams)), (0, 2));
        drop((datagrams, other));
        assert_eq!(table.open(Datagrams), 0);
    }

    #[test]
    fn numbers_are_small_and_stay() {
        let table = table(100, 10);
        let first = table.admit(ip(1), Streams).unwrap().number;
        let second = table.admit(ip(2), Streams).unwrap().number;
        assert_eq!((first, second), (1, 2));
        assert_eq!(table.admit(ip(1), Streams).unwrap().number, 1);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(table.admit(mapped, Streams).unwrap().number, 1);
        assert_eq!(table.addresses(&HashSet::from([2, 3])), [(2, ip(2))]);
        assert_eq!(table.open(Streams), 0);
    }

    #[test]
    fn limits_hold_and_come_back() {
        let table = table(5, 3);
        let held: Vec<_> = (0..3).map(|_| table.admit(ip(1), Streams).unwrap()).collect();
        assert!(table.admit(ip(1), Streams).is_none());
        let other: Vec<_> = (0..2).map(|_| table.admit(ip(2), Streams).unwrap()).collect();
        assert!(table.admit(ip(2), Streams).is_none(), "five in all");
        drop(held);
        assert!(table.admit(ip(2), Streams).is_some());
        drop(other);
        assert_eq!(table.open(Streams), 0);
    }

    #[test]
    fn the_table_is_bounded() {
        let table = table(100_000, 10);
        let count = MAX_PASSENGERS as u32;
        let held: Vec<_> = (1..=count).map(|n| table.admit(ip(n), Streams).unwrap()).collect();
        let beyond = table.admit(ip(count + 1), Streams).unwrap();
        assert_eq!(beyond.number, EVERYONE_ELSE);
        let number = held[6].number;
        drop(held);
        // Number 7 has been seen again since: the oldest idle client gives way.
        drop((1..7).map(|n| table.admit(ip(n), Streams)).collect::<Vec<_>>());
        assert_eq!(table.admit(ip(count + 2), Streams).unwrap().number, number);
        drop(beyond);
        assert_eq!(table.open(Streams), 0);
    }
}
