//! The light loader: loads a site over any version of HTTP as a browser's network stack would, and
//! says when each object was asked for, waited for and received.
//!
//! It runs on one thread's runtime, parses nothing and paints nothing: an object is asked for the
//! moment that what it is found in is complete. Every byte of every object is checked.

mod connect;
mod fetch;
mod har;
mod http1;
mod many;
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

pub use protocol::{Protocol, TlsVersion, UnknownProtocol, UnknownTls};
pub use qlog::{QLOG_BYTES, Qlog};
pub use tickets::Tickets;
pub use visit::{Entry, Visit};

use crate::site::{Ports, Site};
use crate::workload::origin::Congestion;
use connect::Dialer;
use fetch::Job;
use tally::Tally;

/// Connections to one domain over HTTP/1.1: what Chromium, Firefox and Safari open.
pub const DEFAULT_CONNECTIONS: usize = 6;

/// Requests at once on a connection of HTTP/2 or HTTP/3 unless told otherwise: what many servers
/// take, and what Rural-PAWS's server took.
pub const DEFAULT_MAX_STREAMS: u32 = 100;

/// Flow-control window of one stream of HTTP/2 or HTTP/3 at the client, as in Chromium. At 600 ms
/// of round trip that carries 80 Mbit/s.
pub const STREAM_WINDOW_BYTES: u32 = 6 << 20;

/// The same for all streams of a connection together, as Chromium does: 200 Mbit/s at 600 ms.
pub const QUIC_WINDOW_BYTES: u64 = 15 << 20;

/// Slot length of [`Visit::rates`].
pub const RATE_SLOT: Duration = Duration::from_millis(100);

/// Time for a connection of QUIC to send its close, after the load.
const FAREWELL: Duration = Duration::from_millis(5);

/// A page load.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Site to load.
    pub site: &'a Site,
    /// Over what.
    pub protocol: Protocol,
    /// Connections to each domain over HTTP/1.1; with [`Load::connect_retry`] also the most that are
    /// tried for one over HTTP/2.
    pub connections: usize,
    /// Requests at once on one connection of HTTP/2 or HTTP/3; [`DEFAULT_MAX_STREAMS`] unless said.
    pub max_streams: Option<u32>,
    /// The version of TLS over TCP. QUIC has 1.3.
    pub tls: TlsVersion,
    /// Another TCP connection is tried when one is not up in this time (Chrome's
    /// `kMaxConnectRetryIntervalMs`, Rural-PAWS section VIII): up means that TCP's handshake is over.
    pub connect_retry: Option<Duration>,
    /// Size to which the document's request header is filled up, as HTTP/1.1 writes it. The other
    /// requests have the same user agent, and so nearly the same size.
    pub header_bytes: Option<usize>,
    /// TCP Fast Open (RFC 7413): a request leaves with the SYN where the server was met before.
    pub fast_open: bool,
    /// Congestion control of QUIC.
    pub congestion: Congestion,
    /// Time at which the load is cut off.
    pub deadline: Duration,
    /// `true` if the bytes of each connection are counted in slots of [`RATE_SLOT`].
    pub rates: bool,
    /// Log of QUIC's connections, if any.
    pub qlog: Option<&'a Qlog>,
    /// Ports of the servers.
    pub ports: Ports,
}

impl<'a> Load<'a> {
    /// A load with six connections, TLS 1.3, CUBIC and the protocols' own ports.
    pub fn new(site: &'a Site, protocol: Protocol, deadline: Duration) -> Self {
        Self {
            site,
            protocol,
            connections: DEFAULT_CONNECTIONS,
            max_streams: None,
            tls: TlsVersion::Tls13,
            connect_retry: None,
            header_bytes: None,
            fast_open: false,
            congestion: Congestion::Cubic,
            deadline,
            rates: false,
            qlog: None,
            ports: Ports::default(),
        }
    }

    /// Scheme of the document's URL.
    pub fn scheme(&self) -> &'static str {
        if self.protocol.is_secure() { "https" } else { "http" }
    }
}

/// Loads a site. What goes wrong with an object stands in its entry: a load never fails as a whole.
///
/// `tickets` hold what a visit leaves for the next one, and whose certificates are trusted; only
/// [`Protocol::Http1TlsResumed`] and [`Protocol::Http3ZeroRtt`] use them, and without any they do as
/// on a first visit. [`warm`] gets some.
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
        // Servers send to a connection that nobody has closed until it is idle for long.
        tokio::time::sleep(FAREWELL).await;
    }
    visit
}

/// Meets all domains of `load`'s site, so that a load after this resumes its sessions: each on as many
/// connections as the load may open to it, for a ticket of TLS 1.3 is used once. Asks for one resource
/// of each domain on each connection, as visit `visit` sees it; gives the first thing that went wrong.
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

/// Asks for the document and for whatever is found, until all of it is here or has failed.
async fn run(load: &Load<'_>, tickets: &mut Tickets, tally: &Arc<Tally>) {
    tally.found(0);
    let dialer = match Dialer::new(load, tickets, tally.clone()) {
        Ok(dialer) => Arc::new(dialer),
        Err(error) => return tally.failed(0, error.to_string()),
    };
    // As many messages as the site has resources at most, here and in each pool.
    let (done, mut finished) = mpsc::unbounded_channel();
    let mut pools = HashMap::new();
    // Dropped with all that is under way when the load is over.
    let mut working = JoinSet::new();
    let mut ask = |place: usize| {
        let domain = match load.protocol {
            Protocol::Http2Proxied => 0,
            _ => load.site.resources[place].domain,
        };
        let pool = pools.entry(domain).or_insert_with(|| {
            let (jobs, wanted) = mpsc::unbounded_channel();
            let pool = Pool { dialer: dialer.clone(), domain, done: done.clone() };
            if load.protocol.is_multiplexed() {
                working.spawn(many::run(pool, wanted));
            } else {
                working.spawn(http1::run(pool, wanted));
            }
            jobs
        });
        // A pool outlives this loop.
        let _ = pool.send(Job::new(place));
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

/// State shared by the connections to one domain, or to the proxy.
struct Pool {
    dialer: Arc<Dialer>,
    domain: usize,
    /// Told of each resource that is here or has failed.
    done: mpsc::UnboundedSender<usize>,
}

#[cfg(test)]
mod tests;
