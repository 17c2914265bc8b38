//! Digests of contents: the multiset of rows over named columns, independent of the file's format.
//!
//! Two files have the same content if they have the same rows, with the same multiplicities, over
//! columns of the same names. The order of rows and columns does not count, nor the format, nor how
//! a value is written:
//! - 18, 018, +18 and 18.0 are one number;
//! - true, t, yes and 1 are one, and so are false, f, no and 0;
//! - an instant is one in whatever offset, a time without one is of UTC, and a date is its midnight;
//! - a text is one in UTF-8, UTF-16 and Windows-1252, and a UUID is one in capitals and in braces;
//! - an empty value is none, and so are those that programs write for none, such as `NULL` and `NaN`.
//!
//! Names of columns differ by more than case, blanks and punctuation. A column that only numbers the
//! rows, from 0 or 1 on, in whatever order, does not count beside others. All others do, declared in
//! the schema or not.
//!
//! Formats differ in precision, so values are compared at that of the coarsest format: numbers of a
//! column that has fractions in 32 bits of floating point, of others in 64, times to the millisecond.
//! Contents that differ by less count as the same, which can refuse a budget and never grant one.

use std::borrow::Cow;

use bandana_mechanisms::queries::spelling::{is_missing, truth};
use bandana_store::fingerprint::ContentDigests;
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};
use sha2::{Digest as _, Sha256};

use super::text::{decoded, uuid};

/// What makes two contents the same.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// Of an earlier version: numbers, times of RFC 3339, true and false, and the names as they are.
    First,
    /// As above, with whether each column has fractions.
    Second(Vec<bool>),
}

impl Form {
    /// Whether this number of a column is compared in 32 bits.
    fn is_coarse(&self, place: usize, number: f64) -> bool {
        let has_fractions = match self {
            Self::First => None,
            Self::Second(have_fractions) => have_fractions.get(place).copied(),
        };
        has_fractions.unwrap_or(false) || number.fract() != 0.0
    }
}

/// Incremental hasher of a content.
#[derive(Debug)]
pub struct ContentHasher {
    current: FormHasher,
    earlier: FormHasher,
}

impl ContentHasher {
    /// A hasher for rows of these columns, some of which only number the rows.
    pub fn new<N: AsRef<[u8]>>(headings: &[N], numbering: &Numbering) -> Self {
        let counts = |place: &usize| !numbering.numbers(*place);
        let counting = (0..headings.len()).filter(counts).collect();
        let all = (0..headings.len()).collect();
        let have_fractions = numbering.have_fractions.clone();
        Self {
            current: FormHasher::new(headings, counting, Form::Second(have_fractions)),
            earlier: FormHasher::new(headings, all, Form::First),
        }
    }

    /// Adds a row; `value` returns the text of the column at an index.
    pub fn push<V: AsRef<[u8]>>(&mut self, value: impl Fn(usize) -> Option<V>) {
        self.current.push(&value);
        self.earlier.push(&value);
    }

    /// The digests of the content.
    pub fn finish(self) -> ContentDigests {
        ContentDigests { current: self.current.finish(), earlier: self.earlier.finish() }
    }
}

/// The columns that may only number the rows, and those that have fractions, by what was seen of them.
#[derive(Debug)]
pub struct Numbering {
    columns: Vec<Option<Numbers>>,
    have_fractions: Vec<bool>,
    rows: u64,
}

/// The whole numbers of a column.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    from_zero: bool,
    /// The sum of hashes of all numbers: equal sums are equal multisets, but for one case in 2^64.
    hashes: u64,
}

impl Numbering {
    /// So many columns, of which nothing was seen.
    pub fn new(columns: usize) -> Self {
        let have_fractions = vec![false; columns];
        Self { columns: vec![Some(Numbers::default()); columns], have_fractions, rows: 0 }
    }

