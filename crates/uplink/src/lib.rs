//! Handling of clients that is common to all listeners, once the destination is known.
//!
//! | module | contents |
//! |---|---|
//! | this page | [`Uplink`], which opens flows to the ground gateway |
//! | [`accept`] | acceptance of clients, each with its permit |
//! | [`descriptors`] | the number of connections that fits into the process's limit |
//! | `handover` | clients' connections of the previous process |
//! | [`identity`] | the device of a client |
//! | [`passengers`] | passengers, permits and limits |
//! | [`classes`] | the class of a flow |
//! | `requests` | requests to open flows |
//! | [`lazy_flow`] | a flow that opens with its first bytes |
//! | [`upload`] | uploads that are answered before they end |
//! | [`write_timeout`] | connections whose client does not read |

#![forbid(unsafe_code)]

pub mod accept;
pub mod classes;
pub mod descriptors;
mod handover;
pub mod identity;
pub mod lazy_flow;
pub mod passengers;
mod requests;
pub mod upload;
pub mod write_timeout;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_classify::{Mac, Name};
use bentpipe_dns::Asker;
use bentpipe_flow::{Host, Target};
use bentpipe_link::{SettingsError, SnapshotLimits};
use bentpipe_schedule::{Class, Dscp};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::classes::Classes;
use crate::descriptors::Fitted;
use crate::identity::{Identity, Neighbours, Newcomer, Whose};
use crate::passengers::{FlowPermit, Kind, Limit, Passengers};
use bentpipe_config::{AirConfig, AirLimits};
use bentpipe_metering::counters::Counters;
use bentpipe_metering::rate_limited_log::RateLimitedLog;
use bentpipe_metering::usage::{Book, Meter};
use bentpipe_relay::flows::Flows;
use bentpipe_relay::police::PassengerCeiling;
use bentpipe_relay::{OnClassChange, Outcome, Relay, reset_on_close};
use bentpipe_status::Session;
use bentpipe_transport::still::OUTAGE_LASTS;
use bentpipe_transport::{Connector, MAX_FIRST_BYTES, Reach, wait_for_reach};

/// Maximum wait for the client's first bytes, so that they travel with the opening. Only protocols
/// in which the server speaks first lose this time.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(10);

/// Maximum wait of a proxy client for a link that is not up yet, before it gets an error.
const LINK_PATIENCE: Duration = Duration::from_secs(10);

/// Burst of new TCP connections of a passenger, in seconds of its average rate. Browsers open about
/// 30 for a page, and restore several pages at once.
const TCP_BURST_SECONDS: u32 = 4;

/// Burst of new datagram flows of a passenger, in seconds of its average rate.
const BURST_SECONDS: u32 = 2;

/// Message about a client that shares the part of sources that may be invented.
const TOO_MANY_WAIT: &str = "too many connections wait until their devices are known: one more shares a small part with \
     sources that may be invented";

/// Knowledge about a client that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knows {
    /// Its address, verified by the handshake, and its device if the kernel knows it.
    Address,
    /// Nothing: its device may have many addresses.
    Nothing,
}

/// Mapping from fake-IP addresses to their names.
pub trait NameMap: Send + Sync {
    /// Returns the destination of a flow to `target`, with a fake-IP address replaced by its name.
    fn by_name(&self, target: Target) -> Target;
}

/// State shared by the listeners.
pub struct Uplink {
    /// Transport to the ground gateway.
    pub connector: Arc<dyn Connector>,
    /// Limits of the configuration.
    pub limits: AirLimits,
    /// Counters of the gateway.
    pub counters: Arc<Counters>,
    /// Tasks of the open flows.
    pub flows: Flows,
    /// Log of refused flows.
    pub log: RateLimitedLog,
    unproven_log: RateLimitedLog,
    /// Places for connections that wait until their client's device is known.
    unknown: Arc<Semaphore>,
    /// `true` if received QUIC datagrams are restored to their sending order.
    pub quic_in_order: bool,
    /// Classes of new flows.
    pub classes: Arc<Classes>,
    /// Usage records of passengers, if configured.
    pub usage: Option<Arc<Book>>,
    /// Ceiling of one passenger in the network class.
    pub ceiling: Arc<PassengerCeiling>,
    names: Option<Arc<dyn NameMap>>,
    identity: Arc<dyn Identity>,
    neighbours: Arc<Neighbours>,
    passengers: Arc<Passengers>,
}

