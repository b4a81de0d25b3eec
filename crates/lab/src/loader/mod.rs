//! The page-load client: loads a site over any version of HTTP as a browser's network stack would.
//! It records when each object was requested, waited for and received.
//!
//! It runs on one thread's runtime and neither parses nor renders. It requests an object as soon as
//! the object in which it is found is complete. It checks every byte of every object.

mod connect;
mod fetch;
mod har;
mod http1;
mod many;
mod plan;
mod pool;
mod protocol;
mod qlog;
mod tally;
mod tickets;
mod visit;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use plan::{DEFAULT_CONNECTIONS, Load, RATE_SLOT, STREAM_WINDOW_BYTES};
pub use protocol::{Protocol, UnknownProtocol};
pub use qlog::{QLOG_BYTES, Qlog};
pub use tickets::Tickets;
pub use visit::{Entry, Visit};

use connect::Dialer;
use fetch::Job;
use http1::Http1;
use many::Multiplexed;
use pool::Pool;
use tally::Tally;

/// Time after the load for a QUIC connection to send its close.
const FAREWELL: Duration = Duration::from_millis(5);

/// Loads a site. A failure of an object is recorded in its entry; a load never fails as a whole.
///
/// `tickets` hold the sessions that one visit leaves for the next, and the trusted certificates.
/// Only [`Protocol::Http1TlsResumed`] and [`Protocol::Http3ZeroRtt`] use the sessions. Without
/// sessions they load as on a first visit. [`warm`] provides sessions.
pub async fn load(load: &Load<'_>, tickets: &mut Tickets) -> Visit {
    let began = Instant::now();
    let tally = Arc::new(Tally::new(began, load));
    let deadline = tokio::time::sleep(load.deadline);
    let finished = tokio::select! {
        () = run(load, tickets, &tally) => true,
        () = deadline => false,
    };
    let visit = tally.visit(load, began.elapsed(), finished);
    if load.protocol.is_quic() {
        // Without a close, servers send to a connection until its idle timeout.
        tokio::time::sleep(FAREWELL).await;
    }
    visit
}

/// Contacts all domains of `load`'s site, so that a later load resumes their sessions. It opens as
/// many connections to each domain as the load may open, because a ticket of TLS 1.3 is used once.
/// Requests one resource of each domain on each connection, with the paths of visit `visit`.
/// Returns the first failure.
pub async fn warm(load: &Load<'_>, tickets: &mut Tickets, visit: u64) -> Result<(), String> {
    let site = load.site.visited(visit);
    let load = Load { site: &site, connect_retry: None, rates: false, qlog: None, ..*load };
    let tally = Arc::new(Tally::new(Instant::now(), &load));
    let dialer = Arc::new(Dialer::new(&load, tickets, tally.clone()).map_err(|it| it.to_string())?);
    let mut fetches = JoinSet::new();
    for domain in 0..site.domains.len() {
        let Some(place) = site.resources.iter().position(|it| it.domain == domain) else {
            continue;
        };
        for _ in 0..if load.protocol.is_multiplexed() { 1 } else { load.connections } {
            let dialer = dialer.clone();
            fetches.spawn(async move {
                let mut connection = dialer.dial(domain, &Default::default()).await?;
                connection.fetch(&dialer, Job::new(place)).await
            });
        }
    }
    let all = async {
        while let Some(done) = fetches.join_next().await {
            done.map_err(|error| error.to_string())??;
        }
        Ok(())
    };
    tokio::time::timeout(load.deadline, all)
        .await
        .unwrap_or_else(|_| Err("it took too long".into()))
}

/// Requests the document and everything that is found, until all of it is complete or has failed.
async fn run(load: &Load<'_>, tickets: &mut Tickets, tally: &Arc<Tally>) {
    tally.found(0);
    let dialer = match Dialer::new(load, tickets, tally.clone()) {
        Ok(dialer) => Arc::new(dialer),
        Err(error) => return tally.failed(0, error.to_string()),
    };
    // At most as many messages as the site has resources, here and in each pool.
    let (done, mut finished) = mpsc::unbounded_channel();
    let mut pools = HashMap::new();
    // Dropped when the load is over, with everything in progress.
    let mut working = JoinSet::new();
    let mut ask = |place: usize| {
        let domain = match load.protocol {
            Protocol::Http2Proxied => 0,
            _ => load.site.resources[place].domain,
        };
        let jobs = pools.entry(domain).or_insert_with(|| {
            let (jobs, wanted) = mpsc::unbounded_channel();
            let pool = Pool::new(dialer.clone(), domain, done.clone());
            if load.protocol.is_multiplexed() {
                working.spawn(pool::serve(Multiplexed::new(pool), wanted));
            } else {
                working.spawn(pool::serve(Http1::new(pool), wanted));
            }
            jobs
        });
        // The receiving pool outlives this loop.
        let _ = jobs.send(Job::new(place));
    };
    ask(0);
    let mut under_way = 1;
    while under_way > 0 {
        let Some(place) = finished.recv().await else { return };
        under_way -= 1;
        if !tally.is_intact(place) {
            continue;
        }
        for found in load.site.found_in(place) {
            tally.found(found);
            ask(found);
            under_way += 1;
        }
    }
}

#[cfg(test)]
mod tests;
