//! The egress's half of a flow: a stream that waits for its air while there is no carrier.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bentpipe_flow::{Class, ResetCode, Target};
use bentpipe_net::BufferSizes;
use bentpipe_transport::{FlowStream, Standing};
use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

use crate::budget::{Account, Budget, MAX_AIRCRAFT_BYTES, MAX_EGRESS_BYTES};
use crate::carrier::Carrier;
use crate::chunks::Chunks;
use crate::dials::{Dialling, Dials};
use crate::parts::{EgressParts, FlowParts, StreamParts};
use crate::registry::{Caller, Memory, Refusal, Registry, Remembered};
use crate::streams::Streams;
use crate::ticket::{EgressId, FlowId, TicketKey};
use crate::user_stream::{Side, UserStream};
use crate::wakers::Wakers;
use crate::wire::Control;

/// An egress: the flows whose destinations it has dialled.
pub struct Egress {
    registry: Mutex<Registry<Arc<Cell>>>,
    /// `true` once the flows are being handed over.
    is_closed: AtomicBool,
    budget: Arc<Budget>,
    /// Reports of dials to hubs.
    dials: Dials,
    epoch: Instant,
    /// Time of the tickets at `epoch`.
    began: Duration,
    orphan_timeout: Duration,
}

/// The shared part of a flow: its carriers come from one side, its user is on the other.
pub struct Cell {
    state: Mutex<State>,
    wakers: Arc<Wakers>,
}

