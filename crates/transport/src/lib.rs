//! The seam between a gateway and the transport of its flows.
//!
//! The radio transport, HTTP/3 and AeroTCP implement these traits. So do the doubles of tests.
//!
//! | module | contents |
//! |---|---|
//! | this page | [`Connector`] and [`Acceptor`], [`FlowStream`] and [`FlowDatagrams`], [`Dialler`] |
//! | [`datagram`] | the prefix of a flow's datagrams |
//! | `egress_standing` | the state of an egress, for people |
//! | `link`, `masque`, `aerotcp` | the transports behind the seam |
//! | `memory` | a flow in memory |
//! | `name`, `kind` | names of the transports, kinds of flows |
//! | [`still`] | idle time of a flow while its link was up |
//! | [`quic`] | detection of QUIC |

#![forbid(unsafe_code)]

mod aerotcp;
pub mod datagram;
mod egress_standing;
mod grounds;
mod kind;
mod link;
mod masque;
mod memory;
mod name;
pub mod quic;
pub mod still;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::{ResetCode, Target, TargetError, Traffic};
use bentpipe_link::Class;
use bentpipe_net::BufferSizes;
use bentpipe_units::{BitRate, ByteSize};
use bytes::Bytes;
use futures_util::future::{BoxFuture, pending};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

pub use bentpipe_flow::{Claim, OpenDatagrams, Reach};
pub use bentpipe_link::io::Open;
pub use bentpipe_link::{
    ClassSettings, ModemRate, PerClass, PublicKey, Refused, SettingsError, SnapshotLimits,
};
pub use egress_standing::EgressStanding;
pub use grounds::{EgressState, GroundStanding};
pub use kind::Kind;
pub use name::Transport;

/// Maximum number of the client's first bytes that travel with an [`Open`]. A TLS ClientHello with
/// a post-quantum key share has about 1.8 KB.
pub const MAX_FIRST_BYTES: usize = 4096;

/// Reason why a flow could not be requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The transport has reached its maximum number of flows.
    #[error("the link holds as many flows as it may: raise its limit or close some")]
    Full,
    /// The transport has been closed.
    #[error("the link is closed")]
    Closed,
    /// The transport cannot reach the peer.
    #[error("the peer cannot be reached: {0}")]
    Down(String),
    /// The target has no encoding on the wire.
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
    /// Reset code with the same meaning.
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

/// Time for which the peer was silent, within one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outages {
    /// Length of the present outage; zero if there is none.
    pub now: Duration,
    /// Total length of all outages until now.
    pub all: Duration,
}

/// State of a flow that its owner cannot see from reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Total length of all outages of the flow's session until now.
    pub unheard: Duration,
    /// Bytes that were written and have not been sent yet.
    pub unsent_bytes: usize,
    /// Length of the present outage, if this end opened the flow and the peer has not acknowledged
    /// it. `None` for a transport that does not know it.
    pub unopened: Option<Duration>,
}

