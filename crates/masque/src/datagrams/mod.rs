//! Datagram flows: CONNECT-UDP requests (RFC 9298), with their HTTP Datagrams (RFC 9297) in QUIC
//! DATAGRAM frames, or in DATAGRAM capsules on the request stream where the peer takes no frames.

mod open;
pub(crate) mod queue;
pub(crate) mod router;

use std::{
    future::poll_fn,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use tokio::{io::ReadBuf, sync::watch};

use crate::{
    Refusal,
    capsule::{self, Capsules, MAX_SENT_BYTES, Oversized},
    flow::Frames,
    stream::{RawRecv, RawSend},
    wire::read_varint,
};
use queue::{Ledger, Queue};
use router::Way;

/// The IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// Datagram size before the connection is known: the smallest path of QUIC carries 1,200 bytes,
/// less 50 for its headers and ours.
const UNKNOWN_MOST: usize = 1_150;

/// Reason for which a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// It does not fit the path, whose MTU may change.
    #[error("the datagram is larger than the {most} bytes that the path takes now")]
    TooLarge {
        /// The most that is taken now, context id included.
        most: usize,
    },
    /// The flow is over.
    #[error("the flow has ended: {0}")]
    Ended(Refusal),
}

/// Datagrams in both directions. Each begins with a context id (RFC 9298 §4), a variable-length
/// integer; after 0 follows a UDP payload.
///
/// They may be lost and change their order, and nothing ever waits: what there is no room for is
/// dropped, the oldest first. Dropping a flow ends it.
pub struct DatagramFlow {
    core: Arc<Core>,
}

/// State shared by a flow and its task.
pub(crate) struct Core {
    /// Received datagrams.
    inbox: Arc<Queue>,
    /// Datagrams that cannot leave by themselves: they wait for the stream, or travel on it.
    outbox: Queue,
    /// Set once the flow is open.
    way: OnceLock<Way>,
    /// Maximum size until then.
    early_most: usize,
    ledger: Arc<Ledger>,
    control: watch::Sender<Control>,
}

/// Request of a flow's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// The request has not been answered yet.
    Ask,
    Go,
    Reset(Refusal),
    Gone,
}

impl DatagramFlow {
    /// Sends a datagram, or drops it where there is no room. It is an error only where it could
    /// never be sent.
    pub fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        self.accept();
        let core = &self.core;
        if let Some(why) = core.inbox.ended() {
            return Err(DatagramError::Ended(why));
        }
        let direct = core.way.get().and_then(|way| Some((way, way.most()?)));
        let most = direct.map_or_else(|| core.queued_most(), |(_, most)| most);
        if datagram.len() > most {
            return Err(DatagramError::TooLarge { most });
        }
        match direct {
            Some((way, _)) => core.send_directly(way, datagram),
            None => core.outbox.push(datagram),
        }
        Ok(())
    }

    /// The next datagram; why the flow has ended, once all are taken. Safe to cancel.
    pub async fn receive(&self) -> Result<Bytes, Refusal> {
        self.accept();
        self.core.inbox.pop().await
    }

    /// The most that [`DatagramFlow::send`] takes now, context id included. It follows the path's
    /// MTU; capsules take the largest UDP payload.
    pub fn max_bytes(&self) -> usize {
        let way = self.core.way.get();
        way.and_then(Way::most).unwrap_or_else(|| self.core.queued_most())
    }

    /// Ends the flow; the peer sees `why` as a refusal where the request has not been answered yet,
    /// else as far as [`Refusal::h3_code`] can say it.
    pub fn reset(&self, why: Refusal) {
        self.core.control.send_replace(Control::Reset(why));
        self.core.inbox.end(why);
    }

    /// Answers the request with 200. The first [`DatagramFlow::send`] or
    /// [`DatagramFlow::receive`] does so too; a client's own flow needs no answer.
    pub fn accept(&self) {
        if *self.core.control.borrow() == Control::Ask {
            self.core.control.send_if_modified(|control| {
                let asked = *control == Control::Ask;
                if asked {
                    *control = Control::Go;
                }
                asked
            });
        }
    }

    /// A flow that is over before it began.
    pub(crate) fn ended(why: Refusal) -> DatagramFlow {
        let core = Core::opening(Arc::default(), UNKNOWN_MOST);
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
                *control = Control::Gone;
            }
            !reset
        });
    }
}

