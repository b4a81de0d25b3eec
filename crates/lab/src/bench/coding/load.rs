//! Load of the code: a stream of symbols, the repairs for it, and its losses.

use std::fmt;

use bentpipe_coding::{MAX_SPAN, Span};
use rand::rngs::StdRng;
use rand::seq::index;
use rand::{RngCore, SeedableRng};

/// One symbol.
pub const SYMBOL_BYTES: usize = 1400;

/// The stream's symbols: 11.5 MB.
pub const SYMBOLS: usize = 8192;

/// Symbols that a sender retains and a decoder keeps: 2.9 MB. The stream goes round in them.
pub const KEPT: usize = 2048;

/// Buffers that packets come in, one after another: 90 KB. Who receives a packet has just decrypted
/// it, so it is in the nearest caches, unlike what is kept.
pub const BUFFERS: usize = 64;

/// Symbols of the stream that a decoder has before the time is taken.
pub const WARM_UP: usize = 2048;

/// Share of spare repairs: one in five, so four symbols are lost for five repairs.
const SPARE: usize = 5;

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Making repairs.
    Encode,
    /// Recovering what was lost.
    Decode,
}

/// Load of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Direction.
    pub direction: Direction,
    /// Number of symbols that are protected together.
    pub window: usize,
    /// Repairs for 100 symbols.
    pub percent: usize,
}

impl Load {
    /// Those that are measured.
    pub fn all() -> impl Iterator<Item = Self> {
        let directions = [Direction::Encode, Direction::Decode].into_iter();
        directions.flat_map(|direction| {
            [64, 512, 2048].into_iter().flat_map(move |window| {
                [5, 20].into_iter().map(move |percent| Self { direction, window, percent })
            })
        })
    }

    /// Repairs in a window.
    pub fn repairs(self) -> usize {
        (self.window * self.percent).div_ceil(100)
    }

    /// Symbols lost in a window.
    pub fn losses(self) -> usize {
        self.window * self.percent * (SPARE - 1) / (100 * SPARE)
    }

    /// Lost symbols of the stream: in each window as many as in any other.
    pub fn lost(self, seed: u64) -> Vec<bool> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut lost = vec![false; SYMBOLS];
        for window in lost.chunks_mut(self.window) {
            for at in index::sample(&mut random, window.len(), self.losses()) {
                window[at] = true;
            }
        }
        lost
    }

    /// The repairs of the sliding-window code: evenly over the stream, each over the window before
    /// it, or, in turns, over one part of a window wider than a repair can span.
    pub fn schedule(self) -> Vec<Planned> {
        let count = SYMBOLS * self.percent / 100;
        let parts = self.window.div_ceil(MAX_SPAN);
        let planned = |index: usize| {
            let after = (index + 1) * SYMBOLS / count;
            let start = after.saturating_sub(self.window);
            let part = index % (after - start).div_ceil(MAX_SPAN).min(parts);
            let first = start + part * MAX_SPAN;
            let span = Span::new(first as u64, (after - first).min(MAX_SPAN) as u16)?;
            Some(Planned { after, span, key: index as u16 })
        };
        (0..count).filter_map(planned).collect()
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Encode => "encode",
            Direction::Decode => "decode",
        };
        write!(f, "{direction}-{}-{}%", self.window, self.percent)
    }
}

/// A repair that is to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// After so many symbols of the stream.
    pub after: usize,
    /// Span that it combines.
    pub span: Span,
    /// Its key.
    pub key: u16,
}

impl Planned {
    /// The span, as indices of the stream.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.span.first as usize..self.span.end() as usize
    }
}

/// Symbols of random bytes.
pub fn symbols(count: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = StdRng::seed_from_u64(seed);
    let symbol = || {
        let mut symbol = vec![0; SYMBOL_BYTES];
        random.fill_bytes(&mut symbol);
        symbol
    };
    std::iter::repeat_with(symbol).take(count).collect()
}

/// A stream that goes round in `symbols`.
pub fn stream(symbols: &[Vec<u8>]) -> Vec<&[u8]> {
    symbols.iter().map(Vec::as_slice).cycle().take(SYMBOLS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_symbol_is_covered_as_often_as_any_other() {
        for load in Load::all() {
            let mut covered = vec![0usize; SYMBOLS];
            let schedule = load.schedule();
            assert_eq!(schedule.len(), SYMBOLS * load.percent / 100);
            for planned in &schedule {
                assert!(planned.range().end <= planned.after);
                planned.range().for_each(|number| covered[number] += 1);
            }
            // Away from both ends of the stream, and up to a repair more or less in each part.
            let expected = load.window.min(MAX_SPAN) * load.percent / 100;
            for times in &covered[2048..SYMBOLS - 2048] {
                assert!(times.abs_diff(expected) <= 4, "{load}: {times}, not {expected}");
            }
        }
    }

    #[test]
    fn as_much_is_lost_as_the_repairs_can_mend() {
        let load = Load { direction: Direction::Decode, window: 512, percent: 5 };
        assert_eq!((load.repairs(), load.losses()), (26, 20));
        let lost = load.lost(1);
        for window in lost.chunks(512) {
            assert_eq!(window.iter().filter(|lost| **lost).count(), 20);
        }
    }
}