/// Path of a gateway to its peer.
pub trait Connector: Send + Sync + 'static {
    /// Opens a TCP flow. Returns at once. If the dial fails, the stream is reset later.
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>>;

    /// Opens a flow of datagrams. Returns at once. If it is refused, the flow ends later.
    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>>;

    /// Reports the rate of the modem of a path towards the peer; `None` if it is unknown. The caller
    /// repeats the report. A transport that measures its rate ignores it.
    fn modem_rate(&self, _path: u8, _reported: Option<ModemRate>) {}

    /// Sets each class's share of the bytes that this end sends. A transport without classes ignores
    /// it.
    fn set_classes(&self, _classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        Ok(())
    }

    /// Traffic of the session, in total and since the last call, with at most `max` passengers and
    /// flows. `None` without a session, and for a transport that does not count traffic.
    fn traffic(&self, _max: SnapshotLimits) -> Option<Traffic> {
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

    /// Waits until the transport ends by a fault of this process; forever in normal operation.
    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }

    /// Number of turns of the task that moves datagrams. The call requests another turn, so that the
    /// next call returns more unless the task hangs. `None` for a transport without such a task.
    fn pulse(&self) -> Option<u64> {
        None
    }

    /// Smoothed round trip of the session; `None` without one, and for a transport that does not
    /// measure it.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Returns `true` if the peer is silent, so that the session will be [out](Reach::Out) in a round
    /// trip. Always `false` for a transport that does not know it.
    fn is_doubtful(&self) -> bool {
        false
    }

    /// Packets of the session whose fate is known, and those of them that were lost; `None` without a
    /// session, and for a transport that does not count them.
    fn packets(&self) -> Option<(u64, u64)> {
        None
    }

    /// Outages of the session. Always zero for a transport that ends its flows if the peer is silent.
    fn outages(&self) -> Outages {
        Outages::default()
    }

    /// Continues a flow of the previous process from [its state](FlowStream::hand_over). `None` if the
    /// state is not usable here.
    fn take_over(&self, _flow: &[u8]) -> Option<Box<dyn FlowStream>> {
        None
    }

    /// Tells the peer that the session is over, and waits until the message has been sent.
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
/// Shutdown ends the sending direction (FIN). Dropping without shutdown resets the flow with
/// [`ResetCode::Aborted`]. If the peer resets the flow, reads and writes fail with
/// [`std::io::ErrorKind::ConnectionReset`]. If the peer only stops reading, writes fail with
/// [`std::io::ErrorKind::BrokenPipe`], and reads continue.
pub trait FlowStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Ends both directions at once, and discards unsent bytes.
    fn reset(&mut self, code: ResetCode);

    /// Tells the peer to stop sending. Our own direction continues.
    fn stop_reading(&mut self, code: ResetCode);

    /// Reason why the peer reset the flow; `None` if it has not.
    fn reset_code(&self) -> Option<ResetCode>;

    /// State of the flow that reads and writes do not show; the default for a transport that does
    /// not know it.
    fn standing(&self) -> Standing {
        Standing::default()
    }

    /// Sizes of the buffers of this flow's local TCP connection, if the transport has a rule for
    /// them; otherwise the system's own.
    fn local_buffers(&self) -> BufferSizes {
        BufferSizes::default()
    }

    /// Notes that the ground's dial has succeeded. HTTP/3 answers the CONNECT with 200 here; a reset
    /// before this call is a refusal.
    fn connected(&mut self) {}

    /// At the ground: confirms the claim to the air. The flow has `class` from now on. Must be called
    /// before [`connected`](Self::connected).
    fn confirm_class(&mut self, _class: Class) {}

    /// Sends the flow's bytes in `class` from now on, which is not better than before. A transport
    /// without classes ignores it.
    fn demote(&mut self, _class: Class) {}

    /// At the air: class that the ground gave the flow for its claim, once a read has received it.
    fn class(&self) -> Option<Class> {
        None
    }

    /// Takes the flow's state as bytes, from which the next process of the gateway continues it.
    /// Nothing else may be called then. `None` if the flow cannot outlive this process.
    fn hand_over(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// Reason why a datagram could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// The datagram is larger than the link's packets permit.
    #[error("a datagram here has at most {max_bytes} bytes")]
    TooLarge {
        /// Value of [`FlowDatagrams::max_bytes`].
        max_bytes: usize,
    },
    /// Its passenger exceeds its ceiling in the network class.
    #[error("a passenger may not send so much in the network's class")]
    Policed,
    /// The flow is over; [`FlowDatagrams::receive`] returns the reason.
    #[error("the flow has ended")]
    Ended,
}

/// One flow of datagrams over the link. Each begins with its context id: see [`datagram`].
///
/// Datagrams may be lost and may change their order. Dropping the flow ends it with
/// [`ResetCode::Idle`].
pub trait FlowDatagrams: Send + Sync {
    /// Sends a datagram, its context id included. Never waits; the link's queue drops datagrams that
    /// it has no room for.
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError>;

    /// Waits for the next datagram, its context id included, or for the flow's end. Dropping the
    /// future loses no datagram. Only one task may wait at a time.
    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>>;

    /// Maximum size of a datagram for [`FlowDatagrams::send`] now, its context id included. It
    /// follows the path's MTU.
    fn max_bytes(&self) -> usize;

    /// Maximum size that may be possible soon. A datagram between the two sizes is dropped without an
    /// ICMP error, because systems remember such an error for minutes, and the next datagram may pass.
    fn provisioned_max_bytes(&self) -> usize {
        self.max_bytes()
    }

    /// Delivers datagrams in order from now on, as far as missing ones are soon retransmitted,
    /// because the flow's protocol treats late datagrams as lost. A transport without retransmission
    /// ignores it.
    fn keep_order(&self) {}

    /// Ends the flow in both directions.
    fn reset(&self, code: ResetCode);

    /// Notes that the ground has a socket for the flow. HTTP/3 answers the CONNECT-UDP with 200 here;
    /// a reset before this call is a refusal.
    fn connected(&self) {}
}

