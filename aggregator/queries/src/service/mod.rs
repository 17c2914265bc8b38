//! The curator service: data sets, budgets, questions and sessions.
//!
//! An answer is computed first, then its price is debited, and only then is it sent. An answer
//! whose debit is uncertain is dropped. Whether a debit fails depends on budgets alone, so dropping
//! an answer reveals nothing about rows. A question whose computation has begun is paid for even if
//! its caller has gone.

mod dataset_cache;
mod kept;
mod permits;
mod refusal;
mod registration;
mod search;
mod sessions;
mod wire;
mod withdrawal;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::admission::OPERATOR_REQUEST_BYTES_MAX;
use bandana_edge::auth::Caller;
use bandana_edge::clock::Clock;
use bandana_edge::pages::{Page, READ_AT_ONCE, read_newest};
use bandana_edge::status::{internal, unfinished};
use bandana_mechanisms::noise::secure_generator;
use bandana_mechanisms::queries::price::Measure;
use bandana_mechanisms::queries::questions;
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::weights::SessionSecret;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::wire::v1::curator_server::{Curator, CuratorServer};
use bandana_shared::wire::v1::{
    self, AskRequest, AskResponse, AskSessionRequest, AskSessionResponse, DataSet,
    ListDataSetsRequest, ListDataSetsResponse, ListDebitsRequest, ListDebitsResponse,
    OpenSessionRequest, RegisterDataSetRequest, Session, WithdrawDataSetRequest,
};
use bandana_store::{
    CuratorChange, CuratorName, CuratorRefusal, DataSetRecord, Debit, SessionRecord, StoreError,
    StoreReader, amount, check_part,
};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::changes::Changes;
use dataset_cache::DatasetCache;
use kept::KeptQuestion;
use permits::{QueryPermit, QueryPermits};
use refusal::{decline, is_overtaken, refuse, uncached, unreadable};
use sessions::{Compared, HeldSession, SessionQuestion, Sessions, StoredPlan};

/// Most concurrent questions, in all and of one caller; further ones wait.
const QUESTIONS_AT_ONCE: usize = 4;
const QUESTIONS_OF_EACH: usize = 2;

/// Most concurrent lists, in all and of one caller. Lists don't wait for questions.
const LISTS_AT_ONCE: usize = 8;
const LISTS_OF_EACH: usize = 2;

/// The time of the fastest answer.
const TICK: Duration = Duration::from_millis(25);

/// The least that a question costs, and a session: 10^-4 of epsilon, 10^-6 of rho.
const LEAST_EPSILON_NANOS: u64 = 100_000;
const LEAST_RHO_NANOS: u64 = 1_000;

/// Most attempts at a round, when other replicas are first.
const ATTEMPTS: usize = 200;

/// The number of debits in an answer, by default and at most.
const DEBITS: u32 = 100;
const DEBITS_MAX: u32 = 1000;

/// Settings of data sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSetSettings {
    /// The directory of their files. `None`: no data sets can be registered.
    pub directory: Option<PathBuf>,
    /// The part of each budget that one analyst may spend, in percent.
    pub analyst_percent: u32,
}

/// The service that analysts and owners of data sets call.
#[derive(Clone, Debug)]
pub struct CuratorService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    changes: Arc<dyn Changes>,
    reader: StoreReader,
    clock: Arc<dyn Clock>,
    data_sets_cache: DatasetCache,
    analyst_percent: u32,
    sessions: Sessions,
    questions: QueryPermits,
    lists: QueryPermits,
}

