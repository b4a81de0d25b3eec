//! Datagram flow of queries to the ground's resolver.

use std::collections::VecDeque;
use std::future::pending;

use bentpipe_flow::{Host, Service, Target};
use bentpipe_link::Class;
use bentpipe_net::ip::UDP;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;

use bentpipe_dns::io::PORT;
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::{Connector, DatagramError, FlowDatagrams, OpenDatagrams, OpenError};
use bentpipe_uplink::passengers::GATEWAY;

/// Requested class of queries, because everything else waits for names. The ground gateway may
/// assign a lower one.
pub const CLASS: Class = Class::Network;

/// Maximum number of queries that wait for the flow to open: 1,024 × 300 bytes = 300 KiB. Further
/// queries are repeated later.
const MAX_HELD: usize = 1024;

/// A message to send.
pub struct Query {
    /// ID of the query; `None` if the message is not a query.
    pub id: Option<u16>,
    /// The message.
    pub message: Vec<u8>,
    /// `true` if the answer does not fit into a datagram.
    pub over_stream: bool,
}

/// The flow to the ground's resolver. It is opened on demand, and senders never wait for it.
pub struct UpstreamFlow<'a> {
    connector: &'a dyn Connector,
    flow: Option<Box<dyn FlowDatagrams>>,
    opening: Option<BoxFuture<'a, Result<Box<dyn FlowDatagrams>, OpenError>>>,
    held: VecDeque<Query>,
    by_stream: VecDeque<Query>,
    only_streams: bool,
}

impl<'a> UpstreamFlow<'a> {
    /// Creates a path to the ground gateway behind `connector`.
    pub fn new(connector: &'a dyn Connector) -> Self {
        let (held, by_stream) = Default::default();
        Self { connector, flow: None, opening: None, held, by_stream, only_streams: false }
    }

    /// Sends `question`, or queues it until the flow is open; repetitions are queued once. A query
    /// that cannot be sent counts as lost.
    pub fn take(&mut self, question: Query) {
        if question.over_stream || self.only_streams {
            // Only queries have answers, so other messages are not sent over streams.
            self.by_stream.extend(question.id.is_some().then_some(question));
        } else if !self.send(&question) && self.held.len() < MAX_HELD {
            let waits = |held: &Query| held.message == question.message;
            if !self.held.iter().any(waits) {
                self.held.push_back(question);
            }
        }
    }

    /// Returns the next query that must use a stream.
    pub fn next_by_stream(&mut self) -> Option<Query> {
        self.by_stream.pop_front()
    }

    /// Returns `true` if the transport is known to have no datagrams.
    pub fn has_only_streams(&self) -> bool {
        self.only_streams
    }

    /// Waits for an event. Returns a datagram of the ground gateway, or `None` for an internal
    /// event. Cancel-safe.
    pub async fn event(&mut self) -> Option<Bytes> {
        if let Some(opening) = &mut self.opening {
            let opened = opening.await;
            self.opening = None;
            self.opened(opened);
            return None;
        }
        let Some(flow) = &self.flow else { return pending().await };
        let received = flow.receive().await;
        if received.is_err() {
            // The flow was idle or the link is down; the next query opens another flow.
            self.flow = None;
        }
        received.ok()
    }

    fn opened(&mut self, opened: Result<Box<dyn FlowDatagrams>, OpenError>) {
        match opened {
            Ok(flow) => {
                self.flow = Some(flow);
                for question in std::mem::take(&mut self.held) {
                    self.take(question);
                }
            }
            Err(OpenError::Unsupported) => {
                self.only_streams = true;
                for question in std::mem::take(&mut self.held) {
                    self.take(question);
                }
            }
            // These queries are repeated, as if the link had lost them.
            Err(_) => self.held.clear(),
        }
    }

    /// Sends over the flow. Returns `false` if it is not open.
    fn send(&mut self, question: &Query) -> bool {
        let mut datagram = BytesMut::new();
        Datagram::Payload(&question.message).encode(&mut datagram);
        match self.flow.as_ref().map(|flow| flow.send(&datagram)) {
            None => {}
            Some(Err(DatagramError::Ended)) => self.flow = None,
            Some(_) => return true,
        }
        if self.opening.is_none() {
            let (target, protocol, source) = (resolver_target(), UDP, 0);
            let open = OpenDatagrams { target, protocol, source, class: CLASS, passenger: GATEWAY };
            self.opening = Some(self.connector.open_datagrams(open));
        }
        false
    }
}

/// Target of the ground's resolver.
pub fn resolver_target() -> Target {
    Target { host: Host::Service(Service::Resolver), port: PORT }
}
