//! The protobuf messages and gRPC stubs, and the only conversions between them
//! and the validated types.
//!
//! The code in [`v1`] is generated from `proto/` and committed. Received messages become validated
//! types by `TryFrom`, which checks every field.

use prost::Message as _;
use thiserror::Error;

use crate::alphabet::{Alphabet, AlphabetError};
use crate::cells::{CellsError, Limit, Measurement, Metric, Segmentation, Segmentations};
use crate::context::{ContextError, Feature, PrivateContext};
use crate::curve::{Curvature, CurvatureError, Mechanism};
use crate::epsilon::{Epsilon, EpsilonError};
use crate::estimate::Estimand;
use crate::identity::{Day, Digest, ExperimentId, IdentityError, Revision, UploadId};
use crate::participation::{
    Layer, LayerName, Millionths, Participation, ParticipationError, Sticky,
};
use crate::policy::{Policy, PolicyError, Weights};
use crate::rewards::{OutOfRange, RewardKind, RewardRange, Rewards, RewardsError};
use crate::shuffling::{BatchSize, BatchSizeError};
#[cfg(feature = "signatures")]
use crate::signing::KeyError;
use crate::specification::{
    Arm, ReleaseTiming, Specification, SpecificationError, SpecificationParts,
};
use crate::upload::{PackedReports, Upload, UploadError};

#[cfg(feature = "signatures")]
mod signature;
#[cfg(feature = "signatures")]
mod view;

#[cfg(feature = "signatures")]
pub use signature::{experiment_with_signatures, signatures};

/// Package `bandana.v1`, generated from `proto/`: its messages, and clients and servers of its
/// services.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    single_use_lifetimes,
    rustdoc::broken_intra_doc_links,
    rustdoc::invalid_html_tags,
    reason = "generated from proto/, where the fields are documented"
)]
pub mod v1 {
    #[rustfmt::skip]
    mod messages;
    pub use messages::*;

    #[cfg(feature = "services")]
    #[rustfmt::skip]
    mod curator;
    #[cfg(feature = "services")]
    #[rustfmt::skip]
    mod device;
    #[cfg(feature = "services")]
    #[rustfmt::skip]
    mod gateway;
    #[cfg(feature = "services")]
    #[rustfmt::skip]
    mod operator;
    #[cfg(feature = "services")]
    #[rustfmt::skip]
    mod shuffling;
    #[cfg(feature = "services")]
    #[rustfmt::skip]
    mod transparency;
    #[cfg(feature = "services")]
    #[rustfmt::skip]
    mod trusted;
    #[cfg(feature = "services")]
    pub use self::{
        curator::*, device::*, gateway::*, operator::*, shuffling::*, transparency::*, trusted::*,
    };
}

/// The descriptors of `bandana.v1`, with the comments of `proto/`: an encoded
/// `google.protobuf.FileDescriptorSet`, generated and committed together with [`v1`].
#[cfg(feature = "services")]
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("bandana.v1.binpb");

/// The parts of a specification from its message, unchecked against each other.
impl TryFrom<&v1::Specification> for SpecificationParts {
    type Error = WireError;

    fn try_from(message: &v1::Specification) -> Result<Self, WireError> {
        let arm = |arm: &v1::Arm| {
            let checked = Arm::new(arm.label.clone())?;
            Ok(if arm.retired { checked.retired() } else { checked })
        };
        Ok(Self {
            experiment_id: ExperimentId::new(message.experiment_id.clone())?,
            revision: Revision::new(message.revision)?,
            simulation: message.simulation,
            epsilon: Epsilon::new(message.epsilon)?,
            floor: message.floor,
            rewards: rewards(
                (message.reward_kind(), message.out_of_range()),
                (message.reward_low, message.reward_high),
                message.default_reward,
            )?,
            mechanism: mechanism(message)?,
            arms: message.arms.iter().map(arm).collect::<Result<_, WireError>>()?,
            timing: ReleaseTiming {
                attribution_window_seconds: message.attribution_window_seconds,
                release_delay_seconds_max: message.release_delay_seconds_max,
            },
            batch: match message.shuffle_batch {
                0 => None,
                reports => Some(BatchSize::new(reports)?),
            },
            participation: participation(message)?,
            measurement: measurement(message)?,
        })
    }
}

fn participation(message: &v1::Specification) -> Result<Participation, WireError> {
    let sticky = message.sticky.map(|sticky| {
        let until_weight_below = Millionths::new(sticky.until_weight_below)?;
        Ok::<_, WireError>(Sticky { until_weight_below, report_days: sticky.report_days })
    });
    let layer = message.layer.as_ref().map(|layer| {
        let (from, to) = (Millionths::new(layer.from)?, Millionths::new(layer.to)?);
        Layer::new(LayerName::new(layer.name.clone())?, from, to)
    });
    let enrolment = match message.enrolment_millionths {
        0 => Millionths::ALL,
        parts => Millionths::new(parts)?,
    };
    Ok(Participation { sticky: sticky.transpose()?, layer: layer.transpose()?, enrolment })
}

