//! Names of a column that are not declared, and how many rows have each.

use std::collections::{BTreeMap, HashMap};

use bandana_mechanisms::queries::spelling::is_missing;

use crate::datasets::text::decoded;

/// Longest name that is counted, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// How many rows have each name.
pub type NameCounts = BTreeMap<String, u64>;

/// The name of each row. What is counted of a row depends on that row alone.
#[derive(Default)]
pub(super) struct NamesOfRows {
    numbers: HashMap<String, u32>,
    /// None: a value that is no name.
    rows: Vec<Option<u32>>,
}

impl NamesOfRows {
    /// Adds the value of the next row. One that is missing, is longer than 256 bytes or has a control character
    /// is no name.
    pub(super) fn push(&mut self, value: &[u8]) {
        let text = decoded(value);
        let name = text.trim();
        let is_name =
            !is_missing(name) && name.len() <= NAME_BYTES_MAX && !name.contains(char::is_control);
        let number = is_name.then(|| {
            let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
            self.numbers.get(name).copied().unwrap_or_else(|| {
                self.numbers.insert(name.to_owned(), next);
                next
            })
        });
        self.rows.push(number);
    }

    /// How many rows have each name; of people, how many places, of which each has a row or none.
    pub(super) fn count(self, places: Option<&[Option<usize>]>) -> NameCounts {
        let mut counts = vec![0_u64; self.numbers.len()];
        let mut count = |number: Option<u32>| {
            let place = number.and_then(|number| usize::try_from(number).ok());
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count += 1;
            }
        };
        match places {
            None => self.rows.iter().for_each(|number| count(*number)),
            Some(places) => {
                let rows = places.iter().filter_map(|place| self.rows.get((*place)?));
                rows.for_each(|number| count(*number));
            }
        }
        let of = |(name, number): (String, u32)| {
            let count = usize::try_from(number).ok().and_then(|place| counts.get(place));
            (name, count.copied().unwrap_or(0))
        };
        self.numbers.into_iter().map(of).collect()
    }
}
