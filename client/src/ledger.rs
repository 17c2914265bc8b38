//! The ledger: what an installation has spent of its budget, and on which days.

use std::collections::BTreeMap;

use bandana_shared::identity::Day;

use crate::budget::{Budget, Exhausted, Spent};
use crate::debit::Debit;
use crate::time::Timestamp;

/// How far the days of two replicas may differ around midnight.
pub(crate) const DAY_SKEW: u32 = 1;

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
        let first = self.today.unwrap_or(Day::new(0)).back(budget.window_days() - 1);
        let window = self.days.range(first..).map(|(_, spent)| *spent);
        Spent::new(window.fold(self.undated, Debit::saturating_add), self.lifetime)
    }

    /// Whether the budget has room for a report of this price.
    pub(crate) fn admits(&self, price: Debit, budget: &Budget) -> Result<(), Exhausted> {
        budget.has_room(self.spent(budget), price)
    }

    /// Debits the price of a report.
    pub(crate) fn debit(&mut self, price: Debit) {
        self.lifetime = self.lifetime.saturating_add(price);
        self.undated = self.undated.saturating_add(price);
    }
}

mod dropped;
#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;

pub(crate) use dropped::Dropped;
