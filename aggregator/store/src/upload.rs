//! Well-formed uploads and their verdicts.

use std::fmt::Debug;
use std::sync::Arc;

use bandana_edge::auth::AppShare;
use bandana_shared::identity::{CellIndex, Day, Revision, UploadId};
use bandana_shared::tally::Tally;

use super::{ExperimentKey, ExperimentState};

/// The view of an experiment that the store needs to judge an upload.
pub trait UploadTarget: Debug + Send + Sync {
    /// The experiment's key in the store.
    fn key(&self) -> ExperimentKey;

    /// The experiment's present state.
    fn state(&self) -> ExperimentState;
}

/// A well-formed upload.
#[derive(Clone, Debug)]
pub struct ValidUpload {
    /// The upload's id.
    pub id: UploadId,
    /// The day that the upload carries.
    pub day: Day,
    /// The experiment that the upload's digest names.
    pub experiment: Arc<dyn UploadTarget>,
    /// The revision of the experiment that the digest names.
    pub revision: Revision,
    /// The tally of each arm that occurs, in ascending order of the arms.
    pub tallies: Vec<(CellIndex, Tally)>,
    /// The app that the upload came from. None: apps show no keys.
    pub app: Option<AppShare>,
}

/// The outcome for an upload once its group is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Counted now.
    Accepted,
    /// Counted before, or by another upload of the same group.
    Duplicate,
    /// The upload's day is before the replay window.
    Expired {
        /// The oldest day whose uploads are taken.
        oldest: Day,
    },
    /// The upload's day is after today.
    FutureDay {
        /// The server's day.
        today: Day,
    },
    /// The experiment takes no uploads for now.
    Paused,
    /// The experiment has ended.
    Stopped,
    /// The store remembers as many ids as it may.
    Full,
    /// The ids of this app key fill its share; the rest is for other apps.
    FullForApp,
    /// The replay window lies after today, since the clock was once too far ahead. No day can be
    /// judged.
    ClockBehind,
}
