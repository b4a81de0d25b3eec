//! A flow of datagrams.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use super::flow::End;
use super::shared::{FlowKey, Half};
use crate::code::ResetCode;
use crate::flow::{Receive, SendError};
use crate::session::Session;

/// One end of a flow of datagrams. Dropping it resets the flow.
pub struct DatagramFlow {
    shared: Arc<End<Session>>,
    key: FlowKey,
}

impl DatagramFlow {
    pub(super) fn new(shared: Arc<End<Session>>, key: FlowKey) -> Self {
        Self { shared, key }
    }

    /// Hands over a datagram, and never waits: what the link cannot carry in time is dropped, as
    /// anywhere on its way.
    pub fn send(&self, payload: &[u8]) -> Result<(), SendError> {
        let sent =
            self.with(None, |session, flow, now| (session.send_datagram(flow, payload, now), None));
        sent.unwrap_or(Err(SendError::Ended(ResetCode::Aborted)))
    }

    /// The next datagram that came; an error once the flow is over. One task at a time may wait.
    pub async fn receive(&self) -> Result<Bytes, ResetCode> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// As [`Self::receive`], for who polls.
    pub fn poll_receive(&self, cx: &Context<'_>) -> Poll<Result<Bytes, ResetCode>> {
        let received = self.with(Some(cx), |session, flow, now| {
            let received = session.receive_datagram(flow, now);
            let waits = (received == Receive::Blocked).then_some(Half::Read);
            (received, waits)
        });
        match received {
            Some(Receive::Taken(payload)) => Poll::Ready(Ok(payload)),
            Some(Receive::Blocked) => Poll::Pending,
            Some(Receive::Reset(code)) => Poll::Ready(Err(code)),
            None => Poll::Ready(Err(ResetCode::Aborted)),
        }
    }

    /// From now on what comes is received in the order in which it left, for what takes a datagram that
    /// comes late for a lost one. See [`Session::keep_order`].
    pub fn keep_order(&self) {
        self.with(None, |session, flow, _| (session.keep_order(flow), None));
    }

    /// The longest payload that [`Self::send`] takes now: it follows the MTU of the radio path. 0
    /// once the session is over.
    pub fn max_bytes(&self) -> usize {
        self.with(None, |session, flow, _| (session.max_datagram_bytes(flow), None)).unwrap_or(0)
    }

    /// The longest payload that [`Self::send`] may take soon: more than [`Self::max_bytes`] only while
    /// a new path has not answered yet whether it carries what it is provisioned for.
    pub fn hoped_bytes(&self) -> usize {
        self.with(None, |session, flow, _| (session.hoped_datagram_bytes(flow), None)).unwrap_or(0)
    }

    /// Ends the flow and tells the peer why.
    pub fn reset(&self, code: ResetCode) {
        self.with(None, |session, flow, _| (session.reset(flow, code), None));
    }

    fn with<T>(
        &self,
        cx: Option<&Context<'_>>,
        act: impl FnOnce(&mut Session, u64, Duration) -> (T, Option<Half>),
    ) -> Option<T> {
        self.shared.with(self.key, cx, act)
    }
}

impl Drop for DatagramFlow {
    fn drop(&mut self) {
        self.with(None, |session, flow, _| (session.release(flow), None));
        drop(self.shared.lock().waiting.remove(&self.key));
    }
}
