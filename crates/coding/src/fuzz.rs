//! Decoder driven by arbitrary bytes: the body of the fuzz target and of a property test.

use crate::{Decoder, Limits, Span, encode};

/// Small limits, so that a script reaches every bound soon.
const LIMITS: Limits = Limits { cached_symbols: 24, rows: 6, max_symbol_bytes: 20 };

/// Bases of the symbol numbers, close to the largest among them.
const BASES: [u64; 4] = [0, 1000, u64::MAX / 2, u64::MAX - 40];

/// Runs `script` against a decoder: sources, valid and invalid repair symbols, and bases, in any
/// order. Returns the number of recovered symbols.
///
/// # Panics
///
/// If the decoder breaks an invariant.
pub fn decoder(script: &[u8]) -> usize {
    let mut decoder = Decoder::new(LIMITS);
    let mut script = script.iter().copied();
    let mut honest = true;
    let mut recovered = 0;
    while let Some(operation) = step(&mut decoder, &mut script, &mut honest) {
        assert!(decoder.memory_bytes() <= LIMITS.max_bytes(), "{} bytes", decoder.memory_bytes());
        let equations: u32 = decoder.equations().map(|(_, equations)| equations).sum();
        assert!(equations as usize <= LIMITS.rows, "{equations} equations");
        assert!(decoder.equations().is_sorted_by(|(a, _), (b, _)| a < b), "groups out of order");
        // Some steps leave the recovered symbols in the decoder.
        while let Some((number, content)) =
            (operation & 0x80 == 0).then(|| decoder.next_recovered()).flatten()
        {
            assert!(!honest || content == source(number), "symbol {number} is wrong");
            recovered += 1;
        }
    }
    recovered
}

/// Content of symbol `number` in an honest script.
fn source(number: u64) -> Vec<u8> {
    vec![number as u8 ^ 0x5a; (number % 21) as usize]
}

/// Executes one step; `None` at the end of the script.
fn step(
    decoder: &mut Decoder,
    script: &mut impl Iterator<Item = u8>,
    honest: &mut bool,
) -> Option<u8> {
    let (operation, position, argument) = (script.next()?, script.next()?, script.next()?);
    let number = BASES[usize::from(position % 4)].saturating_add(u64::from(position / 4));
    let count = u16::from(argument % 24);
    match operation & 0x07 {
        0 | 1 => decoder.source(number, &source(number)),
        2..=4 => {
            let Some(span) = Span::new(number, count) else { return Some(operation) };
            let sources: Vec<_> = (span.first..span.end()).map(source).collect();
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let mut repair = Vec::new();
            encode(operation.into(), &sources, &mut repair);
            let result = decoder.repair(span, operation.into(), &repair, |_| false);
            assert!(!*honest || result.is_ok(), "a valid repair was refused: {result:?}");
        }
        5 => {
            // An arbitrary repair symbol; any result is allowed.
            *honest = false;
            let payload: Vec<u8> = script.take(usize::from(argument)).collect();
            let span = Span { first: number, count: count << (operation >> 5) };
            let _ = decoder.repair(span, operation.into(), &payload, |n| n % 3 == 0);
        }
        6 => {
            *honest = false;
            decoder.source(number, &vec![argument; argument.into()]);
        }
        _ => decoder.forget_below(number),
    }
    Some(operation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn the_decoder_keeps_its_invariants(script in prop::collection::vec(any::<u8>(), 0..600)) {
            decoder(&script);
        }

        /// Honest scripts without bases, and with few symbol numbers, so that many are recovered.
        #[test]
        fn honest_repairs_are_never_refused(
            operations in prop::collection::vec((0u8..5, 0u8..40, 1u8..24), 0..120),
        ) {
            let script: Vec<u8> = operations.iter().flat_map(|(a, b, c)| [*a, *b & !3, *c]).collect();
            decoder(&script);
        }
    }

    #[test]
    fn a_short_script_recovers_a_symbol() {
        // A source, then a repair symbol over it and the next source.
        assert_eq!(decoder(&[0, 0, 0, 2, 0, 2]), 1);
    }
}
