//! The pending queries that have streams, and those that give way if there are too many.

use std::time::Duration;

use bentpipe_flow::quota::Holdings;

use super::{PendingQueries, PendingQuery, STREAM_WAIT};

impl<C> PendingQueries<C> {
    /// Marks a query as repeated over a stream. Returns `false` if it already is.
    pub fn over_stream(&mut self, id: u16, now: Duration) -> bool {
        let timeout = self.round_trip.timeout();
        let Some(query) = self.queries.get_mut(&id).filter(|query| !query.over_stream) else {
            return false;
        };
        query.over_stream = true;
        self.timers.remove(&(query.due, id));
        query.due = (query.began + super::GIVE_UP).max(now + STREAM_WAIT);
        query.in_flight_until = now + timeout;
        self.timers.insert((query.due, id));
        true
    }

    /// Ends a query that has a stream, so that the query `id` can have one; or the query `id` itself
    /// if nobody gives way. Prefetches give way first, then the oldest query of the largest holder.
    pub fn evict_stream(&mut self, id: u16) -> Option<PendingQuery<C>> {
        let asker = self.get(id)?.asker;
        let streamed = || self.queries.iter().filter(|(_, query)| query.over_stream);
        let holders = Holdings::from_iter(streamed().filter_map(|(_, query)| query.asker));
        let oldest = |asker| {
            let its = streamed().filter(|(_, query)| query.asker == asker);
            its.map(|(id, query)| (query.began, *id)).min().map(|(_, id)| id)
        };
        let victim = asker.and_then(|asker| {
            let payer = || holders.payer(holders.of(&asker), 1, |_| true);
            oldest(None).or_else(|| oldest(Some(payer()?)))
        });
        self.end(victim.unwrap_or(id), None)
    }
}
