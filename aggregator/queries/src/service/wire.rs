//! The curator's messages and their conversion.

use bandana_edge::explain::explain;
use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::marginals::{NoisyShare, ReleasedTable, SyntheticTable};
use bandana_mechanisms::queries::moments::{Estimate, Moments};
use bandana_mechanisms::queries::price::{ConcentratedLoss, LossShape, Measure, Price, PureLoss};
use bandana_mechanisms::queries::questions::{
    Aim, Answer, Chooser, Class, NoisyNumber, Question, Size, Term,
};
use bandana_mechanisms::queries::universe::Schema;
use bandana_mechanisms::queries::weights::{Promise, SessionPlan};
use bandana_shared::identity::UnixSeconds;
use bandana_shared::wire::v1::{
    self, AskRequest, OpenSessionRequest, RegisterDataSetRequest, ask_request, ask_response,
    choice, open_session_request, register_data_set_request, synthetic,
};
use bandana_store::fingerprint::{ContentDigests, FingerprintKey};
use bandana_store::{CuratorRefusal, DataSetRecord, DebitRecord, SessionRecord, amount};
use tonic::Status;

use super::dataset_cache::is_same_file;
use super::search::Search;
use super::{Inner, measure, name, refuse, uncached, unreadable};

/// The probability of failure when none is given.
const BETA: f64 = 0.05;

/// The number of columns of the marginals of a synthetic table when none is given.
const WAYS: u32 = 2;

/// A new data set, and what the names that were found in it cost, with the purpose in words.
pub(super) type NewDataSet = (DataSetRecord, Option<(u64, String)>);

/// Reads the file of a new data set.
pub(super) fn register(
    request: RegisterDataSetRequest,
    at: UnixSeconds,
    inner: &Inner,
) -> Result<NewDataSet, Status> {
    let name = name(request.name)?;
    let schema = Schema::declared(&request.columns).map_err(refuse)?;
    let wanted = request.find;
    let delta = wanted.as_ref().map_or(0.0, |wanted| wanted.delta);
    let (measure, budget) = budget(request.budget, delta)?;
    let search = wanted.map(|wanted| Search::new(&wanted, &schema, measure)).transpose()?;
    if let Some(Search { price, .. }) = search
        && price > budget
    {
        let refusal = CuratorRefusal::Exhausted { data_set: name, price, left: budget, budget };
        return Err(Status::failed_precondition(refusal.to_string()));
    }
    let file = inner.data_sets_cache.open(&request.file).map_err(|error| uncached(&error))?;
    let key = inner.reader.fingerprint_key().map_err(unreadable)?;
    let earlier = inner.reader.data_sets(None).map_err(unreadable)?;
    let mut earlier = earlier.into_iter().filter(|record| record.content.is_none());
    if let Some(same) = earlier.find(|record| is_same_file(record, &file, &key)) {
        let refusal = CuratorRefusal::ContentRegistered(same.name);
        return Err(Status::already_exists(refusal.to_string()));
    }
    let counted = search.as_ref().map_or(&[][..], |search| &search.columns);
    let (rows, content, names) = file
        .check_headings(&schema)
        .and_then(|()| file.with_names(&schema, counted))
        .map_err(|error| uncached(&super::dataset_cache::DatasetCacheError::Read(error)))?;
    let code = key.of_content(&content);
    for record in inner.reader.data_sets(None).map_err(unreadable)? {
        // The store decides. But a search that will be refused must not be made: its noise is drawn anew each
        // time, and nobody pays for it.
        if record.name == name {
            return Err(Status::already_exists(CuratorRefusal::DataSetExists(name).to_string()));
        }
        if record.content == Some(code) {
            let refusal = CuratorRefusal::ContentRegistered(record.name);
            return Err(Status::already_exists(refusal.to_string()));
        }
        check_earlier(&record, &content, rows.read(), (&key, inner))?;
    }
    let (schema, cost) = match search {
        None => (schema, None),
        Some(search) => {
            search.check_rows(rows.count())?;
            let cost = (search.price, search.purpose(&schema)?);
            (search.run(&schema, &names)?, Some(cost))
        }
    };
    let columns: Vec<String> = schema.columns().iter().map(ToString::to_string).collect();
    let record = DataSetRecord {
        name,
        file: request.file,
        fingerprint: key.of_file(&file.digest()),
        content: Some(code),
        rows: rows.count(),
        columns: columns.join("\n"),
        measure,
        budget,
        spent: 0,
        at,
    };
    Ok((record, cost))
}