impl Core {
    /// A flow that a client opens.
    fn opening(ledger: Arc<Ledger>, early_most: usize) -> Arc<Core> {
        let inbox = Arc::new(Queue::new(ledger.clone()));
        Arc::new(Core::new(inbox, ledger, early_most, Control::Go))
    }

    /// A flow whose request, registered with `inbox`, a server has not answered yet.
    pub fn asked(inbox: Arc<Queue>, ledger: Arc<Ledger>) -> Arc<Core> {
        Arc::new(Core::new(inbox, ledger, MAX_SENT_BYTES, Control::Ask))
    }

    fn new(inbox: Arc<Queue>, ledger: Arc<Ledger>, early_most: usize, control: Control) -> Core {
        let outbox = Queue::new(ledger.clone());
        let control = watch::Sender::new(control);
        Core { inbox, outbox, way: OnceLock::new(), early_most, ledger, control }
    }

    /// The server's owner has answered: yes, or no and why.
    pub async fn answered(&self) -> Result<(), Refusal> {
        let mut control = self.control.subscribe();
        // The sender is in `self`.
        match control.wait_for(|control| *control != Control::Ask).await.as_deref() {
            Ok(Control::Go) => Ok(()),
            Ok(Control::Reset(why)) => Err(*why),
            _ => Err(Refusal::Aborted),
        }
    }

    /// Moves datagrams from and to an open stream until either side ends the flow. `recv` is there
    /// once the peer's HEADERS are.
    pub async fn carry<R>(&self, way: Way, mut send: RawSend, recv: R)
    where
        R: Future<Output = Result<RawRecv, Refusal>>,
    {
        let way = self.way.get_or_init(|| way);
        let ended = tokio::select! {
            biased;
            told = self.told() => told,
            ended = self.read(recv) => ended,
            why = self.write(way, &mut send) => Some(why),
        };
        match ended {
            Some(why) => send.reset(why.h3_code()),
            None => send.finish(),
        }
        // A peer that ends its flow in order misses nothing.
        self.end(ended.unwrap_or(Refusal::Idle));
    }

    /// The flow is over.
    pub fn end(&self, why: Refusal) {
        self.inbox.end(why);
        self.outbox.end(why);
    }

    /// The owner wants no more: `None` where it has no reason to tell.
    pub async fn told(&self) -> Option<Refusal> {
        let mut control = self.control.subscribe();
        let over = |control: &Control| matches!(control, Control::Reset(_) | Control::Gone);
        match control.wait_for(over).await.as_deref() {
            Ok(Control::Reset(why)) => Some(*why),
            _ => None,
        }
    }

    /// Takes the datagrams out of capsules; `None` at the end of the stream.
    async fn read<R>(&self, recv: R) -> Option<Refusal>
    where
        R: Future<Output = Result<RawRecv, Refusal>>,
    {
        let mut recv = match recv.await {
            Ok(recv) => recv,
            Err(why) => return Some(why),
        };
        let (mut frames, mut capsules) = (Frames::default(), Capsules::default());
        let mut bytes = [0; 1024];
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            match poll_fn(|cx| frames.poll_data(&mut recv, cx, &mut buf)).await {
                Ok(true) => {}
                // A capsule that is cut off is malformed (RFC 9297 §3.3).
                Ok(false) => return (!capsules.is_whole()).then_some(Refusal::Aborted),
                Err(why) => return Some(why),
            }
            // Without a whole context id a datagram means nothing (RFC 9298 §4).
            let fed = capsules.feed(buf.filled(), |datagram| match read_varint(&datagram) {
                Some(_) => self.inbox.push(&datagram),
                None => self.ledger.drop_some(1),
            });
            self.ledger.drop_some(capsules.take_oversized());
            if let Err(Oversized) = fed {
                return Some(Refusal::Aborted);
            }
        }
    }

    /// Sends what waits, until that is not possible any more.
    async fn write(&self, way: &Way, send: &mut RawSend) -> Refusal {
        loop {
            let datagram = match self.outbox.pop().await {
                Ok(datagram) => datagram,
                Err(why) => return why,
            };
            if way.most().is_some() {
                self.send_directly(way, &datagram);
            } else if let Err(why) = send.write(capsule::datagram(&datagram)).await {
                return why;
            }
        }
    }

    fn send_directly(&self, way: &Way, datagram: &[u8]) {
        if !way.send(datagram) {
            self.ledger.drop_some(1);
        }
    }

    fn queued_most(&self) -> usize {
        if self.way.get().is_some() { MAX_SENT_BYTES } else { self.early_most }
    }
}