impl CuratorService {
    /// The service over the data sets of a store, which it reads, and of which the writer makes its changes.
    pub fn new(
        changes: Arc<dyn Changes>,
        reader: StoreReader,
        clock: Arc<dyn Clock>,
        settings: DataSetSettings,
    ) -> Self {
        let DataSetSettings { directory, analyst_percent } = settings;
        let (data_sets_cache, sessions) = (DatasetCache::new(directory), Sessions::default());
        let questions = QueryPermits::new(QUESTIONS_AT_ONCE, QUESTIONS_OF_EACH);
        let lists = QueryPermits::new(LISTS_AT_ONCE, LISTS_OF_EACH);
        Self(Arc::new(Inner {
            changes,
            reader,
            clock,
            data_sets_cache,
            analyst_percent,
            sessions,
            questions,
            lists,
        }))
    }

    /// The service for a server's port.
    pub fn into_server(self) -> CuratorServer<Self> {
        CuratorServer::new(self).max_decoding_message_size(OPERATOR_REQUEST_BYTES_MAX)
    }

    /// The part of each budget that a caller may spend, in percent; `None`: all of it. Who registers data
    /// sets may spend all.
    fn part_of(&self, caller: &Caller) -> Option<u32> {
        let percent = self.0.analyst_percent;
        (percent < 100 && !caller.sees_all_debits()).then_some(percent)
    }

    /// Runs `work` on a thread that may block.
    async fn work<T: Send + 'static>(
        &self,
        place: QueryPermit,
        work: impl FnOnce(&Inner) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            work(&inner)
        });
        done.await.map_err(|error| unfinished("the question could not be worked on", error))?
    }

    /// Runs `work` about rows, whose result is there at a time of the grid only. Its permit is held
    /// until then, so that no other question tells when the work ended.
    async fn work_on_rows<T: Send + 'static>(
        &self,
        place: QueryPermit,
        work: impl FnOnce(&Inner) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let begun = Instant::now();
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || (work(&inner), place)).await;
        tokio::time::sleep_until(begun + on_grid(begun.elapsed())).await;
        let (done, place) =
            done.map_err(|error| unfinished("the question could not be worked on", error))?;
        drop(place);
        done
    }

    async fn commit(&self, change: CuratorChange) -> Result<(), Status> {
        self.0.changes.apply(change).await.map_err(|error| decline(&error))
    }

    fn now(&self) -> UnixSeconds {
        UnixSeconds::new(self.0.clock.unix_seconds())
    }

    /// Makes rounds of a session until one is stored.
    async fn rounds(
        &self,
        caller: &Caller,
        mut held: HeldSession,
        question: SessionQuestion,
    ) -> Result<AskSessionResponse, Status> {
        for _ in 0..ATTEMPTS {
            let asked = question.clone();
            let place = self.0.questions.take(caller).await?;
            let (back, compared) = self
                .work_on_rows(place, move |inner| {
                    let compared = held.compare(&asked, inner)?;
                    Ok((held, compared))
                })
                .await?;
            held = back;
            let Compared { round, answer } = compared;
            let Some(round) = round else { return Ok(answer) };
            let kept = question.question.as_ref().map(|asked| asked.keep(&answer, self.now()));
            match self.0.changes.apply(CuratorChange::Round(round, kept)).await {
                Ok(()) => return Ok(answer),
                Err(error) if is_overtaken(&error) => {}
                Err(error) => return Err(decline(&error)),
            }
        }
        Err(Status::unavailable(
            "other replicas answer questions of this session all the time; ask again later",
        ))
    }

    /// Answers a question to a data set. None: another call has answered it meanwhile.
    ///
    /// Must be driven to completion even when the caller has gone: the duration reveals something
    /// about rows, so it is paid for, too.
    async fn answer(
        &self,
        place: QueryPermit,
        data_set: CuratorName,
        caller: &Caller,
        request: AskRequest,
    ) -> Result<Option<AskResponse>, Status> {
        let (at, named, part) = (self.now(), caller.to_string(), self.part_of(caller));
        let question = KeptQuestion::to_data_set(&request, &data_set, named.clone())?;
        let asked = wire::ParsedQuery::new(request).map_err(refuse)?;
        let (of, known) = (data_set.clone(), question.clone());
        let (answer, debit) = self
            .work_on_rows(place, move |inner| {
                if let Some(question) = known
                    && let Some(answer) = question.answer(inner)?
                {
                    return Ok((answer, None));
                }
                let record = inner.record(&of)?;
                let price = asked.question.charge(asked.price, record.measure).map_err(refuse)?;
                inner.check_in_use(&record)?;
                check_least(record.measure, price)?;
                check_budget(&record, price)?;
                let caller_most = inner.check_part(&record, price, (&named, part))?;
                let rows = inner.rows(&record)?;
                let mut rng = generator()?;
                let answer =
                    questions::answer(&rows, &asked.question, asked.price, asked.beta, &mut rng);
                let answer = Some(wire::answer(answer.map_err(refuse)?));
                let purpose = shortened(&asked.purpose());
                let debit = Debit { data_set: of, at, caller: named, purpose, price, caller_most };
                Ok((AskResponse { answer, price_nanos: price, kept: false }, Some(debit)))
            })
            .await?;
        let Some(debit) = debit else { return Ok(Some(answer)) };
        let kept = question.map(|question| question.keep(&answer, at));
        match self.0.changes.apply(CuratorChange::Debit(debit, kept)).await {
            Ok(()) => {
                let price = amount(answer.price_nanos);
                tracing::info!(%caller, %data_set, price, "question answered");
                Ok(Some(answer))
            }
            Err(error) if is_overtaken(&error) => Ok(None),
            Err(error) => Err(decline(&error)),
        }
    }
}

