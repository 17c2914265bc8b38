//! Stub for Parquet files in a build without support for Parquet.

use bandana_mechanisms::queries::universe::Schema;

use super::{Read, ReadError};
use crate::datasets::content::Numbering;
use crate::datasets::data_file::DataFile;

pub(super) fn check_headings(_: &DataFile) -> Result<(), ReadError> {
    Err(ReadError::NoParquet)
}

pub(super) fn numbering(_: &DataFile) -> Result<Numbering, ReadError> {
    Err(ReadError::NoParquet)
}

pub(super) fn rows(
    _: &DataFile,
    _: &Schema,
    _: Option<&Numbering>,
    _: &[usize],
) -> Result<Read, ReadError> {
    Err(ReadError::NoParquet)
}
