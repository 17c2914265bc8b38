//! The planner: the number and size of reports that fit a budget.

use crate::accounting::guarantee::Guarantee;
use crate::accounting::nano_nats::NanoNats;
use crate::accounting::optimal::OptimalComposition;
use crate::accounting::{advanced, basic};
use crate::epsilon::Epsilon;

/// A method of accounting for many reports of the same loss.
///
/// ```
/// use bandana_shared::accounting::{delta::Delta, guarantee::Guarantee, loss::PrivacyLoss};
/// use bandana_shared::accounting::planner::Accountant;
/// use bandana_shared::epsilon::Epsilon;
/// let budget = Guarantee::new(PrivacyLoss::new(4.0)?, Delta::new(1e-6)?);
/// let report = Epsilon::new(0.0625)?;
/// assert_eq!(Accountant::Basic.reports(report, budget), 64);
/// assert_eq!(Accountant::Advanced.reports(report, budget), 130);
/// assert_eq!(Accountant::Optimal.reports(report, budget), 184);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accountant {
    /// [`basic::repeat`]; uses no δ. The only one for a ledger.
    Basic,
    /// [`advanced::sharp`], with the budget's δ as slack.
    Advanced,
    /// [`OptimalComposition`], and beyond its number of rounds the better of the other two. It
    /// admits everything that either of them admits.
    Optimal,
}

impl Accountant {
    /// Whether `reports` reports of loss `loss` are shown to fit `budget`.
    pub fn admits(self, loss: Epsilon, reports: u64, budget: Guarantee) -> bool {
        let basic = || basic::repeat(loss.into(), reports) <= budget.loss();
        let advanced = || advanced::sharp(loss.into(), reports, budget.delta()) <= budget.loss();
        match self {
            Self::Basic => basic(),
            Self::Advanced => advanced(),
            Self::Optimal => {
                let exact = OptimalComposition::new(loss, reports);
                basic()
                    || advanced()
                    || exact.is_ok_and(|exact| exact.delta(budget.loss()) <= budget.delta())
            }
        }
    }

    /// The largest number of reports of loss `loss` that is shown to fit `budget`, or `u64::MAX` if
    /// every number fits.
    pub fn reports(self, loss: Epsilon, budget: Guarantee) -> u64 {
        let fits = |reports| self.admits(loss, reports, budget);
        let (mut low, mut high) = (0, 1);
        while fits(high) {
            if high == u64::MAX {
                return high;
            }
            (low, high) = (high, high.saturating_mul(2));
        }
        // fits(low), or low is 0, and not fits(high).
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The largest loss with which `reports` reports are shown to fit `budget`, at most
    /// [`Epsilon::MAX`], or `None` if even [`Epsilon::MIN`] doesn't fit.
    ///
    /// ```
    /// use bandana_shared::accounting::{delta::Delta, guarantee::Guarantee, loss::PrivacyLoss};
    /// use bandana_shared::accounting::planner::Accountant;
    /// let budget = Guarantee::new(PrivacyLoss::new(4.0)?, Delta::new(1e-6)?);
    /// let basic = Accountant::Basic.largest_loss(1000, budget).unwrap();
    /// let optimal = Accountant::Optimal.largest_loss(1000, budget).unwrap();
    /// assert!((basic.get() - 0.004).abs() < 1e-12);
    /// assert!(optimal.get() > 0.026);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn largest_loss(self, reports: u64, budget: Guarantee) -> Option<Epsilon> {
        let fits = |bits: u64| {
            let loss = Epsilon::new(f64::from_bits(bits)).ok()?;
            self.admits(loss, reports, budget).then_some(loss)
        };
        // Positive floats are ordered as their bits are.
        let (mut low, mut high) = (Epsilon::MIN.to_bits(), Epsilon::MAX.to_bits());
        let mut largest = fits(low)?;
        if let Some(loss) = fits(high) {
            return Some(loss);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if let Some(loss) = fits(middle) {
                (low, largest) = (middle, loss);
            } else {
                high = middle;
            }
        }
        Some(largest)
    }
}

/// The largest loss whose price lets `reports` reports fit a ledger's `cap`, at most
/// [`Epsilon::MAX`], or `None` if even [`Epsilon::MIN`] costs more.
///
/// ```
/// use bandana_shared::accounting::{nano_nats::NanoNats, planner};
/// let cap = NanoNats::new(10_000_000_000);
/// let loss = planner::largest_loss_in_ledger(3, cap).unwrap();
/// let price = NanoNats::from_epsilon(loss);
/// assert_eq!(price.get(), 3_333_333_333);
/// assert_eq!(cap.reports(price), 3);
/// ```
pub fn largest_loss_in_ledger(reports: u64, cap: NanoNats) -> Option<Epsilon> {
    if reports == 0 {
        return Epsilon::new(Epsilon::MAX).ok();
    }
    let affordable = cap.price_of(reports);
    let mut nats = affordable.to_loss().get().min(Epsilon::MAX);
    loop {
        let loss = Epsilon::new(nats).ok()?;
        if NanoNats::from_epsilon(loss) <= affordable {
            return Some(loss);
        }
        nats = nats.next_down();
    }
}
