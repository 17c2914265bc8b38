//! `bandana query`.

mod mean;
mod plan;
mod question_id;
mod register;
mod synthetic_table;
mod view;

use bandana_edge::operator_client::Curator;
use bandana_shared::wire::v1::{
    self, AskRequest, AskResponse, AskSessionRequest, AskSessionResponse, ListDataSetsRequest,
    ListDebitsRequest, OpenSessionRequest, WithdrawDataSetRequest, ask_request, choice,
    open_session_request, synthetic,
};
use clap::{ArgGroup, Args, Subcommand};
use tonic::{Response, Status};

use super::connection::{Connection, block_on};
use super::consent::Prompt;
use super::{say, say_json};
use crate::views::data_set_view::{DataSetView, DataSetsView};
use crate::views::failure::Failure;
use crate::views::table::terminal_columns;
use mean::Mean;
use plan::{Plan, PlanChoice};
use question_id::Repeatable;
use register::Register;
use synthetic_table::SyntheticTable;
use view::{AnswerView, DebitsView, SessionAnswerView, SessionView};

const WITHDRAW: Prompt = Prompt {
    act: "withdraw the data set for good, with what is left of its budget",
    undone: "nothing was withdrawn",
    unasked: "nobody needs to ask about the data set any more",
};

const PREDICATES: &str = "A predicate is a list of conditions, all of which must hold: \
                          `age=30..39,city=Bonn|Ulm`, or `*` for all rows. Put a value with any of \
                          = , | : * in quotes: `income=\"<=50K\"`.";

const FIELDS: &str = "\
With --json: one object with the fields of the message that the server sends (proto/bandana/v1/\
curator.proto), prices and budgets in billionths.";

#[derive(Debug, Subcommand)]
pub(super) enum Query {
    /// Register a file as a data set, with a budget for good.
    ///
    /// The columns and their values are public: choose them before you look at the data.
    #[command(after_long_help = FIELDS)]
    #[command(group = ArgGroup::new("budget").required(true).args(["epsilon", "rho"]))]
    Register(Register),
    /// Withdraw a data set for good: the server answers nothing about it any more, and takes what
    /// is left of its budget.
    #[command(after_long_help = FIELDS)]
    Withdraw(Withdraw),
    /// List data sets, with what is left of their budgets.
    #[command(after_long_help = FIELDS)]
    List(List),
    /// Show what was taken from a budget, newest first.
    #[command(after_long_help = FIELDS)]
    Debits(Debits),
    /// Count the rows that meet each predicate.
    #[command(after_long_help = PREDICATES)]
    Count(Count),
    /// Count the rows of each combination of values.
    #[command(after_long_help = FIELDS)]
    Histogram(ByColumn),
    /// Add up columns of numbers.
    #[command(after_long_help = FIELDS)]
    Sum(Sum),
    /// Tell the mean of a column of numbers, and its variance.
    ///
    /// The interval of each holds with probability 1 - beta, for all of the answer together.
    #[command(after_long_help = PREDICATES)]
    Mean(Mean),
    /// Choose one value of a column.
    #[command(after_long_help = FIELDS)]
    #[command(group = ArgGroup::new("aim").required(true).args(["most_common", "quantile"]))]
    Choose(Choose),
    /// Release a small synthetic database.
    #[command(after_long_help = PREDICATES)]
    #[command(group = ArgGroup::new("size").required(true).args(["rows", "alpha"]))]
    Synthetic(Synthetic),
    /// Release a synthetic table of many columns, whose pairs of columns are as in the data.
    #[command(after_long_help = FIELDS)]
    SyntheticTable(SyntheticTable),
    /// Open a session for many adaptive counts, and pay for all of them at once.
    #[command(after_long_help = FIELDS)]
    #[command(group = ArgGroup::new("plan").required(true).args(["queries", "updates"]))]
    #[command(group = ArgGroup::new("price").required(true).args(["epsilon", "rho"]))]
    Open(Open),
    /// Ask a session for a count, at no further price.
    #[command(after_long_help = PREDICATES)]
    Ask(Ask),
    /// Tell how far a choice by the exponential mechanism falls short, or what epsilon it needs.
    /// This needs no server.
    #[command(group = ArgGroup::new("wanted").required(true).args(["epsilon", "mean_rows"]))]
    PlanChoice(PlanChoice),
    /// Tell how accurate counts are, or how many you can ask. This needs no server.
    #[command(group = ArgGroup::new("wanted").required(true).args(["queries", "alpha_rows"]))]
    Plan(Plan),
}

