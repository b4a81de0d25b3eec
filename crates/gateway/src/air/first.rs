//! A flow that opens with the first bytes written to it.
//!
//! An HTTP request then travels in the same symbol as the wish to connect, and
//! costs one round trip of the satellite. Reusing flows would save nothing more.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bentpipe_link::ResetCode;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::intake::Intake;
use super::passengers::Ticket;
use crate::far::{FarStream, MAX_FIRST_BYTES, Open, OpenError, Reach, Standing};
use crate::still::Stillness;
use crate::usage::Meter;

/// State of a flow for those who speak HTTP on it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Ending(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    ended: OnceLock<Ended>,
    is_awaited: AtomicBool,
}

impl Ending {
    /// Reason why the flow broke, once it has.
    pub fn get(&self) -> Option<&Ended> {
        self.0.ended.get()
    }

    /// An answer is awaited from now on, or no longer: meanwhile the flow may be silent only for as long as an
    /// answer may take, whatever has come by it before.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.0.is_awaited.store(is_awaited, Relaxed);
    }

    fn is_awaited(&self) -> bool {
        self.0.is_awaited.load(Relaxed)
    }
}

/// Break of a flow.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its code.
    pub code: ResetCode,
    /// State of the link at that moment: if it was not up, the destination is not to blame.
    pub reach: Reach,
    /// `true` if anything had come before.
    pub is_answered: bool,
    /// This end gave up, because nothing moved.
    pub is_given_up: bool,
}

/// A flow still to be opened, or open.
pub struct FirstWrite {
    stage: Stage,
    intake: Arc<Intake>,
    ending: Ending,
    reader: Option<Waker>,
    timer: Pin<Box<Sleep>>,
    still: Stillness,
    answered: bool,
    meter: Option<Meter>,
    ticket: Option<Held>,
}

/// The right to the flow, and its end.
struct Held {
    ticket: Ticket,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
}

enum Stage {
    Unopened(Open),
    Opening(BoxFuture<'static, Result<Box<dyn FarStream>, OpenError>>),
    Flowing(Box<dyn FarStream>),
    Broken,
}

impl FirstWrite {
    /// A flow that will ask for `open`, with the first bytes written to it.
    /// What it uses is counted by `meter`.
    pub fn new(intake: Arc<Intake>, open: Open, meter: Option<Meter>) -> (Self, Ending) {
        let (ending, now) = (Ending::default(), Instant::now());
        let timer = Box::pin(sleep_until(now + intake.limits.answer_timeout.duration()));
        let stream = Self {
            stage: Stage::Unopened(open),
            intake,
            ending: ending.clone(),
            reader: None,
            timer,
            still: Stillness::new(Standing::default(), now),
            answered: false,
            meter,
            ticket: None,
        };
        (stream, ending)
    }

    /// The flow holds `ticket`, and ends when that has to make room for another flow.
    pub fn with_ticket(mut self, ticket: Option<Ticket>) -> Self {
        self.ticket = ticket.map(|ticket| {
            let over = Box::pin(ticket.over().cancelled_owned());
            Held { ticket, over }
        });
        self
    }

    fn moved(&mut self) {
        self.still.moved(Instant::now());
        if let Some(held) = &self.ticket {
            held.ticket.activity().touch();
        }
    }

