//! State of one flow: what both kinds have in common, and each kind's own.

use std::collections::BTreeMap;
use std::time::Duration;

use bentpipe_flow::{Claim, OpenDatagrams, ResetCode, Target};
use bentpipe_schedule::{Class, DatagramQueue, Handle};
use bytes::Bytes;

use super::recv_queue::RecvQueue;
use super::writers::Place;
use super::{RecvFlow, SendFlow};
use crate::lane::Lane;

/// Bytes within their credit, by reliable lane.
pub type SendableBytes = [u64; Lane::RELIABLE.len()];

/// Owner of bytes that are counted together: a passenger in a class.
pub type Owner = (u32, Class);

/// A flow of a session.
#[derive(Debug)]
pub enum Flow {
    /// A byte stream in each direction.
    Stream(Stream),
    /// Datagrams in each direction.
    Datagrams(DatagramFlow),
}

/// State that both kinds of flow have.
#[derive(Debug)]
pub struct FlowState {
    /// Destination; `None` until the OPEN has arrived.
    pub target: Option<Target>,
    pub class: Class,
    pub passenger: u32,
    /// Handle in the scheduler. A stream gets one when it first has something to send.
    pub turn: Option<Handle>,
    /// Data may be sent: our OPEN has been sent, or the peer's has arrived.
    pub opened: bool,
    /// Symbol that carries our OPEN, once it has been sent.
    pub opened_by: Option<(Lane, u64)>,
    pub ended: Option<ResetCode>,
    /// The owner has dropped the flow.
    pub released: bool,
    /// The owner had finished and dropped the flow before its opening was sent.
    pub waits_finished: bool,
    /// Time of the last activity, for the idle limit.
    pub active: Duration,
    pub control: Control,
}

/// Control frames of one flow. An opening waits for the flow's turn, and all others for the opening.
#[derive(Debug, Default)]
pub struct Control {
    /// Encoded target of a stream; whole opening frame of a datagram flow.
    pub open: Option<Vec<u8>>,
    pub claim: bool,
    pub class: bool,
    pub credit: bool,
    pub stop: Option<ResetCode>,
    pub reset: Option<ResetCode>,
    /// The flow is in the [`ControlQueue`](super::control::ControlQueue).
    pub queued: bool,
}

impl Control {
    pub fn is_empty(&self) -> bool {
        let flags = self.claim || self.class || self.credit;
        self.open.is_none() && !flags && self.stop.is_none() && self.reset.is_none()
    }
}

/// A byte stream.
#[derive(Debug)]
pub struct Stream {
    pub state: FlowState,
    pub send: SendFlow,
    pub recv: RecvFlow,
    /// Credit beyond the reserve, as the receive pool accounts for it.
    pub lent_credit: u64,
    /// Unsent bytes beyond the share of every flow, as the send pool accounts for them.
    pub lent_send_bytes: u64,
    /// Place of the writer while it waits for memory of the send pool.
    pub waits: Option<Place>,
    /// Unsent bytes as last counted, and the class they were counted in.
    pub counted_unsent: (Class, u64),
    /// Sendable bytes as last counted, and the owner they were counted for.
    pub counted_sendable: (Owner, SendableBytes),
    /// Class claim: the client's at the air, the peer's at the ground.
    pub claim: Option<Claim>,
    /// Class that the ground confirmed for the claim.
    pub confirmed: Option<Class>,
}

/// A flow of datagrams.
#[derive(Debug)]
pub struct DatagramFlow {
    pub state: FlowState,
    /// IP protocol number.
    pub protocol: u8,
    pub lifetime: Duration,
    pub outgoing: DatagramQueue<Bytes>,
    pub incoming: RecvQueue,
    /// Received datagrams wait for those that were sent before them.
    pub keeps_order: bool,
}

impl FlowState {
    fn new(class: Class, passenger: u32, now: Duration) -> Self {
        Self {
            target: None,
            class,
            passenger,
            turn: None,
            opened: false,
            opened_by: None,
            ended: None,
            released: false,
            waits_finished: false,
            active: now,
            control: Control::default(),
        }
    }

    /// Marks the flow as ended and discards its control frames. Returns `false` if it had ended
    /// before.
    pub fn end(&mut self, code: ResetCode) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.ended = Some(code);
        self.control = Control { queued: self.control.queued, ..Control::default() };
        true
    }
}

impl Stream {
    /// Creates a stream that may send up to `credit` bytes and receive up to `reserve`.
    pub fn new(class: Class, passenger: u32, credit: u64, reserve: u64, now: Duration) -> Self {
        Self {
            state: FlowState::new(class, passenger, now),
            send: SendFlow::new(credit),
            recv: RecvFlow::new(reserve),
            lent_credit: 0,
            lent_send_bytes: 0,
            waits: None,
            counted_unsent: (class, 0),
            counted_sendable: ((passenger, class), SendableBytes::default()),
            claim: None,
            confirmed: None,
        }
    }
}

