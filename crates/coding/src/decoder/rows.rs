//! The equations that are held, in minimal-span form.
//!
//! No two have the same lowest missing symbol, and no two the same highest. Then every combination of
//! equations that spans only certain numbers combines equations that span only these (Kschischang and
//! Sorokine 1995, "On the trellis structure of block codes"; McEliece 1996). So:
//!
//! - a symbol that follows from the equations is the only one in an equation of its own: nothing has
//!   to be searched or substituted backwards;
//! - dropping the equations that begin below some number loses nothing about the symbols above;
//! - reducing makes spans narrower, never wider: no equation outgrows [`MAX_SPAN`].

use std::collections::BTreeMap;

use super::malformed::Malformed;
use super::row::Row;
use crate::MAX_SPAN;
use crate::kernel::Kernel;

/// The most reductions of one equation by another in one call.
pub(super) const MAX_STEPS: usize = 8 * MAX_SPAN;

/// Table memory per row, in addition to the row: nodes are at least half full.
pub(super) const ROW_TABLE_BYTES: usize = 2 * 2 * size_of::<(u64, u64)>();

/// A symbol that was recovered.
pub(super) type Recovered = (u64, Vec<u8>);

#[derive(Default)]
pub(super) struct Rows {
    /// By the lowest missing symbol.
    rows: BTreeMap<u64, Row>,
    /// Start of the row with this end.
    starts: BTreeMap<u64, u64>,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows by their lowest missing symbol.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// The memory of all.
    pub fn bytes(&self) -> usize {
        self.rows.values().map(|row| row.bytes() + ROW_TABLE_BYTES).sum()
    }

    /// Adds an equation and gives what can be recovered with it.
    pub fn add(&mut self, kernel: Kernel, row: Row) -> Result<Vec<Recovered>, Malformed> {
        self.settle(kernel, vec![row])
    }

    /// Puts a known symbol into all equations and gives what can be recovered with it.
    pub fn put_in(
        &mut self,
        kernel: Kernel,
        number: u64,
        source: &[u8],
    ) -> Result<Vec<Recovered>, Malformed> {
        let end = self.starts.last_key_value().map_or(0, |(end, _)| *end);
        if number >= end {
            return Ok(Vec::new());
        }
        let mut unsettled = Vec::new();
        self.substitute(kernel, number, source, &mut unsettled)?;
        self.settle(kernel, unsettled)
    }

    /// Drops every equation that begins below `number`.
    pub fn forget_below(&mut self, number: u64) {
        let kept = self.rows.split_off(&number);
        for row in std::mem::replace(&mut self.rows, kept).values() {
            self.starts.remove(&row.end());
        }
    }

    /// Drops the equation that is farthest from being solved.
    pub fn drop_widest(&mut self) {
        let widest = self.rows.values().max_by_key(|row| row.width()).map(Row::start);
        if let Some(start) = widest {
            self.take(start);
        }
    }

    /// Brings `unsettled` and all that is held into form.
    fn settle(
        &mut self,
        kernel: Kernel,
        mut unsettled: Vec<Row>,
    ) -> Result<Vec<Recovered>, Malformed> {
        let mut recovered = Vec::new();
        let mut steps = 0;
        while let Some(row) = unsettled.pop() {
            let Some(row) = self.reduce(kernel, row, &mut unsettled, &mut steps)? else { continue };
            let (number, source) = row.solve(kernel)?;
            for row in &mut unsettled {
                row.put_in(kernel, number, &source)?;
            }
            self.substitute(kernel, number, &source, &mut unsettled)?;
            recovered.push((number, source));
        }
        Ok(recovered)
    }

    /// Reduces a row by those held until it has a place among them, or nothing is left of it; gives
    /// it back if a single symbol is. Wider rows that are in its way go to `unsettled`.
    fn reduce(
        &mut self,
        kernel: Kernel,
        mut row: Row,
        unsettled: &mut Vec<Row>,
        steps: &mut usize,
    ) -> Result<Option<Row>, Malformed> {
        while row.width() > 1 {
            let Some((number, start)) = self.rival(&row) else {
                self.starts.insert(row.end(), row.start());
                self.rows.insert(row.start(), row);
                return Ok(None);
            };
            match self.rows.get(&start) {
                Some(held) if held.width() <= row.width() => {
                    *steps += 1;
                    if *steps > MAX_STEPS {
                        return Ok(None);
                    }
                    row.reduce(kernel, number, held);
                }
                _ => unsettled.extend(self.take(start)),
            }
        }
        if row.contradicts() {
            return Err(Malformed::Contradiction);
        }
        Ok(Some(row).filter(|row| row.width() == 1))
    }

    /// The row that begins or ends where `row` does, by its start, and the symbol they share there.
    fn rival(&self, row: &Row) -> Option<(u64, u64)> {
        if self.rows.contains_key(&row.start()) {
            return Some((row.start(), row.start()));
        }
        self.starts.get(&row.end()).map(|start| (row.end() - 1, *start))
    }

    fn take(&mut self, start: u64) -> Option<Row> {
        let row = self.rows.remove(&start)?;
        self.starts.remove(&row.end());
        Some(row)
    }

    /// Puts a known symbol into the equations that are held. Those that begin or end with it lose
    /// their place and go to `unsettled`.
    fn substitute(
        &mut self,
        kernel: Kernel,
        number: u64,
        source: &[u8],
        unsettled: &mut Vec<Row>,
    ) -> Result<(), Malformed> {
        let at_end = number.checked_add(1).and_then(|end| self.starts.get(&end)).copied();
        for start in [Some(number), at_end].into_iter().flatten() {
            if let Some(mut row) = self.take(start) {
                row.put_in(kernel, number, source)?;
                unsettled.push(row);
            }
        }
        let earliest = number.saturating_sub(MAX_SPAN as u64);
        for (_, row) in self.rows.range_mut(earliest..number) {
            row.put_in(kernel, number, source)?;
        }
        Ok(())
    }
}
