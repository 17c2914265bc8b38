//! Costs of arms in estimates: verdict, lead and lifts are of rewards less costs.
//!
//! A cost is known, so it moves a difference between two arms and its bounds by one number, and they
//! hold as before. The bounds of all pairs of arms hold at once, so an arm whose net reward is above that
//! of every other one by them is best with the same confidence.

use bandana_learners::terms::ArmTerms;
use bandana_shared::wire::v1::{Estimates, Lead, Lift};

/// The estimates with costs taken from every comparison. `over` has the lifts over an arm, of rewards.
pub(crate) fn net(
    estimates: Estimates,
    terms: &ArmTerms,
    over: impl Fn(u32) -> Vec<Lift>,
) -> Estimates {
    let arms = || estimates.arms.iter().map(|arm| arm.arm);
    if arms().all(|arm| terms.cost(arm as usize) == 0.0) {
        return estimates;
    }
    let (control, reports) = (estimates.control_arm, estimates.reports);
    let value = |arm: u32| estimates.arms.get(arm as usize)?.estimate;
    let lifts: Vec<Lift> = net_of(control, estimates.lifts.clone(), terms)
        .into_iter()
        .map(|lift| {
            let base = value(control).map(|mean| mean - terms.cost(control as usize));
            let relative = lift.relative.and(base).filter(|base| *base > 0.0);
            Lift { relative: relative.map(|base| lift.difference / base), ..lift }
        })
        .collect();
    // The one with the largest net reward, of those that have a lift over another one or under it.
    let net_value = |arm: &u32| value(*arm).map(|mean| mean - terms.cost(*arm as usize));
    let compared = arms().filter(|arm| net_value(arm).is_some());
    let leader = compared.filter(|arm| !over(*arm).is_empty()).max_by(|a, b| {
        net_value(a).unwrap_or(f64::MIN).total_cmp(&net_value(b).unwrap_or(f64::MIN))
    });
    let Some(leader) = leader else {
        return Estimates { lifts, best_arm: None, lead: None, ..estimates };
    };
    let rivals = net_of(leader, over(leader), terms);
    let nearest = rivals.iter().max_by(|a, b| a.high.total_cmp(&b.high)).copied();
    let is_best = nearest.is_some_and(|rival| rival.high < 0.0);
    let lead = nearest.map(|rival| Lead {
        arm: leader,
        rival: rival.arm,
        difference: -rival.difference,
        low: -rival.high,
        high: -rival.low,
        reports_left: left(-rival.difference, -rival.high, reports),
    });
    Estimates { lifts, lead, best_arm: is_best.then_some(leader), ..estimates }
}

/// Lifts over an arm, less what the other arms cost more.
fn net_of(control: u32, lifts: Vec<Lift>, terms: &ArmTerms) -> Vec<Lift> {
    let more = |arm: u32| terms.cost(arm as usize) - terms.cost(control as usize);
    let net = |lift: Lift| {
        let more = more(lift.arm);
        Lift {
            difference: lift.difference - more,
            low: lift.low - more,
            high: lift.high - more,
            ..lift
        }
    };
    lifts.into_iter().map(net).collect()
}

/// Reports until a lead is certain, if its bounds narrow as the root of their number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number from 0 up; one too large is cut"
)]
fn left(difference: f64, low: f64, reports: u64) -> Option<u64> {
    if low > 0.0 {
        return Some(0);
    }
    let wider = (difference - low) / difference;
    (difference > 0.0).then(|| (reports as f64 * (wider * wider - 1.0)).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use bandana_shared::rewards::RewardRange;
    use bandana_shared::wire::v1::ArmEstimate;

    use super::*;

    /// Three arms with these means, and bounds of .1 around each difference.
    fn estimates(means: [f64; 3]) -> (Estimates, impl Fn(u32) -> Vec<Lift>) {
        let over = move |control: u32| {
            let others = (0..3_u32).filter(move |arm| *arm != control);
            let lift = |arm: u32| {
                let difference = means[arm as usize] - means[control as usize];
                let (low, high) = (difference - 0.1, difference + 0.1);
                Lift { arm, difference, low, high, relative: Some(0.5) }
            };
            others.map(lift).collect()
        };
        let arm = |(arm, mean): (u32, f64)| ArmEstimate {
            arm,
            estimate: Some(mean),
            ..ArmEstimate::default()
        };
        let estimates = Estimates {
            arms: (0..).zip(means).map(arm).collect(),
            reports: 1000,
            best_arm: Some(1),
            lifts: over(0),
            ..Estimates::default()
        };
        (estimates, over)
    }

    fn terms(costs: [f64; 3]) -> ArmTerms {
        ArmTerms::new(Vec::new(), 0.5, costs.to_vec(), RewardRange::UNIT).unwrap()
    }

    #[test]
    fn the_best_arm_is_the_one_with_the_largest_reward_less_its_cost() {
        let (before, over) = estimates([0.3, 0.6, 0.2]);
        assert_eq!(net(before.clone(), &terms([0.0; 3]), &over), before);
        // Arm 1 costs .5 more than arm 0.
        let after = net(before.clone(), &terms([0.1, 0.6, 0.1]), &over);
        let lead = after.lead.unwrap();
        assert_eq!((lead.arm, lead.rival, after.best_arm), (0, 2, None));
        assert!((lead.difference - 0.1).abs() < 1e-12 && lead.low.abs() < 1e-12);
        let lift = after.lifts[0];
        assert!((lift.difference + 0.2).abs() < 1e-12 && (lift.high + 0.1).abs() < 1e-12);
        assert!((lift.relative.unwrap() + 1.0).abs() < 1e-9);
        // Costs can make it certain.
        let certain = net(before, &terms([0.0, 0.6, 0.2]), &over);
        assert_eq!((certain.best_arm, certain.lead.unwrap().reports_left), (Some(0), Some(0)));
    }

    #[test]
    fn reports_that_are_left_follow_from_the_bounds() {
        assert_eq!(left(0.1, -0.1, 1000), Some(3000));
        assert_eq!(left(-0.1, -0.2, 1000), None);
    }
}
