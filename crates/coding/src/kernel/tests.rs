//! Every kernel agrees with the field arithmetic, at every length and offset.

use proptest::prelude::*;

use super::*;
use crate::Element;

/// Reference implementation, byte by byte.
fn expected(destination: &[u8], terms: &[Term<'_>]) -> Vec<u8> {
    let mut sums = destination.to_vec();
    for term in terms {
        for (sum, byte) in sums.iter_mut().zip(term.source) {
            *sum = (Element(*sum) + Element(term.factor) * Element(*byte)).0;
        }
    }
    sums
}

#[test]
fn the_portable_kernel_is_always_available_and_the_best_is_first() {
    let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
    assert_eq!(names.last(), Some(&"portable"));
    assert_eq!(names.first(), Some(&Kernel::best().name()));
}

#[test]
fn every_product_is_correct() {
    let bytes: Vec<u8> = (0..=255).collect();
    for kernel in Kernel::available() {
        for factor in 0..=255 {
            let term = Term { factor, source: &bytes };
            let mut actual = vec![0; 256];
            kernel.add_multiples(&mut actual, &[term]);
            assert_eq!(actual, expected(&[0; 256], &[term]), "{factor} by {}", kernel.name());
        }
    }
}

#[test]
fn every_length_is_correct() {
    let bytes: Vec<u8> = (0..1600u32).map(|at| (at * 7 + at / 256) as u8).collect();
    for kernel in Kernel::available() {
        for length in 0..bytes.len() {
            let terms = [3, 0, 1, 251].map(|factor| Term { factor, source: &bytes[..length] });
            let mut actual = bytes[..length].to_vec();
            kernel.add_multiples(&mut actual, &terms);
            let expected = expected(&bytes[..length], &terms);
            assert_eq!(actual, expected, "{length} bytes by {}", kernel.name());
        }
    }
}

proptest! {
    /// Sources shorter and longer than the destination, at any memory offset.
    #[test]
    fn all_kernels_agree(
        bytes in prop::collection::vec(any::<u8>(), 2000),
        at in 0usize..100,
        length in 0usize..1900,
        parts in prop::collection::vec((any::<u8>(), 0usize..2000, 0usize..2000), 0..12),
    ) {
        let terms: Vec<Term<'_>> = parts.iter().map(|(factor, from, bytes_long)| {
            let long = *bytes_long;
            let from = (*from).min(bytes.len() - long);
            Term { factor: *factor, source: &bytes[from..from + long] }
        }).collect();
        let expected = expected(&bytes[at..at + length], &terms);
        for kernel in Kernel::available() {
            let mut around = bytes.clone();
            kernel.add_multiples(&mut around[at..at + length], &terms);
            prop_assert_eq!(&around[at..at + length], &expected, "{}", kernel.name());
            prop_assert_eq!(&around[..at], &bytes[..at]);
            prop_assert_eq!(&around[at + length..], &bytes[at + length..]);
        }
    }
}
