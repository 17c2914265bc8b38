//! Estimates over time: what was known of each arm at the end of each day, as text and as JSON.
//!
//! The points follow from the tallies of each day, which every store keeps for as long as the
//! experiment, so replicas, restarts and backups agree about them. The point of a day is the estimate
//! from all reports of that day and of those before it.

use bandana_learners::history::History;
use bandana_shared::confidence::Strata;
use bandana_shared::identity::{Day, Revision};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::DailyTally;
use serde::Serialize;

use super::arm_estimate_view::{SymbolView, number};
use super::columns::{Cells, Column};
use super::date::date_of;
use super::estimates_view::{confidence, estimand_name};
use super::table::{Side, Table, visible};
use super::tallies_view::checked;
use crate::estimates::arm_mean;

/// Help text on the fields.
pub(crate) const FIELDS: &str = "\
Fields with --over-time --json:
  experiment_id, estimand, alpha: as above
  days: of each day with reports
    day: a date, by UTC and the server's clock
    reports: of rewards, up to the end of the day
    arms: those that have reports by then, from the reports of that day and of those before it
      arm, label, retired, reports, estimate, low, high, symbols: as above";

/// Stable JSON form of estimates over time.
#[derive(Debug, Serialize)]
pub(crate) struct OverTimeView {
    #[serde(flatten)]
    subject: Subject,
    days: Vec<DayView>,
}

/// What estimates over time are about.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Subject {
    experiment_id: String,
    estimand: &'static str,
    alpha: f64,
}

/// What was known at the end of a day.
#[derive(Debug, Serialize)]
pub(crate) struct DayView {
    #[serde(skip)]
    number: Day,
    day: String,
    reports: u64,
    arms: Vec<ArmView>,
}

#[derive(Debug, Serialize)]
struct ArmView {
    arm: u32,
    label: String,
    retired: bool,
    reports: u64,
    estimate: Option<f64>,
    low: f64,
    high: f64,
    symbols: Vec<SymbolView>,
}

/// Estimates from the rewards over all users, with intervals of one level, one day after the other.
#[derive(Debug)]
pub(crate) struct OverTime {
    specification: Specification,
    alpha: ErrorLevel,
    sums: Vec<Tally>,
    history: History,
}

impl OverTime {
    /// Before the first day. `specification` must have all arms of the tallies to come.
    pub(crate) fn new(specification: Specification, alpha: ErrorLevel) -> Self {
        let sums = vec![Tally::EMPTY; specification.arms().len()];
        Self { specification, alpha, sums, history: History::default() }
    }

    /// What the estimates are about.
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            experiment_id: self.specification.experiment_id().to_string(),
            estimand: estimand_name(self.specification.estimand().into()),
            alpha: self.alpha.get(),
        }
    }

    /// What is known at the end of the next day, which has these tallies by revision. None: nobody reported
    /// rewards on it.
    pub(crate) fn next(&mut self, tallies: &[DailyTally]) -> anyhow::Result<Option<DayView>> {
        let mut day = None;
        for (row, cell, tally) in checked(&self.specification, tallies)? {
            if cell.metric == 0 && cell.coordinate == 0 {
                let of_day = Day::new(row.day);
                self.sums[cell.arm.get()] += tally;
                let index = self.specification.cells().index(cell);
                self.history.add(of_day, Revision::new(row.revision).ok(), index, tally);
                day = Some(of_day);
            }
        }
        let cells = self.specification.cells();
        let alphabet = self.specification.channel().alphabet();
        let strata = self.history.strata((cells, alphabet), 0, |_| true);
        Ok(day.map(|number| DayView {
            number,
            day: date_of(number),
            reports: self.sums.iter().map(|tally| tally.reports()).sum(),
            arms: known_arms(&self.specification, (&self.sums, &strata), self.alpha),
        }))
    }
}

impl OverTimeView {
    /// The rewards over all users, with intervals of this level, from tallies by day and revision.
    /// `specification` must be as new as the tallies, so that it has all their arms.
    pub(crate) fn new(
        specification: Specification,
        tallies: &[DailyTally],
        alpha: ErrorLevel,
    ) -> anyhow::Result<Self> {
        let mut over_time = OverTime::new(specification, alpha);
        let mut days = Vec::new();
        for of_day in tallies.chunk_by(|one, next| one.day == next.day) {
            days.extend(over_time.next(of_day)?);
        }
        Ok(Self { subject: over_time.subject(), days })
    }

    /// These days of them.
    pub(crate) fn of_days(subject: Subject, days: Vec<DayView>) -> Self {
        Self { subject, days }
    }

