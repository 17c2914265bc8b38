//! Export files: CSV, JSON or Parquet. An existing file is never overwritten.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::{Readers, write_new};
use crate::views::columns::{Column, Form, whole};
use crate::views::failure::Failure;

/// Which file.
#[derive(Debug, Args)]
pub(super) struct ExportFile {
    /// Form of the file.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// File to write, which must not exist yet. Without it, standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Comma-separated values (RFC 4180), with a line of names.
    Csv,
    /// A JSON array with an object for each record, which has the columns of the CSV.
    Json,
    /// Apache Parquet, with typed columns, but not to a terminal.
    Parquet,
}

impl ExportFile {
    /// Rejects options that can't be combined, rather than ignoring one of them.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let is_to_terminal = self.out.is_none() && std::io::stdout().is_terminal();
        if self.format == Format::Parquet && is_to_terminal {
            let problem = "Parquet is not for a terminal; name a file with --out, or pass it on";
            return Err(Failure::Incomplete(problem.to_owned()));
        }
        Ok(())
    }

    /// Writes these columns.
    pub(super) fn write(&self, columns: &[Column]) -> anyhow::Result<()> {
        let bytes = match self.format {
            Format::Csv => whole(Form::Csv, columns)?,
            Format::Json => whole(Form::Json, columns)?,
            Format::Parquet => parquet(columns)?,
        };
        match &self.out {
            Some(path) => write_new(path, &bytes, Readers::Default),
            None => Ok(std::io::stdout().write_all(&bytes)?),
        }
    }
}

#[cfg(feature = "parquet")]
pub(super) use super::parquet_file::parquet;

#[cfg(not(feature = "parquet"))]
pub(super) fn parquet(_: &[Column]) -> anyhow::Result<Vec<u8>> {
    let problem = "this program was built without Parquet; use --format csv, or build it with the \
                   feature `parquet`";
    Err(Failure::Incomplete(problem.to_owned()).into())
}
