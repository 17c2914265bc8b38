//! The specification of an experiment, shared by device and server.

mod encoding;
mod price;

use std::collections::HashSet;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::alphabet::Alphabet;
use crate::cells::{Cells, CellsError, Measurement, Metric};
use crate::channel::{Channel, Floor, FloorError, KaryChannel};
use crate::context::{ContextError, PrivateContext};
use crate::curve::{Curve, Mechanism};
use crate::epsilon::Epsilon;
use crate::estimate::Estimand;
use crate::identity::{ArmIndex, Digest, ExperimentId, Revision};
use crate::limits::{
    ARMS_MAX, ATTRIBUTION_WINDOW_SECONDS_MAX, LABEL_BYTES_MAX, RELEASE_DELAY_SECONDS_MAX,
};
use crate::participation::{Millionths, Participation, ParticipationError};
use crate::rewards::{RewardKind, Rewards};
use crate::shuffling::BatchSize;

/// The domain of the digest, before the encoding, so that no bytes of another protocol have the
/// digest of a specification.
const DIGEST_DOMAIN: &[u8] = b"bandana.v1.specification\0";

/// One option that the app can show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    label: String,
    retired: bool,
}

impl Arm {
    /// An active arm.
    ///
    /// # Errors
    /// [`SpecificationError::Label`] when `label` is empty, longer than
    /// [`LABEL_BYTES_MAX`] bytes or holds control characters.
    pub fn new(label: impl Into<String>) -> Result<Self, SpecificationError> {
        let label = label.into();
        let valid = !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.chars().any(char::is_control);
        if valid {
            Ok(Self { label, retired: false })
        } else {
            Err(SpecificationError::Label { label })
        }
    }

    /// The same arm, retired: it is no longer drawn.
    #[must_use]
    pub fn retired(self) -> Self {
        Self { retired: true, ..self }
    }

    /// The label, for people.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether the arm is retired, and so no longer drawn.
    pub fn is_retired(&self) -> bool {
        self.retired
    }
}

/// The timing of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseTiming {
    /// Seconds after the choice during which rewards still count, at most
    /// [`ATTRIBUTION_WINDOW_SECONDS_MAX`].
    pub attribution_window_seconds: u32,
    /// Largest random delay in seconds after the window, at most [`RELEASE_DELAY_SECONDS_MAX`].
    pub release_delay_seconds_max: u32,
}

impl ReleaseTiming {
    /// No window and no delay. This is for simulations, whose users react at the time of the
    /// choice. Real users take longer. Without a delay, the time of an upload would reveal when the
    /// arm was chosen.
    pub const IMMEDIATE: Self =
        Self { attribution_window_seconds: 0, release_delay_seconds_max: 0 };

    /// Mean time from a choice until its report may leave the device.
    pub fn mean_lag(self) -> Duration {
        Duration::from_secs(self.attribution_window_seconds.into())
            + Duration::from_secs(self.release_delay_seconds_max.into()) / 2
    }
}

/// The parts of a [`Specification`], before they are checked against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecificationParts {
    /// Name of the experiment.
    pub experiment_id: ExperimentId,
    /// The revision, from 1 on. Each change of the arms or of the enrolment adds 1.
    pub revision: Revision,
    /// Whether the users are simulated.
    pub simulation: bool,
    /// Privacy loss bound of one report, in nats.
    pub epsilon: Epsilon,
    /// The channel's floor, as claimed: see [`Floor::verify`] and [`KaryChannel::verify`].
    pub floor: u64,
    /// The kind and range of rewards.
    pub rewards: Rewards,
    /// The mechanism that turns a reward into a report.
    pub mechanism: Mechanism,
    /// The arms, 1 to [`ARMS_MAX`].
    pub arms: Vec<Arm>,
    /// The timing of reports.
    pub timing: ReleaseTiming,
    /// The number of reports that a relay shuffles and hands on together, or `None` if reports are
    /// not shuffled.
    pub batch: Option<BatchSize>,
    /// The installations that take part, and how long each keeps its arm.
    pub participation: Participation,
    /// The segments of installations, and the further metrics.
    pub measurement: Measurement,
}