/// The budget of a new data set in billionths, where finding names takes this part of its delta.
fn budget(
    budget: Option<register_data_set_request::Budget>,
    finding: f64,
) -> Result<(Measure, u64), Status> {
    use register_data_set_request::Budget;

    Ok(match budget {
        Some(Budget::Epsilon(epsilon)) => {
            (Measure::Pure, PureLoss::new(epsilon).map_err(refuse)?.nanos())
        }
        Some(Budget::Rho(rho)) => {
            (Measure::Concentrated, ConcentratedLoss::new(rho).map_err(refuse)?.nanos())
        }
        Some(Budget::Approximate(both)) => {
            if finding > 0.0 && finding >= both.delta {
                return Err(Status::invalid_argument(format!(
                    "finding names takes delta {finding:e}, and the budget has {:e}; take less than that",
                    both.delta
                )));
            }
            // Rounded down.
            let delta = if finding > 0.0 { (both.delta - finding).next_down() } else { both.delta };
            let both = v1::ApproximateBudget { delta, ..both };
            (Measure::Concentrated, largest_rho(both).map_err(refuse)?.nanos())
        }
        None => return Err(Status::invalid_argument("the field `budget` must be set")),
    })
}

/// Refuses a content that a data set of an earlier version could have: it is known by what that version
/// took for the same, and by what its file says as contents are compared today. Without the file, any
/// content of as many rows could be written otherwise there.
fn check_earlier(
    record: &DataSetRecord,
    content: &ContentDigests,
    rows: u64,
    (key, inner): (&FingerprintKey, &Inner),
) -> Result<(), Status> {
    let Some(known) = record.content.filter(|known| !known.is_of_current_content()) else {
        return Ok(());
    };
    if record.rows != rows {
        return Ok(());
    }
    let is_same = known == key.of_earlier_content(content)
        || match inner.data_sets_cache.codes(record, key) {
            Ok((_, code)) => code == key.of_content(content),
            Err(error) => {
                let name = &record.name;
                tracing::warn!(data_set = %name, error = explain(&error), "its file can't be compared");
                return Err(Status::already_exists(format!(
                    "an earlier version registered the data set {name:?}, which has as many rows. \
                     To tell whether the two are the same, the server needs its file {:?}; put it \
                     back as it was, and register again",
                    record.file
                )));
            }
        };
    if is_same {
        let refusal = CuratorRefusal::ContentRegistered(record.name.clone());
        return Err(Status::already_exists(refusal.to_string()));
    }
    Ok(())
}

/// A data set for the wire that was not withdrawn.
pub(super) fn data_set(record: DataSetRecord) -> v1::DataSet {
    let rows_of_each_person = rows_of_each(&record);
    v1::DataSet {
        name: record.name.to_string(),
        file: record.file,
        rows: record.rows,
        rows_of_each_person,
        columns: record.columns.lines().map(str::to_owned).collect(),
        measure: measure(record.measure).into(),
        budget_nanos: record.budget,
        spent_nanos: record.spent,
        unix_seconds: record.at.get(),
        withdrawn: false,
    }
}

/// How many places for rows everybody has; 0: rows are nobody's.
fn rows_of_each(record: &DataSetRecord) -> u32 {
    let schema = Schema::parse(&record.columns.lines().collect::<Vec<_>>());
    schema.ok().and_then(|schema| schema.people()).map_or(0, |(_, rows)| rows)
}

/// A debit for the wire.
pub(super) fn debit(record: DebitRecord) -> v1::Debit {
    let DebitRecord { number, debit } = record;
    v1::Debit {
        number,
        unix_seconds: debit.at.get(),
        caller: debit.caller,
        purpose: debit.purpose,
        price_nanos: debit.price,
    }
}

/// A question with its price.
pub(super) struct ParsedQuery {
    pub(super) question: Question,
    pub(super) price: Price,
    pub(super) beta: f64,
}

