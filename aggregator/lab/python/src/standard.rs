//! The learners that come with the laboratory, for studies and for loops of Python's own.

use std::sync::{Mutex, PoisonError};

use bandana_lab::{
    Contestant as _, Learner, Privacy, Random as Generator, Setting as LabSetting,
    StandardLearner as Contestant, generator,
};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::channel::{Channel, Kind};
use crate::failure::value_error;
use crate::learner::Setting;
use crate::random::Random;

/// Purpose of the generator of choices, as in a trial.
const CHOICES: u64 = u64::MAX;

/// The names of the learners that come with the laboratory.
#[pyfunction]
pub(crate) fn learners() -> Vec<String> {
    Contestant::all().map(|one| one.name()).collect()
}

/// The learner of this name.
pub(crate) fn contestant(name: &str) -> PyResult<Contestant> {
    name.parse().map_err(|_| {
        let names = learners().join(", ");
        PyValueError::new_err(format!("there is no learner {name:?}: {names}"))
    })
}

/// The privacy of a channel that this learner hears.
fn privacy(learner: Contestant, channel: &Channel) -> PyResult<Privacy> {
    let linear = |epsilon| Privacy { mechanism: Mechanism::Linear, epsilon };
    match (learner.own_channel(), channel.kind) {
        (None, Kind::Reports(privacy)) => Ok(privacy),
        (Some("laplace"), Kind::Laplace(epsilon)) => Ok(linear(epsilon)),
        // It looks at no epsilon.
        (Some("none"), Kind::Open) => Ok(linear(Epsilon::new(Epsilon::MAX).map_err(value_error)?)),
        (own, _) => Err(PyValueError::new_err(format!(
            "the learner {:?} does not hear the channel {:?}, but {}",
            learner.name(),
            channel.name,
            own.unwrap_or("those of devices")
        ))),
    }
}

/// A learner that comes with the laboratory, for a loop of one's own or for a learner around it.
///
/// `choose` takes its randomness from `rng`, which a study lends to learners; without it from a
/// generator of the learner's own with the seed.
#[pyclass(frozen, module = "bandana_lab")]
pub(crate) struct StandardLearner {
    name: String,
    arms: usize,
    state: Mutex<(Box<dyn Learner>, Generator)>,
}

impl std::fmt::Debug for StandardLearner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StandardLearner").field("name", &self.name).finish_non_exhaustive()
    }
}

impl StandardLearner {
    fn with<R>(&self, of: impl FnOnce(&mut dyn Learner, &mut Generator) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (learner, rng) = &mut *state;
        of(&mut **learner, rng)
    }
}

#[pymethods]
impl StandardLearner {
    #[new]
    #[pyo3(signature = (name, setting, seed=1))]
    fn new(name: &str, setting: &Setting, seed: u64) -> PyResult<Self> {
        let contestant = contestant(name)?;
        let Setting { arms, batch, fills_batches, .. } = *setting;
        let privacy = privacy(contestant, setting.channel.get())?;
        let setting = LabSetting { arms, privacy, batch, fills_batches };
        let learner = contestant.learner(&setting).map_err(value_error)?;
        let state = Mutex::new((learner, generator(seed, CHOICES)));
        Ok(Self { name: name.to_owned(), arms, state })
    }

    /// The name of the learner.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Chooses an arm, from 0; its report is pending.
    #[pyo3(signature = (rng=None))]
    fn choose(&self, rng: Option<&Random>) -> PyResult<usize> {
        match rng {
            Some(lent) => lent.draw(|rng| self.with(|learner, _| learner.choose(rng))),
            None => Ok(self.with(|learner, rng| learner.choose(rng))),
        }
    }

    /// Hears the signal of a report.
    fn learn(&self, arm: usize, signal: f64) -> PyResult<()> {
        if arm >= self.arms || !signal.is_finite() {
            return Err(PyValueError::new_err(format!(
                "a signal of {signal} for arm {arm}; there are {} arms, from 0, and finite signals",
                self.arms
            )));
        }
        self.with(|learner, _| learner.learn(arm, signal)).map_err(value_error)
    }

    /// Ends a batch: all its reports have arrived.
    fn end_batch(&self) -> PyResult<()> {
        self.with(|learner, _| learner.end_batch()).map_err(value_error)
    }

    fn __repr__(&self) -> String {
        format!("<StandardLearner {:?} of {} arms>", self.name, self.arms)
    }
}
