//! A tour of all kinds of questions on a real server.

use anyhow::{Context as _, ensure};
use bandana_edge::operator_client::{Connection, Curator, TlsSource, TokenSource};
use bandana_shared::wire::v1::{
    self, AskRequest, AskSessionRequest, ListDataSetsRequest, OpenSessionRequest,
    RegisterDataSetRequest, ask_request, ask_response, choice, open_session_request,
    register_data_set_request, synthetic,
};
use serde::Serialize;
use tonic::Code;

use super::people::{FILE, columns};

/// Name of the data set.
const DATA_SET: &str = "people";

/// The tour's budget.
const BUDGET: f64 = 4.0;

/// A question and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Stop {
    /// The question, in words.
    pub question: String,
    /// The answer, in words.
    pub answer: String,
    /// The price, in billionths of epsilon.
    pub price_nanos: u64,
}

/// Registers the data set with a server whose directory contains its file, asks every kind of
/// question, and spends the rest of the budget until the server refuses.
///
/// # Errors
/// When an answer is wrong.
pub async fn tour(operator_url: &str) -> anyhow::Result<Vec<Stop>> {
    let connection = Connection::new(operator_url, TokenSource::default(), TlsSource::default())?;
    let mut curator = connection.connect_curator().await?;
    let register = RegisterDataSetRequest {
        name: DATA_SET.to_owned(),
        file: FILE.to_owned(),
        columns: columns(),
        budget: Some(register_data_set_request::Budget::Epsilon(BUDGET)),
        find: None,
    };
    curator.register_data_set(register).await?;
    let mut stops = Vec::new();
    for (epsilon, words, question) in questions() {
        let (answer, price_nanos) = ask(&mut curator, epsilon, question).await?;
        stops.push(Stop { question: words.to_owned(), answer, price_nanos });
    }
    stops.extend(session(&mut curator).await?);
    stops.push(exhaust(&mut curator).await?);
    Ok(stops)
}

fn questions() -> Vec<(f64, &'static str, ask_request::Question)> {
    use ask_request::Question;

    let texts = |texts: &[&str]| -> Vec<String> { texts.iter().map(|t| (*t).to_owned()).collect() };
    let choice = |column: &str, aim, chooser: v1::Chooser| {
        let (column, aim, chooser) = (column.to_owned(), Some(aim), chooser.into());
        Question::Choice(v1::Choice { column, aim, chooser, ..v1::Choice::default() })
    };
    let most_common = choice::Aim::MostCommon(v1::MostCommon {});
    let binary = texts(&["smokes", "coughs", "runs"]);
    vec![
        (
            0.25,
            "how many smokers cough, and how many others",
            Question::Counts(v1::Counts {
                predicates: texts(&["smokes=yes,coughs=yes", "smokes=no,coughs=yes"]),
            }),
        ),
        (
            0.25,
            "histogram of cities",
            Question::Histogram(v1::Histogram {
                columns: texts(&["city"]),
                predicate: String::new(),
            }),
        ),
        (
            0.25,
            "sum of ages",
            Question::Sums(v1::Sums { columns: texts(&["age"]), ..v1::Sums::default() }),
        ),
        (
            0.25,
            "median age, by the exponential mechanism",
            choice("age", choice::Aim::Quantile(0.5), v1::Chooser::Exponential),
        ),
        (
            0.25,
            "most common city, by report noisy max",
            choice("city", most_common, v1::Chooser::NoisyMax),
        ),
        (
            0.5,
            "synthetic people, good for halfspaces",
            Question::Synthetic(v1::Synthetic {
                columns: binary,
                predicates: Vec::new(),
                size: Some(synthetic::Size::Rows(9)),
            }),
        ),
    ]
}

