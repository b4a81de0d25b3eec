//! The ground gateway: takes the flows of known aircraft, resolves, checks, dials, relays.

mod claim;
pub mod eyeballs;
pub mod fleet;
mod names;
mod origins;
mod pages;
pub mod policy;
pub mod ports;
pub mod resolve;
pub mod sources;
mod udp;

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::{Class, Host, PublicKey, ResetCode, Service, SettingsError, Target};
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::config::{GroundConfig, GroundLimits, Raw, Upstream};
use crate::counters::Counters;
use crate::far::{self, Arrivals, Carried, Claim, FarStream, Incoming};
use crate::flows::Flows;
use crate::net::{self, Inherited, StartError, ip};
use crate::notify;
use crate::pages::GroundPages;
use crate::police::policed;
use crate::quiet::Quiet;
use crate::relay::{Local, Outcome, Relay, RelayLimits};
use crate::status::{self, Gateway, Reporter, Session};
use eyeballs::Connect;
use fleet::{Fleet, Most, Permit};
use names::Names;
use policy::Policy;
use resolve::Dns;
use sources::Sources;
use udp::{Owner, Routes, Udp};

/// Flows to the resolver idle as those to name servers do.
const RESOLVER_PORT: u16 = 53;

/// A ground gateway, ready to serve.
#[derive(Clone)]
pub struct Ground {
    shared: Arc<Shared>,
    drain: Duration,
}

struct Shared {
    fleet: Arc<Fleet>,
    policy: Policy,
    sources: Sources,
    dns: Arc<Dns>,
    names: Names,
    pages: Option<GroundPages>,
    sites: Vec<Upstream>,
    quiet: Quiet,
    connect_timeout: Duration,
    relay: RelayLimits,
    counters: Arc<Counters>,
    udp: Udp,
    limits: GroundLimits,
    raw: Raw,
}

/// Runs the ground gateway of `config` until `shutdown`, then lets open flows finish
/// for the configured time. Ends early when every transport has closed.
pub async fn run(
    config: &GroundConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    // Without a sender nothing ever comes.
    run_with(config, mpsc::channel(1).1, shutdown).await
}

/// The same; each config that comes by `again` takes the place of the one before, see
/// [`Ground::apply`].
pub async fn run_with(
    config: &GroundConfig,
    again: mpsc::Receiver<GroundConfig>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let gateway = Ground::new(config)?;
    let arrivals = far::arrivals(config, &mut Inherited::from_env()?)?;
    run_over(config, &gateway, arrivals, again, shutdown).await
}

/// The same over `arrivals`.
pub(crate) async fn run_over(
    config: &GroundConfig,
    gateway: &Ground,
    arrivals: Vec<Arc<dyn Arrivals>>,
    again: mpsc::Receiver<GroundConfig>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    for from in &arrivals {
        let address = from.local_addr().map(|address| address.to_string()).unwrap_or_default();
        let (transport, aircraft) = (from.transport().name(), config.aircraft.len());
        tracing::info!(address, transport, aircraft, "serving");
    }
    notify::ready();
    let shutdown = async {
        shutdown.await;
        notify::stopping();
    };
    let pulses = || arrivals.iter().filter_map(|from| from.pulse()).collect();
    let outcome = tokio::select! {
        // Before what ends in good order when a transport does.
        biased;
        name = failed(&arrivals) => Err(StartError::Failed(name)),
        () = gateway.serve(arrivals.clone(), shutdown) => Ok(()),
        () = gateway.follow_configs(&arrivals, again) => Ok(()),
        () = gateway.tell_status(config, &arrivals) => Ok(()),
        () = notify::feed_watchdog(pulses) => Ok(()),
    };
    futures_util::future::join_all(arrivals.iter().map(|from| from.close())).await;
    outcome
}

/// The name of the first transport that ends by a fault; waits for ever while all is well.
async fn failed(arrivals: &[Arc<dyn Arrivals>]) -> &'static str {
    let each = arrivals.iter().map(|from| {
        Box::pin(async move {
            from.failed().await;
            from.transport().name()
        }) as BoxFuture<'_, &'static str>
    });
    let never = Box::pin(std::future::pending()) as BoxFuture<'_, &'static str>;
    futures_util::future::select_all(each.chain([never])).await.0
}

