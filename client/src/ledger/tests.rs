//! Sums, caps and days of a ledger.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;

use super::*;
use crate::debit::CentralLoss;

pub(super) const PRICE: Debit = Debit::unshuffled(NanoNats::new(1_000_000_000));

pub(super) fn budget(window: f64, days: u32, lifetime: f64) -> Budget {
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
        assert_eq!(ledger.spent(&budget).window.get(), (2 - free) * PRICE.local.get(), "day {day}");
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
pub(super) const SHUFFLED: Debit =
    Debit { local: PRICE.local, central: NanoNats::new(250_000_000), delta: DeltaUnits::new(1) };

pub(super) fn central(nats: f64, units: u64) -> Guarantee {
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
