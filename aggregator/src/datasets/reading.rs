//! Data sets from files: CSV with a line of headings, or Parquet.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::{Column, Schema};
use thiserror::Error;

use super::content::ContentHasher;
use super::data_file::DataFile;

impl DataFile {
    /// The columns of a schema; others are left out.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn rows(&self, schema: &Schema) -> Result<Rows, ReadError> {
        self.read_rows(schema, false).map(|(rows, _)| rows)
    }

    /// The columns of a schema, and the digest of the content of all columns.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn rows_and_content(&self, schema: &Schema) -> Result<(Rows, [u8; 32]), ReadError> {
        self.read_rows(schema, true)
    }

    /// Whether no two columns have one name. If two do, their order decides which of them a
    /// question is about, and the same rows in another order would be another content. For new
    /// data sets: older ones go on as they were.
    ///
    /// # Errors
    /// [`ReadError::SameName`]; [`ReadError`] of files that can't be read.
    pub fn check_headings(&self) -> Result<(), ReadError> {
        if self.is_parquet {
            return unless_it_panics(|| check_parquet_headings(self));
        }
        check_names(csv_headings(&mut csv_reader(self))?.iter().collect())
    }

    fn read_rows(&self, schema: &Schema, content: bool) -> Result<(Rows, [u8; 32]), ReadError> {
        let (rows, content) = if self.is_parquet {
            unless_it_panics(|| parquet_rows(self, schema, content))?
        } else {
            csv_rows(self, schema, content)?
        };
        if rows.count() == 0 {
            return Err(QueryError::NoRows.into());
        }
        Ok((rows, content))
    }
}

/// What is read of a file. All of it is read, also when it has shown that it does not fit: how long
/// a refusal takes does not tell where.
struct Reading {
    rows: Rows,
    codes: Vec<u16>,
    /// The first line where each column has something else than was declared.
    misfits: Vec<Option<u64>>,
    /// The first line that is none.
    broken: Option<u64>,
    content: Option<ContentHasher>,
}

impl Reading {
    fn new<N: AsRef<[u8]>>(schema: &Schema, headings: &[N], content: bool) -> Self {
        let rows = Rows::new(schema.clone());
        let misfits = vec![None; schema.columns().len()];
        let content = content.then(|| ContentHasher::new(headings));
        Self { rows, codes: Vec::new(), misfits, broken: None, content }
    }

    /// Takes a row, given the code of each declared column and the text in each place.
    fn push<V: AsRef<[u8]>>(
        &mut self,
        line: u64,
        codes: impl Iterator<Item = Option<u16>>,
        text: impl Fn(usize) -> Option<V>,
    ) -> Result<(), ReadError> {
        self.codes.clear();
        for (code, misfit) in codes.zip(&mut self.misfits) {
            if code.is_none() {
                misfit.get_or_insert(line);
            }
            self.codes.push(code.unwrap_or_default());
        }
        if let Some(content) = &mut self.content {
            content.push(text);
        }
        Ok(self.rows.push(&self.codes)?)
    }

    fn finish(self) -> Result<(Rows, [u8; 32]), ReadError> {
        let mut columns = self.rows.schema().columns().iter().zip(self.misfits);
        let misfit = columns.find_map(|(column, line)| Some((column.name(), line?)));
        if let Some((column, line)) = misfit {
            return Err(ReadError::Outside { column: column.to_owned(), line });
        }
        if let Some(line) = self.broken {
            return Err(ReadError::Line { line });
        }
        Ok((self.rows, self.content.map(ContentHasher::finish).unwrap_or_default()))
    }
}

fn check_names(mut names: Vec<&[u8]>) -> Result<(), ReadError> {
    // As contents have them.
    for name in &mut names {
        *name = name.trim_ascii();
    }
    names.sort_unstable();
    if names.is_sorted_by(|one, next| one < next) { Ok(()) } else { Err(ReadError::SameName) }
}

/// Where each declared column is.
fn places(schema: &Schema, place: impl Fn(&str) -> Option<usize>) -> Result<Vec<usize>, ReadError> {
    let find = |column: &Column| {
        place(column.name()).ok_or_else(|| ReadError::Missing { column: column.name().to_owned() })
    };
    schema.columns().iter().map(find).collect()
}

fn csv_reader(file: &DataFile) -> csv::Reader<&[u8]> {
    csv::ReaderBuilder::new().flexible(true).from_reader(&file.bytes[..])
}

