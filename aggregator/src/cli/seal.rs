//! `bandana seal`.

use clap::Args;

use super::say;
use super::store_source::{Found, StoreSource};
use super::verification_view::VerificationView;
use crate::store::{seal_database, seal_directory, verify_database, verify_directory};
use crate::views::failure::Failure;
use crate::views::table::terminal_columns;

/// Take a store that was repaired by hand as it is, with new checksums of all rows.
///
/// A server refuses a store that has a row which is not as it was written, or lacks one. Restore a
/// backup where there is one. Where there is none, and rows were mended or given up with SQL or
/// with `sqlite3 FILE .recover`, this says that what is there counts; the store is verified then.
/// `bandana verify` tells beforehand what is wrong: afterwards, nobody can.
///
/// No server may have a directory open. Replicas on a database wait.
#[derive(Debug, Args)]
pub(super) struct Seal {
    #[command(flatten)]
    store: StoreSource,
}

pub(super) fn run(seal: &Seal) -> anyhow::Result<()> {
    let (name, verification) = match seal.store.find()? {
        Found::Directory(path) => {
            seal_directory(&path)?;
            (path.display().to_string(), verify_directory(&path)?)
        }
        Found::Database(settings) => {
            seal_database(&settings)?;
            (settings.url.to_string(), verify_database(&settings)?)
        }
    };
    let view = VerificationView::new(name.clone(), &verification);
    say(&view.describe(terminal_columns()))?;
    if verification.is_sound() {
        return Ok(());
    }
    Err(Failure::Damaged(format!("{name} is damaged: {}", view.count())).into())
}
