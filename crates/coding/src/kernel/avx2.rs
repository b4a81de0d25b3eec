//! AVX2: the product of a byte is the sum of the products of its halves. PSHUFB looks up 32 at a
//! time.

use std::arch::x86_64::*;

use super::nibbles::PRODUCTS;
use super::term::Term;
use super::tiles::{self, Register};

#[derive(Clone, Copy)]
struct Ymm(__m256i);

#[expect(unsafe_code, reason = "vector instructions; see the trait")]
impl Register for Ymm {
    const BYTES: usize = 32;
    /// Products of the low and of the high half.
    type Factor = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees AVX2.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller guarantees AVX2 and 32 bytes to read; they need not be aligned.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller guarantees AVX2 and 32 bytes to write; they need not be aligned.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let products = &PRODUCTS[usize::from(factor)];
        // SAFETY: the caller guarantees AVX2, and both tables have 16 bytes.
        unsafe {
            let table = |half: &[u8; 16]| {
                _mm256_broadcastsi128_si256(_mm_loadu_si128(half.as_ptr().cast()))
            };
            (table(&products.low), table(&products.high))
        }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, (low, high): Self::Factor, source: Self) -> Self {
        // SAFETY: the caller guarantees AVX2.
        Self(unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let low_half = _mm256_and_si256(source.0, mask);
            let high_half = _mm256_and_si256(_mm256_srli_epi64::<4>(source.0), mask);
            let product = _mm256_xor_si256(
                _mm256_shuffle_epi8(low, low_half),
                _mm256_shuffle_epi8(high, high_half),
            );
            _mm256_xor_si256(self.0, product)
        })
    }
}

#[target_feature(enable = "avx2")]
#[expect(unsafe_code, reason = "the loop is generic over registers")]
pub(super) fn add_multiples(destination: &mut [u8], terms: &[Term<'_>]) {
    // SAFETY: this function enables the instructions of `Ymm`.
    unsafe { tiles::add_multiples::<Ymm>(destination, terms) }
}
