//! Privacy amplification by shuffling.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::shuffling::{
    OWN_MAX, REPORTS_MAX, Shuffling, clones, largest_local_loss, stronger_clones,
};
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::accounting::cases::{SINGLES, delta, epsilon, loss, scales, seeded};
use crate::accounting::exact::{Real, larger, power_of_two, real, whole};

fn shuffled(local: f64, reports: u32) -> Shuffling {
    Shuffling::new(Floor::for_epsilon(epsilon(local)), reports).unwrap()
}

/// The least probability of either bit.
fn least(local: f64) -> Real {
    whole(Floor::for_epsilon(epsilon(local)).get()) * power_of_two(-64)
}

/// The probabilities of the numbers of ones among bits with these probabilities of a one.
fn ones(probabilities: &[Real]) -> Vec<Real> {
    let mut sum = vec![whole(1)];
    for one in probabilities {
        let zero = whole(1) - one;
        sum.push(whole(0));
        for place in (0..sum.len()).rev() {
            let below = if place == 0 { whole(0) } else { &sum[place - 1] * one };
            sum[place] = &sum[place] * &zero + below;
        }
    }
    sum
}

/// The hockey-stick divergence between the numbers of ones, from its definition.
fn divergence(here: &[Real], there: &[Real], nats: f64) -> Real {
    let factor = real(nats).exp();
    let pairs = ones(here).into_iter().zip(ones(there));
    pairs.fold(whole(0), |sum, (p, q)| sum + larger(whole(0), p - &factor * q))
}

/// The largest divergence over all numbers of others with the highest reward, in both directions.
fn exact_delta(local: f64, reports: u32, nats: f64) -> Real {
    let low = least(local);
    let high = whole(1) - &low;
    let mut largest = whole(0);
    for count in 0..reports as usize {
        let mut here = vec![low.clone(); reports as usize];
        here[..count].fill(high.clone());
        let mut there = here.clone();
        // The last one's own bit is at `low` here.
        there[reports as usize - 1] = high.clone();
        largest = larger(largest, divergence(&here, &there, nats));
        largest = larger(largest, divergence(&there, &here, nats));
    }
    largest
}

/// The largest divergence over what the others say, and over every way in which the two rewards of each
/// of `own` reports differ, or do not.
fn exact_delta_of_group(local: f64, reports: u32, own: u32, nats: f64) -> Real {
    let low = least(local);
    let high = whole(1) - &low;
    let mut largest = whole(0);
    for count in 0..=reports - own {
        let (high, low) = (&high, &low);
        let others = (0..reports - own).map(|place| if place < count { high } else { low });
        for ways in 0..4_u32.pow(own) {
            let rewards = (0..own).map(|place| match ways / 4_u32.pow(place) % 4 {
                0 => (high, low),
                1 => (low, high),
                2 => (low, low),
                _ => (high, high),
            });
            let (mut here, mut there): (Vec<Real>, Vec<Real>) =
                rewards.map(|(one, other)| (one.clone(), other.clone())).unzip();
            here.extend(others.clone().cloned());
            there.extend(others.clone().cloned());
            largest = larger(largest, divergence(&here, &there, nats));
        }
    }
    largest
}

/// Whether δ is above the exact one, and by at most a relative 1e-9 or 1e-250. The exact one may be
/// off by 2^-200.
fn just_above(found: Delta, exact: &Real) -> bool {
    let found = real(found.get());
    &found + power_of_two(-200) >= *exact && found <= exact * real(1.0 + 1e-9) + power_of_two(-200)
}

#[test]
fn delta_is_just_above_brute_force() {
    for local in [1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 12.0] {
        for reports in 1..=12 {
            for part in [0.0, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99] {
                let nats = local * part;
                let found = shuffled(local, reports).delta(loss(nats));
                let exact = exact_delta(local, reports, nats);
                assert!(just_above(found, &exact), "{local} {reports} {nats}: {found:?} {exact}");
                assert!(exact > power_of_two(-150), "{local} {reports} {nats}");
            }
        }
    }
}

