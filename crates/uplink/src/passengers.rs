//! Passengers: a stable small number for each device, and limits on its flows.
//!
//! The tables are TCP connections, UDP flows, flows of other protocols, and the unanswered flows
//! among the latter two. A full table evicts the idlest entry of the largest holder to admit a
//! newcomer. A passenger at its own limit loses its own idlest entry. [`PoolLimits::payer`] implements
//! the rule.

mod table;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use bentpipe_dns::Asker;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::identity::{Identity, Newcomer};
use bentpipe_metering::counters::Counters;
use bentpipe_metering::refusals::{self, Holding};
use bentpipe_metering::usage::OTHERS;
use bentpipe_relay::flows::{Grip, PoolLimits};
use table::{Ended, SITES, Standing, Table, Taken, limit_of, unanswered};

pub use bentpipe_flow::passenger::{EVERYONE_ELSE, GATEWAY};
pub use bentpipe_relay::flows::Kind;
pub use table::Limit;

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

    /// Ends evicted flows, and reports the evictions and the lack of a number.
    fn settle(&self, newcomer: &Newcomer, ended: Ended) {
        if let Some(taken) = ended.numberless {
            self.report_refused(newcomer, taken);
        }
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
