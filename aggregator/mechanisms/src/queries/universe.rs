//! Columns with known domains, and the universe that they span.

use std::fmt;

use super::QueryError;
use super::cells::{CellSet, check_cells};
use super::quoting::{halves, name, parts, written};
use super::selection::Selection;
use super::spelling::{is_missing, truth};

/// Maximum number of values of a column.
pub const VALUES_MAX: usize = 1 << 16;

/// Maximum number of columns of a data set.
pub const COLUMNS_MAX: usize = 256;

/// A column with its domain, which is public and must not be derived from the data.
///
/// As text: `age:18..99` has integers, both ends included, `city:Bonn|Ulm` has names. A name in quotes
/// may have any character, such as in `income:"<=50K"|">50K"`.
///
/// True and false fit names that mean them and `flag:0..1`, however they are written.
///
/// What a row lacks is a value of its own, `sex:female|male|NA`, or a number that you choose,
/// `age:18..99?40`. `NULL`, `NaN`, `NA` and an empty text stand for it, however they are declared. Without
/// either, a file where something is missing does not fit the column.
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
    Integers {
        lowest: i64,
        highest: i64,
        /// What is read where the value is missing.
        missing: Option<i64>,
    },
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
            Domain::Integers { lowest, highest, .. } => {
                let span = usize::try_from(highest.abs_diff(*lowest)).unwrap_or(usize::MAX);
                span.saturating_add(1)
            }
            Domain::Names(names) => names.len(),
        }
    }

    /// The lowest and the highest value, for a column of integers.
    pub fn range(&self) -> Option<(i64, i64)> {
        match self.domain {
            Domain::Integers { lowest, highest, .. } => Some((lowest, highest)),
            Domain::Names(_) => None,
        }
    }

    /// The index of a value in the domain, without the blanks around it. None: not in the domain.
    ///
    /// A whole number may be written as a fraction, such as 18.0.
    pub fn code(&self, value: &str) -> Option<u16> {
        let text = value.trim();
        let names = match &self.domain {
            Domain::Names(names) => names,
            Domain::Integers { lowest, highest, missing } => {
                let replaced = || missing.filter(|_| is_missing(text));
                let is_truth = (*lowest, *highest) == (0, 1);
                let as_truth = || truth(text).filter(|_| is_truth).map(i64::from);
                let number = whole_number(text).or_else(as_truth);
                return self.code_of_integer(number.or_else(replaced)?);
            }
        };
        let named = |wanted: &str| names.iter().position(|name| name == wanted);
        // Of two that mean the same, neither is meant.
        let only = |is_meant: &dyn Fn(&str) -> bool| {
            let mut all = names.iter().enumerate().filter(|(_, name)| is_meant(name));
            all.next().filter(|_| all.next().is_none()).map(|(place, _)| place)
        };
        let same = || match truth_or_number(text) {
            Some(wanted) => only(&|name| truth_or_number(name) == Some(wanted)),
            None if is_missing(text) => only(&is_missing),
            None => None,
        };
        let place = named(value).or_else(|| named(text)).or_else(same)?;
        u16::try_from(place).ok()
    }

    /// The index of an integer in the domain. None: not in the domain.
    pub fn code_of_integer(&self, value: i64) -> Option<u16> {
        let Domain::Integers { lowest, highest, .. } = self.domain else {
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
            Domain::Integers { lowest, highest, .. } => {
                format!("it has integers {lowest}..{highest}")
            }
            Domain::Names(names) => format!("it has {}", names.join(", ")),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.domain {
            Domain::Integers { lowest, highest, missing } => {
                write!(f, "{}:{lowest}..{highest}", written(&self.name))?;
                missing.map_or(Ok(()), |missing| write!(f, "?{missing}"))
            }
            Domain::Names(names) => {
                let names: Vec<_> = names.iter().map(|name| written(name)).collect();
                write!(f, "{}:{}", written(&self.name), names.join("|"))
            }
        }
    }
}

impl std::str::FromStr for Column {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Self, QueryError> {
        let wrong = |what| QueryError::Domain { column: text.to_owned(), what };
        let (column, values) = halves(text, ':').ok_or_else(|| {
            wrong("write NAME:LOWEST..HIGHEST for integers, or NAME:ONE|ANOTHER for names")
        })?;
        let column = name(column).filter(|name| name.trim() == *name).ok_or_else(|| {
            wrong(
                "its name must not be empty, begin or end with a blank, nor have any of = , | : * in it; \
                 put a name with one of these in quotes",
            )
        })?;
        let domain = if let Some(range) = integers(values) {
            range
        } else {
            let names: Option<Vec<String>> =
                parts(values, '|').map(|part| name(part).map(Into::into)).collect();
            let names = names.ok_or_else(|| {
                wrong(
                    "a value is empty, or has one of = , : * in it; put a value with one of these in \
                     quotes",
                )
            })?;
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            if distinct.len() < names.len() {
                return Err(wrong("a value is given twice"));
            }
            Domain::Names(names)
        };
        if let Domain::Integers { lowest, highest, missing } = domain {
            if lowest > highest {
                return Err(wrong("its lowest value is above its highest"));
            }
            if missing.is_some_and(|missing| !(lowest..=highest).contains(&missing)) {
                return Err(wrong("what is read where a value is missing is outside of its range"));
            }
        }
        let column = Self { name: column.into_owned(), domain };
        if column.values() > VALUES_MAX {
            return Err(wrong("it has more than 65536 values"));
        }
        Ok(column)
    }
}

