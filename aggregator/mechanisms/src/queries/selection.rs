//! Predicates as text: conjunctions of conditions on columns.

use std::collections::BTreeMap;

use super::QueryError;
use super::quoting::{halves, name, parts};
use super::universe::{Column, Schema};

/// A conjunction of conditions on a row.
///
/// `age=30..39,city=Bonn|Ulm` selects the rows with an age of 30 to 39 and one of the cities;
/// `income="<=50K"` has a value with a reserved character; `*` selects all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// The index of the column in its schema.
    place: usize,
    /// The codes that satisfy the condition, as inclusive ranges, in order and apart.
    ranges: Vec<(u32, u32)>,
}

impl Condition {
    fn new(place: usize, mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut apart: Vec<(u32, u32)> = Vec::new();
        for (low, high) in ranges {
            match apart.last_mut() {
                Some((_, last)) if low <= last.saturating_add(1) => *last = high.max(*last),
                _ => apart.push((low, high)),
            }
        }
        Self { place, ranges: apart }
    }

    fn has(&self, code: u32) -> bool {
        let after = self.ranges.partition_point(|(low, _)| *low <= code);
        let before = after.checked_sub(1).and_then(|place| self.ranges.get(place));
        before.is_some_and(|(_, high)| code <= *high)
    }

    /// The codes that satisfy both.
    fn and(&self, other: &Self) -> Self {
        let mut both = Vec::new();
        let (mut these, mut those) =
            (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(&&(low, high)), Some(&&(other_low, other_high))) =
            (these.peek(), those.peek())
        {
            let (begin, end) = (low.max(other_low), high.min(other_high));
            if begin <= end {
                both.push((begin, end));
            }
            if high < other_high {
                these.next()
            } else {
                those.next()
            };
        }
        Self { place: self.place, ranges: both }
    }
}

impl Selection {
    /// Parses conditions on the columns of a schema.
    ///
    /// # Errors
    /// [`QueryError::Predicate`], [`QueryError::NoColumn`], and [`QueryError::OutsideDomain`] for a
    /// value outside its column's domain.
    pub fn parse(text: &str, schema: &Schema) -> Result<Self, QueryError> {
        if text.trim() == "*" {
            return Ok(Self::all_of(schema));
        }
        let condition = |part: &str| -> Result<Condition, QueryError> {
            let wrong = || QueryError::Predicate { text: text.to_owned() };
            let (column, values) = halves(part, '=').ok_or_else(wrong)?;
            let (place, column) = schema.find(&name(column.trim()).ok_or_else(wrong)?)?;
            let ranges = parts(values, '|').map(|value| range(column, value.trim()));
            Ok(Condition::new(place, ranges.collect::<Result<_, _>>()?))
        };
        // One for each column, so that the work for a row does not grow with the text.
        let of_people = Self::all_of(schema).conditions.into_iter();
        let mut conditions: BTreeMap<usize, Condition> =
            of_people.map(|condition| (condition.place, condition)).collect();
        for part in parts(text, ',') {
            let found = condition(part)?;
            let both = conditions.get(&found.place).map(|other| other.and(&found));
            conditions.insert(found.place, both.unwrap_or(found));
        }
        // What all values meet is no condition, and a question without one can have less noise.
        let is_one = |condition: &Condition| {
            let values = schema.columns().get(condition.place).map_or(0, Column::values);
            let last = u32::try_from(values.saturating_sub(1)).unwrap_or(u32::MAX);
            condition.ranges != [(0, last)]
        };
        Ok(Self { conditions: conditions.into_values().filter(is_one).collect() })
    }

