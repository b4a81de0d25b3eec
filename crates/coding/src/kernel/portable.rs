//! Portable kernel without special instructions.
//!
//! A factor is a sum of powers of two, so Σ factor · source = Σ 2^b · (Σ of the sources whose
//! factor has bit b). Sources are only XORed into the sums of their bits, which every compiler
//! vectorises. The eight sums are then doubled and added once for all sources (Horner's rule).

use super::term::Term;
use crate::field::POLYNOMIAL;

/// Bytes of the destination processed at a time. The eight sums take 8 KiB of the L1 cache.
const TILE_BYTES: usize = 1024;

/// Bytes doubled at once.
const WORD_BYTES: usize = 8;

type Tile = [u8; TILE_BYTES];

pub(super) fn add_multiples(destination: &mut [u8], terms: &[Term<'_>]) {
    let mut sums = [[0; TILE_BYTES]; 8];
    for (index, tile) in destination.chunks_mut(TILE_BYTES).enumerate() {
        let start = index * TILE_BYTES;
        for sum in &mut sums {
            sum[..tile.len()].fill(0);
        }
        for term in terms {
            let Some(source) = term.source.get(start..) else { continue };
            let source = &source[..source.len().min(tile.len())];
            for (bit, sum) in sums.iter_mut().enumerate() {
                if term.factor >> bit & 1 != 0 {
                    add(&mut sum[..source.len()], source);
                }
            }
        }
        add(tile, &horner(&sums, tile.len())[..tile.len()]);
    }
}

/// Σ 2^b · `sums[b]` over the first `bytes` bytes.
fn horner(sums: &[Tile; 8], bytes: usize) -> Tile {
    let words = bytes.div_ceil(WORD_BYTES) * WORD_BYTES;
    let mut total = sums[7];
    for sum in sums[..7].iter().rev() {
        double(&mut total[..words]);
        add(&mut total[..words], &sum[..words]);
    }
    total
}

fn add(destination: &mut [u8], source: &[u8]) {
    for (sum, byte) in destination.iter_mut().zip(source) {
        *sum ^= byte;
    }
}

fn double(bytes: &mut [u8]) {
    const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    for word in bytes.as_chunks_mut::<WORD_BYTES>().0 {
        let value = u64::from_ne_bytes(*word);
        let overflow = (value >> 7) & LOWEST;
        let reduction = overflow * u64::from(POLYNOMIAL as u8);
        *word = (((value & LOW_SEVEN) << 1) ^ reduction).to_ne_bytes();
    }
}
