//! Data sets of the curator as the store keeps them: budgets, debits and the state of sessions. It
//! never keeps rows.

use std::fmt;

use bandana_mechanisms::queries::price::Measure;
use bandana_shared::identity::UnixSeconds;
use thiserror::Error;

use super::{AuditEntry, StoreError, StoreRefusal, Verification};
use crate::datasets::fingerprint::Fingerprint;

/// The name of a data set or of a session: 1 to 64 lower-case letters, digits and hyphens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CuratorName(String);

impl CuratorName {
    /// Checks it.
    ///
    /// # Errors
    /// [`CuratorNameError`].
    pub fn new(name: impl Into<String>) -> Result<Self, CuratorNameError> {
        let name = name.into();
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_name = (1..=64).contains(&name.len()) && name.chars().all(fits);
        if is_name { Ok(Self(name)) } else { Err(CuratorNameError(name)) }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CuratorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Not a name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is no name; use 1 to 64 lower-case letters, digits and hyphens")]
pub struct CuratorNameError(String);

/// A data set, as it was registered, with what is left of its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSetRecord {
    /// Its name.
    pub name: CuratorName,
    /// Its file, in the directory of data sets.
    pub file: String,
    /// Of the bytes of the file, as it was registered; a plain hash if there is no `content`.
    pub fingerprint: Fingerprint,
    /// Of the content of the file, whatever it is called. No two data sets have the same. None: it
    /// was registered with an earlier version.
    pub content: Option<Fingerprint>,
    /// Rows, which are public.
    pub rows: u64,
    /// Its columns, one on each line.
    pub columns: String,
    /// How its losses add up.
    pub measure: Measure,
    /// All that may be spent, in billionths.
    pub budget: u64,
    /// What was spent, in billionths. It only grows.
    pub spent: u64,
    /// When it was registered.
    pub at: UnixSeconds,
}

/// What is taken from a data set's budget, before the answer that it pays for leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debit {
    /// Whose budget.
    pub data_set: CuratorName,
    /// When.
    pub at: UnixSeconds,
    /// Who asked.
    pub caller: String,
    /// What for, in words.
    pub purpose: String,
    /// How much, in billionths.
    pub price: u64,
}

/// A debit, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebitRecord {
    /// Greater than those of all earlier ones.
    pub number: u64,
    /// The debit.
    pub debit: Debit,
}

/// A session of private multiplicative weights.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its name.
    pub name: CuratorName,
    /// What it asks about.
    pub data_set: CuratorName,
    /// The columns of its universe, one name on each line.
    pub columns: String,
    /// Its plan, as JSON.
    pub plan: String,
    /// The noise of its threshold: as secret as rows are.
    pub threshold_noise: i64,
}

impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, data_set, .. } = self;
        let mut shown = f.debug_struct("SessionRecord");
        shown.field("name", name).field("data_set", data_set).finish_non_exhaustive()
    }
}

/// An update round of a session: what was asked, and the answer that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionUpdate {
    /// The session.
    pub session: CuratorName,
    /// Its place among the updates of the session, from 0.
    pub number: u32,
    /// What was asked.
    pub predicate: String,
    /// What was answered.
    pub answer: i64,
}

/// A round of a session: a query that was compared, whichever way that went.
///
/// Every round is stored, and not updates alone: what fails, and what loses to a round that
/// somebody else has stored first, must not depend on how the comparison went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRound {
    /// The session.
    pub session: CuratorName,
    /// Rounds that it had when the comparison was made.
    pub number: u64,
    /// The update that the round was.
    pub update: Option<SessionUpdate>,
}

/// Where a question was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionScope {
    /// Of a data set.
    DataSet(CuratorName),
    /// Of a session.
    Session(CuratorName),
}

impl QuestionScope {
    /// As the store has it: a kind, and a name.
    pub(super) fn columns(&self) -> (&'static str, &str) {
        match self {
            Self::DataSet(name) => ("data-set", name.as_str()),
            Self::Session(name) => ("session", name.as_str()),
        }
    }
}

