//! The ledger: privacy budgets, and the spent part of each.

use std::collections::BTreeMap;

use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::Day;
use thiserror::Error;

use crate::debit::{CentralLoss, Debit};
use crate::time::Timestamp;

/// How far the days of two replicas may differ around midnight.
const DAY_SKEW: u32 = 1;

/// The privacy loss that an installation may incur, over all experiments.
///
/// Reports are admitted by basic composition: the sum of their ε stays within both
/// caps. Advanced composition is for planning, see
/// [`bandana_shared::accounting`].
///
/// There are two accounts, each with a cap of a window and of a lifetime, and a report needs room
/// in both. The *local* account holds whoever sees the reports. The *central* account holds against
/// an aggregator that sees shuffled reports only in their batches: a shuffled report costs less
/// there, and a δ; any other report costs the same in both. It has no caps unless
/// [`Self::with_central`] sets them.
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

    /// At most `window` in any `window_days` consecutive days (UTC) by the server's day, and at most
    /// `lifetime` as long as the app is installed. A server that lies about its day can begin a new
    /// window, and never more than the lifetime. Caps are rounded down to whole
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
            Ok(Self { window, window_days, lifetime, ..Self::UNLIMITED })
        } else {
            Err(BudgetError(window_days))
        }
    }

    /// The same budget with caps of the central account, over the same days: the sums of ε and of δ
    /// that an aggregator learns while relay and users keep to what the app assumes, see
    /// [`crate::Shuffled`]. Caps are rounded down to whole nano-nats and units of 2^-64; an
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
    /// Reports that are not shuffled count here with their whole ε. So a central cap far below the
    /// local one leaves room for few of those.
    #[must_use]
    pub fn with_central(self, window: Guarantee, lifetime: Guarantee) -> Self {
        Self {
            central_window: CentralLoss::cap(window),
            central_lifetime: CentralLoss::cap(lifetime),
            ..self
        }
    }

    /// No cap: for gateways and simulations, whose rewards come from more than one person.
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

/// The privacy loss of an installation so far: the sum of the prices of its reports in the local
/// and in the central account, including reports still to be made; see [`Budget`].
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
    /// In the window that ends on the server's day as last heard. Reports that have no day yet are in
    /// every window: they wait to be sent, or no server was heard since they were.
    pub window: NanoNats,
    /// Since the installation.
    pub lifetime: NanoNats,
    /// In the same window, in the central account.
    pub central_window: CentralLoss,
    /// Since the installation, in the central account.
    pub central_lifetime: CentralLoss,
}

impl Spent {
    fn new(window: Debit, lifetime: Debit) -> Self {
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

/// The debits of an installation. A debit is never reversed: a crash may waste budget, and nothing
/// refills it.
///
/// The device's clock plays no part. A debit has no day until a server is heard that was asked after
/// its report was settled, and counts in every window until then. The server's day when it is heard
/// is no earlier than the day on which the report arrived, and no later than today. So with a server
/// that tells the truth, the reports that arrive in any window of true days stay within its cap,
/// whatever happens to the clock, to the network and to the process: for the last of them to be
/// drawn, each other one either had no day yet, or one in the window.
///
/// That holds for each of the three sums of a [`Debit`] by itself: they have the same days, and no
/// step of one depends on another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    lifetime: Debit,
    /// Debits without a day: of reports that are not settled, or since no server was heard.
    undated: Debit,
    /// The sum of the debits of each of the last days, by the server's day.
    days: BTreeMap<Day, Debit>,
    /// The server's day as last accepted; `None`: never.
    today: Option<Day>,
}

impl Ledger {
    /// A ledger from its parts.
    #[cfg(feature = "storage")]
    pub(crate) fn from_parts(
        (lifetime, undated): (Debit, Debit),
        days: BTreeMap<Day, Debit>,
        today: Option<Day>,
    ) -> Self {
        Self { lifetime, undated, days, today }
    }

    /// The sum of the debits since the installation.
    #[cfg(any(test, feature = "storage"))]
    pub(crate) fn lifetime(&self) -> Debit {
        self.lifetime
    }

    /// The sum of the debits without a day.
    pub(crate) fn undated(&self) -> Debit {
        self.undated
    }

