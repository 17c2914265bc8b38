//! `bandana experiment export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::connection::block_on;
use super::estimate::Wanted;
use super::estimates_view::COLUMNS;
use super::{Readers, say, write_new};

/// Write the estimates of every arm to a file, for analysis.
///
/// One record for each arm, in full precision. The columns are the fields of
/// `bandana estimate --json`, those of the experiment first.
#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(flatten)]
    wanted: Wanted,
    /// Form of the file.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// The file; must not exist yet. Without it, standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Comma-separated values (RFC 4180), with a line of names.
    Csv,
}

pub(super) fn export(export: &Export) -> anyhow::Result<()> {
    let view = block_on(export.wanted.fetch())?;
    let Format::Csv = export.format;
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for record in view.records() {
        writer.write_record(record)?;
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    match &export.out {
        Some(path) => write_new(path, &bytes, Readers::Default),
        None => say(&String::from_utf8(bytes)?),
    }
}
