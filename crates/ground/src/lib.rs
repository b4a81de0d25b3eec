//! Ground gateway: accepts flows of known aircraft, resolves, checks and dials their destinations,
//! and relays.
//!
//! | module | contents |
//! |---|---|
//! | this page | [`Ground`], the gateway with its flows; [`run`] |
//! | [`fleet`] | aircraft, their passengers and their limits |
//! | [`policy`] | destinations that may be dialled |
//! | `names`, [`resolve`] | the resolver service for aircraft, and names that need no query |
//! | [`eyeballs`], `tcp`, [`sources`] | connections by Happy Eyeballs, and their source addresses |
//! | `udp`, [`ports`] | NAT for UDP and ICMP, and the ports for it |
//! | `through` | flows through a proxy |
//! | `dial`, `claim` | from a target to its destination, and verification of class claims |
//! | [`descriptors`] | the limits that fit into the process's limit on descriptors |
//! | `reload` | changes of the fleet and other settings in a running gateway |
//! | `neighbours` | the load that other grounds learn, and those grounds |
//! | `pages`, `origins` | Split HTTP, and TLS to the origins of sites |
//! | `handover`, `left` | flows of the previous process, and those for the next |
//! | `error` | errors that end the gateway |

#![forbid(unsafe_code)]

mod claim;
pub mod descriptors;
mod dial;
mod error;
pub mod eyeballs;
pub mod fleet;
mod handover;
mod left;
mod names;
mod neighbours;
mod origins;
mod pages;
pub mod policy;
pub mod ports;
mod reload;
pub mod resolve;
pub mod sources;
mod tcp;
mod through;
mod udp;

use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bentpipe_flow::{Host, ResetCode, Service};
use bentpipe_link::PublicKey;
use bentpipe_masque::MAX_UNPROVEN;
use bentpipe_net::descriptors::descriptor_limit;
use bentpipe_net::{Handover, Inherited, ip};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use bentpipe_metering::strangers;
use bentpipe_status::notify;

pub use crate::error::StartError;
use bentpipe_carriers::TransportError;
use bentpipe_config::{GroundConfig, GroundLimits, Raw, Upstream};
use bentpipe_metering::counters::Counters;
use bentpipe_metering::rate_limited_log::RateLimitedLog;
use bentpipe_relay::flows::{Flows, record_activity};
use bentpipe_relay::handover::{self as relay, Store};
use bentpipe_relay::police::policed;
use bentpipe_relay::{Outcome, Relay, RelayLimits};
use bentpipe_split_http::{GroundPages, GroundSettings};
use bentpipe_status::{Command, Gateway, Reporter, Session};
use bentpipe_transport::{Acceptor, Carried, Claim, FlowStream, Incoming, Transport};
use descriptors::Fitted;
use fleet::{Fleet, FlowPermit};
use left::{Owner, leave_flows};
use names::Names;
use policy::Policy;
use resolve::KnownNames;
use sources::Sources;
use tcp::Tcp;
use udp::{MappingKey, Udp};

/// Port whose idle timeout also applies to flows to the resolver.
const RESOLVER_PORT: u16 = 53;

/// A ground gateway, ready to serve.
#[derive(Clone)]
pub struct Ground {
    shared: Arc<Shared>,
    drain: Duration,
    previous: Arc<Mutex<Option<Handover>>>,
    store: Option<Store>,
}

struct Shared {
    fleet: Arc<Fleet>,
    policy: Policy,
    sources: Sources,
    known: Arc<KnownNames>,
    names: Names,
    /// Slots for attempts to connect during other attempts of the same flow.
    slots: Arc<Semaphore>,
    pages: Option<GroundPages>,
    sites: Vec<Upstream>,
    log: RateLimitedLog,
    connect_timeout: Duration,
    relay: RelayLimits,
    counters: Arc<Counters>,
    udp: Udp,
    limits: GroundLimits,
    raw: Raw,
    /// `true` if there is no other egress.
    dials: bool,
}

/// Runs the ground gateway of `config` until `shutdown`, then lets open flows finish for the
/// configured time. Returns earlier if every transport has closed.
pub async fn run(
    config: &GroundConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    // Without a sender, no configuration ever arrives.
    run_with(config, mpsc::channel(1).1, shutdown).await
}

