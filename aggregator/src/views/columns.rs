//! Columns of an export, the same in every file format.

use bandana_shared::identity::Day;

use serde::Serializer as _;
use serde_json::Value;

use super::date::date_of;

/// A column with one cell per record.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) cells: Cells,
}

/// The cells of a column, all of one type.
#[derive(Debug)]
pub(crate) enum Cells {
    Text(Vec<String>),
    Flags(Vec<bool>),
    /// Dates in UTC.
    Days(Vec<Day>),
    /// Indices of arms.
    Places(Vec<u32>),
    Counts(Vec<u64>),
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    /// Optional numbers.
    Estimates(Vec<Option<f64>>),
}

impl From<Vec<i64>> for Cells {
    fn from(integers: Vec<i64>) -> Self {
        Self::Integers(integers)
    }
}

impl Cells {
    /// The text of a record's cell, in full precision; empty for a missing value.
    fn text(&self, record: usize) -> String {
        match self {
            Self::Text(cells) => shown_as_text(cells[record].clone()),
            Self::Flags(cells) => cells[record].to_string(),
            Self::Days(cells) => date_of(cells[record]),
            Self::Places(cells) => cells[record].to_string(),
            Self::Counts(cells) => cells[record].to_string(),
            Self::Integers(cells) => cells[record].to_string(),
            Self::Numbers(cells) => cells[record].to_string(),
            Self::Estimates(cells) => cells[record].map(|n| n.to_string()).unwrap_or_default(),
        }
    }

    /// The JSON value of a record's cell; null for a missing one.
    fn value(&self, record: usize) -> Value {
        match self {
            Self::Text(cells) => cells[record].clone().into(),
            Self::Flags(cells) => cells[record].into(),
            Self::Days(cells) => date_of(cells[record]).into(),
            Self::Places(cells) => cells[record].into(),
            Self::Counts(cells) => cells[record].into(),
            Self::Integers(cells) => cells[record].into(),
            Self::Numbers(cells) => cells[record].into(),
            Self::Estimates(cells) => cells[record].into(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(cells) => cells.len(),
            Self::Flags(cells) => cells.len(),
            Self::Days(cells) => cells.len(),
            Self::Places(cells) => cells.len(),
            Self::Counts(cells) => cells.len(),
            Self::Integers(cells) => cells.len(),
            Self::Numbers(cells) => cells.len(),
            Self::Estimates(cells) => cells.len(),
        }
    }
}

/// Whether a spreadsheet would calculate a text rather than show it.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err()
}

/// A text in CSV. Before one that a spreadsheet would calculate there is an apostrophe, which it hides.
fn shown_as_text(text: String) -> String {
    if is_formula(&text) { format!("'{text}") } else { text }
}

/// A text as it was before it was written to CSV.
pub(crate) fn as_it_was(text: &str) -> &str {
    text.strip_prefix('\'').filter(|rest| is_formula(rest)).unwrap_or(text)
}

/// A text format of files with columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// RFC 4180, with a header line.
    Csv,
    /// A JSON array with an object for each record, one on a line.
    Json,
}

/// A file that is written in parts, each with the same columns.
#[derive(Debug)]
pub(crate) struct File {
    form: Form,
    has_begun: bool,
    has_records: bool,
}

impl File {
    pub(crate) fn new(form: Form) -> Self {
        Self { form, has_begun: false, has_records: false }
    }

    /// The bytes of the next records. Without any, the first part still has what every file begins
    /// with.
    pub(crate) fn part(&mut self, columns: &[Column]) -> anyhow::Result<Vec<u8>> {
        let records = 0..columns.first().map_or(0, |column| column.cells.len());
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        match self.form {
            Form::Csv => {
                let mut writer = csv::Writer::from_writer(Vec::new());
                if is_first {
                    let names = columns.iter().map(|column| shown_as_text(column.name.clone()));
                    writer.write_record(names)?;
                }
                for record in records {
                    writer.write_record(columns.iter().map(|column| column.cells.text(record)))?;
                }
                Ok(writer.into_inner().map_err(csv::IntoInnerError::into_error)?)
            }
            Form::Json => {
                let mut bytes = if is_first { b"[".to_vec() } else { Vec::new() };
                for record in records {
                    let is_next = std::mem::replace(&mut self.has_records, true);
                    bytes.extend(if is_next { &b",\n"[..] } else { b"\n" });
                    let fields =
                        columns.iter().map(|column| (&column.name, column.cells.value(record)));
                    serde_json::Serializer::new(&mut bytes).collect_map(fields)?;
                }
                Ok(bytes)
            }
        }
    }

    /// The bytes after the last part.
    pub(crate) fn end(&self) -> &'static [u8] {
        match self.form {
            Form::Csv => b"",
            Form::Json => b"\n]\n",
        }
    }
}

/// The columns as a whole file.
pub(crate) fn whole(form: Form, columns: &[Column]) -> anyhow::Result<Vec<u8>> {
    let mut file = File::new(form);
    let mut bytes = file.part(columns)?;
    bytes.extend(file.end());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_the_same_names_in_the_same_order() {
        let column = |name: &str, cells| Column { name: name.to_owned(), cells };
        let columns = [
            column("label", Cells::Text(vec!["a \"b\"".to_owned(), "c".to_owned()])),
            column("arm", Cells::Places(vec![0, 1])),
            column("estimate", Cells::Estimates(vec![Some(0.5), None])),
        ];
        let json = |columns: &[Column]| whole(Form::Json, columns).unwrap();
        let text = String::from_utf8(json(&columns)).unwrap();
        let first = "{\"label\":\"a \\\"b\\\"\",\"arm\":0,\"estimate\":0.5}";
        let second = "{\"label\":\"c\",\"arm\":1,\"estimate\":null}";
        assert_eq!(text, format!("[\n{first},\n{second}\n]\n"));
        let text = String::from_utf8(whole(Form::Csv, &columns).unwrap()).unwrap();
        assert!(text.starts_with("label,arm,estimate\n"), "{text}");
        assert_eq!(json(&[]), b"[\n]\n");
    }

    #[test]
    fn a_spreadsheet_calculates_no_text() {
        let texts = ["=1+1", "+a", "-a", "@a", "\ta", "-1.5", "+2", "'a", "a=1", ""];
        let cells = Cells::Text(texts.map(str::to_owned).to_vec());
        let column = [Column { name: "=label".to_owned(), cells }];
        let written = String::from_utf8(whole(Form::Csv, &column).unwrap()).unwrap();
        let expected = "'=label\n'=1+1\n'+a\n'-a\n'@a\n'\ta\n-1.5\n+2\n'a\na=1\n\"\"\n";
        assert_eq!(written, expected);
        for text in texts {
            assert_eq!(as_it_was(&shown_as_text(text.to_owned())), text);
        }
        let json = String::from_utf8(whole(Form::Json, &column).unwrap()).unwrap();
        assert!(json.contains("\"=label\":\"=1+1\""), "{json}");
    }

    #[test]
    fn parts_make_the_same_file_as_the_whole() {
        let column =
            |arms: &[u32]| [Column { name: "arm".to_owned(), cells: Cells::Places(arms.to_vec()) }];
        for form in [Form::Csv, Form::Json] {
            let mut file = File::new(form);
            let mut bytes = Vec::new();
            for part in [&[][..], &[1], &[], &[2, 3]] {
                bytes.extend(file.part(&column(part)).unwrap());
            }
            bytes.extend(file.end());
            assert_eq!(bytes, whole(form, &column(&[1, 2, 3])).unwrap(), "{form:?}");
        }
    }
}
