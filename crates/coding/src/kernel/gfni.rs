//! Galois Field New Instructions, in 64-byte registers (AVX-512) and 32-byte registers (AVX2).
//!
//! GF2P8MULB multiplies in the field of AES (0x11b), which is a different one. GF2P8AFFINEQB
//! multiplies each byte by any 8 × 8 bit matrix, and multiplication by a constant of our field is
//! such a matrix.

use std::arch::x86_64::*;

use super::term::Term;
use super::tiles::{self, Register};
use crate::field::multiply;

/// Matrix of each factor, in the layout of GF2P8AFFINEQB.
static MATRICES: [u64; 256] = matrices();

/// Bit i of a product is the parity of row i of the factor's matrix AND the byte. Row i is stored
/// in byte 7 − i.
const fn matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut column = 0;
        while column < 8 {
            let product = multiply(factor as u8, 1 << column);
            let mut row = 0;
            while row < 8 {
                let bit = (product >> row & 1) as u64;
                matrices[factor] |= bit << (8 * (7 - row) + column);
                row += 1;
            }
            column += 1;
        }
        factor += 1;
    }
    matrices
}

#[derive(Clone, Copy)]
struct Zmm(__m512i);

#[expect(unsafe_code, reason = "vector instructions; see the trait")]
impl Register for Zmm {
    const BYTES: usize = 64;
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees AVX-512F.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller guarantees AVX-512F and 64 bytes to read; they need not be aligned.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller guarantees AVX-512F and 64 bytes to write; they need not be aligned.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller guarantees AVX-512F.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self::Factor, source: Self) -> Self {
        // SAFETY: the caller guarantees AVX-512F and GFNI.
        Self(unsafe {
            _mm512_xor_si512(self.0, _mm512_gf2p8affine_epi64_epi8::<0>(source.0, factor))
        })
    }
}

#[derive(Clone, Copy)]
struct Ymm(__m256i);

#[expect(unsafe_code, reason = "vector instructions; see the trait")]
impl Register for Ymm {
    const BYTES: usize = 32;
    type Factor = __m256i;

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
        // SAFETY: the caller guarantees AVX2.
        unsafe { _mm256_set1_epi64x(MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self::Factor, source: Self) -> Self {
        // SAFETY: the caller guarantees AVX2 and GFNI.
        Self(unsafe {
            _mm256_xor_si256(self.0, _mm256_gf2p8affine_epi64_epi8::<0>(source.0, factor))
        })
    }
}

/// Multiply-add with registers of 64 bytes.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[expect(unsafe_code, reason = "the loop is generic over registers")]
pub(super) fn add_multiples_512(destination: &mut [u8], terms: &[Term<'_>]) {
    // SAFETY: this function enables the instructions of `Zmm`.
    unsafe { tiles::add_multiples::<Zmm>(destination, terms) }
}

/// Multiply-add with registers of 32 bytes.
#[target_feature(enable = "avx2,gfni")]
#[expect(unsafe_code, reason = "the loop is generic over registers")]
pub(super) fn add_multiples_256(destination: &mut [u8], terms: &[Term<'_>]) {
    // SAFETY: this function enables the instructions of `Ymm`.
    unsafe { tiles::add_multiples::<Ymm>(destination, terms) }
}
