//! Passengers: a stable small number for each device, and limits on its flows.
//!
//! The tables are TCP connections, UDP flows, flows of other protocols, and the unanswered flows
//! among the latter two. A full table evicts the idlest entry of the largest holder to admit a
//! newcomer. A passenger at its own limit loses its own idlest entry. [`PoolLimits::payer`] implements the rule.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use bentpipe_dns::Asker;
use bentpipe_flow::passenger;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::identity::{Identity, Newcomer, Whose};
use bentpipe_metering::counters::Counters;
use bentpipe_metering::refusals::{self, Holding};
use bentpipe_metering::usage::OTHERS;
use bentpipe_relay::bucket::RateLimit;
use bentpipe_relay::flows::{Full, Grip, Pool, PoolLimits};

pub use bentpipe_flow::passenger::{EVERYONE_ELSE, GATEWAY};
pub use bentpipe_relay::flows::Kind;

/// Maximum number of passengers tracked.
const MAX_PASSENGERS: usize = passenger::MAX_PASSENGERS as usize;

/// Divisor of a table's limit for [`EVERYONE_ELSE`]: 256 of 4,096 flows.
const PART_OF_EVERYONE_ELSE: usize = 16;

/// Divisor of a datagram table's limit for unanswered flows: 1,024 of UDP's 4,096, and 256 of the
/// 1,024 of other protocols.
const PART_UNANSWERED: usize = 4;

/// Maximum number of one passenger's concurrent connections to the operator's sites. Each has up to
/// 32 streams with 32 KiB buffered: 16 MiB per passenger.
pub const MAX_SITE_CONNECTIONS: usize = 16;

/// All recently seen passengers.
pub struct Passengers {
    table: Mutex<Table>,
    limits: [Limit; Kind::COUNT],
    identity: Arc<dyn Identity>,
    counters: Arc<Counters>,
}

/// Limit on flows of one [`Kind`].
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Limit for all passengers together.
    pub all: usize,
    /// Limit for one passenger.
    pub each: usize,
    /// New flows of one passenger per second, on average.
    pub each_per_second: u32,
    /// Burst of one passenger, in seconds of that average.
    pub burst_seconds: u32,
}

struct Table {
    began: Instant,
    numbers: HashMap<Whose, u32>,
    seats: HashMap<u32, Seat>,
    /// Passengers without flows, by the time they were last seen.
    idle: BTreeMap<u64, Whose>,
    pools: [Pool; POOLS],
    clock: u64,
    last_id: u64,
}

/// Indexes of pools: those of the kinds come first, in order, then these.
const UNANSWERED_UDP: usize = Kind::COUNT;
const UNANSWERED_IP: usize = Kind::COUNT + 1;
const SITES: usize = Kind::COUNT + 2;
const POOLS: usize = Kind::COUNT + 3;

/// A passenger.
struct Seat {
    whose: Option<Whose>,
    /// Address that it last used.
    client: IpAddr,
    seen: u64,
    /// Number of its permits.
    permits: usize,
    /// Its opening rates; each is created with its first flow.
    opening: [Option<RateLimit>; Kind::COUNT],
}

/// Permit for one flow. It is returned when dropped, and revoked when the flow is evicted.
pub struct FlowPermit {
    passengers: Arc<Passengers>,
    grip: Arc<Grip>,
    kind: Kind,
    newcomer: Newcomer,
    /// Address of the client.
    pub client: IpAddr,
    /// Number of the passenger.
    pub number: u32,
}

/// A refusal or eviction by a limit.
struct Taken {
    limit: refusals::Limit,
    who: Standing,
}

/// Largest holder of a pool, and numbers of entries.
struct Standing {
    holds: usize,
    held: usize,
    most: usize,
    /// Number, address and entries of the largest holder.
    largest: Option<(u32, IpAddr, usize)>,
}

/// Evicted entries.
#[derive(Default)]
struct Ended {
    grips: Vec<Arc<Grip>>,
    taken: Vec<Taken>,
}

