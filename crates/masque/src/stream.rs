//! Halves of a QUIC stream that end as HTTP/3 wants them to, also when they are dropped.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use h3::error::Code;
use tokio::sync::OwnedSemaphorePermit;

use crate::Refusal;

/// Error codes beyond QUIC's 62 bits do not exist; the nearest that does stands for them.
pub(crate) fn var_int(code: u64) -> quinn::VarInt {
    quinn::VarInt::from_u64(code).unwrap_or(quinn::VarInt::MAX)
}

/// quinn finishes a stream that is dropped; a flow that is dropped unfinished must be reset.
pub(crate) struct RawSend {
    stream: quinn::SendStream,
    finished: bool,
    /// Permits that the stream takes of its client's share.
    held: Option<OwnedSemaphorePermit>,
}

impl RawSend {
    pub(crate) fn new(stream: quinn::SendStream) -> RawSend {
        RawSend { stream, finished: false, held: None }
    }

    /// Keeps `place` for as long as this lives.
    pub(crate) fn hold(&mut self, place: OwnedSemaphorePermit) {
        self.held = Some(place);
    }

    pub(crate) fn reset(&mut self, code: u64) {
        // Fails only when the stream is reset already.
        let _ = self.stream.reset(var_int(code));
    }

    pub(crate) fn finish(&mut self) {
        // Fails only when the peer has stopped the stream, which the other half reports.
        let _ = self.stream.finish();
        self.finished = true;
    }

    /// Writes all of `bytes`, which belong to whole frames.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        self.stream.write_chunk(bytes).await.map_err(|error| WriteEnd::from(error).why())
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, WriteEnd>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes).map_err(WriteEnd::from)
    }
}

impl Drop for RawSend {
    fn drop(&mut self) {
        // A reset after the end would take back what is still under way.
        if !self.finished {
            self.reset(Code::H3_REQUEST_CANCELLED.value());
        }
    }
}

/// quinn stops a stream that is dropped with code 0, which means nothing in HTTP/3.
pub(crate) struct RawRecv(pub(crate) quinn::RecvStream);

impl RawRecv {
    pub(crate) fn stop(&mut self, code: u64) {
        // Fails only when the stream is at its end or stopped already.
        let _ = self.0.stop(var_int(code));
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize, Refusal>> {
        self.0.poll_read(cx, buf).map_err(|error| match error {
            quinn::ReadError::Reset(code) => Refusal::from_h3_code(code.into_inner()),
            _ => Refusal::Aborted,
        })
    }
}

impl Drop for RawRecv {
    fn drop(&mut self) {
        self.stop(Code::H3_REQUEST_CANCELLED.value());
    }
}

/// Reason for which nothing more can be written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteEnd {
    /// The peer reads no more, but may still send.
    Stopped(Refusal),
    /// The stream or its connection is gone.
    Lost,
}

impl WriteEnd {
    pub(crate) fn why(self) -> Refusal {
        match self {
            WriteEnd::Stopped(why) => why,
            WriteEnd::Lost => Refusal::Aborted,
        }
    }
}

impl From<quinn::WriteError> for WriteEnd {
    fn from(error: quinn::WriteError) -> WriteEnd {
        match error {
            quinn::WriteError::Stopped(code) => {
                WriteEnd::Stopped(Refusal::from_h3_code(code.into_inner()))
            }
            _ => WriteEnd::Lost,
        }
    }
}
