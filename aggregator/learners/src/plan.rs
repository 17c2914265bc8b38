//! Plans: the number of users that an experiment needs.

use bandana_shared::accounting::shuffling::REPORTS_MAX;
use bandana_shared::channel::Floor;
use bandana_shared::confidence::best_active_arm;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::limits::ARMS_MAX;
use bandana_shared::tally::Tally;
use thiserror::Error;

use super::bounds::{BoundArm, lower_bound};

/// An experiment to plan. One arm is better than all others by a gap, and the others are equal.
/// That is the hardest case for that gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    arms: usize,
    floor: Floor,
    gap: f64,
    alpha: ErrorLevel,
    rival_share: f64,
    /// The mean reward of the rivals, or `None` for one with which the private means lie around
    /// 1/2.
    rate: Option<f64>,
}

/// The forecast for a plan.
///
/// Users are counted as if the traffic were shared as planned from the first user on. A learner
/// with a small floor weight explores more at first and needs fewer users, down to about half as
/// many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Users until the best arm is certain in at least half of all runs.
    pub typical_users: u64,
    /// Users until the best arm is certain in at least [`Plan::PROBABILITY`] of all runs.
    pub users: u64,
    /// Expected regret over that many users, in rewards scaled to 0..=1, if the traffic is shared
    /// as planned.
    pub regret: f64,
    /// The channel's lower bound on regret at that many users. The bound is asymptotic. A learner
    /// that minimises regret rather than seeking certainty, such as LDP-TS, stays well below it at
    /// such numbers.
    pub learner_regret: f64,
}

/// The forecast for a plan under top-two sampling.
///
/// ```
/// use bandana_learners::plan::Plan;
/// use bandana_shared::{channel::Floor, epsilon::Epsilon, interval::ErrorLevel};
///
/// let floor = Floor::for_epsilon(Epsilon::new(1.0)?);
/// let plan = Plan::new(10, floor, 0.1, ErrorLevel::FIVE_PERCENT)?;
/// let (even, top_two) = (plan.forecast()?, plan.decision()?);
/// assert!(top_two.users < even.users && top_two.typical_users < top_two.users);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Users until the best arm is certain in at least half of all runs.
    pub typical_users: u64,
    /// Users until the best arm is certain in at least [`Plan::PROBABILITY`] of all runs.
    pub users: u64,
}

impl Plan {
    /// The probability that [`Forecast::users`] suffice.
    pub const PROBABILITY: f64 = 0.9;

    /// Maximum number of users in a forecast.
    pub const USERS_MAX: u64 = 1 << 50;

    /// A plan with equal traffic for all arms. `gap` is the difference of the mean rewards, scaled
    /// to 0..=1. It is for rewards of two values, or with a linear curve.
    ///
    /// # Errors
    /// [`PlanError`] for fewer than two arms or too many, and for a gap out of 0..=1.
    pub fn new(arms: usize, floor: Floor, gap: f64, alpha: ErrorLevel) -> Result<Self, PlanError> {
        if !(2..=ARMS_MAX).contains(&arms) {
            return Err(PlanError::Arms { arms });
        }
        if !(gap > 0.0 && gap <= 1.0) {
            return Err(PlanError::Gap { gap });
        }
        Ok(Self { arms, floor, gap, alpha, rival_share: 1.0 / arms as f64, rate: None })
    }

    /// Sets the base rate: the mean reward of all arms but the best one. Without a base rate,
    /// rewards are taken to vary most.
    ///
    /// # Errors
    /// [`PlanError::Rate`] unless it is at least 0 and leaves room for the gap below 1.
    pub fn with_rate(self, rate: f64) -> Result<Self, PlanError> {
        if rate >= 0.0 && rate + self.gap <= 1.0 {
            Ok(Self { rate: Some(rate), ..self })
        } else {
            Err(PlanError::Rate { rate, gap: self.gap })
        }
    }

    /// A plan for this number of verdicts at once, such as one for each segment. All of them
    /// together are right with the confidence of this plan.
    #[must_use]
    pub fn for_verdicts(self, verdicts: u32) -> Self {
        let alpha = ErrorLevel::new(self.alpha.get() / f64::from(verdicts.max(1)));
        Self { alpha: alpha.unwrap_or(self.alpha), ..self }
    }