/// The id that a caller has made for a question. Other callers may have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionKey {
    /// Where it was asked.
    pub scope: QuestionScope,
    /// Who has asked.
    pub caller: String,
    /// The id.
    pub id: [u8; 16],
}

/// An answer that is kept for whoever has not got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// SHA-256 of what was asked.
    pub digest: [u8; 32],
    /// The answer, as it was sent.
    pub answer: Vec<u8>,
}

/// An answer that is to be kept, together with what it has cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerToKeep {
    /// What it is the answer of.
    pub question: QuestionKey,
    /// The answer.
    pub kept: KeptAnswer,
    /// When it was given.
    pub at: UnixSeconds,
}

/// How long answers are kept, at least, unless there are too many.
pub(super) const KEPT_SECONDS: u64 = 86_400;

/// Most answers that are kept for a caller about a data set or session, and most bytes of them;
/// the newest one in any case.
pub(super) const KEPT_MAX: i64 = 256;
pub(super) const KEPT_BYTES_MAX: i64 = 16 << 20;

/// Something to be made durable for the curator.
#[derive(Clone, Debug)]
pub enum CuratorChange {
    /// Add a data set, with its entry in the audit log.
    Register(Box<DataSetRecord>, AuditEntry),
    /// Note in the audit log that a data set was refused.
    Refuse(AuditEntry),
    /// Note what content a data set of an earlier version has.
    Bind {
        /// The data set.
        data_set: CuratorName,
        /// Of the bytes of its file.
        fingerprint: Fingerprint,
        /// Of the content of its file.
        content: Fingerprint,
    },
    /// Debit a budget, and keep the answer that this pays for.
    Debit(Debit, Option<AnswerToKeep>),
    /// Debit a budget, and open a session.
    Open(Debit, SessionRecord),
    /// Add a round to a session, if it is the next one.
    Round(SessionRound, Option<AnswerToKeep>),
}

/// Why the store does not make a change for the curator. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CuratorRefusal {
    /// The name of a new data set is taken.
    #[error("a data set named {0} exists already; its budget can't be set anew")]
    DataSetExists(CuratorName),
    /// There is a data set with the same content.
    #[error(
        "the file has the same content as the data set {0}, whose budget is the only one that it \
         has, for good; ask that data set"
    )]
    ContentRegistered(CuratorName),
    /// A question with this id was answered.
    #[error("the question was answered before")]
    Answered,
    /// There is no such data set.
    #[error("there is no data set {0}")]
    NoDataSet(CuratorName),
    /// The budget does not suffice.
    #[error(
        "the budget of {data_set} does not suffice: this costs {}, and {} of {} is left; nothing \
         was spent", amount(*price), amount(*left), amount(*budget)
    )]
    Exhausted {
        /// Whose.
        data_set: CuratorName,
        /// What was asked for, in billionths.
        price: u64,
        /// What is left, in billionths.
        left: u64,
        /// All there was, in billionths.
        budget: u64,
    },
    /// The name of a new session is taken.
    #[error("a session named {0} exists already; choose another name")]
    SessionExists(CuratorName),
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(CuratorName),
    /// Somebody else was faster.
    #[error("the session was asked by somebody else at the same time; ask again")]
    SessionMoved,
}

/// Billionths as a decimal number.
pub(crate) fn amount(nanos: u64) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl From<CuratorRefusal> for StoreError {
    fn from(refusal: CuratorRefusal) -> Self {
        StoreRefusal::Curator(Box::new(refusal)).into()
    }
}

/// Checks a budget, what was spent of it, and the sum of its debits. All of it is spent in
/// backups.
pub(super) fn verify(
    name: &str,
    [budget, spent, debited]: [u64; 3],
    verification: &mut Verification,
) {
    if spent != debited && spent != budget {
        verification.say(format!(
            "of the budget of {name} {} was spent, and its debits add up to {}",
            amount(spent),
            amount(debited)
        ));
    }
}

/// What is left, when a price does not fit.
pub(super) fn exhausted(data_set: &CuratorName, price: u64, budget: u64, spent: u64) -> StoreError {
    let (data_set, left) = (data_set.clone(), budget.saturating_sub(spent));
    CuratorRefusal::Exhausted { data_set, price, left, budget }.into()
}