    /// Looks at a row.
    pub fn look<V: AsRef<[u8]>>(&mut self, value: impl Fn(usize) -> Option<V>) {
        self.rows += 1;
        let columns = self.columns.iter_mut().zip(&mut self.have_fractions).enumerate();
        for (place, (column, has_fractions)) in columns {
            if column.is_none() && *has_fractions {
                continue;
            }
            let number = value(place).and_then(|value| number(value.as_ref()));
            *has_fractions |=
                number.is_some_and(|number| number.is_finite() && number.fract() != 0.0);
            let Some(seen) = column else { continue };
            match number.and_then(whole) {
                Some(number) => {
                    seen.from_zero |= number == 0;
                    seen.hashes = seen.hashes.wrapping_add(scrambled(number));
                }
                None => *column = None,
            }
        }
    }

    /// Compares what was seen with the numbers of so many rows.
    #[must_use]
    pub fn decided(mut self) -> Self {
        for column in &mut self.columns {
            *column = column.filter(|seen| {
                let first = u64::from(!seen.from_zero);
                let hashes = (first..first + self.rows).map(scrambled);
                self.rows > 1 && hashes.fold(0, u64::wrapping_add) == seen.hashes
            });
        }
        // Something must be left that is numbered.
        if self.columns.iter().all(Option::is_some) {
            self.columns.fill(None);
        }
        self
    }

    fn numbers(&self, place: usize) -> bool {
        self.columns.get(place).is_some_and(Option::is_some)
    }
}

/// A number, however it is written.
fn number(bytes: &[u8]) -> Option<f64> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// A whole number from 0 on.
fn whole(number: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number below 2^53"
    )]
    let whole = number as u64;
    (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(whole)
}

/// A hash of a number: the finalizer of MurmurHash3, which is a permutation.
fn scrambled(number: u64) -> u64 {
    let mut hash = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// A hasher of one form.
#[derive(Debug)]
struct FormHasher {
    form: Form,
    /// The indices of the columns, in the order of their names.
    order: Vec<usize>,
    names: Sha256,
    /// The digest of each row, truncated to 128 bits: enough to distinguish rows.
    rows: Vec<u128>,
    row: Vec<u8>,
}

impl FormHasher {
    /// A hasher for rows of these columns.
    fn new<N: AsRef<[u8]>>(headings: &[N], mut order: Vec<usize>, form: Form) -> Self {
        let heading = |place: &usize| {
            let name = headings.get(*place).map(AsRef::as_ref).unwrap_or_default().trim_ascii();
            match form {
                Form::First => name.to_vec(),
                Form::Second(_) => folded(name),
            }
        };
        let plain = |place: &usize| headings.get(*place).map(AsRef::as_ref);
        order.sort_by_key(|place| (heading(place), plain(place)));
        let mut text = Vec::new();
        for place in &order {
            append(b'h', &heading(place), &mut text);
        }
        let names = Sha256::new_with_prefix(&text);
        Self { form, order, names, rows: Vec::new(), row: Vec::new() }
    }

    fn push<V: AsRef<[u8]>>(&mut self, value: impl Fn(usize) -> Option<V>) {
        self.row.clear();
        for &place in &self.order {
            match value(place) {
                Some(value) => append_value((&self.form, place), value.as_ref(), &mut self.row),
                None => append(b'n', b"", &mut self.row),
            }
        }
        self.rows.push(first_half(&self.row));
    }

    fn finish(mut self) -> [u8; 32] {
        self.rows.sort_unstable();
        let mut digest = self.names;
        digest.update((self.rows.len() as u64).to_be_bytes());
        for row in self.rows {
            digest.update(row.to_be_bytes());
        }
        digest.finalize().into()
    }
}

/// Whose row it is, given the value that says so: a text, a UUID, or a whole number of any length, which
/// formats write with or without a fraction of zeros.
pub fn person(value: &[u8]) -> u128 {
    let text = decoded(value);
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_whole || fraction.bytes().any(|byte| byte != b'0') {
        return first_half(uuid(text).as_deref().unwrap_or(text).as_bytes());
    }
    let sign = if whole.starts_with('-') { "-" } else { "" };
    first_half(format!("{sign}{}", digits.trim_start_matches('0')).as_bytes())
}

/// The SHA-256 digest, truncated to 128 bits.
fn first_half(bytes: &[u8]) -> u128 {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default())
}