/// Runs the gateway like [`run`]. Each configuration received from `again` replaces the previous
/// one, see [`Ground::apply`].
pub async fn run_with(
    config: &GroundConfig,
    again: mpsc::Receiver<Command<GroundConfig>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    bentpipe_net::raise_descriptor_limit();
    let mut inherited = Inherited::from_env()?;
    if inherited.previous_state().is_some() {
        notify::forget_handover();
    }
    let store = notify::keeps_descriptors().then(|| Arc::new(notify::store_handover) as Store);
    let gateway = Ground::new(config)?;
    let acceptors = bentpipe_carriers::acceptor(config, &mut inherited)?;
    let gateway = gateway.with_handover(inherited.take_handover(), store);
    run_over(config, &gateway, acceptors, again, shutdown).await
}

/// Runs `gateway` on `arrivals`.
pub async fn run_over(
    config: &GroundConfig,
    gateway: &Ground,
    acceptors: Vec<Arc<dyn Acceptor>>,
    again: mpsc::Receiver<Command<GroundConfig>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    for from in &acceptors {
        let address = from.local_addr().map(|address| address.to_string()).unwrap_or_default();
        let (transport, aircraft) = (from.transport().name(), config.aircraft.len());
        tracing::info!(address, transport, aircraft, "serving");
    }
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
    let counters = gateway.counters();
    let pulses = || acceptors.iter().filter_map(|from| from.pulse()).collect();
    let outcome = tokio::select! {
        // The failure check comes first, because other branches end normally when a transport
        // fails.
        biased;
        name = failed(&acceptors) => Err(TransportError::Failed(name).into()),
        ended = gateway.serve(acceptors.clone(), shutdown) => over(ended),
        () = gateway.follow_commands(config, &acceptors, again) => Ok(()),
        () = gateway.tell_status(config, &acceptors) => Ok(()),
        () = neighbours::tell_load(config, || gateway.open_flows(), &acceptors) => Ok(()),
        () = notify::feed_watchdog(pulses) => Ok(()),
        () = count_strangers(&acceptors, &counters) => Ok(()),
    };
    futures_util::future::join_all(acceptors.iter().map(|from| from.close())).await;
    outcome
}

/// Counts what each transport refuses to unknown senders. Never returns.
async fn count_strangers(acceptors: &[Arc<dyn Acceptor>], counters: &Counters) {
    let each = acceptors.iter().map(|from| {
        let most = match from.transport() {
            Transport::Masque => MAX_UNPROVEN,
            _ => strangers::MAX_HANDSHAKES,
        };
        strangers::count(|| from.take_refused(), most, counters)
    });
    futures_util::future::join_all(each).await;
}

/// Returns the name of the first transport that fails; waits forever otherwise.
async fn failed(acceptors: &[Arc<dyn Acceptor>]) -> &'static str {
    let each = acceptors.iter().map(|from| {
        Box::pin(async move {
            from.failed().await;
            from.transport().name()
        }) as BoxFuture<'_, &'static str>
    });
    let never = Box::pin(std::future::pending()) as BoxFuture<'_, &'static str>;
    futures_util::future::select_all(each.chain([never])).await.0
}

impl Ground {
    /// Creates a gateway for the aircraft of `config`.
    pub fn new(config: &GroundConfig) -> Result<Self, StartError> {
        bentpipe_net::raise_descriptor_limit();
        if let Some(shortage) = ports::shortage(config, ports::Range::of_kernel()) {
            tracing::warn!("{shortage}");
        }
        for source in sources::missing(&config.dial.sources) {
            tracing::warn!(%source, "sources under [dial]: this machine has no such address now");
        }
        let counters = Arc::<Counters>::default();
        let limits = &config.limits;
        let fitted = Fitted::of(config, descriptor_limit());
        if let Some(shortage) = &fitted.shortage {
            tracing::warn!("{shortage}");
        }
        let most = fitted.flows;
        let fleet = Arc::new(Fleet::new(&config.aircraft, &config.clients, most, counters.clone()));
        let known = Arc::new(KnownNames::new(&config.hosts));
        let policy = Policy::new(&config.dial);
        let sources = Sources::new(&config.dial.sources);
        sources.set_aircraft(&config.aircraft);
        let shared = Shared {
            fleet: fleet.clone(),
            names: Names::new(known.clone(), &config.dns, &config.dial.allow, counters.clone())?
                .with_most(fitted.questions),
            known,
            slots: Arc::new(Semaphore::new(fitted.flows.streams)),
            pages: config.split_http.as_ref().map(|pages| {
                let settings = pages.settings(&config.sites, limits.idle_timeout.into());
                let settings = GroundSettings { pages: fitted.pages, ..settings };
                GroundPages::new(settings, counters.clone())
            }),
            sites: config.sites.clone(),
            log: RateLimitedLog::default(),
            connect_timeout: config.dial.connect_timeout.into(),
            relay: config.limits.relay(),
            udp: Udp::new(
                counters.clone(),
                (policy.paths(), sources.clone()),
                Arc::new(move |key: &[u8; 32]| fleet.name_of(key)),
                config.link.quic_in_order,
                limits.orphan_timeout.into(),
            ),
            limits: config.limits.clone(),
            raw: config.raw.clone(),
            dials: config.egresses.is_empty(),
            policy,
            sources,
            counters,
        };
        let (shared, drain) = (Arc::new(shared), config.limits.drain_timeout.into());
        Ok(Self { shared, drain, previous: Arc::default(), store: None })
    }

