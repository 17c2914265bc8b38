//! Bandit instances: the arms and their reward distributions.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use bandana_shared::curve::{Curve, Level};
use bandana_shared::estimate::Estimand;
use bandana_shared::rewards::{RewardRange, Rewards};
use rand::{Rng, RngExt as _};
use serde::{Deserialize, Serialize};

/// A distribution of rewards in [0, 1].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RewardDistribution {
    /// 1 with this probability, otherwise 0.
    Bernoulli(f64),
    /// Beta(a, 1), with distribution function x^a.
    BetaA1(f64),
    /// Uniform between two numbers.
    Uniform(f64, f64),
    /// Values with their counts, at least one of them positive.
    Counted(Vec<(f64, u64)>),
}

impl RewardDistribution {
    /// The quantile at `u` in [0, 1).
    fn quantile(&self, u: f64) -> f64 {
        match self {
            Self::Bernoulli(p) => f64::from(u8::from(u >= 1.0 - p)),
            Self::BetaA1(a) => u.powf(1.0 / a),
            Self::Uniform(low, high) => low + (high - low) * u,
            Self::Counted(values) => {
                let total: u64 = values.iter().map(|(_, count)| count).sum();
                let mut rest = u * total as f64;
                let place = values.iter().position(|&(_, count)| {
                    rest -= count as f64;
                    rest < 0.0
                });
                place.or_else(|| values.len().checked_sub(1)).map_or(0.0, |place| values[place].0)
            }
        }
    }

    /// Draws a reward.
    pub fn draw(&self, rng: &mut impl Rng) -> f64 {
        self.quantile(rng.random())
    }

    /// The mean reward.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Bernoulli(p) => *p,
            Self::BetaA1(a) => a / (a + 1.0),
            Self::Uniform(low, high) => f64::midpoint(*low, *high),
            Self::Counted(values) => counted_mean(values, |value| value),
        }
    }

    /// The mean of g(reward), computed by [`Self::expectation`].
    pub fn mean_of(&self, curve: &Curve) -> f64 {
        self.expectation(&|reward| {
            Level::from_unit(reward).map_or(0.0, |level| curve.apply(level).to_unit())
        })
    }

    /// The mean of a function of the reward: exact for finite distributions, otherwise by the
    /// midpoint rule, to about `1e-6`.
    pub fn expectation(&self, g: &dyn Fn(f64) -> f64) -> f64 {
        const POINTS: u32 = 100_000;
        match self {
            Self::Bernoulli(p) => p * g(1.0) + (1.0 - p) * g(0.0),
            Self::Counted(values) => counted_mean(values, g),
            Self::BetaA1(_) | Self::Uniform(..) => {
                let point = |i| g(self.quantile((f64::from(i) + 0.5) / f64::from(POINTS)));
                (0..POINTS).map(point).sum::<f64>() / f64::from(POINTS)
            }
        }
    }

    #[expect(clippy::float_cmp, reason = "0 and 1 themselves, not numbers near them")]
    fn is_binary(&self) -> bool {
        match self {
            Self::Bernoulli(_) => true,
            Self::BetaA1(_) | Self::Uniform(..) => false,
            Self::Counted(values) => {
                values.iter().all(|&(value, count)| count == 0 || value == 0.0 || value == 1.0)
            }
        }
    }
}

fn counted_mean(values: &[(f64, u64)], of: impl Fn(f64) -> f64) -> f64 {
    let total: u64 = values.iter().map(|(_, count)| count).sum();
    values.iter().map(|&(value, count)| of(value) * count as f64).sum::<f64>() / total as f64
}

/// An arm of an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulatedArm {
    /// Its name.
    pub label: String,
    /// Its rewards.
    pub rewards: RewardDistribution,
}

/// A bandit problem with known answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// The arms, at least one.
    pub arms: Vec<SimulatedArm>,
}

/// A label, and values with their counts.
type LabelledCounts = (String, Vec<(f64, u64)>);

#[derive(Debug, Deserialize)]
struct Row {
    arm: usize,
    label: String,
    reward: f64,
    count: u64,
}

impl Instance {
    /// The names that [`Self::named`] knows.
    pub const NAMES: [&str; 10] = [
        "paper-20",
        "two-arms",
        "five-arms",
        "close-arms",
        "variance-trap",
        "exponential-trap",
        "power-near-one",
        "power-near-zero",
        "wide-best",
        "rare-reward",
    ];

    /// The 20-arm instance of Ren et al. 2020, reused by Jiang, Zhao and Li 2023:
    /// one arm of mean .9, five of .8, five of .7, five of .6, four of .5.
    pub fn paper_20() -> Self {
        let groups = [
            (1, RewardDistribution::Bernoulli(0.9), "Bernoulli(.9)"),
            (5, RewardDistribution::BetaA1(4.0), "Beta(4,1)"),
            (5, RewardDistribution::Uniform(0.4, 1.0), "U[.4,1]"),
            (5, RewardDistribution::Bernoulli(0.6), "Bernoulli(.6)"),
            (4, RewardDistribution::Uniform(0.0, 1.0), "U[0,1]"),
        ];
        let arms = groups.into_iter().flat_map(|(count, rewards, name)| {
            (1..=count).map(move |i| SimulatedArm {
                label: format!("{name} #{i}"),
                rewards: rewards.clone(),
            })
        });
        Self { arms: arms.collect() }
    }

