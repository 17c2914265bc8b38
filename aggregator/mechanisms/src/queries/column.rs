//! Columns with known domains.

use std::collections::HashMap;
use std::fmt;

use super::QueryError;
use super::numbers::{Numbers, decimal, numbers};
use super::quoting::{halves, name, parts, written};
use super::spelling::{is_missing, truth};

/// Maximum number of names of a column, and of the values that a choice, or a synthetic table, may have.
pub const VALUES_MAX: usize = 1 << 16;

/// Maximum number of numbers of a column.
const NUMBERS_MAX: u64 = 1 << 32;

/// Maximum number of rows of each person.
const ROWS_OF_ONE_MAX: u32 = 1000;

/// A column with its domain, which is public and must not be derived from the data.
///
/// | as text | values |
/// |---|---|
/// | `age:18..99` | whole numbers, both ends included |
/// | `temp:-5..40:0.5` | numbers in steps of 0.5; a number between two steps counts as the nearer one |
/// | `age:18..99!` | a number beyond the range counts as the nearer end |
/// | `age:18..99?40` | 40 where the value is missing |
/// | `city:Bonn\|Ulm` | names; a name in quotes may have any character: `income:"<=50K"\|">50K"` |
/// | `city:Bonn\|Ulm\|other*` | every other name counts as `other` |
/// | `street:other*` | every name counts as `other`, until names are found: see [`Self::with_names`] |
/// | `sex:female\|male\|NA` | a missing value is a value of its own |
/// | `patient@3` | the person whose row it is; at most 3 rows of each person are kept, drawn at random |
///
/// True and false, however they are written, fit `flag:0..1`, and `ill:no|yes`: names of which one
/// means true and one means false, and none stands for every other. `NULL`, `NaN`, `NA` and an empty
/// text stand for a missing value, however it is declared. If a file has a value outside the domain,
/// it does not fit the column.
///
/// ```
/// use bandana_mechanisms::queries::universe::Column;
/// let age: Column = "age:18..99".parse()?;
/// assert_eq!((age.name(), age.values()), ("age", 82));
/// assert_eq!(age.code("20"), Some(2));
/// assert_eq!(age.to_string(), "age:18..99");
/// assert!("age:99..18".parse::<Column>().is_err());
/// let price: Column = "price:0..10:0.25!".parse()?;
/// assert_eq!(price.read("9.1").map(|code| price.value(code)), Some("9.00".to_owned()));
/// assert_eq!(price.read("11").map(|code| price.value(code)), Some("10.00".to_owned()));
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
    Numbers(Numbers),
    Names(Names),
    /// Whether there is a row at a place for one, 0 or 1. Everybody has so many places.
    People {
        rows_of_each: u32,
    },
}

/// Names, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Names {
    all: Vec<String>,
    places: HashMap<String, u32>,
    /// Whether the last one stands for every other name.
    has_other: bool,
}

impl Names {
    fn new(all: Vec<String>, has_other: bool) -> Result<Self, &'static str> {
        if all.len() > VALUES_MAX {
            return Err("it has more than 65536 names");
        }
        let places: HashMap<_, _> = all.iter().cloned().zip(0..).collect();
        if places.len() < all.len() {
            return Err("a value is given twice");
        }
        Ok(Self { all, places, has_other })
    }

    /// The index of the name that a text is, or means. A missing value, however it is written, means the only
    /// name for one. True and false, however they are written, mean the names for them, if there is one of each
    /// and no name stands for every other.
    fn named(&self, value: &str) -> Option<u32> {
        let text = value.trim();
        let only = |is_meant: &dyn Fn(&str) -> bool| {
            let mut all = self.all.iter().zip(0..).filter(|(name, _)| is_meant(name));
            all.next().filter(|_| all.next().is_none()).map(|(_, place)| place)
        };
        let of_truth = |wanted| only(&|name| truth_or_number(name) == Some(wanted));
        let same = || match truth_or_number(text) {
            // Among names that nobody has listed, such as NO and F, each is one of its own.
            Some(_) if self.has_other => None,
            Some(wanted) => of_truth(!wanted).and_then(|_| of_truth(wanted)),
            None if is_missing(text) => only(&is_missing),
            None => None,
        };
        let named = |wanted| self.places.get(wanted).copied();
        // 1.0 means the name 1: programs write it so where a value of the column is missing. Beside names that
        // nobody has listed it is one of its own.
        let whole = || {
            let (whole, rest) = text.split_once('.').filter(|_| !self.has_other)?;
            let is_whole = whole.parse::<i64>().is_ok() && rest.bytes().all(|digit| digit == b'0');
            is_whole.then(|| named(whole)).flatten()
        };
        named(value).or_else(|| named(text)).or_else(same).or_else(whole)
    }
}