/// A valid, immutable experiment.
///
/// ```
/// use bandana_shared::curve::Mechanism;
/// use bandana_shared::epsilon::Epsilon;
/// use bandana_shared::identity::ExperimentId;
/// use bandana_shared::rewards::Rewards;
/// use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
///
/// let specification = Specification::first(
///     ExperimentId::new("button-colour")?,
///     Epsilon::new(1.0)?,
///     Rewards::binary(),
///     Mechanism::RandomizedResponse,
///     vec![Arm::new("red")?, Arm::new("green")?],
///     ReleaseTiming { attribution_window_seconds: 3600, release_delay_seconds_max: 600 },
/// )?;
/// assert_eq!(specification.arms().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Specification {
    parts: SpecificationParts,
    channel: Channel,
    digest: Digest,
}

impl Specification {
    /// Checks the parts against each other.
    ///
    /// # Errors
    /// [`SpecificationError`] for the first part that breaks a rule.
    ///
    /// # Privacy
    /// A floor with a loss above ε is refused here, so no `Specification` with such a floor exists.
    pub fn new(parts: SpecificationParts) -> Result<Self, SpecificationError> {
        let channel = match parts.mechanism {
            Mechanism::Kary(alphabet) => {
                KaryChannel::verify(alphabet, parts.floor, parts.epsilon)?.into()
            }
            _ => Floor::verify(parts.floor, parts.epsilon)?.into(),
        };
        check_arms(&parts.arms)?;
        parts.participation.check()?;
        parts.measurement.check(parts.arms.len())?;
        check_mechanism(parts.mechanism, parts.rewards)?;
        if parts.batch.is_some() && matches!(parts.mechanism, Mechanism::Kary(_)) {
            return Err(SpecificationError::BatchNeedsBits);
        }
        if !parts.measurement.metrics.is_empty() && matches!(parts.mechanism, Mechanism::Kary(_)) {
            return Err(CellsError::MetricsNeedBits.into());
        }
        check_context(&parts)?;
        let ReleaseTiming { attribution_window_seconds, release_delay_seconds_max } = parts.timing;
        if attribution_window_seconds > ATTRIBUTION_WINDOW_SECONDS_MAX
            || release_delay_seconds_max > RELEASE_DELAY_SECONDS_MAX
        {
            return Err(SpecificationError::Timing(parts.timing));
        }
        let mut hasher = Sha256::new();
        hasher.update(DIGEST_DOMAIN);
        hasher.update(encoding::encode(&parts));
        let hash: [u8; 32] = hasher.finalize().into();
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash[..16]);
        Ok(Self { parts, channel, digest: Digest::new(digest) })
    }

    /// The first revision of an experiment with real users, with the floor
    /// computed from `epsilon`.
    ///
    /// # Errors
    /// The same as for [`Self::new`].
    pub fn first(
        experiment_id: ExperimentId,
        epsilon: Epsilon,
        rewards: Rewards,
        mechanism: Mechanism,
        arms: Vec<Arm>,
        timing: ReleaseTiming,
    ) -> Result<Self, SpecificationError> {
        Self::new(SpecificationParts {
            experiment_id,
            revision: Revision::FIRST,
            simulation: false,
            epsilon,
            floor: smallest_floor(mechanism, epsilon),
            rewards,
            mechanism,
            arms,
            timing,
            batch: None,
            participation: Participation::EVERYONE,
            measurement: Measurement::REWARDS_ONLY,
        })
    }

    /// The same experiment, with this declaration of who takes part.
    ///
    /// # Errors
    /// [`SpecificationError::Participation`] when nobody would take part.
    pub fn for_part(&self, participation: Participation) -> Result<Self, SpecificationError> {
        Self::new(SpecificationParts { participation, ..self.parts.clone() })
    }

    /// The same experiment, with these segments and metrics.
    ///
    /// # Errors
    /// [`SpecificationError::Cells`] when there are too many, or when metrics don't fit.
    pub fn measuring(&self, measurement: Measurement) -> Result<Self, SpecificationError> {
        Self::new(SpecificationParts { measurement, ..self.parts.clone() })
    }

    /// The next revision, with another share of installations enrolled.
    ///
    /// # Errors
    /// [`SpecificationError::SameEnrolment`] when that share is enrolled already.
    /// [`SpecificationError::Participation`] for a share of none.
    pub fn with_enrolment(&self, enrolment: Millionths) -> Result<Self, SpecificationError> {
        let mut parts = self.parts.clone();
        if parts.participation.enrolment == enrolment {
            return Err(SpecificationError::SameEnrolment { share: enrolment.share() });
        }
        parts.revision = parts.revision.next();
        parts.participation.enrolment = enrolment;
        Self::new(parts)
    }

    /// The same experiment, with reports that reach the aggregator only in shuffled batches.
    ///
    /// # Errors
    /// [`SpecificationError::BatchNeedsBits`] when reports are not bits.
    pub fn in_batches(&self, batch: BatchSize) -> Result<Self, SpecificationError> {
        Self::new(SpecificationParts { batch: Some(batch), ..self.parts.clone() })
    }

    /// The next revision, with one more arm.
    ///
    /// # Errors
    /// The same as for [`Self::new`].
    pub fn with_arm(&self, arm: Arm) -> Result<Self, SpecificationError> {
        let mut parts = self.parts.clone();
        parts.revision = parts.revision.next();
        parts.arms.push(arm);
        Self::new(parts)
    }

    /// The next revision, with one arm retired.
    ///
    /// # Errors
    /// [`SpecificationError::UnknownArm`] when there is no such arm.
    /// [`SpecificationError::AlreadyRetired`] when it is retired already.
    /// [`SpecificationError::NoActiveArm`] when it is the last active arm.
    pub fn without_arm(&self, arm: ArmIndex) -> Result<Self, SpecificationError> {
        let mut parts = self.parts.clone();
        parts.revision = parts.revision.next();
        let arms = parts.arms.len();
        let place = parts
            .arms
            .get_mut(arm.get())
            .ok_or(SpecificationError::UnknownArm { arm: arm.get(), arms })?;
        if place.is_retired() {
            return Err(SpecificationError::AlreadyRetired { arm: arm.get() });
        }
        *place = place.clone().retired();
        Self::new(parts)
    }

    /// The canonical encoding, which the digest covers.
    pub fn canonical_bytes(&self) -> Vec<u8> {
        encoding::encode(&self.parts)
    }

    /// The first 16 bytes of SHA-256 over a domain and the canonical encoding.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The parts, for making a changed copy.
    pub fn to_parts(&self) -> SpecificationParts {
        self.parts.clone()
    }

    /// Name of the experiment.
    pub fn experiment_id(&self) -> &ExperimentId {
        &self.parts.experiment_id
    }

    /// The revision, from 1 on. Each change of the arms or of the enrolment adds 1.
    pub fn revision(&self) -> Revision {
        self.parts.revision
    }

    /// Whether the users are simulated.
    pub fn is_simulation(&self) -> bool {
        self.parts.simulation
    }

    /// Privacy loss bound of one report, in nats.
    pub fn epsilon(&self) -> Epsilon {
        self.parts.epsilon
    }

    /// The channel of the reports.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// The least ε that the floor certifies, in nats. It is rounded up, and never above
    /// [`Self::epsilon`], against which the floor was checked in integers.
    pub fn certified_epsilon(&self) -> f64 {
        self.channel.certified_epsilon().min(self.parts.epsilon.get())
    }

    /// The kind and range of rewards.
    pub fn rewards(&self) -> Rewards {
        self.parts.rewards
    }

    /// The mechanism that turns a reward into a report.
    pub fn mechanism(&self) -> Mechanism {
        self.parts.mechanism
    }

    /// The curve of the mechanism.
    pub fn curve(&self) -> Curve {
        Curve::new(self.parts.mechanism, self.parts.epsilon)
    }

    /// The quantity that a server can estimate.
    pub fn estimand(&self) -> Estimand {
        self.estimand_of(0)
    }

    /// The arms.
    pub fn arms(&self) -> &[Arm] {
        &self.parts.arms
    }

    /// For each arm, whether it is active.
    pub fn active_arms(&self) -> Vec<bool> {
        self.parts.arms.iter().map(|arm| !arm.is_retired()).collect()
    }

    /// The timing of reports.
    pub fn timing(&self) -> ReleaseTiming {
        self.parts.timing
    }

    /// The number of reports that a relay shuffles and hands on together, or `None` if reports are
    /// not shuffled.
    pub fn batch(&self) -> Option<BatchSize> {
        self.parts.batch
    }

    /// Whether later messages of a device may tell which policy it took. That is so if the device
    /// keeps its arm, or if its reports are shuffled in a batch that others fill.
    pub fn may_tell_policy(&self) -> bool {
        self.participation().sticky.is_some() || self.batch().is_some()
    }

    /// The installations that take part, and how long each keeps its arm.
    pub fn participation(&self) -> &Participation {
        &self.parts.participation
    }

    /// The segments of installations, and the further metrics.
    pub fn measurement(&self) -> &Measurement {
        &self.parts.measurement
    }

    /// The private context by which arms are chosen, or `None` if there is none.
    pub fn private_context(&self) -> Option<&PrivateContext> {
        self.parts.measurement.context.as_ref()
    }

    /// The cells that reports are counted in.
    pub fn cells(&self) -> Cells {
        self.parts.measurement.cells(self.parts.arms.len())
    }

    /// The metric with a number from 1 up, or `None` for 0, which stands for the rewards.
    pub fn metric(&self, metric: usize) -> Option<&Metric> {
        self.parts.measurement.metrics.get(metric.checked_sub(1)?)
    }

    /// The kind and range of the values of a metric; 0 stands for the rewards.
    pub fn values_of(&self, metric: usize) -> Rewards {
        self.metric(metric).map_or(self.parts.rewards, Metric::values)
    }

    /// The mechanism of the reports of a metric; 0 stands for the rewards.
    pub fn mechanism_of(&self, metric: usize) -> Mechanism {
        if self.metric(metric).is_some() { Mechanism::Linear } else { self.parts.mechanism }
    }

    /// The quantity that a server can estimate of a metric; 0 stands for the rewards.
    pub fn estimand_of(&self, metric: usize) -> Estimand {
        let values = self.values_of(metric);
        Estimand::of(self.mechanism_of(metric).is_linear(), values.kind(), values.range())
    }
}

