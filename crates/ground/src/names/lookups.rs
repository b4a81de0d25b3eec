//! Addresses of names that aircraft dial, under the limits of their DNS queries.
//!
//! Passengers with fake-IP addresses dial by name, so these lookups are as many as queries. Answers
//! are cached, and equal lookups wait for the first.

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_dns::{Answer, Key, Kind, Query};
use bentpipe_flow::ResetCode;
use futures_util::future::BoxFuture;

use super::Names;
use super::dialled::Found;
use crate::eyeballs::{Family, Resolve};
use bentpipe_metering::refusals::Limit;

/// Maximum number of addresses kept of one answer; a dial tries a handful.
const MAX_ADDRESSES: usize = 32;

/// Lifetime of a failure, within the bounds of RFC 9520.
const FAILURE_LIFETIME: Duration = Duration::from_secs(2);

/// Lookups of one aircraft.
pub struct Lookups<'a> {
    names: &'a Names,
    aircraft: &'a [u8; 32],
}

impl Names {
    /// Lookups of names that `aircraft` dials.
    pub fn lookups<'a>(&'a self, aircraft: &'a [u8; 32]) -> Lookups<'a> {
        Lookups { names: self, aircraft }
    }
}

impl Resolve for Lookups<'_> {
    fn resolve(&self, name: String, family: Family) -> BoxFuture<'_, Found> {
        Box::pin(async move {
            if let Some(ips) = self.names.known.of_host(&name) {
                let exists = !ips.is_empty();
                return exists.then(|| of_family(ips, family)).ok_or(ResetCode::NameNotFound);
            }
            let is_v6 = family == Family::V6;
            let key = Key::of_host(&name, is_v6).map_err(|_| ResetCode::NameNotFound)?;
            let cache = &self.names.dialled;
            if let Some(found) = cache.get(&key) {
                return found;
            }
            let _turn = cache.turn(&key).await;
            if let Some(found) = cache.get(&key) {
                return found;
            }
            let answer = self.ask(&key).await?;
            let (found, lifetime) = outcome(answer, family);
            cache.put(key, found.clone(), lifetime);
            found
        })
    }
}

impl Lookups<'_> {
    /// Asks the name servers, if the aircraft may.
    async fn ask(&self, key: &Key) -> Result<Option<Answer>, ResetCode> {
        let (names, aircraft) = (self.names, self.aircraft);
        let refusals = &names.counters.refusals;
        if !names.rates.take(aircraft) {
            refusals.refused(Limit::DnsQuestions, || names.too_many(aircraft));
            return Err(ResetCode::Limit);
        }
        let Some(mut slot) = names.quota.take(aircraft) else {
            refusals.refused(Limit::DnsQuestions, || names.quota.holding(aircraft));
            return Err(ResetCode::Limit);
        };
        let query = Query::parse(&key.question(0)).map_err(|_| ResetCode::NameNotFound)?;
        tokio::select! {
            answer = names.upstream.ask(&query) => Ok(answer),
            () = slot.taken() => {
                refusals.evicted(Limit::DnsQuestions, || names.quota.holding(aircraft));
                Err(ResetCode::Limit)
            }
        }
    }
}

fn of_family(mut ips: Vec<IpAddr>, family: Family) -> Vec<IpAddr> {
    ips.retain(|ip| ip.is_ipv4() == (family == Family::V4));
    ips.truncate(MAX_ADDRESSES);
    ips
}

/// Result of an answer, and the time for which it is kept.
fn outcome(answer: Option<Answer>, family: Family) -> (Found, Duration) {
    match answer {
        // The name servers were silent, not the destination.
        None => (Err(ResetCode::NameNotFound), FAILURE_LIFETIME),
        Some(answer) => {
            let lifetime = Duration::from_secs(answer.lifetime_s.into());
            match answer.kind {
                Kind::Positive => (Ok(of_family(answer.addresses(), family)), lifetime),
                Kind::Negative => (Err(ResetCode::NameNotFound), lifetime),
                Kind::Failure => (Err(ResetCode::NameNotFound), FAILURE_LIFETIME),
            }
        }
    }
}
