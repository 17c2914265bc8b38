//! Columns with known domains, and the universe that they span.

use std::fmt;

use super::QueryError;
use super::cells::{CellSet, check_cells};
use super::selection::Selection;

/// Maximum number of values of a column.
pub const VALUES_MAX: usize = 1 << 16;

/// Maximum number of columns of a data set.
pub const COLUMNS_MAX: usize = 256;

/// A column with its domain, which is public and must not be derived from the data.
///
/// As text: `age:18..99` has integers, both ends included, `city:Bonn|Ulm` has names.
///
/// ```
/// use bandana_mechanisms::queries::universe::Column;
/// let age: Column = "age:18..99".parse()?;
/// assert_eq!((age.name(), age.values()), ("age", 82));
/// assert_eq!(age.code("20"), Some(2));
/// assert_eq!(age.to_string(), "age:18..99");
/// assert!("age:99..18".parse::<Column>().is_err());
/// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    name: String,
    domain: Domain,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Domain {
    Integers { lowest: i64, highest: i64 },
    Names(Vec<String>),
}

impl Column {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of values in the domain.
    pub fn values(&self) -> usize {
        match &self.domain {
            Domain::Integers { lowest, highest } => {
                let span = usize::try_from(highest.abs_diff(*lowest)).unwrap_or(usize::MAX);
                span.saturating_add(1)
            }
            Domain::Names(names) => names.len(),
        }
    }

    /// The lowest and the highest value, for a column of integers.
    pub fn range(&self) -> Option<(i64, i64)> {
        match self.domain {
            Domain::Integers { lowest, highest } => Some((lowest, highest)),
            Domain::Names(_) => None,
        }
    }

    /// The index of a value in the domain. None: not in the domain.
    pub fn code(&self, value: &str) -> Option<u16> {
        match &self.domain {
            Domain::Integers { .. } => self.code_of_integer(value.trim().parse().ok()?),
            Domain::Names(names) => {
                let place = names.iter().position(|name| name == value)?;
                u16::try_from(place).ok()
            }
        }
    }

    /// The index of an integer in the domain. None: not in the domain.
    pub fn code_of_integer(&self, value: i64) -> Option<u16> {
        let Domain::Integers { lowest, highest } = self.domain else {
            return self.code(&value.to_string());
        };
        let within = (lowest..=highest).contains(&value);
        u16::try_from(value.abs_diff(lowest)).ok().filter(|_| within)
    }

    /// The value at an index of the domain, as text.
    pub fn value(&self, code: u16) -> String {
        match &self.domain {
            Domain::Integers { lowest, .. } => (lowest + i64::from(code)).to_string(),
            Domain::Names(names) => names.get(usize::from(code)).cloned().unwrap_or_default(),
        }
    }

    /// The domain, for error messages.
    pub(super) fn describe(&self) -> String {
        match &self.domain {
            Domain::Integers { lowest, highest } => format!("it has integers {lowest}..{highest}"),
            Domain::Names(names) => format!("it has {}", names.join(", ")),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.domain {
            Domain::Integers { lowest, highest } => write!(f, "{}:{lowest}..{highest}", self.name),
            Domain::Names(names) => write!(f, "{}:{}", self.name, names.join("|")),
        }
    }
}

impl std::str::FromStr for Column {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Self, QueryError> {
        let wrong = |what| QueryError::Domain { column: text.to_owned(), what };
        let (name, values) = text.split_once(':').ok_or_else(|| {
            wrong("write NAME:LOWEST..HIGHEST for integers, or NAME:ONE|ANOTHER for names")
        })?;
        let reserved = |c: char| c.is_control() || "=,|:*".contains(c);
        if name.is_empty() || name.trim() != name || name.contains(reserved) {
            return Err(wrong("its name must not be empty nor have any of = , | : * in it"));
        }
        let range = values.split_once("..").map(|(low, high)| (low.parse(), high.parse()));
        let domain = if let Some((Ok(lowest), Ok(highest))) = range {
            Domain::Integers { lowest, highest }
        } else {
            let names: Vec<String> = values.split('|').map(str::to_owned).collect();
            let odd = |name: &String| name.is_empty() || name.contains(reserved);
            if names.iter().any(odd) {
                return Err(wrong("a value is empty, or has one of = , : * in it"));
            }
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            if distinct.len() < names.len() {
                return Err(wrong("a value is given twice"));
            }
            Domain::Names(names)
        };
        if let Domain::Integers { lowest, highest } = domain
            && lowest > highest
        {
            return Err(wrong("its lowest value is above its highest"));
        }
        let column = Self { name: name.to_owned(), domain };
        if column.values() > VALUES_MAX {
            return Err(wrong("it has more than 65536 values"));
        }
        Ok(column)
    }
}

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
            let domain = |what| QueryError::Domain { column: column.name.clone(), what };
            if place >= COLUMNS_MAX {
                return Err(domain("there are more than 256 columns"));
            }
            if columns.iter().take(place).any(|other| other.name == column.name) {
                return Err(domain("there are two columns of this name"));
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
        Self::new(columns)
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.0
    }

    /// The column with this name, and its index.
    ///
    /// # Errors
    /// [`QueryError::NoColumn`].
    pub fn find(&self, name: &str) -> Result<(usize, &Column), QueryError> {
        let found = self.0.iter().enumerate().find(|(_, column)| column.name == name);
        found.ok_or_else(|| QueryError::NoColumn { column: name.to_owned(), known: self.names() })
    }

    fn names(&self) -> String {
        self.0.iter().map(Column::name).collect::<Vec<_>>().join(", ")
    }

    /// The universe of these columns; of all columns if `names` is empty.
    ///
    /// # Errors
    /// [`QueryError::NoColumn`], and [`QueryError::TooManyCells`] beyond the limit of a histogram.
    pub fn universe<S: AsRef<str>>(&self, names: &[S]) -> Result<Universe, QueryError> {
        let places: Vec<usize> = if names.is_empty() {
            (0..self.0.len()).collect()
        } else {
            let place = |name: &S| self.find(name.as_ref()).map(|(place, _)| place);
            names.iter().map(place).collect::<Result<_, _>>()?
        };
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

    /// The indices of the columns in the data set.
    pub fn places(&self) -> &[usize] {
        &self.places
    }

    /// The cell with these codes, one for each column.
    pub fn cell(&self, codes: impl IntoIterator<Item = u16>) -> usize {
        let columns = self.schema.0.iter().zip(codes);
        columns.fold(0, |cell, (column, code)| cell * column.values() + usize::from(code))
    }

    /// The codes of a cell, one for each column.
    pub fn codes(&self, cell: usize) -> Vec<u16> {
        let mut rest = cell;
        let mut codes: Vec<u16> = self
            .schema
            .0
            .iter()
            .rev()
            .map(|column| {
                let code = rest % column.values();
                rest /= column.values();
                u16::try_from(code).unwrap_or(u16::MAX)
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
