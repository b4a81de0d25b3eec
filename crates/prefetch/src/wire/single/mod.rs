//! Upward bytes of a single request: its head packed, all else as it is.
//!
//! The cabin's end cuts the bytes for an origin into chunks, the ground's end puts the same bytes
//! together again, whatever they are: [`HeadPacker`] looks for heads of HTTP/1.1 in them only to pack
//! these. Nothing is learned from one head for another, so that no passenger can tell from lengths what
//! somebody else has asked for by the same connection.
//!
//! | chunk | kind u8 | length u16 | body |
//! |---|---|---|---|
//! | as it is | 1 | of the body, not 0 | bytes |
//! | a head | 2 | of the body | length of the frame u16, zstd frame without its magic number, what was kept out |
//!
//! The frame (RFC 8878, with [`DICTIONARY`] as raw content) holds the head's text. Where that has a byte
//! 0, something was kept out of the compressor (`split.rs`); these pieces follow the frame in their order,
//! each behind its length in two bytes.
//!
//! What comes down is the origin's bytes; of a site, to whose origin the ground makes TLS, they are in chunks
//! too, of the first kind and of one that says how they end:
//!
//! | chunk | kind u8 | length u16 | body |
//! |---|---|---|---|
//! | the end | 3 | 1 | 0 whole, 1 cut, 2 the ground has no such site, 3 no TLS with its origin |

mod dictionary;
mod down;
mod pack;
mod split;
#[cfg(test)]
mod tests;
mod unpack;

pub use dictionary::DICTIONARY;
pub use down::{Downs, End, put_said};
pub use pack::HeadPacker;
pub use unpack::HeadUnpacker;

/// The first byte of a stream that carries a single request, on the service of pages. A ground that knows
/// pages alone ends such a stream as one of a version that it does not know.
pub const VERSION_SINGLE: u8 = 4;

/// The first byte of a stream that carries single requests to a site, to whose origin the ground makes TLS. What
/// comes down is in chunks too, as they are, and ends with how it ended ([`End`]): the end of a TLS connection
/// says whether all is there, and that of a stream cannot without losing what waits to be sent.
pub const VERSION_SITE: u8 = 5;

/// The most bytes of a head that is packed, what is kept out of the compressor included: browsers' are
/// shorter, and a longer one crosses as it is.
pub const MAX_PACKED_HEAD_BYTES: usize = 16 << 10;

/// The most bytes that one frame may unpack to.
pub const MAX_TEXT_BYTES: usize = 8 << 10;

/// … and how many times as long as the frame. With the dictionary a browser's head comes to a fifth; what
/// comes to less is a head made to be sent on by the ground in thousands, which the link would not carry.
pub const MAX_RATIO: usize = 32;

/// The most bytes of a chunk's body. A receiver holds one chunk at most, and what it came to: 24 KiB.
pub const MAX_CHUNK_BYTES: usize = 16 << 10;

/// Stands in the text where something was kept out.
const MARK: u8 = 0;

/// Kind and length.
const CHUNK_HEAD_BYTES: usize = 3;

const AS_IT_IS: u8 = 1;
const HEAD: u8 = 2;
const END: u8 = 3;

/// Start of each zstd frame, which is left out.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
