//! Who the clients are: a stable small number for each address, and how much each may hold.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clients told apart: a wide-body's cabin ten times over, in about 400 KiB.
pub const MAX_PASSENGERS: usize = 4096;

/// The number that clients beyond [`MAX_PASSENGERS`] at once have in common.
pub const EVERYONE_ELSE: u32 = 0;

/// All clients seen lately.
pub struct Passengers {
    table: Mutex<Table>,
    max_flows: usize,
    max_flows_each: usize,
}

#[derive(Default)]
struct Table {
    known: HashMap<IpAddr, Passenger>,
    /// Flows of clients that found the table full.
    others: usize,
    open: usize,
    clock: u64,
}

struct Passenger {
    number: u32,
    open: usize,
    seen: u64,
}

/// The right to one connection, given back when dropped.
pub struct Ticket {
    passengers: Arc<Passengers>,
    /// The client's address.
    pub client: IpAddr,
    /// The client's number.
    pub number: u32,
}

impl Passengers {
    /// A table for at most `max_flows` connections, `max_flows_each` per client.
    pub fn new(max_flows: usize, max_flows_each: usize) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), max_flows, max_flows_each })
    }

    /// Admits one more connection of `client`, unless a limit is reached.
    pub fn admit(self: &Arc<Self>, client: IpAddr) -> Option<Ticket> {
        let client = client.to_canonical();
        let number = self.lock().admit(client, self.max_flows, self.max_flows_each)?;
        Some(Ticket { passengers: self.clone(), client, number })
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn admit(&mut self, client: IpAddr, max: usize, each: usize) -> Option<u32> {
        if self.open >= max {
            return None;
        }
        if !self.known.contains_key(&client)
            && let Some(number) = self.free_number()
        {
            self.known.insert(client, Passenger { number, open: 0, seen: 0 });
        }
        self.clock += 1;
        let (number, held) = match self.known.get_mut(&client) {
            Some(passenger) => {
                passenger.seen = self.clock;
                (passenger.number, &mut passenger.open)
            }
            None => (EVERYONE_ELSE, &mut self.others),
        };
        if *held >= each {
            return None;
        }
        *held += 1;
        self.open += 1;
        Some(number)
    }

    /// The next number, or that of the client without connections seen longest ago.
    fn free_number(&mut self) -> Option<u32> {
        if self.known.len() < MAX_PASSENGERS {
            // Fits: at most MAX_PASSENGERS, and numbers are taken in turn.
            return Some(self.known.len() as u32 + 1);
        }
        let idle = self.known.iter().filter(|(_, passenger)| passenger.open == 0);
        let oldest = idle.min_by_key(|(_, passenger)| passenger.seen).map(|(ip, _)| *ip)?;
        self.known.remove(&oldest).map(|passenger| passenger.number)
    }

    fn leave(&mut self, client: IpAddr, number: u32) {
        self.open -= 1;
        if number == EVERYONE_ELSE {
            self.others -= 1;
        } else if let Some(passenger) = self.known.get_mut(&client) {
            passenger.open -= 1;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.passengers.lock().leave(self.client, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ip(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    #[test]
    fn numbers_are_small_and_stay() {
        let table = Passengers::new(100, 10);
        let first = table.admit(ip(1)).unwrap().number;
        let second = table.admit(ip(2)).unwrap().number;
        assert_eq!((first, second), (1, 2));
        assert_eq!(table.admit(ip(1)).unwrap().number, 1);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(table.admit(mapped).unwrap().number, 1);
        assert_eq!(table.open(), 0);
    }

    #[test]
    fn limits_hold_and_come_back() {
        let table = Passengers::new(5, 3);
        let held: Vec<_> = (0..3).map(|_| table.admit(ip(1)).unwrap()).collect();
        assert!(table.admit(ip(1)).is_none());
        let other: Vec<_> = (0..2).map(|_| table.admit(ip(2)).unwrap()).collect();
        assert!(table.admit(ip(2)).is_none(), "five in all");
        drop(held);
        assert!(table.admit(ip(2)).is_some());
        drop(other);
        assert_eq!(table.open(), 0);
    }

    #[test]
    fn the_table_is_bounded() {
        let table = Passengers::new(100_000, 10);
        let count = MAX_PASSENGERS as u32;
        let held: Vec<_> = (1..=count).map(|n| table.admit(ip(n)).unwrap()).collect();
        let beyond = table.admit(ip(count + 1)).unwrap();
        assert_eq!(beyond.number, EVERYONE_ELSE);
        let number = held[6].number;
        drop(held);
        // Number 7 has been seen again since: the oldest idle client gives way.
        drop((1..7).map(|n| table.admit(ip(n))).collect::<Vec<_>>());
        assert_eq!(table.admit(ip(count + 2)).unwrap().number, number);
        drop(beyond);
        assert_eq!(table.open(), 0);
    }
}
