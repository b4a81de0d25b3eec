//! The one seam between a gateway and whatever carries its flows.
//!
//! The radio transport and the HTTP/3 one both satisfy these traits, and so does
//! anything a test wants to put in their place.
//!
//! | module | contents |
//! |---|---|
//! | this page | [`Connector`] and [`Acceptor`], [`FlowStream`] and [`FlowDatagrams`] |
//! | [`datagram`] | the prefix of a flow's datagrams |
//! | `link`, `masque`, `aerotcp` | the transports behind the seam |
//! | `name`, `kind` | names of the transports, kinds of flows |
//! | [`still`] | idle time of a flow while its link was up |
//! | [`quic`] | detection of QUIC |

#![forbid(unsafe_code)]

mod aerotcp;
pub mod datagram;
mod kind;
mod link;
mod masque;
mod name;
pub mod quic;
pub mod still;

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::{ResetCode, Target, TargetError, Traffic};
use bentpipe_link::{
    Class, ClassSettings, ModemRate, PerClass, PublicKey, Refused, SettingsError, SnapshotLimits,
};
use bentpipe_net::BufferSizes;
use bytes::Bytes;
use futures_util::future::{BoxFuture, pending};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

pub use bentpipe_flow::{Claim, OpenDatagrams, Reach};
pub use bentpipe_link::io::Open;
pub use kind::Kind;
pub use name::Transport;

/// The most of the client's first bytes that travel with an [`Open`]: a TLS
/// ClientHello with a post-quantum key share is about 1.8 KB.
pub const MAX_FIRST_BYTES: usize = 4096;

/// Reason for which a flow could not even be requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The transport holds as many flows as it may.
    #[error("the link holds as many flows as it may: raise its limit or close some")]
    Full,
    /// The transport has been closed.
    #[error("the link is closed")]
    Closed,
    /// The transport cannot reach the peer.
    #[error("the peer cannot be reached: {0}")]
    Down(String),
    /// The target cannot be expressed on the wire.
    #[error("the target cannot be asked for: {0}")]
    Target(#[from] TargetError),
    /// The transport carries no datagrams.
    #[error(
        "this transport carries TCP alone: write transport = \"link\" or \"masque\" under [link] \
         for UDP"
    )]
    Unsupported,
}

impl OpenError {
    /// The reset code that says the same.
    pub fn code(&self) -> ResetCode {
        match self {
            Self::Full => ResetCode::Limit,
            Self::Closed => ResetCode::Internal,
            Self::Down(_) => ResetCode::Unreachable,
            Self::Target(_) => ResetCode::NameNotFound,
            Self::Unsupported => ResetCode::Refused,
        }
    }
}

/// Time for which the peer was not heard, within one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outages {
    /// Length of the outage that lasts now; zero while the peer is heard.
    pub now: Duration,
    /// Total length of all outages until now.
    pub all: Duration,
}

/// State of a flow that its owner cannot see from reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Total length of all outages of the flow's session until now.
    pub unheard: Duration,
    /// Bytes that were written and have not left yet.
    pub unsent_bytes: usize,
}