impl Passengers {
    /// Creates tables with these limits, in the order of [`Kind`]. `counters` counts refusals, and
    /// `identity` names passengers.
    pub fn new(
        limits: [Limit; Kind::COUNT],
        identity: Arc<dyn Identity>,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self { table: Mutex::new(Table::new()), limits, identity, counters })
    }

    /// Admits one more flow of `newcomer`, unless a limit is reached and no entry can be evicted.
    pub fn admit(self: &Arc<Self>, newcomer: Newcomer, kind: Kind) -> Option<FlowPermit> {
        let entered = self.enter(newcomer, kind, true);
        entered.map_err(|taken| self.report_refused(&newcomer, taken)).ok()
    }

    /// Number of open flows of `kind`.
    pub fn open(&self, kind: Kind) -> usize {
        self.lock().pools[kind as usize].count().total()
    }

    /// Returns the current addresses of the passengers with these numbers.
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
    ) -> Result<FlowPermit, Taken> {
        let mut ended = Ended::default();
        let limit = self.limits[kind as usize];
        let entered = self.lock().admit(&newcomer, (kind, limit), own_may_end, &mut ended);
        self.settle(&newcomer, ended);
        let grip = entered?;
        let (client, number) = (newcomer.client, grip.number());
        Ok(FlowPermit { passengers: self.clone(), grip, kind, newcomer, client, number })
    }

    /// Ends evicted flows, and reports the evictions.
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

    /// Reports that a client was not accepted because the process has no descriptor left of `most`.
    /// The client is unknown.
    pub fn report_lack_of_descriptors(&self, most: usize) {
        self.counters.refusals.refused(refusals::Limit::Descriptors, || {
            let who = self.lock().standing(Kind::Streams as usize, EVERYONE_ELSE, most);
            Holding { holds: 0, ..self.holding_of("a client not yet accepted".to_owned(), &who) }
        });
    }

    fn holding(&self, newcomer: &Newcomer, who: &Standing) -> Holding {
        self.holding_of(self.identity.label(newcomer.client).to_string(), who)
    }

    fn holding_of(&self, newcomer: String, who: &Standing) -> Holding {
        let label = |number, client| match number {
            EVERYONE_ELSE => "everyone without a neighbour entry".to_owned(),
            _ => self.identity.label(client).to_string(),
        };
        let largest = who.largest.map(|(number, client, held)| (label(number, client), held));
        let Standing { holds, held, most, .. } = *who;
        Holding { newcomer, holds, held, most, largest }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
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
        // Checked before anything is evicted for the newcomer.
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
        let most = PoolLimits { all: limit.all, each, own_may_end };
        let unanswered = unanswered(kind);
        let pools = [
            Some((kind as usize, most)),
            unanswered.map(|pool| {
                let all = (limit.all / PART_UNANSWERED).max(1);
                (pool, PoolLimits { all, each: each.min(all), own_may_end: true })
            }),
        ];
        let pools = pools.into_iter().flatten();
        // No entry is evicted for a newcomer that another table refuses.
        for (pool, most) in pools.clone() {
            most.payer(self.pools[pool].count(), number)
                .map_err(|full| self.full(pool, number, full))?;
        }
        for (pool, most) in pools {
            self.make_room(pool, number, most, ended)?;
        }
        self.last_id += 1;
        let grip = Grip::new(self.last_id, number, self.began);
        for pool in [Some(kind as usize), unanswered].into_iter().flatten() {
            self.pools[pool].enter(&grip);
        }
        self.hold(number);
        Ok(grip)
    }

    /// Evicts an entry for the next one of `number` in `pool` if necessary.
    fn make_room(
        &mut self,
        pool: usize,
        number: u32,
        most: PoolLimits,
        ended: &mut Ended,
    ) -> Result<(), Taken> {
        match most.payer(self.pools[pool].count(), number) {
            Ok(None) => Ok(()),
            Ok(Some(payer)) => {
                let own = self.pools[pool].count().of(&number) >= most.each;
                let who = self.standing(pool, number, if own { most.each } else { most.all });
                ended.taken.push(Taken { limit: limit_of(pool), who });
                if let Some(grip) = self.pools[pool].idlest(payer) {
                    self.remove(&grip);
                    ended.grips.push(grip);
                }
                Ok(())
            }
            Err(full) => Err(self.full(pool, number, full)),
        }
    }

    fn full(&self, pool: usize, number: u32, Full { most }: Full) -> Taken {
        Taken { limit: limit_of(pool), who: self.standing(pool, number, most) }
    }

    fn standing(&self, pool: usize, number: u32, most: usize) -> Standing {
        let entries = self.pools[pool].count();
        let address = |number| self.seats.get(&number).map(|seat| seat.client);
        let largest =
            entries.largest().and_then(|(number, held)| Some((number, address(number)?, held)));
        Standing { holds: entries.of(&number), held: entries.total(), most, largest }
    }

    /// Returns the newcomer's number: its own, the next free one, that of the idlest passenger, or
    /// the shared one.
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
            if seat.permits == 0 {
                self.idle.remove(&seat.seen);
                self.idle.insert(self.clock, whose);
            }
            (seat.seen, seat.client) = (self.clock, newcomer.client);
        }
        number
    }

    /// Makes room for a new device. Returns the number of the passenger without a known device that
    /// has opened nothing for longest, whose flows end. Addresses behind a router can be invented,
    /// while each device needs an entry in the kernel's table.
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

    /// Returns the next number, or that of the flowless passenger seen longest ago.
    fn free_number(&mut self) -> Option<u32> {
        if self.numbers.len() < MAX_PASSENGERS {
            // Cannot truncate: the numbers are consecutive up to MAX_PASSENGERS.
            return Some(self.numbers.len() as u32 + 1);
        }
        let (_, whose) = self.idle.pop_first()?;
        self.numbers.remove(&whose)
    }

    fn may_open(&mut self, number: u32, kind: Kind, limit: Limit) -> bool {
        let Some(seat) = self.seats.get_mut(&number) else { return false };
        let bucket = || RateLimit::new(limit.each_per_second, limit.burst_seconds);
        seat.opening[kind as usize].get_or_insert_with(bucket).take()
    }

    fn hold(&mut self, number: u32) {
        if let Some(seat) = self.seats.get_mut(&number) {
            if seat.permits == 0 {
                self.idle.remove(&seat.seen);
            }
            seat.permits += 1;
        }
    }

    /// Returns `true` if the entry is still in its table.
    fn is_open(&self, grip: &Grip) -> bool {
        self.pools[..Kind::COUNT].iter().any(|pool| pool.contains(grip))
    }

    /// Removes the entry from all tables that contain it.
    fn remove(&mut self, grip: &Grip) {
        if !self.is_open(grip) {
            return;
        }
        for pool in &mut self.pools {
            pool.leave(grip);
        }
        if let Some(seat) = self.seats.get_mut(&grip.number()) {
            seat.permits -= 1;
            if let (0, Some(whose)) = (seat.permits, seat.whose) {
                self.idle.insert(seat.seen, whose);
            }
        }
    }
}

