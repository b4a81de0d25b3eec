//! The resolver, independent of its clients' protocols.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_dns::{
    Action, Asker, Counts, Limited, Resolver as ResolverCore, Room, Settings, Source, pad,
    wants_padding,
};
use bentpipe_flow::{Host, Target};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::offer::Offer;
use super::outage::Outage;
use super::upstream::Query;
use bentpipe_config::AirDns;
use bentpipe_dns::io::{MAX_QUERY_BYTES, read_message, write_message};
use bentpipe_metering::counters::Counters;
use bentpipe_metering::refusals::{Holding, Limit};
use bentpipe_transport::Connector;
use bentpipe_uplink::NameMap;
use bentpipe_uplink::classes::Classes;

/// Idle time after which a client's stream is closed (RFC 7766 section 6.2.3).
pub(super) const STREAM_IDLE: Duration = Duration::from_secs(20);

/// Maximum number of pending queries of one stream.
const MAX_PIPELINED: usize = 64;

/// Time limit of a stream for an answer; the resolver gives up after 15 s at the latest.
const ANSWER_WAIT: Duration = Duration::from_secs(16);

/// A name that never resolves (RFC 6761 section 6.4), for expired fake-IP addresses.
const EXPIRED: &str = "expired.bentpipe.invalid";

/// Protocol of a client's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Unencrypted, to the resolver's listener.
    Listener,
    /// Unencrypted, intercepted on its way to another resolver.
    Interception,
    /// TLS, either directly or below HTTP.
    Tls,
}

/// Callback that delivers the answer to a waiting client.
pub type Later = Box<dyn FnOnce(&[u8]) + Send>;

/// The on-board resolver.
pub struct Resolver {
    pub(super) core: Mutex<ResolverCore<Later>>,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) outage: Mutex<Outage>,
    pub(super) classes: Arc<Classes>,
    pub(super) clock: Clock,
    pub(super) outgoing: mpsc::Sender<Query>,
    /// Signals that the time of the next action may have changed.
    pub(super) changed: Notify,
    /// Offer of DNS over TLS and HTTPS, if configured.
    pub(super) offer: Option<Offer>,
    pub(super) counters: Arc<Counters>,
    /// `true` if queries to other resolvers are answered here.
    pub intercepts: bool,
}

impl Resolver {
    /// Applies the settings of `config`: lifetimes of answers, the certificate for new connections,
    /// and the announced name.
    pub fn apply(&self, config: &AirDns) {
        let mut core = self.lock();
        core.set_settings(config.settings.clone());
        if let (Some(offer), Some(encrypted)) = (&self.offer, &config.encrypted) {
            offer.show(encrypted);
            core.set_designated(offer.designated(encrypted));
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts()
    }

    /// Counts so far, with globally unique names.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.counts().all().into_iter().map(|(name, n)| (format!("dns-{name}"), n)).collect()
    }

    /// Handles `message` from a client at `from`. Returns the answer if it is known; otherwise
    /// `later` receives it.
    pub fn query(&self, from: Source, message: &[u8], room: Room, later: Later) -> Option<Vec<u8>> {
        self.with(|core, now| {
            if !core.is_reachable() {
                // The link may have returned since the last check.
                core.set_reachable(self.is_up(), now);
            }
            core.query((later, from), message, room, now)
        })
    }

    /// Returns `true` if there is a path to the ground gateway.
    pub(super) fn is_up(&self) -> bool {
        let mut outage = self.outage.lock();
        !outage.lasts(self.connector.reach(), Instant::now())
    }

    /// End of the time for which queries wait for a link that is out; `None` if it is not, or if
    /// they wait no longer.
    pub(super) fn tolerates_until(&self) -> Option<Instant> {
        let core = self.lock();
        if core.is_reachable() { self.outage.lock().tolerated_until() } else { None }
    }

    /// Maximum size of an answer by UDP.
    pub fn packet(&self) -> Room {
        Room::Packet(Settings::default().udp_bytes)
    }

    /// Returns the answer to `message`, waiting if necessary; `None` if it is not a query.
    pub(super) async fn ask(&self, from: Source, message: Bytes, room: Room) -> Option<Vec<u8>> {
        let (tell, told) = oneshot::channel();
        let later = Box::new(move |answer: &[u8]| drop(tell.send(answer.to_vec())));
        let answer = self.query(from, &message, room, later);
        // The message may have up to 64 KiB, which are not needed while waiting.
        drop(message);
        match answer {
            Some(answer) => Some(answer),
            None => timeout(ANSWER_WAIT, told).await.ok()?.ok(),
        }
    }

    /// Returns the answer to `message`, received on a stream of `client`.
    pub(super) async fn ask_by(&self, by: By, client: Asker, message: Bytes) -> Option<Vec<u8>> {
        // Without encryption the name is visible, so padding would be useless (RFC 7830 section 6).
        let pads = by == By::Tls && wants_padding(&message);
        let from = match by {
            By::Listener | By::Tls => Source::Stream(client),
            By::Interception => Source::Diverted(client),
        };
        let mut answer = self.ask(from, message, Room::Stream).await?;
        if pads {
            pad(&mut answer);
        }
        Some(answer)
    }

