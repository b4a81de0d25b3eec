//! The air gateway: ends the passengers' TCP connections and asks the far end for flows.

mod answers;
mod board;
mod capture;
mod classes;
pub mod counter;
mod datagrams;
mod echo;
mod first;
pub mod http;
pub mod identity;
mod intake;
mod ip;
mod packet;
mod pages;
pub mod passengers;
pub(crate) mod path_memory;
mod raw;
mod recent;
mod request;
pub mod rules;
mod secret;
mod sent;
mod silence;
pub mod socks;
mod stall;
pub mod tproxy;
mod udp;
mod web;

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};

use crate::classify::Name;
use crate::config::{AirConfig, Auth, Listen, Preload, Quic, Raw, StatusConfig};
use crate::counters::Counters;
use crate::far::{self, FarEnd};
use crate::flows::Flows;
use crate::net::{self, Inherited, StartError};
use crate::notify;
pub use bentpipe_dns::Counts as DnsCounts;
use bentpipe_link::{ModemRate, SettingsError};
use tokio::sync::mpsc;

use crate::rate::{self, ModemRates, RateSource};
use crate::status::{Gateway, Reporter};
use crate::usage::Book;
pub use board::Resolver;
use board::{Board, Serving};
use intake::Intake;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use ip::fuzz as fuzz_packet;
use passengers::Ticket;
use tproxy::Transparent;
use web::{Ahead, Page, Web};

/// Pause of accepting when the system has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An air gateway whose listeners are bound.
///
/// Its interception rules are in force from [`Air::bind`] until it is dropped.
pub struct Air {
    socks5: Option<TcpListener>,
    http_proxy: Option<TcpListener>,
    transparent: Option<Transparent>,
    page: Option<(TcpListener, Page)>,
    preload: Option<Preload>,
    auth: Option<Arc<Auth>>,
    listen: Listen,
    intake: Arc<Intake>,
    quic: Quic,
    raw: Raw,
    dns: Option<Serving>,
    drain: Duration,
}

/// Runs the air gateway of `config` until `shutdown`, then lets open flows finish
/// for the configured time. A ground that is down is no error: it keeps trying.
pub async fn run(config: &AirConfig, shutdown: impl Future<Output = ()>) -> Result<(), StartError> {
    // Without a sender nothing ever comes.
    run_with(config, mpsc::channel(1).1, shutdown).await
}

/// The same; each config that comes by `again` takes the place of the one before, see [`Live::apply`].
pub async fn run_with(
    config: &AirConfig,
    again: mpsc::Receiver<AirConfig>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let mut inherited = Inherited::from_env()?;
    let far = far::far_end(config, &mut inherited)?;
    run_over(config, far, inherited, again, shutdown).await
}

/// The same over `far`.
pub(crate) async fn run_over(
    config: &AirConfig,
    far: Arc<dyn FarEnd>,
    mut inherited: Inherited,
    again: mpsc::Receiver<AirConfig>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let gateway = Air::bind(config, &mut inherited, far.clone())?;
    let usage = gateway.intake.usage.clone();
    gateway.log_listeners();
    let gateway_settings = gateway.live();
    let modem = config.link.modem.as_ref().map(RateSource::start);
    let status = gateway.tell_status(config.status.as_ref());
    notify::ready();
    let shutdown = async {
        shutdown.await;
        notify::stopping();
    };
    let outcome = tokio::select! {
        () = far.failed() => Err(StartError::Failed(config.link.transport.name())),
        () = gateway.serve(shutdown) => Ok(()),
        () = follow_modem(modem.as_ref(), &*far) => Ok(()),
        () = keep(usage.clone()) => Ok(()),
        () = status => Ok(()),
        () = follow_configs(gateway_settings, again) => Ok(()),
        () = silence::watch(&config.link, &*far) => Ok(()),
        () = notify::feed_watchdog(|| far.pulse().into_iter().collect()) => Ok(()),
    };
    if let Some(usage) = usage {
        usage.write_or_say();
    }
    if let Some(modem) = modem {
        modem.close().await;
    }
    far.close().await;
    outcome
}

/// Parts that may change while the gateway runs.
#[derive(Clone)]
pub struct Live(Arc<Intake>);

impl Live {
    /// Applies what of `config` can be applied while flows go on: rules and trusted marks, for flows to
    /// come, what classes get, for all, how long DNS answers count, and certificates, for connections to
    /// come. Nothing changes where the link cannot work like that.
    pub fn apply(&self, config: &AirConfig) -> Result<(), SettingsError> {
        self.0.apply(config)?;
        warn_of_marks(config);
        Ok(())
    }
}

