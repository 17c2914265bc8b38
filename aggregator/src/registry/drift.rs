//! The watch for moved rewards of one experiment, with its last result.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bandana_learners::TallySnapshot;
use bandana_learners::window::Days;
use bandana_shared::cells::Cells;
use bandana_shared::estimate::Estimand;
use bandana_shared::identity::Day;
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::tally::Tally;

use crate::alarms::{Alarm, Moved, drift, moved, weight_of};

/// The seconds of a day.
const DAY_SECONDS: u64 = 24 * 3600;

/// New reports after which the days are compared again: a hundredth of those at the last time, and at
/// least so many. With 1,024 cells a comparison takes some hundredths of a second.
const REPORTS_MIN: u64 = 20;

/// The last comparison of the days.
#[derive(Debug, Default)]
pub(crate) struct DriftWatch(Mutex<Option<Looked>>);

#[derive(Clone, Debug)]
struct Looked {
    reports: u64,
    newest: Option<Day>,
    moved: Option<Moved>,
}

impl DriftWatch {
    /// The alarm, if it rings. The first `initial` arms were there from the start; `unix_seconds` is
    /// the present time.
    pub(crate) fn alarm(
        &self,
        specification: &Specification,
        initial: usize,
        counted: impl FnOnce() -> TallySnapshot,
        (reports, newest): (u64, Option<Day>),
        unix_seconds: u64,
    ) -> Option<Alarm> {
        let mut looked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = looked.as_ref().is_some_and(|last| {
            let due = last.reports + REPORTS_MIN.max(last.reports / 100);
            last.newest == newest && (last.reports..due).contains(&reports)
        });
        if !is_fresh {
            let days = by_cells(&counted().days, specification.cells());
            let weights = weights(specification.cells(), initial);
            let moved = moved(&days, specification.channel().alphabet(), &weights);
            *looked = Some(Looked { reports, newest, moved });
        }
        let moved = looked.as_ref()?.moved.clone()?;
        drop(looked);
        let since = u64::from(moved.since.get()) * DAY_SECONDS;
        let age = Duration::from_secs(unix_seconds.saturating_sub(since));
        Some(drift::alarm(&moved, &in_words(specification, &moved), age))
    }
}

/// The tallies of the rewards of each arm in each segment: those of arm 0 first.
fn by_cells(days: &Days, cells: Cells) -> Days {
    let of_day = |tallies: &Vec<Tally>| {
        let segments: Vec<Vec<Tally>> =
            (0..cells.segments()).map(|one| cells.of_arms(tallies, 0, Some(one))).collect();
        let of_arm = |arm: usize| segments.iter().map(move |segment| segment[arm]);
        (0..cells.arms()).flat_map(of_arm).collect()
    };
    days.iter().map(|(day, tallies)| (*day, of_day(tallies))).collect()
}

/// The weights of these cells: the segments of an arm share the arm's.
fn weights(cells: Cells, initial: usize) -> Vec<f64> {
    let segments = cells.segments();
    let of_arm = |arm: usize| {
        let weight = weight_of(arm, initial) / segments as f64;
        std::iter::repeat_n(weight, segments)
    };
    (0..cells.arms()).flat_map(of_arm).collect()
}

/// The arm whose rewards have moved, with their means.
fn in_words(specification: &Specification, moved: &Moved) -> String {
    let segments = specification.cells().segments();
    let (arm, segment) = (moved.cell / segments, moved.cell % segments);
    let label = specification.arms().get(arm).map_or("", Arm::label);
    let place = if segments == 1 {
        String::new()
    } else {
        format!(" in {}", specification.measurement().segmentations.label(segment))
    };
    let (channel, estimand) = (specification.channel(), specification.estimand());
    let mean = |tally: &Tally| {
        let mean = channel.debiased_mean(tally).map(|mean| estimand.from_unit(mean));
        mean.map_or_else(|| "none".to_owned(), |mean| format!("{mean:.3}"))
    };
    let (before, after) = (moved.before, moved.after);
    let counts = format!("{} and {} reports", before.reports(), after.reports());
    match estimand {
        Estimand::Frequencies => format!(
            "arm {arm} ({label}){place} had other shares of its categories before, by {counts}"
        ),
        _ => format!(
            "arm {arm} ({label}){place} had a mean of {} before and has one of {} since, by {counts}",
            mean(&before),
            mean(&after)
        ),
    }
}