    /// Serves the messages of a client's stream. Each is answered as soon as possible, in any order
    /// (RFC 7766 section 6.2.1.1).
    pub async fn serve_stream<S>(&self, stream: S, by: By, client: Asker)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let (reader, mut writer) = tokio::io::split(stream);
        let messages = stream::unfold(reader, |mut reader| async move {
            match timeout(STREAM_IDLE, read_message(&mut reader, MAX_QUERY_BYTES)).await {
                Ok(Ok(Some(message))) => Some((message, reader)),
                _ => None,
            }
        });
        let asked =
            messages.map(|message| async move { self.ask_by(by, client, message.into()).await });
        let mut answers = std::pin::pin!(asked.buffer_unordered(MAX_PIPELINED));
        // A message that is not a query gets no answer, and ends the stream.
        while let Some(Some(answer)) = answers.next().await {
            if !matches!(
                timeout(STREAM_IDLE, write_message(&mut writer, &answer)).await,
                Ok(Ok(()))
            ) {
                return;
            }
        }
    }

    /// Calls `work` with the resolver, then performs the resulting actions.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut ResolverCore<Later>, Duration) -> T) -> T {
        let mut core = self.lock();
        let before = core.next_tick();
        let done = work(&mut core, self.clock.now());
        let actions: Vec<_> = std::iter::from_fn(|| core.poll()).collect();
        let moved = core.next_tick() != before;
        drop(core);
        if moved {
            self.changed.notify_one();
        }
        for action in actions {
            self.act(action);
        }
        done
    }

    fn act(&self, action: Action<Later>) {
        match action {
            Action::Query { id, message, over_stream } => {
                // If the queue is full, the query is repeated as if the link had lost it.
                let _ = self.outgoing.try_send(Query { id: Some(id), message, over_stream });
            }
            Action::Notify(message) => {
                let said = Query { id: None, message, over_stream: false };
                let _ = self.outgoing.try_send(said);
            }
            Action::Reply { client, message } => client(&message),
            Action::Resolved { name, addresses, lifetime } => {
                if let Ok(name) = name.parse() {
                    self.classes.learn(&name, &addresses, lifetime);
                }
            }
            Action::Limited { client, by } => self.limited(client, by),
        }
    }

    /// Records that a limit refused or evicted a query of `client`.
    fn limited(&self, client: Asker, by: Limited) {
        let who = || {
            let held = self.lock().usage(client);
            let why = if by == Limited::Rate { " (too many queries per second)" } else { "" };
            Holding {
                newcomer: format!("{client}{why}"),
                holds: held.own,
                held: held.all,
                most: held.max,
                largest: held.largest.map(|(asker, held)| (asker.to_string(), held)),
            }
        };
        let names = || {
            let usage = self.lock().pool().map(|pool| pool.usage(client));
            let (holds, held, most) = usage.map_or((0, 0, 0), |it| (it.own, it.all, it.max));
            Holding { newcomer: client.to_string(), holds, held, most, largest: None }
        };
        match by {
            Limited::Rate | Limited::Room => {
                self.counters.refusals.refused(Limit::DnsQuestions, who);
            }
            Limited::Evicted => self.counters.refusals.evicted(Limit::DnsQuestions, who),
            Limited::Names => self.counters.refusals.refused(Limit::InstantNames, names),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ResolverCore<Later>> {
        self.core.lock()
    }
}

impl NameMap for Resolver {
    /// An expired fake-IP address leads to a name that never resolves.
    fn by_name(&self, target: Target) -> Target {
        let Host::Ip(ip) = target.host else { return target };
        let mut core = self.lock();
        match core.pool().and_then(|pool| pool.name_of(ip)) {
            None => target,
            Some(name) => {
                let host = Host::Name(name.unwrap_or(EXPIRED).to_owned());
                Target { host, port: target.port }
            }
        }
    }
}

/// Handle of the on-board resolver, for callers without a socket.
#[derive(Clone)]
pub struct ResolverHandle(Arc<Resolver>);

impl From<Arc<Resolver>> for ResolverHandle {
    fn from(resolver: Arc<Resolver>) -> Self {
        Self(resolver)
    }
}

impl ResolverHandle {
    /// Answer to `message` of a passenger at `from`; `None` if it is not a query.
    pub async fn ask(&self, from: IpAddr, message: &[u8]) -> Option<Vec<u8>> {
        self.0
            .ask(Source::Stream(from.into()), Bytes::copy_from_slice(message), self.0.packet())
            .await
    }

    /// Destination of a flow to `target`, whose address may stand for a name.
    pub fn destination(&self, target: Target) -> Target {
        self.0.by_name(target)
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

/// Monotonic clock that counts from 1970.
pub(super) struct Clock {
    began: Duration,
    at: Instant,
}

impl Clock {
    pub fn start() -> Self {
        // A clock before 1970 has not been set; answers of earlier runs then count as old.
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began, at: Instant::now() }
    }

    pub fn now(&self) -> Duration {
        self.began + self.at.elapsed()
    }

    /// Instant of `time`.
    pub fn when(&self, time: Duration) -> Instant {
        self.at + time.saturating_sub(self.began)
    }
}

/// Returns secret random bytes.
pub(super) fn secret() -> [u8; 16] {
    // Its keys are random bytes of the operating system.
    let random = RandomState::new();
    let half = |n: u64| u128::from(random.hash_one(n));
    (half(0) << 64 | half(1)).to_ne_bytes()
}