/// A flow that reached the ground.
pub struct Incoming {
    /// Public key of the aircraft, proven by the transport or asserted by its hub.
    pub aircraft: [u8; 32],
    /// Counter of its session: later sessions of the aircraft, with any hub, have higher ones. 0 for a
    /// transport without one.
    pub session: u64,
    /// `true` if another hub forwards the flow.
    pub is_forwarded: bool,
    /// Destination.
    pub target: Target,
    /// Requested class.
    pub class: Class,
    /// Number of the passenger on that aircraft.
    pub passenger: u32,
    /// Claim that the aircraft wants verified.
    pub claim: Option<Claim>,
    /// Proxy that dials the destination; `None` if this gateway does.
    pub dialler: Option<Arc<dyn Dialler>>,
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
        /// `true` if the peer is a gateway of ours. A standard client knows only context 0.
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

    /// Ends the flow.
    pub fn reset(&mut self, code: ResetCode) {
        match self {
            Self::Stream(stream) => stream.reset(code),
            Self::Datagrams { flow, .. } => flow.reset(code),
        }
    }
}

/// A ground gateway's aircraft, and the beam that they share.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// The aircraft, with the settings of the radio transport.
    pub aircraft: Vec<bentpipe_link::Aircraft>,
    /// Hubs that forward flows here by the radio transport, with its settings.
    pub hubs: Vec<bentpipe_link::Aircraft>,
    /// Rates of the beam, towards the aircraft and from them.
    pub beam: (Option<BitRate>, Option<BitRate>),
    /// Memory of all sessions.
    pub memory: ByteSize,
}

/// A proxy that dials the destination of one flow. This gateway has resolved and permitted the address.
pub trait Dialler: Send + Sync {
    /// Connects to `address` by TCP. Dropping the future gives the attempt up.
    fn connect(&self, address: SocketAddr)
    -> BoxFuture<'_, Result<Box<dyn FlowStream>, ResetCode>>;

    /// Opens a flow of UDP to `address`. Only payloads pass: the proxy knows no other context ids.
    fn open_datagrams(&self, address: SocketAddr) -> Result<Box<dyn FlowDatagrams>, OpenError>;

    /// Notes the outcome of all attempts of a TCP flow, for the choice among egresses.
    fn dialled(&self, outcome: Result<(), ResetCode>);
}

/// Source of the ground's flows.
pub trait Acceptor: Send + Sync + 'static {
    /// Waits for the next flow; `None` once the transport is closed.
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>>;

    /// Serves these aircraft from now on, and ends the sessions of all others. Returns `false` if the
    /// transport serves the same aircraft as before until the gateway restarts.
    fn set_fleet(&self, _fleet: &Fleet) -> bool {
        false
    }

    /// Traffic of an aircraft's session, in total and since the last call, with at most `max`
    /// passengers and flows. `None` without a session, and for a transport that does not count
    /// traffic.
    fn traffic(&self, _aircraft: &PublicKey, _max: SnapshotLimits) -> Option<Traffic> {
        None
    }

    /// Packets and handshakes of strangers that were refused since the last call, if the transport counts
    /// them.
    fn take_refused(&self) -> Refused {
        Refused::default()
    }

    /// Waits until the transport ends by a fault of this process; forever in normal operation.
    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }

    /// Egresses among which new flows to `target` are divided; empty if there is no choice.
    fn egresses(&self, _target: &Target) -> Vec<EgressStanding> {
        Vec::new()
    }

    /// Egresses in other processes, in the order of the configuration. All acceptors of a ground have the
    /// same.
    fn egress_states(&self) -> Vec<EgressState> {
        Vec::new()
    }

    /// Other grounds of the fleet; empty if the file names none.
    fn grounds(&self) -> Vec<GroundStanding> {
        Vec::new()
    }

    /// Tells the fleet the load of this ground; 255 is full.
    fn set_load(&self, _load: u8) {}

    /// Number of turns of the task that moves datagrams. The call requests another turn, so that the
    /// next call returns more unless the task hangs. `None` for a transport without such a task.
    fn pulse(&self) -> Option<u64> {
        None
    }

    /// Tells the aircraft that have other hubs to move there, and waits until they have. Flows are
    /// accepted meanwhile.
    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Returns `true` if there are flows that the next process can continue.
    fn keeps_flows(&self) -> bool {
        false
    }

    /// Accepts no flows that outlive this process from now on, so that those of before can be
    /// [handed over](FlowStream::hand_over).
    fn begin_handover(&self) {}

    /// State of the gateway that the next process needs to continue flows; `None` if none can be
    /// continued.
    fn hand_over(&self) -> Option<Vec<u8>> {
        None
    }

    /// Continues a flow of the previous process. `None` if its state is not usable here.
    fn take_over(&self, _flow: &[u8]) -> Option<Box<dyn FlowStream>> {
        None
    }

    /// Tells the aircraft that their sessions are over, and waits until the messages have been sent.
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
