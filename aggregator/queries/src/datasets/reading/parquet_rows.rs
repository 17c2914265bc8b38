//! Rows of Parquet files.

use bandana_mechanisms::queries::universe::{Column, Schema};
use bytes::Bytes;
use chrono::DateTime;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;

use super::{Read, ReadError, Reading, check_names, places};
use crate::datasets::content::Numbering;
use crate::datasets::data_file::DataFile;
use crate::datasets::text::decoded;

/// Checks that column names are distinct.
pub(super) fn check_headings(file: &DataFile) -> Result<(), ReadError> {
    let reader = SerializedFileReader::new(file.bytes.clone())?;
    let root = reader.metadata().file_metadata().schema_descr().root_schema();
    check_names(root.get_fields().iter().map(|field| field.name().as_bytes()).collect())
}

/// The columns that only number the rows.
pub(super) fn numbering(file: &DataFile) -> Result<Numbering, ReadError> {
    let reader = SerializedFileReader::new(file.bytes.clone())?;
    let root = reader.metadata().file_metadata().schema_descr().root_schema();
    let mut numbering = Numbering::new(root.get_fields().len());
    check_kinds(&reader, |_| false)?;
    for (row, line) in reader.get_row_iter(None)?.zip(1_u64..) {
        let row = decoded_row(row, line)?;
        let fields: Vec<_> = row.get_column_iter().map(|(_, field)| field).collect();
        numbering.look(|place| fields.get(place).and_then(|field| text_of(field, None)));
    }
    Ok(numbering.decided())
}

/// The declared columns, and on request the digests of the content.
pub(super) fn rows(
    file: &DataFile,
    schema: &Schema,
    content: Option<&Numbering>,
    counted: &[usize],
) -> Result<Read, ReadError> {
    let reader = SerializedFileReader::new(file.bytes.clone())?;
    let root = reader.metadata().file_metadata().schema_descr().root_schema();
    let names: Vec<&str> = root.get_fields().iter().map(|field| field.name()).collect();
    let places = places(schema, |name| {
        let exact = names.iter().position(|heading| *heading == name);
        exact.or_else(|| names.iter().position(|heading| heading.trim() == name))
    })?;
    check_kinds(&reader, |place| places.contains(&place))?;
    let meanings: Vec<_> = root.get_fields().iter().map(|field| Meaning::of(field)).collect();
    let mut reading = Reading::new(schema, (&names, &places), content, counted);
    for (row, line) in reader.get_row_iter(None)?.zip(1_u64..) {
        let row = decoded_row(row, line)?;
        let fields: Vec<_> = row.get_column_iter().map(|(_, field)| field).collect();
        let codes = schema.columns().iter().zip(&places).map(|(column, &place)| {
            code_of(column, fields.get(place)?, meanings.get(place).copied().flatten())
        });
        reading.push(line, codes, |place| {
            let meaning = meanings.get(place).copied().flatten();
            fields.get(place).and_then(|field| text_of(field, meaning))
        })?;
    }
    reading.finish()
}

/// A row that was read. Why one was not is not repeated: the library's message has the value.
fn decoded_row(row: Result<Row, ParquetError>, line: u64) -> Result<Row, ReadError> {
    row.map_err(|_| ReadError::Parquet { what: format!("row {line} can't be decoded") })
}

/// Refuses columns whose values can't be read. The library reads no intervals at all, and panics with the
/// value of one.
fn check_kinds(
    reader: &SerializedFileReader<Bytes>,
    is_declared: impl Fn(usize) -> bool,
) -> Result<(), ReadError> {
    let columns = reader.metadata().file_metadata().schema_descr();
    let wrong = |column: String, kind| Err(ReadError::Kind { column, kind });
    let mut all = columns.columns().iter();
    if let Some(one) = all.find(|one| one.converted_type() == ConvertedType::INTERVAL) {
        return wrong(one.path().string(), "intervals; write seconds as a number");
    }
    for (place, field) in columns.root_schema().get_fields().iter().enumerate() {
        if field.is_group() && is_declared(place) {
            let name = field.name().to_owned();
            return wrong(name, "lists, structs or maps; write a column of plain values");
        }
    }
    Ok(())
}

impl From<ParquetError> for ReadError {
    fn from(error: ParquetError) -> Self {
        Self::Parquet { what: error.to_string() }
    }
}