#[derive(Debug, Args)]
pub(super) struct Server {
    #[command(flatten)]
    connection: Connection,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("price").required(true).args(["epsilon", "rho"]))]
pub(super) struct Cost {
    /// Price in epsilon, for Laplace noise and for choices. With --delta, you pay the largest rho
    /// that keeps both.
    #[arg(long, value_name = "NUMBER")]
    pub(super) epsilon: Option<f64>,
    /// The delta of an approximate price.
    #[arg(long, value_name = "NUMBER", requires = "epsilon")]
    pub(super) delta: Option<f64>,
    /// Price in rho, from a budget of rho: for Gaussian noise, or for the choice with the largest
    /// epsilon that costs no more.
    #[arg(long, value_name = "NUMBER")]
    pub(super) rho: Option<f64>,
    /// Probability that an answer is less accurate than it states.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.05, value_parser = probability)]
    pub(super) beta: f64,
}

/// A probability that something fails. The wire takes 0 for none given.
fn probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && *number < 1.0);
    number.ok_or_else(|| "it must be a number above 0 and below 1".to_owned())
}

impl Cost {
    fn price(&self) -> Option<ask_request::Price> {
        match (self.epsilon, self.delta) {
            (Some(epsilon), Some(delta)) => {
                Some(ask_request::Price::Approximate(v1::ApproximateBudget { epsilon, delta }))
            }
            (Some(epsilon), None) => Some(ask_request::Price::Epsilon(epsilon)),
            (None, _) => self.rho.map(ask_request::Price::Rho),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Withdraw {
    /// Name of the data set.
    #[arg(value_name = "NAME")]
    name: String,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
pub(super) struct Debits {
    /// The data set.
    #[arg(value_name = "DATA-SET")]
    data_set: String,
    /// How many debits to show at most, 1 to 1000.
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Show debits with a smaller number only. To go on, give the last number that you saw.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    before: Option<u64>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
pub(super) struct Count {
    /// The data set.
    #[arg(value_name = "DATA-SET")]
    data_set: String,
    /// A predicate. Repeat the flag for several counts, which share the price.
    #[arg(long = "where", value_name = "PREDICATE", required = true)]
    predicates: Vec<String>,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    repeatable: Repeatable,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
pub(super) struct ByColumn {
    /// The data set.
    #[arg(value_name = "DATA-SET")]
    data_set: String,
    /// Name of a column.
    #[arg(long = "column", value_name = "NAME", required = true)]
    columns: Vec<String>,
    #[command(flatten)]
    of: OfRows,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    repeatable: Repeatable,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
struct OfRows {
    /// The rows that count, by conditions which all must hold: `age=30..39,city=Bonn|Ulm`.
    /// Without it, all rows.
    #[arg(long = "where", value_name = "PREDICATE", default_value = "", hide_default_value = true)]
    predicate: String,
}

#[derive(Debug, Args)]
pub(super) struct Sum {
    /// Add up the squares of the values.
    #[arg(long)]
    squares: bool,
    #[command(flatten)]
    by: ByColumn,
}

#[derive(Debug, Args)]
pub(super) struct Choose {
    /// The data set.
    #[arg(value_name = "DATA-SET")]
    data_set: String,
    /// Name of the column.
    #[arg(long, value_name = "NAME")]
    column: String,
    /// The value that most rows have.
    #[arg(long)]
    most_common: bool,
    /// The value that this share of the rows is at or below, 0 to 1.
    #[arg(long, value_name = "SHARE")]
    quantile: Option<f64>,
    /// Tell an interval that has the quantile, too. It takes two thirds of the price.
    #[arg(long, requires = "quantile", conflicts_with = "weights")]
    interval: bool,
    /// Choose by report noisy max (permute-and-flip) instead of the exponential mechanism. Use it
    /// with a budget of epsilon: from a budget of rho it costs about four times as much.
    #[arg(long)]
    noisy_max: bool,
    /// Base measure: one weight for each value of the column, in the order of the values. Give
    /// larger ones to values that you expect more often. Choose them before you look at the data.
    #[arg(long = "weight", value_name = "NUMBER", conflicts_with = "noisy_max")]
    weights: Vec<u32>,
    #[command(flatten)]
    of: OfRows,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    repeatable: Repeatable,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
pub(super) struct Synthetic {
    /// The data set.
    #[arg(value_name = "DATA-SET")]
    data_set: String,
    /// Name of a column.
    #[arg(long = "column", value_name = "NAME", required = true)]
    columns: Vec<String>,
    /// A predicate that the database should answer well. Repeat the flag for each. Without it, all
    /// halfspaces of columns with two values.
    #[arg(long = "where", value_name = "PREDICATE")]
    predicates: Vec<String>,
    /// Rows of the database.
    #[arg(long, value_name = "NUMBER")]
    rows: Option<u32>,
    /// Take as many rows as some database needs to be off by no more than this share.
    #[arg(long, value_name = "SHARE")]
    alpha: Option<f64>,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    repeatable: Repeatable,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
pub(super) struct Open {
    /// Name of the session.
    #[arg(value_name = "SESSION")]
    session: String,
    /// The data set.
    #[arg(long, value_name = "NAME")]
    data_set: String,
    /// A column that you may ask the session about. Repeat the flag for each. Without it, all
    /// columns.
    #[arg(long = "column", value_name = "NAME")]
    columns: Vec<String>,
    /// Price of the whole session in epsilon. With --delta, you pay the largest rho that keeps
    /// both.
    #[arg(long, value_name = "NUMBER")]
    epsilon: Option<f64>,
    /// The delta of an approximate price.
    #[arg(long, value_name = "NUMBER", requires = "epsilon")]
    delta: Option<f64>,
    /// Price of the whole session in rho, from a budget of rho.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["epsilon", "delta"])]
    rho: Option<f64>,
    /// Promise the smallest possible error for this many queries.
    #[arg(long, value_name = "NUMBER")]
    queries: Option<u64>,
    /// Probability that the promise fails.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.05, value_parser = probability,
          conflicts_with = "updates")]
    beta: f64,
    /// Promise no error, and end the session after this many updates.
    #[arg(long, value_name = "NUMBER", requires = "threshold")]
    updates: Option<u32>,
    /// By how many rows the hypothesis must be off before it is updated.
    #[arg(long, value_name = "ROWS", requires = "updates")]
    threshold: Option<u64>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, Args)]
pub(super) struct Ask {
    /// The session.
    #[arg(value_name = "SESSION")]
    session: String,
    /// The predicate.
    #[arg(long = "where", value_name = "PREDICATE")]
    predicate: String,
    #[command(flatten)]
    repeatable: Repeatable,
    #[command(flatten)]
    server: Server,
}

pub(super) fn run(query: Query) -> anyhow::Result<()> {
    match query {
        Query::Register(register) => register.tell(),
        Query::Withdraw(Withdraw { name, yes, server }) => {
            WITHDRAW.confirmed(yes)?;
            let request = WithdrawDataSetRequest { name };
            let call = async |mut curator: Curator| curator.withdraw_data_set(request).await;
            let view = DataSetsView { data_sets: vec![server.call(call)?.into()] };
            server.show(&view, DataSetsView::describe)
        }
        Query::List(list) => {
            let data_sets = list.server.data_sets()?.into_iter().map(DataSetView::from).collect();
            list.server.show(&DataSetsView { data_sets }, DataSetsView::describe)
        }
        Query::Debits(debits) => {
            let (data_set, limit) = (debits.data_set, debits.limit);
            let before = debits.before.unwrap_or(0);
            let mut request = ListDebitsRequest { data_set, limit, before };
            let mut all = Vec::new();
            while request.limit > 0 {
                let page = request.clone();
                let answer =
                    debits.server.call(async |mut curator| curator.list_debits(page).await)?;
                request.before = answer.next_before;
                all.extend(answer.debits.into_iter().map(Into::into));
                request.limit = limit.saturating_sub(u32::try_from(all.len()).unwrap_or(limit));
                if request.before == 0 {
                    break;
                }
            }
            let view = DebitsView { debits: all };
            debits.server.show(&view, DebitsView::describe)
        }
        Query::Count(Count { data_set, predicates, cost, repeatable, server }) => {
            let question = ask_request::Question::Counts(v1::Counts { predicates });
            ask(&server, &repeatable, data_set, &cost, question)
        }
        Query::Histogram(ByColumn { data_set, columns, of, cost, repeatable, server }) => {
            let predicate = of.predicate;
            let question = ask_request::Question::Histogram(v1::Histogram { columns, predicate });
            ask(&server, &repeatable, data_set, &cost, question)
        }
        Query::Sum(Sum { squares, by }) => {
            let ByColumn { data_set, columns, of, cost, repeatable, server } = by;
            let term = |column| v1::Term { column, squared: squares, about: 0 };
            let terms = columns.into_iter().map(term).collect();
            let question = v1::Sums { terms, predicate: of.predicate, ..v1::Sums::default() };
            ask(&server, &repeatable, data_set, &cost, ask_request::Question::Sums(question))
        }
        Query::Mean(mean) => mean.tell(),
        Query::Choose(choose) => self::choose(choose),
        Query::Synthetic(synthetic) => release(synthetic),
        Query::SyntheticTable(table) => table.release(),
        Query::Open(open) => self::open(open),
        Query::Ask(ask) => {
            let answer = ask.answer()?;
            ask.server.show(&SessionAnswerView::from(answer), |view, _| view.describe())
        }
        Query::Plan(wanted) => wanted.tell(),
        Query::PlanChoice(wanted) => wanted.tell(),
    }
}

impl Server {
    /// Asks one question, again with the same id if the answer is lost.
    fn ask(
        &self,
        repeatable: &Repeatable,
        data_set: String,
        cost: &Cost,
        question: ask_request::Question,
    ) -> anyhow::Result<AskResponse> {
        let (price, beta, question) = (cost.price(), cost.beta, Some(question));
        let request = AskRequest { data_set, price, beta, question, ..AskRequest::default() };
        block_on(async {
            let curator = self.connection.connect_curator().await?;
            let ask = async |question_id: Vec<u8>| {
                let question_id = question_id.into();
                curator.clone().ask(AskRequest { question_id, ..request.clone() }).await
            };
            repeatable.ask(ask).await
        })
    }

    /// All data sets.
    fn data_sets(&self) -> anyhow::Result<Vec<v1::DataSet>> {
        let mut request = ListDataSetsRequest::default();
        let mut data_sets = Vec::new();
        loop {
            let page = request.clone();
            let answer = self.call(async |mut curator| curator.list_data_sets(page).await)?;
            data_sets.extend(answer.data_sets);
            request.page_token = answer.next_page_token;
            if request.page_token.is_empty() {
                return Ok(data_sets);
            }
        }
    }

    fn call<T>(
        &self,
        call: impl AsyncFnOnce(Curator) -> Result<Response<T>, Status>,
    ) -> anyhow::Result<T> {
        block_on(async {
            let curator = self.connection.connect_curator().await?;
            Ok(call(curator).await.map_err(Failure::from)?.into_inner())
        })
    }

    fn show<V: serde::Serialize>(
        &self,
        view: &V,
        describe: impl FnOnce(&V, Option<usize>) -> String,
    ) -> anyhow::Result<()> {
        if self.json { say_json(view) } else { say(&describe(view, terminal_columns())) }
    }
}

impl Ask {
    fn answer(&self) -> anyhow::Result<AskSessionResponse> {
        let Self { session, predicate, repeatable, server } = self;
        block_on(async {
            let curator = server.connection.connect_curator().await?;
            let ask = async |question_id: Vec<u8>| {
                let (session, predicate) = (session.clone(), predicate.clone());
                let question_id = question_id.into();
                let request = AskSessionRequest { session, predicate, question_id };
                curator.clone().ask_session(request).await
            };
            repeatable.ask(ask).await
        })
    }
}

fn ask(
    server: &Server,
    repeatable: &Repeatable,
    data_set: String,
    cost: &Cost,
    question: ask_request::Question,
) -> anyhow::Result<()> {
    let answer = server.ask(repeatable, data_set, cost, question)?;
    server.show(&AnswerView::from(answer), |view, columns| view.describe(columns, cost.beta))
}

fn choose(choose: Choose) -> anyhow::Result<()> {
    let aim = match choose.quantile {
        Some(share) => choice::Aim::Quantile(share),
        None => choice::Aim::MostCommon(v1::MostCommon {}),
    };
    let chooser = if choose.noisy_max { v1::Chooser::NoisyMax } else { v1::Chooser::Exponential };
    let (column, weights, predicate) = (choose.column, choose.weights, choose.of.predicate);
    let (aim, chooser, interval) = (Some(aim), chooser.into(), choose.interval);
    let asked = v1::Choice { column, aim, chooser, weights, predicate, interval };
    let question = ask_request::Question::Choice(asked);
    ask(&choose.server, &choose.repeatable, choose.data_set, &choose.cost, question)
}

fn release(synthetic: Synthetic) -> anyhow::Result<()> {
    let Synthetic { data_set, columns, predicates, rows, alpha, cost, repeatable, server } =
        synthetic;
    let size = match (rows, alpha) {
        (Some(rows), _) => Some(synthetic::Size::Rows(rows)),
        (None, alpha) => alpha.map(synthetic::Size::Alpha),
    };
    let asked = v1::Synthetic { columns, predicates, size };
    ask(&server, &repeatable, data_set, &cost, ask_request::Question::Synthetic(asked))
}

fn open(open: Open) -> anyhow::Result<()> {
    use open_session_request::{Plan, Price};

    let Open { session, data_set, columns, epsilon, delta, rho, .. } = open;
    let price = match (epsilon, delta) {
        (Some(epsilon), Some(delta)) => {
            Some(Price::Approximate(v1::ApproximateBudget { epsilon, delta }))
        }
        (Some(epsilon), None) => Some(Price::Epsilon(epsilon)),
        (None, _) => rho.map(Price::Rho),
    };
    let Open { queries, beta, updates, threshold, server, .. } = open;
    let plan = match (queries, updates, threshold) {
        (Some(queries), _, _) => Some(Plan::Promise(v1::SessionPromise { queries, beta })),
        (None, Some(updates), Some(threshold)) => {
            Some(Plan::Choice(v1::SessionChoice { updates, threshold }))
        }
        _ => None,
    };
    let request = OpenSessionRequest { session, data_set, columns, price, plan };
    let answer = server.call(async |mut curator| curator.open_session(request).await)?;
    server.show(&SessionView::from(answer), |view, _| view.describe(beta))
}
