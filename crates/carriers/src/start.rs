//! Start of the configured transports.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_anchor::acceptor::AnchorAcceptor;
use bentpipe_anchor::hubs::Hubs;
use bentpipe_flow::{Host, Traffic};
use bentpipe_link::io::Hub;
use bentpipe_link::{ClassSettings, ModemRate, PerClass, Refused, SettingsError, SnapshotLimits};
use bentpipe_masque::{Client, Server, Socket};
use bentpipe_net::Inherited;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{
    TransportError, aerotcp, egresses, handshake_counter, homes, hubs, leg, link, masque,
    neighbours,
};
use crate::call::{any_address, bind_error, plain_socket, radio, resolve};
use bentpipe_config::{AirConfig, GroundConfig, Transport};
use bentpipe_transport::{
    Acceptor, Connector, Fleet, FlowDatagrams, FlowStream, Open, OpenDatagrams, OpenError, Outages,
    Reach,
};

/// Maximum wait of a flow for the ground's address.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts the transport to the ground of `config`. Returns at once, even if the ground is down or
/// its name cannot be resolved yet; a task of the current runtime keeps trying. A UDP socket with the
/// transport's name may be inherited. With `keep-flows` or further hubs, streams outlive a restart
/// or change of the hub.
pub fn connector(
    config: &AirConfig,
    inherited: &mut Inherited,
) -> Result<Arc<dyn Connector>, TransportError> {
    let first = first_connector(config, inherited)?;
    if config.hubs.is_empty() && !config.link.keep_flows {
        return Ok(first);
    }
    let all = Hubs::new(first);
    if !config.hubs.is_empty() {
        hubs::keep(&all, config);
    }
    Ok(Arc::new(all))
}

/// Starts the transport to the first ground.
fn first_connector(
    config: &AirConfig,
    inherited: &mut Inherited,
) -> Result<Arc<dyn Connector>, TransportError> {
    let peer = config.link.peer.clone();
    match &peer.host {
        Host::Ip(ip) => connect(config, inherited, &[SocketAddr::new(*ip, peer.port)]),
        Host::Name(_) | Host::Service(_) => {
            let (found, connector) = watch::channel(None);
            let (reach, reaches) = watch::channel(Reach::Down);
            let classes = Arc::<LaterClasses>::default();
            let later = classes.clone();
            let (config, mut inherited) = (config.clone(), inherited.split_udp());
            // Errors of the settings and the state file are reported now, not when the name is known.
            // An unused block of counters costs nothing.
            let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            match config.link.transport {
                Transport::AeroTcp => drop(aerotcp::air_config(&config, anywhere, 0)?),
                Transport::Link => drop(link::air_config(&config, anywhere, 0)?),
                Transport::Masque => {}
            }
            if config.link.transport != Transport::Masque {
                handshake_counter::claim(&config.link.state_file)?;
            }
            tokio::spawn(async move {
                let addresses = tokio::select! {
                    addresses = resolve(&peer) => addresses,
                    () = found.closed() => return,
                };
                match connect(&config, &mut inherited, &addresses) {
                    Ok(connector) => {
                        let of_link = connector.watch_reach();
                        hand_over(connector, &found, &later);
                        follow(of_link, reach).await;
                    }
                    Err(error) => tracing::error!(%error, "cannot start the link"),
                }
            });
            Ok(Arc::new(Awaited { connector, reach: reaches, classes }))
        }
    }
}