    /// Reduces the traffic of every arm other than the best to this share, as a learner with this
    /// floor weight does once it knows the best arm.
    ///
    /// # Errors
    /// [`PlanError::FloorWeight`] unless it is above 0 and at most 1 / arms.
    pub fn with_floor_weight(self, floor_weight: f64) -> Result<Self, PlanError> {
        if floor_weight > 0.0 && floor_weight * self.arms as f64 <= 1.0 {
            Ok(Self { rival_share: floor_weight, ..self })
        } else {
            Err(PlanError::FloorWeight { floor_weight, arms: self.arms })
        }
    }

    /// Computes the forecast. It takes the observed gap over a rival for a Brownian motion with
    /// drift. This motion must cross the boundary of the stopping rule of
    /// [`best_arm`](bandana_shared::confidence::best_arm). The crossing time of a line is known
    /// (Bachelier and Lévy: inverse Gaussian), so the forecast takes the tangent of the boundary.
    /// It counts that you look after every report. The gap over every rival must cross, and all
    /// share the luck of the best arm.
    ///
    /// # Errors
    /// [`PlanError::TooMany`] beyond [`Self::USERS_MAX`] users.
    pub fn forecast(&self) -> Result<Forecast, PlanError> {
        let rivals = (self.arms - 1) as f64;
        let start = self.arms as u64;
        let typical_users = least_users(start, |users| self.certainty(users) >= 0.5)?;
        let users = least_users(start, |users| self.certainty(users) >= Self::PROBABILITY)?;
        let (best, rival) = self.private_means();
        let mut arms = vec![BoundArm { mean: 0.0, private_mean: rival }; self.arms];
        arms[0] = BoundArm { mean: self.gap, private_mean: best };
        let played = users as f64;
        let at_once = rivals / self.arms as f64 * self.gap * played;
        Ok(Forecast {
            typical_users,
            users,
            regret: rivals * self.rival_share * self.gap * played,
            learner_regret: (lower_bound(&arms) * libm::log(played)).min(at_once),
        })
    }

    /// The users until the verdict under [`Learner::TopTwo`](crate::Learner::TopTwo), whatever
    /// floor weight this plan has.
    ///
    /// The learner gives half of the traffic to the best arm. It gives each rival as much as makes
    /// the evidence against all of them equal. A rival that looks closer by chance gets more, and
    /// the others do not need as many users. So this forecast spreads the rivals' luck over the
    /// quantiles of its law, and sums the users that they need. [`Self::forecast`] takes the
    /// largest of these times their number. Simulated runs took about a tenth more users than a
    /// forecast of a few thousand, and were within 3% of one of a hundred thousand or more.
    ///
    /// # Errors
    /// [`PlanError::TooMany`] beyond [`Self::USERS_MAX`] users.
    pub fn decision(&self) -> Result<Decision, PlanError> {
        // The best arm's luck is common to all pairs, the rivals' luck is their own. Of the
        // variance of a pair, 1/arms is the best arm's.
        let arms = self.arms as f64;
        let mean_luck = libm::sqrt(2.0 / arms);
        let typical_users = self.decided_at(0.0)?;
        let users = self.decided_at(mean_luck * upper_normal_quantile(1.0 - Self::PROBABILITY))?;
        Ok(Decision { typical_users, users })
    }

    /// Users until top-two sampling has told all rivals from the best arm, if the mean observed gap
    /// is this many of its standard deviations below the true one.
    fn decided_at(&self, deviations: f64) -> Result<u64, PlanError> {
        let rivals = self.arms - 1;
        let own = libm::sqrt(1.0 - 1.0 / self.arms as f64);
        let groups = rivals.min(RIVAL_GROUPS_MAX);
        let luck = |group: usize| {
            let tail = (group as f64 + 0.5) / groups as f64;
            deviations + own * upper_normal_quantile(tail)
        };
        let luck: Vec<f64> = (0..groups).map(luck).collect();
        let size = rivals as f64 / groups as f64;
        let suffices = |users: u64| {
            let best = users as f64 / 2.0;
            let mut left = best;
            luck.iter().all(|deviations| {
                let needed = self.rival_reports(best, *deviations, left / size);
                left -= size * needed.unwrap_or(f64::INFINITY);
                left >= 0.0
            })
        };
        least_users(self.arms as u64, suffices)
    }