fn measurement(message: &v1::Specification) -> Result<Measurement, WireError> {
    let segmentation =
        |one: &v1::Segmentation| Segmentation::new(one.name.clone(), one.values.iter().cloned());
    let segmentations = message.segmentations.iter().map(segmentation);
    let segmentations = Segmentations::new(segmentations.collect::<Result<_, _>>()?)?;
    let metrics = message.metrics.iter().map(metric).collect::<Result<_, WireError>>()?;
    let holdout = Millionths::new(message.holdout_millionths)?;
    let context = message.private_context.as_ref().map(private_context).transpose()?;
    Ok(Measurement { segmentations, metrics, holdout, context })
}

fn private_context(message: &v1::PrivateContext) -> Result<PrivateContext, WireError> {
    let feature = |feature: &v1::PrivateFeature| -> Result<Feature, WireError> {
        Ok(Feature::new(feature.name.clone(), Millionths::new(feature.true_millionths)?)?)
    };
    let features = message.features.iter().map(feature).collect::<Result<_, WireError>>()?;
    Ok(PrivateContext::new(features, Millionths::new(message.exploration_millionths)?)?)
}

impl From<&PrivateContext> for v1::PrivateContext {
    fn from(context: &PrivateContext) -> Self {
        let feature = |feature: &Feature| v1::PrivateFeature {
            name: feature.name().to_owned(),
            true_millionths: feature.true_share().get(),
        };
        Self {
            features: context.features().iter().map(feature).collect(),
            exploration_millionths: context.exploration().get(),
        }
    }
}

fn metric(message: &v1::Metric) -> Result<Metric, WireError> {
    use v1::metric::Limit as Wire;
    let values = rewards(
        (message.kind(), message.out_of_range()),
        (message.low, message.high),
        message.default_value,
    )?;
    let share = Millionths::new(message.share_millionths)?;
    let metric = Metric::new(message.name.clone(), values, share)?;
    let limit = match message.limit {
        None => return Ok(metric),
        Some(Wire::AtMost(v1::MeanLimit { mean })) => Limit::AtMost(mean),
        Some(Wire::AtLeast(v1::MeanLimit { mean })) => Limit::AtLeast(mean),
    };
    Ok(metric.limited(limit)?)
}

fn rewards(
    (kind, out_of_range): (v1::RewardKind, v1::OutOfRange),
    (low, high): (f64, f64),
    default: f64,
) -> Result<Rewards, WireError> {
    let kind = match kind {
        v1::RewardKind::Binary => RewardKind::Binary,
        v1::RewardKind::Bounded => RewardKind::Bounded,
        v1::RewardKind::Categorical => RewardKind::Categorical,
        v1::RewardKind::Unspecified => return Err(WireError::Missing("reward_kind")),
    };
    let out_of_range = match out_of_range {
        v1::OutOfRange::Refuse => OutOfRange::Refuse,
        v1::OutOfRange::Clamp => OutOfRange::Clamp,
        v1::OutOfRange::Unspecified => return Err(WireError::Missing("out_of_range")),
    };
    Ok(Rewards::new(kind, RewardRange::new(low, high)?, out_of_range, default)?)
}

/// The names of kind and treatment of rewards on the wire.
fn wire_rewards(rewards: Rewards) -> (v1::RewardKind, v1::OutOfRange) {
    let kind = match rewards.kind() {
        RewardKind::Binary => v1::RewardKind::Binary,
        RewardKind::Bounded => v1::RewardKind::Bounded,
        RewardKind::Categorical => v1::RewardKind::Categorical,
    };
    let out_of_range = match rewards.out_of_range() {
        OutOfRange::Refuse => v1::OutOfRange::Refuse,
        OutOfRange::Clamp => v1::OutOfRange::Clamp,
    };
    (kind, out_of_range)
}

impl From<&Segmentation> for v1::Segmentation {
    fn from(one: &Segmentation) -> Self {
        Self { name: one.name().to_owned(), values: one.values().to_vec() }
    }
}

impl From<&Metric> for v1::Metric {
    fn from(metric: &Metric) -> Self {
        use v1::metric::Limit as Wire;
        let values = metric.values();
        let (kind, out_of_range) = wire_rewards(values);
        Self {
            name: metric.name().to_owned(),
            kind: kind.into(),
            low: values.range().low(),
            high: values.range().high(),
            out_of_range: out_of_range.into(),
            default_value: values.default_reward(),
            share_millionths: metric.share().get(),
            limit: metric.limit().map(|limit| match limit {
                Limit::AtMost(mean) => Wire::AtMost(v1::MeanLimit { mean }),
                Limit::AtLeast(mean) => Wire::AtLeast(v1::MeanLimit { mean }),
            }),
        }
    }
}

