//! `bandana query mean`.

use bandana_mechanisms::queries::moments::{Estimate, Moments, middle};
use bandana_mechanisms::queries::questions::NoisyNumber;
use bandana_mechanisms::queries::universe::{Column, Schema};
use bandana_shared::wire::v1::{self, AskResponse, ask_request, ask_response};
use clap::Args;
use serde::Serialize;

use super::query::{Cost, Server};
use super::question_id::Repeatable;
use crate::store::queries::amount;
use crate::views::failure::Failure;
use crate::views::table::{Side, Table, visible};

#[derive(Debug, Args)]
pub(super) struct Mean {
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

impl From<Estimate> for EstimateView {
    fn from(Estimate { value, low, high }: Estimate) -> Self {
        Self { value, low, high }
    }
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
        push(&self.mean, 3, &format!("mean of {}", visible(&self.of)));
        if let Some(variance) = &self.variance {
            push(variance, 3, &format!("variance of {}", visible(&self.of)));
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
        let column = self.declared()?;
        let name = column.name();
        let range = column
            .range()
            .ok_or_else(|| Failure::Incomplete(format!("the column {name:?} has no numbers")))?;
        let about = middle(range);
        let term = |squared| v1::Term { column: self.column.clone(), squared, about };
        let mut terms = vec![term(false)];
        terms.extend(self.variance.then(|| term(true)));
        let question = ask_request::Question::Sums(v1::Sums {
            columns: Vec::new(),
            predicate: self.predicate.clone(),
            terms,
            counted: true,
        });
        let data_set = self.data_set.clone();
        let answer = self.server.ask(&self.repeatable, data_set, &self.cost, question)?;
        let view = self.view(answer, (about, range), &column)?;
        self.server.show(&view, MeanView::describe)
    }

    /// The column, as it was declared.
    fn declared(&self) -> anyhow::Result<Column> {
        let incomplete = |error: &dyn std::fmt::Display| Failure::Incomplete(error.to_string());
        let data_sets = self.server.data_sets()?;
        let declared = data_sets.into_iter().find(|one| one.name == self.data_set);
        let declared = declared.ok_or_else(|| {
            let name = &self.data_set;
            incomplete(&format!("there is no data set {name:?}; `bandana query list` has all"))
        })?;
        let schema = Schema::parse(&declared.columns).map_err(|error| incomplete(&error))?;
        let (_, column) = schema.find(&self.column).map_err(|error| incomplete(&error))?;
        Ok(column.clone())
    }

    fn view(
        &self,
        answer: AskResponse,
        (about, range): (i64, (i64, i64)),
        column: &Column,
    ) -> anyhow::Result<MeanView> {
        let unknown = "this program does not know this kind of answer; update the program";
        let Some(ask_response::Answer::Numbers(numbers)) = answer.answer else {
            anyhow::bail!(unknown);
        };
        let mut noisy = numbers.numbers.into_iter().map(|number| {
            let v1::Number { label, value, accuracy, decimals } = number;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole number of at most 2^63"
            )]
            let accuracy = accuracy.unwrap_or(numbers.accuracy).ceil() as u64;
            NoisyNumber { label, value, accuracy, decimals }
        });
        let (Some(rows), Some(first)) = (noisy.next(), noisy.next()) else {
            anyhow::bail!(unknown);
        };
        let moments = Moments { rows: &rows, first: &first, about, range };
        let decimals = column.decimals();
        // As the server says it, without what is taken from each value.
        let of = first.label.replacen(&format!(" - {about}"), "", 1);
        let (value, accuracy) = (rows.value as f64, rows.accuracy as f64);
        Ok(MeanView {
            of,
            mean: moments.mean().with_decimals(decimals).into(),
            variance: noisy
                .next()
                .map(|second| moments.variance(&second).with_decimals(2 * decimals).into()),
            rows: EstimateView { value, low: (value - accuracy).max(0.0), high: value + accuracy },
            beta: self.cost.beta,
            price_nanos: answer.price_nanos,
            kept: answer.kept,
        })
    }
}