/// The smallest floor of a mechanism for an ε.
pub fn smallest_floor(mechanism: Mechanism, epsilon: Epsilon) -> u64 {
    match mechanism {
        Mechanism::Kary(alphabet) => KaryChannel::for_epsilon(alphabet, epsilon).share(),
        _ => Floor::for_epsilon(epsilon).get(),
    }
}

/// Checks that a mechanism admits these rewards.
fn check_mechanism(mechanism: Mechanism, rewards: Rewards) -> Result<(), SpecificationError> {
    match (mechanism, rewards.kind()) {
        (Mechanism::RandomizedResponse, RewardKind::Bounded) => {
            Err(SpecificationError::RandomizedResponseNeedsBinary)
        }
        (Mechanism::Kary(_), RewardKind::Binary) => Err(SpecificationError::KaryNeedsMore),
        (Mechanism::Kary(symbols), RewardKind::Categorical) => match rewards.categories() {
            Some(categories) if categories != symbols => {
                Err(SpecificationError::CategoryCount { symbols, categories })
            }
            _ => Ok(()),
        },
        (_, RewardKind::Categorical) => Err(SpecificationError::CategoriesNeedKary),
        _ => Ok(()),
    }
}

/// Checks that a private context, if there is one, fits the other parts.
fn check_context(parts: &SpecificationParts) -> Result<(), CellsError> {
    if parts.measurement.context.is_none() {
        return Ok(());
    }
    let (with, instead) = match (parts.mechanism, parts.participation.sticky, parts.batch) {
        (Mechanism::Kary(_), ..) => {
            ("k-ary randomized response", "its reports are bits; take the linear mechanism")
        }
        (Mechanism::Quadratic(_) | Mechanism::Exponential, ..) => {
            ("a curve", "take the linear mechanism, whose estimates of products are right")
        }
        (_, Some(_), _) => {
            ("sticky arms", "an arm follows the context of the moment; leave them out")
        }
        (.., Some(_)) => {
            ("shuffled reports", "what batches certify is not known for it; leave them out")
        }
        _ => return Ok(()),
    };
    Err(ContextError::Combination { with, instead }.into())
}

