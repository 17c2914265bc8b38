//! Views of a trusted experiment, as text and as JSON.

use anyhow::Context as _;
use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{AdacGope, AdacOful, AdacUcb, LazyRelease, TrustedStatus};
use serde::Serialize;

use super::experiment_view::state;
use super::table::{Side, Table};

/// Help text on the fields.
pub(crate) const FIELDS: &str = "\
Fields with --json:
  experiment_id
  state: running, paused or stopped
  rewards_are_disclosed: always true
  rho: what one reward costs at most
  algorithm: adac-ucb, adac-gope, adac-oful or lazy-release
  one_person: what 1, 10 and 300 rewards of one person cost together
    rewards, rho
    epsilon: for a delta of 1e-6
  arms: of adac-ucb and lazy-release; null for the others
  beta: of adac-ucb
  actions, delta: of adac-gope
  dimension: of adac-oful
  reward_low, reward_high
  rewards: those that count
  releases: of statistics
  archived: whether lists leave it out
Later versions may add fields. No field changes its meaning.";

/// Stable JSON form of a trusted experiment.
#[derive(Debug, Serialize)]
pub(crate) struct TrustedView {
    pub(crate) experiment_id: String,
    pub(crate) state: &'static str,
    rewards_are_disclosed: bool,
    pub(crate) rho: f64,
    one_person: Vec<GroupCost>,
    pub(crate) algorithm: &'static str,
    arms: Option<u32>,
    beta: Option<f64>,
    pub(crate) actions: Option<Vec<Vec<f64>>>,
    delta: Option<f64>,
    dimension: Option<u32>,
    reward_low: f64,
    reward_high: f64,
    rewards: u64,
    pub(crate) releases: u64,
    archived: bool,
    /// The number of arms or actions, for lists without these.
    #[serde(skip)]
    arm_count: u32,
}

/// What rewards of one person cost together.
#[derive(Debug, Serialize)]
struct GroupCost {
    rewards: u64,
    rho: f64,
    /// For [`DELTA`], rounded up.
    epsilon: f64,
}

/// The δ of each ε shown.
const DELTA: f64 = 1e-6;

/// The costs of 1, 10 and 300 rewards at this price; none for what is no price.
fn group_costs(rho: f64) -> Vec<GroupCost> {
    let (Ok(rho), Ok(delta)) = (Rho::new(rho), Delta::new(DELTA)) else { return Vec::new() };
    let cost = |rewards| {
        let group = rho.for_group(rewards);
        GroupCost { rewards, rho: group.get(), epsilon: group.loss(delta).get() }
    };
    [1, 10, 300].map(cost).into()
}

/// A cost for people, with three digits, rounded up.
fn short(cost: f64) -> String {
    if !(cost.is_finite() && cost > 0.0) {
        return cost.to_string();
    }
    let unit = 10_f64.powf(cost.log10().floor() - 2.0);
    // What was rounded up in its last bits is not to look like more.
    let digits = (cost / unit * (1.0 - 1e-12)).ceil();
    let rounded = if unit < 1.0 { digits / (1.0 / unit).round() } else { digits * unit };
    rounded.to_string()
}

impl TrustedView {
    /// Converts a server's message.
    pub(crate) fn new(status: &TrustedStatus) -> anyhow::Result<Self> {
        let unknown =
            "what the server sent is not a trusted experiment that this program understands";
        let specification = status.specification.clone().context(unknown)?;
        let algorithm = specification.algorithm.context(unknown)?;
        let (name, reward_low) = match &algorithm {
            Algorithm::AdacUcb(_) => ("adac-ucb", 0.0),
            Algorithm::AdacGope(_) => ("adac-gope", -1.0),
            Algorithm::AdacOful(_) => ("adac-oful", -1.0),
            Algorithm::LazyRelease(_) => ("lazy-release", 0.0),
        };
        let view = Self {
            experiment_id: specification.experiment_id,
            state: state(status.state()),
            rewards_are_disclosed: specification.rewards_are_disclosed,
            rho: specification.rho,
            one_person: group_costs(specification.rho),
            algorithm: name,
            arms: None,
            beta: None,
            actions: None,
            delta: None,
            dimension: None,
            reward_low,
            reward_high: 1.0,
            rewards: status.rewards,
            releases: status.releases,
            archived: status.archived,
            arm_count: status.arm_count,
        };
        Ok(match algorithm {
            Algorithm::AdacUcb(AdacUcb { arms, beta }) => {
                Self { arms: Some(arms), beta: Some(beta), ..view }
            }
            Algorithm::AdacGope(AdacGope { actions, delta }) => {
                let actions = actions.into_iter().map(|action| action.coordinates).collect();
                Self { actions: Some(actions), delta: Some(delta), ..view }
            }
            Algorithm::AdacOful(AdacOful { dimension }) => {
                Self { dimension: Some(dimension), ..view }
            }
            Algorithm::LazyRelease(LazyRelease { arms }) => Self { arms: Some(arms), ..view },
        })
    }

