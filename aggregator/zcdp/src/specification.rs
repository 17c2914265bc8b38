//! Trusted experiments in messages and in the store.

use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::trusted_specification::Algorithm as Message;
use bandana_shared::wire::v1::{
    AdacGope, AdacOful, AdacUcb, LazyRelease, TrustedSpecification, Vector,
};
use thiserror::Error;

use super::adac_gope::{GopeSettings, PhaseLength};
use super::adac_oful::OfulSettings;
use super::adac_ucb::{ARMS_MAX, Memory, UcbSettings};
use super::algorithm::AlgorithmSettings;
use super::error::ZcdpError;
use super::estimator::Placement;
use super::lattice::{Action, Protection, RewardRange};

/// The reason why a specification is invalid.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum SpecificationError {
    /// The declaration that rewards reach the server is missing.
    #[error(
        "`rewards_are_disclosed` must be true: in a trusted experiment rewards reach the server; \
         for private bits create an ordinary experiment"
    )]
    NotDisclosed,
    /// The algorithm is missing.
    #[error("the field `algorithm` must be set")]
    NoAlgorithm,
    /// A refusal by the algorithm.
    #[error(transparent)]
    Trusted(#[from] ZcdpError),
}

impl TryFrom<&TrustedSpecification> for AlgorithmSettings {
    type Error = SpecificationError;

    fn try_from(message: &TrustedSpecification) -> Result<Self, SpecificationError> {
        if !message.rewards_are_disclosed {
            return Err(SpecificationError::NotDisclosed);
        }
        let protection = Protection::concentrated(message.rho)?;
        let algorithm = message.algorithm.as_ref().ok_or(SpecificationError::NoAlgorithm)?;
        Ok(match algorithm {
            Message::AdacUcb(AdacUcb { arms, beta }) => Self::Ucb(UcbSettings {
                arms: count(*arms),
                protection,
                exploration: *beta,
                memory: Memory::Forgetting,
            }),
            Message::AdacGope(AdacGope { actions, delta }) => Self::Gope(GopeSettings {
                actions: actions_of(actions)?,
                range: RewardRange::Symmetric,
                protection,
                failure: *delta,
                length: PhaseLength::Exact,
                placement: Placement::Shaped,
            }),
            Message::AdacOful(AdacOful { dimension }) => {
                Self::Oful(OfulSettings::published(count(*dimension), protection))
            }
            Message::LazyRelease(LazyRelease { arms }) => {
                Self::Lazy { arms: count(*arms), protection }
            }
        })
    }
}

impl AlgorithmSettings {
    /// The wire form, for devices and operators.
    pub fn message(&self, id: &ExperimentId) -> TrustedSpecification {
        let (protection, algorithm) = match self {
            Self::Ucb(UcbSettings { arms, protection, exploration, .. }) => {
                let ucb = AdacUcb { arms: number(*arms), beta: *exploration };
                (*protection, Message::AdacUcb(ucb))
            }
            Self::Gope(settings) => {
                let vector =
                    |action: &Action| Vector { coordinates: action.coordinates().collect() };
                let actions = settings.actions.iter().map(vector).collect();
                let gope = AdacGope { actions, delta: settings.failure };
                (settings.protection, Message::AdacGope(gope))
            }
            Self::Oful(OfulSettings { dimension, protection, .. }) => {
                let oful = AdacOful { dimension: number(*dimension) };
                (*protection, Message::AdacOful(oful))
            }
            Self::Lazy { arms, protection } => {
                (*protection, Message::LazyRelease(LazyRelease { arms: number(*arms) }))
            }
        };
        TrustedSpecification {
            experiment_id: id.to_string(),
            rewards_are_disclosed: true,
            rho: protection.rho().get(),
            algorithm: Some(algorithm),
        }
    }

    /// A summary in words, for the audit log.
    pub fn words(&self) -> String {
        let (protection, what) = match self {
            Self::Ucb(settings) => {
                (settings.protection, format!("adac-ucb, {} arms", settings.arms))
            }
            Self::Gope(settings) => {
                (settings.protection, format!("adac-gope, {} actions", settings.actions.len()))
            }
            Self::Oful(settings) => {
                (settings.protection, format!("adac-oful, {} coordinates", settings.dimension))
            }
            Self::Lazy { arms, protection } => (*protection, format!("lazy-release, {arms} arms")),
        };
        format!("trusted, rho {}, {what}", protection.rho().get())
    }
}

/// Converts vectors to actions.
///
/// # Errors
/// When there are too many, or one is not a valid action.
pub fn actions_of(vectors: &[Vector]) -> Result<Vec<Action>, ZcdpError> {
    let count = vectors.len();
    if count > ARMS_MAX {
        return Err(ZcdpError::Arms { count, max: ARMS_MAX });
    }
    let vectors: Vec<_> = vectors.iter().map(|vector| vector.coordinates.clone()).collect();
    Action::list(&vectors)
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
