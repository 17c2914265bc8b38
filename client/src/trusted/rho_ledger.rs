//! The ledger of ρ: how many rewards one person has disclosed to each experiment, and on which days.
//!
//! # Why k² times the largest price
//! Let each reward of an experiment be protected by ρ: whoever sees the outputs for two histories
//! that differ in one reward can tell them apart by a Rényi divergence D_α of at most ρ α, for
//! every α > 1. Change k rewards one after the other. For distributions P, R, Q and every real
//! t > 1, Hölder's inequality for ∫ R (P/R)^α (R/Q)^(α-1), with the exponents
//! (tα - 1)/(α(t - 1)) and (tα - 1)/(α - 1), gives the triangle-like inequality of Bun and Steinke
//! (2016, lemma 5.2; there for integers)
//!
//! ```text
//! D_α(P‖Q) <= tα/(tα - 1) D_(tα-1)/(t-1)(P‖R) + D_tα(R‖Q).
//! ```
//!
//! If P, R are within a and R, Q within b, the right side is at most α (a t/(t - 1) + b t), which
//! is α (√a + √b)² at t = 1 + √(a/b). By induction rewards of prices ρ_1 to ρ_k cost at most
//! (√ρ_1 + ... + √ρ_k)², which is at most k² max ρ_i (for equal prices it is k² ρ: proposition
//! 1.9). The ledger counts k² max ρ_i: it is exact in integers, the same for a server that keeps
//! its price, and it also covers one that protects older rewards by a newer price only. Experiments
//! compose by addition (lemma 1.7), also where the choice of one depends on the outputs of another.

use std::collections::{BTreeMap, BTreeSet};

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, ExperimentId};

use super::budget::{Cap, RhoBudget, RhoExhausted, RhoSpent, SpentOnExperiment};
use crate::budget::Budget;
use crate::ledger::DAY_SKEW;

/// Days whose rewards are known: enough for each window with a day of the longest window that ends
/// today.
const DAYS_KNOWN: u32 = 2 * Budget::WINDOW_DAYS_MAX - 1;

/// The rewards disclosed to one experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// The largest price of a reward so far.
    pub(crate) price: NanoNats,
    /// Since the installation.
    pub(crate) rewards: u64,
    /// Those of each of the last days, by the server's day.
    pub(crate) days: BTreeMap<Day, u64>,
}

impl Account {
    /// k² times the price, in billionths.
    fn cost(&self, rewards: u64) -> u128 {
        let rewards = u128::from(rewards);
        rewards.saturating_mul(rewards).saturating_mul(u128::from(self.price.get()))
    }

    /// Rewards of these days.
    fn within(&self, first: Day, last: Day) -> u64 {
        self.days.range(first..=last).fold(0, |sum, (_, rewards)| sum.saturating_add(*rewards))
    }

    fn add(&mut self, day: Day, rewards: u64) {
        if rewards > 0 {
            let of_day = self.days.entry(day).or_default();
            *of_day = of_day.saturating_add(rewards);
        }
    }
}

/// The debit of a disclosure that may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The day that it counts on.
    pub(crate) day: Day,
    /// The largest price at which it was sent.
    pub(crate) price: NanoNats,
}

/// The account of each experiment.
type Accounts = BTreeMap<ExperimentId, Account>;

/// The account of each experiment, and what waits although it is counted. Nothing is ever taken
/// back: an attempt that fails may waste budget.
///
/// An experiment is known by its id alone, so no new digest, revision or server begins its count
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RhoLedger {
    pub(crate) accounts: Accounts,
    /// The server's day as last accepted; `None`: never.
    pub(crate) today: Option<Day>,
    /// The waiting disclosures that are counted.
    pub(crate) debited: BTreeMap<[u8; 16], Counted>,
}

/// A ρ in billionths, rounded up. Beyond 1.8e10 there is no difference.
pub(crate) fn price_of(rho: Rho) -> NanoNats {
    let loss = PrivacyLoss::new(rho.get()).unwrap_or(PrivacyLoss::UNBOUNDED);
    NanoNats::from_loss(loss).unwrap_or(NanoNats::MAX)
}

impl RhoLedger {
    /// Accepts the server's day. A day before the last accepted one means that a server or a clock
    /// was wrong: what has a later day gets this one, and stays for a whole window more.
    pub(crate) fn hear(&mut self, day: Day) {
        let is_lie = self.today.is_some_and(|today| day.forward(DAY_SKEW) < today);
        let today = if is_lie { day } else { self.today.map_or(day, |today| today.max(day)) };
        self.today = Some(today);
        for account in self.accounts.values_mut() {
            if is_lie {
                let later = account.days.split_off(&day.forward(1)).into_values();
                let later = later.fold(0, u64::saturating_add);
                account.add(day, later);
            }
            account.days = account.days.split_off(&today.back(DAYS_KNOWN - 1));
        }
    }

