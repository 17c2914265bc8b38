//! Bandit instances for Python.

use std::path::PathBuf;

use bandana_lab::instance::{RewardDistribution, SimulatedArm};
use bandana_lab::{Instance as Arms, generator};
use bandana_shared::limits::ARMS_MAX;
use numpy::{PyArray1, ToPyArray as _};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

use crate::failure::value_error;

/// A bandit problem with known answers: arms, and the distribution of each arm's rewards.
#[pyclass(frozen, module = "bandana_lab")]
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) arms: Arms,
}

#[pymethods]
impl Instance {
    /// The instance of this name, one of `Instance.names()`.
    #[staticmethod]
    fn named(name: &str) -> PyResult<Self> {
        if !Arms::NAMES.contains(&name) {
            let names = Arms::NAMES.join(", ");
            return Err(PyValueError::new_err(format!(
                "there is no instance {name:?}: {names}; from_csv reads a file"
            )));
        }
        Ok(Self { name: name.to_owned(), arms: Arms::named(name).map_err(value_error)? })
    }

    /// The names of the instances of the papers and of some more.
    #[staticmethod]
    fn names() -> Vec<&'static str> {
        Arms::NAMES.to_vec()
    }

    /// Reads a CSV file with the columns `arm` (from 0), `label`, `reward` (0 to 1) and `count`.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands it over")]
    fn from_csv(path: PathBuf) -> PyResult<Self> {
        let arms = Arms::from_csv(&path).map_err(value_error)?;
        Ok(Self { name: path.display().to_string(), arms })
    }

    /// Arms whose rewards are 1 with these probabilities and otherwise 0.
    #[staticmethod]
    #[pyo3(signature = (means, labels=None))]
    fn bernoulli(means: Vec<f64>, labels: Option<Vec<String>>) -> PyResult<Self> {
        if means.is_empty() || means.len() > ARMS_MAX {
            return Err(PyValueError::new_err(format!(
                "{} arms; an instance has 1 to {ARMS_MAX}",
                means.len()
            )));
        }
        if let Some(mean) = means.iter().find(|mean| !(0.0..=1.0).contains(*mean)) {
            return Err(PyValueError::new_err(format!("a mean of {mean}; it must be from 0 to 1")));
        }
        let labels =
            labels.unwrap_or_else(|| (0..means.len()).map(|arm| format!("arm {arm}")).collect());
        if labels.len() != means.len() {
            return Err(PyValueError::new_err(format!(
                "{} labels for {} arms; give one for each",
                labels.len(),
                means.len()
            )));
        }
        let arm =
            |(mean, label)| SimulatedArm { label, rewards: RewardDistribution::Bernoulli(mean) };
        let arms = means.into_iter().zip(labels).map(arm).collect();
        Ok(Self { name: "bernoulli".to_owned(), arms: Arms { arms } })
    }

    /// The name, or the path of the file.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The mean reward of each arm.
    #[getter]
    fn means<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.arms.means().to_pyarray(py)
    }

    /// The label of each arm.
    #[getter]
    fn labels(&self) -> Vec<&str> {
        self.arms.arms.iter().map(|arm| &*arm.label).collect()
    }

    /// Draws this many rewards of an arm.
    #[pyo3(signature = (arm, count, seed=1))]
    fn draw<'py>(
        &self,
        py: Python<'py>,
        arm: usize,
        count: usize,
        seed: u64,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let Some(one) = self.arms.arms.get(arm) else {
            let arms = self.arms.arms.len();
            return Err(PyIndexError::new_err(format!("there is no arm {arm}: {arms}, from 0")));
        };
        let mut rng = generator(seed, arm as u64);
        let rewards: Vec<f64> = (0..count).map(|_| one.rewards.draw(&mut rng)).collect();
        Ok(rewards.to_pyarray(py))
    }

    /// What pickle writes: how to make the same instance elsewhere.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String, String))> {
        let Self { name, arms } = slf.get();
        let arms = serde_json::to_string(arms).map_err(value_error)?;
        Ok((slf.get_type().getattr("_of")?, (name.clone(), arms)))
    }

    #[staticmethod]
    fn _of(name: String, arms: &str) -> PyResult<Self> {
        let arms: Arms = serde_json::from_str(arms).map_err(value_error)?;
        Ok(Self { name, arms })
    }

    fn __len__(&self) -> usize {
        self.arms.arms.len()
    }

    fn __repr__(&self) -> String {
        format!("<Instance {:?} with {} arms>", self.name, self.arms.arms.len())
    }
}
