//! An in-memory link: each flow opened on one side is accepted on the other.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bentpipe_flow::{Host, ResetCode};
use bentpipe_gateway::config::Transport;
use bentpipe_gateway::transport::{
    Acceptor, Carried, Connector, DatagramError, Fleet, FlowDatagrams, FlowStream, Incoming, Open,
    OpenDatagrams, OpenError, Outages, Reach, Standing,
};
use bentpipe_link::{ClassSettings, PerClass, PublicKey, SettingsError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Credit of one flow in each direction.
pub const CREDIT_BYTES: usize = 64 * 1024;

/// State of one end, as set by the peer.
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
    /// Begin of the outage during which this end opened the flow.
    opened_in: Option<Instant>,
}

/// Outages of a link.
#[derive(Default)]
struct Silence(Mutex<(Option<Instant>, Duration)>);

impl Silence {
    fn set(&self, reach: Reach) {
        let mut state = self.0.lock();
        match (reach, state.0) {
            (Reach::Out, None) => state.0 = Some(Instant::now()),
            (Reach::Up | Reach::Down, Some(since)) => *state = (None, state.1 + since.elapsed()),
            _ => {}
        }
    }

    fn outages(&self) -> Outages {
        let (since, over) = *self.0.lock();
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
        Stream::new(a, (at_a.clone(), at_b.clone()), silence()),
        Stream::new(b, (at_b, at_a), silence()),
    )
}

impl Stream {
    fn new(
        io: DuplexStream,
        (ours, theirs): (SharedEnd, SharedEnd),
        silence: Arc<Silence>,
    ) -> Self {
        Self { io, ours, theirs, shut: false, silence, opened_in: None }
    }

    /// Length of the present outage if the flow was opened in it.
    fn unopened(&self) -> Option<Duration> {
        let since = self.silence.0.lock().0.filter(|since| Some(*since) == self.opened_in)?;
        Some(since.elapsed())
    }

    fn tell(&self, change: impl FnOnce(&mut End)) {
        let mut end = self.theirs.lock();
        change(&mut end);
        for waker in end.wakers.drain(..) {
            waker.wake();
        }
    }

