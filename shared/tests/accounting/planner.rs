//! The planner.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::accounting::optimal::ROUNDS_MAX;
use bandana_shared::accounting::planner::{self, Accountant};
use bandana_shared::epsilon::Epsilon;
use proptest::prelude::*;

use crate::accounting::cases::{SINGLES, delta, epsilon, loss, scales, seeded};
use crate::accounting::exact::{delta_of_equal, real, whole};

const ACCOUNTANTS: [Accountant; 3] = [Accountant::Basic, Accountant::Advanced, Accountant::Optimal];

fn budget(nats: f64, probability: f64) -> Guarantee {
    Guarantee::new(loss(nats), delta(probability))
}

#[test]
fn budgets_for_nothing_and_for_everything() {
    for accountant in ACCOUNTANTS {
        let one = epsilon(1.0);
        assert_eq!(accountant.reports(one, budget(0.0, 1e-9)), 0, "{accountant:?}");
        let unlimited = Guarantee::new(PrivacyLoss::UNBOUNDED, delta(1e-9));
        assert_eq!(accountant.reports(one, unlimited), u64::MAX, "{accountant:?}");
        assert_eq!(accountant.largest_loss(7, budget(1e-9, 1e-30)), None, "{accountant:?}");
        assert_eq!(accountant.largest_loss(0, budget(0.0, 0.0)), Some(epsilon(Epsilon::MAX)));
        assert_eq!(accountant.largest_loss(9, unlimited), Some(epsilon(Epsilon::MAX)));
        assert!(accountant.admits(one, 0, budget(0.0, 0.0)));
    }
    // Without δ, basic composition is all there is.
    let pure = Guarantee::pure(loss(10.0));
    let reports = |accountant: Accountant| accountant.reports(epsilon(0.5), pure);
    assert_eq!(ACCOUNTANTS.map(reports), [20, 0, 20]);
    // With all of δ, the exact composition admits as many as it takes.
    let vacuous = Guarantee::new(PrivacyLoss::ZERO, Delta::VACUOUS);
    assert_eq!(Accountant::Optimal.reports(epsilon(32.0), vacuous), ROUNDS_MAX.into());
}

#[test]
fn optimal_admits_what_others_admit_beyond_its_own_range() {
    let smallest = epsilon(Epsilon::MIN);
    let wide = budget(20.0, 1e-9);
    let [basic, advanced, optimal] =
        ACCOUNTANTS.map(|accountant| accountant.reports(smallest, wide));
    assert_eq!(basic, 20 << 20);
    assert!(advanced > 1 << 32);
    assert_eq!(optimal, advanced);
}

#[test]
fn basic_plans_are_exact() {
    // The float 0.1 is above a tenth: ten reports don't fit a nat.
    assert_eq!(Accountant::Basic.reports(epsilon(0.1), budget(1.0, 0.0)), 9);
    assert_eq!(Accountant::Basic.reports(epsilon(0.125), budget(1.0, 0.0)), 8);
    let shared = Accountant::Basic.largest_loss(8, budget(1.0, 0.0)).unwrap();
    assert_eq!(shared.get(), 0.125);
}

#[test]
fn a_ledger_is_shared_in_whole_nano_nats() {
    let cap = NanoNats::new(1_000_000_000);
    for reports in [1, 3, 7, 1000, 1_000_000] {
        let largest = planner::largest_loss_in_ledger(reports, cap).unwrap();
        let price = NanoNats::from_epsilon(largest);
        assert!(cap.reports(price) >= reports, "{reports}");
        let wider = epsilon(largest.get().next_up());
        assert!(cap.reports(NanoNats::from_epsilon(wider)) < reports, "{reports}");
    }
    assert_eq!(planner::largest_loss_in_ledger(2_000_000, cap), None);
    assert_eq!(planner::largest_loss_in_ledger(1, NanoNats::ZERO), None);
    let most = Some(epsilon(Epsilon::MAX));
    assert_eq!(planner::largest_loss_in_ledger(1, NanoNats::MAX), most);
    assert_eq!(planner::largest_loss_in_ledger(0, NanoNats::ZERO), most);
}

proptest! {
    #![proptest_config(seeded(40, 77))]

    #[test]
    fn plans_fit_their_budget_and_one_report_more_does_not(
        index in 3..SINGLES.len(), nats in scales(-3.0, 6.0), slack in scales(-60.0, -3.0)
    ) {
        let (single, budget) = (SINGLES[index], budget(nats, slack));
        let [basic, advanced, optimal] =
            ACCOUNTANTS.map(|accountant| accountant.reports(epsilon(single), budget));
        prop_assert!(optimal >= basic.max(advanced));
        for (accountant, reports) in ACCOUNTANTS.into_iter().zip([basic, advanced, optimal]) {
            prop_assert!(accountant.admits(epsilon(single), reports, budget));
            prop_assert!(!accountant.admits(epsilon(single), reports + 1, budget));
        }
        prop_assert!(whole(basic) * real(single) <= real(nats));
        prop_assert!(whole(basic + 1) * real(single) > real(nats));
        // Exactly as many as there could be, but for a tie.
        prop_assume!(optimal <= 20_000);
        let exact = |reports: u64| delta_of_equal(single, u32::try_from(reports).unwrap(), nats);
        prop_assert!(exact(optimal) <= real(slack));
        prop_assert!(exact(optimal + 1) > real(slack * (1.0 - 1e-9)));
    }

    #[test]
    fn the_largest_loss_fits_and_the_next_float_does_not(
        reports in 1..2000_u64, nats in scales(-2.0, 6.0), slack in scales(-60.0, -3.0)
    ) {
        let budget = budget(nats, slack);
        let largest = ACCOUNTANTS.map(|accountant| accountant.largest_loss(reports, budget));
        for (accountant, largest) in ACCOUNTANTS.into_iter().zip(largest) {
            let Some(largest) = largest else {
                prop_assert!(!accountant.admits(epsilon(Epsilon::MIN), reports, budget));
                continue;
            };
            prop_assert!(accountant.admits(largest, reports, budget));
            prop_assert!(accountant.reports(largest, budget) >= reports);
            if let Ok(wider) = Epsilon::new(largest.get().next_up()) {
                prop_assert!(!accountant.admits(wider, reports, budget));
            }
        }
        let [basic, advanced, optimal] = largest;
        prop_assert!(optimal >= basic && optimal >= advanced);
    }
}
