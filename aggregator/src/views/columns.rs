//! Columns of an export, the same in every file format.

use bandana_shared::identity::Day;

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

impl Cells {
    /// The text of a record's cell, in full precision; empty for a missing value.
    fn text(&self, record: usize) -> String {
        match self {
            Self::Text(cells) => cells[record].clone(),
            Self::Flags(cells) => cells[record].to_string(),
            Self::Days(cells) => date_of(cells[record]),
            Self::Places(cells) => cells[record].to_string(),
            Self::Counts(cells) => cells[record].to_string(),
            Self::Integers(cells) => cells[record].to_string(),
            Self::Numbers(cells) => cells[record].to_string(),
            Self::Estimates(cells) => cells[record].map(|n| n.to_string()).unwrap_or_default(),
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

/// The columns as CSV (RFC 4180), with a header line.
pub(crate) fn csv(columns: &[Column]) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|column| &column.name))?;
    for record in 0..columns.first().map_or(0, |column| column.cells.len()) {
        writer.write_record(columns.iter().map(|column| column.cells.text(record)))?;
    }
    Ok(writer.into_inner().map_err(csv::IntoInnerError::into_error)?)
}
