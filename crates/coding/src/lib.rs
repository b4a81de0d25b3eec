//! A systematic sliding-window code over GF(2^8), after RFC 8681 (RLC).
//!
//! Numbered *source symbols* are sent as they are. A *repair symbol* is a linear combination of a
//! [`Span`] of at most [`MAX_SPAN`] of them; its coefficients follow from a 16-bit key. Whoever lacks
//! k symbols of the spans of k independent repairs can compute them from everything else.
//!
//! ```
//! use bentpipe_coding::{Decoder, Limits, Span, encode};
//!
//! let sources: [&[u8]; 3] = [b"first", b"the second", b"3rd"];
//! let mut repair = Vec::new();
//! encode(77, &sources, &mut repair);
//!
//! let mut decoder = Decoder::new(Limits::default());
//! decoder.source(100, sources[0]);
//! decoder.source(102, sources[2]);
//! let span = Span::new(100, 3).unwrap();
//! assert!(decoder.repair(span, 77, &repair, |number| number != 101).unwrap());
//! assert_eq!(decoder.next_recovered(), Some((101, b"the second".to_vec())));
//! ```
//!
//! What is taken from RFC 8681: the field (section 3.7), the generator of coefficients with the
//! density threshold 15, so that no coefficient is zero (section 3.6), and the repair key as its
//! seed. What is not: FECFRAME's headers, and its padding of all source symbols to one size. Here
//! each source is coded as its length in two bytes, big-endian, and its bytes, padded with zeros to
//! the longest of the span, so that a recovered symbol has its own length again.
//!
//! There is no clock, no randomness and no thread in here; unsafe code is only in [`kernel`].

mod coefficients;
mod decoder;
mod encoder;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod kernel;
mod span;
mod symbol;
mod tinymt;

pub use coefficients::coefficients;
pub use decoder::{Decoder, Limits, Malformed};
pub use encoder::{encode, encode_with};
pub use field::Element;
pub use kernel::Kernel;
pub use span::Span;
pub use symbol::{MAX_SYMBOL_BYTES, PREFIX_BYTES};
pub use tinymt::TinyMt32;

/// The most source symbols that one repair combines.
pub const MAX_SPAN: usize = 512;
