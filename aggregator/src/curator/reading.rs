//! Data sets from files: CSV with a line of headings, or Parquet.

use std::fmt;
use std::io;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::CuratorError;
use super::rows::Rows;
use super::universe::Schema;

/// Largest file: 8 GiB. It is read as a whole.
pub const FILE_BYTES_MAX: u64 = 1 << 33;

/// SHA-256 of a data set's file, so that a changed file is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// As it was stored.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As it is stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads the columns of a schema from a file; others are left out. Files whose names end in
/// `.parquet` are Parquet, all others CSV.
///
/// # Errors
/// [`ReadError`]. It names a line and a column, and never a value.
pub fn read(path: &Path, schema: &Schema) -> Result<(Rows, Fingerprint), ReadError> {
    let length = std::fs::metadata(path).map_err(ReadError::File)?.len();
    if length > FILE_BYTES_MAX {
        return Err(ReadError::TooLarge);
    }
    let bytes = std::fs::read(path).map_err(ReadError::File)?;
    let fingerprint = Fingerprint::of(&bytes);
    let is_parquet = path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("parquet"));
    let rows = if is_parquet { parquet_rows(bytes, schema)? } else { csv_rows(&bytes, schema)? };
    if rows.count() == 0 {
        return Err(CuratorError::NoRows.into());
    }
    Ok((rows, fingerprint))
}

fn csv_rows(bytes: &[u8], schema: &Schema) -> Result<Rows, ReadError> {
    let mut reader = csv::Reader::from_reader(bytes);
    let headings = reader.byte_headers().map_err(|_| ReadError::Line { line: 1 })?.clone();
    let place = |name: &str| {
        let found = headings.iter().position(|heading| heading == name.as_bytes());
        found.ok_or_else(|| ReadError::Missing { column: name.to_owned() })
    };
    let columns = schema.columns();
    let places: Vec<usize> =
        columns.iter().map(|column| place(column.name())).collect::<Result<_, _>>()?;
    let mut rows = Rows::new(schema.clone());
    let mut record = csv::ByteRecord::new();
    let mut codes = Vec::with_capacity(columns.len());
    loop {
        let line = reader.position().line();
        if !reader.read_byte_record(&mut record).map_err(|_| ReadError::Line { line })? {
            return Ok(rows);
        }
        codes.clear();
        for (column, &place) in columns.iter().zip(&places) {
            let value = record.get(place).and_then(|value| std::str::from_utf8(value).ok());
            let code = value.and_then(|value| column.code(value));
            codes.push(code.ok_or_else(|| outside(column.name(), line))?);
        }
        rows.push(&codes)?;
    }
}

fn outside(column: &str, line: u64) -> ReadError {
    ReadError::Outside { column: column.to_owned(), line }
}

#[cfg(not(feature = "parquet"))]
fn parquet_rows(_: Vec<u8>, _: &Schema) -> Result<Rows, ReadError> {
    Err(ReadError::NoParquet)
}

#[cfg(feature = "parquet")]
fn parquet_rows(bytes: Vec<u8>, schema: &Schema) -> Result<Rows, ReadError> {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes))
        .map_err(|error| ReadError::Parquet { what: error.to_string() })?;
    let columns = schema.columns();
    let file = reader.metadata().file_metadata().schema_descr();
    let place = |name: &str| {
        let found = file.columns().iter().position(|column| column.path().string() == name);
        found.ok_or_else(|| ReadError::Missing { column: name.to_owned() })
    };
    let places: Vec<usize> =
        columns.iter().map(|column| place(column.name())).collect::<Result<_, _>>()?;
    let unreadable = |_| {
        ReadError::Parquet {
        what: "a row can't be read; write the file without nested columns, and without compression or \
               with Snappy"
            .to_owned(),
    }
    };
    let mut rows = Rows::new(schema.clone());
    let mut codes = Vec::with_capacity(columns.len());
    for (row, line) in reader.get_row_iter(None).map_err(unreadable)?.zip(1_u64..) {
        let row = row.map_err(unreadable)?;
        let fields: Vec<_> = row.get_column_iter().map(|(_, field)| field).collect();
        codes.clear();
        for (column, &place) in columns.iter().zip(&places) {
            let code = fields.get(place).and_then(|field| code_of(column, field));
            codes.push(code.ok_or_else(|| outside(column.name(), line))?);
        }
        rows.push(&codes)?;
    }
    Ok(rows)
}

