//! Halves of a QUIC stream that end according to HTTP/3, also when they are dropped.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use h3::error::Code;
use tokio::sync::OwnedSemaphorePermit;

/// Converts an error code. A code beyond QUIC's 62 bits becomes the largest one.
pub(crate) fn var_int(code: u64) -> quinn::VarInt {
    quinn::VarInt::from_u64(code).unwrap_or(quinn::VarInt::MAX)
}

/// Sending half. quinn finishes a dropped stream, but an unfinished flow must be reset.
pub(crate) struct RawSend {
    stream: quinn::SendStream,
    finished: bool,
    /// Permits of the client that the stream occupies.
    permit: Option<OwnedSemaphorePermit>,
}

impl RawSend {
    pub(crate) fn new(stream: quinn::SendStream) -> RawSend {
        RawSend { stream, finished: false, permit: None }
    }

    /// Keeps `permit` until this is dropped.
    pub(crate) fn hold(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }

    pub(crate) fn reset(&mut self, code: u64) {
        // Fails only if the stream is reset already.
        let _ = self.stream.reset(var_int(code));
    }

    pub(crate) fn finish(&mut self) {
        // Fails only if the peer has stopped the stream, which the other half reports.
        let _ = self.stream.finish();
        self.finished = true;
    }

    /// Writes all of `bytes`, which consist of whole frames.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<(), ResetCode> {
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
        // A reset after FIN would cancel bytes in flight.
        if !self.finished {
            self.reset(Code::H3_REQUEST_CANCELLED.value());
        }
    }
}

/// Receiving half. quinn stops a dropped stream with code 0, which HTTP/3 does not define.
pub(crate) struct RawRecv(pub(crate) quinn::RecvStream);

impl RawRecv {
    pub(crate) fn stop(&mut self, code: u64) {
        // Fails only if the stream has ended or is stopped already.
        let _ = self.0.stop(var_int(code));
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize, ResetCode>> {
        self.0.poll_read(cx, buf).map_err(|error| match error {
            quinn::ReadError::Reset(code) => crate::refusal::from_h3_code(code.into_inner()),
            quinn::ReadError::ConnectionLost(_) => ResetCode::Lost,
            _ => ResetCode::Aborted,
        })
    }
}

impl Drop for RawRecv {
    fn drop(&mut self) {
        self.stop(Code::H3_REQUEST_CANCELLED.value());
    }
}

/// Reason why no more can be written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteEnd {
    /// The peer has stopped reading, but may still send.
    Stopped(ResetCode),
    /// The stream or its connection is gone.
    Lost,
}

impl WriteEnd {
    pub(crate) fn why(self) -> ResetCode {
        match self {
            WriteEnd::Stopped(why) => why,
            WriteEnd::Lost => ResetCode::Lost,
        }
    }
}

impl From<quinn::WriteError> for WriteEnd {
    fn from(error: quinn::WriteError) -> WriteEnd {
        match error {
            quinn::WriteError::Stopped(code) => {
                WriteEnd::Stopped(crate::refusal::from_h3_code(code.into_inner()))
            }
            _ => WriteEnd::Lost,
        }
    }
}
