//! The egress's half of a flow: a stream that waits for its air while there is no carrier.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bentpipe_flow::{Class, ResetCode};
use bentpipe_net::BufferSizes;
use bentpipe_transport::{FlowStream, Standing};
use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::carrier::{Broken, Carrier, MAX_UNREAD_BYTES, SCRATCH_BYTES};
use crate::end::End;
use crate::registry::{Caller, Refusal, Registry};
use crate::ticket::{EgressId, FlowId, TicketKey};
use crate::wakers::Wakers;
use crate::wire::Control;

/// An egress: the flows whose destinations it has dialled.
pub struct Egress {
    registry: Mutex<Registry<Arc<Cell>>>,
    epoch: Instant,
    orphan_timeout: Duration,
}

/// The shared part of a flow: its carriers come from one side, its user is on the other.
pub struct Cell {
    state: Mutex<State>,
    wakers: Arc<Wakers>,
}

struct State {
    end: End,
    carrier: Option<Carrier>,
    /// Time of the loss of the last carrier.
    detached_since: Option<Instant>,
    /// End of the wait for another carrier.
    orphaned: Option<Pin<Box<Sleep>>>,
    /// Outages of earlier carriers, and times without a carrier.
    unheard: Duration,
    /// Data that was read ahead of the user.
    unread: BytesMut,
    ended: Option<ResetCode>,
    /// `true` if something was received that may concern the other half.
    has_news: bool,
}

/// Result of a carrier that was admitted.
pub enum Admitted {
    /// It opened this flow.
    New(EgressFlow),
    /// It goes on with a flow.
    Attached,
}

impl Egress {
    /// Creates an egress with number `id`. A flow waits for another carrier for `orphan_timeout`.
    pub fn new(id: EgressId, orphan_timeout: Duration) -> io::Result<Arc<Self>> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let registry = Mutex::new(Registry::new(TicketKey::new(key, id)));
        Ok(Arc::new(Self { registry, epoch: Instant::now(), orphan_timeout }))
    }

    /// Number of this egress.
    pub fn id(&self) -> EgressId {
        self.registry.lock().egress()
    }

    /// Number of open flows.
    pub fn flows(&self) -> usize {
        self.registry.lock().len()
    }

    /// Admits a carrier that began with `record`, which is an OPEN or a RESUME. The bytes after it that
    /// were read are `rest`.
    pub fn admit(
        self: &Arc<Self>,
        caller: &Caller,
        record: &Control,
        mut stream: Box<dyn FlowStream>,
        rest: BytesMut,
    ) -> Result<Admitted, (Refusal, Box<dyn FlowStream>)> {
        let now = self.epoch.elapsed();
        let mut registry = self.registry.lock();
        let (id, received, admitted) = match record {
            Control::Open { id, attempt, .. } => {
                (*id, 0, registry.open(caller, *id, *attempt, Arc::<Cell>::default))
            }
            Control::Resume { id, attempt, ticket, received } => {
                let resumed = registry.resume(caller, (*id, *attempt), ticket, now);
                (*id, *received, resumed.map(|cell| (cell, false)))
            }
            _ => return Err((Refusal::Unknown, stream)),
        };
        let (cell, is_new) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return Err((refusal, stream)),
        };
        let ticket = registry.ticket(caller, &id, now);
        drop(registry);
        let mut state = cell.state.lock();
        let attachment = match state.end.accept(received, ticket) {
            Ok(attachment) => attachment,
            Err(error) => {
                tracing::warn!(%error, "a carrier is refused");
                return Err((Refusal::Unknown, stream));
            }
        };
        if let Some(class) = state.end.class.and_then(Class::from_u8) {
            stream.confirm_class(class);
        }
        state.attach(Carrier::begun(stream, attachment, rest));
        // The acceptance leaves at once, even if the user of the flow has nothing to do. A flow that is
        // over has no user, and needs no more than the acceptance.
        state.send(&mut Context::from_waker(&Waker::from(cell.wakers.clone())));
        if state.end.is_done() {
            state.carrier = None;
        }
        drop(state);
        std::task::Wake::wake_by_ref(&cell.wakers);
        if !is_new {
            return Ok(Admitted::Attached);
        }
        let (egress, aircraft) = (self.clone(), caller.aircraft);
        Ok(Admitted::New(EgressFlow { cell, egress, aircraft, id }))
    }
}

