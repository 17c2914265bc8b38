//! `bandana init`.

use anyhow::Context as _;
use bandana_store::{CellChange, PostgresStore, Presence, SqliteStore, grow_cells};
use clap::Args;
use serde::Serialize;

use super::store_source::{Found, StoreSource};
use super::{say, say_json};

/// Make a new store, in a directory or in an empty database.
///
/// Run this once, before the first `bandana serve`: a server does not start without a store. If
/// there is a store already, this command changes nothing and ends with exit code 7.
///
/// With --json: {"store", "id"}. The id is random, and no other store has it. Devices learn the id
/// and compare it.
#[derive(Debug, Args)]
pub(super) struct Init {
    #[command(flatten)]
    store: StoreSource,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct InitView {
    store: String,
    id: String,
}

pub(super) fn run(init: &Init) -> anyhow::Result<()> {
    let (store, id) = match init.store.find()? {
        Found::Directory(directory) => {
            let made = SqliteStore::open_with(Presence::Forbidden, &directory);
            let made = made.map_err(|error| error.located(&directory))?;
            let id = made.id();
            made.close().map_err(|error| error.located(&directory))?;
            (directory.display().to_string(), id)
        }
        Found::Database(settings) => {
            let made = PostgresStore::open_with(Presence::Forbidden, &settings)?;
            if !settings.cells.is_empty() {
                let grown = grow_cells(&settings, &CellChange::default());
                grown.with_context(|| {
                    format!(
                        "the store {} was made, but not its store cells; mend that, and run \
                         `bandana cells grow` with the same flags",
                        made.id()
                    )
                })?;
            }
            (settings.url.to_string(), made.id())
        }
    };
    let view = InitView { store, id: id.to_string() };
    if init.json {
        return say_json(&view);
    }
    say(&format!("made the store {} in {}\n", view.id, view.store))
}
