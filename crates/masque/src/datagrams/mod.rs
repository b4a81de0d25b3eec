//! Datagram flows: CONNECT-UDP requests (RFC 9298) with HTTP Datagrams (RFC 9297). The datagrams
//! travel in QUIC DATAGRAM frames, or in DATAGRAM capsules on the request stream if the peer
//! accepts no frames.

pub(crate) mod queue;
pub(crate) mod router;

use std::{
    future::poll_fn,
    sync::{Arc, OnceLock},
};

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use tokio::{io::ReadBuf, sync::watch};

use crate::{
    capsule::{self, Capsules, MAX_SENT_BYTES, Oversized},
    flow::DataFrames,
    stream::{RawRecv, RawSend},
    wire::read_varint,
};
use queue::{Queue, QueueBudget};
use router::Route;

/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// Maximum datagram size before the connection is known. The smallest QUIC path carries 1,200
/// bytes; 50 of them are headers.
pub(crate) const UNKNOWN_MAX_BYTES: usize = 1_150;

/// Reason why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// The datagram exceeds the path MTU, which may change.
    #[error("the datagram is larger than the {most} bytes that the path takes now")]
    TooLarge {
        /// Present maximum, context id included.
        most: usize,
    },
    /// The flow has ended.
    #[error("the flow has ended: {0}")]
    Ended(ResetCode),
}

/// A bidirectional datagram flow. Each datagram begins with a context id (RFC 9298 §4), a
/// variable-length integer; after 0 follows a UDP payload.
///
/// Datagrams may be lost or reordered. Nothing ever waits: if a queue is full, its oldest datagram
/// is dropped. Dropping a flow ends it.
pub struct DatagramFlow {
    core: Arc<Core>,
}

/// State shared by a flow and its task.
pub(crate) struct Core {
    /// Received datagrams.
    pub inbox: Arc<Queue>,
    /// Datagrams that cannot be sent as frames: they wait for the stream, or travel on it.
    outbox: Queue,
    /// Set once the flow is open.
    route: OnceLock<Route>,
    /// Maximum size until then.
    early_max_bytes: usize,
    /// `true` if a datagram that exceeds the path MTU travels as a capsule.
    carries_large: bool,
    budget: Arc<QueueBudget>,
    control: watch::Sender<Control>,
}

/// State of the flow as its owner wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// The request has not been answered.
    Pending,
    Accepted,
    Reset(ResetCode),
    Dropped,
}

impl DatagramFlow {
    /// Sends a datagram, or drops it if the queue is full. Returns an error only if the datagram
    /// could never be sent.
    pub fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        self.accept();
        let core = &self.core;
        if let Some(why) = core.inbox.ended() {
            return Err(DatagramError::Ended(why));
        }
        let most = self.max_bytes();
        if datagram.len() > most {
            return Err(DatagramError::TooLarge { most });
        }
        match core.route.get() {
            Some(route) if core.fits_a_frame(route, datagram) => {
                core.send_directly(route, datagram)
            }
            _ => core.outbox.push(datagram),
        }
        Ok(())
    }

    /// Waits for the next datagram. Returns the reason of the end once the queue is empty. Cancel
    /// safe.
    pub async fn receive(&self) -> Result<Bytes, ResetCode> {
        self.accept();
        self.core.inbox.pop().await
    }

    /// Present maximum for [`DatagramFlow::send`], context id included. It follows the path MTU, except
    /// between a hub and its egress. Capsules carry the largest UDP payload.
    pub fn max_bytes(&self) -> usize {
        if self.core.carries_large {
            return MAX_SENT_BYTES;
        }
        let route = self.core.route.get();
        route.and_then(Route::max_bytes).unwrap_or_else(|| self.core.queued_max_bytes())
    }

    /// Ends the flow. If the request has not been answered, the peer sees `why` as a refusal;
    /// otherwise as far as [`h3_code`](crate::h3_code) can express it.
    pub fn reset(&self, why: ResetCode) {
        self.core.control.send_replace(Control::Reset(why));
        self.core.inbox.end(why);
    }

    /// Responds to the request with 200. The first [`DatagramFlow::send`] or
    /// [`DatagramFlow::receive`] does so too. Has no effect at a client.
    pub fn accept(&self) {
        if *self.core.control.borrow() == Control::Pending {
            self.core.control.send_if_modified(|control| {
                let is_pending = *control == Control::Pending;
                if is_pending {
                    *control = Control::Accepted;
                }
                is_pending
            });
        }
    }

    /// Creates a flow that has already ended.
    pub(crate) fn ended(why: ResetCode) -> DatagramFlow {
        let core = Core::opening(Arc::default(), UNKNOWN_MAX_BYTES, false);
        core.end(why);
        DatagramFlow { core }
    }

    pub(crate) fn new(core: Arc<Core>) -> DatagramFlow {
        DatagramFlow { core }
    }
}

impl Drop for DatagramFlow {
    fn drop(&mut self) {
        self.core.control.send_if_modified(|control| {
            let reset = matches!(control, Control::Reset(_));
            if !reset {
                *control = Control::Dropped;
            }
            !reset
        });
    }
}

