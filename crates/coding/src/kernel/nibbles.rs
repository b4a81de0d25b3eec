//! Products of each factor with both halves of a byte, for kernels that look up 16 or 32 at a time
//! (Plank, Greenan and Miller 2013, "Screaming fast Galois field arithmetic using Intel SIMD
//! instructions").

use crate::field::multiply;

/// Products of one factor.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Products {
    /// Products with 0 to 15.
    pub low: [u8; 16],
    /// Products with 0x00, 0x10, … 0xf0.
    pub high: [u8; 16],
}

/// Products of every factor: 8 KiB.
pub(super) static PRODUCTS: [Products; 256] = products();

const fn products() -> [Products; 256] {
    let mut products = [Products { low: [0; 16], high: [0; 16] }; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut half = 0;
        while half < 16 {
            products[factor].low[half] = multiply(factor as u8, half as u8);
            products[factor].high[half] = multiply(factor as u8, (half as u8) << 4);
            half += 1;
        }
        factor += 1;
    }
    products
}
