//! Table of passengers: their numbers, and the pools of their flows.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use bentpipe_flow::passenger::{self, EVERYONE_ELSE};
use bentpipe_metering::refusals;
use bentpipe_relay::bucket::RateLimit;
use bentpipe_relay::flows::{Full, Grip, Kind, Pool, PoolLimits};
use tokio::time::Instant;

use crate::identity::{Newcomer, Whose};

/// Maximum number of passengers tracked.
pub(super) const MAX_PASSENGERS: usize = passenger::MAX_PASSENGERS as usize;

/// Divisor of a table's limit for [`EVERYONE_ELSE`]: 256 of 4,096 flows.
const PART_OF_EVERYONE_ELSE: usize = 16;

/// Divisor of a datagram table's limit for unanswered flows: 1,024 of UDP's 4,096, and 256 of the
/// 1,024 of other protocols.
const PART_UNANSWERED: usize = 4;

/// Multiple of one passenger's opening rate for all unverified sources behind routers: 200 UDP flows
/// a second, of the aircraft's 500.
const RATES_BEHIND_ROUTERS: u32 = 4;

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

/// All passengers and the entries of their flows.
pub(super) struct Table {
    began: Instant,
    numbers: HashMap<Whose, u32>,
    pub(super) seats: HashMap<u32, Seat>,
    /// Passengers without flows, by the time they were last seen.
    pub(super) idle: BTreeMap<u64, Whose>,
    pub(super) pools: [Pool; POOLS],
    /// Opening rates that unverified sources behind routers share.
    behind_routers: [Option<RateLimit>; Kind::COUNT],
    clock: u64,
    last_id: u64,
}

/// Indexes of pools: those of the kinds come first, in order, then these.
pub(super) const UNANSWERED_UDP: usize = Kind::COUNT;
pub(super) const UNANSWERED_IP: usize = Kind::COUNT + 1;
pub(super) const SITES: usize = Kind::COUNT + 2;
const POOLS: usize = Kind::COUNT + 3;

/// A passenger.
pub(super) struct Seat {
    whose: Option<Whose>,
    /// Address that it last used.
    pub(super) client: IpAddr,
    seen: u64,
    /// Number of its permits.
    permits: usize,
    /// Its opening rates; each is created with its first flow.
    opening: [Option<RateLimit>; Kind::COUNT],
}

/// A refusal or eviction by a limit.
pub(super) struct Taken {
    pub(super) limit: refusals::Limit,
    pub(super) who: Standing,
}

/// Largest holder of a pool, and numbers of entries.
pub(super) struct Standing {
    pub(super) holds: usize,
    pub(super) held: usize,
    pub(super) most: usize,
    /// Number, address and entries of the largest holder.
    pub(super) largest: Option<(u32, IpAddr, usize)>,
}

/// Evicted entries.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) grips: Vec<Arc<Grip>>,
    pub(super) taken: Vec<Taken>,
    /// Set if the newcomer got no number of its own.
    pub(super) numberless: Option<Taken>,
}

impl Table {
    pub(super) fn new() -> Self {
        let nobody = Seat::new(None, IpAddr::from([0; 4]));
        Self {
            began: Instant::now(),
            numbers: HashMap::new(),
            seats: HashMap::from([(EVERYONE_ELSE, nobody)]),
            idle: BTreeMap::new(),
            pools: Default::default(),
            behind_routers: Default::default(),
            clock: 0,
            last_id: 0,
        }
    }