async fn follow_configs(live: Live, mut again: mpsc::Receiver<AirConfig>) {
    while let Some(config) = again.recv().await {
        match live.apply(&config) {
            Ok(()) => tracing::info!(
                "rules, classes, certificates and what [dns] says of answers are those of the files now; \
                 other settings wait for a restart"
            ),
            Err(error) => tracing::error!(%error, "the configuration stays as it was"),
        }
    }
    std::future::pending().await
}

/// Rules may ask for what the kernel does not tell.
fn warn_of_marks(config: &AirConfig) {
    if config.rules.ask_marks() && !net::reflects_marks() {
        tracing::warn!(
            "marks of TCP are not known here: `sysctl net.ipv4.tcp_reflect_tos=1` makes the kernel \
             tell how clients mark it"
        );
    }
}

/// Writes usage records where that is asked for; for ever.
async fn keep(usage: Option<Arc<Book>>) {
    match usage {
        Some(usage) => usage.keep().await,
        None => std::future::pending().await,
    }
}

/// Passes on what the modem says; for ever.
async fn follow_modem(modem: Option<&RateSource>, far: &dyn FarEnd) {
    let Some(modem) = modem else { return std::future::pending().await };
    let mut last = None;
    rate::follow(modem, |rates| {
        if last.replace(rates) != Some(rates) {
            match rates {
                Some(rates) => tracing::debug!(transmit = %rates.transmit, "the modem's rate"),
                None => tracing::debug!("no rate from the modem"),
            }
        }
        let told = |rates: ModemRates| ModemRate {
            rate: rates.transmit,
            framing_bytes: rates.framing_bytes,
        };
        far.modem_rate(rates.map(told));
    })
    .await;
}

impl Air {
    /// Binds every listener of `config` and puts the interception rules in force.
    /// Needs a tokio runtime around it.
    pub fn bind(
        config: &AirConfig,
        inherited: &mut Inherited,
        far: Arc<dyn FarEnd>,
    ) -> Result<Self, StartError> {
        net::raise_descriptor_limit();
        warn_of_marks(config);
        let listen = &config.listen;
        let mut tcp = |name, address: Option<SocketAddr>| {
            let bind = |address| {
                let listener = inherited.tcp_or_listen(name, address)?;
                let failed = |source| StartError::Bind { what: name, address, source };
                TcpListener::from_std(listener).map_err(failed)
            };
            address.map(bind).transpose()
        };
        let mut intake = Intake::new(config, far, Flows::default());
        let board = config.dns.as_ref().map(|dns| {
            let counters = intake.counters.clone();
            Board::start(dns, intake.classes.clone(), intake.far.clone(), counters)
        });
        let (board, dns) = board.transpose()?.unzip();
        intake.board = board;
        intake.web = Web::open(config)?;
        let page = tcp("page", config.page.as_ref().map(|page| page.listen))?;
        Ok(Self {
            page: page.map(|listener| (listener, Page::new(config))),
            preload: config.preload.clone(),
            socks5: tcp("socks5", listen.socks5)?,
            http_proxy: tcp("http-proxy", listen.http_proxy)?,
            transparent: listen.tproxy.as_ref().map(Transparent::start).transpose()?,
            auth: listen.auth.clone().map(Arc::new),
            listen: listen.clone(),
            intake: Arc::new(intake),
            quic: listen.quic,
            raw: config.raw.clone(),
            dns,
            drain: config.limits.drain_timeout.into(),
        })
    }

