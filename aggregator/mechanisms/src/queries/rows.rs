//! The rows of a data set, in memory.

use std::fmt;

use rand::SeedableRng as _;
use rand::seq::index::sample;
use rand_chacha::ChaCha20Rng;

use super::QueryError;
use super::selection::Selection;
use super::universe::{Column, Schema, Universe, VALUES_MAX};

/// Maximum number of rows of a data set.
pub const ROWS_MAX: usize = 1 << 27;

/// Maximum number of values where people have places for rows.
const CODES_MAX: usize = 1 << 31;

/// The codes of a column, by row.
#[derive(Clone)]
enum Codes {
    /// Of at most 65,536 values.
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

impl Codes {
    fn of(column: &Column) -> Self {
        if column.values() > VALUES_MAX { Self::Wide(Vec::new()) } else { Self::Narrow(Vec::new()) }
    }

    fn push(&mut self, code: u32) {
        match self {
            Self::Narrow(codes) => codes.push(u16::try_from(code).unwrap_or(u16::MAX)),
            Self::Wide(codes) => codes.push(code),
        }
    }

    fn get(&self, row: usize) -> Option<u32> {
        match self {
            Self::Narrow(codes) => codes.get(row).copied().map(u32::from),
            Self::Wide(codes) => codes.get(row).copied(),
        }
    }
}

/// Rows, stored as two bytes per value, or four in a column of numbers with more than 65,536 values.
/// `Debug` does not show them.
#[derive(Clone)]
pub struct Rows {
    schema: Schema,
    /// The codes of each column.
    codes: Vec<Codes>,
    count: usize,
    /// How many rows there were before some were left out.
    read: usize,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("rows", &self.count).finish_non_exhaustive()
    }
}

impl Rows {
    /// An empty set of rows.
    pub fn new(schema: Schema) -> Self {
        let codes = schema.columns().iter().map(Codes::of).collect();
        Self { schema, codes, count: 0, read: 0 }
    }

    /// Appends a row: a code for each column.
    ///
    /// # Errors
    /// [`QueryError::TooManyRows`].
    pub fn push(&mut self, codes: &[u32]) -> Result<(), QueryError> {
        if self.count >= ROWS_MAX {
            return Err(QueryError::TooManyRows { most: ROWS_MAX });
        }
        for (column, &code) in self.codes.iter_mut().zip(codes) {
            column.push(code);
        }
        self.count += 1;
        self.read += 1;
        Ok(())
    }

    /// The rows with as many places for each person, given whose row each is: see [`Self::places_of_people`].
    ///
    /// # Errors
    /// [`QueryError::TooManyRows`].
    pub fn of_people(self, people: &[u128]) -> Result<Self, QueryError> {
        let Some(places) = self.places_of_people(people)? else { return Ok(self) };
        let mut kept = Self::new(self.schema.clone());
        let nothing = vec![0; self.codes.len()];
        for place in places {
            let code = |codes: &Codes| place.and_then(|row| codes.get(row));
            let codes: Option<Vec<u32>> = self.codes.iter().map(code).collect();
            kept.push(codes.as_ref().unwrap_or(&nothing))?;
        }
        Ok(Self { read: self.read, ..kept })
    }

    /// The row at each place, or `None` at a place without a row. Each person has as many places as the
    /// schema says. `people` says whose row each one is. Rows beyond a person's places are left out, and
    /// places beyond a person's rows stay empty. The rows that are left out are drawn at random, and the draw
    /// depends only on whose they are and on how many there are. So the rows of one person change the
    /// places of that person alone. The number of places is the number of people times the places of each.
    /// The whole is `None` where rows are nobody's.
    ///
    /// # Errors
    /// [`QueryError::TooManyRows`].
    pub fn places_of_people(
        &self,
        people: &[u128],
    ) -> Result<Option<Vec<Option<usize>>>, QueryError> {
        let Some((_, places)) = self.schema.people() else { return Ok(None) };
        let places = places as usize;
        let mut order: Vec<(u128, usize)> = people.iter().copied().zip(0..self.count).collect();
        order.sort_unstable();
        let people = order.chunk_by(|(one, _), (other, _)| one == other).count();
        let most = CODES_MAX / self.codes.len().max(1);
        if people.saturating_mul(places) > most {
            return Err(QueryError::TooManyRows { most });
        }
        let mut kept = Vec::with_capacity(people * places);
        for of_one in order.chunk_by(|(one, _), (other, _)| one == other) {
            let person = of_one.first().map_or(0, |(person, _)| *person);
            let mut seed = [0; 32];
            seed[..16].copy_from_slice(&person.to_be_bytes());
            let mut random = ChaCha20Rng::from_seed(seed);
            let drawn = sample(&mut random, of_one.len(), of_one.len().min(places));
            kept.extend(drawn.into_iter().map(|place| of_one.get(place).map(|(_, row)| *row)));
            kept.extend((of_one.len()..places).map(|_| None));
        }
        Ok(Some(kept))
    }

    /// The number of rows, or of places for rows of people, which is public.
    pub fn count(&self) -> u64 {
        self.count as u64
    }

    /// The number of rows that were read.
    pub fn read(&self) -> u64 {
        self.read as u64
    }

    /// The codes of the column with this index, by row. A column has none here that has more than 65,536 values.
    pub fn codes(&self, place: usize) -> &[u16] {
        match self.codes.get(place) {
            Some(Codes::Narrow(codes)) => codes,
            Some(Codes::Wide(_)) | None => &[],
        }
    }

    fn code(&self, place: usize, row: usize) -> Option<u32> {
        self.codes.get(place)?.get(row)
    }

    /// The columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The number of rows that satisfy the conditions.
    pub(super) fn selected(&self, selection: &Selection) -> u64 {
        (0..self.count).filter(|&row| self.is_in(row, selection)).count() as u64
    }

    /// The number of rows of a selection, and the sums of their codes in a column and of the squares of these.
    pub(super) fn moments(&self, place: usize, of: &Selection) -> [i128; 3] {
        (0..self.count).fold([0; 3], |[rows, sum, squares], row| {
            // The same work for each row.
            let one = i128::from(self.is_in(row, of));
            let code = one * i128::from(self.code(place, row).unwrap_or_default());
            [rows + one, sum + code, squares + code * code]
        })
    }

    /// The number of rows of a selection with each value of a column, of at most 65,536.
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
        selection.holds(|place| self.code(place, row))
    }

    /// The number of rows in each cell of a universe of some of the columns.
    pub fn histogram(&self, universe: &Universe) -> Vec<u64> {
        self.histogram_of(universe, &Selection::all())
    }

    /// The number of rows of a selection in each cell of a universe.
    pub(super) fn histogram_of(&self, universe: &Universe, of: &Selection) -> Vec<u64> {
        let mut histogram = vec![0; universe.cells()];
        let columns: Vec<&Codes> =
            universe.places().iter().filter_map(|&place| self.codes.get(place)).collect();
        for row in 0..self.count {
            let codes = columns.iter().map(|codes| codes.get(row).unwrap_or(0));
            if let Some(count) = histogram.get_mut(universe.cell(codes)) {
                *count += u64::from(self.is_in(row, of));
            }
        }
        histogram
    }
}
