//! A new trusted experiment as described by flags or by a page.

use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    AdacGope, AdacOful, AdacUcb, LazyRelease, TrustedSpecification, Vector,
};
use clap::{Args, ValueEnum, ValueHint};
use serde::Deserialize;

use super::failure::Failure;
use super::vectors_file::{Vectors, vectors_of};

/// β of the published experiments.
const BETA: f64 = 1.0;

/// δ of the published experiments.
const DELTA: f64 = 0.001;

const UNDECLARED: &str = "\
in a trusted experiment, the rewards of users reach this server. They are protected from everybody \
else, but not from the server. Declare that with --rewards-are-disclosed (`rewards_are_disclosed`: \
true). Or create an ordinary experiment with `bandana experiment create`: there, rewards stay on \
devices";

/// What is said of a new trusted experiment. The names that pages use are those of the flags, with
/// underscores.
#[derive(Debug, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustedSettings {
    /// Id: 1 to 64 of a-z, 0-9, ".", "_", "-".
    #[arg(value_name = "ID")]
    experiment_id: String,
    /// Declare that users disclose their rewards to this server. Every trusted experiment needs
    /// this flag.
    ///
    /// Whoever runs the server, or can read its store, can see rewards. Apps take part only if
    /// they have agreed to that.
    #[arg(long)]
    #[serde(default)]
    rewards_are_disclosed: bool,
    /// What one reward costs at most in zero-concentrated differential privacy: 1e-7 to 1e6.
    ///
    /// k rewards of one person cost up to k^2 times as much. As an app's caps are by default, a
    /// person can disclose 10 rewards in a week at 0.005, 2 at 0.1 and 1 at 0.5.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    rho: f64,
    /// Which algorithm recommends what to play.
    #[arg(long, value_enum)]
    algorithm: Name,
    /// Number of arms, 2 to 1024, for adac-ucb and lazy-release.
    #[arg(long, value_name = "NUMBER")]
    arms: Option<u32>,
    /// Exploration of adac-ucb, above 0 [default: 1]. The bound on regret is proved above 3. Privacy
    /// holds for each value.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    beta: Option<f64>,
    /// Actions of adac-gope: 2 to 1024 vectors of norm at most 1 that span their space.
    ///
    /// CSV with a vector on each line, or JSON with a list of lists. They are public.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = vectors_of)]
    actions: Option<Vectors>,
    /// Probability that adac-gope may eliminate the best action, between 0 and 1
    /// [default: 0.001].
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    delta: Option<f64>,
    /// Coordinates of the actions of adac-oful, 1 to 64.
    #[arg(long, value_name = "NUMBER")]
    dimension: Option<u32>,
}

/// The algorithms, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Name {
    /// Upper confidence bounds in episodes, for arms with rewards of 0 to 1.
    AdacUcb,
    /// Optimal designs and elimination, for fixed actions with rewards of -1 to 1.
    AdacGope,
    /// Optimism, for actions that come with each recommendation, with rewards of -1 to 1.
    AdacOful,
    /// Rand-AdaKL on seldom releases, for arms with rewards of 0 to 1. It is a rule of our own.
    LazyRelease,
}

impl Name {
    fn get(self) -> &'static str {
        match self {
            Self::AdacUcb => "adac-ucb",
            Self::AdacGope => "adac-gope",
            Self::AdacOful => "adac-oful",
            Self::LazyRelease => "lazy-release",
        }
    }

    /// The setting that the algorithm requires, and an optional one.
    fn settings(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::AdacUcb => ("arms", Some("beta")),
            Self::AdacGope => ("actions", Some("delta")),
            Self::AdacOful => ("dimension", None),
            Self::LazyRelease => ("arms", None),
        }
    }
}

