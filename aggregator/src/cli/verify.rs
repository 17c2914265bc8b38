//! `bandana verify`.

use std::path::{Path, PathBuf};

use bandana_store::{Verification, verify_database, verify_directory, verify_file};
use clap::{Args, ValueHint};

use super::store_source::{Found, StoreSource};
use super::verification_view::{FIELDS, VerificationView};
use super::{say, say_json};
use crate::views::failure::Failure;
use crate::views::table::terminal_columns;

/// Check that a store is as its server left it.
///
/// It compares every row with its checksum, and every table with the number of rows that were
/// written.
///
/// In a directory or a backup, it reads everything: the structure of the file, experiments and
/// their revisions, the ids and sums of every group of uploads, the checkpoint of expired days and
/// the audit log. It computes every tally again from groups and checkpoint, and compares it.
///
/// A PostgreSQL database does not keep what single uploads added. There it checks policies,
/// revisions, the replay window and the number of uploads of each day.
///
/// A server may run meanwhile. The command changes nothing, and no commit waits for it.
#[derive(Debug, Args)]
#[command(after_long_help = FIELDS)]
pub(super) struct Verify {
    /// A backup or a data directory. Without it, the store that the flags below or their variables
    /// name.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    path: Option<PathBuf>,
    #[command(flatten)]
    store: StoreSource,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(verify: &Verify) -> anyhow::Result<()> {
    let (name, verification) = match &verify.path {
        Some(path) => (path.display().to_string(), of_path(path)?),
        None => match verify.store.find()? {
            Found::Directory(path) => (path.display().to_string(), verify_directory(&path)?),
            Found::Database(settings) => (settings.url.to_string(), verify_database(&settings)?),
        },
    };
    let view = VerificationView::new(name.clone(), &verification);
    if verify.json {
        say_json(&view)?;
    } else {
        say(&view.describe(terminal_columns()))?;
    }
    if verification.is_sound() {
        return Ok(());
    }
    Err(Failure::Damaged(format!("{name} is damaged: {}", view.count())).into())
}

fn of_path(path: &Path) -> anyhow::Result<Verification> {
    Ok(if path.is_dir() { verify_directory(path)? } else { verify_file(path)? })
}