fn csv_headings(reader: &mut csv::Reader<&[u8]>) -> Result<csv::ByteRecord, ReadError> {
    Ok(reader.byte_headers().map_err(|_| ReadError::Line { line: 1 })?.clone())
}

fn csv_rows(
    file: &DataFile,
    schema: &Schema,
    content: bool,
) -> Result<(Rows, [u8; 32]), ReadError> {
    let mut reader = csv_reader(file);
    let headings = csv_headings(&mut reader)?;
    let names: Vec<&[u8]> = headings.iter().collect();
    let places = places(schema, |name| names.iter().position(|n| *n == name.as_bytes()))?;
    let mut reading = Reading::new(schema, &names, content);
    let mut record = csv::ByteRecord::new();
    loop {
        let line = reader.position().line();
        if !reader.read_byte_record(&mut record).map_err(|_| ReadError::Line { line })? {
            return reading.finish();
        }
        if record.len() != names.len() {
            reading.broken.get_or_insert(line);
            continue;
        }
        let codes = schema.columns().iter().zip(&places).map(|(column, &place)| {
            let value = record.get(place).and_then(|value| std::str::from_utf8(value).ok());
            value.and_then(|value| column.code(value))
        });
        reading.push(line, codes, |place| record.get(place))?;
    }
}

/// Has a file of Parquet read. The library panics on some damaged ones; nothing that it was at is
/// used after that.
fn unless_it_panics<T>(read: impl FnOnce() -> Result<T, ReadError>) -> Result<T, ReadError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let what = "it is damaged in a way that its reader does not understand".to_owned();
        Err(ReadError::Parquet { what })
    })
}

#[cfg(not(feature = "parquet"))]
fn check_parquet_headings(_: &DataFile) -> Result<(), ReadError> {
    Err(ReadError::NoParquet)
}

#[cfg(not(feature = "parquet"))]
fn parquet_rows(_: &DataFile, _: &Schema, _: bool) -> Result<(Rows, [u8; 32]), ReadError> {
    Err(ReadError::NoParquet)
}

#[cfg(feature = "parquet")]
fn check_parquet_headings(file: &DataFile) -> Result<(), ReadError> {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    let reader = SerializedFileReader::new(file.bytes.clone());
    let reader = reader.map_err(|error| ReadError::Parquet { what: error.to_string() })?;
    let root = reader.metadata().file_metadata().schema_descr().root_schema();
    check_names(root.get_fields().iter().map(|field| field.name().as_bytes()).collect())
}

#[cfg(feature = "parquet")]
fn parquet_rows(
    file: &DataFile,
    schema: &Schema,
    content: bool,
) -> Result<(Rows, [u8; 32]), ReadError> {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    let unreadable =
        |error: parquet::errors::ParquetError| ReadError::Parquet { what: error.to_string() };
    let reader = SerializedFileReader::new(file.bytes.clone()).map_err(unreadable)?;
    if !has_columns_within(reader.metadata(), file.bytes.len()) {
        let what = "a column is not where the file says".to_owned();
        return Err(ReadError::Parquet { what });
    }
    if !has_dictionaries(&reader).map_err(unreadable)? {
        let what = "a page names entries of a dictionary that is not there".to_owned();
        return Err(ReadError::Parquet { what });
    }
    let root = reader.metadata().file_metadata().schema_descr().root_schema();
    let names: Vec<&str> = root.get_fields().iter().map(|field| field.name()).collect();
    let places = places(schema, |name| names.iter().position(|n| *n == name))?;
    let units: Vec<_> = root.get_fields().iter().map(|field| Unit::of(field)).collect();
    let mut reading = Reading::new(schema, &names, content);
    for (row, line) in reader.get_row_iter(None).map_err(unreadable)?.zip(1_u64..) {
        let row = row.map_err(unreadable)?;
        let fields: Vec<_> = row.get_column_iter().map(|(_, field)| field).collect();
        let codes = schema
            .columns()
            .iter()
            .zip(&places)
            .map(|(column, &place)| fields.get(place).and_then(|field| code_of(column, field)));
        reading.push(line, codes, |place| {
            let unit = units.get(place).copied().flatten();
            fields.get(place).and_then(|field| text_of(field, unit))
        })?;
    }
    reading.finish()
}