/// Starts every transport that `config` serves.
pub fn acceptor(
    config: &GroundConfig,
    inherited: &mut Inherited,
) -> Result<Vec<Arc<dyn Acceptor>>, TransportError> {
    let (egress, others) = (egresses::own(config, inherited)?, egresses::others(config)?);
    let neighbours = neighbours::start(config, &others);
    let anchored = |inner: Arc<dyn Acceptor>| {
        let anchored = AnchorAcceptor::new(inner, egress.clone(), others.clone());
        anchored.with_neighbours(neighbours.clone())
    };
    let mut acceptors: Vec<Arc<dyn Acceptor>> = Vec::new();
    if let Some(address) = config.link.listen {
        let socket = plain_socket(inherited, "link", address)?.with_marks(config.link.dscp);
        let shards = link::shards(config);
        let (mut peers, hubs) = (link::hub_config(config)?, leg::hubs(config)?);
        let keys = hubs.iter().map(|hub| *hub.key.as_bytes()).collect();
        peers.aircraft.extend(hubs);
        let hub = Hub::start_sharded(Box::new(socket), peers, shards);
        tracing::debug!(shards = hub.shards(), "the sessions are divided over processor cores");
        homes::keep(&hub, &config.link.state_file);
        hub.set_memory(link::total_memory(config));
        if let Some(beam) = &config.beam {
            hub.set_beam(beam.forward, beam.return_)?;
        }
        acceptors.push(Arc::new(anchored(Arc::new(hub)).with_hubs(keys)));
    }
    if let Some(address) = config.link.masque_listen {
        let socket = masque_socket(inherited, address)?;
        let server = Server::start(masque::server_config(config), socket)?;
        acceptors.push(Arc::new(anchored(Arc::new(server))));
    }
    if let Some(address) = config.link.aerotcp_listen {
        let config = aerotcp::ground_config(config)?;
        let socket = plain_socket(inherited, "aerotcp", address)?;
        let ground = bentpipe_aerotcp::io::Ground::start(Box::new(socket), config);
        acceptors.push(Arc::new(anchored(Arc::new(ground))));
    }
    Ok(acceptors)
}

/// The fleet of `config`, checked, for [`Acceptor::set_fleet`].
pub fn fleet(config: &GroundConfig) -> Result<Fleet, TransportError> {
    if config.link.aerotcp_listen.is_some() {
        aerotcp::ground_config(config)?;
    }
    let aircraft = link::hub_config(config)?.aircraft;
    let beam = config.beam.map_or((None, None), |beam| (beam.forward, beam.return_));
    Ok(Fleet { aircraft, hubs: leg::hubs(config)?, beam, memory: link::total_memory(config) })
}

fn connect(
    config: &AirConfig,
    inherited: &mut Inherited,
    peers: &[SocketAddr],
) -> Result<Arc<dyn Connector>, TransportError> {
    let (any, peers) = any_address(peers);
    let (peer, others) = (peers[0], peers[1..].iter().copied());
    match config.link.transport {
        Transport::Link => Ok(Arc::new(radio(config, inherited, &peers)?)),
        Transport::Masque => {
            let socket = masque_socket(inherited, any)?;
            let mut config = masque::client_config(config, peer);
            config.others = others.collect();
            Ok(Arc::new(Client::connect(config, socket)?))
        }
        Transport::AeroTcp => {
            let counter = handshake_counter::claim(&config.link.state_file)?;
            let socket = plain_socket(inherited, "aerotcp", any)?;
            let config = aerotcp::air_config(config, peer, counter)?;
            let air = bentpipe_aerotcp::io::Air::start(Box::new(socket), config);
            air.also_at(others);
            Ok(Arc::new(air))
        }
    }
}

fn masque_socket(inherited: &mut Inherited, address: SocketAddr) -> Result<Socket, TransportError> {
    let socket = inherited.udp_or_bind("masque", address)?;
    Socket::from_std(socket).map_err(|source| bind_error("masque", address, source))
}

/// Gives the link the class limits that were set before it was known, and then to its users.
fn hand_over(
    connector: Arc<dyn Connector>,
    found: &watch::Sender<Option<Arc<dyn Connector>>>,
    later: &LaterClasses,
) {
    // Locked until the link is known, so that later limits go to the link itself.
    let mut classes = lock(later);
    if let Some(Err(error)) = classes.take().map(|it| connector.set_classes(it)) {
        tracing::error!(%error, "the classes stay as they were");
    }
    drop(found.send(Some(connector)));
}

/// Repeats the reachability of the link, until either end is dropped.
async fn follow(mut of_link: watch::Receiver<Reach>, reach: watch::Sender<Reach>) {
    loop {
        reach.send_replace(*of_link.borrow_and_update());
        tokio::select! {
            changed = of_link.changed() => if changed.is_err() { return },
            () = reach.closed() => return,
        }
    }
}

