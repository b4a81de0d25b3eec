//! A flow of datagrams.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use super::flow::End;
use super::shared::{FlowKey, Half};
use crate::flow::{Receive, SendError};
use crate::session::Session;
use bentpipe_flow::ResetCode;

/// One end of a datagram flow. Dropping it resets the flow.
pub struct DatagramFlow {
    shared: Arc<End<Session>>,
    key: FlowKey,
}

impl DatagramFlow {
    pub(super) fn new(shared: Arc<End<Session>>, key: FlowKey) -> Self {
        Self { shared, key }
    }

    /// Sends a datagram without waiting. A datagram that the link cannot carry in time is dropped.
    pub fn send(&self, payload: &[u8]) -> Result<(), SendError> {
        let sent =
            self.with(None, |session, flow, now| (session.send_datagram(flow, payload, now), None));
        sent.unwrap_or(Err(SendError::Ended(ResetCode::Lost)))
    }

    /// Receives the next datagram. Fails once the flow is over. One task at a time may wait.
    pub async fn receive(&self) -> Result<Bytes, ResetCode> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// Polls for the next datagram, as [`Self::receive`].
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
            None => Poll::Ready(Err(ResetCode::Lost)),
        }
    }

    /// Delivers received datagrams in the order in which they were sent, for protocols that take a
    /// late datagram for lost. See [`Session::keep_order`].
    pub fn keep_order(&self) {
        self.with(None, |session, flow, _| (session.keep_order(flow), None));
    }

    /// Largest payload that [`Self::send`] accepts now; it follows the MTU of the radio path. 0
    /// once the session is over.
    pub fn max_bytes(&self) -> usize {
        self.with(None, |session, flow, _| (session.max_datagram_bytes(flow), None)).unwrap_or(0)
    }

    /// Largest payload that [`Self::send`] may accept soon. It exceeds [`Self::max_bytes`] only
    /// while the first MTU search of a path is not finished.
    pub fn provisioned_max_bytes(&self) -> usize {
        self.with(None, |session, flow, _| (session.provisioned_datagram_bytes(flow), None))
            .unwrap_or(0)
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
        // First, because another flow may get the number as soon as this one is released.
        drop(self.shared.lock().waiting.remove(&self.key));
        self.with(None, |session, flow, _| (session.release(flow), None));
    }
}
