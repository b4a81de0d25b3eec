//! The zstd stream (RFC 8878) around a page's frames.

use zstd::stream::raw::{Decoder, Encoder, InBuffer, Operation, OutBuffer};

use super::WireError;

/// Compression level. It packs HTML about as well as gzip's best level at ten times the speed.
const LEVEL: i32 = 3;

/// Window of both peers: 1 MiB per open page.
const WINDOW_LOG: u32 = 20;

/// Maximum number of bytes unpacked at once.
const CHUNK_BYTES: usize = 32 << 10;

/// Compressor of the ground gateway.
pub struct Packer(Encoder<'static>);

/// Decompressor of the air gateway.
pub struct Unpacker {
    decoder: Decoder<'static>,
    is_over: bool,
}

impl Packer {
    /// Creates a compressor for one page's stream.
    pub fn new() -> Result<Self, WireError> {
        let mut encoder = Encoder::new(LEVEL).map_err(packed)?;
        let window = zstd::zstd_safe::CParameter::WindowLog(WINDOW_LOG);
        encoder.set_parameter(window).map_err(packed)?;
        Ok(Self(encoder))
    }

    /// Packs `frames` and appends them to `out`. With `flush`, the peer can read all of them at
    /// once. Flushing costs a few bytes, so use it only if nothing more is ready.
    pub fn pack(&mut self, frames: &[u8], flush: bool, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut input = InBuffer::around(frames);
        while input.pos() < frames.len() {
            with_room(out, |out| self.0.run(&mut input, out))?;
        }
        while flush && with_room(out, |out| self.0.flush(out))? > 0 {}
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), WireError> {
        while with_room(out, |out| self.0.finish(out, true))? > 0 {}
        Ok(())
    }
}

impl Unpacker {
    /// Creates a decompressor for one page's stream.
    pub fn new() -> Result<Self, WireError> {
        let mut decoder = Decoder::new().map_err(packed)?;
        let window = zstd::zstd_safe::DParameter::WindowLogMax(WINDOW_LOG);
        decoder.set_parameter(window).map_err(packed)?;
        Ok(Self { decoder, is_over: false })
    }

    /// Unpacks a part of `bytes`, and passes the result to `take`. Returns the number of bytes
    /// consumed. Call it until all is consumed and nothing comes out. Few bytes may unpack to very
    /// many, so each call produces at most 32 KiB.
    pub fn unpack(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, WireError> {
        if self.is_over {
            // The stream is a single zstd frame.
            return if bytes.is_empty() { Ok(0) } else { Err(WireError::Packed) };
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut input = InBuffer::around(bytes);
        let mut output = OutBuffer::around(&mut chunk[..]);
        let hint = self.decoder.run(&mut input, &mut output).map_err(packed)?;
        self.is_over = hint == 0;
        let length = output.pos();
        take(&chunk[..length]);
        Ok(input.pos())
    }

    /// Returns `true` if the sender has ended the stream.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

fn packed(_: std::io::Error) -> WireError {
    WireError::Packed
}

fn with_room<T>(
    out: &mut Vec<u8>,
    step: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> std::io::Result<T>,
) -> Result<T, WireError> {
    out.reserve(CHUNK_BYTES);
    let end = out.len();
    step(&mut OutBuffer::around_pos(out, end)).map_err(packed)
}
