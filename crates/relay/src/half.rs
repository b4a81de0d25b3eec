//! One direction of a relayed flow.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, TryGetError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::parts;

/// Maximum number of bytes per read, and so the maximum that a blocked direction stores. Larger
/// reads wake other tasks less often.
pub const SCRATCH_BYTES: usize = 64 * 1024;
/// Maximum read in a direction that was blocked: 4,096 flows × 2 directions × 16 KiB = 128 MiB.
const BLOCKED_BYTES: usize = 16 * 1024;
/// Bytes that a direction must pass on before it no longer counts as blocked.
const FREE_AFTER_BYTES: usize = 64 * 1024;

/// Maximum number of reads per poll, before other tasks get their turn.
const ROUNDS_PER_POLL: usize = 16;
/// Maximum number of bytes per poll, approximately.
const BYTES_PER_POLL: u64 = 256 * 1024;

thread_local! {
    static SCRATCH: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// State of one direction.
#[derive(Default)]
pub struct Half {
    stage: Stage,
    leftover: Vec<u8>,
    sent: usize,
    unflushed: bool,
    /// Bytes passed on since the sink last blocked, up to [`FREE_AFTER_BYTES`].
    unblocked: usize,
}

#[derive(Default, PartialEq, Eq, Clone, Copy)]
enum Stage {
    #[default]
    Copying,
    /// The source has ended, but the sink has not been shut down yet.
    Ending,
    Done,
    Failed,
}

/// The failed side.
pub enum Broke {
    Reading,
    Writing(io::Error),
}

/// Result of one poll.
#[derive(Default)]
pub struct Polled {
    pub read: u64,
    pub wrote: u64,
    pub broke: Option<Broke>,
}

impl Half {
    /// Creates a direction that writes `pending` before it reads.
    pub fn holding(pending: Vec<u8>) -> Self {
        Self { leftover: pending, ..Self::default() }
    }

    /// Returns `true` if the sink does not accept pending data.
    pub fn blocked(&self) -> bool {
        !self.leftover.is_empty() || self.stage == Stage::Ending
    }

    /// Returns `true` if the source has ended.
    pub fn read_all(&self) -> bool {
        matches!(self.stage, Stage::Ending | Stage::Done)
    }

    /// Returns `true` if everything was passed on, including the end.
    pub fn done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Returns `true` if nothing more will be copied.
    pub fn over(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Failed)
    }

    /// Abandons this direction.
    pub fn fail(&mut self) {
        self.stage = Stage::Failed;
        self.leftover = Vec::new();
    }

    /// Writes the state for the next process.
    pub fn put(&self, state: &mut Vec<u8>) {
        state.push(match self.stage {
            Stage::Copying => 0,
            Stage::Ending => 1,
            Stage::Done => 2,
            Stage::Failed => 3,
        });
        parts::put(state, &self.leftover[self.sent.min(self.leftover.len())..]);
    }

    /// Reads the state that the previous process has written.
    pub fn get(rest: &mut &[u8]) -> Result<Self, TryGetError> {
        let stage = match rest.try_get_u8()? {
            0 => Stage::Copying,
            1 => Stage::Ending,
            2 => Stage::Done,
            _ => Stage::Failed,
        };
        Ok(Self { stage, leftover: parts::get(rest)?, ..Self::default() })
    }

    /// Copies as much as possible without waiting.
    pub fn poll<R, W>(&mut self, cx: &mut Context<'_>, source: &mut R, sink: &mut W) -> Polled
    where
        R: AsyncRead + Unpin + ?Sized,
        W: AsyncWrite + Unpin + ?Sized,
    {
        let mut polled = Polled::default();
        if self.over() {
            return polled;
        }
        let mut scratch = SCRATCH.take().unwrap_or_else(|| vec![0; SCRATCH_BYTES].into());
        match self.copy(cx, source, sink, &mut scratch, &mut polled) {
            Ok(()) => {}
            Err(broke) => polled.broke = Some(broke),
        }
        SCRATCH.set(Some(scratch));
        polled
    }

    fn copy<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut R,
        sink: &mut W,
        scratch: &mut [u8],
        polled: &mut Polled,
    ) -> Result<(), Broke>
    where
        R: AsyncRead + Unpin + ?Sized,
        W: AsyncWrite + Unpin + ?Sized,
    {
        for _ in 0..ROUNDS_PER_POLL {
            if polled.read >= BYTES_PER_POLL {
                break;
            }
            if !self.leftover.is_empty() {
                self.sent += write(cx, sink, &self.leftover[self.sent..], polled)?;
                self.unflushed = true;
                if self.sent < self.leftover.len() {
                    return Ok(());
                }
                self.leftover = Vec::new();
                self.sent = 0;
            }
            if self.stage == Stage::Ending {
                match Pin::new(&mut *sink).poll_shutdown(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(())) => self.stage = Stage::Done,
                    Poll::Ready(Err(error)) => return Err(Broke::Writing(error)),
                }
                return Ok(());
            }
            let free = self.unblocked >= FREE_AFTER_BYTES;
            let most = if free { SCRATCH_BYTES } else { BLOCKED_BYTES };
            let mut buffer = ReadBuf::new(&mut scratch[..most]);
            match Pin::new(&mut *source).poll_read(cx, &mut buffer) {
                Poll::Pending => return self.flush(cx, sink),
                Poll::Ready(Err(_)) => return Err(Broke::Reading),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => self.stage = Stage::Ending,
                Poll::Ready(Ok(())) => {
                    polled.read += buffer.filled().len() as u64;
                    let sent = write(cx, sink, buffer.filled(), polled)?;
                    self.unflushed = true;
                    self.unblocked = FREE_AFTER_BYTES.min(self.unblocked + sent);
                    if sent < buffer.filled().len() {
                        self.leftover = buffer.filled()[sent..].to_vec();
                        self.unblocked = 0;
                        return Ok(());
                    }
                }
            }
        }
        // There may be more data: continue after other tasks.
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn flush<W: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut W,
    ) -> Result<(), Broke> {
        if self.unflushed {
            match Pin::new(sink).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(Broke::Writing(error)),
            }
        }
        Ok(())
    }
}

/// Writes until the sink blocks. Returns the number of bytes written.
fn write<W: AsyncWrite + Unpin + ?Sized>(
    cx: &mut Context<'_>,
    sink: &mut W,
    bytes: &[u8],
    polled: &mut Polled,
) -> Result<usize, Broke> {
    let mut sent = 0;
    while sent < bytes.len() {
        match Pin::new(&mut *sink).poll_write(cx, &bytes[sent..]) {
            Poll::Pending => break,
            Poll::Ready(Ok(0)) => return Err(Broke::Writing(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(n)) => {
                sent += n;
                polled.wrote += n as u64;
            }
            Poll::Ready(Err(error)) => return Err(Broke::Writing(error)),
        }
    }
    Ok(sent)
}