    /// The least number of reports, at most `most`, by which a rival is told from the best arm.
    fn rival_reports(&self, best: f64, deviations: f64, most: f64) -> Option<f64> {
        let stops = |rival: f64| {
            let pair = self.pair(rival, best, deviations);
            best_active_arm(&pair, &[true; 2], self.arms, self.alpha) == Some(0)
        };
        if !stops(most) {
            return None;
        }
        let halve = |(low, high): (f64, f64), _| {
            let middle = f64::midpoint(low, high);
            if stops(middle) { (low, middle) } else { (middle, high) }
        };
        Some((0..24).fold((0.0, most), halve).1)
    }

    /// The probability that the rule has stopped by so many users, looking after every report.
    fn certainty(&self, users: u64) -> f64 {
        let users = users as f64;
        let (best, rival) = self.private_means();
        let rival_share = self.rival_share;
        let best_share = 1.0 - (self.arms - 1) as f64 * rival_share;
        let parts = (best * (1.0 - best) / best_share, rival * (1.0 - rival) / rival_share);
        let (variance, drift) = (parts.0 + parts.1, best - rival);
        // The sum of the observed gaps at which the rule stops, with its slope.
        let deviation = libm::sqrt(variance / users);
        let boundary =
            |users: f64| users * drift - self.margin(users) * libm::sqrt(variance * users);
        // Tallies are whole numbers, so a short step would be noise.
        let step = users / 4.0;
        let slope = (boundary(users + step) - boundary(users - step)) / (2.0 * step);
        let level = boundary(users) - slope * users;
        let (drift, scale) = (drift - slope, deviation * users);
        // Of a Brownian motion with this drift, which has passed the level by now.
        let at_end = (drift * users - level) / scale;
        let before = 2.0 * drift * level / variance;
        let reflected = libm::exp(before.min(600.0)) * normal((-drift * users - level) / scale);
        let passed = if level > 0.0 { normal(at_end) + reflected } else { normal(at_end) };
        let passed = passed.clamp(1e-300, 1.0 - 1e-15);
        // The luck of the best arm is common to all pairs, that of the rivals their own.
        let common = parts.0 / variance;
        let score = -upper_normal_quantile(passed);
        let rivals = (self.arms - 1) as f64;
        let all_passed = |luck: f64| {
            let own = (score - libm::sqrt(common) * luck) / libm::sqrt(1.0 - common);
            libm::pow(normal(own), rivals)
        };
        let points = (0..LUCKS).map(|point| (f64::from(point) + 0.5) / f64::from(LUCKS));
        points.map(|tail| all_passed(upper_normal_quantile(tail))).sum::<f64>() / f64::from(LUCKS)
    }

    /// The most standard deviations by which the observed gap of a pair may be below the true one after
    /// so many users, and the rule stops.
    fn margin(&self, users: f64) -> f64 {
        let rival = self.rival_share * users;
        let best = users - (self.arms - 1) as f64 * rival;
        let stops = |deviations: f64| {
            let pair = self.pair(rival, best, deviations);
            best_active_arm(&pair, &[true; 2], self.arms, self.alpha) == Some(0)
        };
        let halve = |(low, high): (f64, f64), _| {
            let middle = f64::midpoint(low, high);
            if stops(middle) { (middle, high) } else { (low, middle) }
        };
        (0..40).fold((-MARGIN_MAX, MARGIN_MAX), halve).0
    }

    /// The private means of the best arm and of a rival.
    fn private_means(&self) -> (f64, f64) {
        let gap = self.floor.contrast() * self.gap;
        let rival = match self.rate {
            Some(rate) => self.floor.lowest_private_mean() + self.floor.contrast() * rate,
            None => 0.5 - gap / 2.0,
        };
        (rival + gap, rival)
    }