#[test]
fn delta_of_larger_batches_is_just_above_brute_force() {
    for (local, reports, nats) in
        [(1.0, 60, 0.4), (0.3, 60, 0.0), (3.0, 60, 1.5), (1.0, 100, 0.5), (6.0, 100, 5.0)]
    {
        let found = shuffled(local, reports).delta(loss(nats));
        let exact = exact_delta(local, reports, nats);
        assert!(just_above(found, &exact), "{local} {reports} {nats}: {found:?} {exact}");
    }
}

#[test]
fn delta_of_a_group_is_just_above_brute_force() {
    for local in [0.05, 0.7, 2.0, 6.0] {
        for (reports, own) in [(2, 2), (3, 2), (6, 2), (3, 3), (6, 3), (4, 4), (6, 4)] {
            for part in [0.0, 0.1, 0.4, 0.8, 0.97] {
                let nats = local * part * f64::from(own);
                let group = shuffled(local, reports).of_group(own).unwrap();
                let (found, exact) =
                    (group.delta(loss(nats)), exact_delta_of_group(local, reports, own, nats));
                assert!(just_above(found, &exact), "{local} {reports} {own} {nats}: {found:?}");
            }
        }
    }
}

#[test]
fn several_reports_in_one_batch_are_no_composition() {
    for (local, central) in [(2.0, 0.35), (3.45, 1.0)] {
        let one = shuffled(local, 1000);
        let delta_of_one = one.delta(loss(central)).get();
        for own in 2..=10_u32 {
            let group = one.of_group(own).unwrap();
            let summed = loss(central * f64::from(own));
            let found = group.delta(summed).get();
            assert!(found > 1.1 * f64::from(own) * delta_of_one, "{local} {own}: {found:e}");
            // The inverse keeps to a δ, and is at most a thousandth too large.
            let allowed = delta(delta_of_one * f64::from(own));
            let needed = group.loss(allowed).get();
            assert!(group.delta(loss(needed)).get() <= allowed.get());
            assert!(group.delta(loss(needed * 0.998)).get() > allowed.get(), "{local} {own}");
            assert!(needed > summed.get());
        }
    }
    let three = shuffled(1.0, 3);
    assert_eq!(
        three.of_group(3).unwrap().loss(Delta::ZERO).get(),
        3.0 * three.loss(Delta::ZERO).get()
    );
    assert_eq!((three.of_group(0), three.of_group(4)), (None, None));
    assert_eq!(shuffled(1.0, 1000).of_group(OWN_MAX + 1), None);
}

#[test]
fn known_values() {
    // One report: the channel itself. With e^ε0 = 3 and e^ε = 2, 3/4 - 2/4.
    let alone = shuffled(3.0_f64.ln(), 1).delta(loss(2.0_f64.ln())).get();
    assert!((alone - 0.25).abs() < 1e-12, "{alone}");
    // Two reports, the other one's reward the highest: 0, 1 or 2 ones with 1, 6 and 9 sixteenths,
    // or with 3, 10 and 3. Only two ones are more than twice as likely: 9 - 2 3 sixteenths.
    let two = shuffled(3.0_f64.ln(), 2).delta(loss(2.0_f64.ln())).get();
    assert!((two - 3.0 / 16.0).abs() < 1e-12, "{two}");
    let thousand = shuffled(1.0, 1000).loss(delta(1e-6)).get();
    assert!((thousand - 0.127).abs() < 5e-4, "{thousand}");
    // The greatest local losses for a central loss.
    for (reports, central, expected) in
        [(1000, 0.2, 1.43), (1000, 1.0, 3.45), (300, 0.2, 0.83), (100, 1.0, 1.58)]
    {
        let central = Guarantee::new(loss(central), delta(1e-6));
        let local = largest_local_loss(reports, central).unwrap().unwrap().get();
        assert!((local - expected).abs() < 6e-3, "{reports} {central:?}: {local}");
    }
}