    /// The instance of this name, or else the one in the CSV file of this path.
    ///
    /// # Errors
    /// As [`Self::from_csv`].
    pub fn named(name: &str) -> anyhow::Result<Self> {
        use RewardDistribution::{Bernoulli, BetaA1, Counted, Uniform};
        let constant = |reward| Counted(vec![(reward, 1)]);
        let one_against = |best: RewardDistribution, count, other: &RewardDistribution| {
            std::iter::once(best).chain(std::iter::repeat_n(other.clone(), count)).collect()
        };
        let rewards: Vec<RewardDistribution> = match name {
            "paper-20" => return Ok(Self::paper_20()),
            "two-arms" => one_against(Bernoulli(0.9), 1, &Bernoulli(0.5)),
            "five-arms" => one_against(Bernoulli(0.75), 4, &Bernoulli(0.7)),
            "close-arms" => one_against(Bernoulli(0.52), 4, &Bernoulli(0.5)),
            "variance-trap" => one_against(Uniform(0.55, 0.65), 4, &Bernoulli(0.5)),
            "exponential-trap" => one_against(constant(0.6), 1, &Bernoulli(0.58)),
            // Power laws with the means .9 and .88, and .12 and .10: mean a/(a + 1).
            "power-near-one" => one_against(BetaA1(9.0), 1, &BetaA1(22.0 / 3.0)),
            "power-near-zero" => one_against(BetaA1(3.0 / 22.0), 1, &BetaA1(1.0 / 9.0)),
            // The best arm varies most, and its first rewards are often all bad.
            "wide-best" => {
                vec![Uniform(0.4, 0.6), Bernoulli(0.55), Uniform(0.35, 0.55), Uniform(0.3, 0.5)]
            }
            "rare-reward" => {
                vec![Bernoulli(0.1), constant(0.08), constant(0.06), constant(0.05)]
            }
            _ => {
                let read = Self::from_csv(Path::new(name));
                let names = Self::NAMES.join(", ");
                return read.with_context(|| {
                    format!("{name:?} is no instance ({names}), and no file of arms")
                });
            }
        };
        let arm = |(place, rewards): (usize, RewardDistribution)| SimulatedArm {
            label: format!("arm {place}"),
            rewards,
        };
        Ok(Self { arms: rewards.into_iter().enumerate().map(arm).collect() })
    }

    /// Reads a CSV file with the columns `arm` (counted from 0), `label`, `reward`
    /// (0 to 1) and `count`.
    ///
    /// # Errors
    /// With the problem and its line.
    pub fn from_csv(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path)
            .with_context(|| format!("can't read the arms file {}", path.display()))?;
        Self::read(file).with_context(|| format!("the arms file {}", path.display()))
    }

    /// Parses the content of such a file.
    ///
    /// # Errors
    /// As [`Self::from_csv`].
    pub fn read(csv: impl io::Read) -> anyhow::Result<Self> {
        let mut reader = csv::Reader::from_reader(csv);
        let mut arms: Vec<Option<LabelledCounts>> = Vec::new();
        for (row, line) in reader.deserialize().zip(2..) {
            let row: Row = row.with_context(|| format!("line {line}"))?;
            ensure!(
                (0.0..=1.0).contains(&row.reward),
                "line {line}: reward {} is not from 0 to 1; scale the rewards",
                row.reward
            );
            ensure!(
                row.arm < bandana_shared::limits::ARMS_MAX,
                "line {line}: arm {} is beyond the {} arms that an experiment can have",
                row.arm,
                bandana_shared::limits::ARMS_MAX
            );
            if arms.len() <= row.arm {
                arms.resize(row.arm + 1, None);
            }
            let (label, values) = arms[row.arm].get_or_insert_with(|| (row.label.clone(), vec![]));
            ensure!(
                *label == row.label,
                "line {line}: arm {} is labelled {:?} here and {label:?} above",
                row.arm,
                row.label
            );
            values.push((row.reward, row.count));
        }
        let mut checked = Vec::with_capacity(arms.len());
        for (place, arm) in arms.into_iter().enumerate() {
            let (label, values) = arm.unwrap_or_default();
            let total = values.iter().try_fold(0_u64, |sum, (_, count)| sum.checked_add(*count));
            match total {
                Some(0) => bail!("arm {place} has no row with a positive count"),
                Some(_) => {
                    let rewards = RewardDistribution::Counted(values);
                    checked.push(SimulatedArm { label, rewards });
                }
                None => bail!("the counts of arm {place} add up to more than {}", u64::MAX),
            }
        }
        ensure!(!checked.is_empty(), "it has no arms");
        Ok(Self { arms: checked })
    }

    /// The kind and range of the rewards of all arms.
    pub fn rewards(&self) -> Rewards {
        if self.arms.iter().all(|arm| arm.rewards.is_binary()) {
            Rewards::binary()
        } else {
            Rewards::bounded(RewardRange::UNIT)
        }
    }

    /// The mean reward of every arm.
    pub fn means(&self) -> Vec<f64> {
        self.arms.iter().map(|arm| arm.rewards.mean()).collect()
    }

    /// For every arm, the true value of its estimand.
    pub fn true_estimands(&self, estimand: Estimand, curve: &Curve) -> Vec<f64> {
        let of = |arm: &SimulatedArm| match estimand {
            // No instance has categories.
            Estimand::MeanReward(_) | Estimand::Frequencies => arm.rewards.mean(),
            Estimand::MeanCurvedReward => arm.rewards.mean_of(curve),
        };
        self.arms.iter().map(of).collect()
    }
}

