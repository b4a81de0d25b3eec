//! Systematic sliding-window erasure code over GF(2^8), after RFC 8681 (RLC).
//!
//! *Source symbols* are numbered and sent unchanged. A *repair symbol* is a linear combination of a
//! [`Span`] of at most [`MAX_SPAN`] source symbols. Its coefficients follow from a 16-bit key. A
//! receiver that lacks k symbols can recover them from k independent repair symbols that span them.
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
//! | module | contents |
//! |---|---|
//! | `encoder`, `coefficients`, `tinymt` | repair symbols; their coefficients from the generator of RFC 8682 |
//! | `decoder` | [`Decoder`]: cached sources, equations, [`Limits`] |
//! | `field`, [`kernel`] | GF(2^8); vector kernels for multiply-add of byte slices |
//! | `span`, `symbol` | [`Span`]; coded form of a source symbol |
//!
//! Compatibility with RFC 8681:
//!
//! - Same: the field (section 3.7); the coefficient generator with density threshold 15, so that no
//!   coefficient is zero (section 3.6); the repair key as its seed.
//! - Different: no FECFRAME headers, and no padding of all source symbols to one size. Each source
//!   is coded as its length (two bytes, big-endian) and its bytes, padded with zeros to the longest
//!   of the span. A recovered symbol therefore has its original length.
//!
//! Bounds: [`Limits`] bounds the memory of a decoder and the work of each call, whatever the peer
//! sends.
//!
//! The crate has no clock, no randomness and no threads. Unsafe code is confined to [`kernel`].

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

/// Maximum number of source symbols in one repair symbol.
pub const MAX_SPAN: usize = 512;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