    /// A table with a row for each day and arm, or for each category.
    pub(crate) fn describe(&self, columns: Option<usize>) -> String {
        let of_categories = self.subject.estimand == "frequencies";
        let mut table = Table::new([
            ("day", Side::Left),
            ("arm", Side::Right),
            ("label", Side::Left),
            (if of_categories { "category" } else { "" }, Side::Right),
            ("reports", Side::Right),
            (if of_categories { "share" } else { "estimate" }, Side::Right),
            ("low", Side::Right),
            ("high", Side::Right),
        ]);
        let mut push = |day: &DayView, arm: &ArmView, category: String, numbers: [String; 3]| {
            let [mean, low, high] = numbers;
            let (day, label) = (day.day.clone(), visible(&arm.label));
            let (place, reports) = (arm.arm.to_string(), arm.reports.to_string());
            table.push([day, place, label, category, reports, mean, low, high]);
        };
        let told = |mean: Option<f64>, low, high| {
            [mean.map_or_else(|| "-".to_owned(), number), number(low), number(high)]
        };
        for (day, arm) in self.points() {
            if of_categories {
                for (place, symbol) in arm.symbols.iter().enumerate() {
                    let numbers = told(symbol.frequency, symbol.low, symbol.high);
                    push(day, arm, place.to_string(), numbers);
                }
            } else {
                push(day, arm, String::new(), told(arm.estimate, arm.low, arm.high));
            }
        }
        let confidence = confidence(self.subject.alpha);
        format!(
            "{}: from the reports of each day and of those before it\nlow and high: bounds that hold \
             on all days at once, each arm with confidence {confidence}\n\n{}",
            self.subject.experiment_id,
            table.render(columns)
        )
    }

    /// One record per day and arm, in full precision.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let column = |name: &str, cells| Column { name: name.to_owned(), cells };
        let points: Vec<(&DayView, &ArmView)> = self.points().collect();
        let labels = points.iter().map(|(_, arm)| arm.label.clone()).collect();
        let numbers = |of: fn(&ArmView) -> f64| {
            Cells::Numbers(points.iter().map(|(_, arm)| of(arm)).collect())
        };
        let mut columns = vec![
            column(
                "experiment_id",
                Cells::Text(vec![self.subject.experiment_id.clone(); points.len()]),
            ),
            column("estimand", Cells::Text(vec![self.subject.estimand.to_owned(); points.len()])),
            column("alpha", Cells::Numbers(vec![self.subject.alpha; points.len()])),
            column("day", Cells::Days(points.iter().map(|(day, _)| day.number).collect())),
            column("arm", Cells::Places(points.iter().map(|(_, arm)| arm.arm).collect())),
            column("label", Cells::Text(labels)),
            column("reports", Cells::Counts(points.iter().map(|(_, arm)| arm.reports).collect())),
            column(
                "estimate",
                Cells::Estimates(points.iter().map(|(_, arm)| arm.estimate).collect()),
            ),
            column("low", numbers(|arm| arm.low)),
            column("high", numbers(|arm| arm.high)),
        ];
        let symbols = points.iter().map(|(_, arm)| arm.symbols.len()).min().unwrap_or(0);
        for place in 0..symbols {
            let of = |part: fn(&SymbolView) -> f64| {
                Cells::Numbers(points.iter().map(|(_, arm)| part(&arm.symbols[place])).collect())
            };
            let shares = points.iter().map(|(_, arm)| arm.symbols[place].frequency).collect();
            columns.extend([
                column(&format!("frequency_{place}"), Cells::Estimates(shares)),
                column(&format!("frequency_{place}_low"), of(|symbol| symbol.low)),
                column(&format!("frequency_{place}_high"), of(|symbol| symbol.high)),
            ]);
        }
        columns
    }

    fn points(&self) -> impl Iterator<Item = (&DayView, &ArmView)> {
        self.days.iter().flat_map(|day| day.arms.iter().map(move |arm| (day, arm)))
    }
}

/// The arms that have reports by then.
fn known_arms(
    specification: &Specification,
    (sums, strata): (&[Tally], &Strata),
    alpha: ErrorLevel,
) -> Vec<ArmView> {
    let known = specification.arms().iter().zip(sums).zip(0..);
    let known = known.filter(|((_, tally), _)| tally.reports() > 0);
    let view = |((arm, tally), place): ((&Arm, &Tally), u32)| {
        let arm_and_tally = (place as usize, tally);
        let told = arm_mean(specification, (0, alpha), strata, arm_and_tally);
        ArmView {
            arm: place,
            label: arm.label().to_owned(),
            retired: arm.is_retired(),
            reports: tally.reports(),
            estimate: told.mean,
            low: told.interval.low(),
            high: told.interval.high(),
            symbols: told.symbols.into_iter().map(Into::into).collect(),
        }
    };
    known.map(view).collect()
}