struct State {
    streams: Streams,
    /// End of the wait for another carrier.
    orphaned: Option<Pin<Box<Sleep>>>,
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
        let registry = Registry::new(TicketKey::new(key, id));
        Ok(Self::with(registry, budget(), Duration::ZERO, orphan_timeout))
    }

    fn with(
        registry: Registry<Arc<Cell>>,
        budget: Arc<Budget>,
        began: Duration,
        orphan_timeout: Duration,
    ) -> Arc<Self> {
        let (registry, is_closed) = (Mutex::new(registry), AtomicBool::new(false));
        let (dials, epoch) = (Dials::default(), Instant::now());
        Arc::new(Self { registry, is_closed, budget, dials, epoch, began, orphan_timeout })
    }

    /// Continues the egress of the previous process. Its flows have to be [adopted](Self::adopt)
    /// before the first carrier is admitted.
    pub fn from_parts(parts: EgressParts, orphan_timeout: Duration) -> Arc<Self> {
        let Memory { sessions, ended } = parts.memory;
        let budget = budget();
        let cell = |flow: Remembered<StreamParts>| {
            let Remembered { aircraft, id, attempt, outcome } = flow;
            let outcome = outcome.map(|it| Cell::continued(it, budget.account(aircraft)));
            Remembered { aircraft, id, attempt, outcome }
        };
        let ended = ended.into_iter().map(cell).collect();
        let key = TicketKey::new(parts.key, parts.id);
        let registry = Registry::continued(key, Memory { sessions, ended });
        Self::with(registry, budget, parts.now, orphan_timeout)
    }

    /// Admits no carrier from now on. Their airs ask again, and find the next process.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// State for the next process. The egress has to be [closed](Self::close) before, and its flows
    /// [handed over](FlowStream::hand_over).
    pub fn parts(&self) -> EgressParts {
        let registry = self.registry.lock();
        let (key, id, memory) = (*registry.key().as_bytes(), registry.egress(), registry.memory());
        drop(registry);
        let parts = |flow: Remembered<Arc<Cell>>| {
            let Remembered { aircraft, id, attempt, outcome } = flow;
            let outcome = outcome.map(|cell| cell.state.lock().streams.take_parts());
            Remembered { aircraft, id, attempt, outcome }
        };
        let ended = memory.ended.into_iter().map(parts).collect();
        let memory = Memory { sessions: memory.sessions, ended };
        EgressParts { key, id, now: self.now(), memory }
    }

    /// Continues a flow of the previous process; `None` if the flow is known.
    pub fn adopt(self: &Arc<Self>, parts: FlowParts) -> Option<EgressFlow> {
        let FlowParts { aircraft, id, attempt, streams } = parts;
        let cell = Cell::continued(streams, self.budget.account(aircraft));
        let is_new = self.registry.lock().adopt(aircraft, id, attempt, cell.clone());
        is_new.then(|| {
            UserStream(EgressEnd { cell, egress: self.clone(), aircraft, id, dialling: None })
        })
    }

    /// Time of the tickets.
    fn now(&self) -> Duration {
        self.began + self.epoch.elapsed()
    }

    /// Number of this egress.
    pub fn id(&self) -> EgressId {
        self.registry.lock().egress()
    }

    /// Reports the dials for flows of hubs to one of them on `stream`, until it ends.
    pub async fn report_dials(&self, stream: Box<dyn FlowStream>) {
        self.dials.report(stream).await;
    }

    /// Number of open flows.
    pub fn flows(&self) -> usize {
        self.registry.lock().len()
    }

    /// Bytes of flows beyond those that every flow may keep: see [`crate::budget`].
    pub fn charged_bytes(&self) -> usize {
        self.budget.charged_bytes()
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
        let now = self.now();
        let mut registry = self.registry.lock();
        if self.is_closed.load(Ordering::SeqCst) {
            return Err((Refusal::Ended(ResetCode::Lost), stream));
        }
        let create = || Cell::new(self.budget.account(caller.aircraft));
        let (id, received, admitted) = match record {
            Control::Open { id, attempt, .. } => {
                (*id, 0, registry.open(caller, *id, *attempt, create))
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
        if self.is_closed.load(Ordering::SeqCst) {
            // The next process may have the flow already.
            return Err((Refusal::Ended(ResetCode::Lost), stream));
        }
        let attachment = match state.streams.end.accept(received, ticket) {
            Ok(attachment) => attachment,
            Err(error) => {
                tracing::warn!(%error, "a carrier is refused");
                return Err((Refusal::Unknown, stream));
            }
        };
        if let Some(class) = state.streams.end.class.and_then(Class::from_u8) {
            stream.confirm_class(class);
        }
        state.attach(Carrier::begun(stream, attachment, rest));
        // The acceptance leaves at once, even if the user of the flow has nothing to do. A flow that is
        // over has no user, and needs no more than the acceptance.
        state.streams.send(&mut Context::from_waker(&Waker::from(cell.wakers.clone())));
        if state.streams.end.is_done() {
            state.streams.carrier = None;
        }
        drop(state);
        std::task::Wake::wake_by_ref(&cell.wakers);
        if !is_new {
            return Ok(Admitted::Attached);
        }
        let (egress, aircraft) = (self.clone(), caller.aircraft);
        Ok(Admitted::New(UserStream(EgressEnd { cell, egress, aircraft, id, dialling: None })))
    }
}

/// Memory of an egress.
fn budget() -> Arc<Budget> {
    Budget::new(MAX_AIRCRAFT_BYTES, MAX_EGRESS_BYTES)
}

impl Cell {
    fn new(account: Account) -> Arc<Self> {
        Self::with(Streams::new(account))
    }

    fn continued(parts: StreamParts, account: Account) -> Arc<Self> {
        Self::with(Streams::continued(parts, account))
    }

    fn with(streams: Streams) -> Arc<Self> {
        let state = State { streams, orphaned: None };
        Arc::new(Self { state: Mutex::new(state), wakers: Arc::default() })
    }
}

impl State {
    /// Uses `carrier` from now on, and gives up the previous one.
    fn attach(&mut self, carrier: Carrier) {
        self.streams.attach(carrier);
        self.orphaned = None;
    }

    /// Ends the flow if it has waited for its air for too long.
    fn look_for_end(&mut self, cx: &mut Context<'_>, orphan_timeout: Duration) {
        if self.streams.carrier.is_some() || self.streams.is_over() {
            return;
        }
        let orphaned = self.orphaned.get_or_insert_with(|| Box::pin(sleep(orphan_timeout)));
        if orphaned.as_mut().poll(cx).is_ready() {
            self.streams.ended = Some(ResetCode::Aborted);
        }
    }
}

/// A flow at the egress.
pub type EgressFlow = UserStream<EgressEnd>;

/// The egress's end of a flow.
pub struct EgressEnd {
    cell: Arc<Cell>,
    egress: Arc<Egress>,
    aircraft: [u8; 32],
    id: FlowId,
    /// The dial, if it is to be reported.
    dialling: Option<Dialling>,
}

impl Drop for EgressEnd {
    fn drop(&mut self) {
        let mut state = self.cell.state.lock();
        // A done flow is kept for its air, so it must not keep data: one that the air has stopped may
        // have megabytes of it.
        let is_done =
            state.streams.end.is_done() && state.streams.end.outgoing.unconfirmed_bytes() == 0;
        let reason = match is_done {
            true => None,
            false => Some(state.streams.ended.unwrap_or(ResetCode::Aborted)),
        };
        state.streams.unread = Chunks::default();
        state.streams.settle();
        // Dropping the carrier of an unfinished flow resets it.
        state.streams.carrier = None;
        drop(state);
        self.egress.registry.lock().end(self.aircraft, self.id, reason);
    }
}

impl EgressFlow {
    /// Reports the dial, which begins now, to hubs.
    pub fn report_dial(&mut self, target: Target) {
        self.0.dialling = self.0.egress.dials.begin(target);
    }
}

impl Side for EgressEnd {
    fn wakers(&self) -> &Arc<Wakers> {
        &self.cell.wakers
    }

    fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Streams, &mut Context<'_>) -> T,
    ) -> T {
        let mut state = self.cell.state.lock();
        state.look_for_end(cx, self.egress.orphan_timeout);
        poll(&mut state.streams, cx)
    }
}