impl Uplink {
    /// Creates the state of `config`, which opens flows over `connector` in tasks of `flows`.
    pub fn new(config: &AirConfig, connector: Arc<dyn Connector>, flows: Flows) -> Self {
        let fitted = Fitted::of_process(config);
        let limits = config.limits.clone();
        let classes = Arc::new(Classes::new(config.rules.clone()));
        let udp = &limits.udp;
        let bounds = [
            Limit {
                all: fitted.connections,
                each: limits.max_flows_per_passenger,
                each_per_second: limits.flows_per_second_per_passenger,
                burst_seconds: TCP_BURST_SECONDS,
            },
            Limit {
                all: udp.max_flows,
                each: udp.max_flows_per_passenger,
                each_per_second: udp.flows_per_second_per_passenger,
                burst_seconds: BURST_SECONDS,
            },
            Limit {
                all: limits.ip.max_flows,
                each: limits.ip.max_flows_per_passenger,
                each_per_second: limits.ip.flows_per_second_per_passenger,
                burst_seconds: BURST_SECONDS,
            },
        ];
        let (counters, log, unproven_log): (Arc<Counters>, _, _) = Default::default();
        let neighbours = Arc::new(Neighbours::default());
        let passengers = Passengers::new(bounds, neighbours.clone(), counters.clone());
        let usage = config.usage.as_ref();
        let usage = usage.map(|usage| Book::new(&usage.directory, usage.interval.into()));
        let ceiling = PassengerCeiling::new(config.classes.passenger_ceil());
        Self {
            connector,
            limits,
            counters,
            flows,
            log,
            unproven_log,
            unknown: Arc::new(Semaphore::new(fitted.unknown)),
            quic_in_order: config.link.quic_in_order,
            classes,
            usage,
            ceiling,
            names: None,
            identity: neighbours.clone(),
            neighbours,
            passengers,
        }
    }

    #[cfg(test)]
    /// Replaces the identity of clients.
    pub fn set_identity(&mut self, identity: Arc<dyn Identity>) {
        self.identity = identity;
    }

    /// From now on, maps fake-IP addresses with `names`.
    pub fn set_names(&mut self, names: Arc<dyn NameMap>) {
        self.names = Some(names);
    }

    /// Applies the rules of `config` to new flows and its classes to all flows. Changes nothing if
    /// the link rejects the classes.
    pub fn apply(&self, config: &AirConfig) -> Result<(), SettingsError> {
        self.connector.set_classes(config.classes.settings())?;
        self.classes.set_rules(config.rules.clone());
        self.ceiling.set(config.classes.passenger_ceil());
        Ok(())
    }

    /// Returns the session with the ground gateway for the status file, if there is one.
    pub fn status(&self, most: SnapshotLimits) -> Vec<Session> {
        let session = self.connector.traffic(most).map(|traffic| {
            let of_flows = traffic.flows.iter().map(|flow| flow.passenger);
            let shown = traffic.passengers.iter().map(|seat| seat.passenger).chain(of_flows);
            let clients = self.passengers.addresses(&shown.collect());
            let called = |(number, client)| (number, self.identity.label(client));
            Session::of(traffic, None, &clients.into_iter().map(called).collect())
        });
        session.into_iter().collect()
    }

    /// Admits a client, or resets its connection if a limit is reached.
    pub fn admit(&self, tcp: &TcpStream, client: SocketAddr, knows: Knows) -> Option<FlowPermit> {
        self.counters.accepted.add(1);
        let newcomer = match knows {
            Knows::Address => self.newcomer(client.ip(), true),
            Knows::Nothing => {
                self.counters.admitted_unproven.add(1);
                if let Some(unsaid) = self.unproven_log.turn() {
                    tracing::warn!(client = %client.ip(), unsaid, "{TOO_MANY_WAIT}");
                }
                Newcomer { whose: None, ..self.newcomer(client.ip(), false) }
            }
        };
        let permit = self.passengers.admit(newcomer, Kind::Streams);
        if permit.is_none() {
            self.counters.over_limit.add(1);
            reset_on_close(tcp);
            return None;
        }
        // Fails only if the client has gone, which the next read reports.
        let _ = bentpipe_net::tune(tcp);
        if self.passengers.open(Kind::Streams) > bentpipe_net::CROWD {
            bentpipe_net::size_buffers(tcp, bentpipe_net::IN_A_CROWD);
        }
        permit
    }

