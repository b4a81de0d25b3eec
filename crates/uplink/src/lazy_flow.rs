//! A flow that opens with the first bytes written to it.
//!
//! An HTTP request then travels in the same symbol as the request to connect, and costs one round
//! trip over the satellite. Reusing flows would not save more.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Uplink;
use super::passengers::FlowPermit;
use bentpipe_metering::usage::Meter;
use bentpipe_transport::still::{Opening, Stillness};
use bentpipe_transport::{FlowStream, MAX_FIRST_BYTES, Open, OpenError, Reach, Standing};

/// State of a flow, for HTTP code that uses it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CloseWatch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    ended: OnceLock<CloseReason>,
    is_awaited: AtomicBool,
}

impl CloseWatch {
    /// Returns the reason why the flow broke, once it has.
    pub fn get(&self) -> Option<&CloseReason> {
        self.0.ended.get()
    }

    /// Sets whether a response is awaited. While it is, the flow's idle limit is the time limit for
    /// a response, whatever was received before.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.0.is_awaited.store(is_awaited, Relaxed);
    }

    fn is_awaited(&self) -> bool {
        self.0.is_awaited.load(Relaxed)
    }
}

/// Failure of a flow.
#[derive(Debug, Clone, Copy)]
pub struct CloseReason {
    /// Code of the failure.
    pub code: ResetCode,
    /// State of the link at that moment. If it was not up, the destination is not the cause.
    pub reach: Reach,
    /// `true` if this gateway gave up because the flow was idle.
    pub is_given_up: bool,
}

/// A flow that is open, or opens with its first write.
pub struct LazyFlow {
    stage: Stage,
    uplink: Arc<Uplink>,
    ending: CloseWatch,
    reader: Option<Waker>,
    timer: Pin<Box<Sleep>>,
    still: Stillness,
    opening: Opening,
    answered: bool,
    meter: Option<Meter>,
    permit: Option<Held>,
}

/// FlowPermit of the flow, and its revocation.
struct Held {
    permit: FlowPermit,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
}

enum Stage {
    Unopened(Open),
    Opening(BoxFuture<'static, Result<Box<dyn FlowStream>, OpenError>>),
    Flowing(Box<dyn FlowStream>),
    Broken,
}

impl LazyFlow {
    /// Creates a flow that will open with `open` and the first bytes written to it. `meter` counts
    /// its usage.
    pub fn new(uplink: Arc<Uplink>, open: Open, meter: Option<Meter>) -> (Self, CloseWatch) {
        let (ending, now) = (CloseWatch::default(), Instant::now());
        let timer = Box::pin(sleep_until(now + uplink.limits.answer_timeout.duration()));
        let stream = Self {
            stage: Stage::Unopened(open),
            uplink,
            ending: ending.clone(),
            reader: None,
            timer,
            still: Stillness::new(Standing::default(), now),
            opening: Opening::new(Standing::default(), now),
            answered: false,
            meter,
            permit: None,
        };
        (stream, ending)
    }

    /// Attaches `permit` to the flow. The flow ends when the permit is revoked.
    pub fn with_permit(mut self, permit: Option<FlowPermit>) -> Self {
        self.permit = permit.map(|permit| {
            let over = Box::pin(permit.over().cancelled_owned());
            Held { permit, over }
        });
        self
    }

    fn moved(&mut self) {
        self.still.moved(Instant::now());
        if let Some(held) = &self.permit {
            held.permit.activity().touch();
        }
    }

