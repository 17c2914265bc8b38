//! An operator who creates, pauses, lists, archives and deletes experiments.

use std::collections::{BTreeMap, BTreeSet};

use bandana_shared::wire::v1::{
    AuditAction, CreateExperimentRequest, ExperimentName, ExperimentState, Learner,
    ListExperimentsRequest,
};
use rand::RngExt as _;
use tonic::{Code, Response, Status};

use super::disclosers::{self, named};
use super::ways::{Caller, Way};
use crate::harness::three_arms;

/// Maximum number of reads of a list until it contains all created experiments.
const LISTS_MAX: usize = 50;

/// For each experiment and kind of change, the number of acknowledged changes, and the maximum
/// number.
pub(super) type Changes = BTreeMap<(String, AuditAction), (u64, u64)>;

/// The records of an operator.
#[derive(Debug, Default)]
pub(super) struct OperatorBook {
    /// Changes of experiments.
    pub(super) changes: Changes,
    /// Experiments created and not deleted, and whether they were archived.
    pub(super) kept: BTreeMap<String, bool>,
}

/// A change of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Create,
    Pause,
    Resume,
    Stop,
    Archive,
    Delete,
}

impl Change {
    fn action(self) -> AuditAction {
        match self {
            Self::Create => AuditAction::Create,
            Self::Pause => AuditAction::Pause,
            Self::Resume => AuditAction::Resume,
            Self::Stop => AuditAction::Stop,
            Self::Archive => AuditAction::Archive,
            Self::Delete => AuditAction::Delete,
        }
    }

    async fn call(self, mut way: Way, id: String) -> Result<Response<()>, Status> {
        let name = ExperimentName { experiment_id: id.clone() };
        match self {
            Self::Create => way.operator.create_experiment(creation(&id)).await.map(drop_answer),
            Self::Pause => way.operator.pause_experiment(name).await.map(drop_answer),
            Self::Resume => way.operator.resume_experiment(name).await.map(drop_answer),
            Self::Stop => way.operator.stop_experiment(name).await.map(drop_answer),
            Self::Archive => way.operator.archive_experiment(name).await.map(drop_answer),
            Self::Delete => way.operator.delete_experiment(name).await.map(drop_answer),
        }
    }

    /// Whether a refusal with this code can mean that the change was made before.
    fn is_done(self, code: Code) -> bool {
        match self {
            Self::Create => code == Code::AlreadyExists,
            Self::Delete => code == Code::NotFound,
            _ => code == Code::FailedPrecondition,
        }
    }
}

fn drop_answer<T>(answer: Response<T>) -> Response<()> {
    answer.map(drop)
}

/// A request for an experiment with three arms.
pub(super) fn creation(id: &str) -> CreateExperimentRequest {
    CreateExperimentRequest {
        specification: Some(three_arms(id)),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    }
}

/// Changes experiments until the trouble is over. The operator's own experiments may be ended, the
/// `shared` ones not.
pub(super) async fn operate(mut caller: Caller, shared: Vec<String>) -> OperatorBook {
    let mut book = OperatorBook::default();
    let mut number = 0;
    while !caller.is_over() {
        match caller.random.random_range(0..6) {
            0 | 1 => {
                let id = shared[caller.random.random_range(0..shared.len())].clone();
                change(&mut caller, &mut book, Change::Pause, &id).await;
                caller.pause(800).await;
                change(&mut caller, &mut book, Change::Resume, &id).await;
            }
            2 => {
                let id = format!("own-{number}");
                number += 1;
                change(&mut caller, &mut book, Change::Create, &id).await;
                book.kept.insert(id, false);
            }
            3 => end_one(&mut caller, &mut book).await,
            4 => pause_trusted(&mut caller).await,
            _ => look_around(&mut caller, &book, &shared).await,
        }
        caller.pause(500).await;
    }
    book
}

/// Stops an experiment, and archives or deletes it.
async fn end_one(caller: &mut Caller, book: &mut OperatorBook) {
    let running: Vec<String> =
        book.kept.iter().filter(|kept| !kept.1).map(|kept| kept.0.clone()).collect();
    if running.is_empty() {
        return;
    }
    let id = running[caller.random.random_range(0..running.len())].clone();
    change(caller, book, Change::Stop, &id).await;
    if caller.random.random_bool(0.5) {
        change(caller, book, Change::Archive, &id).await;
        book.kept.insert(id, true);
    } else {
        change(caller, book, Change::Delete, &id).await;
        book.kept.remove(&id);
    }
}

