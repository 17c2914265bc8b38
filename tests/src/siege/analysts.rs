//! Analysts who query data sets and sessions, and record answers and prices.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;

use bandana_shared::wire::v1::{
    AskRequest, AskResponse, AskSessionRequest, AskSessionResponse, Counts, OpenSessionRequest,
    RegisterDataSetRequest, SessionChoice, ask_request, open_session_request,
    register_data_set_request,
};
use rand::RngExt as _;
use tonic::Code;

use super::ways::Caller;

/// Number of values of each of the two columns, from 0 on.
const SIDE: usize = 9;

/// The budget of a data set, in epsilon.
const BUDGET: f64 = 32.0;

/// The price of a question, in epsilon.
const PRICE: f64 = 0.0001;

/// The price of a session, in epsilon.
const SESSION_PRICE: f64 = 0.05;

/// The price of a session, in billionths.
const SESSION_NANOS: u64 = 50_000_000;

/// Number of recent questions for repetition; far fewer than the answers that a server keeps.
const REMEMBERED_MAX: usize = 50;

/// The data set for questions, and the one for sessions.
pub(super) const DATA_SETS: [&str; 2] = ["people", "cells"];

/// The debits known to analysts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// Sum of the prices, in billionths.
    pub(super) nanos: u64,
    /// Number of debits.
    pub(super) debits: u64,
}

/// Writes the files of the data sets.
///
/// # Errors
/// When they can't be written.
pub(super) fn write_files(folder: &Path) -> anyhow::Result<()> {
    for (place, name) in DATA_SETS.iter().enumerate() {
        let mut text = "x,y\n".to_owned();
        for cell in (0..SIDE * SIDE).filter(|cell| cell % 2 == place) {
            for _ in 0..100 {
                writeln!(text, "{},{}", cell / SIDE, cell % SIDE)?;
            }
        }
        std::fs::write(folder.join(format!("{name}.csv")), text)?;
    }
    Ok(())
}

/// The registration of a data set.
pub(super) fn registration(name: &str) -> RegisterDataSetRequest {
    RegisterDataSetRequest {
        name: name.to_owned(),
        file: format!("{name}.csv"),
        columns: ["x:0..8", "y:0..8"].map(str::to_owned).to_vec(),
        budget: Some(register_data_set_request::Budget::Epsilon(BUDGET)),
        find: None,
    }
}

fn predicate(caller: &mut Caller) -> String {
    let [x, y] = [(); 2].map(|()| caller.random.random_range(0..SIDE));
    format!("x={x},y={y}")
}

/// Queries the first data set until the trouble is over.
pub(super) async fn ask(mut caller: Caller) -> Spent {
    let mut spent = Spent::default();
    let mut asked: VecDeque<(AskRequest, AskResponse)> = VecDeque::new();
    while !caller.is_over() {
        let before = (!asked.is_empty() && caller.random.random_bool(0.2))
            .then(|| asked[caller.random.random_range(0..asked.len())].clone());
        let request = match &before {
            Some((request, _)) => request.clone(),
            None => question(&mut caller),
        };
        let told = caller
            .insist("a question", |mut way| {
                let request = request.clone();
                async move { way.curator.ask(request).await }
            })
            .await;
        match (told, before) {
            (Err(status), _) => caller.figures.wrong(format!("a question was refused: {status}")),
            (Ok((answer, _)), Some((_, first))) => {
                caller.count("questions asked again");
                if !answer.kept || answer.answer != first.answer {
                    caller.figures.wrong(format!("asked again: {answer:?}, and first {first:?}"));
                }
            }
            (Ok((answer, was_lost)), None) => {
                caller.count("questions answered");
                if answer.kept && !was_lost {
                    caller.figures.wrong(format!("a new question had an answer: {answer:?}"));
                } else if answer.kept {
                    caller.count("questions paid for unheard");
                }
                spent.nanos += answer.price_nanos;
                spent.debits += 1;
                asked.push_back((request, answer));
                if asked.len() > REMEMBERED_MAX {
                    asked.pop_front();
                }
            }
        }
        caller.pause(120).await;
    }
    spent
}