    /// Admits a datagram flow of IP protocol `protocol`, unless a limit is reached. If the client
    /// `is_connected`, its address has been verified.
    pub fn admit_datagrams(
        &self,
        client: IpAddr,
        protocol: u8,
        is_connected: bool,
    ) -> Option<FlowPermit> {
        let newcomer = self.newcomer(client, is_connected);
        let permit = self.passengers.admit(newcomer, Kind::of_protocol(protocol));
        if permit.is_none() {
            self.counters.over_limit.add(1);
        }
        permit
    }

    fn newcomer(&self, client: IpAddr, is_connected: bool) -> Newcomer {
        Newcomer::new(client, is_connected, self.limits.passenger, &*self.identity)
    }

    /// The source of a datagram as the resolver identifies it.
    pub fn asker(&self, client: IpAddr) -> Asker {
        self.newcomer(client, false).asker()
    }

    /// Returns `true` if the source of a datagram may be spoofed, as far as is known now.
    pub fn is_unproven(&self, client: IpAddr) -> bool {
        self.whose(client).is_none()
    }

    /// Returns the passenger that sends datagrams from this address; `None` if it may be spoofed.
    pub fn whose(&self, client: IpAddr) -> Option<Whose> {
        self.newcomer(client, false).whose
    }

    /// Waits briefly until the client's device is known.
    pub async fn prove(&self, client: IpAddr) {
        self.identity.prove(client).await;
    }

    /// Follows the kernel's table of neighbours. Never returns.
    pub async fn follow_neighbours(&self) {
        self.neighbours.follow().await;
    }

    /// Records a client that does not speak its listener's protocol.
    pub fn garbage(&self, permit: &FlowPermit, why: &str) {
        self.counters.garbage.add(1);
        self.log.refused(permit.client, why);
    }

    /// Records a client without valid credentials.
    pub fn unauthorized(&self, permit: &FlowPermit) {
        self.counters.unauthorized.add(1);
        self.log.refused(permit.client, "wrong username or password");
    }

    /// Resets a proxy client that is not in a configured network.
    pub fn not_a_client(&self, tcp: &TcpStream, client: IpAddr) {
        self.counters.accepted.add(1);
        self.counters.unauthorized.add(1);
        self.log.refused(client, "it is in no network of clients under [listen]");
        reset_on_close(tcp);
    }

    /// Returns `true` if there is a link to the ground gateway, which may be silent for a moment.
    /// Waits a while for one, so that clients are also served when they start earlier than the
    /// link.
    pub async fn has_link(&self) -> bool {
        if self.connector.outages().now >= OUTAGE_LASTS {
            return false;
        }
        let waiting = wait_for_reach(&*self.connector, |reach| reach != Reach::Down);
        timeout(LINK_PATIENCE, waiting).await.is_ok()
    }

    /// Returns the destination of a flow to `target`, with a fake-IP address replaced by its name.
    pub fn by_name(&self, target: Target) -> Target {
        match &self.names {
            Some(names) => names.by_name(target),
            None => target,
        }
    }

    /// Client's DSCP of `tcp`, if a rule depends on it and the kernel reports it: see
    /// [`bentpipe_net::mark_of`].
    pub fn mark_of(&self, tcp: &TcpStream) -> Dscp {
        if self.classes.ask_marks() { bentpipe_net::mark_of(tcp) } else { Dscp::DF }
    }

    /// Device of the client, if a rule depends on it.
    fn device_of(&self, permit: &FlowPermit) -> Option<Mac> {
        let asked = self.classes.ask_devices();
        asked.then(|| self.identity.mac(permit.client)).flatten()
    }

    /// Returns a meter for a flow of the client, if usage is recorded.
    pub fn meter(&self, permit: &FlowPermit, class: Class) -> Option<Meter> {
        let usage = self.usage.as_ref()?;
        Some(usage.meter(permit.label(), class))
    }

    /// Callback for the ground gateway's confirmation of a flow's class.
    fn on_class_change(&self, name: Name, address: IpAddr) -> OnClassChange {
        let (classes, counters) = (self.classes.clone(), self.counters.clone());
        Box::new(move |class, tcp| {
            classes.verified(&name, address);
            counters.claims_held.add(1);
            bentpipe_net::mark(tcp, class);
        })
    }

