//! Coefficients of the sources in a repair: RFC 8681, section 3.6.

use crate::tinymt::{LANE, Lanes, TinyMt32};

/// Drawn numbers that are looked at together.
const CHUNK: usize = 32;

/// Fills `out` with the coefficients of the repair `key`, in the order of its span.
///
/// This is `generate_coding_coefficients` with m = 8 and the density threshold 15: none is zero.
pub fn coefficients(key: u16, out: &mut [u8]) {
    let mut generator = TinyMt32::new(key.into());
    let mut filled = 0;
    // Below this the lanes would mostly work for nothing.
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
            // Seven in eight chunks have no zero.
            if chunk.iter().fold(true, |all, byte| all & (*byte != 0)) {
                out[filled..filled + chunk.len()].copy_from_slice(chunk);
                filled += chunk.len();
                continue;
            }
            for byte in chunk {
                // A zero is written over by the next.
                out[filled] = *byte;
                filled += usize::from(*byte != 0);
            }
        }
        generator = lanes.last();
        // A shorter span has not used all, and may lack as many as there were zeros.
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

/// The next number of 1 to 255. Of 256 draws one is a zero and drawn again; the generator's period
/// has as many zeros as any other number, so this ends.
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
    fn they_are_the_numbers_of_the_generator_without_its_zeros() {
        for key in [0, 1, 2, 4711, u16::MAX] {
            let mut generator = TinyMt32::new(key.into());
            let drawn = std::iter::repeat_with(|| generator.next_u8());
            let expected: Vec<u8> = drawn.filter(|number| *number != 0).take(MAX_SPAN).collect();
            for count in (0..300).chain([400, 511, 512]) {
                let mut found = [0; MAX_SPAN];
                coefficients(key, &mut found[..count]);
                assert_eq!(found[..count], expected[..count]);
                assert_eq!(found[count..], [0; MAX_SPAN][count..]);
            }
        }
    }

    #[test]
    fn those_of_key_1_start_as_rfc_8681_shows() {
        let mut found = [0; 5];
        coefficients(1, &mut found);
        assert_eq!(found, [37, 225, 177, 176, 21]);
    }
}
