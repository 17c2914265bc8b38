//! Alarms: functions of counts and times that say what an operator should look at.
//!
//! Each alarm has a file of its own, with what it compares, its threshold, and how often it
//! rings when nothing is wrong. A [`ExperimentMonitor`] watches over one experiment: it is told which
//! policies are served and how many reports there are, and reads no clock and no store.
//! [`Refusals`] is told what becomes of all uploads of a server.
//!
//! What they are told is in memory, and a restart begins it anew: see [`ServedShares`] for what that
//! means for the sample ratio; stalled reporting and surges need a day and three days of
//! history, and reports against selections more than a week. Time stands still while an
//! experiment is paused. Replicas are told of the same reports and policies; each has refusals of its own.
//!
//! Numbers of reports are all that is looked at, never what they say, except by
//! [collapsed entropy](AlarmName::CollapsedEntropy), which uses the tallies of all days.

mod collapsed;
pub(crate) mod ids_full;
mod monitor;
mod outgrown;
mod refusals;
mod sample_ratio;
mod served_shares;
mod stalled;
mod surge;
mod traffic;

use std::time::Duration;

pub use monitor::{AlarmBaseline, AlarmQuery, ExperimentMonitor};
pub use refusals::Refusals;
pub use sample_ratio::{EVIDENCE, SampleRatio};
pub use served_shares::{LATE_SHARE, LATENESS, ServedShares};

/// Which alarm it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmName {
    /// Arms have other shares of the reports than the policies asked for.
    SampleRatioMismatch,
    /// There used to be reports, and there are none.
    StalledReporting,
    /// One arm gets nearly all traffic, and the reports do not say why.
    CollapsedEntropy,
    /// There are more reports than arms were drawn.
    ReportsOutgrowSelections,
    /// There are many times as many reports as before.
    ReportSurge,
    /// Far more uploads are refused than before: of the server, not of an experiment.
    RefusalsJump,
    /// As many upload ids are remembered as may be: of the server, not of an experiment.
    IdsFull,
}

impl AlarmName {
    /// Those of an experiment.
    pub const OF_EXPERIMENTS: [Self; 5] = [
        Self::SampleRatioMismatch,
        Self::StalledReporting,
        Self::CollapsedEntropy,
        Self::ReportsOutgrowSelections,
        Self::ReportSurge,
    ];

    /// Its name in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::SampleRatioMismatch => "sample-ratio-mismatch",
            Self::StalledReporting => "stalled-reporting",
            Self::CollapsedEntropy => "collapsed-entropy",
            Self::ReportsOutgrowSelections => "reports-outgrow-selections",
            Self::ReportSurge => "report-surge",
            Self::RefusalsJump => "refusals-jump",
            Self::IdsFull => "ids-full",
        }
    }
}

/// An alarm that rings.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// Which one.
    pub name: AlarmName,
    /// What was seen, for people. It has labels of arms.
    pub message: String,
    /// For how long, if that is known.
    pub age: Option<Duration>,
    /// From where on it rings, in the measure of this alarm.
    pub threshold: f64,
    /// What was seen, in the same measure.
    pub seen: f64,
}

/// Seconds of an hour and of a day.
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / HOUR.as_secs_f64()
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}