impl DatagramFlow {
    /// Creates the flow that `open` describes, with its handle in the scheduler.
    pub fn new(open: &OpenDatagrams, turn: Handle, lifetime: Duration, now: Duration) -> Self {
        let mut state = FlowState::new(open.class, open.passenger, now);
        state.target = Some(open.target.clone());
        state.turn = Some(turn);
        Self {
            state,
            protocol: open.protocol,
            lifetime,
            outgoing: DatagramQueue::new(),
            incoming: RecvQueue::default(),
            keeps_order: false,
        }
    }
}

impl Flow {
    pub fn state(&self) -> &FlowState {
        match self {
            Self::Stream(stream) => &stream.state,
            Self::Datagrams(datagrams) => &datagrams.state,
        }
    }

    pub fn state_mut(&mut self) -> &mut FlowState {
        match self {
            Self::Stream(stream) => &mut stream.state,
            Self::Datagrams(datagrams) => &mut datagrams.state,
        }
    }

    /// Returns `true` if the flow's opening waits for the flow's turn.
    pub fn is_opening(&self) -> bool {
        self.state().control.open.is_some()
    }

    /// Returns `true` if the flow has something to send in its turn.
    pub fn sends(&self) -> bool {
        let is_ready = match self {
            Self::Stream(stream) => stream.send.is_ready(),
            Self::Datagrams(datagrams) => !datagrams.outgoing.is_empty(),
        };
        let state = self.state();
        state.ended.is_none() && (self.is_opening() || (state.opened && is_ready))
    }

    /// Returns `true` if the flow's state can be freed: its owner has dropped it, both directions
    /// are over, and no control frame waits.
    pub fn is_over(&self) -> bool {
        let is_done = match self {
            Self::Stream(stream) => stream.send.is_done() && stream.recv.is_done(),
            Self::Datagrams(_) => false,
        };
        let state = self.state();
        state.released && (state.ended.is_some() || is_done) && state.control.is_empty()
    }

    pub fn is_datagrams(&self) -> bool {
        matches!(self, Self::Datagrams(_))
    }
}

/// Flows by number.
#[derive(Debug, Default)]
pub struct FlowMap(BTreeMap<u64, Flow>);

impl FlowMap {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn insert(&mut self, id: u64, flow: Flow) {
        self.0.insert(id, flow);
    }

    pub fn remove(&mut self, id: u64) -> Option<Flow> {
        self.0.remove(&id)
    }

    pub fn get(&self, id: u64) -> Option<&Flow> {
        self.0.get(&id)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Flow> {
        self.0.get_mut(&id)
    }

    pub fn stream(&self, id: u64) -> Option<&Stream> {
        match self.0.get(&id)? {
            Flow::Stream(stream) => Some(stream),
            Flow::Datagrams(_) => None,
        }
    }

    pub fn stream_mut(&mut self, id: u64) -> Option<&mut Stream> {
        match self.0.get_mut(&id)? {
            Flow::Stream(stream) => Some(stream),
            Flow::Datagrams(_) => None,
        }
    }

    pub fn datagrams(&self, id: u64) -> Option<&DatagramFlow> {
        match self.0.get(&id)? {
            Flow::Stream(_) => None,
            Flow::Datagrams(datagrams) => Some(datagrams),
        }
    }

    pub fn datagrams_mut(&mut self, id: u64) -> Option<&mut DatagramFlow> {
        match self.0.get_mut(&id)? {
            Flow::Stream(_) => None,
            Flow::Datagrams(datagrams) => Some(datagrams),
        }
    }

    /// Datagram flows in the order of their numbers.
    pub fn all_datagrams_mut(&mut self) -> impl Iterator<Item = &mut DatagramFlow> {
        self.0.values_mut().filter_map(|flow| match flow {
            Flow::Stream(_) => None,
            Flow::Datagrams(datagrams) => Some(datagrams),
        })
    }

    /// Numbers of the flows that `matches` selects: datagram flows first, then streams.
    pub fn ids(&self, matches: impl Fn(&Flow) -> bool) -> Vec<u64> {
        let chosen = || self.0.iter().filter(|(_, flow)| matches(flow));
        let datagrams = chosen().filter(|(_, flow)| flow.is_datagrams());
        let streams = chosen().filter(|(_, flow)| !flow.is_datagrams());
        datagrams.chain(streams).map(|(&id, _)| id).collect()
    }
}