/// The one way a gateway reaches the peer.
pub trait Connector: Send + Sync + 'static {
    /// Opens a TCP flow. Returns at once: a failed dial shows later, as a reset of the stream.
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>>;

    /// Opens a flow of datagrams, by the same rules: a refusal shows later, as its end.
    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>>;

    /// The modem towards the peer says how fast it is, or nothing any more. It says so again
    /// and again; a transport that finds its rate itself takes no notice.
    fn modem_rate(&self, _told: Option<ModemRate>) {}

    /// From now on each class gets this of what this end sends. A transport without classes takes no
    /// notice.
    fn set_classes(&self, _classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        Ok(())
    }

    /// Traffic of the session, in total and since the last call, with no more passengers and flows
    /// than `most`. `None` while there is none, and for a transport that does not tell.
    fn traffic(&self, _most: SnapshotLimits) -> Option<Traffic> {
        None
    }

    /// Reachability of the peer, which changes only when it differs.
    fn watch_reach(&self) -> watch::Receiver<Reach>;

    /// Reachability of the peer now.
    fn reach(&self) -> Reach {
        *self.watch_reach().borrow()
    }

    /// Packets and handshakes of strangers that were refused since the last call, if the transport counts
    /// them.
    fn take_refused(&self) -> Refused {
        Refused::default()
    }

    /// Waits until the transport has ended by a fault of this process; for ever while all is well.
    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }

    /// Turns so far of the task that moves datagrams, which is asked for another: unless it hangs, the
    /// next call gives more. `None` where the transport has no such task.
    fn pulse(&self) -> Option<u64> {
        None
    }

    /// Outages of the session. Always zero for a transport that ends its flows when the peer is silent.
    fn outages(&self) -> Outages {
        Outages::default()
    }

    /// Tells the peer that it is over, and waits until that has left.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Waits until the peer's reachability satisfies `is_wanted`. Never returns if it never does.
pub async fn wait_for_reach(connector: &dyn Connector, is_wanted: impl Fn(Reach) -> bool) {
    let mut reach = connector.watch_reach();
    while !is_wanted(*reach.borrow_and_update()) {
        reach_changed(&mut reach).await;
    }
}

/// Waits for the next change. Never returns once the transport has ended.
pub async fn reach_changed(reach: &mut watch::Receiver<Reach>) {
    if reach.changed().await.is_err() {
        pending().await
    }
}

/// One flow over the link.
///
/// Shutdown ends the sending direction (FIN). Dropping without shutdown resets
/// the flow with [`ResetCode::Aborted`]. When the peer resets, reading and
/// writing fail with [`std::io::ErrorKind::ConnectionReset`]; when the peer only
/// stops reading, writing fails with [`std::io::ErrorKind::BrokenPipe`] and
/// reading goes on.
pub trait FlowStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Breaks both directions off; what is unsent is discarded.
    fn reset(&mut self, code: ResetCode);

    /// Tells the peer to stop sending; our own direction goes on.
    fn stop_reading(&mut self, code: ResetCode);

    /// Reason for which the peer reset the flow, once it has.
    fn reset_code(&self) -> Option<ResetCode>;

    /// State of the flow that reads and writes do not show. Nothing for a transport that does not know it.
    fn standing(&self) -> Standing {
        Standing::default()
    }

    /// Sizes of the buffers of this flow's local TCP connection, if the transport has a rule for
    /// them; otherwise the system's own.
    fn local_buffers(&self) -> BufferSizes {
        BufferSizes::default()
    }

    /// The ground's dial has succeeded. A transport that has an answer to give
    /// (CONNECT's 200) gives it here; a reset before this is its refusal.
    fn connected(&mut self) {}

    /// At the ground: the claim holds, and the flow is of `class` from now on. Tells the air; to be
    /// said before [`connected`](Self::connected).
    fn confirm_class(&mut self, _class: Class) {}

    /// Moves what this end sends by the flow to `class`, which is no better than before. A
    /// transport without classes ignores it.
    fn demote(&mut self, _class: Class) {}

    /// At the air: the class that the ground gave the flow for its claim, once a read has met it.
    fn class(&self) -> Option<Class> {
        None
    }
}

/// Reason for which a datagram could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// The link's packets are smaller than this.
    #[error("a datagram here has at most {max_bytes} bytes")]
    TooLarge {
        /// Value of [`FlowDatagrams::max_bytes`].
        max_bytes: usize,
    },
    /// Its passenger may send no more in the network's class at the moment.
    #[error("a passenger may not send so much in the network's class")]
    Policed,
    /// The flow is over; [`FlowDatagrams::receive`] says why.
    #[error("the flow has ended")]
    Ended,
}

/// One flow of datagrams over the link. Each begins with its context id: see [`datagram`].
///
/// Datagrams may be lost and may change their order. Dropping the flow ends it with
/// [`ResetCode::Idle`]: nobody misses it.
pub trait FlowDatagrams: Send + Sync {
    /// Sends one, its context id included. Never waits: what the link cannot take is dropped by
    /// the link's own queue.
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError>;

