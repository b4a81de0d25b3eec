//! Air gateway: terminates the passengers' TCP connections and opens flows to the ground gateway.
//!
//! | module | contents |
//! |---|---|
//! | this page | [`Air`], the gateway with its listeners; [`run`] |
//! | `services` | the on-board services, and the choice of one for a connection |
//! | [`tproxy`], `udp`, `ip`, `capture` | intercepted TCP, UDP and other packets |
//! | [`socks`], [`http`] | the SOCKS5 and HTTP proxies |
//! | `datagrams`, `recent`, `client_packet` | flows of datagrams |
//! | `answers`, `echo`, `packet`, `raw` | packets to clients |
//! | `link_watch` | the log message if the ground does not answer |
//! | `error` | errors that end the gateway |

#![forbid(unsafe_code)]

mod answers;
mod capture;
mod client_packet;
mod datagrams;
mod echo;
mod error;
pub mod http;
mod ip;
mod link_watch;
mod packet;
mod raw;
mod recent;
mod services;
pub mod socks;
pub mod tproxy;
mod udp;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bentpipe_classify::Name;
use bentpipe_net::{Handover, Inherited, SocketError};
use futures_util::future::{BoxFuture, join_all};
use tokio::net::TcpListener;

use bentpipe_metering::strangers;
use bentpipe_status::notify;
use bentpipe_web::pages;

use bentpipe_config::{AirConfig, Auth, Listen, Quic, Raw, StatusConfig};
pub use bentpipe_dns::Counts as DnsCounts;
use bentpipe_link::{ModemRate, SettingsError};
use bentpipe_metering::counters::Counters;
use bentpipe_preload::{PreloadSocket, Preloader};
use bentpipe_relay::flows::Flows;
use bentpipe_relay::handover::{self, Store};
use bentpipe_transport::Connector;
use tokio::sync::mpsc;

use bentpipe_carriers::TransportError;
use bentpipe_metering::usage::Book;
use bentpipe_modem::{ModemRates, RateSource};
pub use bentpipe_resolver::ResolverHandle;
use bentpipe_resolver::Serving;
use bentpipe_status::{Asked, Command, Gateway, Outcome, Reporter};
use bentpipe_uplink::Uplink;
use bentpipe_uplink::accept::{accept, accept_from};
pub use bentpipe_uplink::{descriptors, identity, passengers};
use bentpipe_web::{Ahead, Page, Web};
pub use error::StartError;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use ip::fuzz as fuzz_packet;
use services::Services;
use tproxy::Transparent;

/// An air gateway with bound listeners.
///
/// Its interception rules are installed by [`Air::bind`] and removed when it is dropped.
pub struct Air {
    socks5: Option<TcpListener>,
    http_proxy: Option<TcpListener>,
    transparent: Option<Transparent>,
    page: Option<(TcpListener, Page)>,
    preload: Option<(PreloadSocket, Preloader)>,
    auth: Option<Arc<Auth>>,
    listen: Listen,
    services: Arc<Services>,
    quic: Quic,
    raw: Raw,
    dns: Option<Serving>,
    drain: Duration,
    previous: Option<Handover>,
    store: Option<Store>,
}

/// Runs the air gateway of `config` until `shutdown`, then lets open flows finish for the
/// configured time. An unreachable ground gateway is not an error; the air gateway keeps trying.
pub async fn run(config: &AirConfig, shutdown: impl Future<Output = ()>) -> Result<(), StartError> {
    // Without a sender, no configuration ever arrives.
    run_with(config, mpsc::channel(1).1, shutdown).await
}

/// Runs the gateway like [`run`]. Each configuration received from `again` replaces the previous
/// one, see [`Live::apply`].
pub async fn run_with(
    config: &AirConfig,
    again: mpsc::Receiver<Command<AirConfig>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    bentpipe_net::raise_descriptor_limit();
    let mut inherited = Inherited::from_env()?;
    if inherited.previous_state().is_some() {
        notify::forget_handover();
    }
    let connector = bentpipe_carriers::connector(config, &mut inherited)?;
    run_over(config, connector, inherited, again, shutdown).await
}