impl Seat {
    fn new(whose: Option<Whose>, client: IpAddr) -> Self {
        Self { whose, client, seen: 0, permits: 0, opening: Default::default() }
    }
}

/// Index of the pool of unanswered flows of `kind`.
fn unanswered(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Streams => None,
        Kind::Datagrams => Some(UNANSWERED_UDP),
        Kind::Ip => Some(UNANSWERED_IP),
    }
}

fn limit_of(pool: usize) -> refusals::Limit {
    match pool {
        0 => refusals::Limit::TcpFlows,
        SITES => refusals::Limit::SiteConnections,
        2 | UNANSWERED_IP => refusals::Limit::IpFlows,
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

impl FlowPermit {
    /// Token that is cancelled when the flow is evicted.
    pub fn over(&self) -> CancellationToken {
        self.grip.over().clone()
    }

    /// The passenger as the resolver identifies it.
    pub fn asker(&self) -> Asker {
        self.newcomer.asker()
    }

    /// Label of the passenger, for example in usage records. Sources that may be invented share it.
    pub fn label(&self) -> Arc<str> {
        let Some(whose) = self.newcomer.whose else { return OTHERS.into() };
        let name = self.passengers.identity.name(self.client);
        name.unwrap_or_else(|| whose.to_string().into())
    }

    /// Table entry that records the flow's activity.
    pub fn activity(&self) -> Arc<Grip> {
        self.grip.clone()
    }

    /// Records an answer of the destination: the flow no longer counts as unanswered.
    pub fn answered(&self) {
        if let Some(pool) = unanswered(self.kind) {
            self.passengers.lock().pools[pool].leave(&self.grip);
        }
    }

    /// Records that the connection is to one of the operator's sites. Beyond
    /// [`MAX_SITE_CONNECTIONS`] of its passenger, the idlest of these is evicted.
    pub fn at_site(&self) {
        let mut ended = Ended::default();
        let most = PoolLimits { all: usize::MAX, each: MAX_SITE_CONNECTIONS, own_may_end: true };
        let mut table = self.passengers.lock();
        if table.is_open(&self.grip) {
            let _ = table.make_room(SITES, self.number, most, &mut ended);
            table.pools[SITES].enter(&self.grip);
        }
        drop(table);
        self.passengers.settle(&self.newcomer, ended);
    }

    /// Admits another flow of this kind for this passenger, without evicting one of its own.
    pub fn another(&self) -> Option<FlowPermit> {
        self.passengers.enter(self.newcomer, self.kind, false).ok()
    }

    /// Reports that the passenger did not get another flow.
    pub fn refuse_another(&self) {
        let (kind, most) = (self.kind as usize, self.passengers.limits[self.kind as usize].each);
        let who = self.passengers.lock().standing(kind, self.number, most);
        self.passengers.report_refused(&self.newcomer, Taken { limit: limit_of(kind), who });
    }
}

impl Drop for FlowPermit {
    fn drop(&mut self) {
        self.passengers.lock().remove(&self.grip);
    }
}
