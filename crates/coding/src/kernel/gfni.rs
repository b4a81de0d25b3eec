//! Galois Field New Instructions, in 64-byte registers (AVX-512) and in 32-byte ones (AVX2).
//!
//! GF2P8MULB multiplies in another field, that of AES (0x11b). GF2P8AFFINEQB multiplies each byte
//! with any 8 × 8 matrix of bits; multiplication by a constant of our field is one.

use std::arch::x86_64::*;

use super::Term;
use super::tiles::{self, Register};
use crate::field::multiply;

/// The matrix of each factor, as GF2P8AFFINEQB wants it.
static MATRICES: [u64; 256] = matrices();

/// Bit i of a product is the parity of the factor's row i and the byte; row i stands in byte 7 − i.
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
struct Wide(__m512i);

#[expect(unsafe_code, reason = "vector instructions; see the trait")]
impl Register for Wide {
    const BYTES: usize = 64;
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX-512F.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller has AVX-512F and 64 bytes to read; they need not be aligned.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller has AVX-512F and 64 bytes to write; they need not be aligned.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller has AVX-512F.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn plus(self, factor: Self::Factor, source: Self) -> Self {
        // SAFETY: the caller has AVX-512F and GFNI.
        Self(unsafe {
            _mm512_xor_si512(self.0, _mm512_gf2p8affine_epi64_epi8::<0>(source.0, factor))
        })
    }
}

#[derive(Clone, Copy)]
struct Narrow(__m256i);

#[expect(unsafe_code, reason = "vector instructions; see the trait")]
impl Register for Narrow {
    const BYTES: usize = 32;
    type Factor = __m256i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller has AVX2 and 32 bytes to read; they need not be aligned.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller has AVX2 and 32 bytes to write; they need not be aligned.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_set1_epi64x(MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn plus(self, factor: Self::Factor, source: Self) -> Self {
        // SAFETY: the caller has AVX2 and GFNI.
        Self(unsafe {
            _mm256_xor_si256(self.0, _mm256_gf2p8affine_epi64_epi8::<0>(source.0, factor))
        })
    }
}

/// With registers of 64 bytes.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[expect(unsafe_code, reason = "the loop is generic over registers")]
pub(super) fn add_multiples_512(destination: &mut [u8], terms: &[Term<'_>]) {
    // SAFETY: this function has the instructions of `Wide`.
    unsafe { tiles::add_multiples::<Wide>(destination, terms) }
}

/// With registers of 32 bytes.
#[target_feature(enable = "avx2,gfni")]
#[expect(unsafe_code, reason = "the loop is generic over registers")]
pub(super) fn add_multiples_256(destination: &mut [u8], terms: &[Term<'_>]) {
    // SAFETY: this function has the instructions of `Narrow`.
    unsafe { tiles::add_multiples::<Narrow>(destination, terms) }
}
