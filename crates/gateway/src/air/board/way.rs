//! The flow of datagrams by which questions go to the ground.

use std::collections::VecDeque;
use std::future::pending;

use bentpipe_link::{Class, Host, Service, Target};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;

use super::PORT;
use crate::far::datagram::Datagram;
use crate::far::{DatagramError, FarDatagrams, FarEnd, OpenDatagrams, OpenError};
use crate::net::ip::UDP;

/// Names are what everything else waits for; the ground gives the class if it may.
pub const CLASS: Class = Class::Network;

/// The gateway's own flows are of no passenger: numbers of those begin above.
pub const NOBODY: u32 = 0;

/// Questions that wait for a flow to be opened, at 300 bytes each 300 KiB; the others are asked again.
const MOST_HELD: usize = 1024;

/// A question on its way.
pub struct Outgoing {
    /// Its id; of what is no question, none.
    pub id: Option<u16>,
    /// The message.
    pub message: Vec<u8>,
    /// `true` if its answer does not fit into a datagram.
    pub over_stream: bool,
}

/// The flow: opened when there is something to ask, and never waited for by who asks.
pub struct Way<'a> {
    far: &'a dyn FarEnd,
    flow: Option<Box<dyn FarDatagrams>>,
    opening: Option<BoxFuture<'a, Result<Box<dyn FarDatagrams>, OpenError>>>,
    held: VecDeque<Outgoing>,
    by_stream: VecDeque<Outgoing>,
    only_streams: bool,
}

impl<'a> Way<'a> {
    /// To the ground behind `far`.
    pub fn new(far: &'a dyn FarEnd) -> Self {
        let (held, by_stream) = Default::default();
        Self { far, flow: None, opening: None, held, by_stream, only_streams: false }
    }

    /// Sends `question`, now or when the flow is open, once however often it comes meanwhile. What cannot
    /// be sent counts as lost.
    pub fn take(&mut self, question: Outgoing) {
        if question.over_stream || self.only_streams {
            // What is no question has no answer that would come by a stream.
            self.by_stream.extend(question.id.is_some().then_some(question));
        } else if !self.send(&question) && self.held.len() < MOST_HELD {
            let waits = |held: &Outgoing| held.message == question.message;
            if !self.held.iter().any(waits) {
                self.held.push_back(question);
            }
        }
    }

    /// The next question that has to go over a stream.
    pub fn next_by_stream(&mut self) -> Option<Outgoing> {
        self.by_stream.pop_front()
    }

    /// Returns `true` if the transport has no datagrams, as far as is known.
    pub fn has_only_streams(&self) -> bool {
        self.only_streams
    }

    /// Waits for something to happen: a datagram of the ground, or nothing that anybody is told of.
    /// May be dropped half-way.
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
            // It was idle, or the link has gone: the next question opens another.
            self.flow = None;
        }
        received.ok()
    }

    fn opened(&mut self, opened: Result<Box<dyn FarDatagrams>, OpenError>) {
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
            // They are asked again, as if the link had lost them.
            Err(_) => self.held.clear(),
        }
    }

    /// False where there is no flow yet.
    fn send(&mut self, question: &Outgoing) -> bool {
        let mut datagram = BytesMut::new();
        Datagram::Payload(&question.message).encode(&mut datagram);
        match self.flow.as_ref().map(|flow| flow.send(&datagram)) {
            None => {}
            Some(Err(DatagramError::Ended)) => self.flow = None,
            Some(_) => return true,
        }
        if self.opening.is_none() {
            let (target, protocol, source) = (resolver(), UDP, 0);
            let open = OpenDatagrams { target, protocol, source, class: CLASS, passenger: NOBODY };
            self.opening = Some(self.far.open_datagrams(open));
        }
        false
    }
}

/// The ground's resolver.
pub fn resolver() -> Target {
    Target { host: Host::Service(Service::Resolver), port: PORT }
}