fn mechanism(message: &v1::Specification) -> Result<Mechanism, WireError> {
    use v1::specification::Mechanism as Wire;
    match message.mechanism {
        Some(Wire::Linear(_)) => Ok(Mechanism::Linear),
        Some(Wire::Quadratic(v1::Quadratic { curvature })) => {
            Ok(Mechanism::Quadratic(Curvature::from_units(curvature)?))
        }
        Some(Wire::Exponential(_)) => Ok(Mechanism::Exponential),
        Some(Wire::RandomizedResponse(v1::RandomizedResponse { symbols: 0 })) => {
            Ok(Mechanism::RandomizedResponse)
        }
        Some(Wire::RandomizedResponse(v1::RandomizedResponse { symbols })) => {
            Ok(Mechanism::Kary(Alphabet::new(symbols)?))
        }
        None => Err(WireError::Missing("mechanism")),
    }
}

impl TryFrom<&v1::Specification> for Specification {
    type Error = WireError;

    fn try_from(message: &v1::Specification) -> Result<Self, WireError> {
        Ok(Self::new(message.try_into()?)?)
    }
}

/// The message of a specification. Its canonical encoding is [`Specification::canonical_bytes`].
impl From<&Specification> for v1::Specification {
    fn from(specification: &Specification) -> Self {
        use v1::specification::Mechanism as Wire;
        let rewards = specification.rewards();
        let (kind, out_of_range) = wire_rewards(rewards);
        let arm = |arm: &Arm| v1::Arm { label: arm.label().to_owned(), retired: arm.is_retired() };
        Self {
            experiment_id: specification.experiment_id().to_string(),
            revision: specification.revision().get(),
            simulation: specification.is_simulation(),
            epsilon: specification.epsilon().get(),
            floor: specification.channel().floor(),
            reward_kind: kind.into(),
            reward_low: rewards.range().low(),
            reward_high: rewards.range().high(),
            out_of_range: out_of_range.into(),
            default_reward: rewards.default_reward(),
            arms: specification.arms().iter().map(arm).collect(),
            attribution_window_seconds: specification.timing().attribution_window_seconds,
            release_delay_seconds_max: specification.timing().release_delay_seconds_max,
            shuffle_batch: specification.batch().map_or(0, BatchSize::get),
            sticky: specification.participation().sticky.map(|sticky| v1::Sticky {
                until_weight_below: sticky.until_weight_below.get(),
                report_days: sticky.report_days,
            }),
            layer: specification.participation().layer.as_ref().map(|layer| v1::Layer {
                name: layer.name().to_string(),
                from: layer.from().get(),
                to: layer.to().get(),
            }),
            enrolment_millionths: match specification.participation().enrolment {
                Millionths::ALL => 0,
                share => share.get(),
            },
            segmentations: specification
                .measurement()
                .segmentations
                .all()
                .iter()
                .map(v1::Segmentation::from)
                .collect(),
            metrics: specification.measurement().metrics.iter().map(v1::Metric::from).collect(),
            holdout_millionths: specification.measurement().holdout.get(),
            private_context: specification.private_context().map(v1::PrivateContext::from),
            mechanism: Some(match specification.mechanism() {
                Mechanism::Linear => Wire::Linear(v1::Linear {}),
                Mechanism::Quadratic(curvature) => {
                    Wire::Quadratic(v1::Quadratic { curvature: curvature.units() })
                }
                Mechanism::Exponential => Wire::Exponential(v1::Exponential {}),
                Mechanism::RandomizedResponse => {
                    Wire::RandomizedResponse(v1::RandomizedResponse { symbols: 0 })
                }
                Mechanism::Kary(alphabet) => {
                    let symbols = u32::from(alphabet.len());
                    Wire::RandomizedResponse(v1::RandomizedResponse { symbols })
                }
            }),
        }
    }
}

/// Reads a specification from its canonical encoding.
///
/// # Errors
/// [`WireError`] when the bytes do not decode, break a rule, or are not the canonical encoding of
/// the decoded specification. In the last case they contain something unknown to this program, and
/// taking part would mean agreeing to it.
pub fn decode_specification(bytes: &[u8]) -> Result<Specification, WireError> {
    let specification = Specification::try_from(&v1::Specification::decode(bytes)?)?;
    if specification.canonical_bytes() == bytes {
        Ok(specification)
    } else {
        Err(WireError::NotCanonical)
    }
}

