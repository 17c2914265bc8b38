//! Refusals of changes for the curator and of trusted experiments.
//!
//! Callers match all of them: a new one needs an answer.

use bandana_shared::identity::{Day, UploadId};
use thiserror::Error;

use crate::curator_name::CuratorName;

/// The reason why the store refuses a change for the curator. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CuratorRefusal {
    /// The name of a new data set is taken.
    #[error("a data set named {0} exists already; its budget can't be set anew")]
    DataSetExists(CuratorName),
    /// Another data set has the same content.
    #[error(
        "the file has the same content as the data set {0}, and one content has one budget, for \
         good; ask that data set, unless it was withdrawn"
    )]
    ContentRegistered(CuratorName),
    /// A question with this id was already answered.
    #[error("the question was answered before")]
    Answered,
    /// No data set has this name.
    #[error("there is no data set {0}")]
    NoDataSet(CuratorName),
    /// The budget does not suffice.
    #[error(
        "the budget of {data_set} does not suffice: this costs {}, and {} of {} is left; nothing \
         was spent", amount(*price), amount(*left), amount(*budget)
    )]
    Exhausted {
        /// The data set.
        data_set: CuratorName,
        /// The price, in billionths.
        price: u64,
        /// The part of the budget that is left, in billionths.
        left: u64,
        /// The whole budget, in billionths.
        budget: u64,
    },
    /// The caller's part of the budget does not suffice.
    #[error(
        "your part of the budget of {data_set} does not suffice: this costs {}, and {} of {} is left to you; \
         nothing was spent. A caller who may also register, such as an administrator, can pay for the question", amount(*price),
         amount(*left), amount(*most)
    )]
    PartExhausted {
        /// The data set.
        data_set: CuratorName,
        /// The price, in billionths.
        price: u64,
        /// What the caller may still spend, in billionths.
        left: u64,
        /// What the caller may spend in all, in billionths.
        most: u64,
    },
    /// The name of a new session is taken.
    #[error("a session named {0} exists already; choose another name")]
    SessionExists(CuratorName),
    /// No session has this name.
    #[error("there is no session {0}")]
    NoSession(CuratorName),
    /// Another caller's round was stored first.
    #[error("the session was asked by somebody else at the same time; ask again")]
    SessionMoved,
}

/// Billionths as a decimal number.
pub fn amount(nanos: u64) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The reason why the store refuses a change of a trusted experiment. Nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TrustedRefusal {
    /// The experiment has another version, or does not exist.
    #[error("the trusted experiment was changed by somebody else at the same time; try again")]
    Moved,
    /// These disclosures were counted already.
    #[error("{} disclosures were counted before", .0.len())]
    Known(Vec<(Day, UploadId)>),
    /// Some disclosures carry a later day than the clock of the database allows.
    #[error("a disclosure is of a day after {latest}, by the clock of the database")]
    Future {
        /// The latest day whose disclosures are taken.
        latest: Day,
    },
}
