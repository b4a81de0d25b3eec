//! Coefficients of the sources in a repair symbol (RFC 8681 section 3.6).

use crate::tinymt::{LANE, Lanes, TinyMt32};

/// Drawn numbers that are checked for zeros together.
const CHUNK: usize = 32;

/// Fills `out` with the coefficients of the repair symbol with this key, in the order of its span.
///
/// This is `generate_coding_coefficients` with m = 8 and density threshold 15: no coefficient is
/// zero.
pub fn coefficients(key: u16, out: &mut [u8]) {
    let mut generator = TinyMt32::new(key.into());
    let mut filled = 0;
    // Below this length the lanes would mostly draw numbers that are not used.
    if out.len() > 2 * LANE {
        let mut drawn = [[0; LANE]; 4];
        let mut lanes = Lanes::new(&generator);
        for at in 0..LANE {
            for (lane, byte) in drawn.iter_mut().zip(lanes.next_u8s()) {
                lane[at] = byte;
            }
        }
        let drawn = drawn.as_flattened();
        let count = out.len().min(drawn.len());
        let (drawn, spare) = drawn.split_at(count);
        for chunk in drawn.chunks(CHUNK) {
            // Seven of eight chunks have no zero.
            if chunk.iter().fold(true, |all, byte| all & (*byte != 0)) {
                out[filled..filled + chunk.len()].copy_from_slice(chunk);
                filled += chunk.len();
                continue;
            }
            for byte in chunk {
                // The next number overwrites a zero.
                out[filled] = *byte;
                filled += usize::from(*byte != 0);
            }
        }
        generator = lanes.last();
        // A shorter span has numbers left, which replace the zeros.
        let mut spare = spare.iter().filter(|byte| **byte != 0);
        while filled < out.len()
            && let Some(byte) = spare.next()
        {
            out[filled] = *byte;
            filled += 1;
        }
    }
    for coefficient in &mut out[filled..] {
        *coefficient = nonzero(&mut generator);
    }
}

/// Draws the next number from 1 to 255. One draw in 256 is a zero and is repeated. The generator's
/// period has as many zeros as any other number, so the loop ends.
#[inline]
fn nonzero(generator: &mut TinyMt32) -> u8 {
    loop {
        match generator.next_u8() {
            0 => {}
            number => return number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_SPAN;

    #[test]
    fn coefficients_are_the_nonzero_numbers_of_the_generator() {
        for key in [0, 1, 2, 4711, u16::MAX] {
            let mut generator = TinyMt32::new(key.into());
            let drawn = std::iter::repeat_with(|| generator.next_u8());
            let expected: Vec<u8> = drawn.filter(|number| *number != 0).take(MAX_SPAN).collect();
            for count in (0..300).chain([400, 511, 512]) {
                let mut actual = [0; MAX_SPAN];
                coefficients(key, &mut actual[..count]);
                assert_eq!(actual[..count], expected[..count]);
                assert_eq!(actual[count..], [0; MAX_SPAN][count..]);
            }
        }
    }

    #[test]
    fn coefficients_of_key_1_match_rfc_8681() {
        let mut actual = [0; 5];
        coefficients(1, &mut actual);
        assert_eq!(actual, [37, 225, 177, 176, 21]);
    }
}
