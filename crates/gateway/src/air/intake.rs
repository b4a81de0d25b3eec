//! Common work of all listeners on a client, once its destination is known.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::{Host, Most, SettingsError, Target};
use bentpipe_schedule::{Class, Dscp};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::board::Board;
use super::classes::{Asked, Classes};
use super::identity::{Identity, Neighbours, Newcomer};
use super::passengers::{EVERYONE_ELSE, Kind, Limit, Passengers, Ticket};
use super::web::Web;
use crate::classify::{Mac, Name, Protocol};
use crate::config::{AirConfig, AirLimits};
use crate::counters::Counters;
use crate::far::{Claim, FarEnd, MAX_FIRST_BYTES, Open, OpenDatagrams, Reach};
use crate::flows::Flows;
use crate::net;
use crate::pages::AirPages;
use crate::police::Ceil;
use crate::quiet::Quiet;
use crate::relay::{Outcome, Relay, Verdict, reset_on_close};
use crate::status::Session;
use crate::usage::{Book, Meter};

/// Maximum wait for the client's first bytes, so that they travel with the opening. Only protocols
/// in which the server speaks first lose this time.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(10);

/// Maximum wait of a proxy's client for a link that is not up yet, before it is told so.
const LINK_PATIENCE: Duration = Duration::from_secs(10);

/// An outage of this length is expected to last: who comes then is told so at once, and does not wait for its end
/// without knowing. Most fades are shorter.
const OUTAGE_LASTS: Duration = Duration::from_secs(20);

/// Polling interval meanwhile.
const LINK_LOOK: Duration = Duration::from_millis(100);

/// Seconds of its average rate of new TCP connections that a passenger may open at once: browsers open some
/// 30 for a page, and restore several pages together.
const TCP_BURST_SECONDS: f64 = 4.0;

/// The same for flows of datagrams.
const BURST_SECONDS: f64 = 2.0;

/// State shared by the listeners.
pub struct Intake {
    pub far: Arc<dyn FarEnd>,
    pub limits: AirLimits,
    pub counters: Arc<Counters>,
    pub flows: Flows,
    pub quiet: Quiet,
    /// `true` if received QUIC datagrams are put back in order.
    pub quic_in_order: bool,
    pub classes: Arc<Classes>,
    /// Book of passengers' usage.
    pub usage: Option<Arc<Book>>,
    /// Ceiling of one passenger in the network's class.
    pub ceil: Arc<Ceil>,
    /// Split HTTP's half on board, where there is one.
    pub pages: Option<Arc<AirPages>>,
    /// The resolver on board.
    pub board: Option<Arc<Board>>,
    /// The HTTP cache, where there is one.
    pub web: Option<Arc<Web>>,
    identity: Arc<dyn Identity>,
    neighbours: Arc<Neighbours>,
    passengers: Arc<Passengers>,
}

