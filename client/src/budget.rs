//! The budget: the privacy loss that an app allows an installation, and how much of it is spent.

use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use thiserror::Error;

use crate::debit::{CentralLoss, Debit};

/// The privacy loss that an installation may incur, over all experiments.
///
/// The client admits reports by basic composition: the sum of their ε stays within both caps.
/// Advanced composition is for planning: see [`bandana_shared::accounting`].
///
/// There are two accounts. Each has a cap for a window and a cap for the lifetime. A report needs
/// room in both accounts. The *local* account holds against anybody who sees the reports. The
/// *central* account holds against an aggregator that sees shuffled reports only in their batches.
/// There a shuffled report costs less ε, and a δ. Any other report costs the same in both accounts.
/// The central account has no caps unless [`Self::with_central`] sets them.
///
/// ```
/// use bandana_client::Budget;
/// use bandana_shared::accounting::loss::PrivacyLoss;
/// // At most 4 nats in any 7 days, and 100 in all.
/// let budget = Budget::new(PrivacyLoss::new(4.0)?, 7, PrivacyLoss::new(100.0)?)?;
/// assert_eq!(budget.window_days(), 7);
/// assert!(Budget::new(PrivacyLoss::new(4.0)?, 0, PrivacyLoss::new(100.0)?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    window: NanoNats,
    window_days: u32,
    lifetime: NanoNats,
    central_window: CentralLoss,
    central_lifetime: CentralLoss,
}

impl Budget {
    /// The longest window, in days.
    pub const WINDOW_DAYS_MAX: u32 = 31;

    /// A budget of at most `window` in any `window_days` consecutive days (UTC), and at most
    /// `lifetime` as long as the app is installed. Days are those of the server. A server that lies
    /// about its day can begin a new window, but can't exceed the lifetime cap. Caps are whole
    /// nano-nats. A decimal fraction, such as 0.3, is exactly that many nano-nats. Other values are
    /// rounded down. A cap of 2^64 - 1 nano-nats or more is no cap.
    ///
    /// ```
    /// use bandana_client::Budget;
    /// use bandana_shared::accounting::{loss::PrivacyLoss, nano_nats::NanoNats};
    ///
    /// let budget = Budget::new(PrivacyLoss::new(1.5)?, 31, PrivacyLoss::UNBOUNDED)?;
    /// assert_eq!(budget.window(), NanoNats::new(1_500_000_000));
    /// assert_eq!(budget.lifetime(), NanoNats::MAX);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BudgetError`] unless `window_days` is 1 to [`Self::WINDOW_DAYS_MAX`].
    pub fn new(
        window: PrivacyLoss,
        window_days: u32,
        lifetime: PrivacyLoss,
    ) -> Result<Self, BudgetError> {
        if (1..=Self::WINDOW_DAYS_MAX).contains(&window_days) {
            let (window, lifetime) = (NanoNats::cap(window), NanoNats::cap(lifetime));
            Ok(Self { window, window_days, lifetime, ..Self::UNLIMITED })
        } else {
            Err(BudgetError(window_days))
        }
    }

    /// The same budget, with caps on the central account over the same days. They cap the sums of ε
    /// and of δ that an aggregator learns, as long as relay and users behave as the app assumes:
    /// see [`crate::Shuffled`]. Caps are rounded down to whole nano-nats and units of 2^-64. An
    /// unbounded ε and a δ of 1 are no caps.
    ///
    /// ```
    /// use bandana_client::Budget;
    /// use bandana_shared::accounting::{delta::Delta, guarantee::Guarantee, loss::PrivacyLoss};
    ///
    /// let nats = PrivacyLoss::new;
    /// // Whoever sees each report learns up to 20 nats of a user. An aggregator that sees batches
    /// // learns up to 2, but for a probability of one in ten million.
    /// let lifetime = Guarantee::new(nats(2.0)?, Delta::new(1e-7)?);
    /// let week = Guarantee::new(nats(0.5)?, Delta::new(1e-8)?);
    /// let budget = Budget::new(nats(5.0)?, 7, nats(20.0)?)?.with_central(week, lifetime);
    /// assert_eq!(budget.central_lifetime().epsilon.get(), 2_000_000_000);
    /// assert_eq!(budget.lifetime().get(), 20_000_000_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Privacy
    /// A report that is not shuffled counts here with its whole ε. So a central cap far below the
    /// local one leaves room for only a few of those.
    #[must_use]
    pub fn with_central(self, window: Guarantee, lifetime: Guarantee) -> Self {
        Self {
            central_window: CentralLoss::cap(window),
            central_lifetime: CentralLoss::cap(lifetime),
            ..self
        }
    }

    /// No cap. This is for gateways and simulations, whose rewards come from more than one person.
    ///
    /// # Privacy
    /// Each report still has its own ε, but nothing bounds their sum.
    pub const UNLIMITED: Self = Self {
        window: NanoNats::MAX,
        window_days: 1,
        lifetime: NanoNats::MAX,
        central_window: CentralLoss::MAX,
        central_lifetime: CentralLoss::MAX,
    };