    /// Goes on with the flows of the `previous` process. When the gateway stops, it leaves its own by
    /// `store`, if there is one, instead of waiting for their ends.
    pub fn with_handover(mut self, previous: Option<Handover>, store: Option<Store>) -> Self {
        self.previous = Arc::new(Mutex::new(previous));
        self.store = store;
        self
    }

    /// Writes the status of `arrivals` if `config` requests it. Never returns.
    pub async fn tell_status(&self, config: &GroundConfig, acceptors: &[Arc<dyn Acceptor>]) {
        let Some(to) = &config.status else { return std::future::pending().await };
        let counters = self.shared.counters.clone();
        let fleet = self.shared.fleet.clone();
        let sessions = fleet.clone();
        let reporter = Reporter::new(to, Gateway::Ground, counters, move || sessions.len());
        let (grounds, from) = (config.clone(), acceptors.to_vec());
        let reporter = reporter.with_others(move || neighbours::entries(&grounds, &from));
        let names = bentpipe_status::nameless();
        let session = |(key, name): &(PublicKey, String), most| {
            let traffic = acceptors.iter().find_map(|from| from.traffic(key, most))?;
            Some(Session::of(traffic, Some(name), &names))
        };
        let look = |most| fleet.aircraft().iter().filter_map(|one| session(one, most)).collect();
        reporter.keep(look).await;
    }

    /// Counters.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }

    /// Number of open flows of all aircraft.
    pub fn open_flows(&self) -> usize {
        self.shared.fleet.open()
    }

    /// Serves until `shutdown` or until every one of `arrivals` has closed.
    pub async fn serve(
        &self,
        acceptors: Vec<Arc<dyn Acceptor>>,
        shutdown: impl Future<Output = ()>,
    ) {
        let listeners = acceptors.iter().filter_map(|from| from.local_addr()).collect();
        self.shared.udp.set_listeners(listeners);
        let flows = Flows::default();
        if let Some(previous) = self.previous.lock().take() {
            self.shared.take_over(previous, &acceptors, &flows);
        }
        let each = acceptors.iter().map(|from| self.accept_all(from.as_ref(), &flows));
        let mut accepting = futures_util::future::join_all(each);
        let is_closed = tokio::select! {
            () = shutdown => false,
            _ = &mut accepting => true,
        };
        let stopped_at = Instant::now();
        self.shared.udp.close();
        // Flows that are dialled here cannot follow their aircraft, and the next process has them.
        let store = self.store.as_ref().filter(|_| acceptors.iter().any(|it| it.keeps_flows()));
        let stays = store.is_some() && self.shared.dials;
        if !is_closed && !stays {
            // Aircraft with other hubs use this one until they have reached another.
            let leaving = futures_util::future::join_all(acceptors.iter().map(|from| from.leave()));
            tokio::select! {
                _ = timeout(self.drain, leaving) => {}
                _ = &mut accepting => {}
            }
        }
        match store {
            Some(store) => leave_flows(&acceptors, &flows, store).await,
            None => flows.drain(self.drain.saturating_sub(stopped_at.elapsed())).await,
        }
    }

    async fn accept_all(&self, from: &dyn Acceptor, flows: &Flows) {
        while let Some(mut incoming) = from.accept().await {
            let shared = self.shared.clone();
            shared.counters.accepted.add(1);
            let (kind, passenger) = (incoming.carries.kind(), incoming.passenger);
            match shared.fleet.admit(&incoming.aircraft, kind, passenger) {
                Ok(permit) => {
                    incoming.class = permit.class(incoming.class);
                    shared.counters.count_class(incoming.class);
                    let handover = flows.handover().clone();
                    flows.spawn(async move { shared.serve(incoming, permit, &handover).await });
                }
                Err(code) => {
                    if code == ResetCode::Limit {
                        shared.counters.over_limit.add(1);
                    }
                    shared.counters.count_reset(code);
                    incoming.carries.reset(code);
                }
            }
        }
    }
}