    /// Returns the open flow, and drives its opening if that has begun.
    fn poll_flow(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut Box<dyn FlowStream>>> {
        if let Stage::Opening(opening) = &mut self.stage {
            match ready!(opening.as_mut().poll(cx)) {
                Ok(flow) => {
                    let (standing, now) = (flow.standing(), Instant::now());
                    self.still = Stillness::new(standing, now);
                    self.opening = Opening::new(standing, now);
                    self.stage = Stage::Flowing(flow);
                }
                Err(error) => {
                    let code = error.code();
                    self.uplink.log.warn("cannot open a flow", &error);
                    return Poll::Ready(Err(self.broken(code)));
                }
            }
        }
        match &mut self.stage {
            Stage::Flowing(flow) => Poll::Ready(Ok(flow)),
            Stage::Unopened(_) => Poll::Pending,
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// Ends the flow and stores the reason.
    fn broken(&mut self, code: ResetCode) -> io::Error {
        self.end(code, false)
    }

    fn end(&mut self, code: ResetCode, is_given_up: bool) -> io::Error {
        if let Stage::Flowing(flow) = &mut self.stage {
            flow.reset(code);
        }
        self.stage = Stage::Broken;
        let reach = self.uplink.connector.reach();
        if self.ending.0.ended.set(CloseReason { code, reach, is_given_up }).is_ok() {
            self.uplink.counters.count_reset(code);
        }
        io::Error::new(io::ErrorKind::ConnectionReset, code)
    }

    /// Converts an error of the link's flow into the failure of this flow.
    fn settle<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| match &self.stage {
            // The peer only stopped reading: its response may still arrive.
            Stage::Flowing(_) if error.kind() == io::ErrorKind::BrokenPipe => error,
            Stage::Flowing(flow) => {
                let code = flow.reset_code().unwrap_or(ResetCode::Internal);
                self.broken(code)
            }
            _ => error,
        })
    }

    fn is_unanswered(&self) -> bool {
        !self.answered || self.ending.is_awaited()
    }

    /// Current idle limit, by the same rules as the relay's.
    fn patience(&self) -> Duration {
        let limits = self.uplink.limits.relay();
        let answer = limits.answer.filter(|_| self.is_unanswered());
        limits.idle.min(answer.unwrap_or(limits.idle))
    }

    /// Ends a flow that is idle while its link is up, or that the peer does not know in an outage.
    fn poll_quiet(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if let Some(held) = &mut self.permit
            && held.over.as_mut().poll(cx).is_ready()
        {
            self.permit = None;
            return Poll::Ready(self.broken(ResetCode::Limit));
        }
        let patience = self.patience();
        let look_at = self.look_at(patience);
        // A request on an idle flow has less time than the flow had.
        if look_at < self.timer.deadline() {
            self.timer.as_mut().reset(look_at);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let standing = match &self.stage {
                Stage::Flowing(flow) => flow.standing(),
                _ => Standing::default(),
            };
            if self.opening.look_at().is_some_and(|at| at <= now)
                && self.opening.look(standing, now)
            {
                return Poll::Ready(self.end(ResetCode::Timeout, true));
            }
            if self.still.look_at(patience) <= now {
                self.still.look(standing, now);
                if self.still.over_at(patience) <= now {
                    let is_unanswered = self.is_unanswered();
                    let code = if is_unanswered { ResetCode::Timeout } else { ResetCode::Idle };
                    return Poll::Ready(self.end(code, true));
                }
            }
            let look_at = self.look_at(patience);
            self.timer.as_mut().reset(look_at);
        }
        Poll::Pending
    }

    /// Time of the next check.
    fn look_at(&self, patience: Duration) -> Instant {
        let quiet = self.still.look_at(patience);
        self.opening.look_at().map_or(quiet, |at| at.min(quiet))
    }
}

impl AsyncRead for LazyFlow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = match this.poll_flow(cx) {
            Poll::Ready(Ok(flow)) => Pin::new(flow).poll_read(cx, buffer),
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
            this.uplink.counters.to_tcp_bytes.add(read as u64);
            if let Some(meter) = &mut this.meter {
                meter.down(read as u64);
            }
            this.answered = true;
            this.moved();
        }
        Poll::Ready(this.settle(result))
    }
}

impl AsyncWrite for LazyFlow {
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
                let flow = this.uplink.connector.clone();
                this.stage = Stage::Opening(Box::pin(async move { flow.open(open).await }));
                if let Some(reader) = this.reader.take() {
                    reader.wake();
                }
                Ok(first.len())
            }
            stage => {
                this.stage = stage;
                let flow = ready!(this.poll_flow(cx));
                let result = match flow {
                    Ok(flow) => ready!(Pin::new(flow).poll_write(cx, bytes)),
                    Err(error) => Err(error),
                };
                this.settle(result)
            }
        };
        if let Ok(length) = written {
            this.uplink.counters.to_link_bytes.add(length as u64);
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
        let flow = ready!(self.poll_flow(cx))?;
        let result = ready!(Pin::new(flow).poll_flush(cx));
        Poll::Ready(self.settle(result))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if matches!(self.stage, Stage::Unopened(_) | Stage::Broken) {
            return Poll::Ready(Ok(()));
        }
        let flow = ready!(self.poll_flow(cx))?;
        let result = ready!(Pin::new(flow).poll_shutdown(cx));
        Poll::Ready(self.settle(result))
    }
}