impl ParsedQuery {
    pub(super) fn new(request: AskRequest) -> Result<Self, QueryError> {
        let price = match request.price {
            Some(ask_request::Price::Epsilon(epsilon)) => Price::Pure(PureLoss::new(epsilon)?),
            Some(ask_request::Price::Rho(rho)) => Price::Concentrated(ConcentratedLoss::new(rho)?),
            Some(ask_request::Price::Approximate(both)) => Price::Concentrated(largest_rho(both)?),
            None => return Err(QueryError::Epsilon(0.0)),
        };
        let beta = if request.beta == 0.0 { BETA } else { request.beta };
        let question = request.question.ok_or(QueryError::NoQueries)?;
        Ok(Self { question: Self::question(question)?, price, beta })
    }

    fn question(question: ask_request::Question) -> Result<Question, QueryError> {
        use ask_request::Question as Wire;
        Ok(match question {
            Wire::Counts(v1::Counts { predicates }) => Question::Counts { predicates },
            Wire::Histogram(v1::Histogram { columns, predicate }) => {
                Question::Histogram { columns, predicate }
            }
            Wire::Sums(v1::Sums { columns, predicate, terms, counted }) => {
                let term = |v1::Term { column, squared, about }| Term { column, squared, about };
                let values = columns.iter().map(|column| Term::values(column));
                let terms = values.chain(terms.into_iter().map(term)).collect();
                Question::Sums { terms, predicate, counted }
            }
            Wire::Mean(v1::Mean { column, predicate, variance }) => {
                Question::Mean { column, predicate, variance }
            }
            Wire::Choice(choice) => {
                let chooser = v1::Chooser::try_from(choice.chooser);
                let chooser = match chooser.map_err(|_| QueryError::Chooser(choice.chooser))? {
                    v1::Chooser::NoisyMax if choice.weights.is_empty() => Chooser::NoisyMax,
                    v1::Chooser::NoisyMax => return Err(QueryError::WeightsOfNoisyMax),
                    v1::Chooser::Unspecified | v1::Chooser::Exponential => {
                        Chooser::Exponential(Some(choice.weights).filter(|all| !all.is_empty()))
                    }
                };
                let aim = match choice.aim {
                    Some(choice::Aim::MostCommon(_)) if choice.interval => {
                        return Err(QueryError::IntervalOfMostCommon);
                    }
                    Some(choice::Aim::MostCommon(v1::MostCommon {})) => Aim::MostCommon,
                    Some(choice::Aim::Quantile(share)) if choice.interval => {
                        Aim::IntervalOfQuantile(share)
                    }
                    Some(choice::Aim::Quantile(share)) => Aim::Quantile(share),
                    None => return Err(QueryError::NoQueries),
                };
                let v1::Choice { column, predicate, .. } = choice;
                Question::Choice { column, predicate, aim, chooser }
            }
            Wire::Synthetic(v1::Synthetic { columns, predicates, size }) => {
                let class = if predicates.is_empty() {
                    Class::Halfspaces
                } else {
                    Class::Predicates(predicates)
                };
                let size = match size {
                    Some(synthetic::Size::Rows(rows)) => Size::Rows(rows),
                    Some(synthetic::Size::Alpha(alpha)) => Size::ForError(alpha),
                    None => return Err(QueryError::NoRows),
                };
                Question::Synthetic { columns, class, size }
            }
            Wire::SyntheticTable(v1::SyntheticTable { columns, ways, rows }) => {
                let ways = if ways == 0 { WAYS } else { ways };
                Question::Table { columns, table: SyntheticTable { ways, rows } }
            }
        })
    }