impl Core {
    /// Creates the core of a flow that a client opens, for another gateway if `is_forwarded`.
    pub fn opening(
        budget: Arc<QueueBudget>,
        early_max_bytes: usize,
        is_forwarded: bool,
    ) -> Arc<Core> {
        let inbox = Arc::new(Queue::new(budget.clone()));
        let core = Core::new(inbox, budget, early_max_bytes, Control::Accepted);
        Arc::new(Core { carries_large: is_forwarded, ..core })
    }

    /// Creates the core of a flow whose request, registered with `inbox`, a server has not
    /// answered. The client opens it for another gateway if `is_forwarded`.
    pub fn unanswered(
        inbox: Arc<Queue>,
        budget: Arc<QueueBudget>,
        is_forwarded: bool,
    ) -> Arc<Core> {
        let core = Core::new(inbox, budget, MAX_SENT_BYTES, Control::Pending);
        Arc::new(Core { carries_large: is_forwarded, ..core })
    }

    fn new(
        inbox: Arc<Queue>,
        budget: Arc<QueueBudget>,
        early_max_bytes: usize,
        control: Control,
    ) -> Core {
        let outbox = Queue::new(budget.clone());
        let control = watch::Sender::new(control);
        let (route, carries_large) = (OnceLock::new(), false);
        Core { inbox, outbox, route, early_max_bytes, carries_large, budget, control }
    }

    /// Waits until the server's owner accepts or refuses the request.
    pub async fn answered(&self) -> Result<(), ResetCode> {
        let mut control = self.control.subscribe();
        // The sender is in `self`.
        match control.wait_for(|control| *control != Control::Pending).await.as_deref() {
            Ok(Control::Accepted) => Ok(()),
            Ok(Control::Reset(why)) => Err(*why),
            _ => Err(ResetCode::Aborted),
        }
    }

    /// Moves datagrams from and to an open stream until either side ends the flow. `recv` resolves
    /// when the peer's HEADERS have arrived.
    pub async fn carry<R>(&self, route: Route, mut send: RawSend, recv: R)
    where
        R: Future<Output = Result<RawRecv, ResetCode>>,
    {
        let route = self.route.get_or_init(|| route);
        let ended = tokio::select! {
            biased;
            why = self.closed() => why,
            ended = self.read(recv) => ended,
            why = self.write(route, &mut send) => Some(why),
        };
        match ended {
            Some(why) => send.reset(crate::refusal::h3_code(why)),
            None => send.finish(),
        }
        // A peer that ends its flow orderly needs no reset.
        self.end(ended.unwrap_or(ResetCode::Idle));
    }

    /// Ends the flow.
    pub fn end(&self, why: ResetCode) {
        self.inbox.end(why);
        self.outbox.end(why);
    }

    /// Waits until the owner ends the flow. Returns `None` if it gave no reason.
    pub async fn closed(&self) -> Option<ResetCode> {
        let mut control = self.control.subscribe();
        let over = |control: &Control| matches!(control, Control::Reset(_) | Control::Dropped);
        match control.wait_for(over).await.as_deref() {
            Ok(Control::Reset(why)) => Some(*why),
            _ => None,
        }
    }

    /// Reads datagrams from capsules until the stream ends.
    async fn read<R>(&self, recv: R) -> Option<ResetCode>
    where
        R: Future<Output = Result<RawRecv, ResetCode>>,
    {
        let mut recv = match recv.await {
            Ok(recv) => recv,
            Err(why) => return Some(why),
        };
        let (mut frames, mut capsules) = (DataFrames::default(), Capsules::default());
        let mut bytes = [0; 1024];
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            match poll_fn(|cx| frames.poll_data(&mut recv, cx, &mut buf)).await {
                Ok(true) => {}
                // A truncated capsule is malformed (RFC 9297 §3.3).
                Ok(false) => return (!capsules.is_whole()).then_some(ResetCode::Aborted),
                Err(why) => return Some(why),
            }
            // Without a complete context id a datagram is meaningless (RFC 9298 §4).
            let fed = capsules.feed(buf.filled(), |datagram| match read_varint(&datagram) {
                Some(_) => self.inbox.push(&datagram),
                None => self.budget.drop_some(1),
            });
            self.budget.drop_some(capsules.take_oversized());
            if let Err(Oversized) = fed {
                return Some(ResetCode::Aborted);
            }
        }
    }

    /// Sends queued datagrams until the flow ends.
    async fn write(&self, route: &Route, send: &mut RawSend) -> ResetCode {
        loop {
            let datagram = match self.outbox.pop().await {
                Ok(datagram) => datagram,
                Err(why) => return why,
            };
            if self.fits_a_frame(route, &datagram) {
                self.send_directly(route, &datagram);
            } else if let Err(why) = send.write(capsule::datagram(&datagram)).await {
                return why;
            }
        }
    }

    /// Returns `false` if the datagram travels as a capsule. Without `carries_large`, one that exceeds
    /// the path MTU is dropped as a frame.
    fn fits_a_frame(&self, route: &Route, datagram: &[u8]) -> bool {
        let fits = |most| datagram.len() <= most || !self.carries_large;
        route.max_bytes().is_some_and(fits)
    }

    fn send_directly(&self, route: &Route, datagram: &[u8]) {
        if !route.send(datagram) {
            self.budget.drop_some(1);
        }
    }

    fn queued_max_bytes(&self) -> usize {
        if self.route.get().is_some() { MAX_SENT_BYTES } else { self.early_max_bytes }
    }
}