/// Runs the gateway over `connector`.
pub async fn run_over(
    config: &AirConfig,
    connector: Arc<dyn Connector>,
    mut inherited: Inherited,
    again: mpsc::Receiver<Command<AirConfig>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let previous = inherited.take_handover();
    // Without anchored flows, waiting for their ends is better.
    let may_leave = config.link.keep_flows || !config.hubs.is_empty();
    let store = (may_leave && notify::keeps_descriptors())
        .then(|| Arc::new(notify::store_handover) as Store);
    let gateway = Air::bind(config, &mut inherited, connector.clone())?;
    let gateway = gateway.with_handover(previous, store);
    let (usage, counters) = (gateway.services.uplink.usage.clone(), gateway.counters());
    gateway.log_listeners();
    let gateway_settings = gateway.live();
    let start = |(path, modem)| (path, RateSource::start(modem));
    let modems: Vec<(u8, RateSource)> = config.modems().map(start).collect();
    let status = gateway.tell_status(config.status.as_ref());
    notify::ready();
    let is_stopping = AtomicBool::new(false);
    let shutdown = async {
        shutdown.await;
        is_stopping.store(true, Ordering::Relaxed);
        notify::stopping();
    };
    let over = |()| match is_stopping.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err(TransportError::Ended.into()),
    };
    let outcome = tokio::select! {
        () = connector.failed() => Err(TransportError::Failed(config.link.transport.name()).into()),
        ended = gateway.serve(shutdown) => over(ended),
        () = follow_modems(&modems, &*connector) => Ok(()),
        () = keep(usage.clone()) => Ok(()),
        () = status => Ok(()),
        () = follow_configs(gateway_settings, again) => Ok(()),
        () = link_watch::watch(&config.link, &*connector) => Ok(()),
        () = notify::feed_watchdog(|| connector.pulse().into_iter().collect()) => Ok(()),
        () = strangers::count(|| connector.take_refused(), strangers::MAX_HANDSHAKES, &counters) => Ok(()),
    };
    if let Some(usage) = usage {
        usage.write_or_say();
    }
    join_all(modems.into_iter().map(|(_, modem)| modem.close())).await;
    connector.close().await;
    outcome
}

/// Settings that may change while the gateway runs.
#[derive(Clone)]
pub struct Live(Arc<Services>);

impl Live {
    /// Applies the settings of `config` that can change while flows are open:
    ///
    /// - rules and trusted marks, for new flows;
    /// - classes, for all flows;
    /// - lifetimes of DNS answers;
    /// - certificates, for new connections.
    ///
    /// Changes nothing if the link rejects the settings.
    pub fn apply(&self, config: &AirConfig) -> Result<(), SettingsError> {
        self.0.apply(config)?;
        warn_of_marks(config);
        Ok(())
    }
}

/// Settings that a reload changes.
const RELOADED: &str = "rules, classes, certificates and what [dns] says of answers are those of the \
                        files now; other settings wait for a restart";

async fn follow_configs(live: Live, mut again: mpsc::Receiver<Command<AirConfig>>) {
    while let Some(command) = again.recv().await {
        let outcome = match &command.asked {
            Asked::Config(config) => reload(&live, config),
            Asked::Explain(_) => Err("a ground chooses the egress: ask there".to_owned()),
        };
        command.answer(outcome);
    }
    std::future::pending().await
}

fn reload(live: &Live, config: &AirConfig) -> Outcome {
    match live.apply(config) {
        Ok(()) => {
            tracing::info!("{RELOADED}");
            Ok(vec![RELOADED.to_owned()])
        }
        Err(error) => {
            tracing::error!(%error, "the configuration stays as it was");
            Err(error.to_string())
        }
    }
}

/// Warns if rules depend on marks that the kernel does not report.
fn warn_of_marks(config: &AirConfig) {
    if config.rules.ask_marks() && !bentpipe_net::reflects_marks() {
        tracing::warn!(
            "marks of TCP are not known here: `sysctl net.ipv4.tcp_reflect_tos=1` makes the kernel \
             tell how clients mark it"
        );
    }
}

/// Writes usage records if configured. Never returns.
async fn keep(usage: Option<Arc<Book>>) {
    match usage {
        Some(usage) => usage.keep().await,
        None => std::future::pending().await,
    }
}

/// Passes the reports of all modems on to the link. Never returns.
async fn follow_modems(modems: &[(u8, RateSource)], connector: &dyn Connector) {
    join_all(modems.iter().map(|(path, modem)| follow_modem(*path, modem, connector))).await;
    std::future::pending().await
}

/// Passes the reports of a path's modem on to the link. Never returns.
async fn follow_modem(path: u8, modem: &RateSource, connector: &dyn Connector) {
    let mut last = None;
    bentpipe_modem::follow(modem, |rates| {
        if last.replace(rates) != Some(rates) {
            match rates {
                Some(rates) => {
                    tracing::debug!(path, transmit = %rates.transmit, "the modem's rate")
                }
                None => tracing::debug!(path, "no rate from the modem"),
            }
        }
        let reported = |rates: ModemRates| ModemRate {
            rate: rates.transmit,
            per_packet_overhead: rates.per_packet_overhead,
            is_down: rates.is_down,
        };
        connector.modem_rate(path, rates.map(reported));
    })
    .await;
}

