//! The outcome of a study, as JSON and as a table.

use std::fmt::Write as _;

use serde::Serialize;

/// Half the width of a 95% interval, in standard errors.
const NORMAL_95: f64 = 1.959_964;

/// A study's result.
#[derive(Clone, Debug, Serialize)]
pub struct StudyOutcome {
    /// Name of the instance.
    pub instance: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of reports that arrive together.
    pub batch: usize,
    /// Number of reports of an arm that arrive together, if reports are shuffled.
    pub shuffle: Option<u32>,
    /// The δ of the central losses; none without shuffling.
    pub delta: Option<f64>,
    /// Whether arms were drawn from policies as a server would serve them.
    pub served: bool,
    /// Whether pulls and signals were drawn as counts, batch by batch.
    pub by_batches: bool,
    /// Share of dishonest people, 0 to 1.
    pub dishonest: f64,
    /// The attack of dishonest people; none without them.
    pub attack: Option<String>,
    /// Whether the study was interrupted before all trials were done.
    pub interrupted: bool,
    /// One row for each learner, channel and checkpoint.
    pub rows: Vec<Row>,
}

/// The regret of one learner after a number of rounds. Regrets are pseudo-regrets in the true mean
/// rewards.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the learner.
    pub learner: String,
    /// Name of the mechanism: `laplace` and `none` among them.
    pub mechanism: String,
    /// Privacy loss bound of one report, in nats; none without privacy.
    pub epsilon: Option<f64>,
    /// Loss of a report that is seen only shuffled, in nats, with the study's δ; none without
    /// shuffling, and for channels of more than a bit.
    pub central_epsilon: Option<f64>,
    /// Number of rounds.
    pub horizon: u64,
    /// Number of finished trials.
    pub trials: usize,
    /// Mean regret over the trials.
    pub mean_regret: f64,
    /// Half the width of the normal 95% interval of the mean.
    pub ci95: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The channel's asymptotic lower bound at this horizon, which a finite run may violate; none
    /// if there is no finite bound.
    pub lower_bound: Option<f64>,
    /// The proven bound for Thompson sampling, its main term without the constant, or for UCB1;
    /// none for other learners, and if there is no finite bound.
    pub upper_bound: Option<f64>,
    /// Mean regret divided by that of the study's first learner, with the same mechanism and
    /// epsilon if it has any; for levels, with the first mechanism and this epsilon.
    pub ratio: Option<f64>,
    /// The denominator of the ratio: a learner, its mechanism and its epsilon.
    pub ratio_to: String,
    /// Half the width of its 95% interval, over pairs of trials with one seed.
    pub ratio_ci95: Option<f64>,
    /// Rounds per second of processor time, on one thread.
    pub rounds_per_second: f64,
}

/// Statistics of one number over trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean.
    pub mean: f64,
    /// Half the width of its 95% interval; 0 for a single trial.
    pub ci95: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Summary {
    /// Summarises one or more numbers.
    pub fn of(numbers: &[f64]) -> Self {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (mean, ci95) = mean_with_ci95(numbers);
        let quantile = |share| quantile(&sorted, share);
        Self { mean, ci95, median: quantile(0.5), p95: quantile(0.95), p99: quantile(0.99) }
    }
}

fn mean_with_ci95(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    let variance = if numbers.len() > 1 { squares / (count - 1.0) } else { 0.0 };
    (mean, NORMAL_95 * (variance / count).sqrt())
}

/// The quantile of sorted numbers, interpolated.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place among the numbers"
)]
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let (below, part) = (place.floor() as usize, place.fract());
    let at = |place: usize| sorted.get(place).or(sorted.last()).copied().unwrap_or(0.0);
    at(below) + part * (at(below + 1) - at(below))
}