impl Inner {
    /// The stored record of the data set with this name.
    fn record(&self, name: &CuratorName) -> Result<DataSetRecord, Status> {
        let found = self.reader.data_sets(Some(name)).map_err(unreadable)?;
        let none = || Status::not_found(CuratorRefusal::NoDataSet(name.clone()).to_string());
        found.into_iter().next().ok_or_else(none)
    }

    /// An early check that the caller may pay so much; the debit decides. Returns the most that the caller may
    /// have spent afterwards, if it may spend a part of a budget only, in percent.
    fn check_part(
        &self,
        record: &DataSetRecord,
        price: u64,
        (caller, part): (&str, Option<u32>),
    ) -> Result<Option<u64>, Status> {
        let Some(percent) = part else { return Ok(None) };
        // Budgets are below 2^40.
        let most = record.budget.saturating_mul(u64::from(percent)) / 100;
        let spent = self.reader.spent_by((&record.name, caller)).map_err(unreadable)?;
        check_part(&record.name, price, (spent, most))
            .map_err(|refusal| Status::failed_precondition(refusal.to_string()))?;
        Ok(Some(most))
    }

    /// The data set's rows.
    fn rows(&self, record: &DataSetRecord) -> Result<Arc<Rows>, Status> {
        self.check_in_use(record)?;
        let key = self.reader.fingerprint_key().map_err(unreadable)?;
        self.data_sets_cache.rows(record, &key).map_err(|error| uncached(&error))
    }
}

/// The time from the begin of a question at which its answer is given: the least power of two times
/// [`TICK`] that the work did not exceed.
fn on_grid(worked: Duration) -> Duration {
    let mut time = TICK;
    while time < worked {
        time *= 2;
    }
    time
}

/// Refuses a price that is next to nothing. What an answer tells beside its noise, as by the time that
/// it took, would else be had as often as one likes.
fn check_least(measure: Measure, price: u64) -> Result<(), Status> {
    let (least, name) = match measure {
        Measure::Pure => (LEAST_EPSILON_NANOS, "epsilon"),
        Measure::Concentrated => (LEAST_RHO_NANOS, "rho"),
    };
    if price >= least {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "a question costs at least {} of {name}, and this one {}; pay more, or ask several counts at \
         once",
        amount(least),
        amount(price)
    )))
}