impl Air {
    /// Binds every listener of `config` and installs the interception rules. Must be called within
    /// a tokio runtime.
    pub fn bind(
        config: &AirConfig,
        inherited: &mut Inherited,
        connector: Arc<dyn Connector>,
    ) -> Result<Self, StartError> {
        bentpipe_net::raise_descriptor_limit();
        warn_of_marks(config);
        let listen = &config.listen;
        let mut tcp = |name, address: Option<SocketAddr>| {
            let bind = |address| {
                let listener = inherited.tcp_or_listen(name, address)?;
                let failed = |source| SocketError::Bind { what: name, address, source };
                TcpListener::from_std(listener).map_err(failed)
            };
            address.map(bind).transpose()
        };
        let mut uplink = Uplink::new(config, connector, Flows::default());
        let resolver = config.dns.as_ref().map(|dns| {
            let counters = uplink.counters.clone();
            Serving::start(dns, uplink.classes.clone(), uplink.connector.clone(), counters)
        });
        let (resolver, dns) = resolver.transpose()?.unzip();
        if let Some(resolver) = &resolver {
            uplink.set_names(resolver.clone());
        }
        let pages = pages::configured(config, &uplink.counters);
        let web = Web::open(config, pages.clone())?;
        let services = Services { uplink: Arc::new(uplink), resolver, web, pages };
        let preload = config.preload.as_ref().zip(services.web.as_ref()).map(|(config, web)| {
            let preloader = Ahead::preloader(config, services.uplink.clone(), web.clone());
            Ok((PreloadSocket::bind(&config.socket)?, preloader))
        });
        let preload = preload.transpose().map_err(StartError::Preload)?;
        let page = tcp("page", config.page.as_ref().map(|page| page.listen))?;
        Ok(Self {
            page: page.map(|listener| (listener, Page::new(config))),
            preload,
            socks5: tcp("socks5", listen.socks5)?,
            http_proxy: tcp("http-proxy", listen.http_proxy)?,
            transparent: listen.tproxy.as_ref().map(Transparent::start).transpose()?,
            auth: listen.auth.clone().map(Arc::new),
            listen: listen.clone(),
            services: Arc::new(services),
            quic: listen.quic,
            raw: config.raw.clone(),
            dns,
            drain: config.limits.drain_timeout.into(),
            previous: None,
            store: None,
        })
    }

    /// Goes on with the connections of the `previous` process. When the gateway stops, it leaves its
    /// own by `store`, if there is one, instead of waiting for their ends.
    pub fn with_handover(self, previous: Option<Handover>, store: Option<Store>) -> Self {
        Self { previous, store, ..self }
    }

