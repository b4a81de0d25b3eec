//! A connection as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bentpipe_link::io::FlowReset;
use bentpipe_link::{Read, ResetCode, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::shared::{FlowKey, Half, Shared};
use crate::settings::Buffers;

/// One end of a connection. `shutdown` ends its sending half; dropping it unfinished resets it.
pub struct Flow {
    shared: Arc<Shared>,
    key: FlowKey,
    code: Option<ResetCode>,
}

impl Flow {
    pub(super) fn new(shared: Arc<Shared>, key: FlowKey) -> Self {
        Self { shared, key, code: None }
    }

    /// Ends both directions at once, as a TCP RST does.
    pub fn reset(&mut self, code: ResetCode) {
        self.shared.with(self.key, None, |session, id, now| (session.reset(id, code, now), None));
    }

    /// Tells the peer to send no more; the other direction goes on.
    pub fn stop_reading(&mut self, code: ResetCode) {
        let stop = |session: &mut crate::Session, id, now| session.stop_reading(id, code, now);
        self.shared.with(self.key, None, |session, id, now| (stop(session, id, now), None));
    }

    /// Why the connection ended, once a read or write has failed.
    pub fn reset_code(&self) -> Option<ResetCode> {
        self.code
    }

    /// The buffers that the rules give this connection; `None` once the association is gone.
    pub fn buffers(&self) -> Option<Buffers> {
        self.shared.with(self.key, None, |session, _, _| (session.buffers(), None))
    }

    fn over<T>(&mut self, code: ResetCode) -> Poll<io::Result<T>> {
        self.code = Some(code);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, FlowReset(code))))
    }
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
        let read = this.shared.with(this.key, Some(cx), |session, id, now| {
            let read = session.read(id, buffer.initialize_unfilled(), now);
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
        let written = this.shared.with(this.key, Some(cx), |session, id, now| {
            let written = session.write(id, data, now);
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
        Poll::Ready(Ok(())) // what was written leaves as soon as the window lets it
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.with(self.key, None, |session, id, now| (session.finish(id, now), None));
        Poll::Ready(Ok(()))
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.shared.with(self.key, None, |session, id, now| (session.release(id, now), None));
        drop(self.shared.lock().waiting.remove(&self.key));
    }
}