/// What the values of a column mean that are stored as something else.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// Integers that count times, in so many parts of a millisecond.
    Time {
        /// Whether these are times of day, rather than timestamps.
        of_day: bool,
        per_millisecond: i64,
    },
    /// 16 bytes that are a UUID.
    Uuid,
}

impl Meaning {
    /// `None`: they are what they are stored as.
    fn of(column: &Type) -> Option<Self> {
        let (of_day, time) = match column.get_basic_info().logical_type_ref()? {
            LogicalType::Time(time) => (true, time),
            LogicalType::Timestamp(time) => (false, time),
            LogicalType::Uuid => return Some(Self::Uuid),
            _ => return None,
        };
        let per_millisecond = match time.unit {
            TimeUnit::MILLIS => 1,
            TimeUnit::MICROS => 1_000,
            TimeUnit::NANOS => 1_000_000,
        };
        Some(Self::Time { of_day, per_millisecond })
    }

    /// A count as the text of a time, if it is one.
    fn time(self, count: i64) -> Option<String> {
        let Self::Time { of_day, per_millisecond } = self else { return None };
        let milliseconds = count.div_euclid(per_millisecond);
        let format = if of_day { "%H:%M:%S%.3f" } else { "%Y-%m-%d %H:%M:%S%.3f" };
        Some(match DateTime::from_timestamp_millis(milliseconds) {
            Some(time) => time.format(format).to_string(),
            None => format!("{milliseconds} ms"),
        })
    }
}

/// A UUID as programs write it; `None`: it has not 16 bytes.
fn uuid(bytes: &[u8]) -> Option<String> {
    let number = u128::from_be_bytes(bytes.try_into().ok()?);
    let mut text = format!("{number:032x}");
    for place in [20, 16, 12, 8] {
        text.insert(place, '-');
    }
    Some(text)
}

/// A value in the form that it has in CSV.
fn text_of(field: &Field, meaning: Option<Meaning>) -> Option<Vec<u8>> {
    let time = |of_day, per_millisecond, count| {
        let time = Meaning::Time { of_day, per_millisecond }.time(count);
        time.unwrap_or_default().into_bytes()
    };
    let counted = |count| Some(meaning?.time(count)?.into_bytes());
    Some(match (field, meaning) {
        (Field::Null, _) => return None,
        (Field::Str(text), _) => text.clone().into_bytes(),
        (Field::Bytes(bytes), Some(Meaning::Uuid)) => uuid(bytes.data())?.into_bytes(),
        (Field::Bytes(bytes), _) => bytes.data().to_vec(),
        // The shortest decimal that parses to this number, in either width.
        (Field::Float(number), _) => number.to_string().into_bytes(),
        (Field::Double(number), _) => number.to_string().into_bytes(),
        (Field::TimestampMillis(count), _) => time(false, 1, *count),
        (Field::TimestampMicros(count), _) => time(false, 1_000, *count),
        (Field::TimeMillis(count), _) => time(true, 1, i64::from(*count)),
        (Field::TimeMicros(count), _) => time(true, 1_000, *count),
        (Field::Int(count), Some(_)) => counted(i64::from(*count))?,
        // No other kind of field is a time.
        (Field::Long(count), Some(_)) => counted(*count)?,
        (other, _) if is_printable(other) => other.to_string().into_bytes(),
        (other, _) => format!("{other:?}").into_bytes(),
    })
}