#[cfg(feature = "parquet")]
fn code_of(column: &super::universe::Column, field: &parquet::record::Field) -> Option<u16> {
    use parquet::record::Field;

    let number = match field {
        Field::Str(text) => return column.code(text),
        Field::Bool(value) => return column.code(if *value { "true" } else { "false" }),
        Field::Byte(value) => i64::from(*value),
        Field::Short(value) => i64::from(*value),
        Field::Int(value) => i64::from(*value),
        Field::Long(value) => *value,
        Field::UByte(value) => i64::from(*value),
        Field::UShort(value) => i64::from(*value),
        Field::UInt(value) => i64::from(*value),
        Field::ULong(value) => i64::try_from(*value).ok()?,
        _ => return None,
    };
    column.code_of_integer(number)
}

/// Why a file is no data set.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It can't be read.
    #[error("the file can't be read")]
    File(#[source] io::Error),
    /// It is too large.
    #[error("the file has more than 8 GiB")]
    TooLarge,
    /// A line that is none of CSV.
    #[error("line {line} is not a line of CSV with as many values as there are headings")]
    Line {
        /// The line.
        line: u64,
    },
    /// A column that is not in the file.
    #[error("the file has no column {column:?}; its headings must have every declared column")]
    Missing {
        /// The column.
        column: String,
    },
    /// A value beyond what was declared.
    #[error(
        "the value of column {column:?} in line {line} is none that was declared; widen the \
         column, or mend the file"
    )]
    Outside {
        /// The column.
        column: String,
        /// The line of CSV, or the row of Parquet.
        line: u64,
    },
    /// A Parquet file that can't be understood.
    #[error("the Parquet file can't be read: {what}")]
    Parquet {
        /// Why.
        what: String,
    },
    /// This program reads no Parquet.
    #[error("this program reads CSV only; build it with `--features parquet`")]
    NoParquet,
    /// What was read is no data set.
    #[error(transparent)]
    Data(#[from] CuratorError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_csv(text: &str) -> Result<Rows, ReadError> {
        csv_rows(text.as_bytes(), &Schema::parse(&["age:18..20", "city:Bonn|Ulm"]).unwrap())
    }

    #[test]
    fn columns_are_found_by_their_headings() {
        let rows = from_csv("city,other,age\nUlm,x,20\nBonn,\"a,b\",18\n").unwrap();
        let universe = rows.schema().universe::<&str>(&[]).unwrap();
        assert_eq!(rows.histogram(&universe), [1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn errors_tell_the_place_and_never_the_value() {
        for (text, message) in [
            ("city\nUlm\n", "has no column \"age\""),
            ("age,city\n18,Ulm\n99,Ulm\n", "column \"age\" in line 3"),
            ("age,city\n18,Rome\n", "column \"city\" in line 2"),
            ("age,city\n18\n", "line 2 is not a line"),
        ] {
            let error = from_csv(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert!(!error.contains("99") && !error.contains("Rome"), "{error}");
        }
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_has_the_same_rows_as_csv() {
        use std::sync::Arc;

        use parquet::basic::Compression;
        use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
        use parquet::file::properties::WriterProperties;
        use parquet::file::writer::SerializedFileWriter;
        use parquet::schema::parser::parse_message_type;

        let message = "message people { required binary city (UTF8); required int32 age; }";
        let schema = Arc::new(parse_message_type(message).unwrap());
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let properties = Arc::new(properties.build());
        let mut file = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let cities = ["Ulm", "Bonn", "Ulm"].map(ByteArray::from);
        column.typed::<ByteArrayType>().write_batch(&cities, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[20, 18, 20], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        let bytes = file.into_inner().unwrap();

        let schema = Schema::parse(&["age:18..20", "city:Bonn|Ulm"]).unwrap();
        let rows = parquet_rows(bytes.clone(), &schema).unwrap();
        let universe = schema.universe::<&str>(&[]).unwrap();
        assert_eq!(rows.histogram(&universe), [1, 0, 0, 0, 0, 2]);
        let narrow = Schema::parse(&["age:18..19"]).unwrap();
        let error = parquet_rows(bytes, &narrow).unwrap_err().to_string();
        assert!(error.contains("column \"age\" in line 1"), "{error}");
        assert!(parquet_rows(b"age\n18\n".to_vec(), &schema).is_err());
    }
}
