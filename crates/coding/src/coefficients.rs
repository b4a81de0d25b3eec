//! Which multiple of which source makes a repair: RFC 8681, section 3.6.

use crate::tinymt::TinyMt32;

/// Fills `out` with the coefficients of the repair `key`, in the order of its span.
///
/// This is `generate_coding_coefficients` with m = 8 and the density threshold 15: none is zero.
pub fn coefficients(key: u16, out: &mut [u8]) {
    let mut generator = TinyMt32::new(key.into());
    for coefficient in out {
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
            let mut found = [0; MAX_SPAN];
            coefficients(key, &mut found);
            assert_eq!(found[..], expected);
        }
    }

    #[test]
    fn those_of_key_1_start_as_rfc_8681_shows() {
        let mut found = [0; 5];
        coefficients(1, &mut found);
        assert_eq!(found, [37, 225, 177, 176, 21]);
    }
}