    /// Fails if the peer broke the flow; otherwise stores the waker.
    fn check(&self, cx: &Context<'_>, writing: bool) -> io::Result<()> {
        let mut end = self.ours.lock();
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

impl FlowStream for Stream {
    fn reset(&mut self, code: ResetCode) {
        self.shut = true;
        self.tell(|end| end.reset = end.reset.or(Some(code)));
    }

    fn stop_reading(&mut self, _: ResetCode) {
        self.tell(|end| end.stopped = true);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        self.ours.lock().reset
    }

    fn standing(&self) -> Standing {
        let unheard = self.silence.outages().all;
        Standing { unheard, unsent_bytes: 0, unopened: self.unopened() }
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

/// Maximum size of a datagram, including its context ID.
pub const MAX_DATAGRAM_BYTES: usize = 1300;

/// Maximum number of datagrams queued at one end; more are dropped.
const DATAGRAMS_WAITING: usize = 256;

/// One end of a datagram flow.
pub struct Datagrams {
    to: mpsc::Sender<Bytes>,
    from: tokio::sync::Mutex<mpsc::Receiver<Bytes>>,
    /// Reason for the flow's end, visible to both ends at once.
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

impl FlowDatagrams for Datagrams {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        if self.over.borrow().is_some() {
            return Err(DatagramError::Ended);
        }
        if datagram.len() > MAX_DATAGRAM_BYTES {
            return Err(DatagramError::TooLarge { max_bytes: MAX_DATAGRAM_BYTES });
        }
        // A full queue drops the datagram.
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

    fn max_bytes(&self) -> usize {
        MAX_DATAGRAM_BYTES
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

/// The air gateway's end of an in-memory link.
pub struct Up {
    aircraft: [u8; 32],
    flows: mpsc::UnboundedSender<Incoming>,
    opened: Mutex<Vec<Open>>,
    opened_datagrams: Mutex<Vec<OpenDatagrams>>,
    classes: Mutex<Option<PerClass<ClassSettings>>>,
    reach: watch::Sender<Reach>,
    silence: Arc<Silence>,
    breaks_off: Mutex<Option<u8>>,
}

/// The ground gateway's end.
pub struct Down {
    flows: tokio::sync::Mutex<mpsc::UnboundedReceiver<Incoming>>,
    classes: Mutex<Option<(PublicKey, PerClass<ClassSettings>)>>,
}

pub fn link(aircraft: [u8; 32]) -> (Arc<Up>, Arc<Down>) {
    let (flows, acceptor) = mpsc::unbounded_channel();
    let (opened, opened_datagrams, classes) = Default::default();
    let reach = watch::Sender::new(Reach::Up);
    let down = Down { flows: acceptor.into(), classes: Mutex::default() };
    let breaks_off = Mutex::default();
    let up = Up {
        aircraft,
        flows,
        opened,
        opened_datagrams,
        classes,
        reach,
        silence: Arc::default(),
        breaks_off,
    };
    (Arc::new(up), Arc::new(down))
}

impl Up {
    /// Sets the state of the link from now on.
    pub fn set_reach(&self, reach: Reach) {
        self.reach.send_replace(reach);
        self.silence.set(reach);
    }

    /// From now on, the ground gateway resets service flows that begin with this byte, as if it did
    /// not support them.
    pub fn break_off(&self, first: u8) {
        *self.breaks_off.lock() = Some(first);
    }

    /// All flows requested so far.
    pub fn opened(&self) -> Vec<Open> {
        self.opened.lock().clone()
    }

    /// The latest class settings.
    pub fn classes(&self) -> Option<PerClass<ClassSettings>> {
        *self.classes.lock()
    }

    /// All datagram flows requested so far.
    pub fn opened_datagrams(&self) -> Vec<OpenDatagrams> {
        self.opened_datagrams.lock().clone()
    }
}

impl Connector for Up {
    fn set_classes(&self, classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        *self.classes.lock() = Some(classes);
        Ok(())
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    fn outages(&self) -> Outages {
        self.silence.outages()
    }

    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(async move {
            let (mut near, connector) = pair_over(&self.silence);
            near.opened_in = self.silence.0.lock().0;
            self.opened.lock().push(open.clone());
            near.write_all(&open.first).await.unwrap();
            let is_known = open.first.first() != self.breaks_off.lock().as_ref();
            if matches!(open.target.host, Host::Service(_)) && !is_known {
                return Ok(Box::new(near) as Box<dyn FlowStream>);
            }
            let Open { target, class, passenger, claim, .. } = open;
            let (aircraft, carries) = (self.aircraft, Carried::Stream(Box::new(connector)));
            let incoming = Incoming {
                aircraft,
                session: 0,
                is_forwarded: false,
                target,
                class,
                passenger,
                claim,
                dialler: None,
                carries,
            };
            self.flows.send(incoming).map_err(|_| OpenError::Closed)?;
            Ok(Box::new(near) as Box<dyn FlowStream>)
        })
    }

    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        let (near, connector) = datagrams();
        self.opened_datagrams.lock().push(open.clone());
        let OpenDatagrams { target, protocol, source, class, passenger } = open;
        let carries =
            Carried::Datagrams { protocol, source, is_gateway: true, flow: Box::new(connector) };
        let incoming = Incoming {
            aircraft: self.aircraft,
            session: 0,
            is_forwarded: false,
            target,
            class,
            passenger,
            claim: None,
            dialler: None,
            carries,
        };
        let sent = self.flows.send(incoming).map_err(|_| OpenError::Closed);
        Box::pin(async move { sent.map(|()| Box::new(near) as Box<dyn FlowDatagrams>) })
    }
}

impl Down {
    /// The latest class settings for an aircraft.
    pub fn classes(&self) -> Option<(PublicKey, PerClass<ClassSettings>)> {
        *self.classes.lock()
    }
}

impl Acceptor for Down {
    fn transport(&self) -> Transport {
        Transport::Link
    }

    fn set_fleet(&self, fleet: &Fleet) -> bool {
        *self.classes.lock() = fleet.aircraft.first().map(|one| (one.key, one.settings.classes));
        true
    }

    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async { self.flows.lock().await.recv().await })
    }
}