#[test]
fn edges() {
    for reports in [0, REPORTS_MAX + 1, u32::MAX] {
        let refused = Shuffling::new(Floor::for_epsilon(epsilon(1.0)), reports).unwrap_err();
        assert!(refused.to_string().contains(&reports.to_string()));
        assert!(largest_local_loss(reports, Guarantee::pure(loss(1.0))).is_err());
    }
    for local in SINGLES {
        for reports in [1, 2, 30] {
            let batch = shuffled(local, reports);
            // From the local loss on nothing is left, and without δ nothing less will do.
            assert_eq!(batch.delta(loss(local)), Delta::ZERO);
            assert_eq!(batch.delta(PrivacyLoss::UNBOUNDED), Delta::ZERO);
            let pure = batch.loss(Delta::ZERO).get();
            assert!(pure <= local && pure >= local * (1.0 - 1e-5), "{local} {reports}: {pure}");
            assert_eq!(batch.loss(Delta::VACUOUS), PrivacyLoss::ZERO);
            assert!(batch.admits(Guarantee::pure(loss(local))));
        }
    }
    // No channel is as private as this, and every channel as this.
    let tiny = Guarantee::pure(loss(Epsilon::MIN / 2.0));
    assert_eq!(largest_local_loss(3, tiny).unwrap(), None);
    let vacuous = Guarantee::new(PrivacyLoss::ZERO, Delta::VACUOUS);
    assert_eq!(largest_local_loss(3, vacuous).unwrap(), Some(epsilon(Epsilon::MAX)));
}

#[test]
fn the_largest_batch_is_certified() {
    let batch = shuffled(2.0, REPORTS_MAX);
    let central = batch.loss(delta(1e-9));
    assert!(central < stronger_clones(epsilon(2.0), REPORTS_MAX, delta(1e-9)).unwrap());
    let found = batch.delta(central).get();
    assert!((1e-9 * (1.0 - 1e-6)..=1e-9 * (1.0 + 1e-9)).contains(&found), "{found:e}");
    assert!(batch.admits(Guarantee::new(central, delta(1e-9 * (1.0 + 1e-9)))));
    assert!(!batch.admits(Guarantee::new(central, delta(1e-9 * (1.0 - 1e-6)))));
}

#[test]
fn no_closed_form_is_better() {
    let mut compared = [0, 0];
    for local in [0.01, 0.1, 0.5, 1.0, 2.0, 4.0] {
        for reports in [10, 100, 1000, 4000] {
            for slack in [1e-3, 1e-6, 1e-9] {
                let exact = shuffled(local, reports).loss(delta(slack));
                let older = clones(epsilon(local), reports, delta(slack));
                let newer = stronger_clones(epsilon(local), reports, delta(slack));
                for (count, form) in compared.iter_mut().zip([older, newer]) {
                    if let Some(form) = form {
                        *count += 1;
                        assert!(exact < form, "{local} {reports} {slack}");
                    }
                }
            }
        }
    }
    assert!(compared[0] >= 15 && compared[1] > compared[0], "{compared:?}");
}

#[test]
fn closed_forms_are_just_above_their_formulas() {
    for (local, reports, slack) in [(0.5, 1000, 1e-6), (1.0, 4000, 1e-9), (2.0, 16_384, 1e-3)] {
        let growth = real(local).exp();
        let n = whole(reports.into());
        let logarithm = (whole(4) / real(slack)).ln();
        let root = |x: Real| x.sqrt();
        let contrast = (&growth - whole(1)) / (&growth + whole(1));
        let sum = root(&growth * &logarithm / &n) + &growth / &n;
        let older = (whole(1) + contrast * whole(8) * sum).ln();
        let sum = root(whole(2) * &logarithm / ((&growth + whole(1)) * &n)) + whole(1) / &n;
        let newer = (whole(1) + (&growth - whole(1)) * whole(4) * sum).ln();
        for (found, exact) in [
            (clones(epsilon(local), reports, delta(slack)), older),
            (stronger_clones(epsilon(local), reports, delta(slack)), newer),
        ] {
            let found = real(found.unwrap().get());
            assert!(found >= exact && found <= &exact + &exact * power_of_two(-45), "{local}");
        }
    }
}

