//! Decoder of missing source symbols.

mod contents;
mod limits;
mod malformed;
mod row;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use contents::Contents;
pub use limits::Limits;
pub use malformed::Malformed;
use row::Row;
use rows::{Recovered, Rows};

use crate::kernel::{Kernel, Term};
use crate::symbol::PREFIX_BYTES;
use crate::{MAX_SPAN, Span, coefficients};

/// Recovers missing source symbols of one lane from repair symbols.
///
/// The decoder caches the newest source symbols, cancels them in each repair symbol, and solves for
/// the missing ones. Symbols may arrive in any order. Symbols of a hostile peer are refused or
/// useless, and cost at most what [`Limits`] allows.
pub struct Decoder {
    limits: Limits,
    kernel: Kernel,
    contents: Contents,
    rows: Rows,
    recovered: VecDeque<Recovered>,
    /// Error of an earlier repair symbol that a source revealed; returned with the next repair
    /// symbol.
    malformed: Option<Malformed>,
}

impl Decoder {
    /// Creates an empty decoder with the fastest kernel.
    pub fn new(limits: Limits) -> Self {
        Self::with_kernel(limits, Kernel::best())
    }

    /// Creates an empty decoder with a given kernel. All kernels produce the same bytes.
    pub fn with_kernel(limits: Limits, kernel: Kernel) -> Self {
        Self {
            limits,
            kernel,
            contents: Contents::new(limits.cached_symbols),
            rows: Rows::default(),
            recovered: VecDeque::new(),
            malformed: None,
        }
    }

    /// Adds a source symbol that arrived or was recovered elsewhere. Its content is cached and
    /// substituted into the equations, which may recover others. Symbols from
    /// [`next_recovered`](Self::next_recovered) need not be added.
    pub fn source(&mut self, number: u64, content: &[u8]) {
        if number < self.contents.floor() || self.contents.contains(number) {
            return;
        }
        if content.len() + PREFIX_BYTES <= self.limits.max_repair_bytes() {
            self.contents.insert(number, content);
        }
        match self.rows.add_source(self.kernel, number, content) {
            Ok(recovered) => self.queue_recovered(recovered),
            // The source is authentic; repair symbols that do not fit it are not.
            Err(malformed) => self.malformed = Some(malformed),
        }
    }

    /// Adds a repair symbol. `has` returns `true` for a symbol number that the caller has,
    /// recovered symbols included.
    ///
    /// Returns `Ok(true)` if the repair symbol recovered something or became an equation. Returns
    /// `Ok(false)` if it adds no information, needs a content that is no longer cached, or if the
    /// limits made the decoder drop an equation, this one or another. A repair symbol that spans only
    /// known symbols is ignored. An error may be that of an earlier symbol, whose contents turned out
    /// to be malformed; then this symbol is discarded too.
    pub fn repair(
        &mut self,
        span: Span,
        key: u16,
        payload: &[u8],
        has: impl Fn(u64) -> bool,
    ) -> Result<bool, Malformed> {
        let Span { first, count } = span;
        Span::new(first, count).ok_or(Malformed::Span { first, count })?;
        let (bytes, limit) = (payload.len(), self.limits.max_repair_bytes());
        if !(PREFIX_BYTES..=limit).contains(&bytes) {
            return Err(Malformed::Bytes { bytes, limit });
        }
        if let Some(malformed) = self.malformed.take() {
            return Err(malformed);
        }
        if first < self.contents.floor() || self.recovered.len() >= self.limits.rows {
            return Ok(false);
        }
        let Some(row) = self.equation(span, key, payload, has)? else { return Ok(false) };
        let before = self.rows.len();
        let recovered = self.rows.add(self.kernel, row)?;
        let mut useful = self.rows.len() + recovered.len() > before;
        if self.rows.len() > self.limits.rows {
            self.rows.drop_widest();
            useful = !recovered.is_empty();
        }
        self.queue_recovered(recovered);
        Ok(useful)
    }

    /// Takes the next recovered symbol with its number.
    pub fn next_recovered(&mut self) -> Option<(u64, Vec<u8>)> {
        self.recovered.pop_front()
    }

    /// Stored equations, in groups that share no symbol: the lowest missing symbol of each group in
    /// rising order, and its number of equations. The equations are independent. A group with m
    /// missing symbols and n equations is recovered by m − n more repair symbols over it.
    pub fn equations(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut rows = self.rows.iter().peekable();
        std::iter::from_fn(move || {
            let first = rows.next()?;
            let (mut equations, mut end) = (1, first.end());
            while let Some(row) = rows.next_if(|row| row.start() < end) {
                equations += 1;
                end = end.max(row.end());
            }
            Some((first.start(), equations))
        })
    }

    /// Declares that no symbol below `number` will be requested and no repair symbol will span one.
    /// Frees the contents below it, drops equations that need them, and refuses later repair
    /// symbols that span them.
    ///
    /// `number` is the *sender's* base. The receiver may have everything below some higher number,
    /// while repair symbols in flight still span symbols below it and need their contents.
    pub fn forget_below(&mut self, number: u64) {
        self.contents.forget_below(number);
        self.rows.forget_below(number);
        self.recovered.retain(|(recovered, _)| *recovered >= number);
    }

    /// Memory use.
    pub fn memory_bytes(&self) -> usize {
        let waiting = self.recovered.iter().map(|(_, source)| source.capacity());
        let table = self.recovered.capacity() * size_of::<Recovered>();
        self.contents.bytes() + self.rows.bytes() + table + waiting.sum::<usize>()
    }

    /// Builds the equation of a repair symbol over its missing symbols. Returns `None` if none is
    /// missing, or if a content that it needs is not cached.
    fn equation(
        &mut self,
        span: Span,
        key: u16,
        payload: &[u8],
        has: impl Fn(u64) -> bool,
    ) -> Result<Option<Row>, Malformed> {
        self.contents.prepare();
        let count = usize::from(span.count);
        // Detect most repair symbols without information before any expensive work.
        let mut missing = Vec::new();
        for (first, slots, _) in self.contents.runs(span) {
            for (index, slot) in slots.iter().enumerate() {
                let number = first + index as u64;
                if *slot != number {
                    if has(number) {
                        return Ok(None);
                    }
                    missing.push((number - span.first) as usize);
                }
            }
        }
        if missing.is_empty() {
            return Ok(None);
        }
        let (mut factors, mut unknown) = ([0; MAX_SPAN], [0; MAX_SPAN]);
        let (factors, unknown) = (&mut factors[..count], &mut unknown[..count]);
        coefficients(key, factors);
        for index in &missing {
            unknown[*index] = std::mem::take(&mut factors[*index]);
        }
        let mut known = Vec::with_capacity(count);
        for (first, _, sources) in self.contents.runs(span) {
            let factors = &factors[(first - span.first) as usize..];
            for (index, (source, factor)) in sources.iter().zip(factors).enumerate() {
                // Only the factors of missing symbols are zero.
                if *factor == 0 {
                    continue;
                }
                if source.len() > payload.len() {
                    let number = first + index as u64;
                    return Err(Malformed::Shorter { number });
                }
                known.push(Term { factor: *factor, source });
            }
        }
        let mut payload = payload.to_vec();
        self.kernel.add_multiples(&mut payload, &known);
        Ok(Some(Row::new(span.first, unknown, payload)))
    }

    fn queue_recovered(&mut self, recovered: Vec<Recovered>) {
        for (number, source) in recovered {
            self.contents.insert(number, &source);
            self.recovered.push_back((number, source));
        }
    }
}
