//! The privatizer: from a reward to a private bit or symbol.

use std::hint::select_unpredictable;

use bandana_shared::alphabet::Symbol;
use bandana_shared::channel::Channel;
use bandana_shared::curve::{Curve, Level};
use bandana_shared::rewards::{OutOfRange, RewardKind, Rewards};
use bandana_shared::specification::Specification;
use thiserror::Error;

use crate::noise::{EntropyError, NoiseSource};
use crate::reward::Reward;
use crate::sign::Sign;

/// The private form of a reward: one random bit, or one random symbol in an experiment with k-ary
/// randomized response. It is safe to store and to send.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::{BulkNoise, Privatizer, Reward};
///
/// // Epsilon is 1: a reward of 1 gives a 1 in e / (e + 1) = 73 of 100 cases, 0 in 27.
/// let privatizer = Privatizer::new(&specification()?);
/// let (reward, mut noise) = (Reward::new(1.0)?, BulkNoise::new()?);
/// let mut ones = 0;
/// for _ in 0..10_000 {
///     ones += u32::from(privatizer.privatize(&reward, &mut noise)?.get().get());
/// }
/// // Eleven standard deviations to each side.
/// assert!((6_800..7_800).contains(&ones), "{ones}");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateReport(Symbol);

impl PrivateReport {
    /// The symbol. A bit is 0 or 1.
    pub fn get(self) -> Symbol {
        self.0
    }

    /// The report from its stored number, or `None` if no report has this number.
    #[cfg(feature = "storage")]
    pub(crate) fn restored(number: u8) -> Option<Self> {
        Symbol::new(number).map(Self)
    }
}

/// Turns rewards of one experiment into private reports.
///
/// # Privacy
/// One call is ε-locally differentially private with the specification's `certified_epsilon`,
/// whatever the reward. k calls on the same reward cost k ε. Once the reward is known to be valid,
/// no branch and no memory access depends on it. The only exception is a second random word, once
/// in `2^64` reports. (A report of k-ary randomized response always takes two words, and a report
/// of a category takes one.)
///
/// ```
/// use bandana_client::{BulkNoise, Privatizer, Reward};
#[doc = include_str!("example.txt")]
///
/// let privatizer = Privatizer::new(&specification()?);
/// let bit = privatizer.privatize(&Reward::new(1.0)?, &mut BulkNoise::new()?)?;
/// println!("a {} says little of the 1", bit.get().get());
/// // A reward that the experiment does not admit makes no report.
/// assert!(privatizer.privatize(&Reward::new(0.5)?, &mut BulkNoise::new()?).is_err());
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct Privatizer {
    rewards: Rewards,
    curve: Curve,
    channel: Channel,
    simulation: bool,
}

