//! Trials that are kept in a file, so that a study can be resumed.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, ensure};

use crate::outcome::StudyOutcome;
use crate::study::{FinishedTrial, Study};

/// What every line of a file with finished trials begins with.
const BEGIN: &str = "{\"learner\":\"";

/// A file with finished trials, a line of JSON for each.
///
/// ```
/// # use std::sync::{Arc, atomic::AtomicBool};
/// # use bandana_lab::{Course, Instance, KeptTrials, Privacy, StandardLearner, Study};
/// # use bandana_shared::{curve::Mechanism, epsilon::Epsilon};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("trials.jsonl");
/// let privacy = Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(1.0)? };
/// let arms = Arc::new(Instance::named("five-arms")?);
/// let study = Study {
///     trials: 3,
///     course: Course::to(1_000),
///     ..Study::new("five-arms", arms, privacy, vec![Arc::new(StandardLearner::LdpTs)])
/// };
/// let outcome = KeptTrials::open(&path)?.run(&study, &AtomicBool::new(false), &|_| {})?;
/// // The file has all trials, so none is run again.
/// let run_again = |_| unreachable!();
/// let same = KeptTrials::open(&path)?.run(&study, &AtomicBool::new(false), &run_again)?;
/// assert_eq!(format!("{:?}", same.rows), format!("{:?}", outcome.rows));
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Debug)]
pub struct KeptTrials {
    trials: Vec<FinishedTrial>,
    file: File,
}

impl KeptTrials {
    /// Opens a file, or makes it. An incomplete last line, which an interrupted write leaves, is
    /// cut off.
    ///
    /// # Errors
    /// When the file can't be read or written, and when a line is not a trial.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let told = || format!("the trials in {}", path.display());
        let file = OpenOptions::new().append(true).create(true).open(path).with_context(told)?;
        let text = std::fs::read_to_string(path).with_context(told)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let line = |(line, number): (&str, usize)| {
            serde_json::from_str(line).with_context(|| {
                format!("{}, line {number}: this is not a trial of a study", told())
            })
        };
        let trials = text[..whole].lines().zip(1..).map(line).collect::<anyhow::Result<_>>()?;
        let rest = &text[whole..];
        ensure!(
            rest.starts_with(BEGIN) || BEGIN.starts_with(rest),
            "{}: the last line is not a trial of a study",
            told()
        );
        file.set_len(whole as u64).with_context(told)?;
        Ok(Self { trials, file })
    }

    /// The trials that the file had when it was opened, including those of other studies.
    pub fn trials(&self) -> &[FinishedTrial] {
        &self.trials
    }

    /// Adds a trial to the file.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep(&mut self, trial: &FinishedTrial) -> anyhow::Result<()> {
        let line = serde_json::to_string(trial)? + "\n";
        self.file.write_all(line.as_bytes()).context("keeping a trial")
    }

    /// Runs the trials of a study that are not kept yet, and keeps them. `progress` is called with
    /// the number of those that are done.
    ///
    /// # Errors
    /// As [`Study::resume`]; when a trial can't be written.
    pub fn run(
        mut self,
        study: &Study,
        stop: &AtomicBool,
        progress: &(dyn Fn(usize) + Sync),
    ) -> anyhow::Result<StudyOutcome> {
        let kept = std::mem::take(&mut self.trials);
        study.resume(kept, stop, |trial, done| {
            self.keep(trial)?;
            progress(done);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex};

    use bandana_shared::curve::{Curvature, Mechanism};
    use bandana_shared::epsilon::Epsilon;

    use super::*;
    use crate::instance::Instance;
    use crate::learner::{Contestant, Privacy};
    use crate::standard::StandardLearner;
    use crate::trial::Course;

    /// LDP-TS and IMED on the 20 arms of the papers, for 1,000 rounds.
    fn study(trials: usize) -> Study {
        let privacy = Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(2.0).unwrap() };
        let learner = |one: StandardLearner| Arc::new(one) as Arc<dyn Contestant>;
        let learners = vec![learner(StandardLearner::LdpTs), learner(StandardLearner::Imed)];
        Study {
            trials,
            course: Course::to(1000),
            ..Study::new("paper-20", Arc::new(Instance::paper_20()), privacy, learners)
        }
    }

    #[test]
    fn a_study_that_was_interrupted_goes_on_with_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trials.jsonl");
        // The outcome, and what progress was told.
        let run = |study: &Study, stop_after: usize| {
            let (stop, told) = (AtomicBool::new(false), Mutex::new(Vec::new()));
            let kept = KeptTrials::open(&path).unwrap();
            let outcome = kept.run(study, &stop, &|done| {
                told.lock().unwrap().push(done);
                stop.store(done == stop_after, Ordering::Relaxed);
            });
            (outcome.unwrap(), told.into_inner().unwrap())
        };
        let (part, told) = run(&study(4), 3);
        assert!(part.interrupted && told == [1, 2, 3], "{told:?}");
        // As a kill in the middle of a write leaves it.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"learner\":\"ldp-ts").unwrap();
        let (whole, told) = run(&study(4), usize::MAX);
        assert_eq!(told, [4, 5, 6, 7, 8]);
        let regrets = |outcome: &StudyOutcome| -> Vec<f64> {
            outcome.rows.iter().map(|row| row.mean_regret).collect()
        };
        let at_once = study(4).run(&AtomicBool::new(false), |_| {}).unwrap();
        assert_eq!(regrets(&whole), regrets(&at_once));

        // Trials under other conditions are not taken for these, also where names are the same.
        let bent = |curvature| vec![Mechanism::Quadratic(Curvature::new(curvature).unwrap())];
        let mut arms = Instance::paper_20();
        arms.arms.swap(0, 1);
        for other in [
            Study { course: Course::to(2000), ..study(1) },
            Study { bandit: Arc::new(arms), ..study(1) },
            Study { seed: 2, ..study(1) },
            Study { mechanisms: bent(0.5), ..study(1) },
            Study { mechanisms: bent(0.25), ..study(1) },
        ] {
            assert_eq!(run(&other, usize::MAX).1, [1, 2], "{other:?}");
            assert!(run(&other, usize::MAX).1.is_empty(), "{other:?}");
        }
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        for (text, complaint) in [
            ("no trial\nand no end", "line 1: this is not a trial"),
            ("no end", "the last line is not a trial"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", KeptTrials::open(&path).unwrap_err());
            assert!(error.contains(complaint), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_trial_that_cannot_be_kept_ends_the_study() {
        let mut calls = 0;
        let study = Study { threads: 2, ..study(4) };
        let outcome = study.resume(Vec::new(), &AtomicBool::new(false), |_, _| {
            calls += 1;
            anyhow::bail!("no space left")
        });
        assert_eq!((outcome.unwrap_err().to_string(), calls), ("no space left".to_owned(), 1));
    }
}