impl Ground {
    /// Prepares to serve `config`'s aircraft.
    pub fn new(config: &GroundConfig) -> Result<Self, StartError> {
        net::raise_descriptor_limit();
        if let Some(shortage) = ports::shortage(config, ports::Range::of_kernel()) {
            tracing::warn!("{shortage}");
        }
        for source in sources::missing(&config.dial.sources) {
            tracing::warn!(%source, "sources under [dial]: this machine has no such address now");
        }
        let counters = Arc::<Counters>::default();
        let limits = &config.limits;
        let most = Most {
            streams: limits.max_flows,
            datagrams: limits.udp.max_flows,
            ip: limits.ip.max_flows,
        };
        let dns = Arc::new(Dns::new(&config.dns, &config.hosts)?);
        let policy = Policy::new(&config.dial);
        let sources = Sources::new(&config.dial.sources);
        let shared = Shared {
            fleet: Arc::new(Fleet::new(&config.aircraft, &config.clients, most, counters.clone())),
            names: Names::new(dns.clone(), &config.dns, &config.dial.allow, counters.clone())?,
            dns,
            pages: config.split_http.as_ref().map(|pages| {
                let settings = pages.settings(&config.sites, limits.idle_timeout.into());
                GroundPages::new(settings, counters.clone())
            }),
            sites: config.sites.iter().map(|site| site.upstream().clone()).collect(),
            quiet: Quiet::default(),
            connect_timeout: config.dial.connect_timeout.into(),
            relay: config.limits.relay(),
            udp: Udp::new(
                counters.clone(),
                (policy.paths(), sources.clone()),
                aircraft_names(config),
                limits.udp.unanswered_timeout.into(),
                config.link.quic_in_order,
            ),
            limits: config.limits.clone(),
            raw: config.raw.clone(),
            policy,
            sources,
            counters,
        };
        Ok(Self { shared: Arc::new(shared), drain: config.limits.drain_timeout.into() })
    }

    /// Applies what of `config` can be applied while flows go on: what classes get of what each of the
    /// aircraft that are known already is sent, and the table of hosts. Nothing changes where the link
    /// cannot work like that.
    pub fn apply(
        &self,
        config: &GroundConfig,
        arrivals: &[Arc<dyn Arrivals>],
    ) -> Result<(), SettingsError> {
        far::link::hub_config(config)?;
        for aircraft in &config.aircraft {
            let (key, classes) = (aircraft.key(), &aircraft.classes);
            for from in arrivals {
                from.set_classes(&key, classes.settings())?;
            }
            self.shared.fleet.set_passenger_ceil(key.as_bytes(), classes.passenger_ceil());
        }
        self.shared.dns.set_table(&config.hosts);
        Ok(())
    }

    async fn follow_configs(
        &self,
        arrivals: &[Arc<dyn Arrivals>],
        mut again: mpsc::Receiver<GroundConfig>,
    ) {
        while let Some(config) = again.recv().await {
            match self.apply(&config, arrivals) {
                Ok(()) => tracing::info!(
                    "classes and hosts are those of the file now; other settings wait for a restart"
                ),
                Err(error) => tracing::error!(%error, "the configuration stays as it was"),
            }
        }
        std::future::pending().await
    }

    /// Writes what `arrivals` carry, where `config` asks for it; for ever.
    pub async fn tell_status(&self, config: &GroundConfig, arrivals: &[Arc<dyn Arrivals>]) {
        let Some(to) = &config.status else { return std::future::pending().await };
        let counters = self.shared.counters.clone();
        let aircraft: Vec<_> = config.aircraft.iter().map(|it| (it.key(), &*it.name)).collect();
        let reporter = Reporter::new(to, Gateway::Ground, counters, aircraft.len());
        let names = status::nameless();
        let session = |(key, name): &(PublicKey, &str), most| {
            let traffic = arrivals.iter().find_map(|from| from.traffic(key, most))?;
            Some(Session::of(traffic, Some(name), &names))
        };
        reporter.keep(|most| aircraft.iter().filter_map(|one| session(one, most)).collect()).await;
    }

    /// Counters.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }

    /// Flows open now, over all aircraft.
    pub fn open_flows(&self) -> usize {
        self.shared.fleet.open()
    }

    /// Serves until `shutdown` or until every one of `arrivals` has closed.
    pub async fn serve(
        &self,
        arrivals: Vec<Arc<dyn Arrivals>>,
        shutdown: impl Future<Output = ()>,
    ) {
        let listeners = arrivals.iter().filter_map(|from| from.local_addr()).collect();
        self.shared.udp.set_listeners(listeners);
        let flows = Flows::default();
        let accepting = arrivals.iter().map(|from| self.accept_all(from.as_ref(), &flows));
        tokio::select! {
            () = shutdown => {}
            _ = futures_util::future::join_all(accepting) => {}
        }
        flows.drain(self.drain).await;
    }

