//! Bandits that are written in Python.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use bandana_lab::{Bandit, Random as Generator};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::random::Random;

/// A bandit with Python's `means` and `draw`.
pub(crate) struct PythonBandit {
    class: String,
    means: Vec<f64>,
    draw: Py<PyAny>,
    failure: Arc<Failure>,
}

/// The name of the class and the means: trials that are kept are told by them, in other processes
/// too.
impl Debug for PythonBandit {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { class, means, .. } = self;
        formatter.debug_tuple("PythonBandit").field(class).field(means).finish()
    }
}

impl PythonBandit {
    /// Reads its means, once.
    pub(crate) fn new(bandit: &Bound<'_, PyAny>, failure: Arc<Failure>) -> PyResult<Self> {
        let means = bandit.getattr("means")?;
        let means: Vec<f64> =
            means.try_iter()?.map(|mean| mean?.extract()).collect::<PyResult<_>>()?;
        if means.is_empty() || !means.iter().all(|mean| (0.0..=1.0).contains(mean)) {
            return Err(PyValueError::new_err(format!(
                "the bandit's means are {means:?}; there must be some, all from 0 to 1"
            )));
        }
        let class = bandit.get_type().qualname()?.to_string();
        Ok(Self { class, means, draw: bandit.getattr("draw")?.unbind(), failure })
    }
}

impl Bandit for PythonBandit {
    fn means(&self) -> Vec<f64> {
        self.means.clone()
    }

    fn draw(&self, arm: usize, rng: &mut Generator) -> f64 {
        if self.failure.is_stopped() {
            return 0.0;
        }
        let drawn = Python::attach(|py| {
            Random::lend(py, rng, |lent| self.draw.bind(py).call1((arm, lent))?.extract::<f64>())
        });
        let checked = drawn.and_then(|reward| {
            if (0.0..=1.0).contains(&reward) {
                return Ok(reward);
            }
            Err(PyValueError::new_err(format!(
                "the bandit drew a reward of {reward} for arm {arm}; it must be from 0 to 1"
            )))
        });
        checked.unwrap_or_else(|exception| {
            self.failure.note(exception);
            0.0
        })
    }
}