fn question(caller: &mut Caller) -> AskRequest {
    let predicates = vec![predicate(caller)];
    let id: [u8; 16] = caller.random.random();
    AskRequest {
        data_set: DATA_SETS[0].to_owned(),
        price: Some(ask_request::Price::Epsilon(PRICE)),
        question: Some(ask_request::Question::Counts(Counts { predicates })),
        question_id: id.to_vec().into(),
        ..AskRequest::default()
    }
}

/// Opens one session after the other on the second data set, and queries each until it is
/// exhausted.
pub(super) async fn ask_sessions(mut caller: Caller) -> Spent {
    let mut spent = Spent::default();
    for number in 0.. {
        if caller.is_over() {
            break;
        }
        let session = format!("session-{number}");
        let request = OpenSessionRequest {
            session: session.clone(),
            data_set: DATA_SETS[1].to_owned(),
            columns: Vec::new(),
            price: Some(open_session_request::Price::Epsilon(SESSION_PRICE)),
            plan: Some(open_session_request::Plan::Choice(SessionChoice {
                updates: 30,
                threshold: 15,
            })),
        };
        let told = caller
            .insist("a session", |mut way| {
                let request = request.clone();
                async move { way.curator.open_session(request).await }
            })
            .await;
        match told {
            Ok(_) => {}
            Err(status) if status.code() == Code::AlreadyExists => {
                caller.count("sessions opened unheard");
            }
            Err(status) => {
                caller.figures.wrong(format!("a session was refused: {status}"));
                break;
            }
        }
        caller.count("sessions opened");
        spent.nanos += SESSION_NANOS;
        spent.debits += 1;
        ask_session(&mut caller, &session).await;
    }
    spent
}

/// Queries a session until it is exhausted, or the trouble is over.
async fn ask_session(caller: &mut Caller, session: &str) {
    let mut asked: VecDeque<(AskSessionRequest, AskSessionResponse)> = VecDeque::new();
    while !caller.is_over() {
        let before = (!asked.is_empty() && caller.random.random_bool(0.2))
            .then(|| asked[caller.random.random_range(0..asked.len())].clone());
        let request = match &before {
            Some((request, _)) => request.clone(),
            None => AskSessionRequest {
                session: session.to_owned(),
                predicate: predicate(caller),
                question_id: caller.random.random::<[u8; 16]>().to_vec().into(),
            },
        };
        let told = caller
            .insist("a question of a session", |mut way| {
                let request = request.clone();
                async move { way.curator.ask_session(request).await }
            })
            .await;
        match (told, before) {
            (Err(status), None) if status.code() == Code::FailedPrecondition => return,
            (Err(status), _) => {
                caller.figures.wrong(format!("a question of a session was refused: {status}"));
            }
            (Ok((answer, _)), Some((_, first))) => {
                caller.count("questions of sessions asked again");
                let is_same = answer.answer.to_bits() == first.answer.to_bits()
                    && (answer.updated, answer.updates_left) == (first.updated, first.updates_left);
                if !answer.kept || !is_same {
                    caller.figures.wrong(format!("asked again: {answer:?}, and first {first:?}"));
                }
            }
            (Ok((answer, was_lost)), None) => {
                caller.count("questions of sessions answered");
                if answer.kept && !was_lost {
                    caller.figures.wrong(format!("a new question had an answer: {answer:?}"));
                }
                let last = asked.back().map(|(_, before)| before.updates_left);
                let expected = last.map(|left| left.saturating_sub(u32::from(answer.updated)));
                if expected.is_some_and(|expected| expected != answer.updates_left) {
                    caller.figures.wrong(format!("{answer:?} after {last:?} updates were left"));
                }
                asked.push_back((request, answer));
                if asked.len() > REMEMBERED_MAX {
                    asked.pop_front();
                }
            }
        }
        caller.pause(120).await;
    }
}
