//! Recovering what is missing.

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

/// Recovers missing source symbols of one lane from repairs.
///
/// It keeps the contents of the newest sources, cancels them in each repair that comes, and solves
/// for what is missing. Numbers and repairs may come in any order; those of a hostile peer are
/// refused or useless, and cost no more than [`Limits`] says.
pub struct Decoder {
    limits: Limits,
    kernel: Kernel,
    contents: Contents,
    rows: Rows,
    recovered: VecDeque<Recovered>,
    /// Fault of an earlier repair that a source revealed; returned with the next repair.
    malformed: Option<Malformed>,
}

impl Decoder {
    /// A decoder that has nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self::with_kernel(limits, Kernel::best())
    }

    /// A decoder with a certain kernel. All give the same.
    pub fn with_kernel(limits: Limits, kernel: Kernel) -> Self {
        Self {
            limits,
            kernel,
            contents: Contents::new(limits.kept_symbols),
            rows: Rows::default(),
            recovered: VecDeque::new(),
            malformed: None,
        }
    }

    /// A source came, or was recovered elsewhere: its content is kept and put into the equations
    /// held, from which others may follow. What was [recovered](Self::next_recovered) here need not
    /// be given.
    pub fn source(&mut self, number: u64, content: &[u8]) {
        if number < self.contents.floor() || self.contents.has(number) {
            return;
        }
        if content.len() + PREFIX_BYTES <= self.limits.max_repair_bytes() {
            self.contents.keep(number, content);
        }
        match self.rows.put_in(self.kernel, number, content) {
            Ok(recovered) => self.take_recovered(recovered),
            // The source is authentic; repairs that do not fit it are not.
            Err(malformed) => self.malformed = Some(malformed),
        }
    }

    /// A repair came. `has` says of a number whether that symbol is here, recovered ones included.
    ///
    /// `Ok(true)`: it recovered something, or is held. `Ok(false)`: it told nothing new, or needs a
    /// content that is no longer kept, or there is no room for it. A repair whose sources are all
    /// here is not looked at.
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
        self.take_recovered(recovered);
        Ok(useful)
    }

    /// The next symbol that was recovered, with its number.
    pub fn next_recovered(&mut self) -> Option<(u64, Vec<u8>)> {
        self.recovered.pop_front()
    }

    /// The equations held, as groups that share no symbol: the lowest missing symbol of each, rising,
    /// and how many equations it has. They are independent: if m symbols of a group are missing, then
    /// m less that many more repairs of it will recover them all.
    pub fn held(&self) -> impl Iterator<Item = (u64, u32)> {
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

    /// Neither will a symbol below `number` be asked for again, nor will a repair span one: their
    /// contents are freed, equations that need them dropped, and later repairs that span them refused.
    ///
    /// This is the *sender's* base. The receiver may have everything below some number while repairs
    /// are under way that span symbols below it, and whose contents are needed.
    pub fn forget_below(&mut self, number: u64) {
        self.contents.forget_below(number);
        self.rows.forget_below(number);
        self.recovered.retain(|(recovered, _)| *recovered >= number);
    }

    /// The memory held.
    pub fn held_bytes(&self) -> usize {
        let waiting = self.recovered.iter().map(|(_, source)| source.capacity());
        let table = self.recovered.capacity() * size_of::<Recovered>();
        self.contents.bytes() + self.rows.bytes() + table + waiting.sum::<usize>()
    }

    /// Equation of a repair over the missing symbols. `None` if it has none, or if a content that
    /// it needs is not stored.
    fn equation(
        &mut self,
        span: Span,
        key: u16,
        payload: &[u8],
        has: impl Fn(u64) -> bool,
    ) -> Result<Option<Row>, Malformed> {
        self.contents.prepare();
        let count = usize::from(span.count);
        // Most repairs that tell nothing are seen to before any of the real work.
        let mut missing = Vec::new();
        for (first, places, _) in self.contents.runs(span) {
            for (index, place) in places.iter().enumerate() {
                let number = first + index as u64;
                if *place != number {
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
                // No factor is zero but those of what is missing.
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

    fn take_recovered(&mut self, recovered: Vec<Recovered>) {
        for (number, source) in recovered {
            self.contents.keep(number, &source);
            self.recovered.push_back((number, source));
        }
    }
}