/// Changes an experiment, with retries.
async fn change(caller: &mut Caller, book: &mut OperatorBook, what: Change, id: &str) {
    let mut calls = 0;
    let told = caller
        .insist("an operator", |way| {
            calls += 1;
            what.call(way, id.to_owned())
        })
        .await;
    let counts = book.changes.entry((id.to_owned(), what.action())).or_default();
    match told {
        Ok(_) => *counts = (counts.0 + 1, counts.1 + calls),
        // One of the earlier calls took effect; or all did, and late ones undid it.
        Err(status) if calls > 1 && what.is_done(status.code()) => counts.1 += calls - 1,
        // A late pause may have found the experiment paused, and a late resumption may have found
        // it running.
        Err(status)
            if matches!(what, Change::Pause | Change::Resume)
                && status.code() == Code::FailedPrecondition => {}
        Err(status) => caller.figures.wrong(format!("{what:?} of {id} was refused: {status}")),
    }
    caller.count("changes by operators");
}

async fn pause_trusted(caller: &mut Caller) {
    let experiments = disclosers::experiments();
    let id = &experiments[caller.random.random_range(0..experiments.len())].experiment_id;
    for is_pause in [true, false] {
        let told = caller
            .insist("an operator", |mut way| async move {
                let name = named(id);
                if is_pause {
                    way.trusted_operator.pause_trusted_experiment(name).await
                } else {
                    way.trusted_operator.resume_trusted_experiment(name).await
                }
            })
            .await;
        if let Err(status) = told
            && status.code() != Code::FailedPrecondition
        {
            caller.figures.wrong(format!("{id} was not paused or resumed: {status}"));
        }
        caller.count("changes by operators");
        caller.pause(500).await;
    }
}

/// Lists all experiments, page by page, and checks that all created ones are included.
async fn look_around(caller: &mut Caller, book: &OperatorBook, shared: &[String]) {
    let mut expected: BTreeSet<&String> = book.kept.keys().collect();
    expected.extend(shared);
    // Another replica lists a new experiment after a short lag.
    for _ in 0..LISTS_MAX {
        let Some(listed) = list(caller).await else { return };
        caller.count("lists read");
        if expected.iter().all(|id| listed.contains(*id)) {
            return;
        }
        caller.pause(400).await;
    }
    caller.figures.wrong(format!("not all of {expected:?} are listed"));
}

/// All experiments, archived ones included.
pub(super) async fn list(caller: &mut Caller) -> Option<BTreeSet<String>> {
    let mut request =
        ListExperimentsRequest { page_size: 7, show_archived: true, ..Default::default() };
    let mut listed = BTreeSet::new();
    loop {
        let told = caller
            .insist("a list", |mut way| {
                let request = request.clone();
                async move { way.operator.list_experiments(request).await }
            })
            .await;
        let page = match told {
            Ok((page, _)) => page,
            Err(status) => {
                caller.figures.wrong(format!("a list was refused: {status}"));
                return None;
            }
        };
        let ids = page.experiments.into_iter().filter_map(|status| status.specification);
        listed.extend(ids.map(|specification| specification.experiment_id));
        if page.next_page_token.is_empty() {
            return Some(listed);
        }
        request.page_token = page.next_page_token;
    }
}

/// Resumes paused experiments repeatedly: an abandoned call may still take effect later.
pub(super) async fn resume_all(mut caller: Caller, shared: Vec<String>) {
    loop {
        for id in &shared {
            let name = ExperimentName { experiment_id: id.clone() };
            let told = caller
                .insist("an operator", |mut way| {
                    let name = name.clone();
                    async move { way.operator.get_experiment_status(name).await }
                })
                .await;
            if told.is_ok_and(|told| told.0.state() == ExperimentState::Paused) {
                Change::Resume.call(caller.way(), id.clone()).await.ok();
            }
        }
        for experiment in disclosers::experiments() {
            let name = named(&experiment.experiment_id);
            let mut way = caller.way();
            // Refused if it is running.
            way.trusted_operator.resume_trusted_experiment(name).await.ok();
        }
        caller.pause(400).await;
    }
}