/// Whether the library can format a value. It panics at days beyond its calendar, which a file may
/// contain.
fn is_printable(field: &Field) -> bool {
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

/// The code of a value, as of its text in CSV.
fn code_of(column: &Column, field: &Field, meaning: Option<Meaning>) -> Option<u32> {
    match field {
        Field::Null => column.read(""),
        Field::Str(text) => column.read(text),
        Field::Bool(value) => column.read(if *value { "true" } else { "false" }),
        Field::ULong(value) => column.read(&value.to_string()),
        other => {
            let text = text_of(other, meaning)?;
            let text = decoded(&text);
            column
                .code(&text)
                .or_else(|| shorter_time(column, &text))
                .or_else(|| column.read(&text))
        }
    }
}

/// The code of a time, spelled as programs write it in CSV: without milliseconds and midnights that say
/// nothing.
fn shorter_time(column: &Column, text: &str) -> Option<u32> {
    let seconds = text.strip_suffix(".000").filter(|text| text.contains(':'))?;
    let day = seconds.strip_suffix(" 00:00:00");
    [day, Some(seconds)].into_iter().flatten().find_map(|text| column.code(text))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::{
        BrotliLevel, Compression, GzipLevel, Repetition, Type as Physical, ZstdLevel,
    };
    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// People with a city and an age, compressed so.
    fn people(compression: Compression) -> Vec<u8> {
        let message = "message people { required binary city (UTF8); required int32 age; }";
        let schema = Arc::new(parse_message_type(message).unwrap());
        let properties = WriterProperties::builder().set_compression(compression);
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
        file.into_inner().unwrap()
    }

    #[test]
    fn every_compression_has_the_same_rows() {
        let schema = Schema::parse(&["age:18..20", "city:Bonn|Ulm"]).unwrap();
        let read = |compression| {
            let file = DataFile::of(people(compression), "people.parquet");
            file.rows_and_content(&schema).unwrap().1
        };
        let plain = read(Compression::UNCOMPRESSED);
        for compression in [
            Compression::SNAPPY,
            Compression::GZIP(GzipLevel::default()),
            Compression::ZSTD(ZstdLevel::default()),
            Compression::LZ4,
            Compression::LZ4_RAW,
            Compression::BROTLI(BrotliLevel::default()),
        ] {
            assert_eq!(read(compression), plain, "{compression}");
        }
    }

    #[test]
    fn parquet_has_the_same_rows_as_csv() {
        let bytes = people(Compression::SNAPPY);
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

    /// A file with one column of integers in this unit.
    fn counted(kind: &str, counts: &[i64]) -> Vec<u8> {
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

    /// A file with one column of text under this heading.
    fn of_text(heading: &str, values: &[&[u8]]) -> DataFile {
        let field = Type::primitive_type_builder(heading, Physical::BYTE_ARRAY)
            .with_repetition(Repetition::REQUIRED)
            .with_converted_type(ConvertedType::UTF8);
        let fields = vec![Arc::new(field.build().unwrap())];
        let schema = Arc::new(Type::group_type_builder("m").with_fields(fields).build().unwrap());
        let properties = Arc::new(WriterProperties::new());
        let mut file = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<_> = values.iter().map(|value| ByteArray::from(value.to_vec())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        DataFile::of(file.into_inner().unwrap(), "people.parquet")
    }

    #[test]
    fn no_error_has_a_value_and_kinds_that_are_not_read_are_told() {
        let schema = Schema::parse(&["name:other*"]).unwrap();
        let file = of_text("name", &[b"Ulm", b"secret\xff"]);
        let error = file.rows(&schema).unwrap_err().to_string();
        assert!(error.ends_with("row 2 can't be decoded"), "{error}");
        let message =
            "message m { required int32 age; required fixed_len_byte_array(12) since (INTERVAL); }";
        let message = Arc::new(parse_message_type(message).unwrap());
        let writer = SerializedFileWriter::new(Vec::new(), message, Arc::default()).unwrap();
        let file = DataFile::of(writer.into_inner().unwrap(), "ages.parquet");
        let ages = Schema::parse(&["age:18..20"]).unwrap();
        let told = file.rows(&ages).unwrap_err().for_callers();
        assert!(told.contains("\"since\" has intervals"), "{told}");
    }

    #[test]
    fn blanks_around_a_heading_are_not_its_name_and_days_are_days() {
        let schema = Schema::parse(&["name:Ulm|Bonn"]).unwrap();
        let file = of_text(" name ", &[b"Ulm"]);
        assert_eq!(file.rows(&schema).unwrap().count(), 1);
        let days = Schema::parse(&[r#"at:2024-01-01|"2024-01-02 03:04:05"|other*"#]).unwrap();
        let midnight = 1_704_067_200_000;
        let counts = [midnight, midnight + 86_400_000 + 11_045_000, midnight + 1];
        let file = DataFile::of(counted("(TIMESTAMP(MILLIS,true))", &counts), "days.parquet");
        let universe = days.universe::<&str>(&[]).unwrap();
        assert_eq!(file.rows(&days).unwrap().histogram(&universe), [1, 1, 1]);
    }

    #[test]
    fn days_beyond_the_calendar_are_values_like_others() {
        // One date as a column, one nested in a group.
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

    #[test]
    fn uuids_are_as_programs_write_them() {
        let bytes: Vec<u8> = (0..16).map(|byte| 17 * byte).collect();
        assert_eq!(uuid(&bytes).as_deref(), Some("00112233-4455-6677-8899-aabbccddeeff"));
        assert_eq!(uuid(&bytes[..7]), None);
    }

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
