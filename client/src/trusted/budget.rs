//! The budget of ρ: what an app lets one person disclose, and what of it is spent.

use std::fmt;

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use thiserror::Error;

use crate::budget::Budget;

/// The ρ that the rewards of one person may cost, over all trusted experiments of a directory.
///
/// If a person discloses k rewards to one experiment, they cost k² ρ together. Here ρ is the
/// largest price of a reward that the experiment has asked for. The costs of several experiments
/// add up. Before a reward leaves, it needs room under both caps: see [`crate::trusted`]. Prices
/// are rounded up to whole billionths. So set a cap a little above what is to fit, such as 0.401
/// for two rewards at 0.1.
///
/// ```
/// use bandana_client::trusted::RhoBudget;
/// use bandana_shared::accounting::concentrated::Rho;
/// // Room in a week for 10 rewards at 0.005 in one experiment (10² * 0.005), for 2 at 0.1, or
/// // for one at 0.5; in a life for 15, 3 or 1.
/// let budget = RhoBudget::new(Rho::new(0.6)?, 7, Rho::new(1.2)?)?;
/// // The default is the same.
/// assert_eq!(RhoBudget::default(), budget);
/// assert!(RhoBudget::new(Rho::new(0.5)?, 0, Rho::new(1.0)?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RhoBudget {
    window: NanoNats,
    window_days: u32,
    lifetime: NanoNats,
}

impl Default for RhoBudget {
    /// ρ = 0.6 in any 7 days and 1.2 for life. For a δ of one in a million, that is an ε of 5.8 and
    /// of 8.7.
    fn default() -> Self {
        Self {
            window: NanoNats::new(600_000_000),
            window_days: 7,
            lifetime: NanoNats::new(1_200_000_000),
        }
    }
}

impl RhoBudget {
    /// No cap. This is for gateways and simulations, whose rewards come from more than one person.
    ///
    /// # Privacy
    /// Each reward still costs at most what the agreement says. Nothing bounds what the rewards of
    /// one person cost together.
    pub const UNLIMITED: Self =
        Self { window: NanoNats::MAX, window_days: 1, lifetime: NanoNats::MAX };

    /// A budget of at most `window` in any `window_days` consecutive days (UTC), and at most
    /// `lifetime` as long as the app is installed. Each reward counts on the server's day on which
    /// it is first sent. Caps are rounded down to whole billionths. A cap of 2^64 - 1 billionths or
    /// more is no cap.
    ///
    /// ```
    /// use bandana_client::trusted::RhoBudget;
    /// use bandana_shared::accounting::{concentrated::Rho, nano_nats::NanoNats};
    /// let budget = RhoBudget::new(Rho::new(0.25)?, 31, Rho::new(f64::INFINITY)?)?;
    /// assert_eq!(budget.window(), NanoNats::new(250_000_000));
    /// assert_eq!(budget.lifetime(), NanoNats::MAX);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RhoBudgetError`] unless `window_days` is 1 to 31.
    pub fn new(window: Rho, window_days: u32, lifetime: Rho) -> Result<Self, RhoBudgetError> {
        let cap = |rho: Rho| PrivacyLoss::new(rho.get()).map_or(NanoNats::ZERO, NanoNats::cap);
        if (1..=Budget::WINDOW_DAYS_MAX).contains(&window_days) {
            Ok(Self { window: cap(window), window_days, lifetime: cap(lifetime) })
        } else {
            Err(RhoBudgetError(window_days))
        }
    }

    /// The cap of a window, in billionths of ρ.
    pub fn window(self) -> NanoNats {
        self.window
    }

    /// Length of a window in days, 1 to 31.
    pub fn window_days(self) -> u32 {
        self.window_days
    }

    /// The cap for the life of the installation, in billionths of ρ.
    pub fn lifetime(self) -> NanoNats {
        self.lifetime
    }
}

/// A window of invalid length.
///
/// ```
/// use bandana_client::trusted::RhoBudget;
/// use bandana_shared::accounting::concentrated::Rho;
/// let error = RhoBudget::new(Rho::ZERO, 32, Rho::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "a budget's window has 1 to 31 days; got 32");
/// ```
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("a budget's window has 1 to {max} days; got {0}", max = Budget::WINDOW_DAYS_MAX)]
pub struct RhoBudgetError(u32);

bandana_shared::debug_says!(RhoBudgetError);

