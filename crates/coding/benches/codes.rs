//! Source bytes a second of the sliding-window code, of RaptorQ (RFC 6330) and of Reed-Solomon, on one core.
//!
//! All protect the same symbols with as many repairs. A decoder needs four in five of its repairs: of
//! 5 % repairs 4 % of the symbols are lost, of 20 % 16 %. `cargo bench -p bentpipe-coding`

use std::fmt;
use std::hint::black_box;
use std::ops::Range;

use bentpipe_coding::kernel::{Kernel, Term};
use bentpipe_coding::{Decoder, Limits, MAX_SPAN, Span, encode_with};
use divan::Bencher;
use divan::counter::BytesCount;
use rand::rngs::StdRng;
use rand::seq::index;
use rand::{RngCore, SeedableRng};
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, SourceBlockDecoder, SourceBlockEncoder,
};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

const SYMBOL_BYTES: usize = 1400;
/// Symbols of the stream: 11.5 MB.
const SYMBOLS: usize = 8192;
/// Symbols that a sender retains and a decoder keeps: 2.9 MB. The stream goes round in them.
const KEPT: usize = 2048;
/// Buffers in which packets arrive: 90 KB. A receiver has just decrypted the packet, so it is in the
/// nearest caches.
const BUFFERS: usize = 64;
/// Symbols of the stream that a decoder has before the time is taken.
const WARM_UP: usize = 2048;
/// Share of spare repairs: one in five.
const SPARE: usize = 5;
const SEED: u64 = 1;

/// RaptorQ's alignment of symbols, and the number of its block.
const ALIGNMENT: u8 = 8;
const BLOCK: u8 = 0;

fn main() {
    divan::main();
}

/// Symbols protected together, and repairs for 100 of them.
#[derive(Debug, Clone, Copy)]
struct Load {
    window: usize,
    percent: usize,
}

/// A repair that is sent after so many symbols of the stream.
#[derive(Debug, Clone, Copy)]
struct Planned {
    after: usize,
    span: Span,
    key: u16,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} symbols, {} %", self.window, self.percent)
    }
}

impl Planned {
    fn range(&self) -> Range<usize> {
        self.span.first as usize..self.span.end() as usize
    }
}

impl Load {
    fn all() -> impl Iterator<Item = Self> {
        [64, 512, 2048]
            .into_iter()
            .flat_map(|window| [5, 20].map(|percent| Self { window, percent }))
    }

    fn repairs(self) -> usize {
        (self.window * self.percent).div_ceil(100)
    }

    /// Lost symbols of the stream: in each window as many as in any other.
    fn lost(self) -> Vec<bool> {
        let losses = self.window * self.percent * (SPARE - 1) / (100 * SPARE);
        let mut random = StdRng::seed_from_u64(SEED);
        let mut lost = vec![false; SYMBOLS];
        for window in lost.chunks_mut(self.window) {
            for at in index::sample(&mut random, window.len(), losses) {
                window[at] = true;
            }
        }
        lost
    }

    /// Repairs of the sliding-window code: evenly over the stream, each over the window before it, or,
    /// in turns, over one part of a window wider than a repair can span.
    fn schedule(self) -> Vec<Planned> {
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

/// A load with a kernel of this machine.
#[derive(Debug, Clone, Copy)]
struct With(Kernel, Load);

impl With {
    fn all() -> impl Iterator<Item = Self> {
        Kernel::available().flat_map(|kernel| Load::all().map(move |load| Self(kernel, load)))
    }
}

impl fmt::Display for With {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.0.name(), self.1)
    }
}

fn symbols(count: usize) -> Vec<Vec<u8>> {
    let mut random = StdRng::seed_from_u64(SEED);
    let symbol = || {
        let mut symbol = vec![0; SYMBOL_BYTES];
        random.fill_bytes(&mut symbol);
        symbol
    };
    std::iter::repeat_with(symbol).take(count).collect()
}

/// A stream that goes round in `symbols`.
fn stream(symbols: &[Vec<u8>]) -> Vec<&[u8]> {
    symbols.iter().map(Vec::as_slice).cycle().take(SYMBOLS).collect()
}

fn bytes(symbols: usize) -> BytesCount {
    BytesCount::new(symbols * SYMBOL_BYTES)
}

#[divan::bench(args = With::all(), sample_count = 7, sample_size = 1)]
fn encode_sliding(bencher: Bencher, With(kernel, load): &With) {
    let (schedule, retained) = (load.schedule(), symbols(KEPT));
    let stream = stream(&retained);
    let mut repair = Vec::new();
    bencher.counter(bytes(SYMBOLS)).bench_local(|| {
        for planned in &schedule {
            repair.clear();
            encode_with(*kernel, planned.key, &stream[planned.range()], &mut repair);
            black_box(&repair);
        }
    });
}

/// The bound of the above: its multiply-adds alone, over the same memory.
#[divan::bench(args = With::all(), sample_count = 7, sample_size = 1)]
fn multiply_add(bencher: Bencher, With(kernel, load): &With) {
    let (schedule, retained) = (load.schedule(), symbols(KEPT));
    let term = |(index, source)| Term { factor: index as u8 | 1, source };
    let terms: Vec<Term<'_>> = stream(&retained).into_iter().enumerate().map(term).collect();
    let mut sum = vec![0; SYMBOL_BYTES];
    bencher.counter(bytes(SYMBOLS)).bench_local(|| {
        for planned in &schedule {
            kernel.add_multiples(&mut sum, &terms[planned.range()]);
            black_box(&sum);
        }
    });
}

