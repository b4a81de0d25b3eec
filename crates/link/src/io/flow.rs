//! A flow as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::shared::{FlowKey, Shared, Waiting};
use crate::Class;
use crate::code::ResetCode;
use crate::endpoint::{AirCore, Core, HubCore};
use crate::flow::{Read, Write};
use crate::session::Session;

/// The flow was reset, and why; the source of a [`io::ErrorKind::ConnectionReset`] error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the flow was reset: {}", .0.name())]
pub struct FlowReset(pub ResetCode);

/// One end of a flow. `shutdown` ends its sending half; dropping it unfinished resets it.
pub struct Flow {
    end: End,
    key: FlowKey,
    code: Option<ResetCode>,
}

enum End {
    Air(Arc<Shared<AirCore>>),
    Hub(Arc<Shared<HubCore>>),
}

/// Which half of the flow waits.
#[derive(Clone, Copy)]
enum Half {
    Read,
    Write,
}

impl Flow {
    pub(super) fn of_air(shared: Arc<Shared<AirCore>>, key: FlowKey) -> Self {
        Self { end: End::Air(shared), key, code: None }
    }

    pub(super) fn of_hub(shared: Arc<Shared<HubCore>>, key: FlowKey) -> Self {
        Self { end: End::Hub(shared), key, code: None }
    }

    /// Ends both directions at once, as a TCP RST does.
    pub fn reset(&mut self, code: ResetCode) {
        self.with(None, |session, flow, _| (session.reset(flow, code), None));
    }

    /// Tells the peer to send no more; the other direction goes on.
    pub fn stop_reading(&mut self, code: ResetCode) {
        self.with(None, |session, flow, _| (session.stop_reading(flow, code), None));
    }

    /// Why the flow ended, once a read or write has failed.
    pub fn reset_code(&self) -> Option<ResetCode> {
        self.code
    }

    /// What the aircraft claims of the flow is true: it is of `class` from now on, at both ends.
    pub fn confirm(&mut self, class: Class) {
        self.with(None, |session, flow, _| (session.confirm(flow, class), None));
    }

    /// The class that the ground gave the flow for what was claimed of it. Whoever reads the flow is
    /// woken when it comes.
    pub fn confirmed(&self) -> Option<Class> {
        self.with(None, |session, flow, _| (session.confirmed(flow), None)).flatten()
    }

    /// Runs `act` on the flow's session, if it is still there. When it returns a half, the task of
    /// `cx` is woken when that half may go on.
    fn with<T>(
        &self,
        cx: Option<&Context<'_>>,
        act: impl FnOnce(&mut Session, u64, std::time::Duration) -> (T, Option<Half>),
    ) -> Option<T> {
        match &self.end {
            End::Air(shared) => with(shared, self.key, cx, act),
            End::Hub(shared) => with(shared, self.key, cx, act),
        }
    }

    fn over<T>(&mut self, code: ResetCode) -> Poll<io::Result<T>> {
        self.code = Some(code);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, FlowReset(code))))
    }
}

fn with<C: Core, T>(
    shared: &Shared<C>,
    key: FlowKey,
    cx: Option<&Context<'_>>,
    act: impl FnOnce(&mut Session, u64, std::time::Duration) -> (T, Option<Half>),
) -> Option<T> {
    let mut state = shared.lock();
    let now = shared.now();
    if state.ended {
        return None;
    }
    let session = state.core.session(key.0)?;
    let (done, waits) = act(session, key.1, now);
    let has_news = session.has_news(now);
    if let (Some(half), Some(cx)) = (waits, cx) {
        let waiting: &mut Waiting = state.waiting.entry(key).or_default();
        let slot = match half {
            Half::Read => &mut waiting.reader,
            Half::Write => &mut waiting.writer,
        };
        if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *slot = Some(cx.waker().clone());
        }
    }
    if has_news {
        state.wake_driver();
    }
    Some(done)
}

impl AsyncRead for Flow {
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
            None => this.over(ResetCode::Aborted),
        }
    }
}

impl AsyncWrite for Flow {
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
            None => this.over(ResetCode::Aborted),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // what was written leaves as fast as the link allows
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(None, |session, flow, _| (session.finish(flow), None));
        Poll::Ready(Ok(()))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.with(None, |session, flow, _| (session.release(flow), None));
        match &self.end {
            End::Air(shared) => drop(shared.lock().waiting.remove(&self.key)),
            End::Hub(shared) => drop(shared.lock().waiting.remove(&self.key)),
        }
    }
}
