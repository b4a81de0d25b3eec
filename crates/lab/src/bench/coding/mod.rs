//! The sliding-window code beside two block codes: source bytes a second on one core.

mod blocks;
mod load;
mod sliding;

use std::fmt;

use bentpipe_coding::Kernel;
use blocks::Blocks;
use load::{Load, SYMBOL_BYTES};
use sliding::{Taken, Work};

use super::BenchError;
use crate::experiment::table;
use crate::result::{Percentile, Row, Samples};

/// Every contender is measured so often, in turns, so that whatever else this machine does meets
/// all. One more round before goes uncounted.
const ROUNDS: usize = 7;

/// The stream and its losses.
const SEED: u64 = 1;

/// Results.
pub struct Found(Vec<Cell>);

struct Cell {
    load: Load,
    contender: Contender,
    /// Source bytes a second.
    rates: Samples,
    /// Rate that the multiply-adds alone would allow, for each round.
    bounds: Samples,
}

#[derive(Debug, Clone, Copy)]
enum Contender {
    Ours(Kernel),
    RaptorQ,
    ReedSolomon,
}

/// Runs all of it: some 3 minutes.
pub fn run() -> Result<Found, BenchError> {
    let cells: Result<Vec<_>, _> = Load::all().map(measure).collect();
    Ok(Found(cells?.into_iter().flatten().collect()))
}

fn measure(load: Load) -> Result<Vec<Cell>, BenchError> {
    let (work, blocks) = (Work::new(load, SEED), Blocks::new(load, SEED));
    let ours = Kernel::every().map(Contender::Ours);
    let all = ours.chain([Contender::RaptorQ, Contender::ReedSolomon]);
    let cell = |contender| {
        let (rates, bounds) = (Samples::default(), Samples::default());
        Cell { load, contender, rates, bounds }
    };
    let mut cells: Vec<Cell> = all.map(cell).collect();
    for round in 0..=ROUNDS {
        for cell in &mut cells {
            let (taken, bound) = cell.contender.run(&work, &blocks).ok_or_else(|| {
                let why = format!("{} did not give back what was lost", cell.contender);
                BenchError::Transfer { doing: "decode", why }
            })?;
            if round > 0 {
                cell.rates.push(rate(taken));
                bound.into_iter().for_each(|bound| cell.bounds.push(bound));
            }
        }
    }
    Ok(cells)
}

impl Contender {
    /// Time taken, and, for our own code, the rate of its multiply-adds alone.
    fn run(self, work: &Work, blocks: &Blocks) -> Option<(Taken, Option<f64>)> {
        let kernel = match self {
            Self::Ours(kernel) => kernel,
            Self::RaptorQ => return Some((blocks.raptorq()?, None)),
            Self::ReedSolomon => return Some((blocks.reed_solomon()?, None)),
        };
        let taken = work.run(kernel)?;
        let alone = work.multiply_add(kernel);
        let multiples_per_second = alone.multiples as f64 / alone.time.as_secs_f64();
        let multiples_per_symbol = taken.multiples as f64 / taken.symbols as f64;
        Some((taken, Some(SYMBOL_BYTES as f64 * multiples_per_second / multiples_per_symbol)))
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(kernel) => write!(f, "bentpipe-{}", kernel.name()),
            Self::RaptorQ => f.write_str("raptorq"),
            Self::ReedSolomon => f.write_str("reed-solomon-simd"),
        }
    }
}

fn rate(taken: Taken) -> f64 {
    (taken.symbols * SYMBOL_BYTES) as f64 / taken.time.as_secs_f64()
}

impl Found {
    /// As rows. The limit is the rate of the multiply-adds alone.
    pub fn rows(&self) -> Vec<Row> {
        let row = |cell: &Cell| {
            cell.rates.fill(Row {
                experiment: "coding".into(),
                contender: Some(cell.contender.to_string()),
                workload: Some(cell.load.to_string()),
                metric: "throughput".into(),
                unit: "bytes/s".into(),
                limit: known(&cell.bounds, 0.5),
                seed: Some(SEED),
                ..Row::default()
            })
        };
        self.0.iter().map(row).collect()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = |rate: f64| format!("{:.3}", rate / 1e9);
        let line = |cell: &Cell| {
            let at = |q| known(&cell.rates, q);
            let bound = known(&cell.bounds, 0.5);
            let figures =
                [at(0.5), at(0.0), at(1.0), bound].map(|x| x.map_or_else(none, gigabytes));
            let times = bound.zip(at(0.5)).map(|(bound, rate)| format!("{:.2}×", bound / rate));
            let [median, least, most, bound] = figures;
            let (load, contender) = (cell.load.to_string(), cell.contender.to_string());
            [load, contender, median, least, most, bound, times.unwrap_or_else(none)]
        };
        let lines: Vec<_> = self.0.iter().map(line).collect();
        let header = ["", "contender", "median", "least", "most", "bound", ""];
        f.write_str(&table::groups(header, &lines))?;
        f.write_str(
            "GB/s of source symbols of 1,400 bytes, by the processor time of one thread\n\
             bound  what the multiply-adds alone reach, over as much memory; then how far it is\n\
             decode  four in five of the repairs are needed: 4 % are lost of 5 %, 16 % of 20 %\n",
        )
    }
}

fn none() -> String {
    "–".into()
}

fn known(samples: &Samples, q: f64) -> Option<f64> {
    samples.percentile(q).and_then(Percentile::known)
}