    /// Address for SOCKS5 clients.
    pub fn socks5_addr(&self) -> Option<SocketAddr> {
        self.socks5.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Address for HTTP proxy clients.
    pub fn http_proxy_addr(&self) -> Option<SocketAddr> {
        self.http_proxy.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Addresses of the resolver, for example to announce to passengers by DHCP.
    pub fn dns_addrs(&self) -> Vec<SocketAddr> {
        self.dns.iter().flat_map(|dns| dns.listeners().addresses()).collect()
    }

    /// Address of the page about this gateway.
    pub fn page_addr(&self) -> Option<SocketAddr> {
        self.page.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// Addresses of the encrypted resolver: over TLS, and over HTTPS.
    pub fn encrypted_dns_addrs(&self) -> [Vec<SocketAddr>; 2] {
        self.dns.as_ref().map(Serving::encrypted).unwrap_or_default()
    }

    /// Records an answer of another resolver of ours, so that rules about domains need no further
    /// proof for it.
    pub fn learn(&self, name: &Name, addresses: &[IpAddr], ttl: Duration) {
        self.services.uplink.classes.learn(name, addresses, ttl);
    }

    fn log_listeners(&self) {
        let addresses = [
            ("SOCKS5", self.socks5_addr()),
            ("HTTP proxy", self.http_proxy_addr()),
            ("the passengers' page", self.page_addr()),
        ];
        for (service, address) in addresses {
            if let Some(address) = address {
                tracing::info!(%address, "serving {service}");
            }
        }
        for address in self.dns_addrs() {
            tracing::info!(%address, "serving DNS");
        }
        for (addresses, over) in self.encrypted_dns_addrs().into_iter().zip(["TLS", "HTTPS"]) {
            for address in addresses {
                tracing::info!(%address, "serving DNS over {over}");
            }
        }
        if self.transparent.is_some() {
            tracing::info!("intercepting clients");
        }
    }

    /// Returns a task that writes the status if configured. The task never ends, and may run after
    /// [`Air::serve`] has begun.
    pub fn tell_status(&self, to: Option<&StatusConfig>) -> impl Future<Output = ()> + use<> {
        let services = self.services.clone();
        let reporter = to.map(|to| {
            let counters = services.uplink.counters.clone();
            let reporter = Reporter::new(to, Gateway::Air, counters, || 1);
            match services.resolver.clone() {
                Some(resolver) => reporter.with(move || resolver.counters()),
                None => reporter,
            }
        });
        async move {
            match reporter {
                Some(reporter) => reporter.keep(|most| services.status(most)).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns the settings that may change, for use after [`Air::serve`] has begun.
    pub fn live(&self) -> Live {
        Live(self.services.clone())
    }

    /// Returns the on-board resolver, for use after [`Air::serve`] has begun.
    pub fn resolver(&self) -> Option<ResolverHandle> {
        self.services.resolver.clone().map(ResolverHandle::from)
    }

    /// Returns the counters, for use after [`Air::serve`] has begun.
    pub fn counters(&self) -> Arc<Counters> {
        self.services.uplink.counters.clone()
    }

    /// Serves until `shutdown`. Then stops accepting, removes the interception rules, and lets open
    /// flows finish for the configured time.
    pub async fn serve(mut self, shutdown: impl Future<Output = ()>) {
        let udp = self.transparent.as_mut().and_then(Transparent::take_udp);
        let mut dns = self.dns.take();
        if let Some(previous) = self.previous.take() {
            self.services.uplink.take_over(previous);
        }
        {
            let (services, uplink) = (&self.services, &self.services.uplink);
            let mut serving = self.listeners();
            if let Some(udp) = udp {
                serving.push(Box::pin(udp.serve(services.clone(), self.quic, self.raw.clone())));
            }
            serving.push(Box::pin(uplink.follow_neighbours()));
            if let Some(transparent) = &self.transparent {
                serving.push(Box::pin(transparent.keep_rules(&uplink.counters)));
            }
            if let Some(web) = services.web.clone() {
                serving.push(match &self.preload {
                    Some((socket, preloader)) => Box::pin(socket.serve(preloader)),
                    None => Box::pin(bentpipe_web::unpin_all(web)),
                });
            }
            if let (Some(dns), Some(resolver)) = (&mut dns, &services.resolver) {
                serving.push(Box::pin(dns.run(resolver, uplink)));
            }
            tokio::select! {
                () = shutdown => {}
                _ = futures_util::future::join_all(serving) => {}
            }
        }
        let Self { socks5, http_proxy, transparent, page, services, drain, store, .. } = self;
        drop((socks5, http_proxy, transparent, page));
        if let (Some(dns), Some(resolver)) = (&mut dns, &services.resolver) {
            dns.finish(resolver).await;
        }
        drop(dns);
        if let Some(web) = &services.web {
            web.close();
        }
        let flows = &services.uplink.flows;
        match store {
            Some(store) => handover::leave(Vec::new(), flows.hand_over().await, &store),
            None => flows.drain(drain).await,
        }
    }

    /// Accepts clients of the proxies and the page, and intercepted connections.
    fn listeners(&self) -> Vec<BoxFuture<'_, ()>> {
        let (services, uplink) = (&self.services, &self.services.uplink);
        let admits = |client: IpAddr| self.listen.admits(client);
        let mut serving: Vec<BoxFuture<'_, ()>> = Vec::new();
        if let Some(listener) = &self.socks5 {
            let (auth, services, quic) = (self.auth.clone(), services.clone(), self.quic);
            let serve =
                move |tcp, permit| socks::serve(tcp, permit, auth.clone(), quic, services.clone());
            serving.push(Box::pin(accept_from(listener, uplink, admits, serve)));
        }
        if let Some(listener) = &self.http_proxy {
            let (auth, services) = (self.auth.clone(), services.clone());
            let serve = move |tcp, permit| http::serve(tcp, permit, auth.clone(), services.clone());
            serving.push(Box::pin(accept_from(listener, uplink, admits, serve)));
        }
        if let Some((listener, page)) = &self.page {
            let of_page = uplink.clone();
            let serve = move |tcp, permit| page.clone().serve(tcp, permit, of_page.clone());
            serving.push(Box::pin(accept(listener, uplink, serve)));
        }
        for listener in self.transparent.iter().flat_map(Transparent::listeners) {
            let services = services.clone();
            let serve = move |tcp, permit| tproxy::serve(tcp, permit, services.clone());
            serving.push(Box::pin(accept(listener, uplink, serve)));
        }
        serving
    }
}
