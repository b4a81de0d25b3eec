//! Equation of the decoder.

use super::malformed::Malformed;
use crate::field::Element;
use crate::kernel::{Kernel, Term};
use crate::symbol::{PREFIX_BYTES, add_sources, unpadded};

/// Equation over missing symbols: Σ `coefficients[i]` · symbol `start + i` = `payload`.
///
/// The first and the last coefficient are not zero. A row without missing symbols has no
/// coefficients.
pub(super) struct Row {
    start: u64,
    coefficients: Vec<u8>,
    payload: Vec<u8>,
}

impl Row {
    pub fn new(start: u64, coefficients: &[u8], payload: Vec<u8>) -> Self {
        let mut row = Self { start, coefficients: coefficients.to_vec(), payload };
        row.trim();
        row
    }

    /// Lowest missing symbol.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Number after the highest missing symbol.
    pub fn end(&self) -> u64 {
        self.start + self.coefficients.len() as u64
    }

    /// Number of symbols from the lowest to the highest missing one.
    pub fn width(&self) -> usize {
        self.coefficients.len()
    }

    /// Memory use.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.coefficients.capacity() + self.payload.capacity()
    }

    /// Returns `true` if no symbol is missing and the payload is not zero.
    pub fn contradicts(&self) -> bool {
        self.coefficients.is_empty() && self.payload.iter().any(|byte| *byte != 0)
    }

    /// Coefficient of symbol `number`.
    pub fn coefficient(&self, number: u64) -> u8 {
        let index = number.checked_sub(self.start).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.coefficients.get(index)).copied().unwrap_or(0)
    }

    /// Substitutes a known symbol.
    pub fn substitute(
        &mut self,
        kernel: Kernel,
        number: u64,
        source: &[u8],
    ) -> Result<(), Malformed> {
        let factor = self.coefficient(number);
        if factor == 0 {
            return Ok(());
        }
        if self.payload.len() < PREFIX_BYTES + source.len() {
            return Err(Malformed::Shorter { number });
        }
        add_sources(kernel, &mut self.payload, &[Term { factor, source }]);
        self.coefficients[(number - self.start) as usize] = 0;
        self.trim();
        Ok(())
    }

    /// Subtracts the multiple of `other` that eliminates symbol `number`. The span of `other` must
    /// lie within this one's, and both must contain `number`.
    pub fn reduce(&mut self, kernel: Kernel, number: u64, other: &Self) {
        let inverse = Element(other.coefficient(number)).inverse().unwrap_or_default();
        let factor = (Element(self.coefficient(number)) * inverse).0;
        let at = (other.start - self.start) as usize;
        let term = Term { factor, source: &other.coefficients };
        kernel.add_multiples(&mut self.coefficients[at..], &[term]);
        let lacking = other.payload.len().saturating_sub(self.payload.len());
        self.payload.reserve_exact(lacking);
        self.payload.resize(self.payload.len() + lacking, 0);
        kernel.add_multiples(&mut self.payload, &[Term { factor, source: &other.payload }]);
        self.trim();
    }

    /// Solves for the only missing symbol.
    pub fn solve(self, kernel: Kernel) -> Result<(u64, Vec<u8>), Malformed> {
        let malformed = Malformed::Symbol { number: self.start };
        let factor = self.coefficients.first().and_then(|factor| Element(*factor).inverse());
        let factor = factor.ok_or(malformed)?.0;
        let mut symbol = vec![0; self.payload.len()];
        kernel.add_multiples(&mut symbol, &[Term { factor, source: &self.payload }]);
        let length = unpadded(&symbol).ok_or(malformed)?.len();
        symbol.drain(..PREFIX_BYTES);
        symbol.truncate(length);
        Ok((self.start, symbol))
    }

    fn trim(&mut self) {
        let end = self.coefficients.iter().rposition(|factor| *factor != 0).map_or(0, |at| at + 1);
        self.coefficients.truncate(end);
        let zeros = self.coefficients.iter().take_while(|factor| **factor == 0).count();
        self.coefficients.drain(..zeros);
        self.start += zeros as u64;
    }
}