    /// The sum of the debits of each of the last days.
    #[cfg(any(test, feature = "storage"))]
    pub(crate) fn days(&self) -> impl Iterator<Item = (Day, Debit)> + '_ {
        self.days.iter().map(|(day, spent)| (*day, *spent))
    }

    /// The server's day as last accepted; `None`: never.
    pub(crate) fn today(&self) -> Option<Day> {
        self.today
    }

    /// The time for terms that end: `now`, but no earlier than the server's day.
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        now.max(self.today.map_or(Timestamp::default(), Timestamp::start_of))
    }

    /// Whether a day is another one than was last accepted: a later one, or one that shows a lie.
    pub(crate) fn is_news(&self, day: Day) -> bool {
        self.today.is_none_or(|today| today < day) || self.is_lie_before(day)
    }

    /// Whether the day that was last accepted can't have come by the time of this one.
    fn is_lie_before(&self, day: Day) -> bool {
        self.today.is_some_and(|today| day.forward(DAY_SKEW) < today)
    }

    /// Accepts the server's day, and gives it to `settled` of the debits without one.
    ///
    /// A day before the last accepted one means that a server once lied. What was given a later day
    /// gets this one, and stays for a whole window more.
    pub(crate) fn hear(&mut self, day: Day, settled: Debit) {
        if self.is_lie_before(day) {
            let later = self.days.split_off(&day.forward(1)).into_values();
            let later = later.fold(Debit::ZERO, Debit::saturating_add);
            self.add(day, later);
            self.today = Some(day);
        }
        let today = self.today.map_or(day, |today| today.max(day));
        self.today = Some(today);
        let settled = settled.min(self.undated);
        self.undated = self.undated.saturating_sub(settled);
        self.add(today, settled);
        // First day of the longest window that ends today.
        self.days = self.days.split_off(&today.back(Budget::WINDOW_DAYS_MAX - 1));
    }

    fn add(&mut self, day: Day, debits: Debit) {
        if debits != Debit::ZERO {
            let spent = self.days.entry(day).or_default();
            *spent = spent.saturating_add(debits);
        }
    }

    /// The privacy loss so far.
    pub(crate) fn spent(&self, budget: &Budget) -> Spent {
        let first = self.today.unwrap_or(Day::new(0)).back(budget.window_days - 1);
        let window = self.days.range(first..).map(|(_, spent)| *spent);
        Spent::new(window.fold(self.undated, Debit::saturating_add), self.lifetime)
    }

    /// Whether the budget has room for a report of this price.
    pub(crate) fn admits(&self, price: Debit, budget: &Budget) -> Result<(), Exhausted> {
        let spent = self.spent(budget);
        let local = |spent: NanoNats, cap| has_room(spent, price.local, cap);
        let central = |spent: CentralLoss, cap: CentralLoss| {
            has_room(spent.epsilon, price.central, cap.epsilon)
                && has_room_for_delta(spent.delta, price.delta, cap.delta)
        };
        if !local(spent.lifetime, budget.lifetime) {
            Err(Exhausted::Lifetime)
        } else if !central(spent.central_lifetime, budget.central_lifetime) {
            Err(Exhausted::CentralLifetime)
        } else if !local(spent.window, budget.window) {
            Err(Exhausted::Window)
        } else if !central(spent.central_window, budget.central_window) {
            Err(Exhausted::CentralWindow)
        } else {
            Ok(())
        }
    }

    /// Debits the price of a report.
    pub(crate) fn debit(&mut self, price: Debit) {
        self.lifetime = self.lifetime.saturating_add(price);
        self.undated = self.undated.saturating_add(price);
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

#[cfg(test)]
mod tests {
    use bandana_shared::accounting::delta::Delta;

    use super::*;

    const PRICE: Debit = Debit::unshuffled(NanoNats::new(1_000_000_000));

    fn budget(window: f64, days: u32, lifetime: f64) -> Budget {
        let loss = |nats| PrivacyLoss::new(nats).unwrap();
        Budget::new(loss(window), days, loss(lifetime)).unwrap()
    }

    /// Debits as often as the budget allows, and has all of it settled on `day`.
    fn spend(ledger: &mut Ledger, day: u32, budget: &Budget) -> (u32, Exhausted) {
        ledger.hear(Day::new(day), Debit::ZERO);
        for count in 0.. {
            if let Err(exhausted) = ledger.admits(PRICE, budget) {
                ledger.hear(Day::new(day), ledger.undated());
                return (count, exhausted);
            }
            ledger.debit(PRICE);
        }
        unreachable!("every budget ends")
    }

    #[test]
    fn no_run_of_days_exceeds_the_cap_of_a_window() {
        let budget = budget(3.5, 3, 1000.0);
        let mut ledger = Ledger::default();
        let per_day: Vec<u32> = (100..140).map(|day| spend(&mut ledger, day, &budget).0).collect();
        assert!(per_day.windows(3).all(|days| days.iter().sum::<u32>() <= 3), "{per_day:?}");
        assert_eq!(per_day.iter().sum::<u32>(), 14 * 3);
    }

    #[test]
    fn the_lifetime_ends_once() {
        let budget = budget(3.0, 1, 10.0);
        let mut ledger = Ledger::default();
        let total: u32 = (0..1000).map(|day| spend(&mut ledger, day, &budget).0).sum();
        assert_eq!(total, 10);
        assert_eq!(spend(&mut ledger, 5000, &budget), (0, Exhausted::Lifetime));
        assert_eq!(ledger.spent(&budget).window, NanoNats::ZERO);
    }

    #[test]
    fn what_is_not_settled_is_in_every_window() {
        let budget = budget(2.0, 7, 1000.0);
        let mut ledger = Ledger::default();
        ledger.hear(Day::new(100), Debit::ZERO);
        ledger.debit(PRICE);
        ledger.debit(PRICE);
        for day in [101, 108, 200, 1000] {
            ledger.hear(Day::new(day), Debit::ZERO);
            assert_eq!(ledger.admits(PRICE, &budget), Err(Exhausted::Window), "day {day}");
        }
        // One of them arrived, and counts from the day that the server tells afterwards.
        ledger.hear(Day::new(1001), PRICE);
        for (day, free) in [(1007, 0), (1008, 1)] {
            ledger.hear(Day::new(day), Debit::ZERO);
            assert_eq!(
                ledger.spent(&budget).window.get(),
                (2 - free) * PRICE.local.get(),
                "day {day}"
            );
        }
    }

    #[test]
    fn a_day_that_was_a_lie_ends_with_the_first_true_one() {
        let budget = budget(2.0, 7, 1000.0);
        let mut ledger = Ledger::default();
        assert_eq!(spend(&mut ledger, 1000, &budget).0, 2);
        assert_eq!(spend(&mut ledger, 49_710, &budget).0, 2);
        // What was spent on the false day counts from now on, and no longer than that.
        for day in [1001, 1007] {
            assert_eq!(spend(&mut ledger, day, &budget), (0, Exhausted::Window), "day {day}");
        }
        assert_eq!(spend(&mut ledger, 1008, &budget).0, 2);
    }

    #[test]
    fn days_that_differ_around_midnight_are_no_lie() {
        let mut ledger = Ledger::default();
        ledger.debit(PRICE);
        ledger.hear(Day::new(1001), PRICE);
        ledger.debit(PRICE);
        ledger.hear(Day::new(1000), PRICE);
        assert_eq!(ledger.today(), Some(Day::new(1001)));
        let days: Vec<_> = ledger.days().collect();
        assert_eq!(days, [(Day::new(1001), PRICE.saturating_add(PRICE))]);
    }

    #[test]
    fn caps_are_rounded_down() {
        let tiny = PrivacyLoss::new(1.000_000_000_9).unwrap();
        assert_eq!(Budget::new(tiny, 1, tiny).unwrap().lifetime(), PRICE.local);
        let exact = PrivacyLoss::new(1.0).unwrap();
        assert_eq!(Budget::new(exact, 1, exact).unwrap().lifetime(), PRICE.local);
    }

    #[test]
    fn old_days_are_forgotten() {
        let mut ledger = Ledger::default();
        for day in 0..500 {
            ledger.debit(PRICE);
            ledger.hear(Day::new(day), PRICE);
        }
        assert_eq!(ledger.days().count(), Budget::WINDOW_DAYS_MAX as usize);
        assert_eq!(ledger.lifetime().local.get(), 500 * PRICE.local.get());
    }

    /// A report of `PRICE` whose batch hides it.
    const SHUFFLED: Debit = Debit {
        local: PRICE.local,
        central: NanoNats::new(250_000_000),
        delta: DeltaUnits::new(1),
    };

    fn central(nats: f64, units: u64) -> Guarantee {
        Guarantee::new(PrivacyLoss::new(nats).unwrap(), DeltaUnits::new(units).to_delta())
    }

    #[test]
    fn every_account_has_caps_of_its_own() {
        use Exhausted::{CentralLifetime, CentralWindow, Lifetime, Window};
        let much = central(100.0, 100);
        let local = |window, lifetime| budget(window, 7, lifetime);
        for (budget, price, room, expected) in [
            (local(2.0, 9.0), SHUFFLED, 2, Window),
            (local(9.0, 2.0), SHUFFLED, 2, Lifetime),
            (local(9.0, 9.0).with_central(central(1.0, 100), much), SHUFFLED, 4, CentralWindow),
            (local(9.0, 9.0).with_central(much, central(1.0, 100)), SHUFFLED, 4, CentralLifetime),
            (local(9.0, 9.0).with_central(central(9.0, 3), much), SHUFFLED, 3, CentralWindow),
            (local(9.0, 9.0).with_central(much, central(9.0, 3)), SHUFFLED, 3, CentralLifetime),
            // What nobody shuffles costs the same in both, and no delta.
            (local(9.0, 9.0).with_central(central(3.0, 0), much), PRICE, 3, CentralWindow),
            (local(9.0, 9.0).with_central(much, central(3.0, 0)), PRICE, 3, CentralLifetime),
            (local(9.0, 9.0).with_central(central(9.0, 0), much), SHUFFLED, 0, CentralWindow),
        ] {
            let mut ledger = Ledger::default();
            for _ in 0..room {
                assert_eq!(ledger.admits(price, &budget), Ok(()), "{budget:?}");
                ledger.debit(price);
            }
            assert_eq!(ledger.admits(price, &budget), Err(expected), "{budget:?}");
            // A window ends, a lifetime does not.
            ledger.hear(Day::new(100), ledger.undated());
            ledger.hear(Day::new(107), Debit::ZERO);
            let is_admitted = room > 0 && expected.is_of_window();
            assert_eq!(ledger.admits(price, &budget).is_ok(), is_admitted, "{budget:?}");
        }
    }

    #[test]
    fn caps_of_the_central_account_are_rounded_down_and_the_largest_are_none() {
        let unlimited = budget(1e6, 7, 1e6);
        assert_eq!(unlimited.central_lifetime(), CentralLoss::MAX);
        let delta = Delta::new(1.5 / (1_u128 << 64) as f64).unwrap();
        let cap = Guarantee::new(PrivacyLoss::new(1.000_000_000_9).unwrap(), delta);
        let capped = unlimited.with_central(cap, cap).central_window();
        assert_eq!((capped.epsilon, capped.delta), (PRICE.local, DeltaUnits::new(1)));

        let mut ledger = Ledger::default();
        let most = Debit { local: NanoNats::ZERO, central: NanoNats::MAX, delta: DeltaUnits::MAX };
        for _ in 0..3 {
            assert_eq!(ledger.admits(most, &unlimited), Ok(()));
            ledger.debit(most);
        }
        assert_eq!(ledger.lifetime(), most, "sums stop at the largest number");
    }

    /// Days of a window in the exhaustive search.
    const WINDOW: u32 = 2;

    /// What the search is about.
    struct Search {
        budget: Budget,
        /// The true days.
        days: u32,
        /// The reports in all.
        reports: u64,
        /// The prices that a report can have.
        prices: &'static [Debit],
    }

    /// A device and its server, with reports by how far they have come.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        today: u32,
        device: Device,
        /// The device after the last write that a power cut spares.
        synced: Device,
        /// The price and the day of arrival of each report that is handed out and not settled, if it
        /// has arrived.
        handed_out: Vec<(Debit, Option<u32>)>,
        /// The days and prices of all arrivals.
        arrived: Vec<(u32, Debit)>,
        /// What was settled when a fetch was handed out, and the day that a server has told since.
        asked: Option<(Debit, Option<u32>)>,
        /// A fetch that was handed out before that one, and the day that a server has told it.
        older: Older,
    }

    /// An earlier fetch that may still be answered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Older {
        None,
        Asked,
        Answered(u32),
    }

    impl From<Option<u32>> for Older {
        fn from(answer: Option<u32>) -> Self {
            answer.map_or(Self::Asked, Self::Answered)
        }
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Device {
        lifetime: Debit,
        undated: Debit,
        days: Vec<(u32, Debit)>,
        today: Option<u32>,
        /// The prices of reports that are drawn and not handed out.
        drawn: Vec<Debit>,
    }

    impl Device {
        fn ledger(&self) -> Ledger {
            let days = self.days.iter().map(|(day, spent)| (Day::new(*day), *spent));
            let sums = (self.lifetime, self.undated);
            Ledger::from_parts(sums, days.collect(), self.today.map(Day::new))
        }

        fn keep(&mut self, ledger: &Ledger) {
            self.lifetime = ledger.lifetime();
            self.undated = ledger.undated();
            self.days = ledger.days().map(|(day, spent)| (day.get(), spent)).collect();
            self.today = ledger.today().map(Day::get);
        }
    }

    fn sum(prices: impl Iterator<Item = Debit>) -> Debit {
        prices.fold(Debit::ZERO, Debit::saturating_add)
    }

    impl World {
        fn settled(&self) -> Debit {
            let handed_out = self.handed_out.iter().map(|(price, _)| *price);
            let unsettled = self.device.drawn.iter().copied().chain(handed_out);
            self.device.undated.saturating_sub(sum(unsettled))
        }

        /// All worlds that one step leads to: of time, of the user, of the network, of the device's
        /// clock, which decides whether a true day is accepted, and of its power.
        fn next(&self, search: &Search) -> Vec<Self> {
            let mut next = Vec::new();
            let mut step = |change: &dyn Fn(&mut Self)| {
                let mut world = self.clone();
                change(&mut world);
                let key = |price: Debit| (price.local, price.central, price.delta);
                world.device.drawn.sort_unstable_by_key(|price| key(*price));
                world.handed_out.sort_unstable_by_key(|(price, arrival)| (key(*price), *arrival));
                world.arrived.sort_unstable_by_key(|(day, price)| (*day, key(*price)));
                next.push(world);
            };
            if self.today < search.days {
                step(&|world| world.today += 1);
            }
            let is_new = self.device.lifetime.local.get() < search.reports * PRICE.local.get();
            for price in search.prices.iter().filter(|_| is_new) {
                let mut ledger = self.device.ledger();
                if ledger.admits(*price, &search.budget).is_ok() {
                    ledger.debit(*price);
                    step(&|world| {
                        world.device.keep(&ledger);
                        world.device.drawn.push(*price);
                    });
                }
            }
            for place in 0..self.device.drawn.len() {
                // What is handed out is synced.
                step(&|world| {
                    let price = world.device.drawn.remove(place);
                    world.handed_out.push((price, None));
                    world.synced = world.device.clone();
                });
            }
            for place in 0..self.handed_out.len() {
                match self.handed_out[place] {
                    (price, None) => step(&|world| {
                        world.handed_out[place].1 = Some(world.today);
                        world.arrived.push((world.today, price));
                    }),
                    // The device hears of it, and then or never forgets it.
                    (_, Some(_)) => step(&|world| {
                        world.handed_out.remove(place);
                    }),
                }
            }
            self.fetches(&mut step);
            step(&|world| {
                world.device = world.synced.clone();
                (world.asked, world.older) = (None, Older::None);
            });
            next
        }

        /// The steps of fetches, and of their answers.
        fn fetches(&self, step: &mut impl FnMut(&dyn Fn(&mut Self))) {
            step(&|world| {
                // The answer to the one before may still come.
                let is_only = world.asked.is_none() && world.older == Older::None;
                world.older = world.asked.map_or(world.older, |(_, answer)| answer.into());
                world.asked = Some((if is_only { world.settled() } else { Debit::ZERO }, None));
            });
            match self.older {
                Older::Asked => step(&|world| world.older = Older::Answered(world.today)),
                Older::Answered(day) => step(&|world| {
                    let settled = world.asked.take().map_or(Debit::ZERO, |(settled, _)| settled);
                    let mut ledger = world.device.ledger();
                    ledger.hear(Day::new(day), settled.min(world.settled()));
                    world.device.keep(&ledger);
                    world.older = Older::None;
                }),
                Older::None => {}
            }
            match self.asked {
                Some((settled, None)) => {
                    step(&|world| world.asked = Some((settled, Some(world.today))));
                }
                Some((settled, Some(day))) => step(&|world| {
                    let mut ledger = world.device.ledger();
                    ledger.hear(Day::new(day), settled.min(world.settled()));
                    world.device.keep(&ledger);
                    world.asked = None;
                }),
                None => {}
            }
        }
    }

    /// Visits all worlds, and returns how many there are and how often each cap was met.
    fn search(search: &Search, cap: Debit) -> (usize, [u32; 3]) {
        let device = Device {
            lifetime: Debit::ZERO,
            undated: Debit::ZERO,
            days: Vec::new(),
            today: None,
            drawn: Vec::new(),
        };
        let first = World {
            today: 1,
            synced: device.clone(),
            device,
            handed_out: Vec::new(),
            arrived: Vec::new(),
            asked: None,
            older: Older::None,
        };
        let mut seen = std::collections::HashSet::from([first.clone()]);
        let mut waiting = vec![first];
        let mut full = [0_u32; 3];
        while let Some(world) = waiting.pop() {
            for mut next in world.next(search) {
                for last in 1..=search.days {
                    let window = last.saturating_sub(WINDOW - 1)..=last;
                    let arrived = next.arrived.iter().filter(|(day, _)| window.contains(day));
                    let arrived = sum(arrived.map(|(_, price)| *price));
                    let fits = arrived.local <= cap.local
                        && arrived.central <= cap.central
                        && arrived.delta <= cap.delta;
                    assert!(fits, "{next:?}\nafter {world:?}");
                    full[0] += u32::from(arrived.local == cap.local);
                    full[1] += u32::from(arrived.central == cap.central);
                    full[2] += u32::from(arrived.delta == cap.delta);
                }
                // Windows that are over tell no two worlds apart.
                let oldest = next.today.saturating_sub(WINDOW - 1);
                next.arrived.retain(|(day, _)| *day >= oldest);
                if seen.insert(next.clone()) {
                    waiting.push(next);
                }
            }
        }
        (seen.len(), full)
    }

    /// With a server that tells the truth, whatever the clock, the network, the user and the battery
    /// do, and in whatever order.
    #[test]
    fn no_order_of_events_lets_more_arrive_in_a_window_than_its_cap() {
        let budget = budget(2.0, WINDOW, 1000.0);
        let cap = PRICE.saturating_add(PRICE);
        let (worlds, full) = search(&Search { budget, days: 5, reports: 5, prices: &[PRICE] }, cap);
        assert!(worlds > 10_000 && full[0] > 1000, "{worlds} worlds, {full:?}");
    }

    /// The same of all three sums, with reports of both kinds: two that are not shuffled exceed the
    /// central cap, two that are shuffled that of δ, and three of any kind the local one.
    #[test]
    fn no_order_of_events_lets_more_arrive_than_any_cap_of_either_account() {
        let window = central(1.25, 1);
        let budget = budget(2.0, WINDOW, 1000.0).with_central(window, central(1000.0, 1000));
        let cap = PRICE.saturating_add(SHUFFLED);
        let prices = &[PRICE, SHUFFLED];
        let (worlds, full) = search(&Search { budget, days: 4, reports: 3, prices }, cap);
        let is_met = full.iter().all(|times| *times > 1000);
        assert!(worlds > 10_000 && is_met, "{worlds} worlds, {full:?}");
    }
}
