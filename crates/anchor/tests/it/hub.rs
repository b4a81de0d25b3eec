//! A hub in memory, and a ground behind it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_anchor::acceptor::AnchorAcceptor;
use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::forward::Egresses;
use bentpipe_flow::{Reach, ResetCode, Target};
use bentpipe_transport::{
    Acceptor, Carried, Connector, FlowDatagrams, FlowStream, Incoming, Open, OpenDatagrams,
    OpenError, Transport,
};
use futures_util::future::BoxFuture;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub const AIRCRAFT: [u8; 32] = [5; 32];

/// Time for a hub to open a carrier.
const OPENING: Duration = Duration::from_millis(30);

/// Capacity of a carrier: a flow's share of the radio.
const CARRIER_BYTES: usize = 8 << 10;

/// A hub: every stream leads to the ground until the hub is cut.
pub struct FakeHub {
    session: u64,
    ground: mpsc::Sender<Incoming>,
    alive: CancellationToken,
    reach: watch::Sender<Reach>,
}

impl FakeHub {
    pub fn new(session: u64, ground: &mpsc::Sender<Incoming>) -> Arc<Self> {
        let (alive, reach) = (CancellationToken::new(), watch::channel(Reach::Up).0);
        Arc::new(Self { session, ground: ground.clone(), alive, reach })
    }

    /// Ends the hub with everything in it.
    pub fn kill(&self) {
        self.alive.cancel();
    }
}

/// One end of a carrier. A reset reaches the other end with its code; a dead hub ends both.
struct FakeStream {
    io: DuplexStream,
    is_finished: bool,
    /// Reason of a reset by either end.
    shared: Arc<OnceLock<ResetCode>>,
    code: Option<ResetCode>,
    dead: Pin<Box<WaitForCancellationFutureOwned>>,
}

fn carrier(alive: &CancellationToken) -> (FakeStream, FakeStream) {
    let (shared, (one, other)) = (Arc::<OnceLock<_>>::default(), duplex(CARRIER_BYTES));
    let end = |io| FakeStream {
        io,
        is_finished: false,
        shared: shared.clone(),
        code: None,
        dead: Box::pin(alive.clone().cancelled_owned()),
    };
    (end(one), end(other))
}

impl FakeStream {
    fn fail(&mut self, code: ResetCode) -> io::Error {
        self.code = Some(code);
        io::Error::new(io::ErrorKind::ConnectionReset, code)
    }

    /// Fails if the hub is dead or the carrier was reset.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.dead.as_mut().poll(cx).is_ready() {
            return Err(self.fail(ResetCode::Lost));
        }
        match self.shared.get().copied() {
            Some(code) => Err(self.fail(code)),
            None => Ok(()),
        }
    }
}

impl AsyncRead for FakeStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        // The other end may have been dropped meanwhile.
        self.check(cx)?;
        polled
    }
}

impl AsyncWrite for FakeStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_finished = true;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = self.shared.set(ResetCode::Aborted);
        }
    }
}

impl FlowStream for FakeStream {
    fn reset(&mut self, code: ResetCode) {
        let _ = self.shared.set(code);
        (self.io, self.is_finished) = (duplex(1).0, true);
    }

    fn stop_reading(&mut self, _: ResetCode) {}

    fn reset_code(&self) -> Option<ResetCode> {
        self.code
    }
}

impl Connector for FakeHub {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(async move {
            if self.alive.is_cancelled() {
                return Err(OpenError::Closed);
            }
            sleep(OPENING).await;
            let (mut air, ground) = carrier(&self.alive);
            air.write_all(&open.first).await.map_err(|_| OpenError::Closed)?;
            let incoming = Incoming {
                aircraft: AIRCRAFT,
                session: self.session,
                is_forwarded: false,
                target: open.target,
                class: open.class,
                passenger: open.passenger,
                claim: open.claim,
                dialler: None,
                carries: Carried::Stream(Box::new(ground)),
            };
            self.ground.send(incoming).await.map_err(|_| OpenError::Closed)?;
            Ok(Box::new(air) as Box<dyn FlowStream>)
        })
    }

    fn open_datagrams(
        &self,
        _: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(async { Err(OpenError::Unsupported) })
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }
}

/// Acceptor of what the hubs forward.
struct Forwarded(Mutex<mpsc::Receiver<Incoming>>);

impl Acceptor for Forwarded {
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async { self.0.lock().await.recv().await })
    }

    fn transport(&self) -> Transport {
        Transport::Link
    }
}

/// Returns an acceptor of what hubs send, for `egress`.
pub fn acceptor(egress: &Arc<Egress>) -> (mpsc::Sender<Incoming>, AnchorAcceptor) {
    acceptor_with(egress, Egresses::default())
}

/// Returns an acceptor of what hubs send, for `egress`. It forwards to `others`.
pub fn acceptor_with(
    egress: &Arc<Egress>,
    others: Egresses,
) -> (mpsc::Sender<Incoming>, AnchorAcceptor) {
    let (to, forwarded) = mpsc::channel(64);
    let inner = Arc::new(Forwarded(Mutex::new(forwarded)));
    (to, AnchorAcceptor::new(inner, egress.clone(), Arc::new(others)))
}

/// A ground whose destinations answer each byte with its complement.
pub struct Ground {
    pub to: mpsc::Sender<Incoming>,
    pub egress: Arc<Egress>,
    pub ended: mpsc::UnboundedReceiver<(Target, Option<ResetCode>)>,
    task: tokio::task::JoinHandle<()>,
}

impl Ground {
    pub fn start(orphan_timeout: Duration) -> Self {
        let egress = Egress::new([1; 8], orphan_timeout).unwrap();
        let (to, acceptor) = acceptor(&egress);
        let (tell, ended) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Some(incoming) = acceptor.accept().await {
                let tell = tell.clone();
                let Carried::Stream(mut flow) = incoming.carries else { panic!("a stream") };
                tokio::spawn(async move {
                    let _ = answer(&mut *flow).await;
                    let _ = tell.send((incoming.target, flow.reset_code()));
                });
            }
        });
        Self { to, egress, ended, task }
    }

    /// Ends the ground with all its flows.
    pub fn kill(self) {
        self.task.abort();
    }
}

async fn answer(flow: &mut dyn FlowStream) -> std::io::Result<()> {
    let mut buffer = vec![0; 10_000];
    loop {
        let count = flow.read(&mut buffer).await?;
        if count == 0 {
            return flow.shutdown().await;
        }
        buffer[..count].iter_mut().for_each(|byte| *byte = !*byte);
        flow.write_all(&buffer[..count]).await?;
    }
}
