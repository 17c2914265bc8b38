//! Rows of CSV files with a header line.

use std::borrow::Cow;

use bandana_mechanisms::queries::universe::Schema;

use super::{Read, ReadError, Reading, check_names, places};
use crate::datasets::content::Numbering;
use crate::datasets::data_file::DataFile;
use crate::datasets::text::decoded;

/// Checks that column names are distinct, and none of them a number.
pub(super) fn check_headings(file: &DataFile, schema: &Schema) -> Result<(), ReadError> {
    let is_of = |(beginning, _): &&(&[u8], &str)| file.text.starts_with(beginning);
    if let Some((_, kind)) = NO_TEXT.iter().find(is_of) {
        return Err(ReadError::NotText(kind));
    }
    let headings = headings(&mut reader(&file.text, schema))?;
    let is_number = |name: &[u8]| decoded(name).trim().parse::<f64>().is_ok_and(f64::is_finite);
    if headings.iter().any(is_number) {
        return Err(ReadError::NumberAsHeading);
    }
    check_names(headings.iter().collect())
}

/// How files begin that are no text, and what to do with each.
const NO_TEXT: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "compressed by gzip; unpack it, and register what is in it"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd; unpack it, and register what is in it"),
    (b"BZh", "compressed by bzip2; unpack it, and register what is in it"),
    (b"PK\x03\x04", "a zip archive or a workbook; register a CSV or Parquet file of its rows"),
    (b"PAR1", "Parquet by its content; give it a name that ends in .parquet"),
    (b"ARROW1", "in the format of Arrow; write it as Parquet"),
];

/// What separates values, the likeliest first.
const SEPARATORS: [u8; 4] = *b",;\t|";

/// A reader with the separator that a first line `sep=;` says, or else the first one with which the
/// headings have all declared columns. No row decides it.
fn reader<'f>(text: &'f [u8], schema: &Schema) -> csv::Reader<&'f [u8]> {
    let of = |text: &'f [u8], separator| {
        csv::ReaderBuilder::new().flexible(true).delimiter(separator).from_reader(text)
    };
    let said = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if let [b's', b'e', b'p', b'=', separator] = said.strip_suffix(b"\r").unwrap_or(said)
        && (separator.is_ascii_punctuation() && *separator != b'"' || *separator == b'\t')
    {
        return of(text.get(said.len() + 1..).unwrap_or_default(), *separator);
    }
    let has_all = |separator: &u8| {
        let found = headings(&mut of(text, *separator));
        found.is_ok_and(|found| columns_in(schema, &found).is_ok())
    };
    let separator = SEPARATORS.into_iter().find(has_all);
    of(text, separator.unwrap_or(b','))
}

fn headings(reader: &mut csv::Reader<&[u8]>) -> Result<csv::ByteRecord, ReadError> {
    Ok(reader.byte_headers().map_err(|_| ReadError::Line { line: 1 })?.clone())
}

/// The index of each declared column.
fn columns_in(schema: &Schema, headings: &csv::ByteRecord) -> Result<Vec<usize>, ReadError> {
    let names: Vec<_> = headings.iter().map(decoded).collect();
    // As it is written before as it is meant.
    places(schema, |name| {
        let exact = names.iter().position(|heading| heading == name);
        exact.or_else(|| names.iter().position(|heading| heading.trim() == name))
    })
}

/// The columns that only number the rows.
pub(super) fn numbering(file: &DataFile, schema: &Schema) -> Result<Numbering, ReadError> {
    let text = with_all_rows(&file.text, schema)?;
    let mut reader = reader(&text, schema);
    let mut numbering = Numbering::new(headings(&mut reader)?.len());
    let mut record = csv::ByteRecord::new();
    // What is no line of CSV is refused when the rows are read.
    while reader.read_byte_record(&mut record).unwrap_or(false) {
        numbering.look(|place| record.get(place));
    }
    Ok(numbering.decided())
}

/// The text in which each row is a line that is not empty. Where there is one column, programs write an
/// empty line for a missing value, and `csv` reads none.
fn with_all_rows<'f>(text: &'f [u8], schema: &Schema) -> Result<Cow<'f, [u8]>, ReadError> {
    if headings(&mut reader(text, schema))?.len() != 1 {
        return Ok(text.into());
    }
    let before_rows = if text.starts_with(b"sep=") { 2 } else { 1 };
    let (mut filled, mut at, mut lines) = (None::<Vec<u8>>, 0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (line, next) = first_line(rest);
        if line == 0 && lines >= before_rows {
            filled.get_or_insert_with(|| text[..at].to_vec()).extend(b"\"\"");
        }
        lines += usize::from(line > 0);
        if let Some(filled) = &mut filled {
            filled.extend(&rest[..next]);
        }
        at += next;
    }
    Ok(filled.map_or(text.into(), Cow::Owned))
}

/// The length of the first line, whose first value may have line ends in quotes, and where the next one
/// begins.
fn first_line(text: &[u8]) -> (usize, usize) {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let mut line = 0;
    if text.first() == Some(&b'"') {
        line = 1;
        // A quote that is written twice is one within the value.
        let mut is_inside = true;
        while line < text.len() && (is_inside || text[line] == b'"') {
            is_inside ^= text[line] == b'"';
            line += 1;
        }
    }
    line += text[line..].iter().position(is_end).unwrap_or(text.len() - line);
    let end = match text[line..] {
        [b'\r', b'\n', ..] => 2,
        [] => 0,
        _ => 1,
    };
    (line, line + end)
}