impl Column {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of values in the domain.
    pub fn values(&self) -> usize {
        match &self.domain {
            Domain::Numbers(numbers) => numbers.values(),
            Domain::Names(names) => names.all.len(),
            Domain::People { .. } => 2,
        }
    }

    /// The lowest and the highest value, for a column of numbers, in units of the last decimal: see
    /// [`Self::decimals`].
    pub fn range(&self) -> Option<(i64, i64)> {
        match self.domain {
            Domain::Numbers(Numbers { lowest, highest, .. }) => Some((lowest, highest)),
            Domain::Names(_) | Domain::People { .. } => None,
        }
    }

    /// The number at an index of the domain, in units of the last decimal.
    pub fn units(&self, code: u32) -> Option<i64> {
        match self.domain {
            Domain::Numbers(numbers) => Some(numbers.lowest + i64::from(code) * numbers.step),
            Domain::Names(_) | Domain::People { .. } => None,
        }
    }

    /// The difference of neighbouring numbers, in the same units; 0 where there are none.
    pub(super) fn step(&self) -> i64 {
        match self.domain {
            Domain::Numbers(Numbers { step, .. }) => step,
            Domain::Names(_) | Domain::People { .. } => 0,
        }
    }

    /// The number of decimals, 0 to 9. A unit is 1 in the last decimal.
    pub fn decimals(&self) -> u32 {
        match self.domain {
            Domain::Numbers(Numbers { decimals, .. }) => decimals,
            Domain::Names(_) | Domain::People { .. } => 0,
        }
    }

    /// Whether numbers beyond the range count as its ends.
    pub fn is_clamped(&self) -> bool {
        matches!(self.domain, Domain::Numbers(Numbers { is_clamped: true, .. }))
    }

    /// The largest number of rows kept of each person, or `None` for a column that does not say
    /// whose row it is.
    pub fn rows_of_each(&self) -> Option<u32> {
        match self.domain {
            Domain::People { rows_of_each } => Some(rows_of_each),
            _ => None,
        }
    }

    /// The column with more names, before the one that stands for every other. A name that it has already is
    /// left out.
    ///
    /// # Errors
    /// [`QueryError::Domain`], if no name stands for every other, or there are too many.
    ///
    /// ```
    /// use bandana_mechanisms::queries::universe::Column;
    /// let street: Column = "street:other*".parse()?;
    /// let found = ["Main St", "other", "a|b"].map(str::to_owned);
    /// assert_eq!(street.with_names(found)?.to_string(), r#"street:Main St|"a|b"|other*"#);
    /// assert!("street:Main St".parse::<Column>()?.with_names(["x".to_owned()]).is_err());
    /// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
    /// ```
    pub fn with_names(&self, found: impl IntoIterator<Item = String>) -> Result<Self, QueryError> {
        let wrong = |what| QueryError::Domain { column: self.name.clone(), what };
        let none_for_others = "no name of it stands for every other; declare it with one that does, such as street:other*";
        let Domain::Names(Names { all, places, has_other: true }) = &self.domain else {
            return Err(wrong(none_for_others));
        };
        let mut names = all.clone();
        let other = names.pop();
        names.extend(found.into_iter().filter(|name| !places.contains_key(name)));
        names.extend(other);
        let domain = Names::new(names, true).map(Domain::Names).map_err(wrong)?;
        Ok(Self { name: self.name.clone(), domain })
    }

