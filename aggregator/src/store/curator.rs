//! What the store keeps of the curator's data sets: their budgets, what was debited, and the
//! state of sessions. It never keeps rows.

use std::fmt;

use bandana_shared::identity::UnixSeconds;
use thiserror::Error;

use super::StoreError;
use crate::curator::price::Measure;
use crate::curator::reading::Fingerprint;

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
    /// Of the file, as it was registered.
    pub fingerprint: Fingerprint,
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

/// Something to be made durable for the curator.
#[derive(Clone, Debug)]
pub enum CuratorChange {
    /// Add a data set.
    Register(DataSetRecord),
    /// Debit a budget.
    Debit(Debit),
    /// Debit a budget, and open a session.
    Open(Debit, SessionRecord),
    /// Add a round to a session, if it is the next one.
    Round(SessionRound),
}

/// Why the store does not make a change for the curator. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CuratorRefusal {
    /// The name of a new data set is taken.
    #[error("a data set named {0} exists already; its budget can't be set anew")]
    DataSetExists(CuratorName),
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
        Self::Curator(Box::new(refusal))
    }
}

/// What is left, when a price does not fit.
pub(super) fn exhausted(data_set: &CuratorName, price: u64, budget: u64, spent: u64) -> StoreError {
    let (data_set, left) = (data_set.clone(), budget.saturating_sub(spent));
    CuratorRefusal::Exhausted { data_set, price, left, budget }.into()
}
