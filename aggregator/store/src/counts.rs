//! Tallies assembled from database rows.

use std::collections::BTreeMap;

use bandana_shared::alphabet::Symbol;
use bandana_shared::tally::Tally;

use super::{StoreError, damaged};

/// A row of a query: the reports of all symbols, and how many of them say this symbol.
///
/// Both stores have one table with a row for the reports and those that say 1, and another for
/// symbols beyond 1, so that bits take one row. One statement reads both tables and so sees one
/// state.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountRow {
    pub(super) symbol: u8,
    pub(super) reports: u64,
    pub(super) count: u64,
}

/// Rows, grouped by key.
#[derive(Debug)]
pub(super) struct Counts<K>(BTreeMap<K, (u64, Vec<(Symbol, u64)>)>);

impl<K: Ord> Counts<K> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn add(&mut self, key: K, row: CountRow) -> Result<(), StoreError> {
        let number = row.symbol;
        let symbol = Symbol::new(number).ok_or_else(|| damaged(format!("a symbol {number}")))?;
        let (reports, symbols) = self.0.entry(key).or_default();
        *reports = reports.saturating_add(row.reports);
        symbols.push((symbol, row.count));
        Ok(())
    }

    /// The tallies of all keys.
    pub(super) fn tallies(self) -> Result<BTreeMap<K, Tally>, StoreError> {
        let tally = |(key, (reports, symbols))| {
            let tally = Tally::with_symbols(reports, symbols);
            Ok((key, tally.map_err(|error| damaged(error.to_string()))?))
        };
        self.0.into_iter().map(tally).collect()
    }
}
