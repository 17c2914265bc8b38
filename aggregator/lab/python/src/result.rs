//! The result of a learner, as arrays.

use bandana_lab::{FinishedTrial, Row, StudyOutcome};
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;

use crate::failure::value_error;

/// Numbers, one for each checkpoint.
type AtCheckpoints = Py<PyArray1<f64>>;

/// The result of one learner of a study. Regrets are pseudo-regrets in the true mean rewards.
#[pyclass(frozen, get_all, module = "bandana_lab")]
#[derive(Debug)]
pub(crate) struct LearnerResult {
    /// Name of the learner.
    learner: String,
    /// Name of the mechanism: `laplace` and `none` among them.
    mechanism: String,
    /// Privacy loss bound of one report; `None` without privacy.
    epsilon: Option<f64>,
    /// Loss of a report that is seen only shuffled; `None` without shuffling, and for channels of more
    /// than a bit.
    central_epsilon: Option<f64>,
    /// Numbers of the finished trials, ascending.
    trials: Py<PyArray1<u64>>,
    /// Regret of each trial at each checkpoint.
    regret: Py<PyArray2<f64>>,
    /// Mean regret over the trials, at each checkpoint.
    mean: AtCheckpoints,
    /// Half the width of the normal 95% interval of the mean.
    ci95: AtCheckpoints,
    /// Median.
    median: AtCheckpoints,
    /// 95th percentile.
    p95: AtCheckpoints,
    /// 99th percentile.
    p99: AtCheckpoints,
    /// The channel's asymptotic lower bound, which a finite run may violate; `None` if there is none.
    lower_bound: Option<AtCheckpoints>,
    /// The proven bound of the learner; `None` if there is none.
    upper_bound: Option<AtCheckpoints>,
    /// Rounds per second of processor time, on one thread.
    rounds_per_second: f64,
}

#[pymethods]
impl LearnerResult {
    fn __repr__(&self) -> String {
        format!("<LearnerResult of {:?}>", self.learner)
    }
}

/// The results of a study's learners that have a finished trial.
pub(crate) fn results(
    py: Python<'_>,
    outcome: &StudyOutcome,
    trials: &[FinishedTrial],
) -> PyResult<Vec<LearnerResult>> {
    let of = |rows: &[Row]| of_learner(py, rows, trials);
    outcome.rows.chunk_by(|a, b| a.learner == b.learner).map(of).collect()
}

/// `rows` are those of one learner, one for each checkpoint.
fn of_learner(py: Python<'_>, rows: &[Row], trials: &[FinishedTrial]) -> PyResult<LearnerResult> {
    let first =
        rows.first().ok_or_else(|| value_error(anyhow::anyhow!("a learner without rows")))?;
    let mut mine: Vec<_> = trials.iter().filter(|one| one.learner == first.learner).collect();
    mine.sort_by_key(|one| one.trial);
    let numbers = mine.iter().map(|one| one.trial as u64).collect();
    let regrets: Vec<Vec<f64>> = mine.iter().map(|one| one.regrets.clone()).collect();
    let array = |numbers: Vec<f64>| PyArray1::from_vec(py, numbers).unbind();
    let column = |of: fn(&Row) -> f64| array(rows.iter().map(of).collect());
    let bound = |of: fn(&Row) -> Option<f64>| rows.iter().map(of).collect::<Option<_>>().map(array);
    Ok(LearnerResult {
        learner: first.learner.clone(),
        mechanism: first.mechanism.clone(),
        epsilon: first.epsilon,
        central_epsilon: first.central_epsilon,
        trials: PyArray1::from_vec(py, numbers).unbind(),
        regret: PyArray2::from_vec2(py, &regrets).map_err(value_error)?.unbind(),
        mean: column(|row| row.mean_regret),
        ci95: column(|row| row.ci95),
        median: column(|row| row.median),
        p95: column(|row| row.p95),
        p99: column(|row| row.p99),
        lower_bound: bound(|row| row.lower_bound),
        upper_bound: bound(|row| row.upper_bound),
        rounds_per_second: first.rounds_per_second,
    })
}