/// An early check that a price is affordable; the debit decides.
fn check_budget(record: &DataSetRecord, price: u64) -> Result<(), Status> {
    let (budget, left) = (record.budget, record.budget.saturating_sub(record.spent));
    if price <= left {
        return Ok(());
    }
    let data_set = record.name.clone();
    let refusal = CuratorRefusal::Exhausted { data_set, price, left, budget };
    Err(Status::failed_precondition(refusal.to_string()))
}

fn generator() -> Result<impl rand::Rng, Status> {
    secure_generator().map_err(|error| internal("nothing is released without noise", error))
}

fn name(text: String) -> Result<CuratorName, Status> {
    CuratorName::new(text).map_err(|error| Status::invalid_argument(error.to_string()))
}

#[tonic::async_trait]
impl Curator for CuratorService {
    async fn register_data_set(
        &self,
        request: Request<RegisterDataSetRequest>,
    ) -> Result<Response<DataSet>, Status> {
        let caller = Caller::of(request.extensions());
        let registered = self.register(&caller, request.into_inner()).await?;
        let DataSet { name, rows, .. } = &registered;
        tracing::info!(%caller, data_set = name, rows, "data set registered");
        Ok(Response::new(registered))
    }

    async fn withdraw_data_set(
        &self,
        request: Request<WithdrawDataSetRequest>,
    ) -> Result<Response<DataSet>, Status> {
        let caller = Caller::of(request.extensions());
        self.withdraw(&caller, name(request.into_inner().name)?).await.map(Response::new)
    }

    async fn list_data_sets(
        &self,
        request: Request<ListDataSetsRequest>,
    ) -> Result<Response<ListDataSetsResponse>, Status> {
        let caller = Caller::of(request.extensions());
        let request = request.into_inner();
        let page = Page::of("data sets", request.page_size, &request.page_token)?;
        let place = self.0.lists.take(&caller).await?;
        let read = move |inner: &Inner| {
            let told = |record: DataSetRecord| {
                let withdrawn = inner.is_withdrawn(&record)?;
                let told = DataSet { withdrawn, ..wire::data_set(record) };
                Ok((told.name.clone(), told))
            };
            let read = |after: &str| {
                let records = inner.reader.data_sets_after(after, READ_AT_ONCE)?;
                records.into_iter().map(told).collect()
            };
            page.read(read).map_err(|error: StoreError| unreadable(error))
        };
        let (data_sets, next_page_token) = self.work(place, read).await?;
        Ok(Response::new(ListDataSetsResponse { data_sets, next_page_token }))
    }

    async fn list_debits(
        &self,
        request: Request<ListDebitsRequest>,
    ) -> Result<Response<ListDebitsResponse>, Status> {
        let caller = Caller::of(request.extensions());
        let ListDebitsRequest { data_set, limit, before } = request.into_inner();
        let data_set = name(data_set)?;
        let limit = match limit {
            0 => DEBITS,
            1..=DEBITS_MAX => limit,
            _ => {
                return Err(Status::invalid_argument(format!(
                    "limit must be at most {DEBITS_MAX}; ask for the rest with `before`"
                )));
            }
        };
        let before = (before > 0).then_some(before);
        let place = self.0.lists.take(&caller).await?;
        let (debits, next_before) = self
            .work(place, move |inner| {
                inner.record(&data_set)?;
                // An analyst sees only the debits made under its own token name.
                let own = (!caller.sees_all_debits()).then(|| caller.to_string());
                let read = |before, limit| {
                    let of = (&data_set, own.as_deref());
                    let records = inner.reader.debits(of, before, limit)?;
                    Ok::<_, StoreError>(records.into_iter().map(wire::debit).collect())
                };
                read_newest(limit, before, |debit: &v1::Debit| debit.number, read)
                    .map_err(unreadable)
            })
            .await?;
        Ok(Response::new(ListDebitsResponse { debits, next_before }))
    }