    async fn accept_all(&self, from: &dyn Arrivals, flows: &Flows) {
        while let Some(mut incoming) = from.accept().await {
            let shared = self.shared.clone();
            shared.counters.accepted.add(1);
            let (kind, passenger) = (incoming.carries.kind(), incoming.passenger);
            match shared.fleet.admit(&incoming.aircraft, kind, passenger) {
                Ok(permit) => {
                    incoming.class = permit.class(incoming.class);
                    shared.counters.count_class(incoming.class);
                    flows.spawn(async move { shared.serve_flow(incoming, permit).await });
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
    async fn serve_flow(&self, incoming: Incoming, permit: Permit) {
        if let Host::Service(service) = incoming.target.host {
            return self.serve_service(service, incoming, permit).await;
        }
        let Incoming { aircraft, target, class, passenger, claim, carries } = incoming;
        match carries {
            Carried::Stream(stream) => {
                let from = (aircraft, passenger);
                self.serve_stream(target, (class, from), claim, stream, permit).await;
            }
            Carried::Datagrams { protocol, source, is_gateway, flow } => {
                let owner = Owner { aircraft, passenger, protocol, source, is_gateway };
                let code = match self.route(&target, protocol).await {
                    Ok(address) => {
                        let idle = self.limits.datagram_idle(protocol, target.port);
                        let flow = policed(flow, permit.police(class, passenger));
                        self.udp.carry(owner, address, class, flow, idle).await
                    }
                    Err(code) => {
                        flow.reset(code);
                        code
                    }
                };
                self.counters.count_reset(code);
                let aircraft = permit.aircraft();
                tracing::debug!(aircraft, %target, %class, protocol, %code, "flow of datagrams ended");
            }
        }
    }

    /// Serves a service of the gateway's own.
    async fn serve_service(&self, service: Service, incoming: Incoming, permit: Permit) {
        if service == Service::Pages {
            return self.serve_pages(incoming, permit).await;
        }
        let Incoming { aircraft, carries, .. } = incoming;
        let idle = self.limits.datagram_idle(ip::UDP, RESOLVER_PORT);
        match carries {
            Carried::Stream(stream) => self.names.serve_stream(&aircraft, stream, idle).await,
            Carried::Datagrams { protocol: ip::UDP, flow, .. } => {
                let code = self.names.serve_datagrams(&aircraft, flow, idle).await;
                self.counters.count_reset(code);
            }
            Carried::Datagrams { flow, .. } => flow.reset(ResetCode::Forbidden),
        }
    }

    /// Destination of datagrams for `target`, if it is allowed.
    async fn route(&self, target: &Target, protocol: u8) -> Result<SocketAddr, ResetCode> {
        let is_udp = protocol == ip::UDP;
        // Only UDP has ports.
        if is_udp == (target.port == 0) || !(is_udp || self.carries(protocol)) {
            return Err(ResetCode::Forbidden);
        }
        let route = self.reach(&Routes(&self.policy), protocol, target).await?;
        let address = route.address;
        let other_family = ip::is_echo(protocol) && protocol != ip::echo(address.ip());
        if other_family || is_udp && self.udp.is_own(route) {
            return Err(ResetCode::Forbidden);
        }
        Ok(address)
    }

    /// Returns `true` if packets of `protocol`, which is not UDP, may go out.
    fn carries(&self, protocol: u8) -> bool {
        ip::is_echo(protocol) || self.raw.carries(protocol)
    }

    async fn serve_stream(
        &self,
        target: Target,
        (class, from): (Class, ([u8; 32], u32)),
        claim: Option<Claim>,
        mut stream: Box<dyn FarStream>,
        permit: Permit,
    ) {
        let tcp = Tcp::of(self, &from);
        let dialled = self.dial(&target, (class, claim), &tcp, &mut *stream, &permit).await;
        if let Some((tcp, class)) = dialled {
            self.relay(tcp, &target, (class, from.1), stream, permit).await;
        }
    }

    /// Connects to `target`, and says of which class the flow is then. Where that fails `stream` is reset.
    async fn dial(
        &self,
        target: &Target,
        (class, claim): (Class, Option<Claim>),
        tcp: &Tcp<'_>,
        stream: &mut dyn FarStream,
        permit: &Permit,
    ) -> Option<(TcpStream, Class)> {
        let verdict = self.verify(claim, target, permit);
        let (dialled, verdict) = tokio::join!(self.reach(tcp, ip::TCP, target), verdict);
        match dialled {
            Ok(tcp) => {
                if let Some(verified) = verdict {
                    stream.confirm_class(verified);
                }
                stream.connected();
                let class = verdict.unwrap_or(class);
                net::mark(&tcp, class);
                Some((tcp, class))
            }
            Err(code) => {
                tracing::debug!(aircraft = permit.aircraft(), %target, %class, %code, "dial failed");
                self.counters.count_reset(code);
                stream.reset(code);
                None
            }
        }
    }

    /// Carries the flow between `local`, which leads to `target`, and `stream` to its end.
    async fn relay(
        &self,
        local: impl Local,
        target: &Target,
        (class, passenger): (Class, u32),
        stream: Box<dyn FarStream>,
        permit: Permit,
    ) {
        let relay = Relay::new(local, stream, Vec::new(), self.relay, self.counters.clone());
        let police = permit.police(class, passenger);
        if let Outcome::Reset(code) = relay.with_police(police).await {
            tracing::debug!(aircraft = permit.aircraft(), %target, %class, %code, "flow reset");
        }
    }

    /// The class that the flow's claim gives it, if the claim holds.
    async fn verify(
        &self,
        claim: Option<Claim>,
        target: &Target,
        permit: &Permit,
    ) -> Option<Class> {
        let (claim, Host::Ip(address)) = (claim?, &target.host) else { return None };
        self.counters.claims.add(1);
        let name = claim.name().parse().ok()?;
        if !claim::holds(&*self.dns, &name, *address).await {
            return None;
        }
        self.counters.claims_held.add(1);
        Some(permit.class(claim.class))
    }

    /// Resolves `target`, asks the policy, and connects to it by `protocol` as `connector` does.
    async fn reach<C: Connect>(
        &self,
        connector: &C,
        protocol: u8,
        target: &Target,
    ) -> Result<C::Stream, ResetCode> {
        let (port, deadline) = (target.port, self.connect_timeout);
        let permit = |ip| self.policy.permit(ip, protocol, port);
        match &target.host {
            Host::Ip(ip) => {
                let address = SocketAddr::new(*ip, port);
                eyeballs::dial_address(connector, &permit, address, deadline).await
            }
            // Answered before anything is dialled.
            Host::Service(_) => Err(ResetCode::Forbidden),
            Host::Name(name) => {
                eyeballs::dial(&*self.dns, connector, &permit, (name, port), deadline).await
            }
        }
    }
}

/// Aircraft and standard clients by what flows know them by.
fn aircraft_names(config: &GroundConfig) -> HashMap<[u8; 32], String> {
    let aircraft = config.aircraft.iter().map(|it| (*it.key().as_bytes(), it.name.clone()));
    let clients = config.clients.iter().map(|it| (it.login().identity(), it.name().to_owned()));
    aircraft.chain(clients).collect()
}

/// The kernel's TCP, to where the policy lets it go.
struct Tcp<'a> {
    policy: &'a Policy,
    /// Addresses to send from: of IPv4, of IPv6.
    from: [Option<IpAddr>; 2],
}

impl<'a> Tcp<'a> {
    /// Source addresses for `who`: what it sends or asks for leaves from its own address.
    fn of(shared: &'a Shared, who: &impl Hash) -> Self {
        let from = [false, true].map(|v6| shared.sources.of(who, v6));
        Self { policy: &shared.policy, from }
    }
}

impl Connect for Tcp<'_> {
    type Stream = TcpStream;

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, std::io::Result<TcpStream>> {
        Box::pin(async move {
            self.policy.path(address)?;
            let tcp = match self.from[usize::from(address.is_ipv6())] {
                None => TcpStream::connect(address).await?,
                Some(from) => net::bound(from)?.connect(address).await?,
            };
            net::tune(&tcp)?;
            Ok(tcp)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy for this machine's own addresses, which [`Policy::permit`] does not decide: one of
    /// them may be global.
    #[tokio::test]
    async fn this_machine_is_reached_only_where_it_is_allowed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let codes = async |policy: Policy| {
            let tcp = Tcp { policy: &policy, from: [None; 2] }.connect(here).await.err();
            let route = Routes(&policy).connect(here).await.err();
            [tcp, route].map(|error| error.map(|error| eyeballs::code_of(&error)))
        };
        assert_eq!(codes(Policy::default()).await, [Some(ResetCode::Forbidden); 2]);
        let allow = toml::from_str("allow = [\"127.0.0.1/32\"]").unwrap();
        let allow = Policy::new(&allow);
        assert_eq!(codes(allow).await, [None; 2]);
    }

    #[tokio::test]
    async fn connections_leave_from_the_address_that_is_configured() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let policy = Policy::new(&toml::from_str("allow = [\"127.0.0.0/8\"]").unwrap());
        let from = [Some("127.0.0.9".parse().unwrap()), None];
        let tcp = Tcp { policy: &policy, from };
        let _tcp = tcp.connect(listener.local_addr().unwrap()).await.unwrap();
        let (_, seen) = listener.accept().await.unwrap();
        assert_eq!(seen.ip(), IpAddr::from([127, 0, 0, 9]));
    }
}
