//! One trial: users of random segments choose and report, and policies follow their reports.

use std::sync::atomic::{AtomicBool, Ordering};

use bandana_lab::{BatchLearner, Privacy, Setting};
use bandana_learners::{Evidence, features, reports_until_policy, segments};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::channel::Floor;
use bandana_shared::curve::{Curve, Level, Mechanism};
use bandana_shared::tally::Tally;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

use super::{Pooling, SegmentedArms, SegmentsStudy};

/// Runs a trial, and returns its pseudo-regret. `None`: it was stopped.
pub(super) fn run(
    study: &SegmentsStudy,
    (arms, pooling): (&SegmentedArms, Pooling),
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<f64>> {
    let floor = Floor::for_epsilon(study.epsilon);
    let curve = Curve::new(Mechanism::Linear, study.epsilon);
    let bits = [Level::ZERO, Level::ONE].map(|level| floor.threshold(curve.apply(level)));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = arms.means.first().map_or(0, Vec::len);
    let mut tallies = vec![vec![Tally::EMPTY; count]; arms.means.len()];
    let best = |means: &Vec<f64>| means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let best: Vec<f64> = arms.means.iter().map(best).collect();
    let mut learners = learners(study, pooling, (arms.means.len(), count))?;
    let (mut users, mut regret) = (0, 0.0);
    while users < study.users {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let due = usize::try_from(reports_until_policy(users as u64))?;
        if users > 0 {
            teach(&mut learners, pooling, &tallies)?;
        }
        for _ in 0..due.min(study.users - users) {
            let segment = rng.random_range(0..arms.means.len());
            let arm = learners[segment % learners.len()].weights().draw(rng.next_u32()).get();
            let mean = arms.means[segment][arm];
            regret += best[segment] - mean;
            let threshold = bits[usize::from(rng.random_bool(mean))];
            tallies[segment][arm] += Tally::of_bit(threshold.bit(rng.random(), rng.random()));
            users += 1;
        }
    }
    Ok(Some(regret))
}

/// A learner for each segment, or one for all of them.
fn learners(
    study: &SegmentsStudy,
    pooling: Pooling,
    (segments, arms): (usize, usize),
) -> anyhow::Result<Vec<Box<dyn BatchLearner>>> {
    // They are not told how many choices their weights are for.
    let setting = Setting {
        arms,
        privacy: Privacy { mechanism: Mechanism::Linear, epsilon: study.epsilon },
        batch: 0,
        fills_batches: false,
    };
    let count = if pooling == Pooling::Everything { 1 } else { segments };
    (0..count).map(|_| study.learner.batch_learner(&setting)).collect()
}

/// Replaces what each learner knows by the reports of its segment, and what others tell.
fn teach(
    learners: &mut [Box<dyn BatchLearner>],
    pooling: Pooling,
    tallies: &[Vec<Tally>],
) -> anyhow::Result<()> {
    let evidence = |own: &Vec<Tally>| -> Vec<Evidence> {
        own.iter().map(|tally| Evidence::of(tally, Alphabet::BITS)).collect()
    };
    let mut all: Vec<Vec<Evidence>> = tallies.iter().map(evidence).collect();
    match pooling {
        Pooling::Nothing => {}
        Pooling::Shrinkage => segments::shrink(&mut all),
        Pooling::Features => {
            let features = all.len().trailing_zeros() as usize;
            features::shrink(&mut all, &vec![2; features]);
        }
        Pooling::Everything => {
            let sum = |arm: usize| tallies.iter().map(|own| own[arm]).sum::<Tally>();
            let arms = tallies.first().map_or(0, Vec::len);
            all = vec![evidence(&(0..arms).map(sum).collect())];
        }
    }
    learners.iter_mut().zip(all).try_for_each(|(learner, own)| learner.replace(own, 0))
}
