//! The block codes beside ours, at work on one window after another.
//!
//! Each is given what its own interface takes: RaptorQ one buffer for a block, and packets it may keep;
//! Reed-Solomon one slice for each symbol. What is made ready for them is not in the time.

use std::hint::black_box;
use std::time::Duration;

use raptorq::{EncodingPacket, ObjectTransmissionInformation};
use raptorq::{SourceBlockDecoder, SourceBlockEncoder};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::super::cpu;
use super::load::{Direction, Load, SYMBOL_BYTES, SYMBOLS, symbols};
use super::sliding::Taken;

/// Alignment of RaptorQ's symbols, and the block into which the stream is cut for it.
const ALIGNMENT: u8 = 8;
const BLOCK: u8 = 0;

/// One window of the stream, the same for all, and what of it is lost.
pub struct Blocks {
    load: Load,
    sources: Vec<Vec<u8>>,
    lost: Vec<bool>,
}

impl Blocks {
    /// Plans the work.
    pub fn new(load: Load, seed: u64) -> Self {
        let mut lost = load.lost(seed);
        lost.truncate(load.window);
        Self { load, sources: symbols(load.window, seed), lost }
    }

    /// RaptorQ, RFC 6330. `None` if anything was not recovered, or wrongly.
    pub fn raptorq(&self) -> Option<Taken> {
        let block = self.sources.concat();
        let bytes = block.len() as u64;
        let config =
            ObjectTransmissionInformation::new(bytes, SYMBOL_BYTES as u16, 1, 1, ALIGNMENT);
        let repairs = self.load.repairs() as u32;
        let encode = || SourceBlockEncoder::new(BLOCK, &config, &block);
        if self.load.direction == Direction::Encode {
            return self.windows(|| {
                let began = cpu::now();
                black_box(encode().repair_packets(0, repairs));
                Some(cpu::since(began))
            });
        }
        let encoder = encode();
        let came = encoder.source_packets().into_iter().zip(&self.lost);
        let came = came.filter(|(_, lost)| !**lost).map(|(packet, _)| packet);
        let came: Vec<EncodingPacket> = came.chain(encoder.repair_packets(0, repairs)).collect();
        self.windows(|| {
            let packets = came.clone();
            let began = cpu::now();
            let found = SourceBlockDecoder::new(BLOCK, &config, bytes).decode(packets)?;
            let time = cpu::since(began);
            (found == block).then_some(time)
        })
    }

    /// Reed-Solomon by reed-solomon-simd. `None` if anything was not recovered, or wrongly.
    pub fn reed_solomon(&self) -> Option<Taken> {
        let (window, repairs) = (self.load.window, self.load.repairs());
        let mut encoder = ReedSolomonEncoder::new(window, repairs, SYMBOL_BYTES).ok()?;
        let mut encode = || {
            for source in &self.sources {
                encoder.add_original_shard(source).ok()?;
            }
            let made = encoder.encode().ok()?;
            Some(made.recovery_iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        if self.load.direction == Direction::Encode {
            return self.windows(|| {
                let began = cpu::now();
                black_box(encode()?);
                Some(cpu::since(began))
            });
        }
        let made = encode()?;
        let mut decoder = ReedSolomonDecoder::new(window, repairs, SYMBOL_BYTES).ok()?;
        self.windows(|| {
            let began = cpu::now();
            for (index, source) in self.sources.iter().enumerate().filter(|(i, _)| !self.lost[*i]) {
                decoder.add_original_shard(index, source).ok()?;
            }
            for (index, repair) in made.iter().enumerate() {
                decoder.add_recovery_shard(index, repair).ok()?;
            }
            let found = decoder.decode().ok()?;
            let restored = found.restored_original_iter();
            let right = restored.filter(|(index, source)| **source == self.sources[*index]).count();
            (right == self.load.losses()).then(|| cpu::since(began))
        })
    }

    /// One window after another, until as much went by as the stream has.
    fn windows(&self, mut once: impl FnMut() -> Option<Duration>) -> Option<Taken> {
        let count = SYMBOLS / self.load.window;
        let time = (0..count).map(|_| once()).sum::<Option<Duration>>()?;
        Some(Taken { time, symbols: count * self.load.window, multiples: 0 })
    }
}