    /// The question in words, for the list of debits.
    pub(super) fn purpose(&self) -> String {
        let what = match &self.question {
            Question::Counts { predicates } => match &predicates[..] {
                [one] => format!("count of {one}"),
                several => format!("{} counts", several.len()),
            },
            Question::Histogram { columns, predicate } => {
                format!("histogram of {}{}", columns.join(", "), of_rows(predicate))
            }
            Question::Sums { terms, predicate, counted } => {
                let rows = counted.then(|| "rows".to_owned());
                let all: Vec<String> =
                    rows.into_iter().chain(terms.iter().map(ToString::to_string)).collect();
                format!("sums of {}{}", all.join(", "), of_rows(predicate))
            }
            Question::Mean { column, predicate, variance } => {
                let what = if *variance { "mean and variance" } else { "mean" };
                format!("{what} of {column}{}", of_rows(predicate))
            }
            Question::Choice { column, predicate, aim: Aim::MostCommon, .. } => {
                format!("most common value of {column}{}", of_rows(predicate))
            }
            Question::Choice { column, predicate, aim: Aim::Quantile(share), .. } => {
                format!("quantile {share} of {column}{}", of_rows(predicate))
            }
            Question::Choice { column, predicate, aim: Aim::IntervalOfQuantile(share), .. } => {
                format!("quantile {share} of {column}{}, with an interval", of_rows(predicate))
            }
            Question::Synthetic { columns, .. } => {
                format!("synthetic database of {}", columns.join(", "))
            }
            Question::Table { columns, table } if columns.is_empty() => {
                format!("synthetic table of {} rows", table.rows)
            }
            Question::Table { columns, table } => {
                format!("synthetic table of {} rows of {}", table.rows, columns.join(", "))
            }
        };
        format!("{what}, {}", price_in_words(self.price))
    }
}

/// The rows that a question is about, if not all are.
fn of_rows(predicate: &str) -> String {
    if predicate.is_empty() { String::new() } else { format!(" where {predicate}") }
}

fn price_in_words(price: Price) -> String {
    match price {
        Price::Pure(loss) => format!("epsilon {}", amount(loss.nanos())),
        Price::Concentrated(loss) => format!("rho {}", amount(loss.nanos())),
    }
}

/// An answer for the wire.
pub(super) fn answer(answer: Answer) -> ask_response::Answer {
    match answer {
        Answer::Numbers(numbers) => {
            let accuracy = numbers.iter().map(|number| number.accuracy).max().unwrap_or(0) as f64;
            let number = |NoisyNumber { label, value, accuracy, decimals }| v1::Number {
                label,
                value,
                accuracy: Some(accuracy as f64),
                decimals,
            };
            let numbers = numbers.into_iter().map(number).collect();
            ask_response::Answer::Numbers(v1::Numbers { numbers, accuracy })
        }
        Answer::Moments(Moments { label, mean, variance, rows }) => {
            let interval = |Estimate { value, low, high }| v1::NumberInterval { value, low, high };
            ask_response::Answer::Moments(v1::Moments {
                label,
                mean: Some(interval(mean)),
                variance: variance.map(interval),
                rows: Some(interval(rows)),
            })
        }
        Answer::Value { value, shortfall, interval } => {
            let interval = interval.map(|(low, high)| v1::ValueInterval { low, high });
            ask_response::Answer::Value(v1::Value { value, shortfall, interval })
        }
        Answer::Database { columns, rows, accuracy } => {
            let rows = rows.into_iter().map(|values| v1::DatabaseRow { values }).collect();
            ask_response::Answer::Database(v1::Database { columns, rows, accuracy })
        }
        Answer::Table(table) => ask_response::Answer::Table(self::table(table)),
    }
}

fn table(table: ReleasedTable) -> v1::Table {
    let share = |NoisyShare { value, accuracy }: NoisyShare| v1::NoisyShare { value, accuracy };
    let column =
        |codes: Vec<u16>| v1::TableColumn { codes: codes.into_iter().map(u32::from).collect() };
    v1::Table {
        columns: table.columns.iter().map(ToString::to_string).collect(),
        values: table.codes.into_iter().map(column).collect(),
        marginals: table.marginals,
        largest: Some(share(table.largest)),
        mean: Some(share(table.mean)),
        cell: Some(share(table.cell)),
        chosen: table.chosen,
    }
}

/// A session to open.
pub(super) struct Planned {
    pub(super) plan: SessionPlan,
    /// The columns, one name on each line.
    pub(super) columns: String,
    price: Price,
    cells: usize,
    /// The promised accuracy in rows, or 0.
    pub(super) accuracy: f64,
}