    /// The cap of a window, in nano-nats.
    pub fn window(self) -> NanoNats {
        self.window
    }

    /// Length of a window in days, 1 to [`Self::WINDOW_DAYS_MAX`].
    pub fn window_days(self) -> u32 {
        self.window_days
    }

    /// The cap for the life of the installation, in nano-nats.
    pub fn lifetime(self) -> NanoNats {
        self.lifetime
    }

    /// The cap of a window in the central account.
    pub fn central_window(self) -> CentralLoss {
        self.central_window
    }

    /// The cap for the life of the installation in the central account.
    pub fn central_lifetime(self) -> CentralLoss {
        self.central_lifetime
    }

    /// The lower cap of the local account, if a report of this price does not fit it even when nothing
    /// is spent.
    pub(crate) fn beyond(&self, price: NanoNats) -> Option<NanoNats> {
        let cap = self.window.min(self.lifetime);
        (!has_room(NanoNats::ZERO, price, cap)).then_some(cap)
    }

    /// Whether there is room for a report of this price.
    pub(crate) fn has_room(&self, spent: Spent, price: Debit) -> Result<(), Exhausted> {
        let local = |spent: NanoNats, cap| has_room(spent, price.local, cap);
        let central = |spent: CentralLoss, cap: CentralLoss| {
            has_room(spent.epsilon, price.central, cap.epsilon)
                && has_room_for_delta(spent.delta, price.delta, cap.delta)
        };
        if !local(spent.lifetime, self.lifetime) {
            Err(Exhausted::Lifetime)
        } else if !central(spent.central_lifetime, self.central_lifetime) {
            Err(Exhausted::CentralLifetime)
        } else if !local(spent.window, self.window) {
            Err(Exhausted::Window)
        } else if !central(spent.central_window, self.central_window) {
            Err(Exhausted::CentralWindow)
        } else {
            Ok(())
        }
    }
}

/// A window of invalid length.
///
/// ```
/// use bandana_client::Budget;
/// use bandana_shared::accounting::loss::PrivacyLoss;
///
/// let error = Budget::new(PrivacyLoss::ZERO, 365, PrivacyLoss::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "a budget's window has 1 to 31 days; got 365");
/// ```
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("a budget's window has 1 to {max} days; got {0}", max = Budget::WINDOW_DAYS_MAX)]
pub struct BudgetError(u32);

bandana_shared::debug_says!(BudgetError);

/// The privacy loss of an installation so far: the sum of the prices of its reports, in the local
/// and in the central account. Reports that are still to be made are included. See [`Budget`].
///
/// ```
#[doc = include_str!("example.txt")]
/// use std::time::Duration;
/// use bandana_client::Spent;
/// use bandana_shared::accounting::nano_nats::NanoNats;
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// client.draw(&id, now())?;
/// let report = NanoNats::new(1_000_000_000);
/// let spent: Spent = client.spent();
/// assert_eq!((spent.window, spent.lifetime), (report, report));
/// // Nobody shuffles it.
/// assert_eq!(spent.central_window.epsilon, report);
/// // No clock of the device ends a window, only the server's day.
/// let next_week = now().after(Duration::from_hours(7 * 24));
/// client.next_task(next_week)?;
/// assert_eq!(client.spent(), spent);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The loss in the window that ends on the last day that the server has told. A report without
    /// a day counts in every window: it waits to be sent, or no server has answered since it was
    /// sent.
    pub window: NanoNats,
    /// The loss since the installation.
    pub lifetime: NanoNats,
    /// The loss in the same window, in the central account.
    pub central_window: CentralLoss,
    /// The loss since the installation, in the central account.
    pub central_lifetime: CentralLoss,
}

impl Spent {
    pub(crate) fn new(window: Debit, lifetime: Debit) -> Self {
        Self {
            window: window.local,
            lifetime: lifetime.local,
            central_window: window.central(),
            central_lifetime: lifetime.central(),
        }
    }
}

/// The cap that a report would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    Window,
    Lifetime,
    CentralWindow,
    CentralLifetime,
}

impl Exhausted {
    /// Whether there is room again when the window is over.
    pub(crate) fn is_of_window(self) -> bool {
        matches!(self, Self::Window | Self::CentralWindow)
    }
}

/// Whether a cap has room for a price; [`NanoNats::MAX`] is no cap.
fn has_room(spent: NanoNats, price: NanoNats, cap: NanoNats) -> bool {
    cap == NanoNats::MAX || spent.checked_add(price).is_some_and(|total| total <= cap)
}

/// The same of δ.
fn has_room_for_delta(spent: DeltaUnits, price: DeltaUnits, cap: DeltaUnits) -> bool {
    cap == DeltaUnits::MAX || spent.checked_add(price).is_some_and(|total| total <= cap)
}
