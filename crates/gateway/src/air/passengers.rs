//! Passengers: a stable small number for each device, and how much each may hold.
//!
//! Every table that passengers fill is here: TCP connections, flows of UDP, flows of other protocols, and
//! within those of UDP the ones that nothing has answered. A full table ends the idlest entry of whoever
//! holds most and lets the newcomer in; a passenger at its own limit loses its own idlest entry. See
//! `pool` for the rule.

mod pool;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::identity::{Identity, Newcomer, Whose};
use crate::bucket::Bucket;
use crate::counters::Counters;
use crate::flows::Grip;
use crate::refusals::{self, Holding};
use pool::{Full, Most, Pool};

pub use crate::flows::Kind;

/// Passengers told apart: a wide-body's cabin ten times over, in about 400 KiB.
pub const MAX_PASSENGERS: usize = 4096;

/// The number that sources without a neighbour have in common, and passengers beyond [`MAX_PASSENGERS`].
pub const EVERYONE_ELSE: u32 = 0;

/// The part of a table that [`EVERYONE_ELSE`] has: 256 of 4,096 flows.
const PART_OF_EVERYONE_ELSE: usize = 16;

/// The part of UDP's table for flows that nothing has answered: 1,024 of 4,096.
const PART_UNANSWERED: usize = 4;

/// Connections to the operator's sites at once, of one passenger. Each has up to 32 streams with 32 KiB
/// waiting on each: 16 MiB of one passenger.
pub const MAX_SITE_CONNECTIONS: usize = 16;

/// All passengers seen lately.
pub struct Passengers {
    table: Mutex<Table>,
    limits: [Limit; Kind::COUNT],
    identity: Arc<dyn Identity>,
    counters: Arc<Counters>,
}

/// A bound on flows of one [`Kind`].
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// For all passengers.
    pub all: usize,
    /// For one client.
    pub each: usize,
    /// New ones of one per second, on average.
    pub each_per_second: u32,
    /// Seconds of that average that one may open at once.
    pub burst_seconds: f64,
}

struct Table {
    began: Instant,
    numbers: HashMap<Whose, u32>,
    seats: HashMap<u32, Seat>,
    /// Passengers that hold nothing, by when they were seen.
    idle: BTreeMap<u64, Whose>,
    pools: [Pool; POOLS],
    clock: u64,
    last_id: u64,
}

/// Pools of the kinds, in their order; then these.
const UNANSWERED: usize = Kind::COUNT;
const SITES: usize = Kind::COUNT + 1;
const POOLS: usize = Kind::COUNT + 2;

/// A passenger.
struct Seat {
    whose: Option<Whose>,
    /// The address it was seen with last.
    client: IpAddr,
    seen: u64,
    /// Tickets that it has.
    tickets: usize,
    /// Rates, since it opened its first.
    opening: [Option<Bucket>; Kind::COUNT],
}

/// The right to one flow, given back when dropped, and taken back when the flow has to make room.
pub struct Ticket {
    passengers: Arc<Passengers>,
    grip: Arc<Grip>,
    kind: Kind,
    newcomer: Newcomer,
    /// The client's address.
    pub client: IpAddr,
    /// The passenger's number.
    pub number: u32,
}

/// A limit took something from somebody.
struct Taken {
    limit: refusals::Limit,
    who: Standing,
}

/// Largest holder of a pool, and its holdings.
struct Standing {
    holds: usize,
    held: usize,
    most: usize,
    /// By number, with the address.
    largest: Option<(u32, IpAddr, usize)>,
}

/// Entries that end to make room.
#[derive(Default)]
struct Ended {
    grips: Vec<Arc<Grip>>,
    taken: Vec<Taken>,
}

