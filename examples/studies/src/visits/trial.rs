//! One trial: users come back in a random order, and the policy follows their reports.

use std::sync::atomic::{AtomicBool, Ordering};

use bandana_lab::instance::Instance;
use bandana_lab::{Contestant, Privacy, Setting};
use bandana_shared::channel::Floor;
use bandana_shared::curve::{Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

use super::Assignment;

/// The settings of a trial.
pub(super) struct Course<'i> {
    pub(super) instance: &'i Instance,
    pub(super) learner: &'i dyn Contestant,
    pub(super) epsilon: Epsilon,
    pub(super) assignment: Assignment,
    pub(super) users: usize,
    pub(super) visits: usize,
    pub(super) batch: usize,
}

/// The end of a trial.
pub(super) struct Ended {
    /// Pseudo-regret in the true means, over all visits.
    pub(super) regret: f64,
    /// That of the last quarter of the visits.
    pub(super) late_regret: f64,
    /// Visits at which a user saw another arm than at the visit before.
    pub(super) changes: u64,
    pub(super) reports: u64,
}

/// A user so far.
#[derive(Clone, Copy, Default)]
struct User {
    arm: Option<usize>,
    has_reported: bool,
}

/// Runs a trial. `None`: it was stopped.
pub(super) fn run(
    course: &Course<'_>,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Ended>> {
    let mut order: Vec<usize> =
        (0..course.users).flat_map(|user| std::iter::repeat_n(user, course.visits)).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    order.shuffle(&mut rng);
    let arms = &course.instance.arms;
    let means = course.instance.means();
    let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let curve = Curve::new(Mechanism::Linear, course.epsilon);
    let floor = Floor::for_epsilon(course.epsilon);
    // The learner is not told how many choices its weights are for.
    let mut learner = course.learner.batch_learner(&Setting {
        arms: arms.len(),
        privacy: Privacy { mechanism: Mechanism::Linear, epsilon: course.epsilon },
        batch: 0,
        fills_batches: false,
    })?;
    let mut users = vec![User::default(); course.users];
    let mut ended = Ended { regret: 0.0, late_regret: 0.0, changes: 0, reports: 0 };
    let mut visits = 0;
    for batch in order.chunks(course.batch.max(1)) {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut counts = vec![vec![0; 2]; arms.len()];
        let weights = learner.weights();
        for &number in batch {
            let user = &mut users[number];
            let keeps = |arm: &usize| {
                course.assignment.sticky().is_some_and(|sticky| sticky.keeps(weights.get(*arm)))
            };
            let arm = match user.arm.filter(keeps) {
                Some(kept) => kept,
                None => weights.draw(rng.next_u32()).get(),
            };
            ended.changes += u64::from(user.arm.is_some_and(|before| before != arm));
            user.arm = Some(arm);
            let regret = best - means[arm];
            ended.regret += regret;
            if 4 * visits >= 3 * order.len() {
                ended.late_regret += regret;
            }
            visits += 1;
            if course.assignment == Assignment::Redrawn || !user.has_reported {
                user.has_reported = true;
                ended.reports += 1;
                let level = Level::from_unit(arms[arm].rewards.draw(&mut rng))?;
                let bit = floor.threshold(curve.apply(level)).bit(rng.random(), rng.random());
                counts[arm][usize::from(bit)] += 1;
            }
        }
        learner.learn(&counts, 0)?;
    }
    Ok(Some(ended))
}