    /// The next datagram, its context id included, or why the flow is over. May be dropped
    /// half-way without loss; one task at a time.
    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>>;

    /// The largest that [`FlowDatagrams::send`] takes now, its context id included; it follows the
    /// path's MTU.
    fn max_bytes(&self) -> usize;

    /// The largest that it may take soon. Who sends one between the two is not told that it is too
    /// large, which systems remember for minutes: the next may pass.
    fn provisioned_max_bytes(&self) -> usize {
        self.max_bytes()
    }

    /// From now on what comes should be received in the order in which it left, as far as what is
    /// missing soon comes again: the flow's protocol takes late for lost. A transport that brings
    /// nothing back has nothing to do.
    fn keep_order(&self) {}

    /// Ends the flow in both directions.
    fn reset(&self, code: ResetCode);

    /// The ground has a socket for the flow. A transport that has an answer to give
    /// (CONNECT-UDP's 200) gives it here; a reset before this is its refusal.
    fn connected(&self) {}
}

/// A flow that reached the ground.
pub struct Incoming {
    /// The aircraft's public key, proven by the transport.
    pub aircraft: [u8; 32],
    /// Destination.
    pub target: Target,
    /// The class it asked for.
    pub class: Class,
    /// The passenger's number on that aircraft.
    pub passenger: u32,
    /// Claim that the aircraft wants verified.
    pub claim: Option<Claim>,
    /// The flow.
    pub carries: Carried,
}

/// Content of a flow that reached the ground.
pub enum Carried {
    /// A TCP connection.
    Stream(Box<dyn FlowStream>),
    /// Datagrams; `protocol` and `source` as in [`OpenDatagrams`].
    Datagrams {
        /// The IP protocol.
        protocol: u8,
        /// The client's own port, or 0.
        source: u16,
        /// `true` if a gateway of ours is at the other end: a standard client knows context 0
        /// alone.
        is_gateway: bool,
        /// The flow.
        flow: Box<dyn FlowDatagrams>,
    },
}

impl Carried {
    /// Kind for which it counts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Stream(_) => Kind::Streams,
            Self::Datagrams { protocol, .. } => Kind::of_protocol(*protocol),
        }
    }

    /// Ends the flow, whatever it is made of.
    pub fn reset(&mut self, code: ResetCode) {
        match self {
            Self::Stream(stream) => stream.reset(code),
            Self::Datagrams { flow, .. } => flow.reset(code),
        }
    }
}

/// Source of the ground's flows.
pub trait Acceptor: Send + Sync + 'static {
    /// The next flow, or `None` once the transport is closed.
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>>;

    /// From now on each class gets this of what the aircraft is sent. A transport without classes takes
    /// no notice.
    fn set_classes(
        &self,
        _aircraft: &PublicKey,
        _classes: PerClass<ClassSettings>,
    ) -> Result<(), SettingsError> {
        Ok(())
    }

    /// Traffic of an aircraft's session, in total and since the last call, with no more passengers
    /// and flows than `most`. `None` while it has none, and for a transport that does not tell.
    fn traffic(&self, _aircraft: &PublicKey, _most: SnapshotLimits) -> Option<Traffic> {
        None
    }

    /// Packets and handshakes of strangers that were refused since the last call, if the transport counts
    /// them.
    fn take_refused(&self) -> Refused {
        Refused::default()
    }

    /// Waits until the transport has ended by a fault of this process; for ever while all is well.
    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }

    /// Turns so far of the task that moves datagrams, which is asked for another: unless it hangs, the
    /// next call gives more. `None` where the transport has no such task.
    fn pulse(&self) -> Option<u64> {
        None
    }

    /// Tells the aircraft that it is over, and waits until that has left.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Transport of the flows.
    fn transport(&self) -> Transport;

    /// Local address, for the log.
    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }
}