/// A connector whose address is still being resolved.
struct Awaited {
    connector: watch::Receiver<Option<Arc<dyn Connector>>>,
    /// Reachability for those who asked before the address was known.
    reach: watch::Receiver<Reach>,
    classes: Arc<LaterClasses>,
}

/// Class limits to apply once there is an address.
type LaterClasses = Mutex<Option<PerClass<ClassSettings>>>;

fn lock(later: &LaterClasses) -> MutexGuard<'_, Option<PerClass<ClassSettings>>> {
    later.lock()
}

impl Awaited {
    async fn known(&self) -> Result<Arc<dyn Connector>, OpenError> {
        let mut connector = self.connector.clone();
        let known = timeout(PATIENCE, connector.wait_for(Option::is_some)).await;
        let connector = known.ok().and_then(Result::ok).and_then(|connector| connector.clone());
        connector.ok_or_else(|| OpenError::Down("its name has no address yet".to_owned()))
    }
}

impl Connector for Awaited {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(async move { self.known().await?.open(open).await })
    }

    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(async move { self.known().await?.open_datagrams(open).await })
    }

    fn modem_rate(&self, path: u8, reported: Option<ModemRate>) {
        if let Some(connector) = &*self.connector.borrow() {
            connector.modem_rate(path, reported);
        }
    }

    fn set_classes(&self, classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        let mut later = lock(&self.classes);
        match &*self.connector.borrow() {
            Some(connector) => connector.set_classes(classes),
            None => {
                *later = Some(classes);
                Ok(())
            }
        }
    }

    fn traffic(&self, most: SnapshotLimits) -> Option<Traffic> {
        self.connector.borrow().as_ref().and_then(|connector| connector.traffic(most))
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        match &*self.connector.borrow() {
            Some(connector) => connector.watch_reach(),
            None => self.reach.clone(),
        }
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        let mut connector = self.connector.clone();
        Box::pin(async move {
            let known =
                connector.wait_for(Option::is_some).await.map(|connector| connector.clone());
            // Otherwise the task that resolves the address has ended without a link.
            if let Ok(Some(connector)) = known {
                connector.failed().await;
            }
        })
    }

    fn take_refused(&self) -> Refused {
        self.connector
            .borrow()
            .as_ref()
            .map(|connector| connector.take_refused())
            .unwrap_or_default()
    }

    fn pulse(&self) -> Option<u64> {
        self.connector.borrow().as_ref().and_then(|connector| connector.pulse())
    }

    fn is_doubtful(&self) -> bool {
        self.connector.borrow().as_ref().is_some_and(|connector| connector.is_doubtful())
    }

    fn outages(&self) -> Outages {
        self.connector.borrow().as_ref().map(|connector| connector.outages()).unwrap_or_default()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let connector = self.connector.borrow().clone();
        Box::pin(async move {
            if let Some(connector) = connector {
                connector.close().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::Class;

    fn awaited(connector: watch::Receiver<Option<Arc<dyn Connector>>>) -> Awaited {
        Awaited { connector, reach: watch::channel(Reach::Down).1, classes: Arc::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn flows_wait_a_limited_time_for_the_address() {
        let (_found, connector) = watch::channel(None);
        let target = "origin.test:80".parse().unwrap();
        let first = Default::default();
        let open = Open { target, class: Class::BestEffort, passenger: 1, claim: None, first };
        let began = tokio::time::Instant::now();
        let error = awaited(connector).open(open).await.err().unwrap();
        assert!(matches!(error, OpenError::Down(_)), "{error}");
        assert_eq!(began.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_cannot_start_is_a_failure() {
        let (found, connector) = watch::channel(None);
        let awaited = awaited(connector);
        let waiting = timeout(PATIENCE, awaited.failed()).await;
        assert!(waiting.is_err(), "its name may have an address yet");
        drop(found);
        awaited.failed().await;
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error() {
        let taken = bentpipe_net::bind_udp("link", "127.0.0.1:0".parse().unwrap()).unwrap();
        let error = plain_socket(&mut Inherited::default(), "link", taken.local_addr().unwrap());
        assert!(error.err().unwrap().to_string().contains("choose another port"));
    }
}
