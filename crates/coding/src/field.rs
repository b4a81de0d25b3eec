//! GF(2^8) with x^8 + x^4 + x^3 + x^2 + 1 (RFC 8681 section 3.7).

use std::ops::{Add, Mul};

/// Reduction polynomial.
pub(crate) const POLYNOMIAL: u16 = 0x11d;

/// Order of the multiplicative group, which 2 generates.
const ORDER: usize = 255;

/// Powers of 2, twice over, so that a sum of two logarithms needs no reduction.
const POWERS: [u8; 2 * ORDER] = powers();
const LOGARITHMS: [u8; 256] = logarithms();

/// Element of the field. Addition and subtraction are the same operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Element(pub u8);

impl Element {
    /// Multiplicative inverse; `None` for zero.
    pub fn inverse(self) -> Option<Self> {
        let logarithm = usize::from(LOGARITHMS[usize::from(self.0)]);
        (self.0 != 0).then(|| Self(POWERS[ORDER - logarithm]))
    }
}

impl Add for Element {
    type Output = Self;

    #[expect(clippy::suspicious_arithmetic_impl, reason = "the field has characteristic 2")]
    fn add(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl Mul for Element {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self(multiply(self.0, other.0))
    }
}

/// Product of two elements.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

const fn powers() -> [u8; 2 * ORDER] {
    let mut powers = [0; 2 * ORDER];
    let mut power = 1u16;
    let mut exponent = 0;
    while exponent < 2 * ORDER {
        powers[exponent] = power as u8;
        power <<= 1;
        if power & 0x100 != 0 {
            power ^= POLYNOMIAL;
        }
        exponent += 1;
    }
    powers
}

const fn logarithms() -> [u8; 256] {
    let mut logarithms = [0; 256];
    let mut exponent = 0;
    while exponent < ORDER {
        logarithms[POWERS[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    logarithms
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> impl Iterator<Item = Element> {
        (0..=255).map(Element)
    }

    /// Schoolbook multiplication: shift, add, reduce.
    fn by_hand(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b >> bit & 1 != 0 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..15).rev() {
            if product >> bit & 1 != 0 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn products_match_polynomial_multiplication() {
        for a in all() {
            for b in all() {
                assert_eq!((a * b).0, by_hand(a.0, b.0));
            }
        }
    }

    #[test]
    fn every_nonzero_element_has_an_inverse() {
        assert_eq!(Element(0).inverse(), None);
        for a in all().skip(1) {
            assert_eq!(a * a.inverse().unwrap(), Element(1));
        }
    }

    proptest! {
        #[test]
        fn the_field_axioms_hold(a: u8, b: u8, c: u8) {
            let [a, b, c] = [a, b, c].map(Element);
            prop_assert_eq!(a + b, b + a);
            prop_assert_eq!(a * b, b * a);
            prop_assert_eq!((a + b) + c, a + (b + c));
            prop_assert_eq!((a * b) * c, a * (b * c));
            prop_assert_eq!(a * (b + c), a * b + a * c);
            prop_assert_eq!(a + Element(0), a);
            prop_assert_eq!(a * Element(1), a);
            prop_assert_eq!(a + a, Element(0));
        }
    }
}