/// The declared columns, and on request the digests of the content.
pub(super) fn rows(
    file: &DataFile,
    schema: &Schema,
    content: Option<&Numbering>,
    counted: &[usize],
) -> Result<Read, ReadError> {
    let text = with_all_rows(&file.text, schema)?;
    let mut reader = reader(&text, schema);
    let headings = headings(&mut reader)?;
    let names: Vec<&[u8]> = headings.iter().collect();
    let places = columns_in(schema, &headings)?;
    let mut reading = Reading::new(schema, (&names, &places), content, counted);
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
            record.get(place).and_then(|value| column.read(&decoded(value)))
        });
        reading.push(line, codes, |place| record.get(place))?;
    }
}

#[cfg(test)]
mod tests {
    use bandana_mechanisms::queries::rows::Rows;

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
    fn separators_encodings_and_blanks_make_no_other_rows() {
        let schema = Schema::parse(&["Größe:1..3", r#"income:"<=50K"|">50K""#, r#""a,b":café|x"#]);
        let schema = schema.unwrap();
        let read = |bytes: Vec<u8>| {
            let file = DataFile::of(bytes, "people.csv");
            file.check_headings(&schema).unwrap();
            let (rows, content) = file.rows_and_content(&schema).unwrap();
            (rows.histogram(&schema.universe::<&str>(&[]).unwrap()), content.current)
        };
        let text = "Größe,income,\"a,b\"\n2,<=50K,café\n3,>50K,x\n";
        let expected = read(text.into());
        assert_eq!(expected.0.iter().sum::<u64>(), 2);
        let windows = |text: &str| encoding_rs::WINDOWS_1252.encode(text).0.into_owned();
        let utf_16 = |text: &str| {
            let units = ["\u{feff}", text].concat();
            units.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
        };
        let of = |separator: &str| {
            format!("income{separator}Größe{separator}a,b\n>50K{separator}3.0{separator}x\n")
                + &format!("<=50K{separator}2{separator}café\n")
        };
        for bytes in [
            windows(text),
            utf_16(text),
            ["\u{feff}", text].concat().into(),
            of(";").into(),
            of("\t").into(),
            of("|").into(),
            windows(&of(";")),
            utf_16(&of("\t")),
            ["sep=#\r\n", &of("#")].concat().into(),
            text.replace(',', " , ").replace("\"a , b\"", "\"a,b\"").replace(" \"", "\"").into(),
        ] {
            let shown = String::from_utf8_lossy(&bytes).into_owned();
            assert_eq!(read(bytes), expected, "{shown}");
        }
    }

    #[test]
    fn an_empty_line_of_one_column_is_a_row_whose_value_is_missing() {
        let read = |text: &str| {
            let schema = Schema::parse(&["a:x|y|NA"]).unwrap();
            let file = DataFile::of(text.to_owned().into(), "a.csv");
            let (rows, content) = file.rows_and_content(&schema).unwrap();
            (rows.histogram(&schema.universe::<&str>(&[]).unwrap()), content.current)
        };
        let written = read("a\nx\n\"\"\ny\nx\n\"\"\n");
        assert_eq!(written.0, [2, 1, 2]);
        for text in [
            "a\nx\n\ny\nx\n\n",
            "a\nx\n\ny\nx\nNA",
            "\n\na\n\nx\n\ny\nx",
            "a\r\nx\r\n\r\ny\r\nx\r\n\r\n",
            "a\rx\r\ry\rx\r\r",
            "\"a\"\n\"x\"\n\n\"y\"\n\"x\"\n\n",
            "sep=;\na\n\n\nx\ny\nx\n",
        ] {
            assert_eq!(read(text), written, "{text:?}");
        }
        // Line ends within a value are no rows, nor are empty lines of several columns.
        let schema = Schema::parse(&["a:0..9?0"]).unwrap();
        let count = |text: &str, schema: &Schema| {
            DataFile::of(text.to_owned().into(), "a.csv").rows(schema).map(|rows| rows.count())
        };
        let of_names = Schema::parse(&["a:other*"]).unwrap();
        assert_eq!(count("a\n\"x\n\n\"\"\n\n\"\n\nx\"\n\n", &of_names).unwrap(), 4);
        assert_eq!(count("a,b\n1,2\n\n,\n", &schema).unwrap(), 2);
    }

    #[test]
    fn two_columns_of_one_name_are_refused_whether_declared_or_not() {
        let schema = Schema::parse(&["age:18..20"]).unwrap();
        let file = |text: &str| DataFile::of(text.to_owned().into(), "a.csv");
        let check = |text| file(text).check_headings(&schema);
        assert!(check("age,city,Age\n").is_ok());
        for text in ["age,39\n", "age,-1e3\n", "age, 0.5\n"] {
            assert!(matches!(check(text), Err(ReadError::NumberAsHeading)), "{text}");
        }
        for text in ["age,city,age\n", "age,city, age\n", "age,,city,\n"] {
            assert!(matches!(check(text), Err(ReadError::SameName)), "{text}");
        }
    }

    #[test]
    fn files_that_are_no_text_are_told_by_how_they_begin() {
        let schema = Schema::parse(&["age:18..20"]).unwrap();
        for (bytes, word) in [
            (&b"\x1f\x8b\x08\x00"[..], "gzip"),
            (b"PK\x03\x04\x14", "workbook"),
            (b"PAR1\x15", ".parquet"),
            (b"ARROW1\0\0", "Arrow"),
        ] {
            let file = DataFile::of(bytes.to_vec(), "people.csv");
            let told = file.check_headings(&schema).unwrap_err().for_callers();
            assert!(told.contains(word), "{told}");
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
        // The error names the first declared column, in whichever row the first misfit is.
        for text in ["age,city\n18,Rome\n99,Ulm\n", "age,city\n18\n99,Rome\n"] {
            let told = from_csv(text).unwrap_err().for_callers();
            assert!(told.starts_with("column \"age\" has something"), "{told}");
        }
    }
}