/// Recovery of lost symbols in the order of sending. A symbol that leaves the window unrecovered comes
/// as a retransmission.
struct Receiver<'a> {
    load: Load,
    stream: Vec<&'a [u8]>,
    repairs: Vec<(Planned, Vec<u8>)>,
    lost: Vec<bool>,
}

impl Receiver<'_> {
    fn take(&self, (decoder, here): &mut (Decoder, Vec<bool>), numbers: Range<usize>) {
        let first = self.repairs.partition_point(|(planned, _)| planned.after <= numbers.start);
        let mut repairs = self.repairs[first..].iter().peekable();
        for number in numbers {
            let leaving = number.checked_sub(self.load.window).filter(|number| !here[*number]);
            let came = (!self.lost[number]).then_some(number);
            for number in came.into_iter().chain(leaving) {
                decoder.source(number as u64, self.stream[number]);
                here[number] = true;
            }
            while let Some((planned, repair)) = repairs.next_if(|(it, _)| it.after == number + 1) {
                let has = |number| here[number as usize];
                decoder.repair(planned.span, planned.key, repair, has).expect("a sound repair");
            }
            while let Some((recovered, content)) = decoder.next_recovered() {
                assert!(content == self.stream[recovered as usize], "recovered wrongly");
                here[recovered as usize] = true;
            }
        }
    }
}

#[divan::bench(args = With::all(), sample_count = 7, sample_size = 1)]
fn decode_sliding(bencher: Bencher, With(kernel, load): &With) {
    let buffers = symbols(BUFFERS);
    let stream = stream(&buffers);
    let made = |planned: Planned| {
        let mut repair = Vec::new();
        encode_with(Kernel::best(), planned.key, &stream[planned.range()], &mut repair);
        (planned, repair)
    };
    let repairs = load.schedule().into_iter().map(made).collect();
    let receiver = Receiver { load: *load, repairs, lost: load.lost(), stream };
    let warm = || {
        let limits = Limits { cached_symbols: KEPT, max_symbol_bytes: SYMBOL_BYTES, rows: 512 };
        let mut state = (Decoder::with_kernel(limits, *kernel), vec![false; SYMBOLS]);
        receiver.take(&mut state, 0..WARM_UP);
        state
    };
    let rest = |state: &mut _| receiver.take(state, WARM_UP..SYMBOLS);
    bencher.counter(bytes(SYMBOLS - WARM_UP)).with_inputs(warm).bench_local_refs(rest);
}

fn raptorq(load: &Load) -> (ObjectTransmissionInformation, Vec<u8>) {
    let block = symbols(load.window).concat();
    let all = block.len() as u64;
    (ObjectTransmissionInformation::new(all, SYMBOL_BYTES as u16, 1, 1, ALIGNMENT), block)
}

#[divan::bench(args = Load::all(), sample_count = 7)]
fn encode_raptorq(bencher: Bencher, load: &Load) {
    let ((config, block), repairs) = (raptorq(load), load.repairs() as u32);
    bencher
        .counter(bytes(load.window))
        .bench_local(|| SourceBlockEncoder::new(BLOCK, &config, &block).repair_packets(0, repairs));
}

#[divan::bench(args = Load::all(), sample_count = 7)]
fn decode_raptorq(bencher: Bencher, load: &Load) {
    let ((config, block), lost) = (raptorq(load), load.lost());
    let encoder = SourceBlockEncoder::new(BLOCK, &config, &block);
    let came = encoder.source_packets().into_iter().zip(lost).filter(|(_, lost)| !lost);
    let came =
        came.map(|(packet, _)| packet).chain(encoder.repair_packets(0, load.repairs() as u32));
    let came: Vec<EncodingPacket> = came.collect();
    bencher.counter(bytes(load.window)).with_inputs(|| came.clone()).bench_local_values(
        |packets| {
            let found = SourceBlockDecoder::new(BLOCK, &config, block.len() as u64).decode(packets);
            assert!(found.is_some_and(|found| found == block), "recovered wrongly");
        },
    );
}

fn reed_solomon(load: &Load, sources: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let encoder = ReedSolomonEncoder::new(load.window, load.repairs(), SYMBOL_BYTES);
    let mut encoder = encoder.expect("a size that it takes");
    for source in sources {
        encoder.add_original_shard(source).expect("a symbol of its length");
    }
    let made = encoder.encode().expect("every symbol");
    made.recovery_iter().map(<[u8]>::to_vec).collect()
}

#[divan::bench(args = Load::all(), sample_count = 7)]
fn encode_reed_solomon(bencher: Bencher, load: &Load) {
    let sources = symbols(load.window);
    bencher.counter(bytes(load.window)).bench_local(|| reed_solomon(load, &sources));
}

#[divan::bench(args = Load::all(), sample_count = 7)]
fn decode_reed_solomon(bencher: Bencher, load: &Load) {
    let (sources, lost) = (symbols(load.window), load.lost());
    let repairs = reed_solomon(load, &sources);
    let decoder = ReedSolomonDecoder::new(load.window, load.repairs(), SYMBOL_BYTES);
    let mut decoder = decoder.expect("a size that it takes");
    bencher.counter(bytes(load.window)).bench_local(|| {
        for (index, source) in sources.iter().enumerate().filter(|(index, _)| !lost[*index]) {
            decoder.add_original_shard(index, source).expect("a symbol of its length");
        }
        for (index, repair) in repairs.iter().enumerate() {
            decoder.add_recovery_shard(index, repair).expect("a repair of its length");
        }
        let found = decoder.decode().expect("enough repairs");
        assert!(found.restored_original_iter().all(|(index, it)| *it == sources[index]), "wrong");
    });
}
