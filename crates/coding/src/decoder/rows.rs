//! Equations of the decoder, in minimal-span form.
//!
//! No two equations have the same lowest missing symbol, and no two have the same highest. Every
//! combination of equations that spans only certain numbers then combines only equations within
//! these numbers (Kschischang and Sorokine 1995, "On the trellis structure of block codes";
//! McEliece 1996). Consequences:
//!
//! - A symbol that the equations determine is alone in one equation. No search and no back
//!   substitution is needed.
//! - Dropping the equations that begin below some number loses nothing about the symbols above it.
//! - Reduction makes spans narrower, never wider. No equation outgrows [`MAX_SPAN`].

use std::collections::BTreeMap;

use super::malformed::Malformed;
use super::row::Row;
use crate::MAX_SPAN;
use crate::kernel::Kernel;

/// Maximum number of reductions of equations by others in one call.
pub(super) const MAX_STEPS: usize = 8 * MAX_SPAN;

/// Table memory per row, in addition to the row. Tree nodes are at least half full.
pub(super) const ROW_TABLE_BYTES: usize = 2 * 2 * size_of::<(u64, u64)>();

/// Number and content of a recovered symbol.
pub(super) type Recovered = (u64, Vec<u8>);

#[derive(Default)]
pub(super) struct Rows {
    /// Rows by lowest missing symbol.
    rows: BTreeMap<u64, Row>,
    /// Start of each row, by its end.
    starts: BTreeMap<u64, u64>,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Rows in order of their lowest missing symbol.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Memory use.
    pub fn bytes(&self) -> usize {
        self.rows.values().map(|row| row.bytes() + ROW_TABLE_BYTES).sum()
    }

    /// Adds an equation. Returns the symbols that it makes recoverable.
    pub fn add(&mut self, kernel: Kernel, row: Row) -> Result<Vec<Recovered>, Malformed> {
        self.normalize(kernel, vec![row])
    }

    /// Substitutes a known symbol into all equations. Returns the symbols that become recoverable.
    pub fn add_source(
        &mut self,
        kernel: Kernel,
        number: u64,
        source: &[u8],
    ) -> Result<Vec<Recovered>, Malformed> {
        let end = self.starts.last_key_value().map_or(0, |(end, _)| *end);
        if number >= end {
            return Ok(Vec::new());
        }
        let mut pending = Vec::new();
        self.substitute(kernel, number, source, &mut pending)?;
        self.normalize(kernel, pending)
    }

    /// Drops every equation that begins below `number`.
    pub fn forget_below(&mut self, number: u64) {
        let kept = self.rows.split_off(&number);
        for row in std::mem::replace(&mut self.rows, kept).values() {
            self.starts.remove(&row.end());
        }
    }

    /// Drops the equation with the widest span, which is farthest from a solution.
    pub fn drop_widest(&mut self) {
        let widest = self.rows.values().max_by_key(|row| row.width()).map(Row::start);
        if let Some(start) = widest {
            self.remove(start);
        }
    }

    /// Restores the minimal-span form with the rows of `pending`.
    fn normalize(
        &mut self,
        kernel: Kernel,
        mut pending: Vec<Row>,
    ) -> Result<Vec<Recovered>, Malformed> {
        let mut recovered = Vec::new();
        let mut steps = 0;
        while let Some(row) = pending.pop() {
            let Some(row) = self.reduce(kernel, row, &mut pending, &mut steps)? else { continue };
            let (number, source) = row.solve(kernel)?;
            for row in &mut pending {
                row.substitute(kernel, number, &source)?;
            }
            self.substitute(kernel, number, &source, &mut pending)?;
            recovered.push((number, source));
        }
        Ok(recovered)
    }

    /// Reduces a row by the stored ones until it fits among them or vanishes. Returns it if a
    /// single symbol is left. Wider rows in its way move to `pending`.
    fn reduce(
        &mut self,
        kernel: Kernel,
        mut row: Row,
        pending: &mut Vec<Row>,
        steps: &mut usize,
    ) -> Result<Option<Row>, Malformed> {
        while row.width() > 1 {
            let Some((number, start)) = self.conflict(&row) else {
                self.starts.insert(row.end(), row.start());
                self.rows.insert(row.start(), row);
                return Ok(None);
            };
            match self.rows.get(&start) {
                Some(stored) if stored.width() <= row.width() => {
                    *steps += 1;
                    if *steps > MAX_STEPS {
                        return Ok(None);
                    }
                    row.reduce(kernel, number, stored);
                }
                _ => pending.extend(self.remove(start)),
            }
        }
        if row.contradicts() {
            return Err(Malformed::Contradiction);
        }
        Ok(Some(row).filter(|row| row.width() == 1))
    }

    /// Row that begins or ends where `row` does: the symbol that they share there, and its start.
    fn conflict(&self, row: &Row) -> Option<(u64, u64)> {
        if self.rows.contains_key(&row.start()) {
            return Some((row.start(), row.start()));
        }
        self.starts.get(&row.end()).map(|start| (row.end() - 1, *start))
    }

    fn remove(&mut self, start: u64) -> Option<Row> {
        let row = self.rows.remove(&start)?;
        self.starts.remove(&row.end());
        Some(row)
    }

    /// Substitutes a known symbol into the stored equations. Rows that begin or end with it move to
    /// `pending`.
    fn substitute(
        &mut self,
        kernel: Kernel,
        number: u64,
        source: &[u8],
        pending: &mut Vec<Row>,
    ) -> Result<(), Malformed> {
        let at_end = number.checked_add(1).and_then(|end| self.starts.get(&end)).copied();
        for start in [Some(number), at_end].into_iter().flatten() {
            if let Some(mut row) = self.remove(start) {
                row.substitute(kernel, number, source)?;
                pending.push(row);
            }
        }
        let earliest = number.saturating_sub(MAX_SPAN as u64);
        for (_, row) in self.rows.range_mut(earliest..number) {
            row.substitute(kernel, number, source)?;
        }
        Ok(())
    }
}
