//! Main loop of all vector kernels.

use super::term::Term;

/// Sums held in registers at once. Together with the factor and temporaries they fit into 16
/// registers.
const TILE: usize = 8;

/// Size of the widest register in bytes.
const MAX_REGISTER_BYTES: usize = 64;

/// Vector register.
///
/// # Safety
///
/// Call all methods only on a processor with the instructions of the kernel, and with pointers to
/// [`BYTES`](Self::BYTES) bytes that may be read or written. Inline them into a function that
/// enables these instructions.
#[expect(unsafe_code, reason = "registers are loaded and stored through pointers")]
pub(super) trait Register: Copy {
    /// Number of bytes in a register.
    const BYTES: usize;

    /// Factor in the form that the multiplication needs.
    type Factor: Copy;

    unsafe fn zero() -> Self;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    unsafe fn factor(factor: u8) -> Self::Factor;
    /// Returns `self + factor · source`.
    unsafe fn multiply_add(self, factor: Self::Factor, source: Self) -> Self;
}

/// Adds every term to `destination`.
///
/// # Safety
///
/// The processor must have the instructions of `R`.
#[inline(always)]
#[expect(unsafe_code, reason = "the methods of a register are unsafe")]
pub(super) unsafe fn add_multiples<R: Register>(destination: &mut [u8], terms: &[Term<'_>]) {
    if destination.len() < R::BYTES {
        // Use one padded register and discard the bytes past the destination.
        let mut register = [0; MAX_REGISTER_BYTES];
        register[..destination.len()].copy_from_slice(destination);
        // SAFETY: guaranteed by the caller.
        unsafe { tile::<R, 1>(&mut register[..R::BYTES], 0, terms) };
        return destination.copy_from_slice(&register[..destination.len()]);
    }
    let full = destination.len() / (TILE * R::BYTES);
    // SAFETY: guaranteed by the caller.
    unsafe {
        for index in 0..full {
            tile::<R, TILE>(destination, index * TILE * R::BYTES, terms);
        }
        let start = full * TILE * R::BYTES;
        match (destination.len() - start).div_ceil(R::BYTES) {
            0 => {}
            1 => tile::<R, 1>(destination, start, terms),
            2 => tile::<R, 2>(destination, start, terms),
            3 => tile::<R, 3>(destination, start, terms),
            4 => tile::<R, 4>(destination, start, terms),
            5 => tile::<R, 5>(destination, start, terms),
            6 => tile::<R, 6>(destination, start, terms),
            7 => tile::<R, 7>(destination, start, terms),
            _ => tile::<R, TILE>(destination, start, terms),
        }
    }
}

/// Adds to the `N` registers of `destination` from `start` on. If its end is not a multiple of a
/// register, the last register overlaps the one before, and only the bytes beyond the overlap are
/// added.
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
    let end = (start + N * R::BYTES).min(destination.len());
    // Starts of the last register and of the first one loaded.
    let last = end - R::BYTES;
    let base = start.min(last);
    let needed = last + R::BYTES - base;
    let offset = |index: usize| {
        if index + 1 < N { start - base + index * R::BYTES } else { last - base }
    };
    // Sources that end too early are copied here and padded with zeros.
    let mut padded = [0; (TILE + 1) * MAX_REGISTER_BYTES];
    let mut bytes = [0; TILE * MAX_REGISTER_BYTES];
    // SAFETY: the caller guarantees the instructions. All loads read the first `needed` bytes of a
    // slice that is at least that long. For `source` this was compared. `padded` is long enough by
    // its type, because N is at most TILE, BYTES at most MAX_REGISTER_BYTES, and `last` at most one register
    // before `start`. All stores write the first N registers of `bytes`.
    unsafe {
        let mut sums = [R::zero(); N];
        for term in terms {
            let Some(mut source) = term.source.get(base..) else { continue };
            if source.len() < needed {
                let (copy, zeros) = padded[..needed].split_at_mut(source.len());
                copy.copy_from_slice(source);
                zeros.fill(0);
                source = &padded[..needed];
            }
            let factor = R::factor(term.factor);
            for (index, sum) in sums.iter_mut().enumerate() {
                *sum = sum.multiply_add(factor, R::load(source.as_ptr().add(offset(index))));
            }
        }
        for (index, sum) in sums.into_iter().enumerate() {
            sum.store(bytes.as_mut_ptr().add(index * R::BYTES));
        }
    }
    let (before_last, own) = destination[start..end].split_at_mut((N - 1) * R::BYTES);
    add(before_last, &bytes);
    add(own, &bytes[N * R::BYTES - own.len()..]);
}

#[inline(always)]
fn add(destination: &mut [u8], source: &[u8]) {
    for (sum, byte) in destination.iter_mut().zip(source) {
        *sum ^= byte;
    }
}
