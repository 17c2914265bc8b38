//! A new experiment, as a file and flags describe it.

use std::path::Path;

use anyhow::Context as _;
use bandana_shared::curve::Curvature;
use bandana_shared::wire::v1::{self, CreateExperimentRequest, specification};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::failure::Failure;
use crate::learner::Learner;

/// What a learner learns from nonlinear curves on bounded rewards.
const NONLINEAR: &str = "\
with a nonlinear curve and rewards between the ends of their range, the server learns the mean of \
g(reward), and may prefer an arm whose mean reward is lower";

/// What is said of a new experiment. The names in a file are those of the flags, with
/// underscores.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Draft {
    /// Id: 1 to 64 of a-z, 0-9, ".", "_", "-"; `experiment_id` in a file.
    #[arg(value_name = "ID")]
    experiment_id: Option<String>,
    /// Privacy loss of one report, in nats: 2^-20 to 32.
    #[arg(long, value_name = "NATS")]
    epsilon: Option<f64>,
    /// Label of an arm; repeat it for each. In a file, `arms` is the list of all labels.
    #[arg(long = "arm", value_name = "LABEL")]
    #[serde(default)]
    arms: Vec<String>,
    /// Seconds after a choice in which rewards still count: 1 to 7776000; 0 with
    /// --simulation.
    #[arg(long, value_name = "SECONDS")]
    attribution_window_seconds: Option<u32>,
    /// Random delay before a device releases a report, at most: 0 to 604800
    /// [default: 0].
    #[arg(long, value_name = "SECONDS")]
    release_delay_seconds_max: Option<u32>,
    /// What rewards may be: one of two values, or anything in a range [default: binary].
    #[arg(long)]
    reward_kind: Option<RewardKind>,
    /// Low end of the rewards [default: 0].
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    reward_low: Option<f64>,
    /// High end of the rewards [default: 1].
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    reward_high: Option<f64>,
    /// What a device does with rewards out of range; clamp is for bounded ones
    /// [default: refuse].
    #[arg(long)]
    out_of_range: Option<OutOfRange>,
    /// Reported for an assignment without a reward [default: the low end].
    #[arg(long, value_name = "REWARD", allow_negative_numbers = true)]
    default_reward: Option<f64>,
    /// The curve before randomized response [default: linear].
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// Curvature of the quadratic mechanism: -1 to 1, convex above 0.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    curvature: Option<f64>,
    /// Who chooses the arms [default: ldp-ts].
    #[arg(long)]
    learner: Option<Learner>,
    /// Least share of the traffic for every arm in play: 0 to 1 / (number of arms)
    /// [default: 0].
    #[arg(long, value_name = "SHARE")]
    floor_weight: Option<f64>,
    /// For simulated users only, with noise that can be repeated.
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    simulation: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RewardKind {
    Binary,
    Bounded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OutOfRange {
    Refuse,
    Clamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mechanism {
    Linear,
    Quadratic,
    Exponential,
    RandomizedResponse,
}

impl Draft {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        toml::from_str(&text)
            .with_context(|| format!("{} does not describe an experiment", path.display()))
    }

    /// What this says, and where it says nothing, what `file` says.
    pub(super) fn over(self, file: Self) -> Self {
        Self {
            experiment_id: self.experiment_id.or(file.experiment_id),
            epsilon: self.epsilon.or(file.epsilon),
            arms: if self.arms.is_empty() { file.arms } else { self.arms },
            attribution_window_seconds: self
                .attribution_window_seconds
                .or(file.attribution_window_seconds),
            release_delay_seconds_max: self
                .release_delay_seconds_max
                .or(file.release_delay_seconds_max),
            reward_kind: self.reward_kind.or(file.reward_kind),
            reward_low: self.reward_low.or(file.reward_low),
            reward_high: self.reward_high.or(file.reward_high),
            out_of_range: self.out_of_range.or(file.out_of_range),
            default_reward: self.default_reward.or(file.default_reward),
            mechanism: self.mechanism.or(file.mechanism),
            curvature: self.curvature.or(file.curvature),
            learner: self.learner.or(file.learner),
            floor_weight: self.floor_weight.or(file.floor_weight),
            simulation: self.simulation.or(file.simulation),
        }
    }

    /// What devices would estimate that nobody may expect, if anything.
    pub(super) fn warning(&self) -> Option<&'static str> {
        let curved = match self.mechanism {
            Some(Mechanism::Exponential) => true,
            Some(Mechanism::Quadratic) => self.curvature != Some(0.0),
            Some(Mechanism::Linear | Mechanism::RandomizedResponse) | None => false,
        };
        (curved && self.reward_kind == Some(RewardKind::Bounded)).then_some(NONLINEAR)
    }

    /// What to ask of the server, which checks the values.
    pub(crate) fn request(
        self,
        accept_nonlinear_estimand: bool,
    ) -> Result<CreateExperimentRequest, Failure> {
        self.check_complete()?;
        if let (Some(warning), false) = (self.warning(), accept_nonlinear_estimand) {
            return Err(Failure::Refused(format!(
                "{warning}; use the linear mechanism, or add --accept-nonlinear-estimand if that \
                 is what you want"
            )));
        }
        let mechanism = self.mechanism()?;
        let reward_low = self.reward_low.unwrap_or(0.0);
        let specification = v1::Specification {
            experiment_id: self.experiment_id.unwrap_or_default(),
            epsilon: self.epsilon.unwrap_or_default(),
            simulation: self.simulation.unwrap_or(false),
            reward_kind: match self.reward_kind.unwrap_or(RewardKind::Binary) {
                RewardKind::Binary => v1::RewardKind::Binary.into(),
                RewardKind::Bounded => v1::RewardKind::Bounded.into(),
            },
            reward_low,
            reward_high: self.reward_high.unwrap_or(1.0),
            out_of_range: match self.out_of_range.unwrap_or(OutOfRange::Refuse) {
                OutOfRange::Refuse => v1::OutOfRange::Refuse.into(),
                OutOfRange::Clamp => v1::OutOfRange::Clamp.into(),
            },
            default_reward: self.default_reward.unwrap_or(reward_low),
            mechanism: Some(mechanism),
            arms: self.arms.into_iter().map(|label| v1::Arm { label, retired: false }).collect(),
            attribution_window_seconds: self.attribution_window_seconds.unwrap_or(0),
            release_delay_seconds_max: self.release_delay_seconds_max.unwrap_or(0),
            ..Default::default()
        };
        Ok(CreateExperimentRequest {
            specification: Some(specification),
            learner: self.learner.unwrap_or_default().to_wire().into(),
            floor_weight: self.floor_weight.unwrap_or(0.0),
            accept_nonlinear_estimand,
            draft: false,
        })
    }

    /// What has no default must be said.
    fn check_complete(&self) -> Result<(), Failure> {
        let real = self.simulation != Some(true);
        let missing: Vec<_> = [
            (self.experiment_id.is_none(), "ID (`experiment_id` in a file)"),
            (self.epsilon.is_none(), "--epsilon (`epsilon`)"),
            (self.arms.is_empty(), "--arm for each arm (`arms`)"),
            (
                real && self.attribution_window_seconds.is_none(),
                "--attribution-window-seconds (`attribution_window_seconds`; 3600 is an hour)",
            ),
        ]
        .into_iter()
        .filter_map(|(is_missing, name)| is_missing.then_some(name))
        .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(Failure::Incomplete(format!("a new experiment needs, by flags or --file: {missing}")))
    }

    fn mechanism(&self) -> Result<specification::Mechanism, Failure> {
        let mechanism = self.mechanism.unwrap_or(Mechanism::Linear);
        let curvature = match (mechanism, self.curvature) {
            (Mechanism::Quadratic, Some(curvature)) => curvature,
            (Mechanism::Quadratic, None) => {
                let needed = "the quadratic mechanism needs --curvature (`curvature`), -1 to 1";
                return Err(Failure::Incomplete(needed.to_owned()));
            }
            (_, Some(_)) => {
                let unused = "only the quadratic mechanism has a curvature; leave it out";
                return Err(Failure::Refused(unused.to_owned()));
            }
            (_, None) => 0.0,
        };
        Ok(match mechanism {
            Mechanism::Linear => specification::Mechanism::Linear(v1::Linear {}),
            Mechanism::Quadratic => {
                let curvature = Curvature::new(curvature);
                let curvature = curvature.map_err(|error| Failure::Refused(error.to_string()))?;
                specification::Mechanism::Quadratic(v1::Quadratic { curvature: curvature.units() })
            }
            Mechanism::Exponential => specification::Mechanism::Exponential(v1::Exponential {}),
            Mechanism::RandomizedResponse => {
                specification::Mechanism::RandomizedResponse(v1::RandomizedResponse {})
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(text: &str) -> Draft {
        toml::from_str(text).unwrap()
    }

    const COMPLETE: &str = "experiment_id = \"a\"\nepsilon = 1\narms = [\"x\", \"y\"]\n\
                            attribution_window_seconds = 60\n";

    #[test]
    fn defaults_make_a_binary_linear_experiment() {
        let request = draft(COMPLETE).request(false).unwrap();
        assert_eq!((request.learner(), request.floor_weight), (v1::Learner::LdpTs, 0.0));
        let specification = request.specification.unwrap();
        assert_eq!(specification.reward_kind(), v1::RewardKind::Binary);
        assert_eq!(specification.out_of_range(), v1::OutOfRange::Refuse);
        assert_eq!((specification.reward_low, specification.reward_high), (0.0, 1.0));
        assert_eq!(specification.mechanism, Some(specification::Mechanism::Linear(v1::Linear {})));
    }

    #[test]
    fn flags_count_more_than_the_file() {
        let flags = draft("epsilon = 2.0\narms = [\"z\"]\nsimulation = true");
        let request = flags.over(draft(COMPLETE)).request(false).unwrap();
        let specification = request.specification.unwrap();
        assert_eq!((specification.epsilon, specification.simulation), (2.0, true));
        assert_eq!(specification.arms.len(), 1);
        assert_eq!(specification.experiment_id, "a");
        assert_eq!(specification.attribution_window_seconds, 60);
    }

    #[test]
    fn all_that_is_missing_is_named() {
        let message = Draft::default().request(false).unwrap_err().to_string();
        for name in ["ID", "--epsilon", "--arm ", "--attribution-window-seconds"] {
            assert!(message.contains(name), "{message}");
        }
        let simulation =
            draft("experiment_id = \"a\"\nepsilon = 1\narms = [\"x\"]\nsimulation = true");
        assert!(simulation.request(false).is_ok());
    }

    #[test]
    fn nonlinear_estimands_are_accepted_or_refused() {
        let nonlinear = "reward_kind = \"bounded\"\nmechanism = \"exponential\"\n";
        let refused = draft(&format!("{COMPLETE}{nonlinear}")).request(false).unwrap_err();
        assert!(matches!(&refused, Failure::Refused(why) if why.contains("mean of g(reward)")));
        assert!(refused.to_string().contains("--accept-nonlinear-estimand"));
        assert!(draft(&format!("{COMPLETE}{nonlinear}")).request(true).is_ok());
        // Binary rewards have a linear estimand under any curve.
        assert!(draft(&format!("{COMPLETE}mechanism = \"exponential\"")).request(false).is_ok());
    }

    #[test]
    fn the_curvature_belongs_to_the_quadratic_mechanism() {
        let of = |text: &str| draft(&format!("{COMPLETE}{text}")).request(false);
        assert!(of("mechanism = \"quadratic\"").unwrap_err().to_string().contains("--curvature"));
        assert!(of("curvature = 0.5").is_err());
        assert!(of("mechanism = \"quadratic\"\ncurvature = 1.5").is_err());
        let request = of("mechanism = \"quadratic\"\ncurvature = 0.25").unwrap();
        let quadratic = v1::Quadratic { curvature: 1 << 18 };
        let expected = specification::Mechanism::Quadratic(quadratic);
        assert_eq!(request.specification.unwrap().mechanism, Some(expected));
    }

    #[test]
    fn unknown_keys_are_refused() {
        let error = toml::from_str::<Draft>("epsilom = 1").unwrap_err().to_string();
        assert!(error.contains("epsilom") && error.contains("`epsilon`"), "{error}");
    }
}
