//! Streams of the fleet's directory between hubs and egresses.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bentpipe_directory::{Directory, Key, MIN_STREAM_INTERVAL, Seen, Side, Source, Statement};
use bentpipe_flow::{Reach, ResetCode};
use bentpipe_transport::{FlowStream, GroundStanding, PublicKey};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::leg::Leg;
use crate::wire::Control;

/// Interval of looks at the own statement.
const LOOK: Duration = Duration::from_secs(1);
/// First pause before an egress that ended a stream is called again, and minimum time between two calls.
/// Delays differ by less than half of it, so an egress refuses no call of the same process as too early.
const MIN_CALL_PAUSE: Duration = MIN_STREAM_INTERVAL.saturating_mul(2);
/// Maximum pause before an egress is called again. A stream that lasted as long was a success.
const MAX_CALL_PAUSE: Duration = Duration::from_secs(30);
/// Minimum time between two warnings about a neighbour.
const MIN_WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time for which a neighbour does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 10;

/// Name of a stream: the neighbour, and who opened it.
type At = (Key, Side);

/// The directory of this ground, and its streams to the grounds in its file.
///
/// No flow needs it. It has its own streams, whose bytes, rates and times are bounded.
pub struct Neighbours {
    state: Mutex<State>,
    /// Changes when there may be something to send.
    news: watch::Sender<()>,
    epoch: Instant,
    /// Ends all streams with the neighbours.
    end: CancellationToken,
}

struct State {
    directory: Directory,
    statement: Statement,
    /// The stream in use of each neighbour and side. A later one ends it.
    streams: BTreeMap<At, CancellationToken>,
    warnings: Warnings,
}

/// Last warning about each neighbour: of a bounded number, because strangers have no streams.
#[derive(Default)]
struct Warnings(BTreeMap<Key, Duration>);

impl Warnings {
    /// Returns `true` if a warning about `peer` is due, and notes it.
    fn is_due(&mut self, peer: Key, now: Duration) -> bool {
        let last = self.0.get(&peer);
        let is_due = last.is_none_or(|last| now.saturating_sub(*last) >= MIN_WARNING_INTERVAL);
        if is_due {
            self.0.insert(peer, now);
        }
        is_due
    }
}

impl Neighbours {
    /// Creates the directory of the ground with these keys, whose file has `peers`, and keeps its
    /// statement in a task of the current runtime. Versions follow `version`.
    pub fn start(
        keys: ([u8; 32], Key),
        peers: &[Key],
        statement: Statement,
        version: u64,
    ) -> Arc<Self> {
        let directory = Directory::new(keys, peers, version);
        let (streams, warnings) = Default::default();
        let state = Mutex::new(State { directory, statement, streams, warnings });
        let (news, epoch) = (watch::Sender::new(()), Instant::now());
        let neighbours = Arc::new(Self { state, news, epoch, end: CancellationToken::new() });
        tokio::spawn(keep(Arc::downgrade(&neighbours)));
        neighbours
    }

    /// States this load from now on; 255 is full.
    pub fn set_load(&self, load: u8) {
        self.state.lock().statement.load = load;
    }

    /// States from now on that this ground is about to stop.
    pub fn leave(&self) {
        self.state.lock().statement.is_leaving = true;
        self.look();
    }

    /// The grounds that are known.
    pub fn seen(&self) -> Vec<GroundStanding> {
        let (state, now) = (self.state.lock(), self.epoch.elapsed());
        state.directory.seen(now).into_iter().map(standing).collect()
    }

    /// Signs the statement if a version is due. Without random bytes it waits.
    fn look(&self) {
        let mut random = [0; 64];
        if getrandom::fill(&mut random).is_ok() {
            let state = &mut *self.state.lock();
            state.directory.state(&state.statement, self.epoch.elapsed(), random);
        }
        // Streams look for what waited for the rate, too.
        self.news.send_replace(());
    }

    /// Opens a stream to the egress `peer` whenever it is up, once `leg` is known, in a task of the current
    /// runtime. Ends with the neighbours, also while the egress is down.
    pub fn call(self: &Arc<Self>, peer: Key, leg: watch::Receiver<Option<Arc<dyn Leg>>>) {
        let (this, end) = (Arc::downgrade(self), self.end.clone());
        tokio::spawn(async move { end.run_until_cancelled(call(this, peer, leg)).await });
    }

    /// Serves `stream`, on which `read` was read already, until it ends. The transport has proven the
    /// key of the peer.
    pub async fn talk(this: Weak<Self>, at: At, mut stream: Box<dyn FlowStream>, read: &[u8]) {
        let Some((token, news)) = this.upgrade().and_then(|it| it.begin(at)) else {
            return stream.reset(ResetCode::Forbidden);
        };
        stream.connected();
        let exchanged = exchange(&this, at, (&token, news), &mut *stream, read).await;
        if let Err(error) = exchanged {
            tracing::debug!(%error, "a stream of the directory ended");
        }
        if let Some(this) = this.upgrade() {
            this.end(at, &token);
        }
        stream.reset(ResetCode::Lost);
    }

    /// Begins a stream in place of an earlier one. `None` for a stranger, or too soon after the earlier one.
    fn begin(&self, at: At) -> Option<(CancellationToken, watch::Receiver<()>)> {
        let mut state = self.state.lock();
        if !state.directory.connect(at.0, at.1, self.epoch.elapsed()) {
            return None;
        }
        let token = self.end.child_token();
        if let Some(earlier) = state.streams.insert(at, token.clone()) {
            earlier.cancel();
        }
        Some((token, self.news.subscribe()))
    }