/// Index of the largest number; of ties, the first.
pub fn largest(numbers: &[f64]) -> usize {
    let better = |best: usize, place: usize| {
        if numbers[place] > numbers[best] { place } else { best }
    };
    (0..numbers.len()).fold(0, better)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_shared::curve::{Curvature, Mechanism};
    use bandana_shared::epsilon::Epsilon;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    #[test]
    fn paper_20_has_the_published_means() {
        let means = Instance::paper_20().means();
        let expected: Vec<f64> = [(1, 0.9), (5, 0.8), (5, 0.7), (5, 0.6), (4, 0.5)]
            .into_iter()
            .flat_map(|(count, mean)| vec![mean; count])
            .collect();
        assert_eq!(means.len(), 20);
        assert!(means.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12), "{means:?}");
    }

    #[test]
    fn every_name_has_an_instance() {
        for name in Instance::NAMES {
            assert!(Instance::named(name).is_ok_and(|one| one.arms.len() > 1), "{name}");
        }
        assert!(Instance::named("no-such-instance").is_err());
    }

    #[test]
    fn draws_have_the_stated_means() {
        // Rewards in [0, 1] have a standard error of at most .5/sqrt(100 000). Five standard errors
        // are exceeded with a probability below 1e-6 per arm.
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        for arm in Instance::paper_20().arms {
            let sum: f64 = (0..100_000).map(|_| arm.rewards.draw(&mut rng)).sum();
            let mean = sum / 100_000.0;
            assert!((mean - arm.rewards.mean()).abs() < 0.008, "{} {mean}", arm.label);
        }
    }

    #[test]
    fn means_of_curved_rewards_match_closed_forms() {
        // k = 1 squares: E[U^2] = 1/3, E[Beta(4,1)^2] = 4/6.
        let square = Mechanism::Quadratic(Curvature::new(1.0).unwrap());
        let curve = Curve::new(square, Epsilon::new(1.0).unwrap());
        for (distribution, expected) in [
            (RewardDistribution::Uniform(0.0, 1.0), 1.0 / 3.0),
            (RewardDistribution::BetaA1(4.0), 4.0 / 6.0),
            (RewardDistribution::Bernoulli(0.3), 0.3),
            (RewardDistribution::Counted(vec![(0.5, 3), (1.0, 1)]), 7.0 / 16.0),
        ] {
            assert!((distribution.mean_of(&curve) - expected).abs() < 1e-6, "{distribution:?}");
        }
    }

    fn csv(content: &str) -> anyhow::Result<Instance> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), content)?;
        Instance::from_csv(file.path())
    }

    #[test]
    fn csv_files_are_read_and_checked() {
        let instance = csv("arm,label,reward,count\n1,b,1,3\n1,b,0,1\n0,a,0.5,2\n").unwrap();
        assert_eq!(instance.means(), [0.5, 0.75]);
        assert_eq!(instance.rewards(), Rewards::bounded(RewardRange::UNIT));
        let binary = csv("arm,label,reward,count\n0,a,1,3\n0,a,0,1\n").unwrap();
        assert_eq!(binary.rewards(), Rewards::binary());
        for (content, complaint) in [
            ("arm,label,reward,count\n0,a,2,1\n", "line 2: reward 2 is not from 0 to 1"),
            ("arm,label,reward,count\n1,a,1,1\n", "arm 0 has no row"),
            ("arm,label,reward,count\n0,a,1,0\n", "arm 0 has no row"),
            ("arm,label,reward,count\n0,a,1,1\n0,b,0,1\n", "labelled"),
            ("arm,label,reward,count\n0,a,1,18446744073709551615\n0,a,1,1\n", "arm 0 add up to"),
            ("arm,label,reward,count\n", "has no arms"),
            ("arm,label\n0,a\n", "line 2"),
        ] {
            let error = format!("{:#}", csv(content).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
    }
}
