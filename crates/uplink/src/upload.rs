//! Uploads that are answered before they have arrived completely.
//!
//! Over HTTP/2, a server may answer early and then reset the stream without an error (RFC 9113
//! section 8.1). Some clients, curl 7.88 for example, discard the answer nevertheless. So the rest
//! of a small upload is read and discarded, and only a large one is reset.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Maximum bytes discarded of one upload. They cross only the cabin's network, and none of them is
/// kept.
const MAX_DISCARDED_BYTES: usize = 16 << 20;

/// Maximum time of discarding.
const DISCARD_TIME: Duration = Duration::from_secs(30);

/// Body of a request over HTTP/2. Dropping it reads the rest, within bounds.
pub struct Upload<B: Body<Data = Bytes> + Send + Unpin + 'static>(Option<B>);

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Upload<B> {
    /// Wraps the body of a request.
    pub fn new(body: B) -> Self {
        Self(Some(body))
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Drop for Upload<B> {
    fn drop(&mut self) {
        if let Some(body) = self.0.take()
            && !body.is_end_stream()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(timeout(DISCARD_TIME, discard(body)));
        }
    }
}

/// Reads a body until it ends or exceeds its bound.
async fn discard(mut body: impl Body<Data = Bytes> + Unpin) {
    let mut left = MAX_DISCARDED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(bytes) else { return };
        left = rest;
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Body for Upload<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;

    use super::*;

    const PART_BYTES: usize = 64 << 10;

    /// A body of `parts`, and the number of parts that were read.
    fn body(
        parts: usize,
    ) -> (impl Body<Data = Bytes, Error = Infallible> + Send + Unpin, Arc<AtomicUsize>) {
        let read = Arc::<AtomicUsize>::default();
        let count = read.clone();
        let frames = stream::iter(0..parts).map(move |_| {
            count.fetch_add(1, Relaxed);
            Ok(Frame::data(Bytes::from(vec![0; PART_BYTES])))
        });
        (StreamBody::new(frames), read)
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_small_upload_is_read() {
        for (parts, expected) in [(48, 48), (1_000, 257)] {
            let (body, read) = body(parts);
            let mut upload = Upload::new(body);
            assert_eq!(
                upload.frame().await.unwrap().unwrap().data_ref().unwrap().len(),
                PART_BYTES
            );
            drop(upload);
            tokio::time::sleep(Duration::from_secs(1)).await;
            // The bound is reached by the part after the last whole one.
            assert_eq!(read.load(Relaxed), expected + usize::from(parts == 1_000));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_stops_is_given_up() {
        struct Gone {
            _alive: Arc<()>,
        }
        impl Body for Gone {
            type Data = Bytes;
            type Error = Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                Poll::Pending
            }
        }
        let alive = Arc::new(());
        drop(Upload::new(Gone { _alive: alive.clone() }));
        tokio::time::sleep(DISCARD_TIME / 2).await;
        assert_eq!(Arc::strong_count(&alive), 2);
        tokio::time::sleep(DISCARD_TIME).await;
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
