//! `bandana query synthetic-table`.

use std::path::PathBuf;

use anyhow::Context as _;
use bandana_mechanisms::queries::universe;
use bandana_shared::wire::v1::{self, AskResponse, ask_request, ask_response};
use bandana_store::amount;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::question_id::Repeatable;
use super::{Cost, Server};
use crate::cli::export_file::parquet;
use crate::cli::{Readers, write_new};
use crate::views::columns::{Cells, Column, Form, whole};

#[derive(Debug, Args)]
pub(in crate::cli) struct SyntheticTable {
    /// The data set.
    #[arg(value_name = "DATA-SET")]
    data_set: String,
    /// Name of a column. Repeat the flag for each. Without it, all columns.
    #[arg(long = "column", value_name = "NAME")]
    columns: Vec<String>,
    /// Rows of the table.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    rows: u32,
    /// Columns of the marginals that it preserves: 2 for all pairs.
    #[arg(long, value_name = "NUMBER", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=3))]
    ways: u32,
    /// File to write, which must not exist yet. Parquet if it ends in .parquet, else CSV.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    repeatable: Repeatable,
    #[command(flatten)]
    server: Server,
}

/// A table as it is described, without its rows.
#[derive(Debug, Serialize)]
struct TableView {
    file: PathBuf,
    rows: u32,
    marginals: u64,
    largest: ShareView,
    mean: ShareView,
    cell: ShareView,
    chosen: Vec<String>,
    beta: f64,
    price_nanos: u64,
    kept: bool,
}

#[derive(Debug, Serialize)]
struct ShareView {
    value: f64,
    accuracy: f64,
}

impl From<Option<v1::NoisyShare>> for ShareView {
    fn from(share: Option<v1::NoisyShare>) -> Self {
        let v1::NoisyShare { value, accuracy } = share.unwrap_or_default();
        Self { value, accuracy }
    }
}

impl std::fmt::Display for ShareView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { value, accuracy } = self;
        // Noise can bring a share out of its range.
        let percent = |share: f64| 100.0 * share.clamp(0.0, 1.0);
        let [value, low, high] = [*value, value - accuracy, value + accuracy].map(percent);
        write!(f, "{value:.2} % ({low:.2} to {high:.2})")
    }
}

impl TableView {
    fn describe(&self) -> String {
        let Self { rows, marginals, largest, mean, cell, chosen, beta, kept, .. } = self;
        let when = if *kept { " before, for this table" } else { "" };
        let most = 100.0 * (cell.value + cell.accuracy).clamp(0.0, 1.0);
        format!(
            "{}: {rows} rows\nof {marginals} marginals, the worst is off by {largest} of the rows, the \
             mean by {mean}, one combination of values by at most {most:.2} %; with probability {}\nlearned \
             {} marginals, of single columns too; paid{when}: {}\n",
            self.file.display(),
            1.0 - beta,
            chosen.len(),
            amount(self.price_nanos)
        )
    }
}

impl SyntheticTable {
    pub(super) fn release(self) -> anyhow::Result<()> {
        // A file that can't be made must cost nothing.
        write_new(&self.out, &[], Readers::Default)?;
        let released = self.ask().and_then(|answer| self.write(answer));
        if released.is_err() {
            // The first error is the one to report.
            std::fs::remove_file(&self.out).ok();
        }
        let view = released?;
        self.server.show(&view, |view, _| view.describe())
    }

    fn ask(&self) -> anyhow::Result<AskResponse> {
        let (columns, ways, rows) = (self.columns.clone(), self.ways, self.rows);
        let asked = v1::SyntheticTable { columns, ways, rows };
        let question = ask_request::Question::SyntheticTable(asked);
        self.server.ask(&self.repeatable, self.data_set.clone(), &self.cost, question)
    }

    fn write(&self, answer: AskResponse) -> anyhow::Result<TableView> {
        let Some(ask_response::Answer::Table(table)) = answer.answer else {
            anyhow::bail!("this program does not know this kind of answer; update the program");
        };
        let cells = cells(&table.columns, table.values)?;
        let bytes = match self.out.extension() {
            Some(ending) if ending == "parquet" => parquet(&cells)?,
            _ => whole(Form::Csv, &cells)?,
        };
        let file = self.out.clone();
        std::fs::write(&file, bytes).with_context(|| format!("can't write {}", file.display()))?;
        Ok(TableView {
            file,
            rows: self.rows,
            marginals: table.marginals,
            largest: table.largest.into(),
            mean: table.mean.into(),
            cell: table.cell.into(),
            chosen: table.chosen,
            beta: self.cost.beta,
            price_nanos: answer.price_nanos,
            kept: answer.kept,
        })
    }
}

/// The values of columns, given by their indices.
fn cells(columns: &[String], values: Vec<v1::TableColumn>) -> anyhow::Result<Vec<Column>> {
    let column = |(text, values): (&String, v1::TableColumn)| {
        let column: universe::Column = text
            .parse()
            .with_context(|| format!("the server sent the column {text:?}, which is not one"))?;
        let codes = values.codes;
        if codes.iter().any(|&code| code as usize >= column.values()) {
            anyhow::bail!("the server sent a value that the column {} can't have", column.name());
        }
        let name = column.name().to_owned();
        let cells = match column.range() {
            Some(_) if column.decimals() == 0 => {
                let units: Vec<i64> = codes.iter().filter_map(|&code| column.units(code)).collect();
                units.into()
            }
            Some(_) => {
                let units = libm::pow(10.0, f64::from(column.decimals()));
                let number = |&code: &u32| Some(column.units(code)? as f64 / units);
                Cells::Numbers(codes.iter().filter_map(number).collect())
            }
            None => Cells::Text(codes.iter().map(|&code| column.value(code)).collect()),
        };
        Ok(Column { name, cells })
    };
    columns.iter().zip(values).map(column).collect()
}
