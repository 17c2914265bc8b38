//! The runner for Python: threads without the interpreter's lock, progress, and Ctrl-C.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, park_timeout};
use std::time::Duration;

use bandana_lab::{Bandit, Contestant, Course, FinishedTrial, KeptTrials, Study, StudyOutcome};
use bandana_shared::accounting::delta::Delta;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::bandit::PythonBandit;
use crate::channel::{Channel, Kind};
use crate::failure::{Failure, file_error, value_error};
use crate::instance::Instance;
use crate::learner::PythonContestant;
use crate::result::{LearnerResult, results};
use crate::standard::contestant;

/// Time between two looks at Python's signals.
const PATIENCE: Duration = Duration::from_millis(50);

/// The attributes of Python's `Study`.
#[derive(Debug, FromPyObject)]
pub(crate) struct Settings {
    instance: Arms,
    learners: Vec<Participant>,
    channel: Py<Channel>,
    horizon: u64,
    trials: usize,
    seed: u64,
    threads: usize,
    batch: u64,
    checkpoints: Option<Vec<u64>>,
    shuffle: Option<u32>,
    delta: f64,
    served: bool,
    by_batches: bool,
    dishonest: f64,
    attack: String,
}

/// An instance, or a bandit that is written in Python.
#[derive(Debug, FromPyObject)]
enum Arms {
    Instance(Py<Instance>),
    Own(Py<PyAny>),
}

/// The name of a learner, or one that is written in Python and what makes it.
#[derive(Debug, FromPyObject)]
enum Participant {
    Named(String),
    Own(String, Py<PyAny>),
}

impl Settings {
    fn check(&self) -> PyResult<()> {
        let wrong = |what: String| Err(PyValueError::new_err(what));
        let Self { horizon, trials, threads, batch, dishonest, .. } = self;
        for (name, number) in [("horizon", *horizon), ("batch", *batch)] {
            if number == 0 {
                return wrong(format!("a {name} of 0; it must be 1 or more"));
            }
        }
        for (name, number) in [("trials", *trials), ("threads", *threads)] {
            if number == 0 {
                return wrong(format!("no {name}; there must be 1 or more"));
            }
        }
        let size = self.shuffle.map_or(*batch, u64::from);
        if size == 0 || size > *horizon {
            return wrong(format!(
                "reports arrive {size} at a time, which {horizon} rounds never fill; give 1 to \
                 {horizon}"
            ));
        }
        if !(0.0..=1.0).contains(dishonest) {
            return wrong(format!("a dishonest share of {dishonest}; it must be from 0 to 1"));
        }
        if self.served && self.by_batches {
            return wrong(
                "both served and by_batches; learners by batches play by a server's policies anyway, so \
                 leave served out"
                    .to_owned(),
            );
        }
        if self.learners.is_empty() {
            return wrong("no learners; give the name of at least one".to_owned());
        }
        Ok(())
    }

    fn course(&self) -> PyResult<Course> {
        let checkpoints = match &self.checkpoints {
            None => Course::checkpoints_to(self.horizon),
            Some(given) => {
                let ascending = given.is_sorted_by(|a, b| a < b);
                let inside = given.first().is_some_and(|first| *first > 0);
                if !ascending || !inside || given.last() != Some(&self.horizon) {
                    return Err(PyValueError::new_err(format!(
                        "checkpoints must ascend from 1 or more to the horizon, {}",
                        self.horizon
                    )));
                }
                given.clone()
            }
        };
        Ok(Course {
            by_batches: self.by_batches,
            checkpoints,
            batch: usize::try_from(self.batch).map_err(value_error)?,
            shuffle: self.shuffle,
            dishonest: self.dishonest,
            attack: self.attack.parse().map_err(value_error)?,
        })
    }