    /// Tallies of the best arm and of a rival, by their reports.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded numbers from 0 to about 2^50"
    )]
    fn pair(&self, rival: f64, best: f64, deviations: f64) -> [Tally; 2] {
        let (of_best, of_rival) = self.private_means();
        let spread = |mean: f64| mean * (1.0 - mean);
        let deviation = libm::sqrt(spread(of_rival) / rival + spread(of_best) / best);
        let shift = deviations * deviation / 2.0;
        let tally = |reports: f64, mean: f64| {
            let reports = reports.round().max(1.0);
            let ones = (reports * mean.clamp(0.0, 1.0)).round();
            Tally::new(reports as u64, ones as u64).unwrap_or_default()
        };
        [tally(best, of_best - shift), tally(rival, of_rival + shift)]
    }
}

/// Number of quantiles that stand for the luck of the best arm.
const LUCKS: u32 = 64;

/// The most standard deviations that a margin is looked for in.
const MARGIN_MAX: f64 = 40.0;

/// The probability that a standard normal variable is at most this.
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// Number of quantiles that stand for the luck of many rivals.
const RIVAL_GROUPS_MAX: usize = 32;

/// The least number of users from `start` on that suffices, to within a ten-thousandth.
fn least_users(start: u64, suffices: impl Fn(u64) -> bool) -> Result<u64, PlanError> {
    let mut high = start;
    while !suffices(high) {
        high *= 2;
        if high > Plan::USERS_MAX {
            return Err(PlanError::TooMany);
        }
    }
    let mut low = high / 2;
    while high - low > 1 + high / 10_000 {
        let middle = u64::midpoint(low, high);
        if suffices(middle) { high = middle } else { low = middle }
    }
    Ok(high)
}

/// The number that a standard normal variable exceeds with this probability.
fn upper_normal_quantile(probability: f64) -> f64 {
    let exceeds = |x: f64| 0.5 * libm::erfc(x / std::f64::consts::SQRT_2);
    let halve = |(low, high): (f64, f64), _| {
        let middle = f64::midpoint(low, high);
        if exceeds(middle) > probability { (middle, high) } else { (low, middle) }
    };
    (0..60).fold((-9.0, 9.0), halve).0
}

/// An invalid plan.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// Too few arms, or too many.
    #[error("a plan is for 2 to {max} arms, not {arms}", max = ARMS_MAX)]
    Arms {
        /// The number of arms.
        arms: usize,
    },
    /// A gap out of range.
    #[error("the gap {gap} between the best arm and the next is not above 0 and at most 1")]
    Gap {
        /// The gap.
        gap: f64,
    },
    /// A floor weight that is 0 or too large for the number of arms.
    #[error("the floor weight {floor_weight} is not above 0 and at most 1/{arms}")]
    FloorWeight {
        /// The floor weight.
        floor_weight: f64,
        /// Number of arms.
        arms: usize,
    },
    /// A base rate that leaves no room for the gap.
    #[error("a base rate of {rate} and a gap of {gap} do not lie between 0 and 1")]
    Rate {
        /// The base rate.
        rate: f64,
        /// The gap.
        gap: f64,
    },
    /// Fewer users than arms.
    #[error("{users} users for {arms} arms; a plan needs at least one for each")]
    Users {
        /// The number of users.
        users: u64,
        /// The number of arms.
        arms: usize,
    },
    /// A batch of no reports, or of too many.
    #[error("the batch has {reports} reports; it must have 1 to {max}", max = REPORTS_MAX)]
    Batch {
        /// The number of reports.
        reports: u32,
    },
    /// A central loss that no channel is private enough for.
    #[error(
        "no channel is private enough for a central epsilon of {loss}; it must be 1e-6 or more"
    )]
    Central {
        /// The loss in nats.
        loss: f64,
    },
    /// The forecast exceeds [`Plan::USERS_MAX`].
    #[error(
        "so small a gap needs more than 10^15 users at this epsilon; plan for a larger gap, a \
         larger epsilon or fewer arms"
    )]
    TooMany,
}

