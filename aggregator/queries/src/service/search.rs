//! Names of columns that nobody knows before, found when a data set is registered.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::partition::PartitionSelection;
use bandana_mechanisms::queries::price::{ConcentratedLoss, LossShape, Measure, Price, PureLoss};
use bandana_mechanisms::queries::universe::{Column, Schema, VALUES_MAX};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::wire::v1::{self, partition_selection};
use tonic::Status;

use super::{check_least, generator, refuse};
use crate::datasets::reading::NameCounts;

/// Most names that are found, in all columns together.
const NAMES_MAX: usize = 4096;

/// The probability with which a name of enough rows is found, as it is told.
const BETA: f64 = 0.05;

/// A search for names, and what it costs.
pub(super) struct Search {
    /// The columns, by their index in the schema.
    pub(super) columns: Vec<usize>,
    delta: f64,
    /// For each column.
    selection: PartitionSelection,
    /// The price of all, in billionths.
    pub(super) price: u64,
}

impl Search {
    /// Checks a search in the columns of a schema.
    pub(super) fn new(
        wanted: &v1::PartitionSelection,
        schema: &Schema,
        measure: Measure,
    ) -> Result<Self, Status> {
        use partition_selection::Price as Asked;

        let price = match wanted.price {
            Some(Asked::Epsilon(epsilon)) => Price::Pure(PureLoss::new(epsilon).map_err(refuse)?),
            Some(Asked::Rho(rho)) => {
                Price::Concentrated(ConcentratedLoss::new(rho).map_err(refuse)?)
            }
            None => {
                let message = "the search for names needs a price; give epsilon or rho";
                return Err(Status::invalid_argument(message));
            }
        };
        let charge = price.nanos(measure, LossShape::Symmetric).map_err(refuse)?;
        check_least(measure, charge)?;
        let mut columns = Vec::new();
        for name in &wanted.columns {
            let (place, column) = schema.find(name).map_err(refuse)?;
            // Whether names can be added, and as many as may be found: once rows have been looked at, nothing
            // is refused that depends on what was found.
            column.with_names([]).map_err(refuse)?;
            let most = VALUES_MAX - NAMES_MAX;
            if column.values() > most {
                return Err(Status::invalid_argument(format!(
                    "the column {name:?} has {} values, and one whose names are to be found may have {most}",
                    column.values()
                )));
            }
            if columns.contains(&place) {
                let message = format!("the column {name:?} is to be searched twice");
                return Err(Status::invalid_argument(message));
            }
            columns.push(place);
        }
        if columns.is_empty() {
            let message = "the search for names has no column; give those to be searched";
            return Err(Status::invalid_argument(message));
        }
        let parts = u32::try_from(columns.len()).unwrap_or(u32::MAX);
        let selection = selection(schema, price, wanted.delta, parts).map_err(refuse)?;
        Ok(Self { columns, delta: wanted.delta, selection, price: charge })
    }

    /// The schema with the names that are found, of those counted in each column. Whether this succeeds depends
    /// on the schema alone.
    pub(super) fn run(&self, schema: &Schema, counted: &[NameCounts]) -> Result<Schema, Status> {
        let mut random = generator()?;
        let mut columns = schema.columns().to_vec();
        let most = NAMES_MAX / self.columns.len().max(1);
        for (&place, counts) in self.columns.iter().zip(counted) {
            let mut found = self.selection.select(counts, &mut random);
            found.sort_by_key(|(name, noisy)| (std::cmp::Reverse(*noisy), *name));
            found.truncate(most);
            let mut names: Vec<String> = found.into_iter().map(|(name, _)| name.clone()).collect();
            names.sort_unstable();
            if let Some(column) = columns.get_mut(place) {
                *column = column.with_names(names).map_err(refuse)?;
            }
        }
        Schema::new(columns).map_err(refuse)
    }

    /// Refuses a search that would hardly find a name that all rows have. Both numbers are public.
    pub(super) fn check_rows(&self, rows: u64) -> Result<(), Status> {
        let wanted = self.selection.found_from(0.5).map_err(refuse)?;
        if wanted <= rows {
            return Ok(());
        }
        Err(Status::failed_precondition(format!(
            "at this price and delta a name needs about {wanted} rows to be found, and the file has {rows}; pay \
             more, allow a larger delta, or search fewer columns. Nothing was registered, and nothing spent"
        )))
    }

    /// What it is paid for, in words.
    pub(super) fn purpose(&self, schema: &Schema) -> Result<String, Status> {
        let columns = self.columns.iter().filter_map(|&place| schema.columns().get(place));
        let names: Vec<&str> = columns.map(Column::name).collect();
        let rows = self.selection.found_from(BETA).map_err(refuse)?;
        Ok(format!(
            "names of {}, at delta {:e}: one of {rows} rows is found with probability .95",
            names.join(", "),
            self.delta
        ))
    }
}

/// The selection in each of so many columns, which share price and delta.
fn selection(
    schema: &Schema,
    price: Price,
    delta: f64,
    parts: u32,
) -> Result<PartitionSelection, QueryError> {
    let rows = schema.people().map_or(1, |(_, rows)| rows);
    let price = schema.price_of_row(price.part(parts)?)?;
    let wrong = |_| QueryError::SelectionDelta(delta);
    // Checked as a whole, for the error's number.
    PartitionSelection::new(price, Delta::new(delta).map_err(wrong)?, rows)?;
    let part = Delta::new(delta / f64::from(parts.max(1))).map_err(wrong)?;
    PartitionSelection::new(price, part, rows)
}
