//! Errors of databases that are not the store cells that a store expects.

use bandana_shared::identity::{Day, StoreId};
use thiserror::Error;

use super::{STORE_CELLS_MAX, StoreCell};

/// The reason why databases can't be the store cells of a store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CellsError {
    /// The settings list no store cells, and the store has some.
    #[error(
        "the uploads of this store are in {known} store cells, and the settings list none; list \
         their URLs in `cells` of [store]. `bandana cells show` with them in any order says their numbers"
    )]
    NotListed {
        /// The number of store cells.
        known: usize,
    },
    /// The settings list fewer store cells than the store has.
    #[error(
        "`cells` lists {listed} databases, and this store has {known} store cells; list all of \
         them. `bandana cells show` with them in any order says their numbers. Those that are out of use hold \
         counts too"
    )]
    TooFew {
        /// The number of listed databases.
        listed: usize,
        /// The number of store cells.
        known: usize,
    },
    /// The settings list too many store cells.
    #[error("`cells` lists {listed} databases; a store has at most {STORE_CELLS_MAX} store cells")]
    TooMany {
        /// The number of listed databases.
        listed: usize,
    },
    /// The settings list a database twice.
    #[error(
        "number {number} of `cells`, {url}, is in the list before; a store cell needs a database of its \
         own"
    )]
    Twice {
        /// The second place in the list.
        number: StoreCell,
        /// The database.
        url: String,
    },
    /// The settings list a database that is no store cell of this store yet.
    #[error(
        "number {number} of `cells`, {url}, is no store cell of this store yet; add it with \
         `bandana cells grow`, or leave it out"
    )]
    Unknown {
        /// The place in the list.
        number: StoreCell,
        /// The database.
        url: String,
    },
    /// The database is another store cell of the same store.
    #[error(
        "number {number} of `cells`, {url}, is store cell {found} of this store; bring `cells` back \
         into its order. If it is in the list twice, by two addresses, take one out"
    )]
    OtherNumber {
        /// The place in the list.
        number: StoreCell,
        /// The database.
        url: String,
        /// Its number as a store cell.
        found: StoreCell,
    },
    /// The database is the home of the store.
    #[error(
        "number {number} of `cells`, {url}, is the home of this store, which `url` names; a store \
         cell needs a database of its own"
    )]
    Home {
        /// The place in the list.
        number: StoreCell,
        /// The database.
        url: String,
    },
    /// The database belongs to another store.
    #[error(
        "number {number} of `cells`, {url}, belongs to the store {home}, and not to this one, \
         {expected}; name the database of this store, or an empty one"
    )]
    OtherHome {
        /// The place in the list.
        number: StoreCell,
        /// The database.
        url: String,
        /// The store that it belongs to.
        home: StoreId,
        /// The store that should have it.
        expected: StoreId,
    },
    /// The database of a store cell has no tables.
    #[error(
        "number {number} of `cells`, {url}, is an empty database. If store cell {number} is \
         another one, name that, or restore its backup there. A new one is added by `bandana cells grow`"
    )]
    Empty {
        /// The place in the list.
        number: StoreCell,
        /// The database.
        url: String,
    },
    /// The database has tables of something else.
    #[error(
        "number {number} of `cells`, {url}, has tables of something else; a store cell begins with an \
         empty database"
    )]
    Foreign {
        /// The place in the list.
        number: StoreCell,
        /// The database.
        url: String,
    },
    /// The database is a store and no store cell.
    #[error(
        "number {number} of `cells`, {url}, is a store of its own; a store cell begins with an \
         empty database"
    )]
    Store {
        /// The place in the list.
        number: StoreCell,
        /// The database.
        url: String,
    },
    /// The database is not the one that was this store cell.
    #[error(
        "number {number} of `cells`, {url}, has the id {found}, and store cell {number} has \
         {expected}; name the database that was this store cell, or restore its backup there"
    )]
    Replaced {
        /// The place in the list.
        number: StoreCell,
        /// The database.
        url: String,
        /// The id that was found.
        found: StoreId,
        /// The id of the store cell.
        expected: StoreId,
    },
    /// A store cell was named as the home of a store.
    #[error(
        "this database is store cell {number} of the store {home}; name the home of that store in \
         `url`, and this one in `cells`"
    )]
    IsCell {
        /// Its number.
        number: StoreCell,
        /// The store that it belongs to.
        home: StoreId,
    },
    /// A store cell and its home know different experiments by the same number.
    #[error(
        "store cell {number} has counts of the experiment {found:?} under a number that the home \
         gave to {expected:?}: the home was set back. Restore a backup of the home that is not \
         older than its store cells"
    )]
    OtherExperiment {
        /// The store cell.
        number: StoreCell,
        /// The experiment in the store cell.
        found: String,
        /// The experiment at home.
        expected: String,
    },
    /// A store cell knows a generation that its home does not know.
    #[error(
        "store cell {number} knows that its store has other store cells from day {day} on, and the \
         home does not: the home was set back. Restore a backup of the home that is newer than \
         that change"
    )]
    HomeSetBack {
        /// The store cell.
        number: StoreCell,
        /// The first day of the unknown generation.
        day: Day,
    },
    /// Some replica may have routed uploads of this day already.
    #[error(
        "a change of store cells can begin on day {earliest} and not on day {day}: replicas may \
         have taken uploads of the days before by the cells of now"
    )]
    TooEarly {
        /// The day that was asked for.
        day: Day,
        /// The earliest possible day.
        earliest: Day,
    },
    /// No store cell would be left for new uploads.
    #[error("no store cell is left for new uploads; leave at least one in use")]
    NoneLeft,
    /// There is no store cell with this number.
    #[error("there is no store cell {number}: `cells` lists {listed}")]
    NoSuchCell {
        /// The number.
        number: u32,
        /// The number of listed databases.
        listed: usize,
    },
}