    /// Carries `tcp` to `target` until both directions are finished. `read` was already read from
    /// it.
    pub async fn carry(&self, tcp: TcpStream, target: Target, permit: &FlowPermit, read: Bytes) {
        let wants_more = |first: &[u8]| self.classes.wants_more(first);
        let mut first = first_bytes(&tcp, read, wants_more).await;
        let pending = first.split_off(first.len().min(MAX_FIRST_BYTES));
        let (open, exchanges) = self.open_measured(target, permit, self.mark_of(&tcp), first);
        bentpipe_net::mark(&tcp, open.class);
        let name = open.claim.as_ref().and_then(|claim| claim.name().parse().ok());
        let on_class_change = match (name, &open.target.host) {
            (Some(name), Host::Ip(address)) => Some(self.on_class_change(name, *address)),
            _ => None,
        };
        let owner = owner(open.class, &open.target.to_string());
        let mut meter = self.meter(permit, open.class);
        let police = self.ceiling.of(open.class, permit.number);
        if let Some(meter) = &mut meter {
            meter.up(open.first.len() as u64);
        }
        self.counters.to_link_bytes.add(open.first.len() as u64);
        let connector = match self.connector.open(open).await {
            Ok(connector) => connector,
            Err(error) => {
                self.counters.count_reset(error.code());
                self.log.warn("cannot open a flow", &error);
                reset_on_close(&tcp);
                return;
            }
        };
        let limits = self.limits.relay();
        let relay = Relay::new(tcp, connector, pending.into(), limits, self.counters.clone());
        let relay = relay.with_class_change(on_class_change).with_meter(meter).with_police(police);
        let relay = relay.with_activity(permit.activity()).with_exchanges(exchanges);
        self.relay(relay, &owner, permit).await;
    }

    /// Relays a flow until it ends, or is left for the next process together with `owner`.
    async fn relay(&self, relay: Relay, owner: &[u8], permit: &FlowPermit) {
        if let Some(Outcome::Reset(code)) = relay.run(self.flows.handover(), owner).await {
            let target = String::from_utf8_lossy(owner.get(1..).unwrap_or_default());
            tracing::debug!(passenger = permit.number, %target, %code, "flow reset");
        }
    }
}

/// Description of a flow for the next process: its class, and its target for the log.
fn owner(class: Class, target: &str) -> Vec<u8> {
    [&[class as u8], target.as_bytes()].concat()
}

/// Returns `read` and the bytes that the client sends within [`FIRST_BYTES_WAIT`]: everything
/// available at once, and more while `wants_more` returns `true`. The relay's next read reports
/// errors and the end.
async fn first_bytes(tcp: &TcpStream, read: Bytes, wants_more: impl Fn(&[u8]) -> bool) -> Bytes {
    if !read.is_empty() && !wants_more(&read) {
        return read;
    }
    let mut first = BytesMut::from(read);
    let reading = async {
        // The socket may be reported as readable without data.
        while tcp.readable().await.is_ok() {
            let room = MAX_FIRST_BYTES.saturating_sub(first.len());
            first.reserve(room);
            match tcp.try_read_buf(&mut (&mut first).limit(room)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(1..) if wants_more(&first) => {}
                _ => return,
            }
        }
    };
    // After the timeout, the bytes received so far suffice.
    let _ = timeout(FIRST_BYTES_WAIT, reading).await;
    // Copied, so that a short hello does not occupy the whole buffer.
    Bytes::copy_from_slice(&first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn early_client_data_travels_with_the_opening() {
        let (mut client, tcp) = sockets().await;
        client.write_all(b"hello").await.unwrap();
        assert_eq!(first_bytes(&tcp, Bytes::new(), |_| false).await, "hello");
        client.shutdown().await.unwrap();
        assert_eq!(first_bytes(&tcp, Bytes::new(), |_| true).await, "");
    }

    #[tokio::test]
    async fn a_silent_client_costs_ten_milliseconds() {
        let (_client, tcp) = sockets().await;
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        assert_eq!(first_bytes(&tcp, Bytes::new(), |_| true).await, "");
        // Timers round up to the next millisecond.
        assert!(began.elapsed() <= FIRST_BYTES_WAIT + Duration::from_millis(1));
    }

    #[tokio::test]
    async fn a_message_in_pieces_is_waited_for_while_it_is_wanted() {
        let (mut client, tcp) = sockets().await;
        client.write_all(b"lo").await.unwrap();
        let whole = |first: &[u8]| first.len() < 5;
        assert_eq!(first_bytes(&tcp, Bytes::from_static(b"hel"), whole).await, "hello");
        let (mut client, tcp) = sockets().await;
        client.write_all(&[7; 2 * MAX_FIRST_BYTES]).await.unwrap();
        let most = first_bytes(&tcp, Bytes::from_static(b"a"), |_| true).await;
        assert_eq!(most.len(), MAX_FIRST_BYTES);
        client.shutdown().await.unwrap();
    }
}
