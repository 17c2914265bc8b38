//! Views of data sets and their budgets, as text and as JSON.

use bandana_shared::wire::v1;
use bandana_store::amount;
use serde::Serialize;

use super::table::{Side, Table, visible};

/// Stable JSON form of a list of data sets.
#[derive(Debug, Serialize)]
pub(crate) struct DataSetsView {
    pub(crate) data_sets: Vec<DataSetView>,
}

/// Stable JSON form of a data set with its budget, in billionths.
#[derive(Debug, Serialize)]
pub(crate) struct DataSetView {
    name: String,
    file: String,
    rows: u64,
    /// The most rows that are kept of each person; 0: rows are nobody's.
    rows_of_each_person: u32,
    columns: Vec<String>,
    measure: &'static str,
    budget_nanos: u64,
    spent_nanos: u64,
    unix_seconds: u64,
    withdrawn: bool,
}

impl From<v1::DataSet> for DataSetView {
    fn from(data_set: v1::DataSet) -> Self {
        let measure = match data_set.measure() {
            v1::Measure::Pure => "epsilon",
            v1::Measure::Concentrated => "rho",
            v1::Measure::Unspecified => "unknown",
        };
        Self {
            measure,
            name: data_set.name,
            file: data_set.file,
            rows: data_set.rows,
            rows_of_each_person: data_set.rows_of_each_person,
            columns: data_set.columns,
            budget_nanos: data_set.budget_nanos,
            spent_nanos: data_set.spent_nanos,
            unix_seconds: data_set.unix_seconds,
            withdrawn: data_set.withdrawn,
        }
    }
}

impl DataSetView {
    /// How much is in it, as far as that is public.
    pub(crate) fn size(&self) -> String {
        match u64::from(self.rows_of_each_person) {
            0 => self.rows.to_string(),
            each => format!("{} people x {each}", self.rows / each),
        }
    }
}

impl DataSetsView {
    pub(crate) fn describe(&self, columns: Option<usize>) -> String {
        let mut table = Table::new([
            ("data set", Side::Left),
            ("rows", Side::Right),
            ("budget", Side::Right),
            ("left", Side::Right),
            ("of", Side::Left),
            ("file", Side::Left),
            ("columns", Side::Left),
        ]);
        for set in &self.data_sets {
            let left = amount(set.budget_nanos.saturating_sub(set.spent_nanos));
            table.push([
                visible(&set.name),
                set.size(),
                amount(set.budget_nanos),
                if set.withdrawn { "withdrawn".to_owned() } else { left },
                set.measure.to_owned(),
                visible(&set.file),
                visible(&set.columns.join(" ")),
            ]);
        }
        table.render(columns)
    }
}
