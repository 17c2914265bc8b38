//! The ledger: privacy budgets, and the spent part of each.

use std::collections::BTreeMap;

use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::Day;
use thiserror::Error;

use crate::time::Timestamp;

/// The privacy loss that an installation may incur, over all experiments.
///
/// Reports are admitted by basic composition: the sum of their ε stays within both
/// caps. Advanced composition is for planning, see
/// [`bandana_shared::accounting`].
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
}

impl Budget {
    /// The longest window, in days.
    pub const WINDOW_DAYS_MAX: u32 = 31;

    /// At most `window` in any `window_days` consecutive days (UTC), and at most
    /// `lifetime` as long as the app is installed. Caps are rounded down to whole
    /// nano-nats; one of 2^64 - 1 nano-nats or more is no cap.
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
            Ok(Self { window, window_days, lifetime })
        } else {
            Err(BudgetError(window_days))
        }
    }

    /// No cap: for gateways and simulations, whose rewards come from more than one person.
    ///
    /// # Privacy
    /// Each report still has its own ε, but nothing bounds their sum.
    pub const UNLIMITED: Self =
        Self { window: NanoNats::MAX, window_days: 1, lifetime: NanoNats::MAX };

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
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a budget's window has 1 to {max} days; got {0}", max = Budget::WINDOW_DAYS_MAX)]
pub struct BudgetError(u32);

/// The privacy loss of an installation so far, in nano-nats: the sum of the ε of its reports,
/// including reports still to be made.
///
/// ```
#[doc = include_str!("example.txt")]
/// use std::time::Duration;
/// use bandana_client::Spent;
/// use bandana_shared::accounting::nano_nats::NanoNats;
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// client.choose(&id, now())?;
/// let report = NanoNats::new(1_000_000_000);
/// assert_eq!(client.spent(now()), Spent { window: report, lifetime: report });
/// // The window has seven days. The loss of a window ends with it, that of the lifetime stays.
/// let next_week = now().after(Duration::from_hours(7 * 24));
/// assert_eq!(client.spent(next_week), Spent { window: NanoNats::ZERO, lifetime: report });
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// In the window that ends today. If the clock has been set back, today is the latest day ever
    /// seen.
    pub window: NanoNats,
    /// Since the installation.
    pub lifetime: NanoNats,
}

/// The cap that a report would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    Window,
    Lifetime,
}

/// The debits of an installation. A debit is never reversed: a crash may waste budget, and nothing
/// refills it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    lifetime: NanoNats,
    /// The sum of the debits of each of the last days.
    days: BTreeMap<Day, NanoNats>,
    /// The latest time ever seen.
    high_water: Timestamp,
}

impl Ledger {
    /// A ledger from its parts.
    #[cfg(feature = "storage")]
    pub(crate) fn from_parts(
        lifetime: NanoNats,
        days: BTreeMap<Day, NanoNats>,
        high_water: Timestamp,
    ) -> Self {
        Self { lifetime, days, high_water }
    }

    /// The sum of the debits since the installation.
    #[cfg(any(test, feature = "storage"))]
    pub(crate) fn lifetime(&self) -> NanoNats {
        self.lifetime
    }