/// A heading without case, blanks and punctuation; as it is if nothing else is in it.
fn folded(name: &[u8]) -> Vec<u8> {
    let text = decoded(name);
    let letters = text.chars().filter(|letter| letter.is_alphanumeric());
    let folded: String = letters.flat_map(char::to_lowercase).collect();
    if folded.is_empty() { name.to_vec() } else { folded.into_bytes() }
}

/// Appends the canonical form of a value of the column at this place.
fn append_value((form, place): (&Form, usize), bytes: &[u8], row: &mut Vec<u8>) {
    let is_second = *form != Form::First;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) if is_second => decoded(bytes),
        Err(_) => return append(b'b', bytes, row),
    };
    let text = text.trim();
    if text.is_empty() || is_second && is_missing(text) {
        return append(b'n', b"", row);
    }
    let named = truth(text).filter(|_| is_second).map(|is_true| f64::from(u8::from(is_true)));
    if let Some(number) = named.or_else(|| text.parse::<f64>().ok()) {
        let number = canonical(number, form.is_coarse(place, number));
        return append(b'f', &number.to_bits().to_be_bytes(), row);
    }
    let time = if is_second { milliseconds(text) } else { milliseconds_of_rfc_3339(text) };
    match time {
        Some(time) => append(b'd', &time.to_be_bytes(), row),
        None if text.eq_ignore_ascii_case("true") => append(b't', b"true", row),
        None if text.eq_ignore_ascii_case("false") => append(b't', b"false", row),
        None => match uuid(text).filter(|_| is_second) {
            Some(uuid) => append(b't', uuid.as_bytes(), row),
            None => append(b't', text.as_bytes(), row),
        },
    }
}

/// One number for all that are equal, at the precision that all formats share.
fn canonical(number: f64, is_coarse: bool) -> f64 {
    if number.is_nan() {
        return f64::NAN;
    }
    #[expect(clippy::cast_possible_truncation, reason = "that is what is wanted")]
    let number = if is_coarse { f64::from(number as f32) } else { number };
    // Negative zero becomes zero.
    number + 0.0
}

/// Milliseconds of a date with or without a time, or of a time of day, with an offset as it is written
/// by PostgreSQL, DuckDB, pandas or RFC 3339. Without one the time is UTC.
fn milliseconds(text: &str) -> Option<i64> {
    let is_date = matches!(text.as_bytes(), [_, _, _, _, b'-', _, _, b'-', _, _, ..]);
    let is_time = matches!(text.as_bytes(), [_, _, b':', _, _, ..]);
    if is_date && text.len() == 10 {
        let date: NaiveDate = text.parse().ok()?;
        return Some(date.and_time(NaiveTime::MIN).and_utc().timestamp_millis());
    }
    if !is_date && !is_time {
        return None;
    }
    let (local, ahead) = without_offset(text, if is_date { 10 } else { 0 })?;
    let passed = |time: NaiveTime| time.signed_duration_since(NaiveTime::MIN);
    let time = |text: &str| {
        let formats = ["%H:%M:%S%.f", "%H:%M"];
        formats.into_iter().find_map(|format| NaiveTime::parse_from_str(text, format).ok())
    };
    if is_time {
        let behind = whole_milliseconds(passed(time(local)?) - ahead)?;
        return Some(behind.rem_euclid(TimeDelta::days(1).num_milliseconds()));
    }
    let (date, rest) = local.split_at_checked(10)?;
    let rest = rest.strip_prefix([' ', 'T', 't'])?;
    let date: NaiveDate = date.parse().ok()?;
    let midnight = date.and_time(NaiveTime::MIN).and_utc().timestamp_millis();
    Some(midnight + whole_milliseconds(passed(time(rest)?) - ahead)?)
}