#[cfg(test)]
mod tests {
    use bandana_shared::confidence::best_arm;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::identity::ArmIndex;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Binomial, Distribution as _};

    use super::*;
    use crate::{Evidence, Learner, LearnerInput, ThompsonSampler};

    fn plan(arms: usize, epsilon: f64, gap: f64) -> Plan {
        let floor = Floor::for_epsilon(Epsilon::new(epsilon).unwrap());
        Plan::new(arms, floor, gap, ErrorLevel::FIVE_PERCENT).unwrap()
    }

    /// The users of one simulated run until the rule stops, evaluated every 1%. Arms are played in
    /// turn, or by LDP-TS if there is a floor weight.
    fn users_until_certain(plan: &Plan, limit: u64, rng: &mut ChaCha8Rng) -> u64 {
        let (of_best, of_rival) = plan.private_means();
        let free = 1.0 - plan.rival_share * plan.arms as f64;
        let mut tallies = vec![Tally::EMPTY; plan.arms];
        let mut sampler = ThompsonSampler::new(&vec![Evidence::default(); plan.arms]).unwrap();
        for user in 0..limit {
            let arm = if free < 1e-9 {
                usize::try_from(user).unwrap() % plan.arms
            } else if rng.random_bool(free) {
                sampler.draw(rng).get()
            } else {
                rng.random_range(0..plan.arms)
            };
            let mean = if arm == 0 { of_best } else { of_rival };
            tallies[arm] += Tally::of_bit(rng.random::<f64>() < mean);
            sampler.update(ArmIndex::new(arm).unwrap(), tallies[arm].into());
            if user % (limit / 100) == 0 && best_arm(&tallies, plan.alpha).is_some() {
                return user;
            }
        }
        limit
    }

    #[test]
    fn simulated_experiments_need_as_many_users_as_planned() {
        const RUNS: usize = 200;
        // With a floor weight the forecasts are upper estimates, by about twice at most.
        let floored = plan(3, 4.0, 0.3).with_floor_weight(0.02).unwrap();
        for (seed, plan, excess) in
            [(1, plan(2, 1.0, 0.2), 1.3), (2, plan(5, 2.0, 0.15), 1.3), (3, floored, 2.0)]
        {
            let forecast = plan.forecast().unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut runs: Vec<u64> = (0..RUNS)
                .map(|_| users_until_certain(&plan, 2 * forecast.users, &mut rng))
                .collect();
            runs.sort_unstable();
            let stopped_by = |limit: u64| runs.partition_point(|users| *users <= limit);
            // If 90% suffice, fewer than 82% in 200 runs have a probability of 3e-4; if half
            // do, fewer than 38% one of 4e-4.
            assert!(stopped_by(forecast.users) >= RUNS * 82 / 100, "{forecast:?} {runs:?}");
            assert!(stopped_by(forecast.typical_users) >= RUNS * 38 / 100, "{forecast:?} {runs:?}");
            let median = runs[RUNS / 2] as f64;
            assert!(forecast.typical_users as f64 <= excess * median, "{forecast:?} {median}");
        }
    }

    #[test]
    fn forecasts_of_even_traffic_agree_with_simulation_within_fifteen_percent() {
        const RUNS: usize = 240;
        let with_rate =
            |arms, epsilon, gap, rate| plan(arms, epsilon, gap).with_rate(rate).unwrap();
        let settings = [
            plan(2, 1.0, 0.2),
            plan(2, 4.0, 0.1),
            plan(3, 2.0, 0.15),
            plan(5, 2.0, 0.2),
            plan(8, 4.0, 0.2),
            plan(20, 4.0, 0.3),
            with_rate(2, 3.0, 0.1, 0.05),
            with_rate(4, 4.0, 0.1, 0.1),
            with_rate(3, 5.0, 0.05, 0.02),
            plan(3, 2.0, 0.2).for_verdicts(4),
        ];
        let judged = |(seed, plan): (u64, Plan)| {
            let forecast = plan.forecast().unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut run = || users_of_even_traffic(&plan, 4 * forecast.users, &mut rng);
            let mut runs: Vec<u64> = (0..RUNS).map(|_| run()).collect();
            runs.sort_unstable();
            let (median, most) = (runs[RUNS / 2], runs[RUNS * 9 / 10]);
            for (planned, seen) in [(forecast.typical_users, median), (forecast.users, most)] {
                let ratio = planned as f64 / seen as f64;
                assert!((0.85..1.15).contains(&ratio), "{plan:?} {forecast:?} {median} {most}");
            }
        };
        // Side by side: each has a seed of its own.
        std::thread::scope(|scope| {
            for one in (1..).zip(settings) {
                scope.spawn(move || judged(one));
            }
        });
    }

    /// The users of one run with even traffic until the rule stops, looking each time that their number
    /// has grown by a hundredth.
    fn users_of_even_traffic(plan: &Plan, limit: u64, rng: &mut ChaCha8Rng) -> u64 {
        let (of_best, of_rival) = plan.private_means();
        let mut tallies = vec![Tally::EMPTY; plan.arms];
        let (mut users, mut look) = (0, 100_u64);
        while users < limit {
            let each = u64::div_ceil(look - users, plan.arms as u64);
            for (arm, tally) in tallies.iter_mut().enumerate() {
                let mean = if arm == 0 { of_best } else { of_rival };
                let ones = Binomial::new(each, mean).unwrap().sample(rng);
                *tally += Tally::new(each, ones).unwrap();
            }
            users += each * plan.arms as u64;
            look = users + users / 100;
            if best_arm(&tallies, plan.alpha) == Some(0) {
                return users;
            }
        }
        limit
    }

    /// The users of one simulated run under top-two sampling, with a policy for every 100.
    fn users_until_decided(plan: &Plan, limit: u64, rng: &mut ChaCha8Rng) -> u64 {
        let gap = plan.floor.contrast() * plan.gap;
        let mut tallies = vec![Tally::EMPTY; plan.arms];
        let active = vec![true; plan.arms];
        for user in (0..limit).step_by(100) {
            let input = LearnerInput::new(&tallies, &active, plan.floor);
            let weights = Learner::TopTwo.weights(&input).unwrap();
            for _ in 0..100 {
                let arm = weights.draw(rng.random()).get();
                let mean = if arm == 0 { 0.5 + gap / 2.0 } else { 0.5 - gap / 2.0 };
                tallies[arm] += Tally::of_bit(rng.random::<f64>() < mean);
            }
            if best_arm(&tallies, plan.alpha).is_some() {
                return user + 100;
            }
        }
        limit
    }

    #[test]
    fn top_two_sampling_needs_about_as_many_users_as_planned() {
        const RUNS: usize = 100;
        for (seed, plan) in
            [(1, plan(2, 2.0, 0.15)), (2, plan(5, 2.0, 0.3)), (3, plan(12, 4.0, 0.3))]
        {
            let decision = plan.decision().unwrap();
            let even = plan.forecast().unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut runs: Vec<u64> = (0..RUNS)
                .map(|_| users_until_decided(&plan, 3 * decision.users, &mut rng))
                .collect();
            runs.sort_unstable();
            let (median, most) = (runs[RUNS / 2] as f64, runs[RUNS * 9 / 10] as f64);
            // They take about a tenth more, for what is learned late, and up to a hundred for the next look.
            for (planned, seen) in [(decision.typical_users, median), (decision.users, most)] {
                let ratio = planned as f64 / seen;
                assert!((0.8..1.1).contains(&ratio), "{decision:?} {even:?} {median} {most}");
            }
        }
    }

    #[test]
    fn more_privacy_more_arms_and_smaller_gaps_need_more_users() {
        let users = |plan: Plan| plan.forecast().unwrap().users;
        let base = users(plan(3, 1.0, 0.1));
        assert!(base < users(plan(3, 0.5, 0.1)));
        assert!(base < users(plan(4, 1.0, 0.1)));
        assert!(base < users(plan(3, 1.0, 0.05)));
        assert!(base < users(plan(3, 1.0, 0.1).with_floor_weight(0.05).unwrap()));
        let error = plan(3, Epsilon::MIN, 1e-9).forecast().unwrap_err();
        assert_eq!(error, PlanError::TooMany);
    }
}
