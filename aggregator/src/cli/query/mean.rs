//! `bandana query mean`.

use bandana_shared::wire::v1::{self, ask_request, ask_response};
use bandana_store::amount;
use clap::Args;
use serde::Serialize;

use super::question_id::Repeatable;
use super::{Cost, Server};
use crate::views::table::{Side, Table, visible};

#[derive(Debug, Args)]
pub(in crate::cli) struct Mean {
    /// The data set.
    #[arg(value_name = "DATA-SET")]
    data_set: String,
    /// Name of the column.
    #[arg(long, value_name = "NAME")]
    column: String,
    /// The rows that count, by conditions which all must hold. Without it, all rows.
    #[arg(long = "where", value_name = "PREDICATE", default_value = "", hide_default_value = true)]
    predicate: String,
    /// Tell the variance too. The price is then shared by one sum more.
    #[arg(long)]
    variance: bool,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    repeatable: Repeatable,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Serialize)]
struct MeanView {
    of: String,
    mean: EstimateView,
    variance: Option<EstimateView>,
    /// How many rows count, with noise unless all do.
    rows: EstimateView,
    beta: f64,
    price_nanos: u64,
    kept: bool,
}

#[derive(Debug, Serialize)]
struct EstimateView {
    value: f64,
    low: f64,
    high: f64,
}

impl From<v1::NumberInterval> for EstimateView {
    fn from(v1::NumberInterval { value, low, high }: v1::NumberInterval) -> Self {
        Self { value, low, high }
    }
}

/// Digits after the point, so that an interval has three that say something.
fn digits(EstimateView { low, high, .. }: &EstimateView) -> usize {
    let width = high - low;
    [100.0, 10.0, 1.0].iter().position(|least| width >= *least).unwrap_or(3)
}

impl MeanView {
    fn describe(&self, columns: Option<usize>) -> String {
        let headings = [("answer", Side::Right), ("from", Side::Right), ("to", Side::Right)];
        let [answer, from, to] = headings;
        let mut table = Table::new([answer, from, to, ("of", Side::Left)]);
        let mut push = |EstimateView { value, low, high }: &EstimateView, digits, what: &str| {
            let [value, low, high] = [value, low, high].map(|number| format!("{number:.digits$}"));
            table.push([value, low, high, what.to_owned()]);
        };
        push(&self.mean, digits(&self.mean), &format!("mean of {}", visible(&self.of)));
        if let Some(variance) = &self.variance {
            push(variance, digits(variance), &format!("variance of {}", visible(&self.of)));
        }
        push(&self.rows, 0, "rows");
        let when = if self.kept { " before, for this answer" } else { "" };
        table.render(columns)
            + &format!(
                "within these bounds, all of them, with probability {}; paid{when}: {}\n",
                1.0 - self.beta,
                amount(self.price_nanos)
            )
    }
}

impl Mean {
    pub(super) fn tell(self) -> anyhow::Result<()> {
        let Self { data_set, column, predicate, variance, cost, repeatable, server } = self;
        let question = ask_request::Question::Mean(v1::Mean { column, predicate, variance });
        let answer = server.ask(&repeatable, data_set, &cost, question)?;
        let (price_nanos, kept) = (answer.price_nanos, answer.kept);
        let unknown = "this program does not know this kind of answer; update the program";
        let Some(ask_response::Answer::Moments(moments)) = answer.answer else {
            anyhow::bail!(unknown);
        };
        let v1::Moments { label: of, mean: Some(mean), variance, rows: Some(rows) } = moments
        else {
            anyhow::bail!(unknown);
        };
        let (mean, variance, rows) = (mean.into(), variance.map(Into::into), rows.into());
        let view = MeanView { of, mean, variance, rows, beta: cost.beta, price_nanos, kept };
        server.show(&view, MeanView::describe)
    }
}
