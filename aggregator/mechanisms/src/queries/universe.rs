//! Columns with known domains, and the universe that they span.

use super::QueryError;
use super::cells::{CellSet, check_cells};
use super::column::check_declared;
pub use super::column::{Column, VALUES_MAX};
pub use super::numbers::decimal;
use super::price::Price;
pub use super::quoting::written as quoted;
use super::selection::Selection;

/// Maximum number of columns of a data set.
pub const COLUMNS_MAX: usize = 256;

/// The columns of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema(Vec<Column>);

impl Schema {
    /// A schema of these columns.
    ///
    /// # Errors
    /// [`QueryError::EmptyUniverse`], and [`QueryError::Domain`] for a duplicate name or too many
    /// columns.
    pub fn new(columns: Vec<Column>) -> Result<Self, QueryError> {
        if columns.is_empty() {
            return Err(QueryError::EmptyUniverse);
        }
        for (place, column) in columns.iter().enumerate() {
            let domain = |what| QueryError::Domain { column: column.name().to_owned(), what };
            if place >= COLUMNS_MAX {
                return Err(domain("there are more than 256 columns"));
            }
            let mut before = columns.iter().take(place);
            if before.clone().any(|other| other.name() == column.name()) {
                return Err(domain("there are two columns of this name"));
            }
            let is_of_people = |column: &Column| column.rows_of_each().is_some();
            if is_of_people(column) && before.any(is_of_people) {
                return Err(domain("another column says already whose row it is"));
            }
        }
        Ok(Self(columns))
    }

    /// Parses columns.
    ///
    /// # Errors
    /// As [`Self::new`], and for an invalid column.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Self, QueryError> {
        let columns = texts.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>()?;
        let schema = Self::new(columns)?;
        if schema.asked().next().is_none() {
            return Err(QueryError::EmptyUniverse);
        }
        Ok(schema)
    }

    /// Parses columns that a person declares, and refuses text that is likely meant otherwise.
    ///
    /// # Errors
    /// As [`Self::parse`], for a range that is malformed, for a single value that looks like a range, and
    /// for a name that is a number.
    ///
    /// ```
    /// use bandana_mechanisms::queries::universe::Schema;
    /// assert!(Schema::declared(&["age:18..99"]).is_ok());
    /// for wrong in ["price:0.5..9.5", "age:18-99", "age:30 .. 40", "39:0..100"] {
    ///     assert!(Schema::declared(&[wrong]).is_err(), "{wrong}");
    /// }
    /// assert!(Schema::declared(&[r#"sizes:"0.5..9.5"|"10..20""#]).is_ok());
    /// ```
    pub fn declared<S: AsRef<str>>(texts: &[S]) -> Result<Self, QueryError> {
        texts.iter().try_for_each(|text| check_declared(text.as_ref()))?;
        Self::parse(texts)
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.0
    }

    /// The columns that can be asked about, and their indices.
    fn asked(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.0.iter().enumerate().filter(|(_, column)| column.rows_of_each().is_none())
    }

    /// The index of the column that says whose row it is, and the largest number of rows kept of
    /// each person. `None` without such a column.
    pub fn people(&self) -> Option<(usize, u32)> {
        let of = |(place, column): (usize, &Column)| Some((place, column.rows_of_each()?));
        self.0.iter().enumerate().find_map(of)
    }

    /// The price that may be spent on each row, so that all rows of a person together cost at most
    /// `price`. To change k rows is to change one row after another. It costs k times the ε, or k²
    /// times the ρ.
    ///
    /// # Errors
    /// [`QueryError::PriceOfRows`], if less than a billionth is left.
    pub fn price_of_row(&self, price: Price) -> Result<Price, QueryError> {
        let rows = self.people().map_or(1, |(_, rows)| rows);
        price.of_each_row(rows).ok_or(QueryError::PriceOfRows { rows })
    }

    /// The column with this name, and its index.
    ///
    /// # Errors
    /// [`QueryError::NoColumn`].
    pub fn find(&self, name: &str) -> Result<(usize, &Column), QueryError> {
        let found = self.asked().find(|(_, column)| column.name() == name);
        found.ok_or_else(|| QueryError::NoColumn { column: name.to_owned(), known: self.names() })
    }

    fn names(&self) -> String {
        self.asked().map(|(_, column)| column.name()).collect::<Vec<_>>().join(", ")
    }

    /// The universe of these columns, or of all columns if `names` is empty.
    ///
    /// # Errors
    /// [`QueryError::NoColumn`], and [`QueryError::TooManyCells`] beyond the limit of a histogram.
    pub fn universe<S: AsRef<str>>(&self, names: &[S]) -> Result<Universe, QueryError> {
        let places: Vec<usize> = if names.is_empty() {
            self.asked().map(|(place, _)| place).collect()
        } else {
            let place = |name: &S| self.find(name.as_ref()).map(|(place, _)| place);
            names.iter().map(place).collect::<Result<_, _>>()?
        };
        self.of_places(places)
    }

    /// Like [`Self::universe`], with further cells for the places without a row that
    /// [`Rows::of_people`](super::rows::Rows::of_people) makes.
    ///
    /// # Errors
    /// As there.
    pub fn universe_of_places<S: AsRef<str>>(&self, names: &[S]) -> Result<Universe, QueryError> {
        let mut places = self.universe(names)?.places;
        places.extend(self.people().map(|(place, _)| place));
        self.of_places(places)
    }

    fn of_places(&self, places: Vec<usize>) -> Result<Universe, QueryError> {
        let columns: Vec<Column> =
            places.iter().filter_map(|&place| self.0.get(place).cloned()).collect();
        let schema = Self::new(columns)?;
        let sizes = schema.0.iter().map(|column| column.values() as u128);
        let cells = check_cells(sizes.fold(1, u128::saturating_mul))?;
        Ok(Universe { schema, places, cells })
    }
}

