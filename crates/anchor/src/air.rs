//! The air's half of a flow: a stream that changes its carrier when the aircraft changes its hub.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_flow::{Claim, Class, Host, ResetCode, Service, Target};
use bentpipe_net::BufferSizes;
use bentpipe_transport::{Connector, FlowStream, MAX_FIRST_BYTES, Open, OpenError, Standing};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::carrier::{Broken, Carrier, MAX_UNREAD_BYTES, SCRATCH_BYTES};
use crate::current::{Listed, Numbered, Present};
use crate::end::{AirEnd, Attachment};
use crate::wakers::Wakers;

/// Time between attempts to find a carrier through the same hub.
const RETRY: Duration = Duration::from_millis(500);

type Opening = BoxFuture<'static, Result<Box<dyn FlowStream>, OpenError>>;

/// A flow at the air.
pub struct AirFlow {
    present: Arc<Present>,
    wakers: Arc<Wakers>,
    /// Entry in the list of flows that a change of the hub wakes.
    _listed: Listed,
    class: Class,
    passenger: u32,
    claim: Option<Claim>,
    air: AirEnd,
    /// Carrier in use.
    carrier: Option<Carrier>,
    /// Its hub, which stays as long as the carrier, and the change that brought it.
    hub: Option<(Arc<dyn Connector>, u64)>,
    /// Carrier that is to replace it.
    next: Option<Next>,
    /// Change of the hub that the flow has followed.
    generation: u64,
    /// Time of the last attempt to find a carrier, and of the next.
    tried_at: Option<Instant>,
    retry: Option<Pin<Box<Sleep>>>,
    detached_since: Option<Instant>,
    /// Outages of earlier carriers, and times without a carrier.
    unheard: Duration,
    /// Data that was read ahead of the user.
    unread: BytesMut,
    ended: Option<ResetCode>,
    /// `true` if something was received that may concern the other half.
    has_news: bool,
}

struct Next {
    hub: (Arc<dyn Connector>, u64),
    stage: Stage,
}

enum Stage {
    Opening { opening: Opening, attachment: Attachment, first: Vec<u8> },
    Asking(Carrier),
}