    fn study(&self, py: Python<'_>, failure: &Arc<Failure>) -> PyResult<Study> {
        self.check()?;
        let Kind::Reports(privacy) = self.channel.get().kind else {
            return Err(PyValueError::new_err(
                "a study has a channel of devices; the learners nonprivate-* and ldp-ucb-laplace \
                 bring the others with them",
            ));
        };
        let (name, bandit): (String, Arc<dyn Bandit>) = match &self.instance {
            Arms::Instance(instance) => {
                let instance = instance.get();
                (instance.name.clone(), Arc::new(instance.arms.clone()))
            }
            Arms::Own(bandit) => {
                let bandit = PythonBandit::new(bandit.bind(py), Arc::clone(failure))?;
                ("bandit".to_owned(), Arc::new(bandit))
            }
        };
        let of = |one: &Participant| -> PyResult<Arc<dyn Contestant>> {
            Ok(match one {
                Participant::Named(name) => Arc::new(contestant(name)?),
                Participant::Own(name, make) => Arc::new(PythonContestant {
                    name: name.clone(),
                    make: make.clone_ref(py),
                    failure: Arc::clone(failure),
                }),
            })
        };
        let contestants = self.learners.iter().map(of).collect::<PyResult<Vec<_>>>()?;
        let jobs = contestants.len().saturating_mul(self.trials);
        Ok(Study {
            trials: self.trials,
            course: self.course()?,
            delta: Delta::new(self.delta).map_err(value_error)?,
            served: self.served,
            seed: self.seed,
            threads: self.threads.min(jobs),
            host,
            ..Study::new(name, bandit, privacy, contestants)
        })
    }
}

/// Makes the interpreter know a thread for as long as it has work, without holding its lock.
///
/// Python makes a state for each thread that comes unknown, which takes ten times as long as a call.
fn host(work: &mut (dyn FnMut() + Send)) {
    Python::attach(|py| py.detach(work));
}

/// Runs a study: the checkpoints, each learner's result, and whether it was ended early.
///
/// `progress` is called with the numbers of finished and of all trials; when it returns `False` the
/// study ends with the trials that are done. With a file, trials that it has are not run again, and
/// others are added to it as they are done. Trials before the first one are left to others.
#[pyfunction]
#[pyo3(signature = (study, progress=None, file=None, first=0))]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands it over")]
pub(crate) fn run_study(
    py: Python<'_>,
    study: Settings,
    progress: Option<Py<PyAny>>,
    file: Option<PathBuf>,
    first: usize,
) -> PyResult<(Vec<u64>, Vec<LearnerResult>, bool)> {
    let failure = Arc::new(Failure::default());
    let study = Study { first_trial: first, ..study.study(py, &failure)? };
    let total = study.trial_count();
    let told = Cell::new(0);
    let report = |done: usize| -> PyResult<()> {
        py.check_signals()?;
        let Some(progress) = &progress else { return Ok(()) };
        if told.replace(done) == done {
            return Ok(());
        }
        let answer = progress.bind(py).call1((done, total))?;
        if answer.extract::<bool>().is_ok_and(|goes_on| !goes_on) {
            failure.stop().store(true, Ordering::Relaxed);
        }
        Ok(())
    };
    let kept = file.map(|path| KeptTrials::open(&path)).transpose().map_err(file_error)?;
    let (outcome, trials) = run(py, &study, kept, &failure, report)?;
    let results = results(py, &outcome, &trials)?;
    Ok((study.course.checkpoints, results, outcome.interrupted))
}

/// Runs the study on other threads, and meanwhile reports on this one, the only one that hears
/// signals.
fn run(
    py: Python<'_>,
    study: &Study,
    mut kept: Option<KeptTrials>,
    failure: &Failure,
    report: impl Fn(usize) -> PyResult<()>,
) -> PyResult<(StudyOutcome, Vec<FinishedTrial>)> {
    let (count, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let caller = thread::current();
    let work = || {
        let before = kept.as_ref().map_or(Vec::new(), |file| file.trials().to_vec());
        let mut trials = study.trials_among(before);
        let outcome = study.resume(trials.clone(), failure.stop(), |one, done| {
            trials.push(one.clone());
            count.store(done, Ordering::Relaxed);
            kept.as_mut().map_or(Ok(()), |file| file.keep(one))
        });
        is_over.store(true, Ordering::Release);
        caller.unpark();
        (outcome, trials)
    };
    let finished = thread::scope(|scope| {
        let worker = scope.spawn(work);
        loop {
            let over = py.detach(|| {
                let is_over = || is_over.load(Ordering::Acquire) || worker.is_finished();
                if !is_over() {
                    park_timeout(PATIENCE);
                }
                is_over()
            });
            if let Err(exception) = report(count.load(Ordering::Relaxed)) {
                failure.note(exception);
            }
            if over {
                return py.detach(|| worker.join());
            }
        }
    });
    if let Some(exception) = failure.take() {
        return Err(exception);
    }
    let (outcome, trials) =
        finished.map_err(|_| PyRuntimeError::new_err("the runner panicked, which is a bug"))?;
    Ok((outcome.map_err(file_error)?, trials))
}