/// Rounded down, also before midnight.
fn whole_milliseconds(time: TimeDelta) -> Option<i64> {
    // All digits: a count of microseconds would be rounded towards zero before.
    Some(time.num_nanoseconds()?.div_euclid(1_000_000))
}

/// A time without its offset, which begins after the first `from` bytes, and how far it is ahead of
/// UTC.
fn without_offset(text: &str, from: usize) -> Option<(&str, TimeDelta)> {
    let ends = ["Z", "z", " UTC", " utc", " GMT"];
    if let Some(local) = ends.into_iter().find_map(|end| text.strip_suffix(end)) {
        return Some((local.trim_end(), TimeDelta::zero()));
    }
    let (head, tail) = text.split_at_checked(from)?;
    let Some(place) = tail.find(['+', '-']) else { return Some((text, TimeDelta::zero())) };
    let (local, offset) = (text.get(..head.len() + place)?.trim_end(), tail.get(place..)?);
    let digits: String = offset.chars().skip(1).filter(|digit| *digit != ':').collect();
    if ![2, 4, 6].contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part = |place: usize| digits.get(place..place + 2).map_or(Some(0), |two| two.parse().ok());
    let (hours, minutes, seconds): (i64, i64, i64) = (part(0)?, part(2)?, part(4)?);
    let ahead = TimeDelta::seconds(hours * 3600 + minutes * 60 + seconds);
    Some((local, if offset.starts_with('-') { -ahead } else { ahead }))
}