impl Passengers {
    /// A table with these bounds, in the order of [`Kind`]. Refusals are counted by `counters`, and name
    /// passengers as `identity` does.
    pub fn new(
        limits: [Limit; Kind::COUNT],
        identity: Arc<dyn Identity>,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self { table: Mutex::new(Table::new()), limits, identity, counters })
    }

    /// Admits one more flow of `newcomer`, unless a limit is reached at which nobody can make room.
    pub fn admit(self: &Arc<Self>, newcomer: Newcomer, kind: Kind) -> Option<Ticket> {
        let entered = self.enter(newcomer, kind, true);
        entered.map_err(|taken| self.report_refused(&newcomer, taken)).ok()
    }

    /// Flows of `kind` open now.
    pub fn open(&self, kind: Kind) -> usize {
        self.lock().pools[kind as usize].count()
    }

    /// The addresses of the passengers that have these numbers now.
    pub fn addresses(&self, numbers: &HashSet<u32>) -> Vec<(u32, IpAddr)> {
        let table = self.lock();
        let seat = |number: &u32| table.seats.get(number).map(|seat| (*number, seat.client));
        numbers.iter().filter(|number| **number != EVERYONE_ELSE).filter_map(seat).collect()
    }

    fn enter(
        self: &Arc<Self>,
        newcomer: Newcomer,
        kind: Kind,
        own_may_end: bool,
    ) -> Result<Ticket, Taken> {
        let mut ended = Ended::default();
        let limit = self.limits[kind as usize];
        let entered = self.lock().admit(&newcomer, (kind, limit), own_may_end, &mut ended);
        self.settle(&newcomer, ended);
        let grip = entered?;
        let (client, number) = (newcomer.client, grip.number());
        Ok(Ticket { passengers: self.clone(), grip, kind, newcomer, client, number })
    }

    /// Ends what has to end, and reports it.
    fn settle(&self, newcomer: &Newcomer, ended: Ended) {
        for grip in ended.grips {
            grip.over().cancel();
        }
        for Taken { limit, who } in ended.taken {
            self.counters.refusals.evicted(limit, || self.holding(newcomer, &who));
        }
    }

    fn report_refused(&self, newcomer: &Newcomer, taken: Taken) {
        let Taken { limit, who } = taken;
        self.counters.refusals.refused(limit, || self.holding(newcomer, &who));
    }

    fn holding(&self, newcomer: &Newcomer, who: &Standing) -> Holding {
        let label = |number, client| match number {
            EVERYONE_ELSE => "everyone without a neighbour entry".to_owned(),
            _ => self.identity.label(client).to_string(),
        };
        Holding {
            newcomer: self.identity.label(newcomer.client).to_string(),
            holds: who.holds,
            held: who.held,
            most: who.most,
            largest: who.largest.map(|(number, client, held)| (label(number, client), held)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn new() -> Self {
        let nobody = Seat::new(None, IpAddr::from([0; 4]));
        Self {
            began: Instant::now(),
            numbers: HashMap::new(),
            seats: HashMap::from([(EVERYONE_ELSE, nobody)]),
            idle: BTreeMap::new(),
            pools: Default::default(),
            clock: 0,
            last_id: 0,
        }
    }

    fn admit(
        &mut self,
        newcomer: &Newcomer,
        (kind, limit): (Kind, Limit),
        own_may_end: bool,
        ended: &mut Ended,
    ) -> Result<Arc<Grip>, Taken> {
        let number = self.number_of(newcomer, ended);
        // Before anything ends for it.
        if !newcomer.is_local && !self.may_open(number, kind, limit) {
            let most = limit.each_per_second as usize;
            return Err(Taken {
                limit: opens(kind),
                who: self.standing(kind as usize, number, most),
            });
        }
        let part = |of: usize| (of / PART_OF_EVERYONE_ELSE).max(1);
        let each =
            if number == EVERYONE_ELSE { part(limit.all).min(limit.each) } else { limit.each };
        let most = Most { all: limit.all, each, own_may_end };
        self.make_room(kind as usize, number, most, ended)?;
        if kind == Kind::Datagrams {
            let all = (limit.all / PART_UNANSWERED).max(1);
            let most = Most { all, each: each.min(all), own_may_end: true };
            self.make_room(UNANSWERED, number, most, ended)?;
        }
        self.last_id += 1;
        let grip = Grip::new(self.last_id, number, self.began);
        self.pools[kind as usize].enter(&grip);
        if kind == Kind::Datagrams {
            self.pools[UNANSWERED].enter(&grip);
        }
        self.hold(number);
        Ok(grip)
    }

    /// Ends the idlest entry of whoever pays for the next one of `number` in `pool`.
    fn make_room(
        &mut self,
        pool: usize,
        number: u32,
        most: Most,
        ended: &mut Ended,
    ) -> Result<(), Taken> {
        match self.pools[pool].pays(number, most) {
            Ok(None) => Ok(()),
            Ok(Some(payer)) => {
                let own = self.pools[pool].held(number) >= most.each;
                let who = self.standing(pool, number, if own { most.each } else { most.all });
                ended.taken.push(Taken { limit: limit_of(pool), who });
                if let Some(grip) = self.pools[pool].idlest(payer) {
                    self.remove(&grip);
                    ended.grips.push(grip);
                }
                Ok(())
            }
            Err(Full { most }) => {
                Err(Taken { limit: limit_of(pool), who: self.standing(pool, number, most) })
            }
        }
    }

    fn standing(&self, pool: usize, number: u32, most: usize) -> Standing {
        let pool = &self.pools[pool];
        let address = |number| self.seats.get(&number).map(|seat| seat.client);
        let largest =
            pool.largest().and_then(|(number, held)| Some((number, address(number)?, held)));
        Standing { holds: pool.held(number), held: pool.count(), most, largest }
    }

    /// The newcomer's number: its own, the next one, that of the idlest passenger, or everybody's.
    fn number_of(&mut self, newcomer: &Newcomer, ended: &mut Ended) -> u32 {
        let Some(whose) = newcomer.whose else { return EVERYONE_ELSE };
        self.clock += 1;
        let number = match self.numbers.get(&whose) {
            Some(number) => *number,
            None => {
                let free = self.free_number();
                let Some(number) = free.or_else(|| self.push_out(whose, ended)) else {
                    return EVERYONE_ELSE;
                };
                self.numbers.insert(whose, number);
                self.seats.insert(number, Seat::new(Some(whose), newcomer.client));
                number
            }
        };
        if let Some(seat) = self.seats.get_mut(&number) {
            if seat.tickets == 0 {
                self.idle.remove(&seat.seen);
                self.idle.insert(self.clock, whose);
            }
            (seat.seen, seat.client) = (self.clock, newcomer.client);
        }
        number
    }

    /// If a device comes, the number of the passenger known by address alone that has opened nothing for
    /// longest, whose flows end. Addresses can be made up behind a router; devices need an entry of the
    /// kernel's table each.
    fn push_out(&mut self, newcomer: Whose, ended: &mut Ended) -> Option<u32> {
        if !matches!(newcomer, Whose::Device(_)) {
            return None;
        }
        let is_device = |seat: &Seat| matches!(seat.whose, None | Some(Whose::Device(_)));
        let others = self.seats.iter().filter(|(_, seat)| !is_device(seat));
        let number = others.min_by_key(|(_, seat)| seat.seen).map(|(number, _)| *number)?;
        let (held, most) = (self.numbers.len(), MAX_PASSENGERS);
        let who = Standing { holds: 0, held, most, largest: None };
        ended.taken.push(Taken { limit: refusals::Limit::Passengers, who });
        let kinds = self.pools[..Kind::COUNT].iter();
        let its: Vec<_> = kinds.flat_map(|pool| pool.of(number)).cloned().collect();
        for grip in its {
            self.remove(&grip);
            ended.grips.push(grip);
        }
        self.free_number()
    }

    /// The next number, or that of the passenger without flows seen longest ago.
    fn free_number(&mut self) -> Option<u32> {
        if self.numbers.len() < MAX_PASSENGERS {
            // Fits: at most MAX_PASSENGERS, and numbers are taken in turn.
            return Some(self.numbers.len() as u32 + 1);
        }
        let (_, whose) = self.idle.pop_first()?;
        self.numbers.remove(&whose)
    }

    fn may_open(&mut self, number: u32, kind: Kind, limit: Limit) -> bool {
        let Some(seat) = self.seats.get_mut(&number) else { return false };
        let bucket = || Bucket::new(f64::from(limit.each_per_second), limit.burst_seconds);
        seat.opening[kind as usize].get_or_insert_with(bucket).take()
    }

    fn hold(&mut self, number: u32) {
        if let Some(seat) = self.seats.get_mut(&number) {
            if seat.tickets == 0 {
                self.idle.remove(&seat.seen);
            }
            seat.tickets += 1;
        }
    }

    /// Returns `true` if the entry still has its place.
    fn is_open(&self, grip: &Grip) -> bool {
        self.pools[..Kind::COUNT].iter().any(|pool| pool.contains(grip))
    }

    /// Takes the entry out of all tables, if it is in them.
    fn remove(&mut self, grip: &Grip) {
        if !self.is_open(grip) {
            return;
        }
        for pool in &mut self.pools {
            pool.leave(grip);
        }
        if let Some(seat) = self.seats.get_mut(&grip.number()) {
            seat.tickets -= 1;
            if let (0, Some(whose)) = (seat.tickets, seat.whose) {
                self.idle.insert(seat.seen, whose);
            }
        }
    }
}

impl Seat {
    fn new(whose: Option<Whose>, client: IpAddr) -> Self {
        Self { whose, client, seen: 0, tickets: 0, opening: Default::default() }
    }
}

fn limit_of(pool: usize) -> refusals::Limit {
    match pool {
        0 => refusals::Limit::TcpFlows,
        SITES => refusals::Limit::SiteConnections,
        2 => refusals::Limit::IpFlows,
        _ => refusals::Limit::UdpFlows,
    }
}

fn opens(kind: Kind) -> refusals::Limit {
    match kind {
        Kind::Streams => refusals::Limit::TcpOpens,
        Kind::Datagrams => refusals::Limit::UdpOpens,
        Kind::Ip => refusals::Limit::IpOpens,
    }
}

impl Ticket {
    /// Cancelled when the flow has to make room for another.
    pub fn over(&self) -> CancellationToken {
        self.grip.over().clone()
    }

    /// The entry on which movement is noted.
    pub fn activity(&self) -> Arc<Grip> {
        self.grip.clone()
    }

    /// The destination has answered: the flow is no longer among those that nothing has answered.
    pub fn answered(&self) {
        self.passengers.lock().pools[UNANSWERED].leave(&self.grip);
    }

    /// The connection is to one of the operator's sites. Beyond [`MAX_SITE_CONNECTIONS`] of its passenger
    /// the idlest of these ends.
    pub fn at_site(&self) {
        let mut ended = Ended::default();
        let most = Most { all: usize::MAX, each: MAX_SITE_CONNECTIONS, own_may_end: true };
        let mut table = self.passengers.lock();
        if table.is_open(&self.grip) {
            // Nobody is refused: own entries may end.
            let _ = table.make_room(SITES, self.number, most, &mut ended);
            table.pools[SITES].enter(&self.grip);
        }
        drop(table);
        self.passengers.settle(&self.newcomer, ended);
    }

    /// A further flow of the same kind for the same passenger, for whose sake none of its own ends.
    pub fn another(&self) -> Option<Ticket> {
        self.passengers.enter(self.newcomer, self.kind, false).ok()
    }

    /// Reports that the passenger went without a further flow.
    pub fn refuse_another(&self) {
        let (kind, most) = (self.kind as usize, self.passengers.limits[self.kind as usize].each);
        let who = self.passengers.lock().standing(kind, self.number, most);
        self.passengers.report_refused(&self.newcomer, Taken { limit: limit_of(kind), who });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.passengers.lock().remove(&self.grip);
    }
}