/// The cost of one person's rewards so far, and the rest of the budget, in billionths of ρ.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::trusted::{DisclosedReward, Disclosures, RhoBudget, RhoSpent};
/// use bandana_shared::accounting::nano_nats::NanoNats;
///
/// # let directory = tempfile::tempdir()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
/// // Two rewards at ρ = 0.1 in one experiment cost 2² times that.
/// for _ in 0..2 {
///     let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
///     experiment.disclose(&disclosure, &disclosures).await?;
/// }
/// let spent: RhoSpent = disclosures.spent();
/// assert_eq!(spent.rewards, 2);
/// assert_eq!(spent.lifetime, NanoNats::new(400_000_004));
/// assert_eq!(spent.window_left, NanoNats::new(199_999_996));
/// // A third would cost 0.5 more, and 0.2 is left.
/// let third = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// assert!(experiment.disclose(&third, &disclosures).await.is_err());
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RhoSpent {
    /// Spent in the window that ends on the server's day as last heard.
    pub window: NanoNats,
    /// Spent since the installation.
    pub lifetime: NanoNats,
    /// Left in that window, or [`NanoNats::MAX`] if there is no cap.
    pub window_left: NanoNats,
    /// Left for the life of the installation, or [`NanoNats::MAX`] if there is no cap.
    pub lifetime_left: NanoNats,
    /// Rewards that were disclosed, or may have been, to any experiment since the installation.
    pub rewards: u64,
}

/// The rewards that one person has disclosed to one experiment, and their cost.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::trusted::{Disclosures, DisclosedReward, RhoBudget};
/// use bandana_shared::identity::ExperimentId;
///
/// # let directory = tempfile::tempdir()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
/// let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// experiment.disclose(&disclosure, &disclosures).await?;
/// let of_it = disclosures.spent_on(&ExperimentId::new("headlines")?);
/// assert_eq!((of_it.rewards, of_it.rewards_in_window), (1, 1));
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpentOnExperiment {
    /// k: rewards that were disclosed to it, or may have been, since the installation.
    pub rewards: u64,
    /// The rewards of the window that ends on the server's day as last heard.
    pub rewards_in_window: u64,
    /// The largest ρ of a reward that it has asked for, in billionths.
    pub price: NanoNats,
    /// The cost of its rewards together, in billionths of ρ: k² times the price.
    pub lifetime: NanoNats,
}

/// The cap that a reward would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cap {
    Window { days: u32 },
    Lifetime,
}

/// A disclosure for which the budget has no room. This attempt disclosed nothing.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::trusted::{DisclosedReward, Disclosures, RhoBudget, TrustedError};
/// use bandana_shared::accounting::concentrated::Rho;
///
/// # let directory = tempfile::tempdir()?;
/// # with_server(async |transport| {
/// # let experiment = open(&transport).await?;
/// // The experiment asks for 0.1.
/// let budget = RhoBudget::new(Rho::new(0.05)?, 7, Rho::new(0.05)?)?;
/// let disclosures = Disclosures::open(directory.path(), budget)?;
/// let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// let refused = experiment.disclose(&disclosure, &disclosures).await;
/// let Err(TrustedError::Budget(exhausted)) = refused else { panic!() };
/// assert!(!exhausted.passes());
/// assert_eq!(exhausted.needed().get(), 100_000_001);
/// assert_eq!(exhausted.left().get(), 50_000_000);
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Error, PartialEq, Eq)]
pub struct RhoExhausted {
    pub(super) of: Cap,
    /// k, with this reward.
    pub(super) rewards: u64,
    pub(super) needed: NanoNats,
    pub(super) left: NanoNats,
    pub(super) cap: NanoNats,
    pub(super) passes: bool,
}

bandana_shared::debug_says!(RhoExhausted);

impl fmt::Display for RhoExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "disclosing reward {} of this person to the experiment costs {} more of rho, and {} \
             of {} is left {}; it was not disclosed, {}",
            self.rewards,
            rho(self.needed),
            rho(self.left),
            rho(self.cap),
            self.period(),
            self.advice()
        )
    }
}

impl RhoExhausted {
    /// The amount that the disclosure would add to the cost of all, in billionths of ρ: (2k - 1) ρ
    /// for the k-th reward of an experiment that always asks for the same ρ.
    pub fn needed(&self) -> NanoNats {
        self.needed
    }

    /// The rest under the cap, in billionths of ρ.
    pub fn left(&self) -> NanoNats {
        self.left
    }

    /// Whether there will be room once the window is over.
    pub fn passes(&self) -> bool {
        self.passes
    }

    fn period(&self) -> String {
        match self.of {
            Cap::Window { days } => format!("for these {days} days"),
            Cap::Lifetime => "for the life of this installation".to_owned(),
        }
    }

    fn advice(&self) -> &'static str {
        if self.passes {
            "and can be when the window is over"
        } else {
            "and never can be under this budget: do not ask this person for more rewards of the \
             experiment"
        }
    }
}

/// ρ for people, to a millionth.
fn rho(nano: NanoNats) -> f64 {
    let millionths = nano.get().saturating_add(500) / 1000;
    millionths as f64 / 1e6
}