impl TrustedSettings {
    /// The specification to request.
    pub(crate) fn request(self) -> Result<TrustedSpecification, Failure> {
        if !self.rewards_are_disclosed {
            return Err(Failure::Incomplete(UNDECLARED.to_owned()));
        }
        self.check_settings()?;
        let algorithm = match self.algorithm {
            Name::AdacUcb => Algorithm::AdacUcb(AdacUcb {
                arms: self.arms.unwrap_or(0),
                beta: self.beta.unwrap_or(BETA),
            }),
            Name::AdacGope => {
                let Vectors(actions) = self.actions.unwrap_or(Vectors(Vec::new()));
                let vector = |coordinates| Vector { coordinates };
                let actions = actions.into_iter().map(vector).collect();
                Algorithm::AdacGope(AdacGope { actions, delta: self.delta.unwrap_or(DELTA) })
            }
            Name::AdacOful => {
                Algorithm::AdacOful(AdacOful { dimension: self.dimension.unwrap_or(0) })
            }
            Name::LazyRelease => {
                Algorithm::LazyRelease(LazyRelease { arms: self.arms.unwrap_or(0) })
            }
        };
        Ok(TrustedSpecification {
            experiment_id: self.experiment_id,
            rewards_are_disclosed: self.rewards_are_disclosed,
            rho: self.rho,
            algorithm: Some(algorithm),
        })
    }

    /// Checks that the algorithm's required settings are present, and that no setting is present
    /// which it would ignore.
    fn check_settings(&self) -> Result<(), Failure> {
        let (needed, possible) = self.algorithm.settings();
        let given = [
            ("arms", self.arms.is_some()),
            ("beta", self.beta.is_some()),
            ("actions", self.actions.is_some()),
            ("delta", self.delta.is_some()),
            ("dimension", self.dimension.is_some()),
        ];
        let name = self.algorithm.get();
        for (setting, is_given) in given {
            let problem = match (setting == needed, is_given) {
                (true, false) => format!("{name} needs --{needed} (`{needed}`)"),
                (false, true) if possible != Some(setting) => {
                    let more = possible.map(|more| format!(" and --{more}")).unwrap_or_default();
                    format!("--{setting} is not for {name}, which has --{needed}{more}")
                }
                _ => continue,
            };
            return Err(Failure::Incomplete(problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> Result<TrustedSpecification, String> {
        let settings: TrustedSettings =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        settings.request().map_err(|error| error.to_string())
    }

    #[test]
    fn each_algorithm_has_its_settings() {
        let of = |rest: &str| {
            let json = format!(
                r#"{{"experiment_id": "a", "rewards_are_disclosed": true, "rho": 0.5, {rest}}}"#
            );
            request(&json)
        };
        let ucb = of(r#""algorithm": "adac-ucb", "arms": 3"#).unwrap();
        assert_eq!(ucb.algorithm, Some(Algorithm::AdacUcb(AdacUcb { arms: 3, beta: 1.0 })));
        let gope = of(r#""algorithm": "adac-gope", "actions": [[1, 0], [0, 1]], "delta": 0.1"#);
        let actions = [[1.0, 0.0], [0.0, 1.0]].map(|v| Vector { coordinates: v.to_vec() });
        let expected = AdacGope { actions: actions.to_vec(), delta: 0.1 };
        assert_eq!(gope.unwrap().algorithm, Some(Algorithm::AdacGope(expected)));
        let oful = of(r#""algorithm": "adac-oful", "dimension": 2"#).unwrap();
        assert_eq!(oful.algorithm, Some(Algorithm::AdacOful(AdacOful { dimension: 2 })));
        let lazy = of(r#""algorithm": "lazy-release", "arms": 3"#).unwrap();
        assert!(lazy.rewards_are_disclosed && lazy.rho.to_string() == "0.5");

        for (rest, said) in [
            (r#""algorithm": "adac-ucb""#, "needs --arms"),
            (
                r#""algorithm": "adac-oful", "dimension": 2, "beta": 1"#,
                "--beta is not for adac-oful",
            ),
            (r#""algorithm": "adac-gope", "actions": [[1]], "arms": 2"#, "--actions and --delta"),
            (r#""algorithm": "adac", "arms": 2"#, "unknown variant"),
        ] {
            let error = of(rest).unwrap_err();
            assert!(error.contains(said), "{rest}: {error}");
        }
    }

    #[test]
    fn nobody_makes_one_without_saying_so() {
        let undeclared = r#"{"experiment_id": "a", "rho": 1, "algorithm": "adac-ucb", "arms": 2}"#;
        let error = request(undeclared).unwrap_err();
        assert!(error.contains("--rewards-are-disclosed") && error.contains("reach this server"));
    }
}
