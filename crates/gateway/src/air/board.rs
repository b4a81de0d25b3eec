//! The resolver on board: queries of passengers are answered from what is kept, and the others cross
//! to the ground's resolver, all by one flow of datagrams.

mod carrier;
mod keeper;
mod listener;
mod offer;
mod outage;
mod streams;
mod tls;
mod way;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_dns::{Action, Counts, Front, Limited, Room, Settings, Source, pad, wants_padding};
use bentpipe_link::{Host, Target};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::classes::Classes;
use crate::config::AirDns;
use crate::counters::Counters;
use crate::dns::{read_message, write_message};
use crate::far::FarEnd;
use crate::net::StartError;
use crate::refusals::{Holding, Limit};
use keeper::Keeper;
pub use listener::Listeners;
use offer::Offer;
use outage::Outage;
use tls::Secure;
use way::Outgoing;

/// Port of name servers.
pub const PORT: u16 = 53;

/// A client's stream on which nothing is asked is closed after this (RFC 7766 section 6.2.3).
const STREAM_IDLE: Duration = Duration::from_secs(20);

/// Questions of one stream that are under way at once.
const MOST_PIPELINED: usize = 64;

/// A stream waits so long for an answer; the resolver gives up before, after 15 s at the latest.
const ANSWER_WAIT: Duration = Duration::from_secs(16);

/// A name that leads nowhere (RFC 6761 section 6.4): of addresses that stood for a name once.
const EXPIRED: &str = "expired.bentpipe.invalid";

/// Protocol by which a client's stream came to the resolver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// In clear, where the resolver listens.
    Listener,
    /// In clear, on its way to another resolver.
    Interception,
    /// Over TLS, alone or under HTTP.
    Tls,
}

/// Callback that gives a waiting client its answer.
type Later = Box<dyn FnOnce(&[u8]) + Send>;

/// The resolver on board.
pub struct Board {
    front: Mutex<Front<Later>>,
    far: Arc<dyn FarEnd>,
    outage: Mutex<Outage>,
    classes: Arc<Classes>,
    clock: Clock,
    outgoing: mpsc::Sender<Outgoing>,
    /// The next time something is to be done may have changed.
    changed: Notify,
    /// DNS over TLS and HTTPS, where they are offered.
    offer: Option<Offer>,
    counters: Arc<Counters>,
    /// `true` if queries to other resolvers are answered here.
    pub intercepts: bool,
}

/// Server of a [`Board`]; to be run once.
pub struct Serving {
    listeners: Listeners,
    secure: Option<Secure>,
    asked: mpsc::Receiver<Outgoing>,
    keeper: Option<Keeper>,
}

impl Board {
    /// Binds the listeners of `config` and takes back what an earlier run has kept. What is not known
    /// is asked for by `far`; what limits refuse is told to `counters`.
    pub fn start(
        config: &AirDns,
        classes: Arc<Classes>,
        far: Arc<dyn FarEnd>,
        counters: Arc<Counters>,
    ) -> Result<(Arc<Self>, Serving), StartError> {
        let settings = config.settings();
        // Each question crosses at once; this is for those over streams too.
        let (outgoing, asked) = mpsc::channel(2 * settings.max_asks);
        let clock = Clock::start();
        let mut front = Front::new(settings, config.cache_file.is_some());
        // Where the journal is lost, at least not where the run before began.
        let start = clock.now().as_secs() as u32;
        front.set_pool(config.pool(start.wrapping_mul(0x9e37_79b1)));
        let keeper = match &config.cache_file {
            Some(path) => Some(Keeper::restore(path, &mut front, clock.now())?),
            None => None,
        };
        front.begin(clock.now());
        let listeners = Listeners::bind(config.listen())?;
        let secure = config.encrypted.as_ref().map(Secure::bind).transpose()?;
        let offer = secure.as_ref().map(|secure| Offer::new(secure, config.listen()));
        let offered = offer.as_ref().zip(config.encrypted.as_ref());
        front.set_designated(offered.and_then(|(offer, config)| offer.designated(config)));
        let (front, changed) = (Mutex::new(front), Notify::new());
        let intercepts = config.intercept;
        let outage = Mutex::default();
        let board = Self {
            front,
            far,
            outage,
            classes,
            clock,
            outgoing,
            changed,
            offer,
            counters,
            intercepts,
        };
        Ok((Arc::new(board), Serving { listeners, secure, asked, keeper }))
    }

    /// From now on answers are judged by the settings of `config`, connections to come are shown its
    /// certificate, and devices are told of its name.
    pub fn apply(&self, config: &AirDns) {
        let mut front = self.lock();
        front.set_settings(config.settings());
        if let (Some(offer), Some(encrypted)) = (&self.offer, &config.encrypted) {
            offer.show(encrypted);
            front.set_designated(offer.designated(encrypted));
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts()
    }

    /// The same by names that nothing else has.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.counts().all().into_iter().map(|(name, n)| (format!("dns-{name}"), n)).collect()
    }

    /// A client at `from` has sent `message`; `later` gets the answer where there is none at once.
    pub fn query(&self, from: Source, message: &[u8], room: Room, later: Later) -> Option<Vec<u8>> {
        self.with(|front, now| {
            if !front.is_up() {
                // It may be back since it was looked at last.
                front.set_up(self.is_up(), now);
            }
            front.query((later, from), message, room, now)
        })
    }

    /// Returns `true` if there is a path to the ground.
    fn is_up(&self) -> bool {
        // Nothing in there panics half-way.
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        !outage.lasts(self.far.reach(), Instant::now())
    }

    /// Room for what comes by UDP.
    pub fn packet(&self) -> Room {
        Room::Packet(Settings::default().udp_bytes)
    }