impl Privatizer {
    /// The privatizer of an experiment.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::Privatizer;
    /// // One for each experiment, for any number of rewards.
    /// let privatizer = Privatizer::new(&specification()?);
    /// # let _ = privatizer.clone();
    /// assert!(specification()?.certified_epsilon() <= 1.0);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn new(specification: &Specification) -> Self {
        Self::of_metric(specification, 0)
    }

    /// The privatizer of the metric with this number from 1 up; 0 stands for the rewards.
    pub(crate) fn of_metric(specification: &Specification, metric: usize) -> Self {
        let mechanism = specification.mechanism_of(metric);
        Self {
            rewards: specification.values_of(metric),
            curve: Curve::new(mechanism, specification.epsilon()),
            channel: specification.channel(),
            simulation: specification.is_simulation(),
        }
    }

    /// Draws the private report of `reward`.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{OsNoise, Privatizer, PrivatizeError, Reward, SeededNoise};
    ///
    /// let privatizer = Privatizer::new(&specification()?);
    /// privatizer.privatize(&Reward::new(0.0)?, &mut OsNoise)?;
    /// // The experiment is real, and seeded noise is reproducible.
    /// let refused = privatizer.privatize(&Reward::new(0.0)?, &mut SeededNoise::new(1, 2));
    /// assert!(matches!(refused, Err(PrivatizeError::SimulationMark { experiment: false })));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Every call makes another report with its own cost, also for the same reward. The privatizer
    /// does not count its calls, but a [`crate::Core`] does.
    ///
    /// # Errors
    /// [`PrivatizeError::OutOfRange`], [`PrivatizeError::NotBinary`] and
    /// [`PrivatizeError::NotCategory`] for rewards that the experiment does not admit.
    /// [`PrivatizeError::SimulationMark`] when noise and experiment are not both simulated or both
    /// real. [`PrivatizeError::Entropy`] without randomness. No report is made then.
    pub fn privatize(
        &self,
        reward: &Reward,
        noise: &mut impl NoiseSource,
    ) -> Result<PrivateReport, PrivatizeError> {
        let admitted = self.admit(reward)?;
        self.privatize_admitted(admitted, noise)
    }

    /// The value to privatize: the reward itself, or the nearer end of the range if the experiment
    /// clamps.
    pub(crate) fn admit(&self, reward: &Reward) -> Result<f64, PrivatizeError> {
        let range = self.rewards.range();
        let value = match self.rewards.out_of_range() {
            OutOfRange::Refuse => reward.expose(),
            OutOfRange::Clamp => reward.expose().clamp(range.low(), range.high()),
        };
        match self.rewards.kind() {
            _ if self.rewards.admits(value) => Ok(value),
            RewardKind::Binary => {
                Err(PrivatizeError::NotBinary { low: range.low(), high: range.high() })
            }
            RewardKind::Bounded => {
                Err(PrivatizeError::OutOfRange { low: range.low(), high: range.high() })
            }
            RewardKind::Categorical => Err(PrivatizeError::NotCategory { last: range.high() }),
        }
    }

    /// The private report of a value that [`Self::admit`] returned.
    fn privatize_admitted<N: NoiseSource>(
        &self,
        admitted: f64,
        noise: &mut N,
    ) -> Result<PrivateReport, PrivatizeError> {
        self.privatize_with_sign(admitted, Sign::Known { is_negative: false }, noise)
    }

    /// The private report of a value that [`Self::admit`] returned, multiplied by a sign: with G its
    /// level, from 0 to 1, that of G, or of 1 - G. If the sign is lost, it is that of 1/2.
    pub(crate) fn privatize_with_sign<N: NoiseSource>(
        &self,
        admitted: f64,
        sign: Sign,
        noise: &mut N,
    ) -> Result<PrivateReport, PrivatizeError> {
        if self.simulation != N::SIMULATED {
            return Err(PrivatizeError::SimulationMark { experiment: self.simulation });
        }
        let range = self.rewards.range();
        let level = || {
            let outside = PrivatizeError::OutOfRange { low: range.low(), high: range.high() };
            range.level(admitted).map_err(|_| outside)
        };
        let symbol = match (self.channel, self.rewards.kind()) {
            (Channel::Bit(floor), _) => {
                let level = level()?;
                let level = match sign {
                    Sign::Known { is_negative } => {
                        select_unpredictable(is_negative, level.mirrored(), level)
                    }
                    Sign::Lost => Level::HALF,
                };
                let threshold = floor.threshold(self.curve.apply(level));
                Symbol::from(threshold.draw(|| noise.word())?)
            }
            // The level of a category would be rounded, and so would at times be another category.
            (Channel::Kary(channel), RewardKind::Categorical) => {
                channel.answer(channel.category(admitted), noise.word()?)
            }
            (Channel::Kary(channel), _) => channel.draw(level()?, || noise.word())?,
        };
        Ok(PrivateReport(symbol))
    }
}

/// A failure to make a report. The message never contains the reward.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::{OsNoise, Privatizer, Reward};
///
/// let privatizer = Privatizer::new(&specification()?);
/// let error = privatizer.privatize(&Reward::new(0.123)?, &mut OsNoise).unwrap_err();
/// assert!(!error.to_string().contains("123"));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum PrivatizeError {
    /// The reward is outside the range, and the experiment does not clamp.
    #[error("the reward is outside the declared range {low} to {high}")]
    OutOfRange {
        /// Lower end of the range.
        low: f64,
        /// Upper end of the range.
        high: f64,
    },
    /// Binary rewards take two values.
    #[error("the reward is neither {low} nor {high}, the two values of a binary reward")]
    NotBinary {
        /// The lower value.
        low: f64,
        /// The upper value.
        high: f64,
    },
    /// Categories are numbered.
    #[error("the reward is not a category: one of the whole numbers from 0 to {last}")]
    NotCategory {
        /// The last category.
        last: f64,
    },
    /// Reproducible noise is for simulated experiments, and only for them.
    #[error(
        "the experiment's simulation mark is {experiment}, and that of the noise is the opposite"
    )]
    SimulationMark {
        /// The experiment's mark.
        experiment: bool,
    },
    /// The operating system has no randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

bandana_shared::debug_says!(PrivatizeError);
