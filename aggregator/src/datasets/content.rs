//! Digests of contents: the multiset of rows over named columns, independent of the file's format.
//!
//! Two files have the same content if they have the same rows, with the same multiplicities, over
//! columns of the same names. The order of rows and columns does not count, nor the format, nor how
//! a number is written: 18, 018, +18 and 18.0 are one value, and so are an empty one and none. All
//! columns of the file count, declared in the schema or not.
//!
//! Formats differ in precision, so values are compared at that of the coarsest format: whole
//! numbers in 64 bits of floating point, others in 32, times to the millisecond. Contents that
//! differ by less count as the same, which can refuse a budget and never grant one.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};
use sha2::{Digest as _, Sha256};

/// Incremental hasher of a content.
#[derive(Debug)]
pub struct ContentHasher {
    /// The indices of the columns, in the order of their names.
    order: Vec<usize>,
    names: Sha256,
    /// The digest of each row, truncated to 128 bits: enough to distinguish rows.
    rows: Vec<u128>,
    row: Vec<u8>,
}

impl ContentHasher {
    /// A hasher for rows of these columns.
    pub fn new<N: AsRef<[u8]>>(headings: &[N]) -> Self {
        let heading = |place: &usize| {
            headings.get(*place).map(AsRef::as_ref).unwrap_or_default().trim_ascii()
        };
        let mut order: Vec<usize> = (0..headings.len()).collect();
        order.sort_by_key(heading);
        let mut text = Vec::new();
        for place in &order {
            append(b'h', heading(place), &mut text);
        }
        let names = Sha256::new_with_prefix(&text);
        Self { order, names, rows: Vec::new(), row: Vec::new() }
    }

    /// Adds a row; `value` returns the text of the column at an index.
    pub fn push<V: AsRef<[u8]>>(&mut self, value: impl Fn(usize) -> Option<V>) {
        self.row.clear();
        for &place in &self.order {
            match value(place) {
                Some(value) => append_value(value.as_ref(), &mut self.row),
                None => append(b'n', b"", &mut self.row),
            }
        }
        let digest: [u8; 32] = Sha256::digest(&self.row).into();
        let half = digest.first_chunk().copied().unwrap_or_default();
        self.rows.push(u128::from_be_bytes(half));
    }

    /// The digest of the content.
    pub fn finish(mut self) -> [u8; 32] {
        self.rows.sort_unstable();
        let mut digest = self.names;
        digest.update((self.rows.len() as u64).to_be_bytes());
        for row in self.rows {
            digest.update(row.to_be_bytes());
        }
        digest.finalize().into()
    }
}

/// Appends the canonical form of a value.
fn append_value(bytes: &[u8], row: &mut Vec<u8>) {
    let Ok(text) = std::str::from_utf8(bytes) else { return append(b'b', bytes, row) };
    let text = text.trim();
    if text.is_empty() {
        return append(b'n', b"", row);
    }
    if let Ok(number) = text.parse::<f64>() {
        return append(b'f', &coarse(number).to_bits().to_be_bytes(), row);
    }
    match milliseconds(text) {
        Some(time) => append(b'd', &time.to_be_bytes(), row),
        None if text.eq_ignore_ascii_case("true") => append(b't', b"true", row),
        None if text.eq_ignore_ascii_case("false") => append(b't', b"false", row),
        None => append(b't', text.as_bytes(), row),
    }
}

/// Rounds a number to the precision that all formats share.
fn coarse(number: f64) -> f64 {
    if number.is_nan() {
        return f64::NAN;
    }
    #[expect(clippy::cast_possible_truncation, reason = "that is what is wanted")]
    let number = if number.fract() == 0.0 { number } else { f64::from(number as f32) };
    // Negative zero becomes zero.
    number + 0.0
}

/// Milliseconds of a date with or without a time, or of a time of day. Without an offset the time
/// is UTC.
fn milliseconds(text: &str) -> Option<i64> {
    // A cheap check rejects most texts that are no times.
    match text.as_bytes() {
        [_, _, _, _, b'-', _, _, b'-', _, _] => {
            let date: NaiveDate = text.parse().ok()?;
            Some(date.and_time(NaiveTime::MIN).and_utc().timestamp_millis())
        }
        [_, _, _, _, b'-', _, _, b'-', _, _, b' ' | b'T' | b't', ..] => {
            let local = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"]
                .into_iter()
                .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
            let utc = || DateTime::parse_from_rfc3339(text).ok().map(|time| time.naive_utc());
            Some(local.or_else(utc)?.and_utc().timestamp_millis())
        }
        [_, _, b':', _, _, b':', ..] => {
            let time = NaiveTime::parse_from_str(text, "%H:%M:%S%.f").ok()?;
            let passed = time.signed_duration_since(NaiveTime::MIN);
            Some(passed.num_milliseconds())
        }
        _ => None,
    }
}

