//! Encoder of repair symbols.

use crate::kernel::{Kernel, Term};
use crate::symbol::{MAX_SYMBOL_BYTES, PREFIX_BYTES, add_sources};
use crate::{MAX_SPAN, coefficients};

/// Appends the repair symbol of `sources`, the symbols of a span in order, to `out`.
///
/// Each source is coded as its length (two bytes, big-endian), its bytes, and zeros up to the
/// longest source. The repair symbol is two bytes longer than the longest source. The cost is one
/// multiply-add per source byte.
///
/// # Panics
///
/// If there are more than [`MAX_SPAN`] sources, or a source is longer than [`MAX_SYMBOL_BYTES`].
pub fn encode(key: u16, sources: &[&[u8]], out: &mut Vec<u8>) {
    encode_with(Kernel::best(), key, sources, out);
}

/// Same as [`encode`], with a given kernel. All kernels produce the same bytes.
pub fn encode_with(kernel: Kernel, key: u16, sources: &[&[u8]], out: &mut Vec<u8>) {
    assert!(sources.len() <= MAX_SPAN, "a repair of {} sources", sources.len());
    let longest = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    assert!(longest <= MAX_SYMBOL_BYTES, "a source of {longest} bytes");
    let mut factors = [0; MAX_SPAN];
    coefficients(key, &mut factors[..sources.len()]);
    let mut terms = [Term::default(); MAX_SPAN];
    for ((term, factor), source) in terms.iter_mut().zip(factors).zip(sources) {
        *term = Term { factor, source };
    }
    let start = out.len();
    out.resize(start + PREFIX_BYTES + longest, 0);
    add_sources(kernel, &mut out[start..], &terms[..sources.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;

    #[test]
    fn a_repair_symbol_is_the_sum_of_the_multiples() {
        let sources: [&[u8]; 3] = [b"ab", b"", b"xyz"];
        let mut factors = [0; 3];
        coefficients(5, &mut factors);
        let coded = [[0, 2, b'a', b'b', 0], [0, 0, 0, 0, 0], [0, 3, b'x', b'y', b'z']];
        let sum = |byte: usize| {
            let multiples = factors.iter().zip(coded).map(|(f, s)| Element(*f) * Element(s[byte]));
            multiples.fold(Element(0), |a, b| a + b).0
        };
        let mut out = vec![9];
        encode(5, &sources, &mut out);
        assert_eq!(out, [9, sum(0), sum(1), sum(2), sum(3), sum(4)]);
    }

    #[test]
    fn the_shortest_repair_symbol_has_two_bytes() {
        let mut out = Vec::new();
        encode(1, &[], &mut out);
        encode(1, &[b""], &mut out);
        assert_eq!(out, [0; 4]);
    }
}