    /// Counts a reward of this price on today's day. Returns the day.
    pub(crate) fn debit(
        &mut self,
        id: &ExperimentId,
        price: NanoNats,
        budget: &RhoBudget,
    ) -> Result<Day, RhoExhausted> {
        let today = self.today.unwrap_or(Day::new(0));
        let mut after = self.accounts.get(id).cloned().unwrap_or_default();
        after.price = after.price.max(price);
        after.rewards = after.rewards.saturating_add(1);
        after.add(today, 1);
        self.admit(id, after, budget).map(|()| today)
    }

    /// Has all rewards of an experiment cost this price, if it is more than the one at which
    /// `counted` was: that is to be sent again. Returns whether it is more.
    pub(crate) fn raise(
        &mut self,
        id: &ExperimentId,
        price: NanoNats,
        counted: Counted,
        budget: &RhoBudget,
    ) -> Result<bool, RhoExhausted> {
        if price <= counted.price {
            return Ok(false);
        }
        let day = counted.day;
        let mut after = self.accounts.get(id).cloned().unwrap_or_default();
        let oldest = self.today.unwrap_or(day).back(Budget::WINDOW_DAYS_MAX - 1);
        if budget.window() != NanoNats::MAX && day < oldest {
            // What its windows have cost is no longer known.
            let (of, cap) = (Cap::Window { days: budget.window_days() }, budget.window());
            let (rewards, needed, left) = (after.rewards, price, NanoNats::ZERO);
            return Err(RhoExhausted { of, rewards, needed, left, cap, passes: false });
        }
        if price <= after.price {
            return Ok(true);
        }
        after.price = price;
        self.admit(id, after, budget).map(|()| true)
    }

    /// Replaces an account, if the lifetime and every window that is still known stay within their
    /// caps.
    fn admit(
        &mut self,
        id: &ExperimentId,
        after: Account,
        budget: &RhoBudget,
    ) -> Result<(), RhoExhausted> {
        let (rewards, one) = (after.rewards, after.cost(1));
        let mut next = self.accounts.clone();
        next.insert(id.clone(), after);
        let refusal = |of, cap: NanoNats, costs: (u128, u128)| {
            let (before, total) = costs;
            let is_within = cap == NanoNats::MAX || total <= u128::from(cap.get());
            let exhausted = RhoExhausted {
                of,
                rewards,
                needed: nano(total.saturating_sub(before)),
                left: cap.saturating_sub(nano(before)),
                cap,
                passes: of != Cap::Lifetime && one <= u128::from(cap.get()),
            };
            if is_within { Ok(()) } else { Err(exhausted) }
        };
        let lifetimes = (lifetime(&self.accounts), lifetime(&next));
        refusal(Cap::Lifetime, budget.lifetime(), lifetimes)?;
        // A window that costs most ends on a day with a reward.
        let ends: BTreeSet<Day> = next.values().flat_map(|of| of.days.keys().copied()).collect();
        for end in ends {
            let days = budget.window_days();
            let first = end.back(days - 1);
            let windows = (window(&self.accounts, first, end), window(&next, first, end));
            refusal(Cap::Window { days }, budget.window(), windows)?;
        }
        self.accounts = next;
        Ok(())
    }

    /// The first and the last day of the window that ends today.
    fn window(&self, budget: &RhoBudget) -> (Day, Day) {
        let today = self.today.unwrap_or(Day::new(0));
        (today.back(budget.window_days() - 1), today)
    }

    /// What was spent, and what is left.
    pub(crate) fn spent(&self, budget: &RhoBudget) -> RhoSpent {
        let (first, today) = self.window(budget);
        let window = nano(window(&self.accounts, first, today));
        let lifetime = nano(lifetime(&self.accounts));
        let left = |cap: NanoNats, spent: NanoNats| match cap {
            NanoNats::MAX => cap,
            _ => cap.saturating_sub(spent),
        };
        RhoSpent {
            window,
            lifetime,
            window_left: left(budget.window(), window),
            lifetime_left: left(budget.lifetime(), lifetime),
            rewards: self.accounts.values().fold(0, |sum, of| sum.saturating_add(of.rewards)),
        }
    }

    /// What was spent on one experiment.
    pub(crate) fn spent_on(&self, id: &ExperimentId, budget: &RhoBudget) -> SpentOnExperiment {
        let Some(account) = self.accounts.get(id) else { return SpentOnExperiment::default() };
        let (first, today) = self.window(budget);
        SpentOnExperiment {
            rewards: account.rewards,
            rewards_in_window: account.within(first, today),
            price: account.price,
            lifetime: nano(account.cost(account.rewards)),
        }
    }
}

/// The cost of all rewards, in billionths.
fn lifetime(accounts: &Accounts) -> u128 {
    let costs = accounts.values().map(|account| account.cost(account.rewards));
    costs.fold(0, u128::saturating_add)
}

/// The cost of the rewards of these days, in billionths.
fn window(accounts: &Accounts, first: Day, last: Day) -> u128 {
    let costs = accounts.values().map(|account| account.cost(account.within(first, last)));
    costs.fold(0, u128::saturating_add)
}

fn nano(cost: u128) -> NanoNats {
    NanoNats::new(u64::try_from(cost).unwrap_or(u64::MAX))
}
