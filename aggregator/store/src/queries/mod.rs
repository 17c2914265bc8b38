//! Records of the curator: data sets, budgets, debits and sessions. The store never keeps rows of a
//! data set.

mod answers;
mod tables;

use std::fmt;

use bandana_mechanisms::measure::Measure;
use bandana_shared::identity::UnixSeconds;

use super::refusal::amount;
use super::{AuditEntry, CuratorName, CuratorRefusal, StoreError, Verification};
use crate::fingerprint::Fingerprint;
pub(crate) use answers::kept;
pub(crate) use tables::{
    budgets, change, data_sets, data_sets_after, debits, fingerprint_key, rounds, session,
    spent_by, updates,
};

/// A data set as registered, with the state of its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSetRecord {
    /// The data set's name.
    pub name: CuratorName,
    /// The file's name in the directory of data sets.
    pub file: String,
    /// The keyed fingerprint of the file's bytes at registration; a plain hash if `content` is
    /// none.
    pub fingerprint: Fingerprint,
    /// The fingerprint of the file's content, independent of its name. No two data sets have the
    /// same. None: an earlier version registered the data set.
    pub content: Option<Fingerprint>,
    /// The number of rows, which is public.
    pub rows: u64,
    /// The columns, one on each line.
    pub columns: String,
    /// The privacy measure in which its losses add up.
    pub measure: Measure,
    /// The whole budget, in billionths.
    pub budget: u64,
    /// The part of the budget that is spent, in billionths. It only grows.
    pub spent: u64,
    /// The time of registration.
    pub at: UnixSeconds,
}

/// A debit from a data set's budget, made before the answer that it pays for leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debit {
    /// The data set whose budget is debited.
    pub data_set: CuratorName,
    /// The time of the debit.
    pub at: UnixSeconds,
    /// The caller who asked.
    pub caller: String,
    /// The purpose, in words.
    pub purpose: String,
    /// The price, in billionths.
    pub price: u64,
    /// The most that the caller may have spent of this budget with this debit, in billionths. It is for the
    /// change alone: `None` for a debit that was read.
    pub caller_most: Option<u64>,
}

/// A debit with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebitRecord {
    /// The debit's number, greater than those of all earlier debits.
    pub number: u64,
    /// The debit.
    pub debit: Debit,
}

/// A session of private multiplicative weights.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session's name.
    pub name: CuratorName,
    /// The data set that the session asks about.
    pub data_set: CuratorName,
    /// The columns of its universe, one name on each line.
    pub columns: String,
    /// The session's plan, as JSON.
    pub plan: String,
    /// The noise of the session's threshold, which is as secret as rows are.
    pub threshold_noise: i64,
}

impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, data_set, .. } = self;
        let mut shown = f.debug_struct("SessionRecord");
        shown.field("name", name).field("data_set", data_set).finish_non_exhaustive()
    }
}

/// An update round of a session: the question and the released answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionUpdate {
    /// The session.
    pub session: CuratorName,
    /// The update's place among those of the session, from 0.
    pub number: u32,
    /// The predicate that was asked about.
    pub predicate: String,
    /// The released answer.
    pub answer: i64,
}

/// A round of a session: a query that was compared with the threshold, whatever the result.
///
/// Every round is stored, not updates alone. Whether a write fails, or loses to a round that
/// another caller stored first, must not depend on the result of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRound {
    /// The session.
    pub session: CuratorName,
    /// The number of rounds of the session when the comparison was made.
    pub number: u64,
    /// The update, if the round is one.
    pub update: Option<SessionUpdate>,
}

/// The scope of a question: a data set or a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionScope {
    /// A question about a data set.
    DataSet(CuratorName),
    /// A question in a session.
    Session(CuratorName),
}

impl QuestionScope {
    /// The columns of the scope in the store: kind and name.
    fn columns(&self) -> (&'static str, &str) {
        match self {
            Self::DataSet(name) => ("data-set", name.as_str()),
            Self::Session(name) => ("session", name.as_str()),
        }
    }
}

/// The key of a question: the id that its caller chose. Other callers may use the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionKey {
    /// The scope of the question.
    pub scope: QuestionScope,
    /// The caller who asked.
    pub caller: String,
    /// The id that the caller chose.
    pub id: [u8; 16],
}

/// An answer that is kept so that its caller can fetch it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// SHA-256 of the question.
    pub digest: [u8; 32],
    /// The answer as it was sent.
    pub answer: Vec<u8>,
}

/// An answer to keep, stored together with its debit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerToKeep {
    /// The question that it answers.
    pub question: QuestionKey,
    /// The answer.
    pub kept: KeptAnswer,
    /// The time of the answer.
    pub at: UnixSeconds,
}

/// A durable change for the curator.
#[derive(Clone, Debug)]
pub enum CuratorChange {
    /// Add a data set, debit its budget for the names that were found in it, with an entry in the audit log.
    Register(Box<DataSetRecord>, Option<Debit>, AuditEntry),
    /// Note in the audit log that the registration of a data set was refused.
    Refuse(AuditEntry),
    /// Set the content fingerprint of a data set that an earlier version registered.
    Bind {
        /// The data set.
        data_set: CuratorName,
        /// The fingerprint of the file's bytes.
        fingerprint: Fingerprint,
        /// The fingerprint of the file's content.
        content: Fingerprint,
    },
    /// Debit a budget, and keep the answer that the debit pays for.
    Debit(Debit, Option<AnswerToKeep>),
    /// Debit all that is left of a budget, with an entry in the audit log.
    Withdraw(Debit, AuditEntry),
    /// Debit a budget, and open a session.
    Open(Debit, SessionRecord),
    /// Add a round to a session, if no other came first, and keep the answer.
    Round(SessionRound, Option<AnswerToKeep>),
}

/// Checks the spent part of a budget against the sum of its debits. In a backup, the whole budget
/// is spent.
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

/// Checks what a caller has spent of a budget against the most that it may spend.
///
/// # Errors
/// [`CuratorRefusal::PartExhausted`].
pub fn check_part(
    data_set: &CuratorName,
    price: u64,
    (spent, most): (u64, u64),
) -> Result<(), CuratorRefusal> {
    let left = most.saturating_sub(spent);
    if price <= left {
        return Ok(());
    }
    Err(CuratorRefusal::PartExhausted { data_set: data_set.clone(), price, left, most })
}

/// The refusal of a price that exceeds the rest of the budget.
fn exhausted(data_set: &CuratorName, price: u64, budget: u64, spent: u64) -> StoreError {
    let (data_set, left) = (data_set.clone(), budget.saturating_sub(spent));
    CuratorRefusal::Exhausted { data_set, price, left, budget }.into()
}