    /// The answer to `message`, now or later; nothing where it is no query.
    async fn ask(&self, from: Source, message: Bytes, room: Room) -> Option<Vec<u8>> {
        let (tell, told) = oneshot::channel();
        let later = Box::new(move |answer: &[u8]| drop(tell.send(answer.to_vec())));
        let answer = self.query(from, &message, room, later);
        // It may have 64 KiB, which nobody needs while it waits.
        drop(message);
        match answer {
            Some(answer) => Some(answer),
            None => timeout(ANSWER_WAIT, told).await.ok()?.ok(),
        }
    }

    /// The answer to `message`, which came by a stream of `client`.
    async fn ask_by(&self, by: By, client: IpAddr, message: Bytes) -> Option<Vec<u8>> {
        // In clear everybody reads the name, and padding says nothing (RFC 7830 section 6).
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

    /// Serves the messages of a client's stream, each answered as soon as it can be (RFC 7766 section
    /// 6.2.1.1).
    pub async fn serve_stream<S>(&self, stream: S, by: By, client: IpAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let (reader, mut writer) = tokio::io::split(stream);
        let messages = stream::unfold(reader, |mut reader| async move {
            match timeout(STREAM_IDLE, read_message(&mut reader)).await {
                Ok(Ok(Some(message))) => Some((message, reader)),
                _ => None,
            }
        });
        let asked =
            messages.map(|message| async move { self.ask_by(by, client, message.into()).await });
        let mut answers = std::pin::pin!(asked.buffer_unordered(MOST_PIPELINED));
        // Silence is the answer to what is no query, and the end.
        while let Some(Some(answer)) = answers.next().await {
            if !matches!(
                timeout(STREAM_IDLE, write_message(&mut writer, &answer)).await,
                Ok(Ok(()))
            ) {
                return;
            }
        }
    }

    /// Resolves a flow's `target`: to the name for which its address stands. An address that stands
    /// for none any more leads nowhere.
    pub fn by_name(&self, target: Target) -> Target {
        let Host::Ip(ip) = target.host else { return target };
        let mut front = self.lock();
        match front.pool().and_then(|pool| pool.name_of(ip)) {
            None => target,
            Some(name) => {
                let host = Host::Name(name.unwrap_or(EXPIRED).to_owned());
                Target { host, port: target.port }
            }
        }
    }

    /// Does `work` with the resolver, and then what it asks for.
    fn with<T>(&self, work: impl FnOnce(&mut Front<Later>, Duration) -> T) -> T {
        let mut front = self.lock();
        let before = front.next_tick();
        let done = work(&mut front, self.clock.now());
        let actions: Vec<_> = std::iter::from_fn(|| front.poll()).collect();
        let moved = front.next_tick() != before;
        drop(front);
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
            Action::Ask { id, message, over_stream } => {
                // One that has no room is asked again, as if the link had lost it.
                let _ = self.outgoing.try_send(Outgoing { id: Some(id), message, over_stream });
            }
            Action::Say(message) => {
                let said = Outgoing { id: None, message, over_stream: false };
                let _ = self.outgoing.try_send(said);
            }
            Action::Reply { client, message } => client(&message),
            Action::Told { name, addresses, lifetime } => {
                if let Ok(name) = name.parse() {
                    self.classes.learn(&name, &addresses, lifetime);
                }
            }
            Action::Limited { client, by } => self.limited(client, by),
        }
    }

    /// A limit has taken something from `client`.
    fn limited(&self, client: IpAddr, by: Limited) {
        let who = || {
            let held = self.lock().holding(client);
            let why = if by == Limited::Rate { " (too many queries per second)" } else { "" };
            Holding {
                newcomer: format!("{client}{why}"),
                holds: held.own,
                held: held.all,
                most: held.most,
                largest: held.largest.map(|(ip, held)| (ip.to_string(), held)),
            }
        };
        match by {
            Limited::Rate | Limited::Room => {
                self.counters.refusals.refused(Limit::DnsQuestions, who);
            }
            Limited::Evicted => self.counters.refusals.evicted(Limit::DnsQuestions, who),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Front<Later>> {
        // Nothing in there panics half-way.
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The resolver on board, for who asks it without a socket.
#[derive(Clone)]
pub struct Resolver(pub(super) Arc<Board>);

impl Resolver {
    /// Answer to `message` of a passenger at `from`; `None` if it is not a query.
    pub async fn ask(&self, from: IpAddr, message: &[u8]) -> Option<Vec<u8>> {
        self.0.ask(Source::Stream(from), Bytes::copy_from_slice(message), self.0.packet()).await
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

impl Serving {
    /// Listeners for clients.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Listeners for encrypted clients: over TLS, then over HTTPS.
    pub fn encrypted(&self) -> [Vec<SocketAddr>; 2] {
        self.secure.as_ref().map(Secure::addresses).unwrap_or_default()
    }
}

/// Time since 1970 that never goes back while the gateway runs.
struct Clock {
    began: Duration,
    at: Instant,
}

impl Clock {
    fn start() -> Self {
        // A clock before 1970 is none; answers of earlier runs count as old then.
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began, at: Instant::now() }
    }

    fn now(&self) -> Duration {
        self.began + self.at.elapsed()
    }

    /// Instant of `time`.
    fn when(&self, time: Duration) -> Instant {
        self.at + time.saturating_sub(self.began)
    }
}

/// The address of a listener, for errors.
fn cannot(what: &'static str, address: SocketAddr) -> impl FnOnce(std::io::Error) -> StartError {
    move |source| StartError::Bind { what, address, source }
}

#[cfg(test)]
mod tests;