    /// The domain's index of a value from a file, or `None` if the value has no place in the
    /// domain. Blanks around the value are ignored.
    ///
    /// A whole number may be written as a fraction, such as 18.0.
    pub fn read(&self, value: &str) -> Option<u32> {
        let text = value.trim();
        match &self.domain {
            Domain::Numbers(numbers) => numbers.read(text, true),
            Domain::Names(names) => {
                let last = u32::try_from(names.all.len() - 1).ok();
                names.named(value).or_else(|| last.filter(|_| names.has_other))
            }
            Domain::People { .. } => (!is_missing(text)).then_some(1),
        }
    }

    /// The domain's index of a value. Unlike for [`Self::read`], only values of the domain itself
    /// have one.
    pub fn code(&self, value: &str) -> Option<u32> {
        match &self.domain {
            Domain::Numbers(numbers) => numbers.read(value.trim(), false),
            Domain::Names(names) => names.named(value),
            Domain::People { .. } => None,
        }
    }

    /// The value at an index of the domain, as text.
    pub fn value(&self, code: u32) -> String {
        match &self.domain {
            Domain::Numbers(numbers) => numbers.value(code),
            Domain::Names(names) => {
                let place = usize::try_from(code).ok();
                place.and_then(|place| names.all.get(place)).cloned().unwrap_or_default()
            }
            Domain::People { .. } => String::new(),
        }
    }

    /// The domain, for error messages.
    pub(super) fn describe(&self) -> String {
        match &self.domain {
            Domain::Numbers(numbers) => {
                let Numbers { lowest, highest, step, decimals, .. } = *numbers;
                let text = |units| decimal(units, decimals);
                let (lowest, highest) = (text(lowest), text(highest));
                if numbers.is_whole() {
                    format!("it has integers {lowest}..{highest}")
                } else {
                    format!("it has numbers {lowest}..{highest} in steps of {}", text(step))
                }
            }
            Domain::Names(names) => format!("it has {}", names.all.join(", ")),
            Domain::People { .. } => "it says whose row it is".to_owned(),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = written(&self.name);
        match &self.domain {
            Domain::Numbers(numbers) => write!(f, "{name}:{numbers}"),
            Domain::Names(Names { all, has_other, .. }) => {
                let names: Vec<_> = all.iter().map(|name| written(name)).collect();
                write!(f, "{name}:{}{}", names.join("|"), if *has_other { "*" } else { "" })
            }
            Domain::People { rows_of_each } => write!(f, "{name}@{rows_of_each}"),
        }
    }
}

impl std::str::FromStr for Column {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Self, QueryError> {
        let wrong = |what| QueryError::Domain { column: text.to_owned(), what };
        let (column, domain) = if let Some((column, values)) = halves(text, ':') {
            let values = values.trim();
            let domain = match numbers(values) {
                Some(numbers) => Domain::Numbers(numbers.map_err(wrong)?),
                None => names(values).map_err(wrong)?,
            };
            (column, domain)
        } else {
            let (column, rows) = text.rsplit_once('@').ok_or_else(|| {
                wrong(
                    "write NAME:LOWEST..HIGHEST for integers, NAME:ONE|ANOTHER for names, or NAME@3 for \
                     the column that says whose row it is",
                )
            })?;
            (column, people(rows).map_err(wrong)?)
        };
        let column = name(column.trim()).filter(|name| name.trim() == *name).ok_or_else(|| {
            wrong(
                "its name must not be empty, nor have a control character, nor any of = , | : * outside of \
                 quotes; blanks around it in the file don't count, so leave them out",
            )
        })?;
        let column = Self { name: column.into_owned(), domain };
        if column.values() as u64 > NUMBERS_MAX {
            return Err(wrong(
                "it has more than 4294967296 values; give numbers a larger step, such as 0..1000000:100",
            ));
        }
        Ok(column)
    }
}

fn people(rows: &str) -> Result<Domain, &'static str> {
    let rows = rows.parse().ok().filter(|rows| (1..=ROWS_OF_ONE_MAX).contains(rows));
    let rows_of_each =
        rows.ok_or("after @ comes how many rows of each person are kept at most, 1 to 1000")?;
    Ok(Domain::People { rows_of_each })
}

