//! Stub for Parquet files in a build without support for Parquet.

use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::Schema;

use super::ReadError;
use crate::datasets::data_file::DataFile;

pub(super) fn check_headings(_: &DataFile) -> Result<(), ReadError> {
    Err(ReadError::NoParquet)
}

pub(super) fn rows(_: &DataFile, _: &Schema, _: bool) -> Result<(Rows, [u8; 32]), ReadError> {
    Err(ReadError::NoParquet)
}