impl AirFlow {
    /// Opens a flow through the present hub.
    pub async fn open(present: Arc<Present>, open: Open) -> Result<Self, OpenError> {
        // The target travels in a record, so that a bad one is found now.
        open.target.encode(&mut Vec::new())?;
        let Numbered { generation, hub } = present.get();
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| OpenError::Down(error.to_string()))?;
        let Open { target, class, passenger, claim, first } = open;
        let mut air = AirEnd::new(id, target);
        let taken = air.end.outgoing.write(&first);
        debug_assert_eq!(taken, first.len(), "the first bytes fit into a new flow");
        let (attachment, mut record) = air.begin();
        while record.len() < MAX_FIRST_BYTES {
            let next = air.end.outgoing.output();
            if next.is_empty() {
                break;
            }
            let count = next.len().min(MAX_FIRST_BYTES - record.len());
            record.extend(&next[..count]);
            air.end.outgoing.written(count);
        }
        let wakers = Arc::<Wakers>::default();
        let listed = present.list(&wakers);
        let open = Open {
            target: anchor(),
            class,
            passenger,
            claim: claim.clone(),
            first: Bytes::from(record),
        };
        let stream = hub.open(open).await?;
        Ok(Self {
            present,
            wakers,
            _listed: listed,
            class,
            passenger,
            claim,
            air,
            carrier: Some(Carrier::new(stream, attachment, Vec::new())),
            hub: Some((hub, generation)),
            next: None,
            generation,
            tried_at: None,
            retry: None,
            detached_since: None,
            unheard: Duration::ZERO,
            unread: BytesMut::new(),
            ended: None,
            has_news: false,
        })
    }

    /// Follows changes of the hub, and finds another carrier if there is none.
    fn follow(&mut self, cx: &mut Context<'_>) {
        if self.ended.is_some() || self.air.end.is_done() {
            return;
        }
        loop {
            let present = self.present.generation();
            let is_changed = present != self.generation;
            let is_left = self.hub.as_ref().is_none_or(|(_, began)| *began != present);
            if is_changed || is_left && self.next.is_none() && self.may_retry(cx) {
                self.retry = None;
                self.begin();
            }
            let Some(next) = self.next.take() else { return };
            if self.poll_next(cx, next).is_pending() || self.ended.is_some() {
                return;
            }
        }
    }

    /// Returns `true` if it is time for another attempt. The first is due at once.
    fn may_retry(&mut self, cx: &mut Context<'_>) -> bool {
        let since = self.tried_at.map(|tried_at| tried_at.elapsed());
        let wait = since.map_or(Duration::ZERO, |since| RETRY.saturating_sub(since));
        wait.is_zero()
            || self.retry.get_or_insert_with(|| Box::pin(sleep(wait))).as_mut().poll(cx).is_ready()
    }

    /// Begins a carrier through the present hub.
    fn begin(&mut self) {
        let Numbered { generation, hub } = self.present.get();
        self.generation = generation;
        self.tried_at = Some(Instant::now());
        let (attachment, first) = self.air.begin();
        let open = Open {
            target: anchor(),
            class: self.class,
            passenger: self.passenger,
            claim: self.claim.clone(),
            first: Bytes::new(),
        };
        if let Some(Next { stage: Stage::Asking(carrier), .. }) = self.next.take() {
            carrier.give_up();
        }
        let opener = hub.clone();
        let opening: Opening = Box::pin(async move { opener.open(open).await });
        let (hub, stage) = ((hub, generation), Stage::Opening { opening, attachment, first });
        self.next = Some(Next { hub, stage });
    }

    /// Brings the next carrier forward. Ready once it is in use, or has failed.
    fn poll_next(&mut self, cx: &mut Context<'_>, next: Next) -> Poll<()> {
        let Next { hub, stage } = next;
        let mut carrier = match stage {
            Stage::Opening { mut opening, attachment, first } => match opening.as_mut().poll(cx) {
                Poll::Pending => {
                    let stage = Stage::Opening { opening, attachment, first };
                    self.next = Some(Next { hub, stage });
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "no carrier for a flow");
                    return Poll::Ready(());
                }
                Poll::Ready(Ok(stream)) => Carrier::new(stream, attachment, first),
            },
            Stage::Asking(carrier) => carrier,
        };
        // The record is short. Until the acceptance there is nothing else to send.
        let mut nothing = crate::end::End::default();
        if let Poll::Ready(Err(broken)) = carrier.poll_send(cx, &mut nothing) {
            carrier.give_up();
            self.refused(broken);
            return Poll::Ready(());
        }
        let mut scratch = [0; SCRATCH_BYTES];
        let mut buffer = ReadBuf::new(&mut scratch);
        match carrier.poll_receive(cx, &mut self.air.end, &mut buffer) {
            Poll::Pending => {
                self.next = Some(Next { hub, stage: Stage::Asking(carrier) });
                Poll::Pending
            }
            Poll::Ready(Err(broken)) => {
                carrier.give_up();
                self.refused(broken);
                Poll::Ready(())
            }
            Poll::Ready(Ok(())) if carrier.is_agreed() => {
                self.unread.extend_from_slice(buffer.filled());
                self.detach();
                (self.carrier, self.hub) = (Some(carrier), Some(hub));
                self.attached();
                self.has_news = true;
                Poll::Ready(())
            }
            Poll::Ready(Ok(())) => {
                self.next = Some(Next { hub, stage: Stage::Asking(carrier) });
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Notes that a carrier was not accepted.
    fn refused(&mut self, broken: Broken) {
        self.has_news = true;
        // With another carrier in use, its own end decides.
        if let (Broken::Ended(code), None) = (broken, &self.carrier) {
            self.ended = Some(code);
        }
    }

    /// Gives up the carrier in use.
    fn detach(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            self.unheard += carrier.look().standing().unheard;
            self.detached_since = Some(Instant::now());
            carrier.give_up();
        }
        self.hub = None;
    }

    fn attached(&mut self) {
        if let Some(since) = self.detached_since.take() {
            self.unheard += since.elapsed();
        }
    }

    /// Handles the end of the carrier in use.
    fn broke(&mut self, broken: Broken) {
        self.has_news = true;
        if self.air.end.is_done() {
            self.carrier = None;
            return;
        }
        match broken {
            Broken::Ended(code) if self.next.is_none() => self.ended = Some(code),
            // A hub that is being left may end the old carrier for any reason.
            _ => {
                self.detach();
                self.air.end.outgoing.detach();
            }
        }
    }

    fn error(&self) -> Option<io::Error> {
        self.ended.map(|code| io::Error::new(io::ErrorKind::ConnectionReset, code))
    }

    /// Sends what there is. Returns `true` if the carrier has all of it.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(carrier) = &mut self.carrier else { return true };
        match carrier.poll_send(cx, &mut self.air.end) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(broken)) => self.broke(broken),
        }
        true
    }

    /// Receives records for a writer that waits for one. Data before them is kept for the reader.
    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        let mut scratch = [0; SCRATCH_BYTES];
        while self.unread.len() < MAX_UNREAD_BYTES
            && let Some(carrier) = &mut self.carrier
        {
            let mut buffer = ReadBuf::new(&mut scratch);
            match carrier.poll_receive(cx, &mut self.air.end, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {
                    self.unread.extend_from_slice(buffer.filled());
                    self.has_news = true;
                }
                Poll::Ready(Err(broken)) => return self.broke(broken),
            }
        }
    }
}