async fn ask(
    curator: &mut Curator,
    epsilon: f64,
    question: ask_request::Question,
) -> anyhow::Result<(String, u64)> {
    let price = Some(ask_request::Price::Epsilon(epsilon));
    let data_set = DATA_SET.to_owned();
    let question = Some(question);
    let request = AskRequest { data_set, price, beta: 0.05, question, ..AskRequest::default() };
    let response = curator.ask(request).await?.into_inner();
    let answer = match response.answer.context("no answer")? {
        ask_response::Answer::Numbers(v1::Numbers { numbers, accuracy }) => {
            let numbers: Vec<String> =
                numbers.iter().map(|number| format!("{} {}", number.label, number.value)).collect();
            format!("{} (off by at most {accuracy:.0})", numbers.join("; "))
        }
        ask_response::Answer::Value(v1::Value { value, shortfall, .. }) => {
            format!("{value} (at most {shortfall} rows worse than the best)")
        }
        ask_response::Answer::Database(v1::Database { rows, accuracy, .. }) => {
            let rows: Vec<String> = rows.iter().map(|row| row.values.join(",")).collect();
            format!("{} (off by at most {accuracy:.2} of the people)", rows.join("; "))
        }
        ask_response::Answer::Table(table) => format!("a table of {} columns", table.columns.len()),
        ask_response::Answer::Moments(moments) => format!("moments of {}", moments.label),
    };
    Ok((answer, response.price_nanos))
}

async fn session(curator: &mut Curator) -> anyhow::Result<Vec<Stop>> {
    let columns = ["smokes", "coughs", "runs", "drinks"].map(str::to_owned).to_vec();
    let choice = v1::SessionChoice { updates: 20, threshold: 800 };
    let request = OpenSessionRequest {
        session: "habits".to_owned(),
        data_set: DATA_SET.to_owned(),
        columns,
        price: Some(open_session_request::Price::Epsilon(1.0)),
        plan: Some(open_session_request::Plan::Choice(choice)),
    };
    let opened = curator.open_session(request).await?.into_inner();
    let mut stops = vec![Stop {
        question: "a session of multiplicative weights".to_owned(),
        answer: format!("{} cells, at most {} updates", opened.cells, opened.updates_max),
        price_nanos: opened.price_nanos,
    }];
    for predicate in ["smokes=yes", "smokes=yes,runs=yes", "drinks=no,runs=yes", "smokes=yes"] {
        let (session, predicate) = ("habits".to_owned(), predicate.to_owned());
        let question = format!("in the session: {predicate}");
        let answer = curator
            .ask_session(AskSessionRequest { session, predicate, ..AskSessionRequest::default() })
            .await?;
        let v1::AskSessionResponse { answer, updated, .. } = answer.into_inner();
        let how = if updated { "an update" } else { "lazy" };
        let answer = format!("{answer:.0} ({how})");
        stops.push(Stop { question, answer, price_nanos: 0 });
    }
    Ok(stops)
}

/// Asks for more than the remaining budget, and checks that the refusal costs nothing.
async fn exhaust(curator: &mut Curator) -> anyhow::Result<Stop> {
    let spent = async |curator: &mut Curator| -> anyhow::Result<u64> {
        let listed = curator.list_data_sets(ListDataSetsRequest::default()).await?.into_inner();
        Ok(listed.data_sets.first().context("no data set")?.spent_nanos)
    };
    let before = spent(curator).await?;
    let everyone = v1::Counts { predicates: vec!["*".to_owned()] };
    let price = Some(ask_request::Price::Epsilon(BUDGET));
    let question = Some(ask_request::Question::Counts(everyone));
    let data_set = DATA_SET.to_owned();
    let refused = curator
        .ask(AskRequest { data_set, price, beta: 0.05, question, ..AskRequest::default() })
        .await;
    let status = refused.err().context("the budget was overdrawn")?;
    ensure!(status.code() == Code::FailedPrecondition, "{status}");
    ensure!(spent(curator).await? == before, "a refusal has cost something");
    let (question, answer) = ("more than is left".to_owned(), status.message().to_owned());
    Ok(Stop { question, answer, price_nanos: 0 })
}
