//! The air's half of a flow: a stream that changes its carrier when the aircraft changes its hub.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_flow::{Claim, Class, Host, ResetCode, Service, Target};
use bentpipe_net::BufferSizes;
use bentpipe_transport::{Connector, FlowStream, MAX_FIRST_BYTES, Open, OpenError, Standing};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, sleep};

use crate::budget::passenger as owner;
use crate::carrier::{Broken, Carrier};
use crate::current::{Hub, Present, Subscription};
use crate::end::{Attachment, End, Identity};
use crate::parts::AirParts;
use crate::streams::Streams;
use crate::user_stream::{Side, UserStream};
use crate::wakers::Wakers;

/// Time for which a flow waits for a hub. The egress waits for 120 s by default, and the answer that
/// it has ended needs some more.
pub const MAX_DETACHED: Duration = Duration::from_secs(150);

/// Bytes read at once from a carrier that may not be accepted yet. An acceptance has 58 bytes.
const ACCEPT_BYTES: usize = 64;

/// Time between attempts to find a carrier through the same hub.
const RETRY: Duration = Duration::from_millis(500);

type Opening = BoxFuture<'static, Result<Box<dyn FlowStream>, OpenError>>;

/// A flow at the air.
pub type AirFlow = UserStream<AirEnd>;

/// The air's end of a flow.
pub struct AirEnd {
    present: Arc<Present>,
    wakers: Arc<Wakers>,
    /// Entry in the list of flows that a change of the hub wakes.
    _subscription: Subscription,
    class: Class,
    passenger: u32,
    claim: Option<Claim>,
    identity: Identity,
    streams: Streams,
    /// Path of the carrier in use.
    path: Option<Path>,
    /// Carrier that is to replace it.
    next: Option<Next>,
    /// Change of the hub that the flow has followed.
    generation: u64,
    /// Time of the last attempt to find a carrier, and of the next.
    tried_at: Option<Instant>,
    retry: Option<Pin<Box<Sleep>>>,
    /// End of the wait for a hub.
    abandoned: Option<Pin<Box<Sleep>>>,
}

/// Path of a carrier.
struct Path {
    /// The hub, which stays as long as the carrier.
    _hub: Arc<dyn Connector>,
    /// Change that brought the hub.
    generation: u64,
    /// Number of the flow's carriers, up to this one.
    carriers: u32,
}

struct Next {
    path: Path,
    stage: Stage,
}

enum Stage {
    Opening { opening: Opening, attachment: Attachment, first: Vec<u8> },
    Unanswered(Carrier),
}

impl AirFlow {
    /// Opens a flow through the present hub.
    pub async fn open(present: Arc<Present>, open: Open) -> Result<Self, OpenError> {
        // The target travels in a record, so that a bad one is found now.
        open.target.encode(&mut Vec::new())?;
        let Hub { generation, hub } = present.get();
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| OpenError::Down(error.to_string()))?;
        let Open { target, class, passenger, claim, first } = open;
        let mut identity = Identity::new(id, target);
        let mut streams = Streams::new(present.budget.account(owner(passenger)));
        let taken = streams.take_bytes(&first);
        debug_assert_eq!(taken, first.len(), "the first bytes fit into a new flow");
        let (attachment, mut record) = identity.begin(&streams.end);
        let outgoing = &mut streams.end.outgoing;
        while record.len() < MAX_FIRST_BYTES {
            let next = outgoing.output();
            if next.is_empty() {
                break;
            }
            let count = next.len().min(MAX_FIRST_BYTES - record.len());
            record.extend(&next[..count]);
            outgoing.written(count);
        }
        let wakers = Arc::<Wakers>::default();
        let subscription = present.subscribe(&wakers);
        let open = Open {
            target: anchor(),
            class,
            passenger,
            claim: claim.clone(),
            first: Bytes::from(record),
        };
        let (stream, carriers) = (hub.open(open).await?, identity.carriers());
        streams.attach(Carrier::new(stream, attachment, Vec::new()));
        Ok(UserStream(AirEnd {
            present,
            wakers,
            _subscription: subscription,
            class,
            passenger,
            claim,
            identity,
            streams,
            path: Some(Path { _hub: hub, generation, carriers }),
            next: None,
            generation,
            tried_at: None,
            retry: None,
            abandoned: None,
        }))
    }

    /// Continues a flow of the previous process through the present hub.
    pub fn from_parts(present: Arc<Present>, parts: AirParts) -> Self {
        let wakers = Arc::<Wakers>::default();
        UserStream(AirEnd {
            _subscription: present.subscribe(&wakers),
            wakers,
            class: parts.class,
            passenger: parts.passenger,
            claim: parts.claim,
            identity: parts.identity,
            streams: Streams::continued(
                parts.streams,
                present.budget.account(owner(parts.passenger)),
            ),
            path: None,
            next: None,
            generation: present.generation(),
            tried_at: None,
            retry: None,
            abandoned: None,
            present,
        })
    }
}

impl AirEnd {
    /// Follows changes of the hub, and finds another carrier if there is none.
    fn follow(&mut self, cx: &mut Context<'_>) {
        if self.streams.is_over() {
            return;
        }
        if self.streams.carrier.is_none() {
            self.path = None;
            if self.is_abandoned(cx) {
                self.next = None;
                self.streams.ended = Some(ResetCode::Lost);
                return;
            }
        }
        loop {
            let present = self.present.generation();
            let is_changed = present != self.generation;
            let is_left = self.path.as_ref().is_none_or(|path| path.generation != present);
            if is_changed || is_left && self.next.is_none() && self.may_retry(cx) {
                self.retry = None;
                self.begin();
            }
            let Some(next) = self.next.take() else { return };
            if self.poll_next(cx, next).is_pending() || self.streams.ended.is_some() {
                return;
            }
        }
    }

