//! A link in memory: what one side opens, the other accepts.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bentpipe_gateway::config::Transport;
use bentpipe_gateway::far::{
    Arrivals, Carried, DatagramError, FarDatagrams, FarEnd, FarStream, Incoming, Open,
    OpenDatagrams, OpenError, Outages, Reach, Standing,
};
use bentpipe_link::{ClassSettings, Host, PerClass, PublicKey, ResetCode, SettingsError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Credit of one flow in each direction.
pub const CREDIT_BYTES: usize = 64 * 1024;

/// Actions of the peer on one end.
#[derive(Default)]
struct End {
    reset: Option<ResetCode>,
    stopped: bool,
    wakers: Vec<Waker>,
}

type SharedEnd = Arc<Mutex<End>>;

pub struct Stream {
    io: DuplexStream,
    ours: SharedEnd,
    theirs: SharedEnd,
    shut: bool,
    silence: Arc<Silence>,
}

/// Outages of a link.
#[derive(Default)]
struct Silence(Mutex<(Option<Instant>, Duration)>);

impl Silence {
    fn set(&self, reach: Reach) {
        let mut state = self.0.lock().unwrap();
        match (reach, state.0) {
            (Reach::Out, None) => state.0 = Some(Instant::now()),
            (Reach::Up | Reach::Down, Some(since)) => *state = (None, state.1 + since.elapsed()),
            _ => {}
        }
    }

    fn outages(&self) -> Outages {
        let (since, over) = *self.0.lock().unwrap();
        let now = since.map_or(Duration::ZERO, |since| since.elapsed());
        Outages { now, all: over + now }
    }
}

pub fn pair() -> (Stream, Stream) {
    pair_over(&Arc::default())
}

fn pair_over(silence: &Arc<Silence>) -> (Stream, Stream) {
    let silence = || silence.clone();
    let (a, b) = duplex(CREDIT_BYTES);
    let (at_a, at_b) = (SharedEnd::default(), SharedEnd::default());
    (
        Stream { io: a, ours: at_a.clone(), theirs: at_b.clone(), shut: false, silence: silence() },
        Stream { io: b, ours: at_b, theirs: at_a, shut: false, silence: silence() },
    )
}

impl Stream {
    fn tell(&self, change: impl FnOnce(&mut End)) {
        let mut end = self.theirs.lock().unwrap();
        change(&mut end);
        for waker in end.wakers.drain(..) {
            waker.wake();
        }
    }

    /// Fails where the peer broke the flow; else remembers whom to wake.
    fn check(&self, cx: &Context<'_>, writing: bool) -> io::Result<()> {
        let mut end = self.ours.lock().unwrap();
        if let Some(code) = end.reset {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, code));
        }
        if writing && end.stopped {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        end.wakers.retain(|waker| !waker.will_wake(cx.waker()));
        end.wakers.push(cx.waker().clone());
        Ok(())
    }
}

impl FarStream for Stream {
    fn reset(&mut self, code: ResetCode) {
        self.shut = true;
        self.tell(|end| end.reset = end.reset.or(Some(code)));
    }

    fn stop_reading(&mut self, _: ResetCode) {
        self.tell(|end| end.stopped = true);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        self.ours.lock().unwrap().reset
    }

    fn standing(&self) -> Standing {
        Standing { unheard: self.silence.outages().all, unsent_bytes: 0 }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.shut {
            self.reset(ResetCode::Aborted);
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx, false)?;
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx, true)?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut = true;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The largest datagram that crosses, its context id included.
pub const MOST_DATAGRAM_BYTES: usize = 1300;

/// Datagrams that wait at one end; more are dropped.
const DATAGRAMS_WAITING: usize = 256;

/// One end of a flow of datagrams.
pub struct Datagrams {
    to: mpsc::Sender<Bytes>,
    from: tokio::sync::Mutex<mpsc::Receiver<Bytes>>,
    /// Reason for the flow's end; both ends know at once.
    over: watch::Sender<Option<ResetCode>>,
}

pub fn datagrams() -> (Datagrams, Datagrams) {
    let ((to_b, at_b), (to_a, at_a)) =
        (mpsc::channel(DATAGRAMS_WAITING), mpsc::channel(DATAGRAMS_WAITING));
    let over = watch::Sender::new(None);
    (
        Datagrams { to: to_b, from: at_a.into(), over: over.clone() },
        Datagrams { to: to_a, from: at_b.into(), over },
    )
}

impl FarDatagrams for Datagrams {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        if self.over.borrow().is_some() {
            return Err(DatagramError::Ended);
        }
        if datagram.len() > MOST_DATAGRAM_BYTES {
            return Err(DatagramError::TooLarge { most_bytes: MOST_DATAGRAM_BYTES });
        }
        // A full queue drops.
        let _ = self.to.try_send(Bytes::copy_from_slice(datagram));
        Ok(())
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(async move {
            let mut from = self.from.lock().await;
            let mut over = self.over.subscribe();
            tokio::select! {
                biased;
                Some(datagram) = from.recv() => Ok(datagram),
                _ = over.wait_for(Option::is_some) => Err(self.over.borrow().unwrap()),
            }
        })
    }

    fn most_bytes(&self) -> usize {
        MOST_DATAGRAM_BYTES
    }

    fn reset(&self, code: ResetCode) {
        self.over.send_if_modified(|over| over.is_none() && over.replace(code).is_none());
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.reset(ResetCode::Idle);
    }
}