/// Target of every carrier.
fn anchor() -> Target {
    Target { host: Host::Service(Service::Anchor), port: 0 }
}

impl AirFlow {
    fn read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let mut is_dry = false;
        while buffer.filled().len() == before && buffer.remaining() > 0 {
            self.follow(cx);
            if !self.unread.is_empty() {
                let count = self.unread.len().min(buffer.remaining());
                buffer.put_slice(&self.unread.split_to(count));
                break;
            }
            if self.air.end.reads_no_more() {
                break;
            }
            if let Some(error) = self.error() {
                return Poll::Ready(Err(error));
            }
            let Some(carrier) = &mut self.carrier else { return Poll::Pending };
            match carrier.poll_receive(cx, &mut self.air.end, buffer) {
                Poll::Pending => {
                    is_dry = true;
                    break;
                }
                Poll::Ready(Ok(())) => self.has_news = true,
                Poll::Ready(Err(broken)) => self.broke(broken),
            }
        }
        self.air.end.confirm(is_dry);
        self.send(cx);
        if is_dry { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.follow(cx);
        let mut taken = self.air.end.outgoing.write(bytes);
        self.send(cx);
        if taken == 0 {
            // A confirmation makes room, and so does a carrier that has everything.
            self.read_ahead(cx);
            taken = self.air.end.outgoing.write(bytes);
            self.send(cx);
        }
        if let Some(error) = self.error() {
            return Poll::Ready(Err(error));
        }
        if let Some(code) = self.air.end.outgoing.stopped() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, code)));
        }
        if taken == 0 && !bytes.is_empty() { Poll::Pending } else { Poll::Ready(Ok(taken)) }
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.air.end.outgoing.finish();
        self.follow(cx);
        self.send(cx);
        self.read_ahead(cx);
        self.air.end.confirm(true);
        if self.send(cx) && self.air.end.outgoing.is_confirmed() {
            return Poll::Ready(Ok(()));
        }
        match self.error() {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    }

    /// Polls the writing half by `poll`.
    fn as_writer<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Self, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let waker = self.wakers.of_writer(cx);
        let polled = poll(self, &mut Context::from_waker(&waker));
        if std::mem::take(&mut self.has_news) {
            self.wakers.wake_reader();
        }
        polled
    }
}

impl AsyncRead for AirFlow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let waker = self.wakers.of_reader(cx);
        let polled = self.read(&mut Context::from_waker(&waker), buffer);
        if std::mem::take(&mut self.has_news) {
            self.wakers.wake_writer();
        }
        polled
    }
}

impl AsyncWrite for AirFlow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.as_writer(cx, |flow, cx| flow.write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.as_writer(cx, |flow, cx| {
            flow.send(cx);
            Poll::Ready(Ok(()))
        })
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.as_writer(cx, Self::finish)
    }
}

impl FlowStream for AirFlow {
    fn reset(&mut self, code: ResetCode) {
        if let Some(carrier) = &mut self.carrier {
            carrier.stream().reset(code);
        }
        self.next = None;
        self.ended = self.ended.or(Some(code));
    }

    fn stop_reading(&mut self, code: ResetCode) {
        self.air.end.stop_reading(code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        self.ended.or(self.air.end.outgoing.stopped())
    }

    fn standing(&self) -> Standing {
        let of_carrier = self.carrier.as_ref().map(|it| it.look().standing()).unwrap_or_default();
        let detached = self.detached_since.map(|since| since.elapsed()).unwrap_or_default();
        Standing {
            unheard: self.unheard + of_carrier.unheard + detached,
            unsent_bytes: of_carrier.unsent_bytes + self.air.end.outgoing.unsent_bytes(),
            unopened: of_carrier.unopened,
        }
    }

    fn local_buffers(&self) -> BufferSizes {
        self.carrier.as_ref().map(|it| it.look().local_buffers()).unwrap_or_default()
    }

    fn demote(&mut self, class: Class) {
        self.class = class;
        if let Some(carrier) = &mut self.carrier {
            carrier.stream().demote(class);
        }
    }

    fn class(&self) -> Option<Class> {
        self.air.end.class.and_then(Class::from_u8)
    }
}