proptest! {
    #![proptest_config(seeded(150, 81))]

    #[test]
    fn no_other_thresholds_are_worse(
        local in scales(-6.0, 3.0), part in 0.0..1.0_f64,
        thresholds in vec(0.0..=1.0_f64, 3..12)
    ) {
        // Any probabilities between the least and the greatest, and any two for one person.
        let low = least(local);
        let width = whole(1) - whole(2) * &low;
        let all: Vec<Real> =
            thresholds.iter().map(|&level| &low + &width * real(level)).collect();
        let (here, there) = (&all[1..], [&all[..1], &all[2..]].concat());
        let nats = local * part;
        let certified = shuffled(local, u32::try_from(here.len()).unwrap()).delta(loss(nats));
        prop_assert!(real(certified.get()) >= divergence(here, &there, nats));
    }

    #[test]
    fn delta_is_just_above_the_exact_one_at_random_places(
        local in scales(-20.0, 5.0), reports in 1..14_u32, part in 0.0..1.0_f64
    ) {
        let nats = local * part;
        let found = shuffled(local, reports).delta(loss(nats));
        // Next to the local loss a difference is taken of numbers that nearly cancel.
        let close = power_of_two(-47) * real(part);
        let exact = exact_delta(local, reports, nats);
        let found = real(found.get());
        prop_assert!(found >= exact);
        prop_assert!(found <= exact * real(1.0 + 1e-9) + close, "{found}");
    }

    #[test]
    fn certificates_are_monotone(
        local in scales(-10.0, 3.0), reports in 1..400_u32, more in 1..100_u32,
        factor in 1.0..2.0_f64, part in 0.0..1.0_f64, slack in scales(-60.0, -3.0)
    ) {
        const ROUNDING: f64 = 1.0 + 1e-8;
        let (here, nats) = (shuffled(local, reports), local * part * part);
        let wider = shuffled(local * factor, reports);
        let larger = shuffled(local, reports + more);
        let at = here.delta(loss(nats)).get();
        let slop = 1e-13;
        prop_assert!(larger.delta(loss(nats)).get() <= at * ROUNDING + slop);
        prop_assert!(at <= wider.delta(loss(nats)).get() * ROUNDING + slop);
        prop_assert!(here.delta(loss(nats * factor)).get() <= at * ROUNDING + slop);
        let needed = here.loss(delta(slack)).get();
        prop_assert!(needed <= local);
        let slop = 1e-8;
        prop_assert!(larger.loss(delta(slack)).get() <= needed + slop);
        prop_assert!(needed <= wider.loss(delta(slack)).get() + slop);
        prop_assert!(needed <= here.loss(delta(slack / factor)).get() + slop);
    }

    #[test]
    fn the_inverses_agree(
        reports in 1..300_u32, nats in scales(-7.0, 2.0), slack in scales(-40.0, -4.0)
    ) {
        let central = Guarantee::new(loss(nats), delta(slack));
        let local = largest_local_loss(reports, central).unwrap().unwrap().get();
        prop_assert!(local >= nats);
        let batch = shuffled(local, reports);
        prop_assert!(batch.admits(central));
        prop_assert!(batch.loss(delta(slack)).get() <= nats * (1.0 + 1e-9) + 1e-9);
        prop_assert!(local > 31.0 || !shuffled(local * (1.0 + 1e-6), reports).admits(central));
    }
}
