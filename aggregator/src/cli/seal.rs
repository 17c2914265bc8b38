//! `bandana seal`.

use bandana_store::{seal_database, seal_directory, verify_database, verify_directory};
use clap::Args;

use super::say;
use super::store_source::{Found, StoreSource};
use super::verification_view::VerificationView;
use crate::views::failure::Failure;
use crate::views::table::terminal_columns;

/// Accept a store that you repaired by hand, and write new checksums of all its rows.
///
/// A server refuses a store in which a row was changed or is missing. If you have a backup, restore
/// it. If you have none, run `bandana verify` to see what is wrong, and repair the store with SQL.
/// Then run this command. It declares that what is there counts, and verifies the store. After that,
/// nobody can tell what was wrong.
///
/// If the store is a directory, stop its server first. Replicas on a database wait meanwhile.
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