fn append(kind: u8, bytes: &[u8], row: &mut Vec<u8>) {
    row.push(kind);
    row.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    row.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(headings: &[&str], rows: &[Vec<String>]) -> [u8; 32] {
        let mut hasher = ContentHasher::new(headings);
        for row in rows {
            hasher.push(|place| row.get(place));
        }
        hasher.finish()
    }

    fn of_value(value: &str) -> [u8; 32] {
        digest(&["a"], &[vec![value.to_owned()]])
    }

    #[test]
    fn values_are_the_same_however_they_are_written() {
        for same in [
            &["18", "018", "+18", " 18 ", "18.0", "1.8e1"][..],
            &["9007199254740993", "9007199254740993.0", "9.007199254740993e15"],
            &["12345678901234567890123", "12345678901234567890123.0"],
            &["18446744073709551616", "18446744073709551616.", "1.8446744073709551616e19"],
            // A 32-bit number, written as one and as 64 bits.
            &["0.1", "0.10000000149011612"],
            &["NaN", "nan"],
            &["inf", "Infinity", "1e400", "10e399"],
            &["2020-01-02", "2020-01-02 00:00:00", "2020-01-02T00:00:00Z"],
            &[
                "2020-01-02 03:04:05.678901",
                "2020-01-02T03:04:05.678",
                "2020-01-02 04:04:05.678+01:00",
            ],
            &["03:04:05", "03:04:05.000"],
            &["0", "-0", "0.0", "-0.0"],
            &["0.25", ".25", "25e-2"],
            &["true", "True", "TRUE"],
            &["", " "],
        ] {
            assert!(same.iter().all(|value| of_value(value) == of_value(same[0])), "{same:?}");
        }
        let different = [
            "18",
            "19",
            "-18",
            "0.25",
            "Ulm",
            "ulm",
            "",
            "true",
            "NaN",
            "inf",
            "-inf",
            "9007199254740993",
            "2020-01-02",
            "2020-01-03",
            "2020-01-02 00:00:01",
            "2020-13-01",
        ];
        for (place, value) in different.iter().enumerate() {
            let others = &different[..place];
            assert!(others.iter().all(|other| of_value(other) != of_value(value)), "{value}");
        }
        // The boundaries between values are part of the digest.
        let two = |a: &str, b: &str| digest(&["a", "b"], &[vec![a.to_owned(), b.to_owned()]]);
        assert_ne!(two("xy", "z"), two("x", "yz"));
        assert_ne!(digest(&["a"], &[]), digest(&["b"], &[]));
        assert_eq!(digest(&["a"], &[]), digest(&[" a "], &[]));
    }

    proptest! {
        #[test]
        fn only_the_rows_count_and_not_their_order(
            rows in prop::collection::vec(prop::collection::vec("[a-c]{0,2}", 3), 0..8),
            swaps in prop::collection::vec((0_usize..8, 0_usize..8), 0..8),
            columns in Just([0_usize, 1, 2]).prop_shuffle(),
            changed in any::<prop::sample::Index>(),
        ) {
            let headings = ["x", "y", "z"];
            let expected = digest(&headings, &rows);
            let mut other: Vec<Vec<String>> = rows
                .iter()
                .map(|row| columns.iter().map(|&column| row[column].clone()).collect())
                .collect();
            for (a, b) in swaps.into_iter().filter(|&(a, b)| a.max(b) < rows.len()) {
                other.swap(a, b);
            }
            let names = columns.map(|column| headings[column]);
            prop_assert_eq!(digest(&names, &other), expected);
            if let Some(last) = other.last().cloned() {
                let mut twice = other.clone();
                twice.push(last);
                prop_assert_ne!(digest(&names, &twice), expected);
                let place = changed.index(other.len());
                other[place][1].push('!');
                prop_assert_ne!(digest(&names, &other), expected);
            }
        }
    }
}