/// A whole number, also as floating point where that is exact.
fn whole_number(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
        let whole = number as i64;
        (number.fract() == 0.0 && number.abs() <= 2_f64.powi(53)).then_some(whole)
    })
}

/// True and false, where 1 and 0 may stand for them.
fn truth_or_number(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ => truth(text),
    }
}

/// A range of whole numbers, and what is read where the value is missing.
fn integers(text: &str) -> Option<Domain> {
    let (low, rest) = text.split_once("..")?;
    let (high, missing) = match rest.split_once('?') {
        Some((high, missing)) => (high, Some(missing.parse().ok()?)),
        None => (rest, None),
    };
    Some(Domain::Integers { lowest: low.parse().ok()?, highest: high.parse().ok()?, missing })
}

/// Refuses what is likely meant otherwise than it would be read.
fn check_declared(text: &str) -> Result<(), QueryError> {
    let wrong = |what| Err(QueryError::Domain { column: text.to_owned(), what });
    // What is no column at all has a message of its own.
    let Some((column, values)) = halves(text, ':') else { return Ok(()) };
    if column.trim().parse::<f64>().is_ok() {
        return wrong(
            "its name is a number, so it may be a value of a row; give the file a first line with names",
        );
    }
    if integers(values).is_some() {
        return Ok(());
    }
    if parts(values, '|').any(|part| !part.starts_with('"') && part.contains("..")) {
        return wrong(
            "a range has two whole numbers, such as 18..99, or 18..99?40 to read 40 where a value is \
             missing, and no fractions, steps or blanks; put a name with .. in quotes",
        );
    }
    let is_of_range = |c: char| c.is_ascii_digit() || " .-+–—:".contains(c);
    let is_single = parts(values, '|').count() == 1;
    let has_digits = values.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    if is_single && has_digits && values.chars().all(is_of_range) {
        return wrong("for a range of whole numbers write LOWEST..HIGHEST, such as 18..99");
    }
    Ok(())
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

    /// Parses columns that a person declares, and refuses what is likely meant otherwise.
    ///
    /// # Errors
    /// As [`Self::parse`], for a range that is none of whole numbers, for a single value that looks like a
    /// range, and for a name that is a number.
    ///
    /// ```
    /// use bandana_mechanisms::queries::universe::Schema;
    /// assert!(Schema::declared(&["age:18..99"]).is_ok());
    /// for wrong in ["price:0.5..9.5", "age:18-99", "age:30..40:5", "39:0..100"] {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn column(text: &str) -> Column {
        let column: Column = text.parse().unwrap();
        assert_eq!(column.to_string(), text);
        column
    }

    #[test]
    fn a_value_is_found_however_it_is_written() {
        let age = column("age:18..99?40");
        let found = ["18", " 18 ", "+18", "018", "18.0", "1.8e1", "", "NA", "NaN", "null"];
        let codes = found.map(|text| age.code(text));
        assert_eq!(codes[..6], [Some(0); 6]);
        assert_eq!(codes[6..], [Some(22); 4]);
        assert_eq!(column("age:18..99").code("NA"), None);
        assert_eq!(["17", "18.5", "inf", "eighteen"].map(|text| age.code(text)), [None; 4]);
        assert_eq!(column("visits:0..9").code("yes"), None);
        let flag = column("flag:0..1");
        let found = ["True", "f", "1", "2"].map(|text| flag.code(text));
        assert_eq!(found, [Some(1), Some(0), Some(1), None]);

        let ill = column("ill:no|yes|NA");
        let found = ["no", "FALSE", "f", "0", "Yes", "true", "t", "1", "", "NaN", "unknown"];
        let expected = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2].map(Some);
        assert_eq!(found.map(|text| ill.code(text))[..10], expected);
        assert_eq!(ill.code("unknown"), None);
        // What two names could mean is neither.
        assert_eq!(column("ill:yes|true|no").code("t"), None);
        assert_eq!(column("sex:female|male").code(""), None);
    }

    #[test]
    fn what_is_read_for_nothing_is_within_the_range() {
        for wrong in ["age:18..99?17", "age:18..99?100"] {
            assert!(wrong.parse::<Column>().is_err(), "{wrong}");
        }
        for wrong in ["age:18..99?", "age:18..99?x", "price:0.5..9.5", "age:20.. 30"] {
            assert!(Schema::declared(&[wrong]).is_err(), "{wrong}");
        }
    }
}
