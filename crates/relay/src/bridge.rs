//! Relays between two flows, as a hub does between an aircraft and an egress.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bentpipe_flow::ResetCode;

use crate::half::{Broke, Half};
use crate::transport::FlowStream;

/// Two flows that carry each other's bytes. The future is ready when both directions are over.
///
/// A reset of one flow resets the other with the same code. Dropping the bridge early resets both as
/// [lost](ResetCode::Lost): the flows are this gateway's, not those of their users.
pub struct Bridge {
    near: Box<dyn FlowStream>,
    far: Box<dyn FlowStream>,
    to_far: Half,
    to_near: Half,
}

impl Bridge {
    /// Joins two flows.
    pub fn new(near: Box<dyn FlowStream>, far: Box<dyn FlowStream>) -> Self {
        Self { near, far, to_far: Half::default(), to_near: Half::default() }
    }

    fn is_over(&self) -> bool {
        self.to_far.over() && self.to_near.over()
    }
}

/// Copies from `source` to `sink`. Returns `true` if the flows are over.
fn poll_half(
    cx: &mut Context<'_>,
    half: &mut Half,
    source: &mut dyn FlowStream,
    sink: &mut dyn FlowStream,
) -> bool {
    match half.poll(cx, source, sink).broke {
        None => false,
        Some(Broke::Reading) => {
            sink.reset(source.reset_code().unwrap_or(ResetCode::Lost));
            true
        }
        Some(Broke::Writing(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            half.fail();
            source.stop_reading(sink.reset_code().unwrap_or(ResetCode::Aborted));
            false
        }
        Some(Broke::Writing(_)) => {
            source.reset(sink.reset_code().unwrap_or(ResetCode::Lost));
            true
        }
    }
}

impl Future for Bridge {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let is_broken = poll_half(cx, &mut this.to_far, &mut *this.near, &mut *this.far)
            || poll_half(cx, &mut this.to_near, &mut *this.far, &mut *this.near);
        if is_broken {
            this.to_far.fail();
            this.to_near.fail();
        }
        if this.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if !self.is_over() {
            self.near.reset(ResetCode::Lost);
            self.far.reset(ResetCode::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn both_directions_pass_with_their_ends() {
        let ((mut air, near), (far, mut egress)) = (duplex(64), duplex(64));
        let bridge = tokio::spawn(Bridge::new(Box::new(near), Box::new(far)));
        let request = vec![1; 10_000];
        let (mut sent, mut received) = (request.clone(), Vec::new());
        let (asked, read) = tokio::join!(
            async {
                air.write_all(&sent).await?;
                air.shutdown().await
            },
            egress.read_to_end(&mut received)
        );
        asked.unwrap();
        read.unwrap();
        assert_eq!(received, request);
        egress.write_all(b"answer").await.unwrap();
        egress.shutdown().await.unwrap();
        sent.clear();
        air.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, b"answer");
        bridge.await.unwrap();
    }
}
