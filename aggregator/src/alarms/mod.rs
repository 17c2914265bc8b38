//! Alarms: functions of counts and times that point operators to problems.
//!
//! Each alarm has a file of its own, which describes the comparison, the threshold and the rate of
//! false alarms. An [`ExperimentMonitor`] watches one experiment. It is given the served policies
//! and the numbers of reports, and reads no clock and no store. [`Refusals`] is given the outcomes
//! of all uploads of a server.
//!
//! This history is in memory, and begins anew with a restart. [`ServedShares`] describes the effect
//! on the sample ratio. Stalled reporting needs a day of history, surges three days, and reports
//! against selections more than a week. Time stands still while an experiment is paused. Replicas
//! see the same reports and policies; each has its own refusals.
//!
//! Where reports come in shuffled batches, their number says little about that of the draws until
//! the batches are full: sample ratio, selections and surges are not watched there.
//!
//! Alarms use the numbers of reports only, never their content, except [collapsed
//! entropy](AlarmName::CollapsedEntropy), which uses the tallies of all days, and [moved
//! rewards](AlarmName::RewardsMoved), which compares those of the days.

mod collapsed;
pub(crate) mod drift;
pub(crate) mod harm;
pub(crate) mod ids_full;
pub(crate) mod layers;
mod monitor;
mod never;
mod outgrown;
mod refusals;
mod sample_ratio;
mod served_shares;
mod stalled;
pub(crate) mod store_cells;
mod surge;
mod traffic;

use std::time::Duration;

pub use drift::{Moved, moved};
pub use monitor::{AlarmBaseline, AlarmQuery, Arrival, ExperimentMonitor};
pub use refusals::Refusals;
pub use sample_ratio::{EVIDENCE, SampleRatio, weight_of};
pub use served_shares::{LATE_SHARE, LATENESS, ServedShares};

/// The kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmName {
    /// The arms' shares of the reports differ from those that the policies asked for.
    SampleRatioMismatch,
    /// Reports used to come, and have stopped.
    StalledReporting,
    /// No report has ever come.
    NeverReported,
    /// One arm gets nearly all traffic, and the reports do not justify that.
    CollapsedEntropy,
    /// There are more reports than selections of arms.
    ReportsOutgrowSelections,
    /// There are many times as many reports as before.
    ReportSurge,
    /// Rewards differ from those of earlier days.
    RewardsMoved,
    /// A guardrail has paused the experiment, and nobody has resumed it.
    GuardrailPause,
    /// Another experiment can be given to the same installations, and the layer is to keep them apart.
    LayerOverlap,
    /// Far more uploads are refused than before. About the server, not an experiment.
    RefusalsJump,
    /// The maximum of upload ids is remembered. About the server, not an experiment.
    IdsFull,
    /// A store cell can't be used. About the server, not an experiment.
    StoreCellDown,
}

impl AlarmName {
    /// The alarms of an experiment.
    pub const OF_EXPERIMENTS: [Self; 9] = [
        Self::SampleRatioMismatch,
        Self::StalledReporting,
        Self::NeverReported,
        Self::CollapsedEntropy,
        Self::ReportsOutgrowSelections,
        Self::ReportSurge,
        Self::RewardsMoved,
        Self::GuardrailPause,
        Self::LayerOverlap,
    ];

    /// The name in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::SampleRatioMismatch => "sample-ratio-mismatch",
            Self::StalledReporting => "stalled-reporting",
            Self::NeverReported => "never-reported",
            Self::CollapsedEntropy => "collapsed-entropy",
            Self::ReportsOutgrowSelections => "reports-outgrow-selections",
            Self::ReportSurge => "report-surge",
            Self::RewardsMoved => "rewards-moved",
            Self::GuardrailPause => "guardrail-pause",
            Self::LayerOverlap => "layer-overlap",
            Self::RefusalsJump => "refusals-jump",
            Self::IdsFull => "ids-full",
            Self::StoreCellDown => "store-cell-down",
        }
    }
}

/// A ringing alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// The kind of the alarm.
    pub name: AlarmName,
    /// The observation, for people. It includes labels of arms.
    pub message: String,
    /// The time since the alarm began, if known.
    pub age: Option<Duration>,
    /// The value at which the alarm rings, in the alarm's own measure.
    pub threshold: f64,
    /// The observed value, in the same measure.
    pub seen: f64,
}

/// One hour and one day.
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / HOUR.as_secs_f64()
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}