/// Plans a session from public facts about its data set.
pub(super) fn plan(
    request: &OpenSessionRequest,
    record: &DataSetRecord,
) -> Result<Planned, QueryError> {
    use open_session_request::Plan;

    let schema = Schema::parse(&record.columns.lines().collect::<Vec<_>>())?;
    let universe = schema.universe_of_places(&request.columns)?;
    let cells = universe.cells();
    let price = session_price(request)?;
    let of_row = schema.price_of_row(price)?;
    let (plan, accuracy) = match request.plan {
        Some(Plan::Promise(v1::SessionPromise { queries, beta })) => {
            let beta = if beta == 0.0 { BETA } else { beta };
            SessionPlan::promised(of_row, Promise { rows: record.rows, cells, queries, beta })?
        }
        Some(Plan::Choice(v1::SessionChoice { updates, threshold })) => {
            (SessionPlan::chosen(of_row, updates, threshold)?, 0.0)
        }
        None => return Err(QueryError::Session("say what to promise, or choose the updates")),
    };
    let columns: Vec<&str> = universe.names().collect();
    Ok(Planned { plan, columns: columns.join("\n"), price, cells, accuracy })
}

fn session_price(request: &OpenSessionRequest) -> Result<Price, QueryError> {
    use open_session_request::Price as Wire;

    match request.price {
        Some(Wire::Epsilon(epsilon)) => PureLoss::new(epsilon).map(Price::Pure),
        Some(Wire::Rho(rho)) => ConcentratedLoss::new(rho).map(Price::Concentrated),
        Some(Wire::Approximate(both)) => largest_rho(both).map(Price::Concentrated),
        None => Err(QueryError::Epsilon(0.0)),
    }
}

/// The largest ρ that keeps both ε and δ.
fn largest_rho(
    v1::ApproximateBudget { epsilon, delta }: v1::ApproximateBudget,
) -> Result<ConcentratedLoss, QueryError> {
    ConcentratedLoss::within_numbers(epsilon, delta)
}

impl Planned {
    /// The price of the session in this measure.
    pub(super) fn price(&self, measure: Measure) -> Result<u64, QueryError> {
        self.price.nanos(measure, LossShape::Symmetric)
    }

    /// A description of the session, for the list of debits.
    pub(super) fn words(&self) -> String {
        let columns = self.columns.replace('\n', ", ");
        format!("queries about {columns}, {}", price_in_words(self.price))
    }

    /// The answer to the caller that opened the session.
    pub(super) fn opened(&self, record: &SessionRecord, price: u64) -> v1::Session {
        v1::Session {
            session: record.name.to_string(),
            data_set: record.data_set.to_string(),
            cells: self.cells as u64,
            updates_max: self.plan.updates(),
            threshold: self.plan.threshold(),
            accuracy: self.accuracy,
            price_nanos: price,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn all_rows_of_a_person_share_the_price_of_a_session() {
        let planned = |columns: &str, rho| {
            let record = DataSetRecord {
                name: bandana_store::CuratorName::new("visits").unwrap(),
                file: "visits.csv".to_owned(),
                fingerprint: bandana_store::fingerprint::Fingerprint::from_bytes([0; 32]),
                content: None,
                rows: 3000,
                columns: columns.to_owned(),
                measure: Measure::Concentrated,
                budget: 1_000_000_000,
                spent: 0,
                at: UnixSeconds::new(0),
            };
            let request = OpenSessionRequest {
                price: Some(open_session_request::Price::Rho(rho)),
                plan: Some(open_session_request::Plan::Choice(v1::SessionChoice {
                    updates: 20,
                    threshold: 300,
                })),
                ..Default::default()
            };
            let planned = plan(&request, &record).unwrap();
            (planned.plan, planned.price(record.measure).unwrap(), planned.columns)
        };
        let (of_people, price, columns) = planned("age:0..9\nwho@3", 0.9);
        let (plain, ..) = planned("age:0..9", 0.1);
        assert_eq!(of_people, plain);
        assert_eq!((price, columns.as_str()), (900_000_000, "age"));
    }

    #[test]
    fn sessions_of_earlier_clients_have_the_price_that_they_had() {
        // Field 4, a double, as it was before there was another price.
        let bytes = [&[0x21][..], &0.5_f64.to_le_bytes()].concat();
        let request = OpenSessionRequest::decode(&bytes[..]).unwrap();
        let price = session_price(&request).unwrap();
        assert_eq!(price, Price::Pure(PureLoss::new(0.5).unwrap()));
        assert_eq!(request.encode_to_vec(), bytes);
        let none = OpenSessionRequest::default();
        assert_eq!(session_price(&none), Err(QueryError::Epsilon(0.0)));
    }
}
