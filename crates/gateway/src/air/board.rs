//! The resolver on board: queries of passengers are answered from what is kept, and the others cross
//! to the ground's resolver, all by one flow of datagrams.

mod carrier;
mod keeper;
mod listener;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_dns::{Action, Counts, Front, Room, Settings};
use bentpipe_link::{Host, Target};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::classes::Classes;
use crate::config::AirDns;
use crate::dns::{read_message, write_message};
use crate::net::StartError;
use carrier::Outgoing;
use keeper::Keeper;
pub use listener::Listeners;

/// Where name servers are asked.
pub const PORT: u16 = 53;

/// A client's stream on which nothing is asked is closed after this (RFC 7766 section 6.2.3).
const STREAM_IDLE: Duration = Duration::from_secs(20);

/// A stream waits so long for an answer; the resolver gives up before.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// A name that leads nowhere (RFC 6761 section 6.4): of addresses that stood for a name once.
const EXPIRED: &str = "expired.bentpipe.invalid";

/// Who waits for an answer, and how it gets it.
type Later = Box<dyn FnOnce(&[u8]) + Send>;

/// The resolver on board.
pub struct Board {
    front: Mutex<Front<Later>>,
    classes: Arc<Classes>,
    clock: Clock,
    outgoing: mpsc::Sender<Outgoing>,
    /// The next time something is to be done may have changed.
    changed: Notify,
    /// Whether queries to other resolvers are answered here.
    pub intercepts: bool,
}

/// What serves a [`Board`]; to be run once.
pub struct Serving {
    listeners: Listeners,
    asked: mpsc::Receiver<Outgoing>,
    keeper: Option<Keeper>,
}

impl Board {
    /// Binds the listeners of `config` and takes back what an earlier run has kept.
    pub fn start(
        config: &AirDns,
        classes: Arc<Classes>,
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
        let listeners = Listeners::bind(config.listen())?;
        let (front, changed) = (Mutex::new(front), Notify::new());
        let intercepts = config.intercept;
        let board = Self { front, classes, clock, outgoing, changed, intercepts };
        Ok((Arc::new(board), Serving { listeners, asked, keeper }))
    }

    /// From now on answers are judged by these.
    pub fn set_settings(&self, settings: Settings) {
        self.lock().set_settings(settings);
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.lock().counts()
    }

    /// A client at `from` has sent `message`; `later` gets the answer where there is none at once.
    pub fn query(&self, from: IpAddr, message: &[u8], room: Room, later: Later) -> Option<Vec<u8>> {
        self.with(|front, now| front.query((later, from), message, room, now))
    }

    /// Room for what comes by UDP.
    pub fn packet(&self) -> Room {
        Room::Packet(Settings::default().udp_bytes)
    }

    /// The answer to `message`, now or later; nothing where it is no query.
    async fn ask(&self, from: IpAddr, message: &[u8], room: Room) -> Option<Vec<u8>> {
        let (tell, told) = oneshot::channel();
        let later = Box::new(move |answer: &[u8]| drop(tell.send(answer.to_vec())));
        match self.query(from, message, room, later) {
            Some(answer) => Some(answer),
            None => timeout(ANSWER_WAIT, told).await.ok()?.ok(),
        }
    }

    /// Serves the messages of a client's stream, one after another.
    pub async fn serve_stream(&self, mut tcp: TcpStream, client: IpAddr) {
        while let Ok(Ok(Some(message))) = timeout(STREAM_IDLE, read_message(&mut tcp)).await {
            let Some(answer) = self.ask(client, &message, Room::Stream).await else { return };
            if !matches!(timeout(STREAM_IDLE, write_message(&mut tcp, &answer)).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// Where a flow to `target` goes: by name where its address stands for one. An address that
    /// stands for none any more leads nowhere.
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
                let _ = self.outgoing.try_send(Outgoing { id, message, over_stream });
            }
            Action::Reply { client, message } => client(&message),
            Action::Told { name, addresses, lifetime } => {
                if let Ok(name) = name.parse() {
                    self.classes.learn(&name, &addresses, lifetime);
                }
            }
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
    /// What a passenger at `from` who sends `message` is told; nothing where it is no query.
    pub async fn ask(&self, from: IpAddr, message: &[u8]) -> Option<Vec<u8>> {
        self.0.ask(from, message, self.0.packet()).await
    }

    /// Where a flow to `target` goes, whose address may stand for a name.
    pub fn destination(&self, target: Target) -> Target {
        self.0.by_name(target)
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

impl Serving {
    /// Where clients come in.
    pub fn listeners(&self) -> &Listeners {
        &self.listeners
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

    /// When it will be `time`.
    fn when(&self, time: Duration) -> Instant {
        self.at + time.saturating_sub(self.began)
    }
}

/// The address of a listener, for errors.
fn cannot(what: &'static str, address: SocketAddr) -> impl FnOnce(std::io::Error) -> StartError {
    move |source| StartError::Bind { what, address, source }
}
