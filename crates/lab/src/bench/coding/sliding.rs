//! Our own code at work on the stream.

use std::hint::black_box;
use std::time::Duration;

use bentpipe_coding::kernel::{Kernel, Term};
use bentpipe_coding::{Decoder, Limits, encode_with};

use super::super::cpu;
use super::load::{
    BUFFERS, Direction, KEPT, Load, Planned, SYMBOL_BYTES, SYMBOLS, WARM_UP, stream, symbols,
};

/// Time taken, and number of multiply-adds of a symbol that cannot be saved.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// The time.
    pub time: Duration,
    /// Symbols that went by meanwhile.
    pub symbols: usize,
    /// Symbols multiplied and added.
    pub multiples: usize,
}

/// The stream, and how it is coded and lost.
pub struct Work {
    load: Load,
    schedule: Vec<Planned>,
    /// Symbols that a sender retains.
    retained: Vec<Vec<u8>>,
    /// Received symbols.
    buffers: Vec<Vec<u8>>,
    /// Received repairs.
    repairs: Vec<Vec<u8>>,
    lost: Vec<bool>,
}

impl Work {
    /// Plans the work.
    pub fn new(load: Load, seed: u64) -> Self {
        let (retained, buffers) = (symbols(KEPT, seed), symbols(BUFFERS, seed));
        let schedule = load.schedule();
        let stream = stream(&buffers);
        let repair = |planned: &Planned| {
            let mut repair = Vec::new();
            encode_with(Kernel::best(), planned.key, &stream[planned.range()], &mut repair);
            repair
        };
        let repairs = schedule.iter().map(repair).collect();
        Self { load, schedule, repairs, retained, buffers, lost: load.lost(seed) }
    }

    /// Nothing but the multiply-adds of all repairs, over the same memory: the bound.
    pub fn multiply_add(&self, kernel: Kernel) -> Taken {
        let term = |(index, source)| Term { factor: index as u8 | 1, source };
        let terms: Vec<Term<'_>> =
            stream(&self.retained).into_iter().enumerate().map(term).collect();
        let mut sum = vec![0; SYMBOL_BYTES];
        let began = cpu::now();
        let mut multiples = 0;
        for planned in &self.schedule {
            kernel.add_multiples(&mut sum, &terms[planned.range()]);
            multiples += planned.range().len();
            black_box(&sum);
        }
        Taken { time: cpu::since(began), symbols: SYMBOLS, multiples }
    }

    /// Does the work. `None` if anything was recovered wrongly.
    pub fn run(&self, kernel: Kernel) -> Option<Taken> {
        match self.load.direction {
            Direction::Encode => Some(self.encode(kernel)),
            Direction::Decode => self.decode(kernel),
        }
    }

    /// Makes all repairs.
    fn encode(&self, kernel: Kernel) -> Taken {
        let stream = stream(&self.retained);
        let mut repair = Vec::new();
        let mut multiples = 0;
        let began = cpu::now();
        for planned in &self.schedule {
            repair.clear();
            encode_with(kernel, planned.key, &stream[planned.range()], &mut repair);
            multiples += planned.range().len();
            black_box(&repair);
        }
        Taken { time: cpu::since(began), symbols: SYMBOLS, multiples }
    }

    /// Recovers what is lost from what came, in the order of sending. What leaves the window and is
    /// not recovered comes as a retransmission.
    fn decode(&self, kernel: Kernel) -> Option<Taken> {
        let limits = Limits { kept_symbols: KEPT, max_symbol_bytes: SYMBOL_BYTES, rows: 512 };
        let mut decoder = Decoder::with_kernel(limits, kernel);
        let stream = stream(&self.buffers);
        let mut here = vec![false; SYMBOLS];
        let mut planned = self.schedule.iter().zip(&self.repairs).peekable();
        let (mut multiples, mut began) = (0, cpu::now());
        for number in 0..SYMBOLS {
            if number == WARM_UP {
                (multiples, began) = (0, cpu::now());
            }
            if !self.lost[number] {
                decoder.source(number as u64, stream[number]);
                here[number] = true;
            }
            let leaving = number.checked_sub(self.load.window).filter(|number| !here[*number]);
            if let Some(leaving) = leaving {
                decoder.source(leaving as u64, stream[leaving]);
                here[leaving] = true;
            }
            while let Some((planned, repair)) =
                planned.next_if(|(planned, _)| planned.after == number + 1)
            {
                let has = |number| here[number as usize];
                if decoder.repair(planned.span, planned.key, repair, has).ok()? {
                    multiples += planned.range().len();
                }
            }
            while let Some((recovered, content)) = decoder.next_recovered() {
                if content != stream[recovered as usize] {
                    return None;
                }
                here[recovered as usize] = true;
            }
        }
        Some(Taken { time: cpu::since(began), symbols: SYMBOLS - WARM_UP, multiples })
    }
}