    /// One line: name and state.
    pub(crate) fn line(&self) -> String {
        format!("{} is {}\n", self.experiment_id, self.stands())
    }

    fn stands(&self) -> String {
        format!("{}{}", self.state, if self.archived { " and archived" } else { "" })
    }

    /// All properties, one per line, and the actions.
    pub(crate) fn describe(&self, columns: Option<usize>) -> String {
        let more = match (self.beta, self.delta) {
            (Some(beta), _) => format!(", beta {beta}"),
            (_, Some(delta)) => format!(", delta {delta}"),
            _ => String::new(),
        };
        let rows = [
            ("experiment", self.experiment_id.clone()),
            ("state", self.stands()),
            ("rewards", format!("reach the server; {} to {}", self.reward_low, self.reward_high)),
            ("protected", self.protection()),
            ("one person's", self.one_person()),
            ("algorithm", format!("{}{more}", self.algorithm)),
            ("chooses among", self.choices()),
            ("rewards counted", self.rewards.to_string()),
            ("releases", self.releases.to_string()),
        ];
        let lines = rows.iter().map(|(name, value)| format!("{name:<20}{value}\n"));
        let Some(actions) = &self.actions else { return lines.collect() };
        let mut table = Table::new([("arm", Side::Right), ("action", Side::Left)]);
        for (place, action) in actions.iter().enumerate() {
            table.push([place.to_string(), numbers(action)]);
        }
        lines.chain(["\n".to_owned(), table.render(columns)]).collect()
    }

    /// The privacy guarantee: what is protected, and from whom.
    pub(crate) fn protection(&self) -> String {
        let rho = self.rho;
        format!(
            "each reward, from everybody but the server, by rho {rho} (zero-concentrated \
             differential privacy); k rewards of one person by up to k^2 rho"
        )
    }

    /// What several rewards of one person cost.
    fn one_person(&self) -> String {
        let costs = self.one_person.iter().map(|cost| {
            let (rho, epsilon) = (short(cost.rho), short(cost.epsilon));
            let noun = if cost.rewards == 1 { "reward" } else { "rewards" };
            format!("{} {noun}: rho {rho}, epsilon {epsilon}", cost.rewards)
        });
        let costs: Vec<String> = costs.collect();
        format!("{} (delta 1e-6); apps cap what a person discloses", costs.join("; "))
    }

    fn choices(&self) -> String {
        match (self.arms, &self.actions, self.dimension) {
            (Some(arms), ..) => format!("{arms} arms"),
            (_, Some(_), _) => format!("{} actions", self.arm_count),
            (_, _, Some(dimension)) => format!("actions with {dimension} coordinates"),
            _ => "unknown".to_owned(),
        }
    }
}

/// One line per trusted experiment.
pub(crate) fn list(experiments: &[TrustedView], columns: Option<usize>) -> String {
    if experiments.is_empty() {
        return "there are no trusted experiments\n".to_owned();
    }
    let mut table = Table::new([
        ("experiment", Side::Left),
        ("state", Side::Right),
        ("algorithm", Side::Right),
        ("chooses among", Side::Right),
        ("rho", Side::Right),
        ("rewards", Side::Right),
        ("releases", Side::Right),
    ]);
    for view in experiments {
        table.push([
            view.experiment_id.clone(),
            if view.archived { "archived" } else { view.state }.to_owned(),
            view.algorithm.to_owned(),
            view.choices(),
            view.rho.to_string(),
            view.rewards.to_string(),
            view.releases.to_string(),
        ]);
    }
    table.render(columns)
}

/// A vector as text.
fn numbers(vector: &[f64]) -> String {
    let texts: Vec<_> = vector.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_rewards_of_one_person_have_their_price() {
        let costs = group_costs(0.005);
        let rhos: Vec<_> = costs.iter().map(|cost| (cost.rewards, short(cost.rho))).collect();
        let expected = [(1, "0.005"), (10, "0.5"), (300, "450")];
        assert_eq!(rhos, expected.map(|(rewards, rho)| (rewards, rho.to_owned())));
        let epsilons: Vec<_> = costs.iter().map(|cost| short(cost.epsilon)).collect();
        assert_eq!(epsilons, ["0.43", "5.23", "605"]);
        assert_eq!(short(group_costs(0.5)[2].epsilon), "46600");
        assert!(group_costs(f64::NAN).is_empty() && group_costs(-1.0).is_empty());
        assert_eq!(short(group_costs(f64::INFINITY)[0].rho), "inf");
    }
}
