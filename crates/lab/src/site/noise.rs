//! Noise that does not compress, and the header of a picture made of it.

use std::sync::OnceLock;

use bytes::Bytes;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Period of the noise. It is a prime, so that no block of a round size recurs at the same place.
const PERIOD_BYTES: usize = 1_048_573;

/// Width of every image in pixels. The height follows from the length.
const IMAGE_WIDTH: u32 = 64;
pub(crate) const BMP_HEADER_BYTES: u32 = 54;

/// Noise for `key` from `offset` on, at most `most` bytes. The noise of two keys has nothing in
/// common, so a compressor with a window over many bodies cannot exploit earlier ones.
pub(crate) fn noise(key: u64, offset: u64, most: usize) -> impl Iterator<Item = u8> {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    let noise = NOISE.get_or_init(|| {
        let mut noise = vec![0; PERIOD_BYTES];
        ChaCha8Rng::seed_from_u64(0xbe9).fill_bytes(&mut noise);
        noise
    });
    let start = (key.wrapping_add(offset) % PERIOD_BYTES as u64) as usize;
    let mask = key.rotate_right(8 * (offset % 8) as u32).to_le_bytes();
    let part = &noise[start..PERIOD_BYTES.min(start.saturating_add(most))];
    part.iter().zip(mask.into_iter().cycle()).map(|(noise, mask)| noise ^ mask)
}

/// Header of a bitmap of `bytes`.
pub(crate) fn bitmap_head(bytes: u32) -> Bytes {
    let pixels_bytes = bytes - BMP_HEADER_BYTES;
    let height = pixels_bytes / (4 * IMAGE_WIDTH);
    let mut head = Vec::with_capacity(BMP_HEADER_BYTES as usize);
    head.extend_from_slice(b"BM");
    for field in [bytes, 0, BMP_HEADER_BYTES, 40, IMAGE_WIDTH, height] {
        head.extend_from_slice(&field.to_le_bytes());
    }
    // One plane, 32 bits for each pixel, and no compression, palette or declared resolution.
    head.extend_from_slice(&[1, 0, 32, 0]);
    for field in [0, pixels_bytes, 0, 0, 0, 0] {
        head.extend_from_slice(&field.to_le_bytes());
    }
    head.into()
}