    async fn ask(&self, request: Request<AskRequest>) -> Result<Response<AskResponse>, Status> {
        let caller = Caller::of(request.extensions());
        let request = request.into_inner();
        let data_set = name(request.data_set.clone())?;
        for _ in 0..ATTEMPTS {
            // A caller that goes away while waiting has not asked anything.
            let place = self.0.questions.take(&caller).await?;
            let (service, data_set) = (self.clone(), data_set.clone());
            let (caller, request) = (caller.clone(), request.clone());
            let answer = async move { service.answer(place, data_set, &caller, request).await };
            let answer = tokio::spawn(tracing::Instrument::in_current_span(answer)).await;
            let answer = answer.map_err(|error| internal("the question has no answer", error))?;
            if let Some(answer) = answer? {
                return Ok(Response::new(answer));
            }
        }
        Err(Status::unavailable("the question is asked all the time; ask again later"))
    }

    async fn open_session(
        &self,
        request: Request<OpenSessionRequest>,
    ) -> Result<Response<Session>, Status> {
        let caller = Caller::of(request.extensions());
        let request = request.into_inner();
        let (session, data_set) = (name(request.session.clone())?, name(request.data_set.clone())?);
        let (opened, at, named) = (session.clone(), self.now(), caller.to_string());
        let place = self.0.questions.take(&caller).await?;
        let (debit, record, answer) = self
            .work(place, move |inner| {
                let of = inner.record(&data_set)?;
                let plan = wire::plan(&request, &of).map_err(refuse)?;
                // A session whose rows are unavailable must cost nothing.
                inner.rows(&of)?;
                let price = plan.price(of.measure).map_err(refuse)?;
                check_least(of.measure, price)?;
                check_budget(&of, price)?;
                let secret = SessionSecret::draw(&plan.plan, &mut generator()?).map_err(refuse)?;
                let purpose = shortened(&format!("session {opened}, {}", plan.words()));
                let debit = Debit {
                    data_set: data_set.clone(),
                    at,
                    caller: named,
                    purpose,
                    price,
                    // Custodians open sessions.
                    caller_most: None,
                };
                let (stored, threshold_noise) = StoredPlan::of(plan.plan, secret, plan.accuracy);
                let record = SessionRecord {
                    name: opened,
                    data_set,
                    columns: plan.columns.clone(),
                    plan: serde_json::to_string(&stored)
                        .map_err(|error| internal("the plan can't be written", error))?,
                    threshold_noise,
                };
                let answer = plan.opened(&record, price);
                Ok((debit, record, answer))
            })
            .await?;
        self.commit(CuratorChange::Open(debit, record)).await?;
        let price = amount(answer.price_nanos);
        tracing::info!(%caller, data_set = answer.data_set, %session, price, "session opened");
        Ok(Response::new(answer))
    }

    async fn ask_session(
        &self,
        request: Request<AskSessionRequest>,
    ) -> Result<Response<AskSessionResponse>, Status> {
        let caller = Caller::of(request.extensions());
        let request = request.into_inner();
        let session = name(request.session.clone())?;
        let question = KeptQuestion::to_session(&request, &session, caller.to_string())?;
        let question = SessionQuestion { predicate: request.predicate, question };
        let held = self.0.sessions.hold(session).await?;
        let service = self.clone();
        // A begun round is completed before the next one, even when its caller goes away.
        let round = async move { service.rounds(&caller, held, question).await };
        let round = tokio::spawn(tracing::Instrument::in_current_span(round));
        let answer = round.await;
        let answer = answer.map_err(|error| unfinished("the round could not be made", error))?;
        Ok(Response::new(answer?))
    }
}

/// The measure of a budget in the wire's terms.
fn measure(measure: Measure) -> v1::Measure {
    match measure {
        Measure::Pure => v1::Measure::Pure,
        Measure::Concentrated => v1::Measure::Concentrated,
    }
}

/// Most characters of a caller's text that are kept, or logged.
const KEPT_CHARACTERS_MAX: usize = 500;

/// A caller's text as it is kept for good, cut if it is long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(KEPT_CHARACTERS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes in all)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests;