    /// The open flow, opening it where that has begun.
    fn poll_far(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut Box<dyn FarStream>>> {
        if let Stage::Opening(opening) = &mut self.stage {
            match ready!(opening.as_mut().poll(cx)) {
                Ok(far) => {
                    self.still = Stillness::new(far.standing(), Instant::now());
                    self.stage = Stage::Flowing(far);
                }
                Err(error) => {
                    let code = error.code();
                    self.intake.quiet.warn("cannot open a flow", &error);
                    return Poll::Ready(Err(self.broken(code)));
                }
            }
        }
        match &mut self.stage {
            Stage::Flowing(far) => Poll::Ready(Ok(far)),
            Stage::Unopened(_) => Poll::Pending,
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// Ends the flow and keeps the reason.
    fn broken(&mut self, code: ResetCode) -> io::Error {
        self.end(code, false)
    }

    fn end(&mut self, code: ResetCode, is_given_up: bool) -> io::Error {
        if let Stage::Flowing(far) = &mut self.stage {
            far.reset(code);
        }
        self.stage = Stage::Broken;
        let (reach, is_answered) = (self.intake.far.reach(), self.answered);
        if self.ending.0.ended.set(Ended { code, reach, is_answered, is_given_up }).is_ok() {
            self.intake.counters.count_reset(code);
        }
        io::Error::new(io::ErrorKind::ConnectionReset, code)
    }

    /// Turns the far end's error into the flow's ending.
    fn settle<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| match &self.stage {
            // The peer only stopped reading: its answer may still come.
            Stage::Flowing(_) if error.kind() == io::ErrorKind::BrokenPipe => error,
            Stage::Flowing(far) => {
                let code = far.reset_code().unwrap_or(ResetCode::Internal);
                self.broken(code)
            }
            _ => error,
        })
    }

    fn is_unanswered(&self) -> bool {
        !self.answered || self.ending.is_awaited()
    }

    /// Longest silence allowed now, by the same limits as the relay's.
    fn patience(&self) -> Duration {
        let limits = self.intake.limits.relay();
        let answer = limits.answer.filter(|_| self.is_unanswered());
        limits.idle.min(answer.unwrap_or(limits.idle))
    }

    /// Ends a flow on which nothing moves while its link is there.
    fn poll_quiet(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if let Some(held) = &mut self.ticket
            && held.over.as_mut().poll(cx).is_ready()
        {
            self.ticket = None;
            return Poll::Ready(self.broken(ResetCode::Limit));
        }
        let patience = self.patience();
        let look_at = self.still.look_at(patience);
        // A request on a flow that was idle has less time than the flow had.
        if look_at < self.timer.deadline() {
            self.timer.as_mut().reset(look_at);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.still.look_at(patience) <= now {
                let standing = match &self.stage {
                    Stage::Flowing(far) => far.standing(),
                    _ => Standing::default(),
                };
                self.still.look(standing, now);
                if self.still.over_at(patience) <= now {
                    let is_unanswered = self.is_unanswered();
                    let code = if is_unanswered { ResetCode::Timeout } else { ResetCode::Idle };
                    return Poll::Ready(self.end(code, true));
                }
            }
            let look_at = self.still.look_at(patience);
            self.timer.as_mut().reset(look_at);
        }
        Poll::Pending
    }
}

impl AsyncRead for FirstWrite {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = match this.poll_far(cx) {
            Poll::Ready(Ok(far)) => Pin::new(far).poll_read(cx, buffer),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                this.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        };
        let Poll::Ready(result) = polled else {
            return this.poll_quiet(cx).map(Err);
        };
        let read = buffer.filled().len() - before;
        if read > 0 {
            this.intake.counters.to_tcp_bytes.add(read as u64);
            if let Some(meter) = &mut this.meter {
                meter.down(read as u64);
            }
            this.answered = true;
            this.moved();
        }
        Poll::Ready(this.settle(result))
    }
}

impl AsyncWrite for FirstWrite {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = match std::mem::replace(&mut this.stage, Stage::Broken) {
            Stage::Unopened(mut open) => {
                let first = &bytes[..bytes.len().min(MAX_FIRST_BYTES)];
                open.first = Bytes::copy_from_slice(first);
                let far = this.intake.far.clone();
                this.stage = Stage::Opening(Box::pin(async move { far.open(open).await }));
                if let Some(reader) = this.reader.take() {
                    reader.wake();
                }
                Ok(first.len())
            }
            stage => {
                this.stage = stage;
                let far = ready!(this.poll_far(cx));
                let result = match far {
                    Ok(far) => ready!(Pin::new(far).poll_write(cx, bytes)),
                    Err(error) => Err(error),
                };
                this.settle(result)
            }
        };
        if let Ok(length) = written {
            this.intake.counters.to_far_bytes.add(length as u64);
            if let Some(meter) = &mut this.meter {
                meter.up(length as u64);
            }
            this.moved();
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.stage, Stage::Unopened(_)) {
            return Poll::Ready(Ok(()));
        }
        let far = ready!(self.poll_far(cx))?;
        let result = ready!(Pin::new(far).poll_flush(cx));
        Poll::Ready(self.settle(result))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.stage, Stage::Unopened(_) | Stage::Broken) {
            return Poll::Ready(Ok(()));
        }
        let far = ready!(self.poll_far(cx))?;
        let result = ready!(Pin::new(far).poll_shutdown(cx));
        Poll::Ready(self.settle(result))
    }
}