    /// Parses conditions, where an empty text selects all rows.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(super) fn of_rows(text: &str, schema: &Schema) -> Result<Self, QueryError> {
        if text.is_empty() { Ok(Self::all_of(schema)) } else { Self::parse(text, schema) }
    }

    /// All places for rows.
    pub(super) fn all() -> Self {
        Self { conditions: Vec::new() }
    }

    /// All rows. Where people have places for rows, these are the places that have one.
    fn all_of(schema: &Schema) -> Self {
        let has_one = |(place, _)| Condition::new(place, vec![(1, 1)]);
        Self { conditions: schema.people().map(has_one).into_iter().collect() }
    }

    /// Whether every place for a row satisfies it, since it has no condition.
    pub(super) fn is_all(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether no row can satisfy it.
    pub(super) fn is_none(&self) -> bool {
        self.conditions.iter().any(|condition| condition.ranges.is_empty())
    }

    /// Whether it has a condition on the column with this index.
    pub(super) fn names(&self, place: usize) -> bool {
        self.conditions.iter().any(|condition| condition.place == place)
    }

    /// The ranges of codes in its conditions on the column with this index.
    pub(super) fn ranges(&self, place: usize) -> impl Iterator<Item = (u32, u32)> + '_ {
        let conditions = self.conditions.iter().filter(move |condition| condition.place == place);
        conditions.flat_map(|condition| condition.ranges.iter().copied())
    }

    /// Whether this code of a column satisfies all conditions on that column.
    pub(super) fn holds_of(&self, place: usize, code: u32) -> bool {
        let of_column = |condition: &&Condition| condition.place == place;
        self.conditions.iter().filter(of_column).all(|condition| condition.has(code))
    }

    /// Whether a row satisfies all conditions, given the code of each column.
    pub fn holds(&self, code: impl Fn(usize) -> Option<u32>) -> bool {
        // All conditions are looked at, so that the time for a row does not follow from its values.
        self.conditions.iter().fold(true, |all, condition| {
            all & code(condition.place).is_some_and(|code| condition.has(code))
        })
    }
}

/// The codes of a value or, for integers, of a range of them.
fn range(column: &Column, text: &str) -> Result<(u32, u32), QueryError> {
    let outside = |value: &str, domain: String| QueryError::OutsideDomain {
        column: column.name().to_owned(),
        value: value.to_owned(),
        domain,
    };
    let code = |value: &str, text: &str| {
        column.code(value).ok_or_else(|| outside(text, column.describe()))
    };
    if let (Some((low, high)), true) = (text.split_once(".."), column.range().is_some()) {
        let ends = (code(low, low)?, code(high, high)?);
        let is_range = ends.0 <= ends.1;
        return is_range
            .then_some(ends)
            .ok_or_else(|| outside(text, "its lower end is above its upper end".to_owned()));
    }
    let value = name(text).ok_or_else(|| outside(text, column.describe()))?;
    let code = code(&value, text)?;
    Ok((code, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_select_what_they_say() {
        let schema = Schema::parse(&["age:18..20", "city:Bonn|Ulm"]).unwrap();
        let universe = schema.universe::<&str>(&[]).unwrap();
        let members = |text: &str| {
            let cells: Vec<usize> = universe.select(text).unwrap().members().collect();
            cells
        };
        // Cells: 18 Bonn, 18 Ulm, 19 Bonn, 19 Ulm, 20 Bonn, 20 Ulm.
        assert_eq!(members("*"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(members("age=19..20,city=Ulm"), [3, 5]);
        assert_eq!(members("age=18|20"), [0, 1, 4, 5]);
        assert_eq!(members("age=20|18..19|18,city=Ulm"), [1, 3, 5]);
        assert_eq!(members("age=18..19,city=Ulm,age=19|20"), [3]);
        assert!(members("age=18,age=20").is_empty());
        assert_eq!(members("city=Bonn|Ulm , age=18"), [0, 1]);
        let odd = Schema::parse(&[r#""a:b":"<=50K"|">50K"|"a,b""#]).unwrap();
        let odd = odd.universe::<&str>(&[]).unwrap();
        let cells: Vec<usize> = odd.select(r#""a:b"="<=50K"|"a,b""#).unwrap().members().collect();
        assert_eq!(cells, [0, 2]);
        for (wrong, message) in [
            ("", "is no predicate"),
            ("age", "is no predicate"),
            ("age=17", "can't have the value \"17\": it has integers 18..20"),
            ("age=20..18", "can't have the value \"20..18\": its lower end is above its upper end"),
            ("age=18..21", "can't have the value \"21\": it has integers 18..20"),
            ("city=Rom", "it has Bonn, Ulm"),
            ("sex=f", "outside the universe; it has age, city"),
        ] {
            let error = universe.select(wrong).unwrap_err().to_string();
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
