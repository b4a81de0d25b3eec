//! A client's connection that fails if the client does not read.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_relay::layer::{Layer, Layered};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use bentpipe_relay::flows::{Activity, Grip};

/// A client's TCP connection that records its activity, and on which a write fails if it blocks for
/// too long.
pub type ClientStream = Layered<Layered<TcpStream, WriteTimeout>, Activity>;

/// Layer on which a write fails if it blocks longer than the limit.
pub struct WriteTimeout {
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

/// Wraps `tcp`: a write fails if it is pending for longer than `limit`, and activity is recorded in
/// `activity`.
pub fn client_stream(tcp: TcpStream, limit: Duration, activity: Arc<Grip>) -> ClientStream {
    let limited = Layered::new(tcp, WriteTimeout { limit, waiting: None });
    Layered::new(limited, Activity(activity))
}

/// Returns the connection.
pub fn into_tcp(stream: ClientStream) -> TcpStream {
    stream.into_parts().0.into_parts().0
}

impl Layer for WriteTimeout {
    fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(io).poll_write(cx, bytes);
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        std::task::ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}
