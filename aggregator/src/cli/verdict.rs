//! The verdict that a new experiment can expect, in a sentence.

use bandana_learners::Learner;
use bandana_learners::plan::{Plan, PlanError};
use bandana_shared::channel::Channel;
use bandana_shared::estimate::Estimand;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::ExperimentStatus;

/// The gap that is assumed.
const GAP: f64 = 0.1;

/// When `bandana estimate` will name the best arm. `None` if it never does, as for one arm or
/// for categories, and where there is no plan: for shuffled reports, levels and curves.
pub(super) fn expected(status: &ExperimentStatus) -> Option<String> {
    let specification = Specification::try_from(status.specification.as_ref()?).ok()?;
    let learner = Learner::from_wire(status.learner())?;
    let arms = specification.active_arms().into_iter().filter(|active| *active).count();
    let Channel::Bit(floor) = specification.channel() else { return None };
    let is_plain = matches!(specification.estimand(), Estimand::MeanReward(_));
    if !is_plain || specification.batch().is_some() {
        return None;
    }
    let plan = Plan::new(arms, floor, GAP, ErrorLevel::FIVE_PERCENT).ok()?;
    let guardrail = status.holdout_share;
    let least = (1.0 - guardrail) * status.floor_weight + guardrail / arms as f64;
    // With a private context, some explore, and of those one coordinate of all are the rewards.
    let exploring = specification
        .private_context()
        .map_or(1.0, |context| context.exploration().share() / context.coordinates() as f64);
    let rewards = exploring * specification.measurement().share(0);
    Some(sentence(plan, learner, (least, rewards), arms))
}

/// `least` is the least share of every arm, and `rewards` that of the users who report their rewards
/// rather than a metric or a feature, or nothing.
fn sentence(plan: Plan, learner: Learner, (least, rewards): (f64, f64), arms: usize) -> String {
    let of_all = |users: u64| (users as f64 / rewards).ceil();
    let users = |of: Result<(u64, u64), PlanError>| match of {
        Ok((typical, users)) => {
            format!("{} users, {} in nine of ten cases", of_all(typical), of_all(users))
        }
        Err(_) => "more than 10^15 users".to_owned(),
    };
    let decision = || users(plan.decision().map(|found| (found.typical_users, found.users)));
    let forecast =
        |plan: Plan| users(plan.forecast().map(|found| (found.typical_users, found.users)));
    let if_gap = format!("if the best arm's mean reward is ahead by {GAP} of the range");
    let verdict = "a verdict which arm is best";
    match learner {
        Learner::TopTwo => format!("expect {verdict} after about {}, {if_gap}", decision()),
        Learner::Uniform => format!("expect {verdict} after about {}, {if_gap}", forecast(plan)),
        _ if least > 0.0 => {
            let floored = plan.with_floor_weight(least.min(1.0 / arms as f64)).unwrap_or(plan);
            format!("expect {verdict} after at most {}, {if_gap}", forecast(floored))
        }
        _ => format!(
            "a learner that earns rewards seldom gives {verdict}; with --goal decide expect one \
             after about {}, {if_gap}",
            decision()
        ),
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;

    use super::*;

    #[test]
    fn every_learner_has_its_sentence() {
        let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
        let plan = Plan::new(4, floor, GAP, ErrorLevel::FIVE_PERCENT).unwrap();
        let of = |learner, least| sentence(plan, learner, (least, 1.0), 4);
        let decided = format!("about {} users", plan.decision().unwrap().typical_users);
        let even = format!("about {} users", plan.forecast().unwrap().typical_users);
        assert!(of(Learner::TopTwo, 0.0).contains(&decided), "{}", of(Learner::TopTwo, 0.0));
        assert!(of(Learner::Uniform, 0.0).contains(&even));
        let earning = of(Learner::LdpTs, 0.0);
        assert!(earning.contains("seldom") && earning.contains(&decided), "{earning}");
        let floored = of(Learner::LdpTs, 0.05);
        assert!(floored.contains("at most") && !floored.contains("seldom"), "{floored}");
        let halved = sentence(plan, Learner::TopTwo, (0.0, 0.5), 4);
        let twice = format!("about {} users", 2 * plan.decision().unwrap().typical_users);
        assert!(halved.contains(&twice), "{halved}");
        let even = even.replace("about", "at most");
        assert!(of(Learner::RandAdaKl, 0.25).contains(&even));
    }
}