fn names(values: &str) -> Result<Domain, &'static str> {
    let (values, has_other) = match values.strip_suffix('*') {
        Some(rest) if !rest.ends_with('|') => (rest, true),
        _ => (values, false),
    };
    if values.contains(char::is_control) {
        return Err(
            "a value has a line break or another control character; let it count as other: other*",
        );
    }
    let names: Option<Vec<String>> =
        parts(values, '|').map(|part| name(part.trim()).map(Into::into)).collect();
    let names = names.ok_or(
        "a value is empty, or has one of = , : * outside of quotes; put such a value in quotes",
    )?;
    Names::new(names, has_other).map(Domain::Names)
}

/// True and false, where 1 and 0 may stand for them.
fn truth_or_number(text: &str) -> Option<bool> {
    match text {
        "1" | "1.0" => Some(true),
        "0" | "0.0" => Some(false),
        _ => truth(text),
    }
}

/// Refuses what is likely meant otherwise than it would be read.
pub(super) fn check_declared(text: &str) -> Result<(), QueryError> {
    let wrong = |what| Err(QueryError::Domain { column: text.to_owned(), what });
    // What is no column at all has a message of its own.
    let Some((column, values)) = halves(text, ':') else { return Ok(()) };
    if column.trim().parse::<f64>().is_ok() {
        return wrong(
            "its name is a number, so it may be a value of a row; give the file a first line with names",
        );
    }
    if numbers(values).is_some() {
        return Ok(());
    }
    if parts(values, '|').any(|part| !part.starts_with('"') && part.contains("..")) {
        return wrong(
            "a range has two whole numbers, such as 18..99, or numbers with a step, such as \
             -5..40:0.5; then ! if values beyond it count as its ends, and ?40 to read 40 where a \
             value is missing; no blanks; put a name with .. in quotes",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::universe::Schema;

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
        assert_eq!(["17", "18.5", "inf", "eighteen"].map(|text| age.read(text)), [None; 4]);
        assert_eq!(column("visits:0..9").code("yes"), None);
        let flag = column("flag:0..1");
        let found = ["True", "f", "1", "2"].map(|text| flag.code(text));
        assert_eq!(found, [Some(1), Some(0), Some(1), None]);

        let ill = column("ill:no|yes|NA");
        let found = ["no", "FALSE", "f", "0", "Yes", "true", "t", "1", "", "NaN", "unknown"];
        let expected = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2].map(Some);
        assert_eq!(found.map(|text| ill.read(text))[..10], expected);
        assert_eq!(ill.read("unknown"), None);
        // What two names could mean is neither, nor is a name what another one is beside others.
        for (names, text) in [
            ("ill:yes|true|no", "t"),
            ("ill:yes|true|no", "f"),
            ("grade:A|B|F", "no"),
            ("country:DE|NO", "n"),
            ("size:1|2|3", "y"),
        ] {
            assert_eq!(column(names).code(text), None, "{names} {text}");
        }
        let open = column("country:DE|NO|Y|other*");
        for (text, value) in [("N", "other"), ("0", "other"), ("yes", "other"), ("NO", "NO")] {
            assert_eq!(open.read(text).map(|code| open.value(code)).as_deref(), Some(value));
        }
        let size = column("size:1|2|3");
        assert_eq!(
            ["1.0", "2.", "02", "4.0", "1.5", "."].map(|text| size.read(text)),
            [Some(0), Some(1), None, None, None, None]
        );
        let code = column("code:1234|other*");
        for (text, value) in [("1234", "1234"), ("01234", "other"), ("1234.0", "other")] {
            assert_eq!(code.read(text).map(|place| code.value(place)).as_deref(), Some(value));
        }
        assert_eq!(column("ill:no|yes").read("1.0"), Some(1));
        assert_eq!(column("sex:female|male").code(""), None);
    }

    #[test]
    fn what_lies_beyond_is_declared_or_refused() {
        let age = column("age:18..99!?40");
        let read = ["17", "-1e300", "100", "9223372036854775808", "NA", "50"];
        assert_eq!(read.map(|text| age.read(text)), [0, 0, 81, 81, 22, 32].map(Some));
        // A fraction is none of these numbers, wherever it lies, and a predicate means what it says.
        assert_eq!(["17.5", "120.5", "x"].map(|text| age.read(text)), [None; 3]);
        assert_eq!(["inf", "-1e400"].map(|text| age.read(text)), [Some(81), Some(0)]);
        assert_eq!(["17", "100"].map(|text| age.code(text)), [None; 2]);

        let city = column("city:Bonn|\"the rest*\"*");
        let read = ["Bonn", "Ulm", " Bonn ", "", "the rest*"];
        assert_eq!(read.map(|text| city.read(text)), [0, 1, 0, 1, 1].map(Some));
        assert_eq!(["Ulm", "the rest*"].map(|text| city.code(text)), [None, Some(1)]);
        let known = column("sex:f|m|NA|other*");
        assert_eq!(["", "x", "f"].map(|text| known.read(text)), [2, 3, 0].map(Some));
    }

    #[test]
    fn numbers_in_steps_count_as_the_nearest_one() {
        let temp = column("temp:-5.0..40.0:0.5?0.0");
        assert_eq!((temp.values(), temp.range(), temp.decimals()), (91, Some((-50, 400)), 1));
        for (text, value) in [
            ("-5", "-5.0"),
            ("39.74", "39.5"),
            ("39.76", "40.0"),
            ("1e1", "10.0"),
            ("0.1", "0.0"),
            ("NaN", "0.0"),
        ] {
            assert_eq!(temp.read(text).map(|code| temp.value(code)), Some(value.into()), "{text}");
        }
        assert_eq!(["-5.1", "40.1", "inf", "x"].map(|text| temp.read(text)), [None; 4]);
        let metres = column("metres:0..20000:1!");
        let read = ["2710.349", "2710.5", "-3", "inf"].map(|text| metres.read(text));
        assert_eq!(read, [2710, 2711, 0, 20_000].map(Some));
        let hundreds: Column = "income:0..1000000:100!".parse().unwrap();
        assert_eq!(hundreds.values(), 10_001);
        let read = ["49", "51", "1e9", "-1e9"].map(|text| hundreds.read(text).unwrap());
        assert_eq!(read.map(|code| hundreds.value(code)), ["0", "100", "1000000", "0"]);
        assert_eq!(hundreds.units(3), Some(300));
        assert!(temp.describe().ends_with("-5.0..40.0 in steps of 0.5"));
        let all = (0..91).map(|code| temp.code(&temp.value(code)));
        assert!(all.eq((0..91).map(Some)));
    }

    #[test]
    fn what_is_read_for_nothing_is_within_the_range() {
        for wrong in [
            "age:18..99?17",
            "age:18..99?100",
            "temp:0..1:0.3",
            "temp:0..1:0",
            "temp:0..1:0.5?0.2",
            "temp:0..1:0.0000000001",
            "temp:0..9007199254740993:4503599627370496.5",
        ] {
            assert!(wrong.parse::<Column>().is_err(), "{wrong}");
        }
        let blanks: Column = "city : Bonn | Ulm |\" x\"".parse().unwrap();
        assert_eq!(blanks.to_string(), "city:Bonn|Ulm|\" x\"");
        assert_eq!("age: 18..99 ".parse::<Column>().unwrap().to_string(), "age:18..99");
        let error = "city:\"a\nb\"".parse::<Column>().unwrap_err().to_string();
        assert!(error.contains("line break"), "{error}");
        let error = Schema::declared(&["id:0..99999999999999999999"]).unwrap_err().to_string();
        assert!(error.contains("its numbers are too large"), "{error}");
        for wrong in
            ["age:18..99?", "age:18..99?x", "price:0.5..9.5", "age:20.. 30", "a:0..1:", "a:0..1:x"]
        {
            assert!(Schema::declared(&[wrong]).is_err(), "{wrong}");
        }
    }
}
