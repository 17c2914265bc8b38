//! Exact draws of LDP-TS, for simulations.

mod beta_odds;
mod tail;

use bandana_shared::identity::ArmIndex;
use bandana_shared::policy::PolicyError;
use rand::{Rng, RngExt as _};

pub(super) use beta_odds::BetaOdds;
use tail::{Best, Level, Tail};

use super::check_arm_count;
use super::input::Evidence;

/// The level is chosen anew after one update for so many reports.
const REPORTS_PER_LEVEL: f64 = 32.0;

/// Draws arms as LDP-TS does: one sample of Beta(1 + ones, 1 + zeros) per arm,
/// the largest wins (Jiang, Zhao and Li, 2023, arXiv 2307.00863).
///
/// In the long run an arm is drawn as often as its weight by
/// [`Learner::LdpTs`](super::Learner::LdpTs) says. If the tallies change after every draw, as in a
/// simulation, a draw is much cheaper than weights.
///
/// A Beta variable is X/(X + Y) for two Gamma variables, whose constants are kept
/// between draws. Arms are compared by their odds X/Y, which needs no division.
///
/// Most arms need no sample. There is a level, two standard deviations below the best mean. For an
/// arm that will hardly reach it, a coin decides whether to draw from the tail beyond it. One
/// uniform number serves for all coins. If an arm's sample is beyond the level, the arms below
/// can't win. If none is, they are sampled, given that they are below. The law of the draw depends
/// neither on the level nor on when it moves.
///
/// ```
/// use bandana_learners::{Evidence, ThompsonSampler};
/// use bandana_shared::identity::ArmIndex;
/// use rand::SeedableRng;
///
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
/// let mut sampler = ThompsonSampler::new(&[Evidence::default(); 3])?;
/// sampler.update(ArmIndex::new(1)?, Evidence::new(999_999_999.0, 1.0));
/// assert_eq!(sampler.draw(&mut rng).get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ThompsonSampler {
    arms: Vec<Arm>,
    level: Option<Level>,
    /// The arms that are sampled in every draw, ascending.
    sampled: Vec<usize>,
    /// Sum of the masses of the tails of all others.
    mass: f64,
    /// Number of updates until the level is chosen anew.
    patience: f64,
}

#[derive(Clone, Copy, Debug)]
struct Arm {
    evidence: Evidence,
    odds: BetaOdds,
    /// `None`: it is sampled in every draw.
    tail: Option<Tail>,
}

impl ThompsonSampler {
    /// A sampler for 1 to 1,024 arms, all of them active.
    ///
    /// # Errors
    /// [`PolicyError::ArmCount`] for another number of arms.
    pub fn new(arms: &[Evidence]) -> Result<Self, PolicyError> {
        check_arm_count(arms.len())?;
        let arm = |evidence| Arm { evidence, odds: BetaOdds::of(evidence), tail: None };
        let mut sampler = Self {
            arms: arms.iter().copied().map(arm).collect(),
            level: None,
            sampled: Vec::with_capacity(arms.len()),
            mass: 0.0,
            patience: 0.0,
        };
        sampler.set_level(Level::of(arms.iter().copied()));
        Ok(sampler)
    }

    /// Replaces the evidence of one arm.
    ///
    /// # Panics
    /// When there is no such arm.
    pub fn update(&mut self, arm: ArmIndex, evidence: Evidence) {
        let place = arm.get();
        self.arms[place].odds = BetaOdds::of(evidence);
        self.arms[place].evidence = evidence;
        self.patience -= 1.0;
        if self.patience < 0.0 {
            return self.set_level(Level::of(self.arms.iter().map(|arm| arm.evidence)));
        }
        let tail = self.level.and_then(|level| Tail::of(evidence, &level));
        let before = std::mem::replace(&mut self.arms[place].tail, tail);
        let mass = |tail: Option<Tail>| tail.map_or(0.0, |tail| tail.mass);
        self.mass += mass(tail) - mass(before);
        if tail.is_some() != before.is_some() {
            self.list_sampled();
        }
    }

