//! Uploads whose form is valid, and what becomes of them.

use std::fmt::Debug;
use std::sync::Arc;

use bandana_shared::identity::{ArmIndex, Day, UploadId};
use bandana_shared::tally::Tally;

use super::{ExperimentKey, ExperimentState};
use crate::auth::AppShare;

/// An experiment, as far as the store needs to know the one that an upload is for.
pub trait UploadTarget: Debug + Send + Sync {
    /// Its key in the store.
    fn key(&self) -> ExperimentKey;

    /// Its state at the moment.
    fn state(&self) -> ExperimentState;
}

/// An upload whose form is valid.
#[derive(Clone, Debug)]
pub struct ValidUpload {
    /// Its name.
    pub id: UploadId,
    /// The day that it carries.
    pub day: Day,
    /// The experiment that its digest names.
    pub experiment: Arc<dyn UploadTarget>,
    /// The tally of each arm that occurs, in ascending order of the arms.
    pub tallies: Vec<(ArmIndex, Tally)>,
    /// The app that it came from. None: apps show no keys.
    pub app: Option<AppShare>,
}

/// What becomes of an upload once its group is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Counted now.
    Accepted,
    /// Counted before, or by another upload of the same group.
    Duplicate,
    /// Its day is before the replay window.
    Expired {
        /// Oldest day that is taken.
        oldest: Day,
    },
    /// Its day is after today.
    FutureDay {
        /// The server's day.
        today: Day,
    },
    /// The experiment takes no uploads for now.
    Paused,
    /// The experiment has ended.
    Stopped,
    /// As many ids as may be remembered are remembered.
    Full,
    /// The same of this app key: what is left is for others.
    FullForApp,
    /// The replay window lies after today: the clock was once too far ahead.
    /// Nothing can be said about any day.
    ClockBehind,
}