    fn end(&self, at: At, token: &CancellationToken) {
        let mut state = self.state.lock();
        if !token.is_cancelled() {
            state.directory.disconnect(at.0, at.1);
            state.streams.remove(&at);
        }
    }

    /// Takes what was read. Fails if it violates the protocol, or if a later stream is in use.
    fn receive(&self, at: At, token: &CancellationToken, bytes: &[u8]) -> io::Result<()> {
        let (mut state, now) = (self.state.lock(), self.epoch.elapsed());
        if token.is_cancelled() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let received = state.directory.receive(at, bytes, now);
        let warns = received.is_err() && state.warnings.is_due(at.0, now);
        drop(state);
        let has_news = received.map_err(|error| {
            if warns {
                let ground = PublicKey::from_bytes(at.0);
                tracing::warn!(%ground, %error, "a ground misuses the directory: its stream ends");
            }
            io::Error::new(io::ErrorKind::InvalidData, error)
        })?;
        if has_news {
            self.news.send_replace(());
        }
        Ok(())
    }

    /// Returns the bytes to send now, and the time for which nothing is to be read.
    fn take(&self, at: At, token: &CancellationToken) -> (Vec<u8>, Duration) {
        let (mut state, now) = (self.state.lock(), self.epoch.elapsed());
        if token.is_cancelled() {
            return Default::default();
        }
        (state.directory.take(at, now), state.directory.pause(&at.0, now))
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// Opens a stream to the egress `peer` whenever it is up, once `leg` is known.
///
/// An egress refuses the call of a hub that has restarted within a second, and an older egress refuses
/// all. Each call that ends early doubles the pause, so an egress gets at most six calls a minute on a
/// connection.
async fn call(this: Weak<Neighbours>, peer: Key, mut leg: watch::Receiver<Option<Arc<dyn Leg>>>) {
    let found = leg.wait_for(Option::is_some).await.map(|it| it.clone());
    let Ok(Some(leg)) = found else { return };
    let (mut reach, mut pause) = (leg.watch_reach(), MIN_CALL_PAUSE);
    while reach.wait_for(|reach| *reach == Reach::Up).await.is_ok() {
        let mut first = Vec::new();
        Control::Directory.put(&mut first);
        let opened = leg.open_own(Bytes::from(first)).await;
        let opened_at = Instant::now();
        if let Ok(stream) = opened {
            Neighbours::talk(this.clone(), (peer, Side::Ours), stream, &[]).await;
        }
        if opened_at.elapsed() >= MAX_CALL_PAUSE {
            pause = MIN_CALL_PAUSE;
        }
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).min(MAX_CALL_PAUSE),
            // Also a change that is over already, after which the egress may be another process.
            changed = reach.changed() => match changed {
                Ok(()) => {
                    sleep_until(opened_at + MIN_CALL_PAUSE).await;
                    pause = MIN_CALL_PAUSE;
                }
                Err(_) => return,
            },
        }
    }
}

/// Looks at the own statement while the neighbours are in use.
async fn keep(this: Weak<Neighbours>) {
    while let Some(neighbours) = this.upgrade() {
        neighbours.look();
        drop(neighbours);
        sleep(LOOK).await;
    }
}

/// Sends and receives until the stream ends, another takes its place, or nobody uses the directory.
async fn exchange(
    this: &Weak<Neighbours>,
    at: At,
    (token, mut news): (&CancellationToken, watch::Receiver<()>),
    stream: &mut dyn FlowStream,
    first: &[u8],
) -> io::Result<()> {
    let receive = |bytes: &[u8]| match this.upgrade() {
        Some(neighbours) => neighbours.receive(at, token, bytes),
        None => Err(io::ErrorKind::ConnectionReset.into()),
    };
    receive(first)?;
    let mut read = [0; READ_BYTES];
    loop {
        let Some(neighbours) = this.upgrade() else { return Ok(()) };
        news.borrow_and_update();
        let (bytes, pause) = neighbours.take(at, token);
        drop(neighbours);
        if !bytes.is_empty() {
            let writing = timeout(WRITE_TIMEOUT, async {
                stream.write_all(&bytes).await?;
                stream.flush().await
            });
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                written = writing => written??,
            }
        }
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            changed = news.changed() => if changed.is_err() { return Ok(()) },
            count = stream.read(&mut read), if pause.is_zero() => match count? {
                0 => return Ok(()),
                count => receive(&read[..count])?,
            },
        }
    }
}

fn standing(seen: Seen<'_>) -> GroundStanding {
    let Seen { key, source, statement } = seen;
    let (statement, age) = statement.unzip();
    let (is_connected, through) = match source {
        Source::Directly { is_connected } => (is_connected, None),
        Source::Through(neighbour) => (false, Some(neighbour)),
    };
    GroundStanding {
        key,
        is_connected,
        through,
        age,
        is_hub: statement.is_some_and(|it| it.is_hub),
        is_egress: statement.is_some_and(|it| it.is_egress),
        is_leaving: statement.is_some_and(|it| it.is_leaving),
        load: statement.map(|it| it.load),
    }
}

#[cfg(test)]
mod tests;