/// As an earlier version read it.
fn milliseconds_of_rfc_3339(text: &str) -> Option<i64> {
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

    #[test]
    fn people_are_told_apart_exactly_and_whole_numbers_however_they_are_written() {
        let of = |text: &str| person(text.as_bytes());
        for same in ["7", " 7", "7.0", "+7", "007", "7."] {
            assert_eq!(of(same), of("7"), "{same}");
        }
        // Others would be one as floating point of 64 bits, as instants, or as true and false.
        let apart = [
            "7",
            "-7",
            "7.5",
            "7e0",
            "12e999",
            "99e999",
            "yes",
            "true",
            "1",
            "a7",
            "A7",
            "9007199254740992",
            "9007199254740993",
            "20000000000000000000001",
            "2020-01-02",
            "2020-01-02T00:00:00Z",
            "é",
        ];
        let of_uuid = of("550e8400-e29b-41d4-a716-44665544000a");
        assert_eq!(of("{550E8400-E29B-41D4-A716-44665544000A}"), of_uuid);
        let people: std::collections::BTreeSet<u128> = apart.map(of).into();
        assert_eq!(people.len(), apart.len());
        assert_eq!(person(b"\xe9"), of("é"));
    }

    fn digest(headings: &[&str], rows: &[Vec<String>]) -> [u8; 32] {
        let mut numbering = Numbering::new(headings.len());
        for row in rows {
            numbering.look(|place| row.get(place));
        }
        let mut hasher = ContentHasher::new(headings, &numbering.decided());
        for row in rows {
            hasher.push(|place| row.get(place));
        }
        hasher.finish().current
    }

    fn of_value(value: &str) -> [u8; 32] {
        // Two rows, neither of which has a number of a row.
        let rows = [value, "777"].map(|value| vec![value.to_owned()]);
        digest(&["a"], &rows)
    }

    #[test]
    fn instants_are_rounded_down_on_whatever_day_they_are() {
        for same in [
            &[
                "2020-01-02 22:50:54.999338Z",
                "2020-01-03 00:50:54.999338+02",
                "2020-01-02T22:50:54.999Z",
            ][..],
            &["22:50:54.9993Z", "00:50:54.9993+02", "22:50:54.999"],
            &[
                "2020-01-02 22:50:54.9999999Z",
                "2020-01-03 00:50:54.9999999+02",
                "2020-01-02T22:50:54.999Z",
            ],
            &["22:50:54.123999999Z", "00:50:54.123999999+02", "22:50:54.123"],
        ] {
            assert!(same.iter().all(|value| of_value(value) == of_value(same[0])), "{same:?}");
        }
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
            &["inf", "Infinity", "1e400", "10e399"],
            &["2020-01-02", "2020-01-02 00:00:00", "2020-01-02T00:00:00Z"],
            &[
                "2020-01-02 03:04:05.678901",
                "2020-01-02T03:04:05.678",
                "2020-01-02 04:04:05.678+01:00",
            ],
            // As PostgreSQL and DuckDB, pandas, BigQuery and RFC 3339 write one instant.
            &[
                "2020-01-02 03:04:05-07",
                "2020-01-02 10:04:05+00",
                "2020-01-02 10:04:05.000+00:00",
                "2020-01-02T10:04:05Z",
                "2020-01-02t10:04:05z",
                "2020-01-02 10:04:05 UTC",
                "2020-01-02 15:34:05+0530",
                "2020-01-03 00:04:05+14:00",
                "2020-01-02 10:04:05",
                "2020-01-02T10:04:05.000",
            ],
            &["2020-01-02 03:04", "2020-01-02 03:04:00", "2020-01-01 20:04-07"],
            &["03:04:05", "03:04:05.000", "03:04:05+00", "20:04:05-07", "03:04:05Z"],
            &["0", "-0", "0.0", "-0.0"],
            &["0.25", ".25", "25e-2"],
            &["true", "True", "TRUE", "t", "T", "yes", "y", "1", "1.0", "on"],
            &["false", "False", "f", "no", "N", "0", "-0", "off"],
            &["550e8400-e29b-41d4-a716-44665544000a", "550E8400-E29B-41d4-A716-44665544000A"],
            &["", " ", "NULL", "null", "None", "NaN", "nan", "NA", "\\N", "<NA>", "NaT"],
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
        for name in [" a ", "A", "\u{feff}a", "a_", "\"a\""] {
            assert_eq!(digest(&["a"], &[]), digest(&[name], &[]), "{name}");
        }
        assert_eq!(digest(&["monthly pay"], &[]), digest(&["Monthly_Pay"], &[]));
        assert_ne!(digest(&["-"], &[]), digest(&["+"], &[]));
    }

    #[test]
    fn a_column_that_numbers_the_rows_does_not_count() {
        let rows = |columns: &[&[&str]]| -> Vec<Vec<String>> {
            (0..3).map(|row| columns.iter().map(|all| all[row].to_owned()).collect()).collect()
        };
        let (ages, names) = (&["31", "19", "44"][..], &["Ada", "Bob", "Cem"][..]);
        let plain = digest(&["age", "name"], &rows(&[ages, names]));
        for index in [["0", "1", "2"], ["1", "2", "3"], ["2", "0", "1"], ["3.0", "1", "02"]] {
            for heading in ["", "Unnamed: 0", "__index_level_0__", "id"] {
                let with = rows(&[&index, ages, names]);
                assert_eq!(digest(&[heading, "age", "name"], &with), plain, "{index:?}");
            }
        }
        for data in [["0", "1", "1"], ["2", "3", "4"], ["0", "1", "3"], ["0", "1", "x"]] {
            assert_ne!(digest(&["id", "age", "name"], &rows(&[&data, ages, names])), plain);
        }
    }

    #[test]
    fn what_an_earlier_version_registered_is_known_by_its_digest() {
        // By Python, from what that version's documentation says.
        let mut hasher = ContentHasher::new(&["b", "A"], &Numbering::new(0));
        for row in [["t", "1"], ["2020-01-02T03:04:05Z", "0"], ["NaN", ""]] {
            hasher.push(|place| row.get(place));
        }
        let digest = hasher.finish().earlier;
        let hex = digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        assert_eq!(hex, "755a1c70a496372a8d74accd6e4d4f94a58a3ce92456b1ae801eb9501753a79a");
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