/// Whether all columns lie within a file of so many bytes. The library panics where they begin
/// before it.
#[cfg(feature = "parquet")]
fn has_columns_within(file: &parquet::file::metadata::ParquetMetaData, bytes: usize) -> bool {
    use parquet::file::metadata::RowGroupMetaData;

    let mut columns = file.row_groups().iter().flat_map(RowGroupMetaData::columns);
    columns.all(|column| {
        let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let range = usize::try_from(begin).ok().zip(usize::try_from(column.compressed_size()).ok());
        let end = range.and_then(|(begin, length)| begin.checked_add(length));
        end.is_some_and(|end| end <= bytes)
    })
}

/// Whether each column begins with a dictionary if one of its pages needs it. The library panics
/// where it does not.
#[cfg(feature = "parquet")]
fn has_dictionaries(
    file: &impl parquet::file::reader::FileReader,
) -> Result<bool, parquet::errors::ParquetError> {
    use parquet::basic::Encoding;

    for group in 0..file.num_row_groups() {
        let group = file.get_row_group(group)?;
        for column in 0..group.num_columns() {
            let mut has_dictionary = false;
            for page in group.get_column_page_reader(column)? {
                let page = page?;
                if page.is_dictionary_page() {
                    has_dictionary = true;
                    continue;
                }
                // One encoding, by its names in both versions of the format.
                let of_entries = [Encoding::RLE_DICTIONARY, Encoding::PLAIN_DICTIONARY];
                if of_entries.contains(&page.encoding()) && !has_dictionary {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// What the whole numbers of a column count.
#[cfg(feature = "parquet")]
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Whether it is the time of a day.
    of_day: bool,
    per_millisecond: i64,
}

#[cfg(feature = "parquet")]
impl Unit {
    /// That of a column, if it has times.
    fn of(column: &parquet::schema::types::Type) -> Option<Self> {
        use parquet::basic::{LogicalType, TimeUnit};

        let (of_day, time) = match column.get_basic_info().logical_type_ref()? {
            LogicalType::Time(time) => (true, time),
            LogicalType::Timestamp(time) => (false, time),
            _ => return None,
        };
        let per_millisecond = match time.unit {
            TimeUnit::MILLIS => 1,
            TimeUnit::MICROS => 1_000,
            TimeUnit::NANOS => 1_000_000,
        };
        Some(Self { of_day, per_millisecond })
    }

    /// A time in milliseconds, as text.
    fn text(self, count: i64) -> String {
        let milliseconds = count.div_euclid(self.per_millisecond);
        let format = if self.of_day { "%H:%M:%S%.3f" } else { "%Y-%m-%d %H:%M:%S%.3f" };
        match chrono::DateTime::from_timestamp_millis(milliseconds) {
            Some(time) => time.format(format).to_string(),
            None => format!("{milliseconds} ms"),
        }
    }
}

/// A value as a file of CSV would have it.
#[cfg(feature = "parquet")]
fn text_of(field: &parquet::record::Field, unit: Option<Unit>) -> Option<Vec<u8>> {
    use parquet::record::Field;

    let time =
        |of_day, per_millisecond, count| Unit { of_day, per_millisecond }.text(count).into_bytes();
    Some(match (field, unit) {
        (Field::Null, _) => return None,
        (Field::Str(text), _) => text.clone().into_bytes(),
        (Field::Bytes(bytes), _) => bytes.data().to_vec(),
        // The shortest number that is this one, of either width.
        (Field::Float(number), _) => number.to_string().into_bytes(),
        (Field::Double(number), _) => number.to_string().into_bytes(),
        (Field::TimestampMillis(count), _) => time(false, 1, *count),
        (Field::TimestampMicros(count), _) => time(false, 1_000, *count),
        (Field::TimeMillis(count), _) => time(true, 1, i64::from(*count)),
        (Field::TimeMicros(count), _) => time(true, 1_000, *count),
        (Field::Int(count), Some(unit)) => unit.text(i64::from(*count)).into_bytes(),
        // There is no other kind of field for these.
        (Field::Long(count), Some(unit)) => unit.text(*count).into_bytes(),
        (other, _) if is_printable(other) => other.to_string().into_bytes(),
        (other, _) => format!("{other:?}").into_bytes(),
    })
}

/// Whether the library can write a value as text. It panics at days beyond its calendar, of which a
/// file has more.
#[cfg(feature = "parquet")]
fn is_printable(field: &parquet::record::Field) -> bool {
    use chrono::DateTime;
    use parquet::record::Field;

    match field {
        Field::Date(days) => DateTime::from_timestamp(86_400 * i64::from(*days), 0).is_some(),
        Field::TimestampMillis(count) => DateTime::from_timestamp_millis(*count).is_some(),
        Field::TimestampMicros(count) => DateTime::from_timestamp_micros(*count).is_some(),
        Field::Group(row) => row.get_column_iter().all(|(_, field)| is_printable(field)),
        Field::ListInternal(list) => list.elements().iter().all(is_printable),
        Field::MapInternal(map) => {
            map.entries().iter().all(|(key, value)| is_printable(key) && is_printable(value))
        }
        _ => true,
    }
}

#[cfg(feature = "parquet")]
fn code_of(column: &Column, field: &parquet::record::Field) -> Option<u16> {
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

/// Why a file is no data set. What of it callers may hear, [`ReadError::for_callers`] says.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It can't be read.
    #[error("the file can't be read")]
    File(#[source] io::Error),
    /// It is not the name of a file in the directory.
    #[error("that is no name of a file; give one in the server's directory of data sets")]
    NotAName,
    /// A link, a directory, a pipe or a device.
    #[error(
        "that is no regular file in the server's directory of data sets; links are not followed"
    )]
    NotRegular,
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
    /// Two columns of one name.
    #[error("two columns of the file have the same name; give each a name of its own")]
    SameName,
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
    Data(#[from] QueryError),
}

impl ReadError {
    /// What callers may hear of it: a column, and nothing that depends on where in the file
    /// something is, or on how often. The rest is for the log of the host.
    pub fn for_callers(&self) -> String {
        match self {
            Self::Outside { column, .. } => format!(
                "column {column:?} has something that was not declared; widen the column, or mend \
                 the file. Where it is says the server's log"
            ),
            Self::Line { .. } | Self::Parquet { .. } => {
                "the rows of the file can't be read as its headings say; mend the file. Where says \
                 the server's log"
                    .to_owned()
            }
            Self::File(_) => "the file can't be read; why says the server's log".to_owned(),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_csv(text: &str) -> Result<Rows, ReadError> {
        let schema = Schema::parse(&["age:18..20", "city:Bonn|Ulm"]).unwrap();
        DataFile::of(text.into(), "people.csv").rows(&schema)
    }

    #[test]
    fn columns_are_found_by_their_headings() {
        let rows = from_csv("city,other,age\nUlm,x,20\nBonn,\"a,b\",18\n").unwrap();
        let universe = rows.schema().universe::<&str>(&[]).unwrap();
        assert_eq!(rows.histogram(&universe), [1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn two_columns_of_one_name_are_refused_whether_declared_or_not() {
        let check = |text: &str| DataFile::of(text.to_owned().into(), "a.csv").check_headings();
        assert!(check("age,city,Age\n").is_ok());
        for text in ["age,city,age\n", "age,city, age\n", "age,,city,\n"] {
            assert!(matches!(check(text), Err(ReadError::SameName)), "{text}");
        }
    }

    #[test]
    fn errors_tell_the_place_and_never_the_value_and_callers_hear_the_column() {
        for (text, message) in [
            ("city\nUlm\n", "has no column \"age\""),
            ("age,city\n18,Ulm\n99,Ulm\n", "column \"age\" in line 3"),
            ("age,city\n18,Rome\n", "column \"city\" in line 2"),
            ("age,city\n18\n", "line 2 is not a line"),
        ] {
            let error = from_csv(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert!(!error.contains("99") && !error.contains("Rome"), "{error}");
            let told = from_csv(text).unwrap_err().for_callers();
            assert!(!told.chars().any(|c| c.is_ascii_digit()), "{told}");
        }
        // The first declared column, whichever row comes first.
        for text in ["age,city\n18,Rome\n99,Ulm\n", "age,city\n18\n99,Rome\n"] {
            let told = from_csv(text).unwrap_err().for_callers();
            assert!(told.starts_with("column \"age\" has something"), "{told}");
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
        let file = DataFile::of(bytes, "people.parquet");
        let (rows, content) = file.rows_and_content(&schema).unwrap();
        let csv = DataFile::of("age,city\n20,Ulm\n20,Ulm\n18,Bonn\n".into(), "people.csv");
        assert_eq!(csv.rows_and_content(&schema).unwrap().1, content);
        let universe = schema.universe::<&str>(&[]).unwrap();
        assert_eq!(rows.histogram(&universe), [1, 0, 0, 0, 0, 2]);
        let narrow = Schema::parse(&["age:18..19"]).unwrap();
        let error = file.rows(&narrow).unwrap_err().to_string();
        assert!(error.contains("column \"age\" in line 1"), "{error}");
        assert!(DataFile::of("age\n18\n".into(), "people.parquet").rows(&schema).is_err());
    }

    /// A file of one column that counts in this unit.
    #[cfg(feature = "parquet")]
    fn counted(kind: &str, counts: &[i64]) -> Vec<u8> {
        use std::sync::Arc;

        use parquet::data_type::Int64Type;
        use parquet::file::properties::WriterProperties;
        use parquet::file::writer::SerializedFileWriter;
        use parquet::schema::parser::parse_message_type;

        let message = format!("message m {{ required int64 at {kind}; required int64 age; }}");
        let schema = Arc::new(parse_message_type(&message).unwrap());
        let properties = Arc::new(WriterProperties::new());
        let mut file = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        let mut group = file.next_row_group().unwrap();
        for values in [counts.to_vec(), vec![18; counts.len()]] {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        file.into_inner().unwrap()
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn days_beyond_the_calendar_are_values_like_others() {
        use std::sync::Arc;

        use parquet::data_type::{Int32Type, Int64Type};
        use parquet::file::writer::SerializedFileWriter;
        use parquet::schema::parser::parse_message_type;

        // One in a column, one within a value that has parts.
        let message = "message m { required int32 age; required int32 day (DATE);
            required group seen { required int64 at (TIMESTAMP(MILLIS,true)); } }";
        let message = Arc::new(parse_message_type(message).unwrap());
        let file = |day: i32, at: i64| {
            let properties = Arc::default();
            let message = Arc::clone(&message);
            let mut file = SerializedFileWriter::new(Vec::new(), message, properties).unwrap();
            let mut group = file.next_row_group().unwrap();
            for value in [18, day] {
                let mut column = group.next_column().unwrap().unwrap();
                column.typed::<Int32Type>().write_batch(&[value], None, None).unwrap();
                column.close().unwrap();
            }
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&[at], None, None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
            DataFile::of(file.into_inner().unwrap(), "days.parquet")
        };
        let schema = Schema::parse(&["age:18..20"]).unwrap();
        let content = |day, at| file(day, at).rows_and_content(&schema).unwrap().1;
        let known = content(i32::MAX, i64::MAX);
        assert_eq!(content(i32::MAX, i64::MAX), known);
        for (day, at) in [(i32::MIN, i64::MAX), (i32::MAX, i64::MIN), (0, i64::MAX), (i32::MAX, 0)]
        {
            assert_ne!(content(day, at), known, "{day} {at}");
        }
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn times_are_the_same_in_every_unit_and_as_text() {
        let schema = Schema::parse(&["age:18..20"]).unwrap();
        let of =
            |bytes: Vec<u8>, name| DataFile::of(bytes, name).rows_and_content(&schema).unwrap().1;
        let times = [1_577_934_245_678, -1];
        let csv = "at,age\n2020-01-02 03:04:05.678,18\n1969-12-31T23:59:59.999Z,18\n";
        let expected = of(csv.into(), "times.csv");
        for (kind, factor) in [
            ("(TIMESTAMP(MILLIS,true))", 1),
            ("(TIMESTAMP(MICROS,true))", 1_000),
            ("(TIMESTAMP(NANOS,true))", 1_000_000),
            ("(TIMESTAMP(MICROS,false))", 1_000),
            ("(TIMESTAMP(NANOS,false))", 1_000_000),
        ] {
            let counts = times.map(|time: i64| time * factor);
            assert_eq!(of(counted(kind, &counts), "times.parquet"), expected, "{kind}");
            let later = times.map(|time| (time + 1) * factor);
            assert_ne!(of(counted(kind, &later), "times.parquet"), expected, "{kind}");
        }
        let expected = of("at,age\n03:04:05.6,18\n".into(), "times.csv");
        for (kind, factor) in [("(TIME(MICROS,true))", 1_000), ("(TIME(NANOS,true))", 1_000_000)] {
            let counts = [11_045_600 * factor];
            assert_eq!(of(counted(kind, &counts), "times.parquet"), expected, "{kind}");
        }
    }
}
