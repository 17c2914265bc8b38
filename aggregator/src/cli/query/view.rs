//! Tables and JSON objects that `bandana query` prints.

use bandana_mechanisms::queries::universe::decimal;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::wire::v1::{self, ask_response};
use bandana_store::amount;
use serde::Serialize;

use crate::views::table::{Side, Table, visible};

#[derive(Debug, Serialize)]
pub(super) struct DebitsView {
    pub(super) debits: Vec<DebitView>,
}

#[derive(Debug, Serialize)]
pub(super) struct DebitView {
    number: u64,
    unix_seconds: u64,
    caller: String,
    purpose: String,
    price_nanos: u64,
}

impl From<v1::Debit> for DebitView {
    fn from(debit: v1::Debit) -> Self {
        let v1::Debit { number, unix_seconds, caller, purpose, price_nanos } = debit;
        Self { number, unix_seconds, caller, purpose, price_nanos }
    }
}

impl DebitsView {
    pub(super) fn describe(&self, columns: Option<usize>) -> String {
        let mut table = Table::new([
            ("number", Side::Right),
            ("when", Side::Left),
            ("who", Side::Left),
            ("price", Side::Right),
            ("what for", Side::Left),
        ]);
        for debit in &self.debits {
            table.push([
                debit.number.to_string(),
                UnixSeconds::new(debit.unix_seconds).to_string(),
                visible(&debit.caller),
                amount(debit.price_nanos),
                visible(&debit.purpose),
            ]);
        }
        table.render(columns)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct AnswerView {
    #[serde(flatten)]
    answer: Released,
    price_nanos: u64,
    kept: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Released {
    Numbers {
        numbers: Vec<NumberView>,
        accuracy: f64,
    },
    Value {
        value: String,
        shortfall: u64,
        /// The ends.
        #[serde(skip_serializing_if = "Option::is_none")]
        interval: Option<[String; 2]>,
    },
    Database {
        columns: Vec<String>,
        rows: Vec<Vec<String>>,
        accuracy: f64,
    },
    Nothing {},
}

#[derive(Debug, Serialize)]
struct NumberView {
    label: String,
    value: serde_json::Number,
    accuracy: f64,
    /// Value and accuracy, with the decimals of the column.
    #[serde(skip)]
    texts: [String; 2],
}

impl NumberView {
    fn new(number: v1::Number, of_all: f64) -> Self {
        let v1::Number { label, value, accuracy, decimals } = number;
        let accuracy = accuracy.unwrap_or(of_all);
        #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^63")]
        let texts = [value, accuracy.ceil() as i64].map(|units| decimal(units, decimals));
        let units = libm::pow(10.0, f64::from(decimals));
        let whole = serde_json::Number::from(value);
        let fraction = serde_json::Number::from_f64(value as f64 / units);
        let value = fraction.filter(|_| decimals > 0).unwrap_or(whole);
        Self { label, value, accuracy: accuracy / units, texts }
    }
}

impl From<v1::AskResponse> for AnswerView {
    fn from(response: v1::AskResponse) -> Self {
        let answer = match response.answer {
            Some(ask_response::Answer::Numbers(v1::Numbers { numbers, accuracy })) => {
                let view = |number| NumberView::new(number, accuracy);
                let numbers: Vec<_> = numbers.into_iter().map(view).collect();
                let accuracy = numbers.iter().map(|number| number.accuracy).fold(0.0, f64::max);
                Released::Numbers { numbers, accuracy }
            }
            Some(ask_response::Answer::Value(v1::Value { value, shortfall, interval })) => {
                let interval = interval.map(|ends| [ends.low, ends.high]);
                Released::Value { value, shortfall, interval }
            }
            Some(ask_response::Answer::Database(v1::Database { columns, rows, accuracy })) => {
                let rows = rows.into_iter().map(|row| row.values).collect();
                Released::Database { columns, rows, accuracy }
            }
            // A table goes to a file, and moments have a view of their own.
            Some(ask_response::Answer::Table(_) | ask_response::Answer::Moments(_)) | None => {
                Released::Nothing {}
            }
        };
        Self { answer, price_nanos: response.price_nanos, kept: response.kept }
    }
}

impl AnswerView {
    pub(super) fn describe(&self, columns: Option<usize>, beta: f64) -> String {
        let when = if self.kept { " before, for this answer" } else { "" };
        let paid = format!("paid{when}: {}\n", amount(self.price_nanos));
        let certain = with_probability(beta);
        let body = match &self.answer {
            Released::Numbers { numbers, .. } => {
                let [first, ..] = &numbers[..] else { return paid };
                let [_, of_first] = &first.texts;
                if numbers.iter().all(|number| number.texts[1] == *of_first) {
                    let mut table = Table::new([("answer", Side::Right), ("of", Side::Left)]);
                    for NumberView { label, texts: [value, _], .. } in numbers {
                        table.push([value.clone(), visible(label)]);
                    }
                    table.render(columns)
                        + &format!("off by at most {of_first}, all of them{certain}; ")
                } else {
                    let headings =
                        [("answer", Side::Right), ("+-", Side::Right), ("of", Side::Left)];
                    let mut table = Table::new(headings);
                    for NumberView { label, texts: [value, accuracy], .. } in numbers {
                        table.push([value.clone(), accuracy.clone(), visible(label)]);
                    }
                    table.render(columns) + &format!("off by at most that, all of them{certain}; ")
                }
            }
            Released::Value { value, shortfall, interval } => {
                let interval = interval.as_ref().map_or_else(String::new, |[low, high]| {
                    format!("the true one is from {} to {}\n", visible(low), visible(high))
                });
                let value = visible(value);
                format!(
                    "{value}\n{interval}at most {shortfall} rows worse than the best{certain}; "
                )
            }
            Released::Database { columns, rows, accuracy } => {
                let line = |cells: &[String]| visible(&cells.join(",")) + "\n";
                let rows: String = rows.iter().map(|row| line(row)).collect();
                line(columns)
                    + &rows
                    + &format!("off by at most {accuracy:.3} of the rows{certain}; ")
            }
            Released::Nothing {} => "this program does not know this kind of answer; update the \
                                     program; "
                .to_owned(),
        };
        body + &paid
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SessionView {
    session: String,
    data_set: String,
    cells: u64,
    updates_max: u32,
    threshold: u64,
    accuracy: f64,
    price_nanos: u64,
}

impl From<v1::Session> for SessionView {
    fn from(session: v1::Session) -> Self {
        Self {
            session: session.session,
            data_set: session.data_set,
            cells: session.cells,
            updates_max: session.updates_max,
            threshold: session.threshold,
            accuracy: session.accuracy,
            price_nanos: session.price_nanos,
        }
    }
}

impl SessionView {
    pub(super) fn describe(&self, beta: f64) -> String {
        let certain = if self.accuracy > 0.0 { with_probability(beta) } else { String::new() };
        let promise = promise(self.accuracy) + &certain;
        let (updates, threshold) = (self.updates_max, self.threshold);
        let what = match threshold {
            0 => format!("{updates} answers, each with noise"),
            _ => format!("at most {updates} updates, threshold {threshold} rows"),
        };
        let (session, paid) = (visible(&self.session), amount(self.price_nanos));
        format!("session {session} over {} cells: {what}; {promise}; paid: {paid}\n", self.cells)
    }
}

fn with_probability(beta: f64) -> String {
    format!(", with probability {}", 1.0 - beta)
}

fn promise(accuracy: f64) -> String {
    if accuracy > 0.0 {
        format!("no answer is off by more than {accuracy:.0} rows")
    } else {
        "nothing is promised about errors".to_owned()
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SessionAnswerView {
    answer: f64,
    updated: bool,
    updates_left: u32,
    kept: bool,
    accuracy: f64,
}

impl From<v1::AskSessionResponse> for SessionAnswerView {
    fn from(response: v1::AskSessionResponse) -> Self {
        let v1::AskSessionResponse { answer, updated, updates_left, kept, accuracy } = response;
        Self { answer, updated, updates_left, kept, accuracy }
    }
}

impl SessionAnswerView {
    pub(super) fn describe(&self) -> String {
        let promise = promise(self.accuracy);
        format!("{:.0}\nupdates left: {}; {promise}\n", self.answer, self.updates_left)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PlanChoiceView {
    pub(super) candidates: u64,
    pub(super) epsilon_nanos: u64,
    pub(super) rho_nanos: u64,
    pub(super) mean_rows: f64,
    pub(super) shortfall_rows: u64,
    pub(super) beta: f64,
}

impl PlanChoiceView {
    pub(super) fn describe(&self) -> String {
        let Self { candidates, epsilon_nanos, rho_nanos, mean_rows, shortfall_rows, beta } = self;
        format!(
            "a choice among {candidates} for epsilon {} (rho {}): at most {mean_rows:.1} rows worse \
             than the best on average, and {shortfall_rows} with probability {}\n",
            amount(*epsilon_nanos),
            amount(*rho_nanos),
            1.0 - beta
        )
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PlanView {
    pub(super) queries: u64,
    pub(super) accuracy_rows: Option<f64>,
    pub(super) beta: f64,
}

impl PlanView {
    pub(super) fn describe(&self) -> String {
        let Self { queries, accuracy_rows, beta } = self;
        match accuracy_rows {
            Some(rows) => format!(
                "{queries} counts: none is off by more than {rows:.0} rows, with probability {}\n",
                1.0 - beta
            ),
            None => "not one count is that accurate at this price\n".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(labels: &str, accuracies: [Option<f64>; 2]) -> String {
        let number = |(label, accuracy): (&str, Option<f64>)| v1::Number {
            label: label.to_owned(),
            value: 7,
            accuracy,
            decimals: u32::from(label == "temp"),
        };
        let numbers = ["age", labels].into_iter().zip(accuracies).map(number).collect();
        let answer = ask_response::Answer::Numbers(v1::Numbers { numbers, accuracy: 900.0 });
        let response = v1::AskResponse { answer: Some(answer), price_nanos: 1, kept: false };
        AnswerView::from(response).describe(None, 0.05)
    }

    #[test]
    fn numbers_have_the_decimals_of_their_column() {
        let mixed = described("temp", [Some(20.0), Some(900.0)]);
        assert!(mixed.contains("20  age"), "{mixed}");
        assert!(mixed.contains("0.7  90.0  temp"), "{mixed}");
    }

    #[test]
    fn numbers_have_a_bound_of_their_own_unless_it_is_that_of_all() {
        let own = described("pay", [Some(20.0), Some(900.0)]);
        assert!(own.contains("+-") && own.contains("  20  age"), "{own}");
        assert!(own.contains("900  pay") && own.contains("off by at most that"), "{own}");
        for same in [[None; 2], [Some(900.0); 2]] {
            let all = described("pay", same);
            assert!(
                !all.contains("+-")
                    && all.contains("off by at most 900, all of them, with probability 0.95"),
                "{all}"
            );
        }
    }
}
