//! Learners that are written in Python, as contestants of a study.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use bandana_lab::{Contestant, Learner, Random as Generator, Setting as LabSetting};
use bandana_shared::limits::ARMS_MAX;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::channel::Channel;
use crate::failure::Failure;
use crate::random::Random;

/// What is known before the first round of a trial.
#[pyclass(frozen, get_all, module = "bandana_lab")]
#[derive(Debug)]
pub(crate) struct Setting {
    /// Number of arms.
    pub(crate) arms: usize,
    /// The channel of the signals.
    pub(crate) channel: Py<Channel>,
    /// Number of reports that arrive together.
    pub(crate) batch: usize,
    /// Whether a batch is of one arm, whose reports come only once it is full, as shuffled ones do.
    pub(crate) fills_batches: bool,
}

#[pymethods]
impl Setting {
    #[new]
    #[pyo3(signature = (arms, channel, batch=1, *, fills_batches=false))]
    fn new(arms: usize, channel: Py<Channel>, batch: usize, fills_batches: bool) -> PyResult<Self> {
        if arms == 0 || arms > ARMS_MAX || batch == 0 {
            return Err(PyValueError::new_err(format!(
                "{arms} arms and a batch of {batch}; there must be 1 to {ARMS_MAX} arms, and a batch \
                 of 1 or more"
            )));
        }
        Ok(Self { arms, channel, batch, fills_batches })
    }
}

/// A participant whose learners Python makes, one for each trial.
pub(crate) struct PythonContestant {
    pub(crate) name: String,
    pub(crate) make: Py<PyAny>,
    pub(crate) failure: Arc<Failure>,
}

/// The name alone: trials that are kept are told by it, in other processes too.
impl Debug for PythonContestant {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PythonContestant").field(&self.name).finish()
    }
}

impl PythonContestant {
    fn make(&self, py: Python<'_>, setting: &LabSetting) -> PyResult<PythonLearner> {
        let channel = Py::new(py, Channel::of(setting.privacy))?;
        let LabSetting { arms, batch, fills_batches, .. } = *setting;
        let setting = Setting { arms, channel, batch, fills_batches };
        let learner = self.make.bind(py).call1((setting,))?;
        Ok(PythonLearner {
            name: self.name.clone(),
            arms,
            choose: learner.getattr("choose")?.unbind(),
            learn: learner.getattr("learn")?.unbind(),
            end_batch: learner.getattr_opt("end_batch")?.map(Bound::unbind),
            failure: Arc::clone(&self.failure),
        })
    }
}

impl Contestant for PythonContestant {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn learner(&self, setting: &LabSetting) -> anyhow::Result<Box<dyn Learner>> {
        match Python::attach(|py| self.make(py, setting)) {
            Ok(learner) => Ok(Box::new(learner)),
            Err(exception) => Err(failed(&self.name, &self.failure, exception)),
        }
    }
}

/// A learner that is written in Python, during a trial.
#[derive(Debug)]
struct PythonLearner {
    name: String,
    arms: usize,
    choose: Py<PyAny>,
    learn: Py<PyAny>,
    end_batch: Option<Py<PyAny>>,
    failure: Arc<Failure>,
}

impl PythonLearner {
    fn checked(&self, arm: i64) -> PyResult<usize> {
        usize::try_from(arm).ok().filter(|arm| *arm < self.arms).ok_or_else(|| {
            PyValueError::new_err(format!(
                "the learner {:?} chose arm {arm}; there are {}, from 0",
                self.name, self.arms
            ))
        })
    }

    fn call(&self, call: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>) -> anyhow::Result<()> {
        let told = Python::attach(|py| call(py).map(drop));
        told.map_err(|exception| failed(&self.name, &self.failure, exception))
    }
}

/// Notes an exception; the study then raises it in place of this error.
fn failed(name: &str, failure: &Failure, exception: PyErr) -> anyhow::Error {
    failure.note(exception);
    anyhow::anyhow!("the learner {name:?} raised an exception")
}

impl Learner for PythonLearner {
    /// Once a study is to end, the first arm: the runner looks at its flag only now and then.
    fn choose(&mut self, rng: &mut Generator) -> usize {
        if self.failure.is_stopped() {
            return 0;
        }
        let chosen = Python::attach(|py| {
            Random::lend(py, rng, |lent| self.choose.bind(py).call1((lent,))?.extract())
        });
        chosen.and_then(|arm| self.checked(arm)).unwrap_or_else(|exception| {
            self.failure.note(exception);
            0
        })
    }

    fn learn(&mut self, arm: usize, signal: f64) -> anyhow::Result<()> {
        if self.failure.is_stopped() {
            return Ok(());
        }
        self.call(|py| self.learn.call1(py, (arm, signal)))
    }

    fn end_batch(&mut self) -> anyhow::Result<()> {
        match &self.end_batch {
            Some(end_batch) if !self.failure.is_stopped() => self.call(|py| end_batch.call0(py)),
            _ => Ok(()),
        }
    }
}