impl Default for Cell {
    fn default() -> Self {
        let state = State {
            end: End::default(),
            carrier: None,
            detached_since: None,
            orphaned: None,
            unheard: Duration::ZERO,
            unread: BytesMut::new(),
            ended: None,
            has_news: false,
        };
        Self { state: Mutex::new(state), wakers: Arc::default() }
    }
}

impl State {
    /// Uses `carrier` from now on, and gives up the previous one.
    fn attach(&mut self, carrier: Carrier) {
        self.detach();
        if let Some(since) = self.detached_since.take() {
            self.unheard += since.elapsed();
        }
        self.orphaned = None;
        self.carrier = Some(carrier);
    }

    fn detach(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            self.unheard += carrier.look().standing().unheard;
            self.detached_since = Some(Instant::now());
            carrier.give_up();
        }
    }

    fn broke(&mut self, broken: Broken) {
        self.has_news = true;
        if self.end.is_done() {
            self.carrier = None;
            return;
        }
        match broken {
            Broken::Ended(code) => self.ended = Some(code),
            Broken::Lost => {
                self.detach();
                self.end.outgoing.detach();
            }
        }
    }

    /// Sends what there is. Returns `true` if the carrier has all of it.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(carrier) = &mut self.carrier else { return true };
        match carrier.poll_send(cx, &mut self.end) {
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
            match carrier.poll_receive(cx, &mut self.end, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {
                    self.unread.extend_from_slice(buffer.filled());
                    self.has_news = true;
                }
                Poll::Ready(Err(broken)) => return self.broke(broken),
            }
        }
    }

    /// Ends the flow if it has waited for its air for too long.
    fn look_for_end(&mut self, cx: &mut Context<'_>, orphan_timeout: Duration) {
        if self.carrier.is_some() || self.ended.is_some() || self.end.is_done() {
            return;
        }
        let orphaned = self.orphaned.get_or_insert_with(|| Box::pin(sleep(orphan_timeout)));
        if orphaned.as_mut().poll(cx).is_ready() {
            self.ended = Some(ResetCode::Aborted);
        }
    }

    fn error(&self) -> Option<io::Error> {
        self.ended.map(|code| io::Error::new(io::ErrorKind::ConnectionReset, code))
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        orphan_timeout: Duration,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let mut is_dry = false;
        while buffer.filled().len() == before && buffer.remaining() > 0 {
            if !self.unread.is_empty() {
                let count = self.unread.len().min(buffer.remaining());
                buffer.put_slice(&self.unread.split_to(count));
                break;
            }
            if self.end.reads_no_more() {
                break;
            }
            self.look_for_end(cx, orphan_timeout);
            if let Some(error) = self.error() {
                return Poll::Ready(Err(error));
            }
            let Some(carrier) = &mut self.carrier else { return Poll::Pending };
            match carrier.poll_receive(cx, &mut self.end, buffer) {
                Poll::Pending => {
                    is_dry = true;
                    break;
                }
                Poll::Ready(Ok(())) => self.has_news = true,
                Poll::Ready(Err(broken)) => self.broke(broken),
            }
        }
        self.end.confirm(is_dry);
        self.send(cx);
        if is_dry { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        orphan_timeout: Duration,
    ) -> Poll<io::Result<usize>> {
        let mut taken = self.end.outgoing.write(bytes);
        self.send(cx);
        if taken == 0 {
            // A confirmation makes room, and so does a carrier that has everything.
            self.read_ahead(cx);
            taken = self.end.outgoing.write(bytes);
            self.send(cx);
        }
        self.look_for_end(cx, orphan_timeout);
        if let Some(error) = self.error() {
            return Poll::Ready(Err(error));
        }
        if let Some(code) = self.end.outgoing.stopped() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, code)));
        }
        if taken == 0 && !bytes.is_empty() { Poll::Pending } else { Poll::Ready(Ok(taken)) }
    }

    fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        orphan_timeout: Duration,
    ) -> Poll<io::Result<()>> {
        self.end.outgoing.finish();
        self.send(cx);
        self.read_ahead(cx);
        self.end.confirm(true);
        if self.send(cx) && self.end.outgoing.is_confirmed() {
            return Poll::Ready(Ok(()));
        }
        self.look_for_end(cx, orphan_timeout);
        match self.error() {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    }
}

/// A flow at the egress.
pub struct EgressFlow {
    cell: Arc<Cell>,
    egress: Arc<Egress>,
    aircraft: [u8; 32],
    id: FlowId,
}