    /// Returns `true` if the flow has waited for a hub for too long.
    fn is_abandoned(&mut self, cx: &mut Context<'_>) -> bool {
        let left = MAX_DETACHED.saturating_sub(self.streams.detached().unwrap_or_default());
        let abandoned = self.abandoned.get_or_insert_with(|| Box::pin(sleep(left)));
        abandoned.as_mut().poll(cx).is_ready()
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
        let Hub { generation, hub } = self.present.get();
        self.generation = generation;
        self.tried_at = Some(Instant::now());
        let (attachment, first) = self.identity.begin(&self.streams.end);
        let open = Open {
            target: anchor(),
            class: self.class,
            passenger: self.passenger,
            claim: self.claim.clone(),
            first: Bytes::new(),
        };
        if let Some(Next { stage: Stage::Unanswered(carrier), .. }) = self.next.take() {
            carrier.give_up();
        }
        let opener = hub.clone();
        let opening: Opening = Box::pin(async move { opener.open(open).await });
        let path = Path { _hub: hub, generation, carriers: self.identity.carriers() };
        self.next = Some(Next { path, stage: Stage::Opening { opening, attachment, first } });
    }

    /// Brings the next carrier forward. Ready once it is in use, or has failed.
    fn poll_next(&mut self, cx: &mut Context<'_>, next: Next) -> Poll<()> {
        let Next { path, stage } = next;
        let mut carrier = match stage {
            Stage::Opening { mut opening, attachment, first } => match opening.as_mut().poll(cx) {
                Poll::Pending => {
                    let stage = Stage::Opening { opening, attachment, first };
                    self.next = Some(Next { path, stage });
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "no carrier for a flow");
                    return Poll::Ready(());
                }
                Poll::Ready(Ok(stream)) => Carrier::new(stream, attachment, first),
            },
            Stage::Unanswered(carrier) => carrier,
        };
        // The record is short. Until the acceptance there is nothing else to send.
        let mut nothing = End::default();
        if let Poll::Ready(Err(broken)) = carrier.poll_send(cx, &mut nothing) {
            carrier.give_up();
            self.refused(broken);
            return Poll::Ready(());
        }
        let mut scratch = [0; ACCEPT_BYTES];
        let mut buffer = ReadBuf::new(&mut scratch);
        match carrier.poll_receive(cx, &mut self.streams.end, &mut buffer) {
            Poll::Pending => {
                self.next = Some(Next { path, stage: Stage::Unanswered(carrier) });
                Poll::Pending
            }
            Poll::Ready(Err(broken)) => {
                carrier.give_up();
                self.refused(broken);
                Poll::Ready(())
            }
            Poll::Ready(Ok(())) if carrier.is_agreed() => {
                self.streams.unread.extend(buffer.filled());
                self.streams.attach(carrier);
                self.abandoned = None;
                self.path = Some(path);
                self.streams.has_news = true;
                Poll::Ready(())
            }
            Poll::Ready(Ok(())) => {
                self.next = Some(Next { path, stage: Stage::Unanswered(carrier) });
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Notes that a carrier was not accepted.
    fn refused(&mut self, broken: Broken) {
        self.streams.has_news = true;
        // With another carrier in use, its own end decides.
        if let (Broken::Ended(code), None) = (broken, &self.streams.carrier) {
            self.streams.ended = Some(code);
        }
    }
}

/// Target of every carrier.
pub(crate) fn anchor() -> Target {
    Target { host: Host::Service(Service::Anchor), port: 0 }
}

impl Side for AirEnd {
    fn wakers(&self) -> &Arc<Wakers> {
        &self.wakers
    }

    fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Streams, &mut Context<'_>) -> T,
    ) -> T {
        self.follow(cx);
        let last = self.path.as_ref().map(|path| path.carriers);
        self.streams.is_leaving = last.is_some_and(|last| last != self.identity.carriers());
        poll(&mut self.streams, cx)
    }
}

impl FlowStream for AirFlow {
    fn reset(&mut self, code: ResetCode) {
        if let Some(carrier) = &mut self.0.streams.carrier {
            carrier.stream_mut().reset(code);
        }
        self.0.next = None;
        self.0.streams.ended = self.0.streams.ended.or(Some(code));
    }

    fn stop_reading(&mut self, code: ResetCode) {
        self.0.streams.end.stop_reading(code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        self.0.streams.reset_code()
    }

    fn standing(&self) -> Standing {
        self.0.streams.standing()
    }

    fn local_buffers(&self) -> BufferSizes {
        self.0.streams.local_buffers()
    }

    fn demote(&mut self, class: Class) {
        self.0.class = class;
        if let Some(carrier) = &mut self.0.streams.carrier {
            carrier.stream_mut().demote(class);
        }
    }

    fn class(&self) -> Option<Class> {
        self.0.streams.end.class.and_then(Class::from_u8)
    }

    fn hand_over(&mut self) -> Option<Vec<u8>> {
        if self.0.streams.is_over() {
            return None;
        }
        self.0.next = None;
        let parts = AirParts {
            identity: self.0.identity.clone(),
            class: self.0.class,
            passenger: self.0.passenger,
            claim: self.0.claim.take(),
            streams: self.0.streams.take_parts(),
        };
        Some(parts.encode())
    }
}