    pub(super) fn admit(
        &mut self,
        newcomer: &Newcomer,
        (kind, limit): (Kind, Limit),
        own_may_end: bool,
        ended: &mut Ended,
    ) -> Result<Arc<Grip>, Taken> {
        let number = self.number_of(newcomer, ended);
        // Checked before anything is evicted for the newcomer.
        if !newcomer.is_rate_exempt && !self.may_open(newcomer, number, kind, limit) {
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
            self.victim(pool, number, most).map_err(|full| self.full(pool, number, full))?;
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
    pub(super) fn make_room(
        &mut self,
        pool: usize,
        number: u32,
        most: PoolLimits,
        ended: &mut Ended,
    ) -> Result<(), Taken> {
        match self.victim(pool, number, most) {
            Ok(None) => Ok(()),
            Ok(Some(grip)) => {
                let own = self.pools[pool].count().of(&number) >= most.each;
                let who = self.standing(pool, number, if own { most.each } else { most.all });
                ended.taken.push(Taken { limit: limit_of(pool), who });
                self.remove(&grip);
                ended.grips.push(grip);
                Ok(())
            }
            Err(full) => Err(self.full(pool, number, full)),
        }
    }

    /// Returns the entry to evict before `number` gets another; `None` if there is room.
    ///
    /// If the table is full of passengers with one entry each, those known by their addresses alone
    /// give way: somebody behind a router can have or invent a thousand addresses.
    fn victim(
        &self,
        pool: usize,
        number: u32,
        most: PoolLimits,
    ) -> Result<Option<Arc<Grip>>, Full> {
        let entries = &self.pools[pool];
        match most.payer(entries.count(), number) {
            Ok(payer) => Ok(payer.and_then(|payer| entries.idlest(payer))),
            Err(full) if number == EVERYONE_ELSE || entries.count().of(&number) > 0 => Err(full),
            Err(full) => {
                entries.idlest_among(|number| self.is_address(number)).map(Some).ok_or(full)
            }
        }
    }

    /// Returns `true` if the passenger is known by its address alone.
    fn is_address(&self, number: u32) -> bool {
        let seat = self.seats.get(&number);
        seat.is_some_and(|seat| matches!(seat.whose, Some(Whose::Network(_))))
    }

    fn full(&self, pool: usize, number: u32, Full { most }: Full) -> Taken {
        Taken { limit: limit_of(pool), who: self.standing(pool, number, most) }
    }

    pub(super) fn standing(&self, pool: usize, number: u32, most: usize) -> Standing {
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
                    ended.numberless = Some(self.all_numbers_taken());
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
        let others = self.seats.iter().filter(|(number, _)| self.is_address(**number));
        let number = others.min_by_key(|(_, seat)| seat.seen).map(|(number, _)| *number)?;
        ended.taken.push(self.all_numbers_taken());
        let kinds = self.pools[..Kind::COUNT].iter();
        let its: Vec<_> = kinds.flat_map(|pool| pool.of(number)).cloned().collect();
        for grip in its {
            self.remove(&grip);
            ended.grips.push(grip);
        }
        self.free_number()
    }

    fn all_numbers_taken(&self) -> Taken {
        let (held, most) = (self.numbers.len(), MAX_PASSENGERS);
        let who = Standing { holds: 0, held, most, largest: None };
        Taken { limit: refusals::Limit::Passengers, who }
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

    fn may_open(&mut self, newcomer: &Newcomer, number: u32, kind: Kind, limit: Limit) -> bool {
        let Some(seat) = self.seats.get_mut(&number) else { return false };
        let Limit { each_per_second, burst_seconds, .. } = limit;
        let own = seat.opening[kind as usize]
            .get_or_insert_with(|| RateLimit::new(each_per_second, burst_seconds));
        let shared = self.behind_routers[kind as usize].get_or_insert_with(|| {
            RateLimit::new(each_per_second.saturating_mul(RATES_BEHIND_ROUTERS), burst_seconds)
        });
        // Its own rate is checked first, so that its refused flows do not use the shared one.
        own.take() && (!newcomer.is_behind_router || shared.take())
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
    pub(super) fn is_open(&self, grip: &Grip) -> bool {
        self.pools[..Kind::COUNT].iter().any(|pool| pool.contains(grip))
    }

    /// Removes the entry from all tables that contain it.
    pub(super) fn remove(&mut self, grip: &Grip) {
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
pub(super) fn unanswered(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Streams => None,
        Kind::Datagrams => Some(UNANSWERED_UDP),
        Kind::Ip => Some(UNANSWERED_IP),
    }
}

pub(super) fn limit_of(pool: usize) -> refusals::Limit {
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
