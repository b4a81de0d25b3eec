//! Runs the resolver's listeners, its journal and its flow to the ground gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_dns::Resolver as ResolverCore;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::journal_writer::JournalWriter;
use super::listener::Listeners;
use super::offer::Offer;
use super::resolver::{Clock, Resolver, secret};
use super::tls::Secure;
use super::upstream::Query;
use crate::error::StartError;
use bentpipe_config::AirDns;
use bentpipe_metering::counters::Counters;
use bentpipe_transport::Connector;
use bentpipe_uplink::Uplink;
use bentpipe_uplink::classes::Classes;

/// Interval of log lines with counts, if there are any.
const COUNTS_EVERY: Duration = Duration::from_secs(15 * 60);

/// Server of a [`Resolver`]; it must run once.
pub struct Serving {
    pub(super) listeners: Listeners,
    pub(super) secure: Option<Secure>,
    pub(super) asked: mpsc::Receiver<Query>,
    pub(super) journal: Option<JournalWriter>,
}

impl Serving {
    /// Binds the listeners of `config` and restores the state of the last run. Unknown names are
    /// queried over `connector`; `counters` counts refusals by limits.
    pub fn start(
        config: &AirDns,
        classes: Arc<Classes>,
        connector: Arc<dyn Connector>,
        counters: Arc<Counters>,
    ) -> Result<(Arc<Resolver>, Self), StartError> {
        let settings = config.settings.clone();
        // Room for every query, and for its repetition over a stream.
        let (outgoing, asked) = mpsc::channel(2 * settings.max_asks);
        let clock = Clock::start();
        let mut core = ResolverCore::new(settings, config.cache_file.is_some(), secret());
        // If the journal is lost, allocation at least starts at another address than the last run.
        let start = clock.now().as_secs() as u32;
        let start = start.wrapping_mul(0x9e37_79b1);
        // A checked configuration gives no error.
        core.set_pool(config.instant_names.as_ref().and_then(|names| names.pool(start).ok()));
        let journal = match &config.cache_file {
            Some(path) => Some(JournalWriter::restore(path, &mut core, clock.now())?),
            None => None,
        };
        core.begin(clock.now());
        let listeners = Listeners::bind(config.listen.iter().copied())?;
        let secure = config.encrypted.as_ref().map(Secure::bind).transpose()?;
        let plain = config.listen.iter().copied();
        let offer = secure
            .as_ref()
            .map(|secure| Offer::new(secure.certificates(), secure.addresses(), plain));
        let offered = offer.as_ref().zip(config.encrypted.as_ref());
        core.set_designated(offered.and_then(|(offer, config)| offer.designated(config)));
        let (core, changed) = (Mutex::new(core), Notify::new());
        let intercepts = config.intercept;
        let outage = Mutex::default();
        let resolver = Resolver {
            core,
            connector,
            outage,
            classes,
            clock,
            outgoing,
            changed,
            offer,
            counters,
            intercepts,
        };
        Ok((Arc::new(resolver), Self { listeners, secure, asked, journal }))
    }

    /// Listeners for clients.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Listeners for encrypted clients: over TLS, then over HTTPS.
    pub fn encrypted(&self) -> [Vec<SocketAddr>; 2] {
        self.secure.as_ref().map(Secure::addresses).unwrap_or_default()
    }

    /// Serves clients. Never returns.
    pub async fn run(&mut self, resolver: &Arc<Resolver>, uplink: &Arc<Uplink>) {
        let Self { listeners, secure, asked, journal } = self;
        let mut serving: Vec<BoxFuture<'_, ()>> =
            vec![Box::pin(resolver.carry(asked)), Box::pin(tell_counts(resolver))];
        serving.extend(listeners.serve(resolver, uplink));
        serving.extend(secure.iter().flat_map(|secure| secure.serve(resolver, uplink)));
        if let Some(journal) = journal {
            serving.push(Box::pin(journal.keep(resolver)));
        }
        join_all(serving).await;
    }

    /// Writes the remaining changes.
    pub async fn finish(&mut self, resolver: &Resolver) {
        if let Some(journal) = &mut self.journal {
            journal.finish(resolver).await;
        }
    }
}

/// Logs the counts periodically.
async fn tell_counts(resolver: &Resolver) {
    let mut told = None;
    loop {
        tokio::time::sleep(COUNTS_EVERY).await;
        let (counts, (answers, bytes)) = (resolver.counts(), resolver.lock().cached());
        if told.replace(counts) != Some(counts) {
            tracing::info!(?counts, answers, bytes, "DNS so far");
        }
    }
}