impl Intake {
    pub fn new(config: &AirConfig, far: Arc<dyn FarEnd>, flows: Flows) -> Self {
        let limits = config.limits.clone();
        let classes = Arc::new(Classes::new(config.rules.clone()));
        let udp = &limits.udp;
        let bounds = [
            Limit {
                all: limits.max_flows,
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
        let (counters, quiet): (Arc<Counters>, _) = Default::default();
        let neighbours = Arc::new(Neighbours::default());
        let passengers = Passengers::new(bounds, neighbours.clone(), counters.clone());
        let idle = limits.idle_timeout.into();
        let pages = config.split_http.as_ref();
        let pages = pages.map(|pages| AirPages::new(pages.settings(idle), counters.clone()));
        let usage = config.usage.as_ref();
        let usage = usage.map(|usage| Book::new(&usage.directory, usage.interval.into()));
        let ceil = Ceil::new(config.classes.passenger_ceil());
        let board = None;
        Self {
            far,
            limits,
            counters,
            flows,
            quiet,
            quic_in_order: config.link.quic_in_order,
            classes,
            usage,
            ceil,
            pages,
            board,
            web: None,
            identity: neighbours.clone(),
            neighbours,
            passengers,
        }
    }

    /// From now on rules, classes, certificates and how DNS answers are judged are those of `config`: rules
    /// and certificates for what comes, classes for flows that are open too. Nothing changes where the link
    /// cannot work like that.
    pub fn apply(&self, config: &AirConfig) -> Result<(), SettingsError> {
        self.far.set_classes(config.classes.settings())?;
        self.classes.set_rules(config.rules.clone());
        self.ceil.set(config.classes.passenger_ceil());
        if let (Some(board), Some(dns)) = (&self.board, &config.dns) {
            board.apply(dns);
        }
        if let Some(web) = &self.web {
            web.set_certificates(config);
        }
        Ok(())
    }

    /// The session to the ground as the status has it, if there is one.
    pub fn status(&self, most: Most) -> Vec<Session> {
        if let Some(web) = &self.web {
            web.tell(&self.counters);
        }
        let session = self.far.traffic(most).map(|traffic| {
            let of_flows = traffic.flows.iter().map(|flow| flow.passenger);
            let shown = traffic.passengers.iter().map(|seat| seat.passenger).chain(of_flows);
            let clients = self.passengers.addresses(&shown.collect());
            let called = |(number, client)| (number, self.identity.label(client));
            Session::of(traffic, None, &clients.into_iter().map(called).collect())
        });
        session.into_iter().collect()
    }

    /// Counts a client in, or resets it where a limit is reached.
    pub fn admit(&self, tcp: &TcpStream, client: SocketAddr) -> Option<Ticket> {
        self.counters.accepted.add(1);
        let newcomer = self.newcomer(client.ip(), true);
        let ticket = self.passengers.admit(newcomer, Kind::Streams);
        if ticket.is_none() {
            self.counters.over_limit.add(1);
            reset_on_close(tcp);
            return None;
        }
        // Fails only when the client has already gone, which the next read tells.
        let _ = net::tune(tcp);
        ticket
    }

    /// Counts a flow of datagrams of the IP protocol `protocol` in, unless a limit is reached. The client
    /// is there for sure if it `is_connected`.
    pub fn admit_datagrams(
        &self,
        client: IpAddr,
        protocol: u8,
        is_connected: bool,
    ) -> Option<Ticket> {
        let newcomer = self.newcomer(client, is_connected);
        let ticket = self.passengers.admit(newcomer, Kind::of_protocol(protocol));
        if ticket.is_none() {
            self.counters.over_limit.add(1);
        }
        ticket
    }

    fn newcomer(&self, client: IpAddr, is_connected: bool) -> Newcomer {
        Newcomer::new(client, is_connected, self.limits.passenger, &*self.identity)
    }

    /// Returns `true` if the source of a datagram may be invented, as far as is known now.
    pub fn is_unproven(&self, client: IpAddr) -> bool {
        self.newcomer(client, false).whose.is_none()
    }

    /// Waits a moment until it is known.
    pub async fn prove(&self, client: IpAddr) {
        self.identity.prove(client).await;
    }

    /// Follows the kernel's table of neighbours, for ever.
    pub async fn follow_neighbours(&self) {
        self.neighbours.follow().await;
    }

    /// Notes a client that speaks no protocol of its listener.
    pub fn garbage(&self, ticket: &Ticket, why: &str) {
        self.counters.garbage.add(1);
        self.quiet.refused(ticket.client, why);
    }

    /// Notes a client without the right credentials.
    pub fn unauthorized(&self, ticket: &Ticket) {
        self.counters.unauthorized.add(1);
        self.quiet.refused(ticket.client, "wrong username or password");
    }

    /// Resets a client of the proxies that is in none of the configured networks.
    pub fn not_a_client(&self, tcp: &TcpStream, client: IpAddr) {
        self.counters.accepted.add(1);
        self.counters.unauthorized.add(1);
        self.quiet.refused(client, "it is in no network of clients under [listen]");
        reset_on_close(tcp);
    }

    /// Tells if there is a link to the ground, of which nothing may be heard for a moment. Waits a
    /// while for one, so that clients that come before the ground does are served.
    pub async fn has_link(&self) -> bool {
        if self.far.outages().now >= OUTAGE_LASTS {
            return false;
        }
        let waiting = async {
            while self.far.reach() == Reach::Down {
                sleep(LINK_LOOK).await;
            }
        };
        timeout(LINK_PATIENCE, waiting).await.is_ok()
    }

    /// Request to the far end, for a client whose connection is marked with `dscp`.
    pub fn open(&self, target: Target, ticket: &Ticket, dscp: Dscp, first: Bytes) -> Open {
        let target = self.by_name(target);
        let asked = Asked {
            target: &target,
            protocol: Protocol::Tcp,
            dscp,
            ticket,
            mac: self.device_of(ticket),
            first: &first,
        };
        let decision = self.classes.decide(&asked);
        let claim = decision.claim;
        let claim = claim.and_then(|it| Claim::new(it.name.as_str(), it.class).ok());
        self.counters.claims.add(u64::from(claim.is_some()));
        self.counters.count_class(decision.class);
        Open { target, class: decision.class, passenger: ticket.number, claim, first }
    }

    /// Request to the far end, for this gateway itself, in `class`.
    pub fn open_own(&self, target: Target, class: Class) -> Open {
        self.counters.count_class(class);
        let target = self.by_name(target);
        Open { target, class, passenger: EVERYONE_ELSE, claim: None, first: Bytes::new() }
    }

    /// Destination of a flow to `target`, whose address may stand for a name.
    pub fn by_name(&self, target: Target) -> Target {
        match &self.board {
            Some(board) => board.by_name(target),
            None => target,
        }
    }

    /// The resolver on board, where it answers what passengers ask others.
    pub fn intercepting(&self) -> Option<&Arc<Board>> {
        self.board.as_ref().filter(|board| board.intercepts)
    }

    /// Client's mark of `tcp`, if a rule asks for it and the kernel knows: see [`net::mark_of`].
    pub fn mark_of(&self, tcp: &TcpStream) -> Dscp {
        if self.classes.ask_marks() { net::mark_of(tcp) } else { Dscp::DF }
    }

    /// The client's device, where a rule asks for it.
    fn device_of(&self, ticket: &Ticket) -> Option<Mac> {
        let asked = self.classes.ask_devices();
        asked.then(|| self.identity.mac(ticket.client)).flatten()
    }

    /// Counts what a flow of the client uses, where that is kept.
    pub fn meter(&self, ticket: &Ticket, class: Class) -> Option<Meter> {
        let usage = self.usage.as_ref()?;
        Some(usage.meter(self.identity.label(ticket.client), class))
    }

    /// Action for the ground's confirmation of a flow's class.
    fn on_verdict(&self, name: Name, address: IpAddr) -> Verdict {
        let (classes, counters) = (self.classes.clone(), self.counters.clone());
        Box::new(move |class, tcp| {
            classes.verified(&name, address);
            counters.claims_held.add(1);
            net::mark(tcp, class);
        })
    }

    /// The same for datagrams of `protocol` from the client's port `source`.
    pub fn open_datagrams(
        &self,
        target: Target,
        (protocol, source): (u8, u16),
        dscp: Dscp,
        ticket: &Ticket,
    ) -> OpenDatagrams {
        let target = self.by_name(target);
        let asked = Asked {
            target: &target,
            protocol: Protocol::from_number(protocol),
            dscp,
            ticket,
            mac: self.device_of(ticket),
            first: &[],
        };
        let class = self.classes.decide(&asked).class;
        self.counters.count_class(class);
        OpenDatagrams { target, protocol, source, class, passenger: ticket.number }
    }

    /// Carries `tcp` to `target` until both are done; `read` was already read from it.
    pub async fn carry(&self, tcp: TcpStream, target: Target, ticket: &Ticket, read: Bytes) {
        let wants_more = |first: &[u8]| self.classes.wants_more(first);
        let mut first = first_bytes(&tcp, read, wants_more).await;
        let pending = first.split_off(first.len().min(MAX_FIRST_BYTES));
        let open = self.open(target, ticket, self.mark_of(&tcp), first);
        net::mark(&tcp, open.class);
        let name = open.claim.as_ref().and_then(|claim| claim.name().parse().ok());
        let verdict = match (name, &open.target.host) {
            (Some(name), Host::Ip(address)) => Some(self.on_verdict(name, *address)),
            _ => None,
        };
        let shown = open.target.to_string();
        let mut meter = self.meter(ticket, open.class);
        let police = self.ceil.of(open.class, ticket.number);
        if let Some(meter) = &mut meter {
            meter.up(open.first.len() as u64);
        }
        self.counters.to_far_bytes.add(open.first.len() as u64);
        let far = match self.far.open(open).await {
            Ok(far) => far,
            Err(error) => {
                self.counters.count_reset(error.code());
                self.quiet.warn("cannot open a flow", &error);
                reset_on_close(&tcp);
                return;
            }
        };
        let limits = self.limits.relay();
        let relay = Relay::new(tcp, far, pending.into(), limits, self.counters.clone());
        let relay = relay.with_verdict(verdict).with_meter(meter).with_police(police);
        let relay = relay.with_activity(ticket.activity());
        if let Outcome::Reset(code) = relay.await {
            tracing::debug!(passenger = ticket.number, target = shown, %code, "flow reset");
        }
    }
}

/// `read` and what the client says within [`FIRST_BYTES_WAIT`]: all that is there at once, and what
/// follows while `wants_more` of it. An error or the end will show again when the relay reads.
async fn first_bytes(tcp: &TcpStream, read: Bytes, wants_more: impl Fn(&[u8]) -> bool) -> Bytes {
    if !read.is_empty() && !wants_more(&read) {
        return read;
    }
    let mut first = BytesMut::from(read);
    let reading = async {
        // Readiness may be announced before there is anything to read.
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
    // Whatever there is by then will do.
    let _ = timeout(FIRST_BYTES_WAIT, reading).await;
    // A copy, so that a short hello does not hold the whole buffer.
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
    async fn what_the_client_says_at_once_travels_first() {
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
