//! A flow as a byte stream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::shared::{FlowKey, Half, Shared};
use crate::Class;
use crate::endpoint::{Core, Flows};
use crate::flow::{Read, Write};
use crate::session::Session;
use bentpipe_flow::ResetCode;

/// Reset of a flow; the source of an [`io::ErrorKind::ConnectionReset`] error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the flow was reset: {}", .0.name())]
pub struct FlowReset(pub ResetCode);

/// One end of a flow. `shutdown` ends its sending half; dropping it unfinished resets it.
pub struct Flow<S: Flows = Session> {
    shared: Arc<End<S>>,
    key: FlowKey,
    code: Option<ResetCode>,
}

/// Either end, with sessions of type `S`.
pub(super) type End<S> = Shared<dyn Core<Session = S> + Send>;

impl Flow {
    /// Confirms the aircraft's claim: the flow has `class` from now on, at both ends.
    pub fn confirm(&mut self, class: Class) {
        self.with(None, |session, flow, now| (session.confirm(flow, class, now), None));
    }

    /// Moves what this end sends to `class`, if that is less favoured.
    pub fn demote(&mut self, class: Class) {
        self.with(None, |session, flow, now| (session.demote(flow, class, now), None));
    }

    /// Class that the ground has confirmed for the flow's claim. The flow's reader is woken when it
    /// arrives.
    pub fn confirmed(&self) -> Option<Class> {
        self.with(None, |session, flow, _| (session.confirmed(flow), None)).flatten()
    }

    /// Total length of all outages of the flow's session; zero once the session is over.
    pub fn unheard(&self) -> Duration {
        self.with(None, |session, _, now| (session.unheard(now), None)).unwrap_or_default()
    }

    /// Length of the present outage, if the peer has not acknowledged the opening of the flow.
    pub fn unopened(&self) -> Option<Duration> {
        let look = |session: &mut Session, flow: u64, now| {
            (session.is_unopened(flow).then(|| session.outage(now)), None)
        };
        self.with(None, look).flatten()
    }

    /// Bytes written that have not been sent yet.
    pub fn unsent_bytes(&self) -> usize {
        self.with(None, |session, flow, _| (session.unsent_bytes(flow), None)).unwrap_or_default()
    }
}

impl<S: Flows> Flow<S> {
    pub(super) fn new(shared: Arc<End<S>>, key: FlowKey) -> Self {
        Self { shared, key, code: None }
    }

    /// Ends both directions at once, as a TCP RST does.
    pub fn reset(&mut self, code: ResetCode) {
        self.with(None, |session, flow, now| (session.reset(flow, code, now), None));
    }

    /// Tells the peer to send no more; the other direction goes on.
    pub fn stop_reading(&mut self, code: ResetCode) {
        self.with(None, |session, flow, now| (session.stop_reading(flow, code, now), None));
    }

    /// Reason for the flow's end, once a read or write has failed.
    pub fn reset_code(&self) -> Option<ResetCode> {
        self.code
    }

    /// Calls `look` with the flow's session, while there is one.
    pub fn look<T>(&self, look: impl FnOnce(&S) -> T) -> Option<T> {
        self.with(None, |session, _, _| (look(session), None))
    }

    fn with<T>(
        &self,
        cx: Option<&Context<'_>>,
        act: impl FnOnce(&mut S, u64, Duration) -> (T, Option<Half>),
    ) -> Option<T> {
        self.shared.with(self.key, cx, act)
    }

    fn over<T>(&mut self, code: ResetCode) -> Poll<io::Result<T>> {
        self.code = Some(code);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, FlowReset(code))))
    }
}

impl<S: Flows> AsyncRead for Flow<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let read = this.with(Some(cx), |session, flow, now| {
            let read = session.read(flow, buffer.initialize_unfilled(), now);
            (read, (read == Read::Blocked).then_some(Half::Read))
        });
        match read {
            Some(Read::Taken(bytes)) => {
                buffer.advance(bytes);
                Poll::Ready(Ok(()))
            }
            Some(Read::Blocked) => Poll::Pending,
            Some(Read::Finished) => Poll::Ready(Ok(())),
            Some(Read::Reset(code)) => this.over(code),
            None => this.over(ResetCode::Lost),
        }
    }
}

impl<S: Flows> AsyncWrite for Flow<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = this.with(Some(cx), |session, flow, now| {
            let written = session.write(flow, data, now);
            (written, (written == Write::Blocked).then_some(Half::Write))
        });
        match written {
            Some(Write::Taken(bytes)) => Poll::Ready(Ok(bytes)),
            Some(Write::Blocked) => Poll::Pending,
            Some(Write::Stopped(code)) => {
                this.code = Some(code);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, FlowReset(code))))
            }
            Some(Write::Reset(code)) => this.over(code),
            None => this.over(ResetCode::Lost),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // written bytes are sent as fast as the link permits
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(None, |session, flow, now| (session.finish(flow, now), None));
        Poll::Ready(Ok(()))
    }
}

impl<S: Flows> Drop for Flow<S> {
    fn drop(&mut self) {
        // First, because another flow may get the number as soon as this one is released.
        drop(self.shared.lock().waiting.remove(&self.key));
        self.with(None, |session, flow, now| (session.release(flow, now), None));
    }
}
