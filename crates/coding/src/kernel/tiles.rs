//! The loop that all vector kernels share.

use super::Term;

/// Registers of sums that are held at once: with them, the factor and what is in the works, 16
/// registers suffice.
const TILE: usize = 8;

/// The widest register, in bytes.
const WIDEST: usize = 64;

/// One vector register.
///
/// # Safety
///
/// All methods may only be called where the processor has the instructions of the kernel, and with
/// pointers to [`BYTES`](Self::BYTES) bytes that may be read or written. They must be inlined into a
/// function that has these instructions enabled.
#[expect(unsafe_code, reason = "registers are loaded and stored through pointers")]
pub(super) trait Register: Copy {
    /// How many bytes it has.
    const BYTES: usize;

    /// A factor, as the multiplication needs it.
    type Factor: Copy;

    unsafe fn zero() -> Self;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    unsafe fn factor(factor: u8) -> Self::Factor;
    /// `self + factor · source`
    unsafe fn plus(self, factor: Self::Factor, source: Self) -> Self;
}

/// Adds every term to `destination`. No source may be longer.
///
/// # Safety
///
/// The processor must have the instructions of `R`.
#[inline(always)]
#[expect(unsafe_code, reason = "the methods of a register are unsafe")]
pub(super) unsafe fn add_multiples<R: Register>(destination: &mut [u8], terms: &[Term<'_>]) {
    let whole = destination.len() / R::BYTES;
    let mut start = 0;
    // SAFETY: what the caller promised.
    unsafe {
        for _ in 0..whole / TILE {
            tile::<R, TILE>(&mut destination[start..], start, terms);
            start += TILE * R::BYTES;
        }
        let rest = &mut destination[start..];
        // The last register is filled up with zeros.
        match rest.len().div_ceil(R::BYTES) {
            0 => {}
            1 => tile::<R, 1>(rest, start, terms),
            2 => tile::<R, 2>(rest, start, terms),
            3 => tile::<R, 3>(rest, start, terms),
            4 => tile::<R, 4>(rest, start, terms),
            5 => tile::<R, 5>(rest, start, terms),
            6 => tile::<R, 6>(rest, start, terms),
            7 => tile::<R, 7>(rest, start, terms),
            _ => tile::<R, TILE>(rest, start, terms),
        }
    }
}

/// Adds to the first `N` registers of `destination`, which begins at `start` of the whole. It may be
/// shorter than they are.
///
/// # Safety
///
/// The processor must have the instructions of `R`.
#[inline(always)]
#[expect(unsafe_code, reason = "the methods of a register are unsafe")]
unsafe fn tile<R: Register, const N: usize>(
    destination: &mut [u8],
    start: usize,
    terms: &[Term<'_>],
) {
    let bytes = (N * R::BYTES).min(destination.len());
    // A source with fewer bytes than the registers, and the sums' way back, go through this.
    let mut padded = [0; TILE * WIDEST];
    // SAFETY: the instructions are there, as the caller promised. All pointers are to the first
    // `N * R::BYTES` bytes of slices that are at least that long: `padded` is by its type, as N is at
    // most TILE and BYTES at most WIDEST, and `source` was compared.
    unsafe {
        let mut sums = [R::zero(); N];
        for term in terms {
            let Some(mut source) = term.source.get(start..) else { continue };
            if source.len() < N * R::BYTES {
                let (copy, zeros) = padded[..N * R::BYTES].split_at_mut(source.len());
                copy.copy_from_slice(source);
                zeros.fill(0);
                source = &padded[..N * R::BYTES];
            }
            let factor = R::factor(term.factor);
            for (index, sum) in sums.iter_mut().enumerate() {
                *sum = sum.plus(factor, R::load(source.as_ptr().add(index * R::BYTES)));
            }
        }
        for (index, sum) in sums.into_iter().enumerate() {
            sum.store(padded.as_mut_ptr().add(index * R::BYTES));
        }
    }
    for (sum, byte) in destination[..bytes].iter_mut().zip(&padded) {
        *sum ^= byte;
    }
}