/// All combinations of the values of some columns. A combination is a cell; the first column
/// changes slowest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Universe {
    schema: Schema,
    /// The indices of the columns in the data set.
    places: Vec<usize>,
    cells: usize,
}

impl Universe {
    /// The number of cells.
    pub fn cells(&self) -> usize {
        self.cells
    }

    /// The columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The names of the columns that can be asked about.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.schema.asked().map(|(_, column)| column.name())
    }

    /// The indices of the columns in the data set.
    pub fn places(&self) -> &[usize] {
        &self.places
    }

    /// The cell with these codes, one for each column.
    pub fn cell(&self, codes: impl IntoIterator<Item = u32>) -> usize {
        let columns = self.schema.0.iter().zip(codes);
        columns.fold(0, |cell, (column, code)| cell * column.values() + code as usize)
    }

    /// The codes of a cell, one for each column.
    pub fn codes(&self, cell: usize) -> Vec<u32> {
        let mut rest = cell;
        let mut codes: Vec<u32> = self
            .schema
            .0
            .iter()
            .rev()
            .map(|column| {
                let code = rest % column.values();
                rest /= column.values();
                u32::try_from(code).unwrap_or(u32::MAX)
            })
            .collect();
        codes.reverse();
        codes
    }

    /// The cells selected by the predicate `text`.
    ///
    /// # Errors
    /// [`QueryError::OutsideUniverse`] for a column outside this universe, and as
    /// [`Selection::parse`].
    pub fn select(&self, text: &str) -> Result<CellSet, QueryError> {
        let selection = Selection::parse(text, &self.schema).map_err(|error| match error {
            QueryError::NoColumn { column, known } => QueryError::OutsideUniverse { column, known },
            other => other,
        })?;
        CellSet::of(self.cells, |cell| {
            let codes = self.codes(cell);
            selection.holds(|place| codes.get(place).copied())
        })
    }
}