/// Reads an experiment and checks its digest against its bytes.
///
/// # Errors
/// As [`decode_specification`], and [`WireError::DigestMismatch`].
impl TryFrom<&v1::Experiment> for Specification {
    type Error = WireError;

    fn try_from(message: &v1::Experiment) -> Result<Self, WireError> {
        let specification = decode_specification(&message.specification)?;
        if specification.digest().as_bytes()[..] == message.digest[..] {
            Ok(specification)
        } else {
            Err(WireError::DigestMismatch)
        }
    }
}

/// An experiment without signatures.
impl From<&Specification> for v1::Experiment {
    fn from(specification: &Specification) -> Self {
        Self {
            specification: specification.canonical_bytes().into(),
            digest: specification.digest().as_bytes().to_vec().into(),
            signatures: Vec::new(),
        }
    }
}

impl TryFrom<&v1::Policy> for Policy {
    type Error = WireError;

    fn try_from(message: &v1::Policy) -> Result<Self, WireError> {
        if message.version == 0 || message.time_to_live_seconds == 0 {
            return Err(PolicyError::Unversioned.into());
        }
        Ok(Self {
            version: message.version,
            weights: Weights::new(&message.weights)?,
            time_to_live_seconds: message.time_to_live_seconds,
        })
    }
}

impl From<&Policy> for v1::Policy {
    fn from(policy: &Policy) -> Self {
        Self {
            version: policy.version,
            weights: policy.weights.iter().collect(),
            time_to_live_seconds: policy.time_to_live_seconds,
        }
    }
}

/// An upload of bits; for other symbols see [`read_upload`].
impl TryFrom<&v1::UploadRequest> for Upload {
    type Error = UploadError;

    fn try_from(message: &v1::UploadRequest) -> Result<Self, UploadError> {
        read_upload(message, Alphabet::BITS)
    }
}

/// Reads an upload of reports with these symbols. The alphabet is that of the specification with
/// the upload's digest.
///
/// # Errors
/// [`UploadError`] for the first rule that is broken.
pub fn read_upload(message: &v1::UploadRequest, alphabet: Alphabet) -> Result<Upload, UploadError> {
    Ok(Upload {
        id: UploadId::try_from(&message.upload_id[..])?,
        digest: Digest::try_from(&message.digest[..])?,
        day: Day::new(message.day),
        reports: PackedReports::symbols_from_packed(&message.runs, &message.bits, alphabet)?,
    })
}

impl From<Estimand> for v1::Estimand {
    fn from(estimand: Estimand) -> Self {
        match estimand {
            Estimand::MeanReward(_) => Self::MeanReward,
            Estimand::MeanCurvedReward => Self::MeanCurvedReward,
            Estimand::Frequencies => Self::Frequencies,
        }
    }
}

/// An invalid message.
#[derive(Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes are not protobuf, or not this message.
    #[error("the message can't be decoded")]
    Decode(#[from] prost::DecodeError),
    /// The bytes contain more than this program understands.
    #[error(
        "the specification holds fields that this version does not know, or is not in canonical \
         form; update the program"
    )]
    NotCanonical,
    /// Bytes and digest belong to different specifications.
    #[error("the digest is not that of the specification's bytes")]
    DigestMismatch,
    /// A required field is not set.
    #[error("the field `{0}` must be set")]
    Missing(&'static str),
    /// A name or number is invalid.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The privacy loss bound is invalid.
    #[error(transparent)]
    Epsilon(#[from] EpsilonError),
    /// The curvature of a quadratic mechanism is invalid.
    #[error(transparent)]
    Curvature(#[from] CurvatureError),
    /// The number of symbols of k-ary randomized response is invalid.
    #[error(transparent)]
    Alphabet(#[from] AlphabetError),
    /// The size of batches is invalid.
    #[error(transparent)]
    Batch(#[from] BatchSizeError),
    /// The declaration of who takes part is invalid.
    #[error(transparent)]
    Participation(#[from] ParticipationError),
    /// The declaration of segments or metrics is invalid.
    #[error(transparent)]
    Cells(#[from] CellsError),
    /// The declaration of a private context is invalid.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The declaration of rewards is invalid.
    #[error(transparent)]
    Rewards(#[from] RewardsError),
    /// The specification as a whole is invalid.
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    /// The weights of a policy are invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The public key of a signature is invalid.
    #[cfg(feature = "signatures")]
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A signature has another length.
    #[cfg(feature = "signatures")]
    #[error("a signature has 64 bytes; this one has {0}")]
    SignatureLength(usize),
    /// Hashes or a signature of a log have another length.
    #[cfg(feature = "signatures")]
    #[error("hashes and signatures of a log have other lengths than {0} bytes")]
    View(usize),
}

crate::debug_says!(WireError);
