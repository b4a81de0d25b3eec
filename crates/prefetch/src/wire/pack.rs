//! The zstd stream (RFC 8878) around a page's frames.

use zstd::stream::raw::{Decoder, Encoder, InBuffer, Operation, OutBuffer};

use super::WireError;

/// Level 3 packs HTML about as well as gzip's best at ten times its speed.
const LEVEL: i32 = 3;

/// Both ends keep so much of what came before: 1 MiB for each page under way.
const WINDOW_LOG: u32 = 20;

/// Bytes unpacked at once.
const CHUNK_BYTES: usize = 32 << 10;

/// The ground's end.
pub struct Packer(Encoder<'static>);

/// The cabin's end.
pub struct Unpacker {
    decoder: Decoder<'static>,
    is_over: bool,
}

impl Packer {
    /// For one page's stream.
    pub fn new() -> Result<Self, WireError> {
        let mut encoder = Encoder::new(LEVEL).map_err(packed)?;
        let window = zstd::zstd_safe::CParameter::WindowLog(WINDOW_LOG);
        encoder.set_parameter(window).map_err(packed)?;
        Ok(Self(encoder))
    }

    /// Packs `frames` and appends to `out`. With `flush` all of them can be read as soon as that has
    /// come; it costs a few bytes, so it is for when nothing more is ready to follow.
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
    /// For one page's stream.
    pub fn new() -> Result<Self, WireError> {
        let mut decoder = Decoder::new().map_err(packed)?;
        let window = zstd::zstd_safe::DParameter::WindowLogMax(WINDOW_LOG);
        decoder.set_parameter(window).map_err(packed)?;
        Ok(Self { decoder, is_over: false })
    }

    /// Unpacks a part of `bytes` and gives it to `take`; says how many of `bytes` that took. To be
    /// called until nothing is left and nothing came out: a few packed bytes may unpack to very many, so each call
    /// gives 32 KiB at most.
    pub fn unpack(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, WireError> {
        if self.is_over {
            // One zstd frame is all there is.
            return if bytes.is_empty() { Ok(0) } else { Err(WireError::Packed) };
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut input = InBuffer::around(bytes);
        let mut output = OutBuffer::around(&mut chunk[..]);
        let hint = self.decoder.run(&mut input, &mut output).map_err(packed)?;
        self.is_over = hint == 0;
        let came = output.pos();
        take(&chunk[..came]);
        Ok(input.pos())
    }

    /// Returns `true` if the stream was ended by its sender.
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
