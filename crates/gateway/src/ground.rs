//! The ground gateway: takes the flows of known aircraft, resolves, checks, dials, relays.

mod claim;
pub mod eyeballs;
pub mod fleet;
pub mod policy;
pub mod resolve;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::{Class, Host, ResetCode, Target};
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

use crate::config::GroundConfig;
use crate::counters::Counters;
use crate::far::{self, Arrivals, Claim, Incoming};
use crate::flows::Flows;
use crate::net::{self, Inherited, StartError};
use crate::relay::{Outcome, Relay, RelayLimits};
use eyeballs::Connect;
use fleet::{Fleet, Permit};
use policy::Policy;
use resolve::Dns;

/// A ground gateway, ready to serve.
#[derive(Clone)]
pub struct Ground {
    shared: Arc<Shared>,
    drain: Duration,
}

struct Shared {
    fleet: Arc<Fleet>,
    policy: Policy,
    dns: Dns,
    connect_timeout: Duration,
    relay: RelayLimits,
    counters: Arc<Counters>,
}

/// Runs the ground gateway of `config` until `shutdown`, then lets open flows finish
/// for the configured time. Ends early when every transport has closed.
pub async fn run(
    config: &GroundConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let gateway = Ground::new(config)?;
    let arrivals = far::arrivals(config, &mut Inherited::from_env()?)?;
    for from in &arrivals {
        let address = from.local_addr().map(|address| address.to_string()).unwrap_or_default();
        tracing::info!(address, aircraft = config.aircraft.len(), "serving");
    }
    gateway.serve(arrivals.clone(), shutdown).await;
    futures_util::future::join_all(arrivals.iter().map(|from| from.close())).await;
    Ok(())
}

impl Ground {
    /// Prepares to serve `config`'s aircraft.
    pub fn new(config: &GroundConfig) -> Result<Self, StartError> {
        net::raise_descriptor_limit();
        let shared = Shared {
            fleet: Arc::new(Fleet::new(&config.aircraft, config.limits.max_flows)),
            policy: Policy::new(config.dial.allow.clone()),
            dns: Dns::new(&config.dns, &config.hosts)?,
            connect_timeout: config.dial.connect_timeout.into(),
            relay: config.limits.relay(),
            counters: Arc::default(),
        };
        Ok(Self { shared: Arc::new(shared), drain: config.limits.drain_timeout.into() })
    }

    /// What happened so far.
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
            match shared.fleet.admit(&incoming.aircraft) {
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
                    incoming.stream.reset(code);
                }
            }
        }
    }
}

impl Shared {
    async fn serve_flow(&self, mut incoming: Incoming, permit: Permit) {
        let (target, mut class) = (incoming.target.clone(), incoming.class);
        let verdict = self.verify(incoming.claim.take(), &target, &permit);
        let (dialled, verdict) = tokio::join!(self.dial(&target), verdict);
        match dialled {
            Ok(tcp) => {
                if let Some(verified) = verdict {
                    class = verified;
                    incoming.stream.confirm_class(class);
                }
                incoming.stream.connected();
                net::mark(&tcp, class);
                let relay =
                    Relay::new(tcp, incoming.stream, Vec::new(), self.relay, self.counters.clone());
                if let Outcome::Reset(code) = relay.await {
                    tracing::debug!(aircraft = permit.aircraft(), %target, %class, %code, "flow reset");
                }
            }
            Err(code) => {
                tracing::debug!(aircraft = permit.aircraft(), %target, %class, %code, "dial failed");
                self.counters.count_reset(code);
                incoming.stream.reset(code);
            }
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
        if !claim::holds(&self.dns, &name, *address).await {
            return None;
        }
        self.counters.claims_held.add(1);
        Some(permit.class(claim.class))
    }

    async fn dial(&self, target: &Target) -> Result<TcpStream, ResetCode> {
        let permit = |ip| self.policy.permit(ip);
        let (port, deadline) = (target.port, self.connect_timeout);
        match &target.host {
            Host::Ip(ip) => {
                let address = SocketAddr::new(*ip, port);
                eyeballs::dial_address(&Tcp, &permit, address, deadline).await
            }
            Host::Name(name) => {
                eyeballs::dial(&self.dns, &Tcp, &permit, (name, port), deadline).await
            }
        }
    }
}

/// The kernel's TCP.
struct Tcp;

impl Connect for Tcp {
    type Stream = TcpStream;

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, std::io::Result<TcpStream>> {
        Box::pin(async move {
            let tcp = TcpStream::connect(address).await?;
            net::tune(&tcp)?;
            Ok(tcp)
        })
    }
}
