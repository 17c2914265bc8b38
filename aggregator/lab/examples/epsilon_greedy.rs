//! A learner of one's own in a study: `cargo run --release -p bandana-lab --example epsilon_greedy`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bandana_lab::{
    Contestant, Course, Instance, Learner, Privacy, Random, Setting, StandardLearner, Study,
    StudyOutcome,
};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use rand::RngExt as _;

/// Plays a random arm in a tenth of the rounds, and otherwise the one with the best mean so far.
#[derive(Debug)]
struct EpsilonGreedy {
    /// The sum and the number of each arm's signals.
    arms: Vec<(f64, f64)>,
}

impl Learner for EpsilonGreedy {
    fn choose(&mut self, rng: &mut Random) -> usize {
        if rng.random_bool(0.1) {
            return rng.random_range(0..self.arms.len());
        }
        // An arm without signals is taken for one of a mean of 1, and so tried first.
        let mean = |arm: usize| (self.arms[arm].0 + 1.0) / (self.arms[arm].1 + 1.0);
        (0..self.arms.len()).max_by(|a, b| mean(*a).total_cmp(&mean(*b))).unwrap_or(0)
    }

    fn learn(&mut self, arm: usize, signal: f64) -> anyhow::Result<()> {
        self.arms[arm].0 += signal;
        self.arms[arm].1 += 1.0;
        Ok(())
    }
}

/// Makes one for each trial.
#[derive(Debug)]
struct Greedy;

impl Contestant for Greedy {
    fn name(&self) -> String {
        "epsilon-greedy".to_owned()
    }

    fn learner(&self, setting: &Setting) -> anyhow::Result<Box<dyn Learner>> {
        Ok(Box::new(EpsilonGreedy { arms: vec![(0.0, 0.0); setting.arms] }))
    }
}

/// LDP-TS and the learner above on the 20 arms of the papers, at an epsilon of 2.
fn study(horizon: u64, trials: usize) -> anyhow::Result<StudyOutcome> {
    let privacy = Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(2.0)? };
    let learners: Vec<Arc<dyn Contestant>> =
        vec![Arc::new(StandardLearner::LdpTs), Arc::new(Greedy)];
    let instance = Arc::new(Instance::paper_20());
    let study = Study {
        trials,
        threads: 2,
        course: Course::to(horizon),
        ..Study::new("paper-20", instance, privacy, learners)
    };
    study.run(&AtomicBool::new(false), |_| {})
}

#[expect(clippy::print_stdout, reason = "a program")]
fn main() -> anyhow::Result<()> {
    print!("{}", study(100_000, 20)?.table());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_learns_and_thompson_sampling_learns_more() {
        let outcome = super::study(20_000, 4).unwrap();
        let last: Vec<_> = outcome.rows.iter().filter(|row| row.horizon == 20_000).collect();
        assert_eq!(last[1].learner, "epsilon-greedy");
        // Uniform play loses .23 in each round, 4,600 here.
        let [ldp_ts, greedy] = [last[0].mean_regret, last[1].mean_regret];
        assert!(ldp_ts < greedy && greedy < 3_500.0, "{ldp_ts} {greedy}");
    }
}
