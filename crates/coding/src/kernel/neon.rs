//! NEON: the product of a byte is the sum of the products of its halves. TBL looks up 16 at a time.

use std::arch::aarch64::*;

use super::nibbles::PRODUCTS;
use super::term::Term;
use super::tiles::{self, Register};

#[derive(Clone, Copy)]
struct Quad(uint8x16_t);

#[expect(unsafe_code, reason = "vector instructions; see the trait")]
impl Register for Quad {
    const BYTES: usize = 16;
    /// Products of the low and of the high half.
    type Factor = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller guarantees NEON.
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller guarantees NEON and 16 bytes to read; they need not be aligned.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller guarantees NEON and 16 bytes to write; they need not be aligned.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let products = &PRODUCTS[usize::from(factor)];
        // SAFETY: the caller guarantees NEON, and both tables have 16 bytes.
        unsafe { (vld1q_u8(products.low.as_ptr()), vld1q_u8(products.high.as_ptr())) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, (low, high): Self::Factor, source: Self) -> Self {
        // SAFETY: the caller guarantees NEON.
        Self(unsafe {
            let low_half = vandq_u8(source.0, vdupq_n_u8(0x0f));
            let high_half = vshrq_n_u8::<4>(source.0);
            let product = veorq_u8(vqtbl1q_u8(low, low_half), vqtbl1q_u8(high, high_half));
            veorq_u8(self.0, product)
        })
    }
}

#[target_feature(enable = "neon")]
#[expect(unsafe_code, reason = "the loop is generic over registers")]
pub(super) fn add_multiples(destination: &mut [u8], terms: &[Term<'_>]) {
    // SAFETY: this function enables the instructions of `Quad`.
    unsafe { tiles::add_multiples::<Quad>(destination, terms) }
}
