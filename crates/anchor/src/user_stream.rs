//! A flow as its user sees it, at either end.

use std::io;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::streams::Streams;
use crate::wakers::Wakers;

/// One end of a flow, which knows where its carriers come from.
pub trait Side {
    /// Wakers of the user.
    fn wakers(&self) -> &Arc<Wakers>;

    /// Calls `poll` with the streams, after what the end itself has to do.
    fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Streams, &mut Context<'_>) -> T,
    ) -> T;
}

/// A flow for its user.
pub struct UserStream<S>(pub(crate) S);

impl<S: Side> UserStream<S> {
    /// Polls the reading half with `poll`. News wakes the writer.
    fn as_reader<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Streams, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let waker = self.0.wakers().of_reader(cx);
        self.poll(&waker, Wakers::wake_writer, poll)
    }

    /// Polls the writing half with `poll`. News wakes the reader.
    fn as_writer<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Streams, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let waker = self.0.wakers().of_writer(cx);
        self.poll(&waker, Wakers::wake_reader, poll)
    }

    fn poll<T>(
        &mut self,
        waker: &Waker,
        wake: fn(&Wakers),
        poll: impl FnOnce(&mut Streams, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let cx = &mut Context::from_waker(waker);
        let (polled, has_news) = self.0.drive(cx, |streams, cx| {
            let polled = poll(streams, cx);
            (polled, take(&mut streams.has_news))
        });
        if has_news {
            wake(self.0.wakers());
        }
        polled
    }
}

impl<S: Side + Unpin> AsyncRead for UserStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.as_reader(cx, |streams, cx| streams.poll_read(cx, buffer))
    }
}

impl<S: Side + Unpin> AsyncWrite for UserStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.as_writer(cx, |streams, cx| streams.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.as_writer(cx, |streams, cx| {
            streams.send(cx);
            Poll::Ready(Ok(()))
        })
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.as_writer(cx, Streams::poll_shutdown)
    }
}