/// The air's end of a link in memory.
pub struct Up {
    aircraft: [u8; 32],
    flows: mpsc::UnboundedSender<Incoming>,
    opened: Mutex<Vec<Open>>,
    opened_datagrams: Mutex<Vec<OpenDatagrams>>,
    classes: Mutex<Option<PerClass<ClassSettings>>>,
    reach: Mutex<Reach>,
    silence: Arc<Silence>,
    session: AtomicU64,
    tells_why: AtomicBool,
    breaks_off: Mutex<Option<u8>>,
}

/// The ground's end.
pub struct Down {
    flows: tokio::sync::Mutex<mpsc::UnboundedReceiver<Incoming>>,
    classes: Mutex<Option<(PublicKey, PerClass<ClassSettings>)>>,
}

pub fn link(aircraft: [u8; 32]) -> (Arc<Up>, Arc<Down>) {
    let (flows, arrivals) = mpsc::unbounded_channel();
    let (opened, opened_datagrams, classes) = Default::default();
    let reach = Mutex::new(Reach::Up);
    let down = Down { flows: arrivals.into(), classes: Mutex::default() };
    let breaks_off = Mutex::default();
    let session = AtomicU64::new(1);
    let up = Up {
        aircraft,
        flows,
        opened,
        opened_datagrams,
        classes,
        reach,
        silence: Arc::default(),
        session,
        tells_why: AtomicBool::new(true),
        breaks_off,
    };
    (Arc::new(up), Arc::new(down))
}

impl Up {
    /// Sets the state of the link from now on.
    pub fn set_reach(&self, reach: Reach) {
        *self.reach.lock().unwrap() = reach;
        self.silence.set(reach);
    }

    /// From now on it is another session, as with another ground.
    pub fn next_session(&self) {
        self.session.fetch_add(1, Relaxed);
    }

    /// The link is one that does not tell why a flow was reset that had begun.
    pub fn tell_no_reasons(&self) {
        self.tells_why.store(false, Relaxed);
    }

    /// The ground breaks off, from now on, what asks a service of its own and begins so: it does not know it.
    pub fn break_off(&self, first: u8) {
        *self.breaks_off.lock().unwrap() = Some(first);
    }

    /// Everything that was asked for so far.
    pub fn opened(&self) -> Vec<Open> {
        self.opened.lock().unwrap().clone()
    }

    /// Class limits that were set last.
    pub fn classes(&self) -> Option<PerClass<ClassSettings>> {
        *self.classes.lock().unwrap()
    }

    /// Every flow of datagrams that was asked for so far.
    pub fn opened_datagrams(&self) -> Vec<OpenDatagrams> {
        self.opened_datagrams.lock().unwrap().clone()
    }
}

impl FarEnd for Up {
    fn set_classes(&self, classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        *self.classes.lock().unwrap() = Some(classes);
        Ok(())
    }

    fn session(&self) -> Option<u64> {
        Some(self.session.load(Relaxed))
    }

    fn tells_why(&self) -> bool {
        self.tells_why.load(Relaxed)
    }

    fn reach(&self) -> Reach {
        *self.reach.lock().unwrap()
    }

    fn outages(&self) -> Outages {
        self.silence.outages()
    }

    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FarStream>, OpenError>> {
        Box::pin(async move {
            let (mut near, far) = pair_over(&self.silence);
            self.opened.lock().unwrap().push(open.clone());
            near.write_all(&open.first).await.unwrap();
            let is_known = open.first.first() != self.breaks_off.lock().unwrap().as_ref();
            if matches!(open.target.host, Host::Service(_)) && !is_known {
                return Ok(Box::new(near) as Box<dyn FarStream>);
            }
            let Open { target, class, passenger, claim, .. } = open;
            let (aircraft, carries) = (self.aircraft, Carried::Stream(Box::new(far)));
            let incoming = Incoming { aircraft, target, class, passenger, claim, carries };
            self.flows.send(incoming).map_err(|_| OpenError::Closed)?;
            Ok(Box::new(near) as Box<dyn FarStream>)
        })
    }

    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FarDatagrams>, OpenError>> {
        let (near, far) = datagrams();
        self.opened_datagrams.lock().unwrap().push(open.clone());
        let OpenDatagrams { target, protocol, source, class, passenger } = open;
        let carries =
            Carried::Datagrams { protocol, source, is_gateway: true, flow: Box::new(far) };
        let incoming =
            Incoming { aircraft: self.aircraft, target, class, passenger, claim: None, carries };
        let sent = self.flows.send(incoming).map_err(|_| OpenError::Closed);
        Box::pin(async move { sent.map(|()| Box::new(near) as Box<dyn FarDatagrams>) })
    }
}

impl Down {
    /// Class limits that were set last for an aircraft.
    pub fn classes(&self) -> Option<(PublicKey, PerClass<ClassSettings>)> {
        *self.classes.lock().unwrap()
    }
}

impl Arrivals for Down {
    fn transport(&self) -> Transport {
        Transport::Link
    }

    fn set_classes(
        &self,
        aircraft: &PublicKey,
        classes: PerClass<ClassSettings>,
    ) -> Result<(), SettingsError> {
        *self.classes.lock().unwrap() = Some((*aircraft, classes));
        Ok(())
    }

    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async { self.flows.lock().await.recv().await })
    }
}
