//! A decoder under the orders of whoever writes the bytes: what the fuzz target and a property test
//! run.

use crate::{Decoder, Limits, Span, encode};

/// Small, so that every bound is met soon.
const LIMITS: Limits = Limits { kept_symbols: 24, rows: 6, max_symbol_bytes: 20 };

/// The numbers are in a few places, the highest that there are among them.
const PLACES: [u64; 4] = [0, 1000, u64::MAX / 2, u64::MAX - 40];

/// Lets `script` give sources, true and false repairs, and bases to a decoder, in any order, and
/// panics if the decoder breaks one of its promises. Gives how many symbols were recovered.
pub fn decoder(script: &[u8]) -> usize {
    let mut decoder = Decoder::new(LIMITS);
    let mut script = script.iter().copied();
    let mut honest = true;
    let mut recovered = 0;
    while let Some(order) = step(&mut decoder, &mut script, &mut honest) {
        assert!(decoder.held_bytes() <= LIMITS.max_bytes(), "{} bytes", decoder.held_bytes());
        let equations: u32 = decoder.held().map(|(_, equations)| equations).sum();
        assert!(equations as usize <= LIMITS.rows, "{equations} equations");
        assert!(decoder.held().is_sorted_by(|(a, _), (b, _)| a < b), "groups out of order");
        // Sometimes nobody asks for what was recovered.
        while let Some((number, content)) =
            (order & 0x80 == 0).then(|| decoder.next_recovered()).flatten()
        {
            assert!(!honest || content == source(number), "symbol {number} is wrong");
            recovered += 1;
        }
    }
    recovered
}

/// The content of symbol `number`, where nobody lies.
fn source(number: u64) -> Vec<u8> {
    vec![number as u8 ^ 0x5a; (number % 21) as usize]
}

/// Follows one order; `None` where the script ends.
fn step(
    decoder: &mut Decoder,
    script: &mut impl Iterator<Item = u8>,
    honest: &mut bool,
) -> Option<u8> {
    let (order, place, argument) = (script.next()?, script.next()?, script.next()?);
    let number = PLACES[usize::from(place % 4)].saturating_add(u64::from(place / 4));
    let count = u16::from(argument % 24);
    match order & 0x07 {
        0 | 1 => decoder.source(number, &source(number)),
        2..=4 => {
            let Some(span) = Span::new(number, count) else { return Some(order) };
            let sources: Vec<_> = (span.first..span.end()).map(source).collect();
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let mut repair = Vec::new();
            encode(order.into(), &sources, &mut repair);
            let said = decoder.repair(span, order.into(), &repair, |_| false);
            assert!(!*honest || said.is_ok(), "a true repair was refused: {said:?}");
        }
        5 => {
            // Whatever may come of it.
            *honest = false;
            let payload: Vec<u8> = script.take(usize::from(argument)).collect();
            let span = Span { first: number, count: count << (order >> 5) };
            let _ = decoder.repair(span, order.into(), &payload, |n| n % 3 == 0);
        }
        6 => {
            *honest = false;
            decoder.source(number, &vec![argument; argument.into()]);
        }
        _ => decoder.forget_below(number),
    }
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn the_decoder_keeps_its_promises(script in prop::collection::vec(any::<u8>(), 0..600)) {
            decoder(&script);
        }

        /// Without lies and bases, and among few numbers, so that much is recovered.
        #[test]
        fn honest_repairs_are_never_refused(
            orders in prop::collection::vec((0u8..5, 0u8..40, 1u8..24), 0..120),
        ) {
            let script: Vec<u8> = orders.iter().flat_map(|(a, b, c)| [*a, *b & !3, *c]).collect();
            decoder(&script);
        }
    }

    #[test]
    fn something_is_recovered() {
        // A source, and a repair over it and the next.
        assert_eq!(decoder(&[0, 0, 0, 2, 0, 2]), 1);
    }
}
