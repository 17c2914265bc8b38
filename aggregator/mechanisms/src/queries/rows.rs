//! The rows of a data set, in memory.

use std::fmt;

use super::QueryError;
use super::selection::Selection;
use super::universe::{Column, Schema, Universe};

/// Maximum number of rows of a data set.
pub const ROWS_MAX: usize = 1 << 27;

/// Rows, stored as two bytes per value. `Debug` does not show them.
#[derive(Clone)]
pub struct Rows {
    schema: Schema,
    /// The codes of each column.
    codes: Vec<Vec<u16>>,
    count: usize,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("rows", &self.count).finish_non_exhaustive()
    }
}

impl Rows {
    /// An empty set of rows.
    pub fn new(schema: Schema) -> Self {
        let codes = vec![Vec::new(); schema.columns().len()];
        Self { schema, codes, count: 0 }
    }

    /// Appends a row: a code for each column.
    ///
    /// # Errors
    /// [`QueryError::TooManyRows`].
    pub fn push(&mut self, codes: &[u16]) -> Result<(), QueryError> {
        if self.count >= ROWS_MAX {
            return Err(QueryError::TooManyRows { most: ROWS_MAX });
        }
        for (column, &code) in self.codes.iter_mut().zip(codes) {
            column.push(code);
        }
        self.count += 1;
        Ok(())
    }

    /// The number of rows, which is public.
    pub fn count(&self) -> u64 {
        self.count as u64
    }

    /// The codes of the column with this index, by row.
    pub fn codes(&self, place: usize) -> &[u16] {
        self.codes.get(place).map_or(&[], Vec::as_slice)
    }

    /// The columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The number of rows that satisfy the conditions.
    pub(super) fn selected(&self, selection: &Selection) -> u64 {
        (0..self.count).filter(|&row| self.is_in(row, selection)).count() as u64
    }

    /// The number of rows of a selection with each value of a column.
    pub(super) fn frequencies(&self, place: usize, of: &Selection) -> Vec<i64> {
        let values = self.schema.columns().get(place).map_or(0, Column::values);
        let mut frequencies = vec![0; values];
        for (row, &code) in self.codes(place).iter().enumerate() {
            if let Some(frequency) = frequencies.get_mut(usize::from(code)) {
                *frequency += i64::from(self.is_in(row, of));
            }
        }
        frequencies
    }

    fn is_in(&self, row: usize, selection: &Selection) -> bool {
        selection.holds(|place| self.codes(place).get(row).copied())
    }

    /// The number of rows in each cell of a universe of some of the columns.
    pub fn histogram(&self, universe: &Universe) -> Vec<u64> {
        self.histogram_of(universe, &Selection::all())
    }

    /// The number of rows of a selection in each cell of a universe.
    pub(super) fn histogram_of(&self, universe: &Universe, of: &Selection) -> Vec<u64> {
        let mut histogram = vec![0; universe.cells()];
        let columns: Vec<&[u16]> = universe
            .places()
            .iter()
            .filter_map(|&place| self.codes.get(place).map(Vec::as_slice))
            .collect();
        for row in 0..self.count {
            let codes = columns.iter().map(|codes| codes.get(row).copied().unwrap_or(0));
            if let Some(count) = histogram.get_mut(universe.cell(codes)) {
                *count += u64::from(self.is_in(row, of));
            }
        }
        histogram
    }
}