/// The ratio of two means over paired numbers, with half the width of its 95% interval, by the
/// delta method.
pub fn paired_ratio(numbers: &[f64], base: &[f64]) -> Option<(f64, f64)> {
    let pairs = numbers.len().min(base.len());
    let (numbers, base) = (&numbers[..pairs], &base[..pairs]);
    let sum: f64 = base.iter().sum();
    if pairs == 0 || sum <= 0.0 {
        return None;
    }
    let ratio = numbers.iter().sum::<f64>() / sum;
    let residuals: Vec<f64> = numbers.iter().zip(base).map(|(a, b)| a - ratio * b).collect();
    Some((ratio, mean_with_ci95(&residuals).1 / (sum / pairs as f64)))
}

impl StudyOutcome {
    /// The rows at the horizon, as a text table.
    pub fn table(&self) -> String {
        let mut table = format!(
            "{:>7}  {:<19}{:<18}{:>6}  {:>21}  {:>9}{:>9}{:>9}  {:>9}  {:>14}  {:>9}\n",
            "epsilon",
            "mechanism",
            "learner",
            "trials",
            "regret",
            "median",
            "95th",
            "99th",
            "bound",
            "ratio",
            "Mrounds/s"
        );
        let horizon = self.rows.iter().map(|row| row.horizon).max();
        for row in self.rows.iter().filter(|row| Some(row.horizon) == horizon) {
            let epsilon = row.epsilon.map_or("-".to_owned(), short);
            let bound = row.lower_bound.map_or("-".to_owned(), |bound| format!("{bound:.0}"));
            let ratio = match (row.ratio, row.ratio_ci95) {
                (Some(ratio), Some(half)) => format!("{ratio:.3} +- {half:.3}"),
                _ => "-".to_owned(),
            };
            let regret = format!("{:.1} +- {:.1}", row.mean_regret, row.ci95);
            // Writing to a string does not fail.
            writeln!(
                table,
                "{epsilon:>7}  {:<19}{:<18}{:>6}  {regret:>21}  {:>9.0}{:>9.0}{:>9.0}  {bound:>9}  {ratio:>14}  {:>9.2}",
                row.mechanism, row.learner, row.trials, row.median, row.p95, row.p99,
                row.rounds_per_second / 1e6
            )
            .ok();
        }
        self.describe_shuffling(&mut table);
        table
    }

    /// Adds what shuffling protects, for each epsilon of a report.
    fn describe_shuffling(&self, table: &mut String) {
        let (Some(reports), Some(delta)) = (self.shuffle, self.delta) else { return };
        let mut told = Vec::new();
        for row in &self.rows {
            let (Some(local), Some(central)) = (row.epsilon, row.central_epsilon) else { continue };
            if !told.contains(&local) {
                told.push(local);
                // Writing to a string does not fail.
                writeln!(
                    table,
                    "epsilon {} of a report, shuffled among {reports} of its arm: {} with a delta \
                     of {delta:e}",
                    short(local),
                    short(central)
                )
                .ok();
            }
        }
    }
}

/// A number with at most four digits after the point, or all of a small one.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    if number < 0.01 || text.parse() == Ok(number) { number.to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_agree_with_calculations_by_hand() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!((summary.mean, summary.median), (3.0, 3.0));
        assert!((summary.p95 - 4.8).abs() < 1e-12 && (summary.p99 - 4.96).abs() < 1e-12);
        // Variance 2.5, standard error sqrt(.5).
        assert!((summary.ci95 - 1.959_964 * 0.5_f64.sqrt()).abs() < 1e-12);
        assert!(Summary::of(&[7.0]).ci95.abs() < 1e-12);
    }

    #[test]
    fn a_ratio_of_proportional_numbers_is_certain() {
        let base = [1.0, 5.0, 2.0];
        let (ratio, half) = paired_ratio(&base.map(|number| 0.5 * number), &base).unwrap();
        assert!((ratio - 0.5).abs() < 1e-12 && half < 1e-12);
        // Only pairs are compared.
        assert!((paired_ratio(&[2.0], &[1.0, 100.0]).unwrap().0 - 2.0).abs() < 1e-12);
        assert_eq!(paired_ratio(&[1.0], &[0.0]), None);
    }
}