    /// The sum of the debits of each of the last days.
    #[cfg(any(test, feature = "storage"))]
    pub(crate) fn days(&self) -> impl Iterator<Item = (Day, NanoNats)> + '_ {
        self.days.iter().map(|(day, spent)| (*day, *spent))
    }

    /// The time for budget windows: `now`, or the latest time ever seen if the clock has been set
    /// back since. So a window never opens twice.
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        now.max(self.high_water)
    }

    /// Records `now` as seen.
    pub(crate) fn see(&mut self, now: Timestamp) {
        self.high_water = self.time(now);
    }

    /// The privacy loss up to `now`.
    pub(crate) fn spent(&self, now: Timestamp, budget: &Budget) -> Spent {
        let today = self.time(now).day();
        let first = today.back(budget.window_days - 1);
        let window = self.days.range(first..=today).map(|(_, spent)| *spent);
        Spent {
            window: window.fold(NanoNats::ZERO, NanoNats::saturating_add),
            lifetime: self.lifetime,
        }
    }

    /// Whether the budget has room for a report of this price.
    pub(crate) fn admits(
        &self,
        price: NanoNats,
        now: Timestamp,
        budget: &Budget,
    ) -> Result<(), Exhausted> {
        let spent = self.spent(now, budget);
        let fits = |spent: NanoNats, cap: NanoNats| {
            spent.checked_add(price).is_some_and(|total| total <= cap)
        };
        if !fits(spent.lifetime, budget.lifetime) && budget.lifetime < NanoNats::MAX {
            Err(Exhausted::Lifetime)
        } else if !fits(spent.window, budget.window) && budget.window < NanoNats::MAX {
            Err(Exhausted::Window)
        } else {
            Ok(())
        }
    }

    /// Debits the price of a report.
    pub(crate) fn debit(&mut self, price: NanoNats, now: Timestamp) {
        self.see(now);
        let today = self.high_water.day();
        self.lifetime = self.lifetime.saturating_add(price);
        let spent = self.days.entry(today).or_default();
        *spent = spent.saturating_add(price);
        // First day of the longest window that ends today.
        let first = today.back(Budget::WINDOW_DAYS_MAX - 1);
        self.days = self.days.split_off(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: NanoNats = NanoNats::new(1_000_000_000);

    fn noon(day: u64) -> Timestamp {
        Timestamp::from_unix_ms((day * 24 + 12) * 3_600_000)
    }

    fn budget(window: f64, days: u32, lifetime: f64) -> Budget {
        let loss = |nats| PrivacyLoss::new(nats).unwrap();
        Budget::new(loss(window), days, loss(lifetime)).unwrap()
    }

    /// Debits as often as the budget allows.
    fn spend(ledger: &mut Ledger, now: Timestamp, budget: &Budget) -> (u32, Exhausted) {
        for count in 0.. {
            if let Err(exhausted) = ledger.admits(PRICE, now, budget) {
                return (count, exhausted);
            }
            ledger.debit(PRICE, now);
        }
        unreachable!("every budget ends")
    }

    #[test]
    fn no_run_of_days_exceeds_the_cap_of_a_window() {
        let budget = budget(3.5, 3, 1000.0);
        let mut ledger = Ledger::default();
        let per_day: Vec<u32> =
            (100..140).map(|day| spend(&mut ledger, noon(day), &budget).0).collect();
        assert!(per_day.windows(3).all(|days| days.iter().sum::<u32>() <= 3), "{per_day:?}");
        assert_eq!(per_day.iter().sum::<u32>(), 14 * 3);
    }

    #[test]
    fn the_lifetime_ends_once() {
        let budget = budget(3.0, 1, 10.0);
        let mut ledger = Ledger::default();
        let total: u32 = (0..1000).map(|day| spend(&mut ledger, noon(day), &budget).0).sum();
        assert_eq!(total, 10);
        assert_eq!(ledger.admits(PRICE, noon(5000), &budget), Err(Exhausted::Lifetime));
        assert_eq!(ledger.spent(noon(5000), &budget).window, NanoNats::ZERO);
    }

    #[test]
    fn a_clock_that_is_set_back_opens_no_window_again() {
        let budget = budget(2.0, 7, 1000.0);
        let mut ledger = Ledger::default();
        assert_eq!(spend(&mut ledger, noon(1000), &budget), (2, Exhausted::Window));
        // A year back: the window of day 1000 counts until the clock has passed it.
        for day in [635, 636, 700, 999, 1000, 1006] {
            assert_eq!(spend(&mut ledger, noon(day), &budget).0, 0, "day {day}");
        }
        assert_eq!(spend(&mut ledger, noon(1007), &budget).0, 2);
    }

    #[test]
    fn caps_are_rounded_down() {
        let tiny = PrivacyLoss::new(1.000_000_000_9).unwrap();
        assert_eq!(Budget::new(tiny, 1, tiny).unwrap().lifetime(), PRICE);
        let exact = PrivacyLoss::new(1.0).unwrap();
        assert_eq!(Budget::new(exact, 1, exact).unwrap().lifetime(), PRICE);
    }

    #[test]
    fn old_days_are_forgotten() {
        let mut ledger = Ledger::default();
        for day in 0..500 {
            ledger.debit(PRICE, noon(day));
        }
        assert_eq!(ledger.days().count(), Budget::WINDOW_DAYS_MAX as usize);
        assert_eq!(ledger.lifetime().get(), 500 * PRICE.get());
    }
}
