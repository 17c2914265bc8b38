//! Users until a verdict with even traffic, by the means and epsilon.

use bandana_shared::channel::Floor;
use bandana_shared::confidence::best_arm;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::private_mean_of;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::tally::Tally;
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Binomial, Distribution as _};
use serde::Serialize;

/// Arms with even traffic; the first one is the best.
#[derive(Clone, Copy, Debug)]
pub struct EvenTraffic {
    /// The mean rewards.
    pub means: &'static [f64],
    /// The privacy loss bound of one report, in nats.
    pub epsilon: f64,
    /// The median with bounds by the largest variance.
    pub before: u64,
}

/// The settings of the table.
pub const SETTINGS: [EvenTraffic; 6] = [
    EvenTraffic { means: &[0.55, 0.45, 0.45], epsilon: 1.0, before: 12_439 },
    EvenTraffic { means: &[0.12, 0.05, 0.05, 0.05], epsilon: 2.0, before: 14_870 },
    EvenTraffic { means: &[0.12, 0.10], epsilon: 3.0, before: 47_533 },
    EvenTraffic { means: &[0.06, 0.03], epsilon: 4.0, before: 17_777 },
    EvenTraffic { means: &[0.02, 0.012], epsilon: 5.0, before: 333_819 },
    EvenTraffic { means: &[0.0147, 0.0102], epsilon: 5.0, before: 1_163_594 },
];

/// The runs of a setting.
#[derive(Clone, Debug, Serialize)]
pub struct UsersRow {
    /// The mean rewards.
    pub means: Vec<f64>,
    /// The privacy loss bound of one report, in nats.
    pub epsilon: f64,
    /// The median of the users until a verdict with bounds by the largest variance.
    pub before: u64,
    /// The median now; none if fewer than half have one.
    pub median_users: Option<u64>,
    /// Number of runs.
    pub runs: usize,
    /// Number of wrong verdicts.
    pub wrong: usize,
}

/// The users until the verdict of a run, if there is one, and whether it is wrong.
pub type UsersRun = (Option<u64>, bool);

/// Users without a verdict after whom a run ends.
const USERS_MAX: u64 = 5_000_000;

/// Users until the verdict of a run, evaluated after every hundredth more, and whether it is wrong.
///
/// # Errors
/// When the setting is not valid.
pub fn users(setting: &EvenTraffic, seed: u64) -> anyhow::Result<UsersRun> {
    let floor = Floor::for_epsilon(Epsilon::new(setting.epsilon)?);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tallies = vec![Tally::EMPTY; setting.means.len()];
    let mut users = 0;
    while users < USERS_MAX {
        let more = 50.max(users / setting.means.len() as u64 / 100);
        for (tally, mean) in tallies.iter_mut().zip(setting.means) {
            let ones = Binomial::new(more, private_mean_of(floor, *mean))?.sample(&mut rng);
            *tally += Tally::new(more, ones)?;
        }
        users += more * setting.means.len() as u64;
        if let Some(best) = best_arm(&tallies, ErrorLevel::FIVE_PERCENT) {
            return Ok((Some(users), best != 0));
        }
    }
    Ok((None, false))
}

impl EvenTraffic {
    /// The row of these runs.
    pub(super) fn row(&self, runs: &mut [UsersRun]) -> UsersRow {
        runs.sort_by_key(|(users, _)| users.unwrap_or(u64::MAX));
        UsersRow {
            means: self.means.to_vec(),
            epsilon: self.epsilon,
            before: self.before,
            median_users: runs.get(runs.len() / 2).and_then(|(users, _)| *users),
            runs: runs.len(),
            wrong: runs.iter().filter(|(_, wrong)| *wrong).count(),
        }
    }
}
