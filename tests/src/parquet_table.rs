//! Parquet files as tables of text.

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;

/// The rows, after a row of column names. Null becomes an empty text.
///
/// # Errors
/// When the bytes are no Parquet file.
pub fn table_of_parquet(bytes: Vec<u8>) -> anyhow::Result<Vec<Vec<String>>> {
    let reader = SerializedFileReader::new(prost::bytes::Bytes::from(bytes))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let mut table = vec![names];
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let text = |field: &Field| match field {
            Field::Null => String::new(),
            Field::Str(text) => text.clone(),
            Field::Double(number) => number.to_string(),
            other => other.to_string(),
        };
        table.push(row.get_column_iter().map(|(_, field)| text(field)).collect());
    }
    Ok(table)
}
