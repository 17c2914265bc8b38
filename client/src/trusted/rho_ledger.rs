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

    /// Rewards from this day on.
    fn since(&self, first: Day) -> u64 {
        self.days.range(first..).fold(0, |sum, (_, rewards)| sum.saturating_add(*rewards))
    }

    fn add(&mut self, day: Day, rewards: u64) {
        if rewards > 0 {
            let of_day = self.days.entry(day).or_default();
            *of_day = of_day.saturating_add(rewards);
        }
    }
}

/// The account of each experiment. Nothing is ever taken back: an attempt that fails may waste
/// budget.
///
/// An experiment is known by its id alone, so no new digest, revision or server begins its count
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RhoLedger {
    pub(crate) accounts: BTreeMap<ExperimentId, Account>,
    /// The server's day as last accepted; `None`: never.
    pub(crate) today: Option<Day>,
    /// The names of waiting disclosures that are counted.
    pub(crate) debited: BTreeSet<[u8; 16]>,
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
            account.days = account.days.split_off(&today.back(Budget::WINDOW_DAYS_MAX - 1));
        }
    }

    /// Counts `more` rewards of this price, 1 or, for one that is counted already, 0. Returns
    /// whether the ledger has changed.
    pub(crate) fn debit(
        &mut self,
        id: &ExperimentId,
        price: NanoNats,
        more: u64,
        budget: &RhoBudget,
    ) -> Result<bool, RhoExhausted> {
        let before = self.accounts.get(id).cloned().unwrap_or_default();
        if more == 0 && price <= before.price {
            return Ok(false);
        }
        let mut after = before.clone();
        after.price = before.price.max(price);
        after.rewards = before.rewards.saturating_add(more);
        after.add(self.today.unwrap_or(Day::new(0)), more);
        let first = self.first_of_window(budget);
        for (of, cap) in [
            (Cap::Lifetime, budget.lifetime()),
            (Cap::Window { days: budget.window_days() }, budget.window()),
        ] {
            let is_window = of != Cap::Lifetime;
            let cost = |account: &Account| {
                let rewards = if is_window { account.since(first) } else { account.rewards };
                account.cost(rewards)
            };
            let total = self.total(cost);
            let needed = cost(&after).saturating_sub(cost(&before));
            if cap != NanoNats::MAX && total.saturating_add(needed) > u128::from(cap.get()) {
                return Err(RhoExhausted {
                    of,
                    rewards: after.rewards,
                    needed: nano(needed),
                    left: cap.saturating_sub(nano(total)),
                    cap,
                    passes: is_window && after.cost(1) <= u128::from(cap.get()),
                });
            }
        }
        self.accounts.insert(id.clone(), after);
        Ok(true)
    }

    fn total(&self, cost: impl Fn(&Account) -> u128) -> u128 {
        self.accounts.values().map(cost).fold(0, u128::saturating_add)
    }

    fn first_of_window(&self, budget: &RhoBudget) -> Day {
        self.today.unwrap_or(Day::new(0)).back(budget.window_days() - 1)
    }

    /// What was spent, and what is left.
    pub(crate) fn spent(&self, budget: &RhoBudget) -> RhoSpent {
        let first = self.first_of_window(budget);
        let window = nano(self.total(|account| account.cost(account.since(first))));
        let lifetime = nano(self.total(|account| account.cost(account.rewards)));
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
        SpentOnExperiment {
            rewards: account.rewards,
            rewards_in_window: account.since(self.first_of_window(budget)),
            price: account.price,
            lifetime: nano(account.cost(account.rewards)),
        }
    }
}

fn nano(cost: u128) -> NanoNats {
    NanoNats::new(u64::try_from(cost).unwrap_or(u64::MAX))
}