impl FlowStream for EgressFlow {
    fn reset(&mut self, code: ResetCode) {
        if let Some(dialling) = self.0.dialling.take() {
            dialling.failed(code);
        }
        let state = &mut *self.0.cell.state.lock();
        state.streams.ended = state.streams.ended.or(Some(code));
        let Some(mut carrier) = state.streams.carrier.take() else { return };
        if !state.streams.end.outgoing.is_untouched() {
            // The bytes under way are not wanted any more.
            return carrier.stream_mut().reset(code);
        }
        // HTTP/3 has fewer codes than a record.
        state.streams.end.outgoing.queue(&Control::End(code));
        let cx = &mut Context::from_waker(Waker::noop());
        match carrier.poll_send(cx, &mut state.streams.end) {
            Poll::Ready(Ok(())) => drop(Pin::new(carrier.stream_mut()).poll_shutdown(cx)),
            _ => carrier.stream_mut().reset(code),
        }
    }

    fn stop_reading(&mut self, code: ResetCode) {
        let mut state = self.0.cell.state.lock();
        state.streams.end.stop_reading(code);
        state.streams.send(&mut Context::from_waker(&Waker::from(self.0.cell.wakers.clone())));
    }

    fn reset_code(&self) -> Option<ResetCode> {
        self.0.cell.state.lock().streams.reset_code()
    }

    fn standing(&self) -> Standing {
        Standing { unopened: None, ..self.0.cell.state.lock().streams.standing() }
    }

    fn local_buffers(&self) -> BufferSizes {
        self.0.cell.state.lock().streams.local_buffers()
    }

    fn confirm_class(&mut self, class: Class) {
        let state = &mut *self.0.cell.state.lock();
        state.streams.end.class = Some(class.to_u8());
        state.streams.end.outgoing.queue(&Control::Class(class.to_u8()));
        if let Some(carrier) = &mut state.streams.carrier {
            carrier.stream_mut().confirm_class(class);
        }
        state.streams.send(&mut Context::from_waker(&Waker::from(self.0.cell.wakers.clone())));
    }

    fn connected(&mut self) {
        if let Some(dialling) = self.0.dialling.take() {
            dialling.connected();
        }
        if let Some(carrier) = &mut self.0.cell.state.lock().streams.carrier {
            carrier.stream_mut().connected();
        }
    }

    fn demote(&mut self, class: Class) {
        if let Some(carrier) = &mut self.0.cell.state.lock().streams.carrier {
            carrier.stream_mut().demote(class);
        }
    }

    fn hand_over(&mut self) -> Option<Vec<u8>> {
        let (aircraft, id) = (self.0.aircraft, self.0.id);
        let mut state = self.0.cell.state.lock();
        if state.streams.is_over() {
            return None;
        }
        let streams = state.streams.take_parts();
        drop(state);
        let attempt = self.0.egress.registry.lock().take(aircraft, id)?;
        Some(FlowParts { aircraft, id, attempt, streams }.encode())
    }
}