    /// Address for SOCKS5 clients.
    pub fn socks5_addr(&self) -> Option<SocketAddr> {
        self.socks5.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Address for HTTP proxy clients.
    pub fn http_proxy_addr(&self) -> Option<SocketAddr> {
        self.http_proxy.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Addresses that passengers may be given as their resolver's.
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

    /// Learns an answer that another resolver of ours gives passengers: rules about domains need no
    /// other proof for it.
    pub fn learn(&self, name: &Name, addresses: &[IpAddr], ttl: Duration) {
        self.intake.classes.learn(name, addresses, ttl);
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

    /// Writes what is carried, where that is asked for; for ever, also after [`Air::serve`] has begun.
    pub fn tell_status(&self, to: Option<&StatusConfig>) -> impl Future<Output = ()> + use<> {
        let intake = self.intake.clone();
        let reporter = to.map(|to| {
            let reporter = Reporter::new(to, Gateway::Air, intake.counters.clone(), 1);
            match intake.board.clone() {
                Some(board) => reporter.with(move || board.counters()),
                None => reporter,
            }
        });
        async move {
            match reporter {
                Some(reporter) => reporter.keep(|most| intake.status(most)).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Parts that may change, also after [`Air::serve`] has begun.
    pub fn live(&self) -> Live {
        Live(self.intake.clone())
    }

    /// The resolver on board, also after [`Air::serve`] has begun.
    pub fn resolver(&self) -> Option<Resolver> {
        self.intake.board.clone().map(Resolver)
    }

    /// Counters, also after [`Air::serve`] has begun.
    pub fn counters(&self) -> Arc<Counters> {
        self.intake.counters.clone()
    }

    /// Serves until `shutdown`, then stops accepting, removes the interception
    /// rules, and lets open flows finish for the configured time.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let Self {
            socks5,
            http_proxy,
            mut transparent,
            page,
            preload,
            auth,
            listen,
            intake,
            quic,
            raw,
            mut dns,
            drain,
        } = self;
        let udp = transparent.as_mut().and_then(Transparent::take_udp);
        {
            let of_proxies = |client: IpAddr| listen.admits(client);
            let mut serving: Vec<BoxFuture<'_, ()>> = Vec::new();
            if let Some(listener) = &socks5 {
                let (auth, intake) = (auth.clone(), intake.clone());
                let admits = &of_proxies;
                serving.push(Box::pin(accept_from(
                    listener,
                    &intake.clone(),
                    admits,
                    move |tcp, ticket| {
                        socks::serve(tcp, ticket, auth.clone(), quic, intake.clone())
                    },
                )));
            }
            if let Some(listener) = &http_proxy {
                let (auth, intake) = (auth.clone(), intake.clone());
                let admits = &of_proxies;
                serving.push(Box::pin(accept_from(
                    listener,
                    &intake.clone(),
                    admits,
                    move |tcp, ticket| http::serve(tcp, ticket, auth.clone(), intake.clone()),
                )));
            }
            if let Some((listener, page)) = &page {
                let intake = intake.clone();
                serving.push(Box::pin(accept(listener, &intake.clone(), move |tcp, ticket| {
                    page.clone().serve(tcp, ticket, intake.clone())
                })));
            }
            for listener in transparent.iter().flat_map(Transparent::listeners) {
                let intake = intake.clone();
                serving.push(Box::pin(accept(listener, &intake.clone(), move |tcp, ticket| {
                    tproxy::serve(tcp, ticket, intake.clone())
                })));
            }
            if let Some(udp) = udp {
                serving.push(Box::pin(udp.serve(intake.clone(), quic, raw)));
            }
            serving.push(Box::pin(intake.follow_neighbours()));
            if let Some(web) = intake.web.clone() {
                serving.push(match &preload {
                    Some(config) => Box::pin(Ahead::preloader(config, intake.clone(), web).keep()),
                    None => Box::pin(web::let_go(web)),
                });
            }
            if let (Some(dns), Some(board)) = (&mut dns, &intake.board) {
                serving.push(Box::pin(dns.run(board, &intake)));
            }
            tokio::select! {
                () = shutdown => {}
                _ = futures_util::future::join_all(serving) => {}
            }
        }
        drop((socks5, http_proxy, transparent, page));
        if let (Some(dns), Some(board)) = (&mut dns, &intake.board) {
            dns.finish(board).await;
        }
        drop(dns);
        if let Some(web) = &intake.web {
            web.close();
        }
        intake.flows.drain(drain).await;
    }
}

/// Accepts clients wherever they are.
fn accept<'a, F>(
    listener: &'a TcpListener,
    intake: &Arc<Intake>,
    serve: impl Fn(TcpStream, Ticket) -> F + Send + 'a,
) -> impl Future<Output = ()> + Send + 'a
where
    F: Future<Output = ()> + Send + 'static,
{
    accept_from(listener, intake, &|_| true, serve)
}

/// Accepts for ever: every client that `admits` admits and the limits allow gets a task of its own.
fn accept_from<'a, F>(
    listener: &'a TcpListener,
    intake: &Arc<Intake>,
    admits: &'a (impl Fn(IpAddr) -> bool + Sync),
    serve: impl Fn(TcpStream, Ticket) -> F + Send + 'a,
) -> impl Future<Output = ()> + Send + 'a
where
    F: Future<Output = ()> + Send + 'static,
{
    let intake = intake.clone();
    async move {
        loop {
            match listener.accept().await {
                Ok((tcp, client)) if !admits(client.ip()) => intake.not_a_client(&tcp, client.ip()),
                Ok((tcp, client)) => {
                    if let Some(ticket) = intake.admit(&tcp, client) {
                        let over = ticket.over();
                        let serving = serve(tcp, ticket);
                        intake.flows.spawn(async move {
                            over.run_until_cancelled_owned(serving).await;
                        });
                    }
                }
                Err(error) => {
                    if is_ours(&error) {
                        intake.quiet.warn("cannot accept a client", &error);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
}

/// Returns `true` if accepting failed for lack of resources here; otherwise the client has gone.
fn is_ours(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