/// Checks number, labels and activity of the arms.
fn check_arms(arms: &[Arm]) -> Result<(), SpecificationError> {
    if arms.is_empty() || arms.len() > ARMS_MAX {
        return Err(SpecificationError::ArmCount { arms: arms.len() });
    }
    let mut labels = HashSet::with_capacity(arms.len());
    if let Some(arm) = arms.iter().find(|arm| !labels.insert(arm.label())) {
        return Err(SpecificationError::DuplicateLabel { label: arm.label.clone() });
    }
    if arms.iter().all(Arm::is_retired) {
        return Err(SpecificationError::NoActiveArm);
    }
    Ok(())
}

/// Parts that do not make a valid specification.
#[derive(Clone, Error, PartialEq)]
#[non_exhaustive]
pub enum SpecificationError {
    /// The floor can't be used with the epsilon.
    #[error("the channel is not as private as promised")]
    Floor(#[from] FloorError),
    /// Too few or too many arms.
    #[error("an experiment has 1 to {max} arms; this one has {arms}", max = ARMS_MAX)]
    ArmCount {
        /// The number of arms.
        arms: usize,
    },
    /// The label can't be shown.
    #[error(
        "arm label {label:?} must have 1 to {max} bytes and no control characters",
        max = LABEL_BYTES_MAX
    )]
    Label {
        /// The label.
        label: String,
    },
    /// Two arms have the same label.
    #[error("two arms are labelled {label:?}; labels must differ")]
    DuplicateLabel {
        /// The label.
        label: String,
    },
    /// No arm is active.
    #[error("every arm is retired; at least one must be in play")]
    NoActiveArm,
    /// The arm is already retired.
    #[error("arm {arm} is retired already")]
    AlreadyRetired {
        /// The index.
        arm: usize,
    },
    /// There is no arm with this index.
    #[error("there is no arm {arm}; the experiment has {arms} arms, counted from 0")]
    UnknownArm {
        /// The index.
        arm: usize,
        /// The number of arms.
        arms: usize,
    },
    /// Warner's mechanism takes binary rewards only.
    #[error("randomized response takes binary rewards; use the linear mechanism for bounded ones")]
    RandomizedResponseNeedsBinary,
    /// k-ary randomized response is not for two values.
    #[error(
        "k-ary randomized response is for bounded rewards and categories; binary rewards take \
         randomized response"
    )]
    KaryNeedsMore,
    /// Categories take k-ary randomized response only.
    #[error("categories take k-ary randomized response and no other mechanism")]
    CategoriesNeedKary,
    /// The numbers of symbols and categories differ.
    #[error(
        "k-ary randomized response with {} symbols does not fit {} categories; the numbers must \
         be equal", symbols.len(), categories.len()
    )]
    CategoryCount {
        /// The number of symbols of the mechanism.
        symbols: Alphabet,
        /// The number of categories of the rewards.
        categories: Alphabet,
    },
    /// Only bits can be shuffled: Bandana has no certificate for shuffled symbols.
    #[error(
        "only bits are shuffled, and k-ary randomized response sends symbols; take another mechanism, or no batches"
    )]
    BatchNeedsBits,
    /// Nobody would take part, or for too long.
    #[error(transparent)]
    Participation(#[from] ParticipationError),
    /// Segments or metrics do not fit.
    #[error(transparent)]
    Cells(#[from] CellsError),
    /// The same share is enrolled already.
    #[error("a share of {share} is enrolled already")]
    SameEnrolment {
        /// The share.
        share: f64,
    },
    /// The times are beyond the limits.
    #[error(
        "attribution window and release delay must be at most {} and {} seconds; got {} and {}",
        ATTRIBUTION_WINDOW_SECONDS_MAX, RELEASE_DELAY_SECONDS_MAX,
        .0.attribution_window_seconds, .0.release_delay_seconds_max
    )]
    Timing(ReleaseTiming),
}

crate::debug_says!(SpecificationError);
