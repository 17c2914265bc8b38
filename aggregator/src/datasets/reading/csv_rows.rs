//! Rows of CSV files with a header line.

use bandana_mechanisms::queries::universe::Schema;

use super::{Read, ReadError, Reading, check_names, places};
use crate::datasets::content::Numbering;
use crate::datasets::data_file::DataFile;

/// Checks that column names are distinct.
pub(super) fn check_headings(file: &DataFile) -> Result<(), ReadError> {
    check_names(headings(&mut reader(file))?.iter().collect())
}

fn reader(file: &DataFile) -> csv::Reader<&[u8]> {
    csv::ReaderBuilder::new().flexible(true).from_reader(&file.bytes[..])
}

fn headings(reader: &mut csv::Reader<&[u8]>) -> Result<csv::ByteRecord, ReadError> {
    Ok(reader.byte_headers().map_err(|_| ReadError::Line { line: 1 })?.clone())
}

/// The columns that only number the rows.
pub(super) fn numbering(file: &DataFile) -> Result<Numbering, ReadError> {
    let mut reader = reader(file);
    let mut numbering = Numbering::new(headings(&mut reader)?.len());
    let mut record = csv::ByteRecord::new();
    // What is no line of CSV is refused when the rows are read.
    while reader.read_byte_record(&mut record).unwrap_or(false) {
        numbering.look(|place| record.get(place));
    }
    Ok(numbering.decided())
}

/// The declared columns, and on request the digests of the content.
pub(super) fn rows(
    file: &DataFile,
    schema: &Schema,
    content: Option<&Numbering>,
) -> Result<Read, ReadError> {
    let mut reader = reader(file);
    let headings = headings(&mut reader)?;
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
        // The error names the first declared column, in whichever row the first misfit is.
        for text in ["age,city\n18,Rome\n99,Ulm\n", "age,city\n18\n99,Rome\n"] {
            let told = from_csv(text).unwrap_err().for_callers();
            assert!(told.starts_with("column \"age\" has something"), "{told}");
        }
    }
}
