//! Coded form of a source symbol: its length, then its bytes, then zeros.

use crate::field::multiply;
use crate::kernel::{Kernel, Term};

/// Length prefix of a source.
pub const PREFIX_BYTES: usize = 2;

/// The longest source that can be coded.
pub const MAX_SYMBOL_BYTES: usize = u16::MAX as usize;

/// Adds multiples of sources to a repair: of their lengths to its first two bytes, of their bytes to
/// the rest. No source may be longer than that rest, nor `repair` shorter than the two.
pub(crate) fn add_sources(kernel: Kernel, repair: &mut [u8], terms: &[Term<'_>]) {
    let (prefix, rest) = repair.split_at_mut(PREFIX_BYTES);
    for (sum, byte) in prefix.iter_mut().zip(lengths(terms).to_be_bytes()) {
        *sum ^= byte;
    }
    kernel.add_multiples(rest, terms);
}

/// The sum of the multiples of the sources' lengths.
///
/// Two bytes of each of many sources: there is nothing to keep a vector kernel busy with. As in the
/// portable kernel, the lengths are added up for each bit of the factors, and doubled at the end.
fn lengths(terms: &[Term<'_>]) -> u16 {
    let mut sums = [0u16; 8];
    for term in terms {
        let length = term.source.len() as u16;
        for (bit, sum) in sums.iter_mut().enumerate() {
            let taken = u16::from(term.factor >> bit & 1).wrapping_neg();
            *sum ^= length & taken;
        }
    }
    let product = |bit: usize, byte: u8| multiply(1 << bit, byte);
    let products = (0..8).map(|bit| sums[bit].to_be_bytes().map(|byte| product(bit, byte)));
    products.fold(0, |total, product| total ^ u16::from_be_bytes(product))
}

/// The source in a repair that combines nothing else, or what is left of one: `None` if its length
/// is more than there is, or if anything but zeros follows it.
pub(crate) fn unpadded(repair: &[u8]) -> Option<&[u8]> {
    let (length, rest) = repair.split_first_chunk::<PREFIX_BYTES>()?;
    let (source, padding) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    padding.iter().all(|byte| *byte == 0).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_padded_is_found_again() {
        assert_eq!(unpadded(&[0, 2, 7, 8, 0, 0]), Some(&[7, 8][..]));
        assert_eq!(unpadded(&[0, 0]), Some(&[][..]));
        assert_eq!(unpadded(&[0, 2, 7]), None);
        assert_eq!(unpadded(&[0, 1, 7, 8]), None);
        assert_eq!(unpadded(&[0]), None);
    }
}