impl Drop for EgressFlow {
    fn drop(&mut self) {
        let mut state = self.cell.state.lock();
        // A done flow is kept for its air, so it must not keep data: one that the air has stopped may
        // have megabytes of it.
        let is_done = state.end.is_done() && state.end.outgoing.unconfirmed_bytes() == 0;
        let reason = match is_done {
            true => None,
            false => Some(state.ended.unwrap_or(ResetCode::Aborted)),
        };
        state.unread = BytesMut::new();
        // Dropping the carrier of an unfinished flow resets it.
        state.carrier = None;
        drop(state);
        self.egress.registry.lock().end(self.aircraft, self.id, reason);
    }
}

impl EgressFlow {
    /// Polls the writing half by `poll`.
    fn as_writer<T>(
        &self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut State, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let waker = self.cell.wakers.of_writer(cx);
        let mut state = self.cell.state.lock();
        let polled = poll(&mut state, &mut Context::from_waker(&waker));
        if std::mem::take(&mut state.has_news) {
            self.cell.wakers.wake_reader();
        }
        polled
    }
}

impl AsyncRead for EgressFlow {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let waker = self.cell.wakers.of_reader(cx);
        let mut state = self.cell.state.lock();
        let cx = &mut Context::from_waker(&waker);
        let polled = state.poll_read(cx, buffer, self.egress.orphan_timeout);
        if std::mem::take(&mut state.has_news) {
            self.cell.wakers.wake_writer();
        }
        polled
    }
}

impl AsyncWrite for EgressFlow {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let timeout = self.egress.orphan_timeout;
        self.as_writer(cx, |state, cx| state.poll_write(cx, bytes, timeout))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.as_writer(cx, |state, cx| {
            state.send(cx);
            Poll::Ready(Ok(()))
        })
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let timeout = self.egress.orphan_timeout;
        self.as_writer(cx, |state, cx| state.poll_shutdown(cx, timeout))
    }
}

impl FlowStream for EgressFlow {
    fn reset(&mut self, code: ResetCode) {
        let mut guard = self.cell.state.lock();
        let state = &mut *guard;
        state.ended = state.ended.or(Some(code));
        let Some(mut carrier) = state.carrier.take() else { return };
        if !state.end.outgoing.is_untouched() {
            // The bytes under way are not wanted any more.
            return carrier.stream().reset(code);
        }
        // HTTP/3 has fewer codes than a record.
        state.end.outgoing.queue(&Control::End(code));
        let cx = &mut Context::from_waker(Waker::noop());
        match carrier.poll_send(cx, &mut state.end) {
            Poll::Ready(Ok(())) => drop(Pin::new(carrier.stream()).poll_shutdown(cx)),
            _ => carrier.stream().reset(code),
        }
    }

    fn stop_reading(&mut self, code: ResetCode) {
        let mut state = self.cell.state.lock();
        state.end.stop_reading(code);
        state.send(&mut Context::from_waker(&Waker::from(self.cell.wakers.clone())));
    }

    fn reset_code(&self) -> Option<ResetCode> {
        let state = self.cell.state.lock();
        state.ended.or(state.end.outgoing.stopped())
    }

    fn standing(&self) -> Standing {
        let state = self.cell.state.lock();
        let of_carrier = state.carrier.as_ref().map(|it| it.look().standing()).unwrap_or_default();
        let detached = state.detached_since.map(|since| since.elapsed()).unwrap_or_default();
        Standing {
            unheard: state.unheard + of_carrier.unheard + detached,
            unsent_bytes: of_carrier.unsent_bytes + state.end.outgoing.unsent_bytes(),
            unopened: None,
        }
    }

    fn local_buffers(&self) -> BufferSizes {
        let state = self.cell.state.lock();
        state.carrier.as_ref().map(|it| it.look().local_buffers()).unwrap_or_default()
    }

    fn confirm_class(&mut self, class: Class) {
        let mut guard = self.cell.state.lock();
        let state = &mut *guard;
        state.end.class = Some(class.to_u8());
        state.end.outgoing.queue(&Control::Class(class.to_u8()));
        if let Some(carrier) = &mut state.carrier {
            carrier.stream().confirm_class(class);
        }
        state.send(&mut Context::from_waker(&Waker::from(self.cell.wakers.clone())));
    }

    fn connected(&mut self) {
        if let Some(carrier) = &mut self.cell.state.lock().carrier {
            carrier.stream().connected();
        }
    }

    fn demote(&mut self, class: Class) {
        if let Some(carrier) = &mut self.cell.state.lock().carrier {
            carrier.stream().demote(class);
        }
    }
}