impl Shared {
    /// Connector with the source addresses of `who` of an aircraft.
    fn tcp(&self, aircraft: &[u8; 32], who: &impl Hash) -> Tcp<'_> {
        let from = [false, true].map(|v6| self.sources.of(aircraft, who, v6));
        Tcp::of(&self.policy, from, &self.slots)
    }

    /// Serves a flow until it ends or is evicted.
    async fn serve(&self, incoming: Incoming, permit: FlowPermit, handover: &relay::Handover) {
        let over = permit.over();
        let incoming = record_activity(incoming, &permit.activity());
        let serving = self.serve_flow(incoming, permit, handover);
        if over.run_until_cancelled_owned(serving).await.is_none() {
            self.counters.count_reset(ResetCode::Limit);
        }
    }

    async fn serve_flow(&self, incoming: Incoming, permit: FlowPermit, handover: &relay::Handover) {
        if let Host::Service(service) = incoming.target.host {
            return self.serve_service(service, incoming, permit).await;
        }
        let Incoming { aircraft, session, target, class, passenger, claim, .. } = incoming;
        match incoming.carries {
            Carried::Stream(stream) => {
                let owner = Owner { aircraft, passenger, class, target };
                match incoming.dialler {
                    Some(by) => self.serve_through(&*by, &owner, claim, stream, permit).await,
                    None => self.serve_stream(owner, claim, stream, permit, handover).await,
                }
            }
            Carried::Datagrams { protocol, source, is_gateway, flow } => {
                let owner = MappingKey { aircraft, passenger, protocol, source, is_gateway };
                let idle = self.limits.datagram_idle(protocol, target.port);
                let request = udp::FlowRequest { owner, session, class, idle };
                let flow = policed(flow, permit.police(class, passenger));
                let code = match incoming.dialler {
                    Some(by) => self.carry_through(&*by, (&aircraft, &target), flow, idle).await,
                    None => match self.route(&aircraft, &target, protocol).await {
                        Ok(address) => self.udp.carry(&request, address, flow).await,
                        Err(code) => {
                            flow.reset(code);
                            code
                        }
                    },
                };
                self.counters.count_reset(code);
                let aircraft = permit.aircraft();
                tracing::debug!(aircraft, %target, %class, protocol, %code, "flow of datagrams ended");
            }
        }
    }

    /// Serves a flow to one of the gateway's own services.
    async fn serve_service(&self, service: Service, incoming: Incoming, permit: FlowPermit) {
        if service == Service::Pages {
            return self.serve_pages(incoming, permit).await;
        }
        let Incoming { aircraft, carries, .. } = incoming;
        let idle = self.limits.datagram_idle(ip::UDP, RESOLVER_PORT).answered;
        match carries {
            Carried::Stream(stream) => self.names.serve_stream(&aircraft, stream, idle).await,
            Carried::Datagrams { protocol: ip::UDP, flow, .. } => {
                let code = self.names.serve_datagrams(&aircraft, flow, idle).await;
                self.counters.count_reset(code);
            }
            Carried::Datagrams { flow, .. } => flow.reset(ResetCode::Forbidden),
        }
    }

    async fn serve_stream(
        &self,
        mut owner: Owner,
        claim: Option<Claim>,
        mut stream: Box<dyn FlowStream>,
        permit: FlowPermit,
        handover: &relay::Handover,
    ) {
        let tcp = self.tcp(&owner.aircraft, &(owner.aircraft, owner.passenger));
        let (destination, claimed) = ((&owner.aircraft, &owner.target), (owner.class, claim));
        match self.dial(destination, claimed, &tcp, &mut *stream, &permit).await {
            Ok((tcp, class)) => {
                bentpipe_net::mark(&tcp, class);
                owner.class = class;
                self.relay(self.relay_of(tcp, stream), &owner, permit, handover).await;
            }
            Err(_) if tcp.lacked_descriptors() => self.fleet.report_lack_of_descriptors(&permit),
            Err(_) => {}
        }
    }

    fn relay_of(&self, tcp: TcpStream, stream: Box<dyn FlowStream>) -> Relay {
        Relay::new(tcp, stream, Vec::new(), self.relay, self.counters.clone())
    }

    /// Relays the flow of `owner` until it ends, or is left for the next process.
    async fn relay(
        &self,
        relay: Relay,
        owner: &Owner,
        permit: FlowPermit,
        handover: &relay::Handover,
    ) {
        let Owner { class, passenger, target, .. } = owner;
        let relay =
            relay.with_police(permit.police(*class, *passenger)).with_activity(permit.activity());
        if let Some(Outcome::Reset(code)) = relay.run(handover, &owner.encode()).await {
            tracing::debug!(aircraft = permit.aircraft(), %target, %class, %code, "flow reset");
        }
    }
}