    /// Draws an arm.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> ArmIndex {
        let mut best = Best::NONE;
        for &arm in &self.sampled {
            best.consider(arm, self.arms[arm].odds.sample(rng));
        }
        if let Some(level) = &self.level {
            let uniform = rng.random();
            if uniform < self.mass {
                self.draw_beyond(level, uniform, &mut best, rng);
            }
            if level.holds(best.ones, best.zeros) {
                self.draw_below(level, &mut best, rng);
            }
        }
        best.arm()
    }

    /// Draws the tails beyond the level. One uniform number says which of the coins is the first that
    /// shows a tail; those after it are tossed.
    #[inline(never)]
    fn draw_beyond<R: Rng + ?Sized>(
        &self,
        level: &Level,
        mut uniform: f64,
        best: &mut Best,
        rng: &mut R,
    ) {
        let (mut none_so_far, mut is_found) = (1.0, false);
        for (place, arm) in self.arms.iter().enumerate() {
            let Some(tail) = arm.tail else { continue };
            if is_found {
                if rng.random::<f64>() >= tail.mass {
                    continue;
                }
            } else {
                let first_here = none_so_far * tail.mass;
                if uniform >= first_here {
                    uniform -= first_here;
                    none_so_far *= 1.0 - tail.mass;
                    continue;
                }
                is_found = true;
            }
            if let Some(odds) = tail.sample(arm.evidence, level, rng) {
                best.consider(place, (odds, 1.0));
            }
        }
    }

    /// Samples the arms with a tail, given that none of them is beyond the level.
    #[inline(never)]
    fn draw_below<R: Rng + ?Sized>(&self, level: &Level, best: &mut Best, rng: &mut R) {
        for (place, arm) in self.arms.iter().enumerate() {
            if arm.tail.is_some() {
                let odds = loop {
                    let (ones, zeros) = arm.odds.sample(rng);
                    if level.holds(ones, zeros) {
                        break (ones, zeros);
                    }
                };
                best.consider(place, odds);
            }
        }
    }

    fn set_level(&mut self, level: Option<Level>) {
        self.level = level;
        let (mut reports, mut mass) = (0.0, 0.0);
        for arm in &mut self.arms {
            arm.tail = level.and_then(|level| Tail::of(arm.evidence, &level));
            mass += arm.tail.map_or(0.0, |tail| tail.mass);
            reports += arm.evidence.reports();
        }
        self.mass = mass;
        self.patience = (self.arms.len() as f64).max(reports / REPORTS_PER_LEVEL);
        self.list_sampled();
    }

    fn list_sampled(&mut self) {
        self.sampled.clear();
        let arms = self.arms.iter().enumerate();
        self.sampled.extend(arms.filter(|(_, arm)| arm.tail.is_none()).map(|(place, _)| place));
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{Learner, LearnerInput};
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::tally::Tally;

    const DRAWS: u32 = 200_000;

    fn arms_of(counts: &[(u64, u64)]) -> Vec<Evidence> {
        let tallies = counts.iter().filter_map(|&(n, ones)| Tally::new(n, ones).ok());
        tallies.map(Evidence::from).collect()
    }

    /// Fails when the frequency of an arm deviates from its share by more than five and a half
    /// standard deviations. With up to 20 arms a correct sampler fails for one seed in a million
    /// (the smallest expected count is about 100).
    fn assert_drawn_by(shares: &[f64], sampler: &ThompsonSampler, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut counts = vec![0_u32; shares.len()];
        for _ in 0..DRAWS {
            counts[sampler.draw(&mut rng).get()] += 1;
        }
        for (arm, (&count, share)) in counts.iter().zip(shares).enumerate() {
            let expected = f64::from(DRAWS) * share;
            let deviation = libm::sqrt(expected * (1.0 - share));
            let off = (f64::from(count) - expected) / deviation;
            assert!(off.abs() < 5.5, "seed {seed}, arm {arm}: {off} deviations");
        }
    }

    #[test]
    fn arms_that_always_succeeded_are_drawn_in_proportion() {
        // Beta(k, 1) is the law of the largest of k uniform variables.
        let tallies = arms_of(&[(0, 0), (1, 1), (4, 4), (9, 9), (35, 35)]);
        let sampler = ThompsonSampler::new(&tallies).unwrap();
        let shares = [1.0, 2.0, 5.0, 10.0, 36.0].map(|k| k / 54.0);
        assert_drawn_by(&shares, &sampler, 1);
    }

    #[test]
    fn draws_agree_with_the_weights() {
        let five = [(30, 20), (0, 0), (100, 64), (7, 5), (1000, 650)];
        let twelve = [
            (50, 25),
            (50, 26),
            (50, 27),
            (50, 28),
            (50, 29),
            (50, 30),
            (9, 4),
            (20, 10),
            (300, 170),
            (1, 0),
            (2, 1),
            (4, 3),
        ];
        let mut twenty = [(0, 0); 20];
        for (arm, counts) in twenty.iter_mut().enumerate() {
            let reports = 20 + 5 * arm as u64;
            *counts = (reports, reports * (700 - 5 * arm as u64) / 1000);
        }
        for (seed, counts) in (10..).zip([&five[..], &twelve, &twenty]) {
            let arms = arms_of(counts);
            let channel = Floor::for_epsilon(Epsilon::new(1.0).unwrap()).into();
            let input = LearnerInput::of(arms.clone(), &vec![true; arms.len()], channel);
            let weights = Learner::LdpTs.weights(&input).unwrap();
            let shares: Vec<f64> = (0..arms.len()).map(|arm| weights.share(arm)).collect();
            assert!(shares.iter().all(|share| *share > 5e-4), "{shares:?}");
            assert_drawn_by(&shares, &ThompsonSampler::new(&arms).unwrap(), seed);
        }
    }

    #[test]
    fn no_level_changes_the_law() {
        // Beta(k, 1) as above. Low levels leave all arms to samples, high ones all to coins, of which
        // most show nothing, so that all arms are sampled from below the level.
        let arms = arms_of(&[(0, 0), (1, 1), (4, 4), (9, 9), (35, 35)]);
        let shares = [1.0, 2.0, 5.0, 10.0, 36.0].map(|k| k / 54.0);
        let mut sampled = Vec::new();
        for (seed, share) in (20..).zip([0.5, 0.9, 0.97, 0.985, 0.999]) {
            let mut sampler = ThompsonSampler::new(&arms).unwrap();
            sampler.set_level(Level::at(share));
            sampled.push(sampler.sampled.len());
            assert_drawn_by(&shares, &sampler, seed);
        }
        assert_eq!(sampled, [5, 4, 2, 1, 0]);
    }

    #[test]
    fn draws_after_many_updates_agree_with_the_weights() {
        // In a trial of a leader and arms that hardly reach it, where the level is old for some arms.
        let mut arms = arms_of(&[(0, 0); 6]);
        let mut sampler = ThompsonSampler::new(&arms).unwrap();
        for report in 0..600 {
            let arm = if report % 3 == 0 { report / 3 % 5 } else { 5 };
            let (part, whole) = if arm == 5 { (7, 10) } else { (11, 20) };
            arms[arm].add_bit(report / 3 * part % whole < part);
            sampler.update(ArmIndex::new(arm).unwrap(), arms[arm]);
        }
        assert!(sampler.sampled.len() < 3, "{:?}", sampler.sampled);
        let channel = Floor::for_epsilon(Epsilon::new(1.0).unwrap()).into();
        let input = LearnerInput::of(arms, &[true; 6], channel);
        let weights = Learner::LdpTs.weights(&input).unwrap();
        let shares: Vec<f64> = (0..6).map(|arm| weights.share(arm)).collect();
        assert!(shares.iter().all(|share| *share > 5e-4), "{shares:?}");
        assert_drawn_by(&shares, &sampler, 30);
    }

    #[test]
    fn an_updated_sampler_draws_as_a_new_one() {
        let before = arms_of(&[(30, 20), (0, 0), (100, 64)]);
        let after = arms_of(&[(30, 20), (8, 6), (100, 64)]);
        let mut updated = ThompsonSampler::new(&before).unwrap();
        updated.update(ArmIndex::new(1).unwrap(), after[1]);
        let draws = |sampler: &ThompsonSampler| -> Vec<ArmIndex> {
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            (0..200).map(|_| sampler.draw(&mut rng)).collect()
        };
        let fresh = draws(&ThompsonSampler::new(&after).unwrap());
        assert_eq!(draws(&updated), fresh);
        assert_ne!(draws(&ThompsonSampler::new(&before).unwrap()), fresh);
    }

    #[test]
    fn the_largest_counts_can_be_drawn_from() {
        let most = Tally::REPORTS_MAX;
        let sampler = ThompsonSampler::new(&arms_of(&[(most, 0), (most, most), (most, most / 2)]));
        let sampler = sampler.unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        assert!((0..100).all(|_| sampler.draw(&mut rng).get() == 1));
    }

    #[test]
    fn impossible_numbers_of_arms_are_refused() {
        for arms in [0, 1025] {
            let error = ThompsonSampler::new(&vec![Evidence::default(); arms]).unwrap_err();
            assert_eq!(error, PolicyError::ArmCount { arms });
        }
    }
}
