//! The algorithms of a study, by name.

use bandana_zcdp::adac_gope::{GopeSettings, PhaseLength};
use bandana_zcdp::adac_ucb::Memory;
use bandana_zcdp::estimator::Placement;
use bandana_zcdp::{Action, Protection, RewardRange};
use clap::ValueEnum;

/// δ of the published experiments.
const FAILURE: f64 = 0.001;

/// An algorithm of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// Upper confidence bounds in episodes, finite arms.
    AdacUcb,
    /// The same that adds statistics up instead of forgetting; ours.
    AdacUcbRemembering,
    /// Rand-AdaKL on seldom releases, finite arms; ours.
    LazyRelease,
    /// Optimal designs and elimination, fixed actions.
    AdacGope,
    /// The same with shorter phases; ours.
    AdacGopeExact,
    /// The same as published, but with noise on the reward sums.
    AdacGopeSums,
    /// The same as published, but with noise on the estimate, equal in all directions.
    AdacGopeOutput,
    /// Optimism for linear rewards, actions that change at every step.
    AdacOful,
}

/// The setting of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Arms.
    Finite(Finite),
    /// Actions with mean rewards linear in them, the same at every step.
    Linear(PhaseLength, Placement),
    /// Actions that change at every step, with mean rewards linear in them.
    Contextual,
}

/// The algorithms for arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finite {
    /// AdaC-UCB.
    Ucb(Memory),
    /// Lazy release.
    Lazy,
}

impl Algorithm {
    /// The name in options and results.
    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// The algorithm's setting.
    pub fn setting(self) -> Setting {
        match self {
            Self::AdacUcb => Setting::Finite(Finite::Ucb(Memory::Forgetting)),
            Self::AdacUcbRemembering => Setting::Finite(Finite::Ucb(Memory::Remembering)),
            Self::LazyRelease => Setting::Finite(Finite::Lazy),
            Self::AdacGope => Setting::Linear(PhaseLength::Published, Placement::Shaped),
            Self::AdacGopeExact => Setting::Linear(PhaseLength::Exact, Placement::Shaped),
            Self::AdacGopeSums => Setting::Linear(PhaseLength::Published, Placement::RewardSums),
            Self::AdacGopeOutput => Setting::Linear(PhaseLength::Published, Placement::Output),
            Self::AdacOful => Setting::Contextual,
        }
    }

    /// The ρ of the published experiments.
    pub fn published_rhos(self) -> [f64; 3] {
        match self.setting() {
            Setting::Finite(_) | Setting::Contextual => [0.1, 0.5, 1.0],
            Setting::Linear(..) => [0.01, 0.1, 1.0],
        }
    }
}

/// AdaC-GOPE as in the published experiments, except for the given settings.
pub fn gope(
    actions: Vec<Action>,
    protection: Protection,
    length: PhaseLength,
    placement: Placement,
) -> GopeSettings {
    let range = RewardRange::Symmetric;
    GopeSettings { actions, range, protection, failure: FAILURE, length, placement }
}
