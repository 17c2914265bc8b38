//! What is stored, field by field. A change here needs a new version, and a reader of
//! the old one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{
    ArmIndex, Day, Digest, ExperimentId, Revision, UnixSeconds, UploadId,
};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::signing::{PublicKey, Signature};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use bandana_shared::stored::Stored;
use serde::{Deserialize, Serialize};

use crate::assignment::{AssignmentId, OpenAssignment};
use crate::core::{Change, Draw, Epoch, Held, Once, State};
use crate::ledger::Ledger;
use crate::outbox::{Attempts, Outbox, Parcel, UploadTask};
use crate::privatizer::PrivateBit;
use crate::time::Timestamp;

/// What was spent: the record of a slot.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredLedger {
    number: u64,
    record: LedgerRecord,
}

impl Stored for StoredLedger {
    const MAGIC: [u8; 4] = *b"BDlg";
    const VERSION: u16 = 1;
}

impl StoredLedger {
    pub(super) fn new(number: u64, ledger: &Ledger) -> Self {
        Self { number, record: LedgerRecord::new(ledger) }
    }

    pub(super) fn into_parts(self) -> (u64, Ledger) {
        (self.number, self.record.into_ledger())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct LedgerRecord {
    lifetime: u64,
    days: Vec<(u32, u64)>,
    high_water_ms: u64,
}

impl LedgerRecord {
    fn new(ledger: &Ledger) -> Self {
        Self {
            lifetime: ledger.lifetime().get(),
            days: ledger.days().map(|(day, spent)| (day.get(), spent.get())).collect(),
            high_water_ms: ledger.time(Timestamp::default()).unix_ms(),
        }
    }

    fn into_ledger(self) -> Ledger {
        let days = self.days.into_iter();
        let days = days.map(|(day, spent)| (Day::new(day), NanoNats::new(spent))).collect();
        let high_water = Timestamp::from_unix_ms(self.high_water_ms);
        Ledger::from_parts(NanoNats::new(self.lifetime), days, high_water)
    }
}

/// A whole state.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredState {
    number: u64,
    simulated: bool,
    opted_out: bool,
    ledger: LedgerRecord,
    last_assignment: u64,
    /// Each of the specifications that the rest names by its place here.
    specifications: Vec<StoredSpecification>,
    held: Vec<StoredHeld>,
    open: Vec<StoredOpen>,
    parcels: Vec<StoredParcel>,
    once: Vec<(String, u32, u32, u32)>,
}

impl Stored for StoredState {
    const MAGIC: [u8; 4] = *b"BDst";
    const VERSION: u16 = 1;
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredHeld {
    specification: u32,
    signatures: Vec<StoredSignature>,
    policy: StoredPolicy,
    heard_at_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredOpen {
    id: u64,
    specification: u32,
    arm: u32,
    rewards_until_ms: u64,
    release_at_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredParcel {
    id: u64,
    experiment_id: String,
    digest: [u8; 16],
    arm: u32,
    bit: bool,
    release_at_ms: u64,
    reach_ms: u64,
    sealed: Option<([u8; 16], Vec<u8>)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredPolicy {
    version: u64,
    weights: Vec<u64>,
    time_to_live_seconds: u32,
}

impl StoredPolicy {
    fn new(policy: &Policy) -> Self {
        Self {
            version: policy.version,
            weights: policy.weights.iter().collect(),
            time_to_live_seconds: policy.time_to_live_seconds,
        }
    }

    fn into_policy(self) -> Option<Policy> {
        let weights = Weights::new(&self.weights).ok()?;
        let Self { version, time_to_live_seconds, .. } = self;
        Some(Policy { version, weights, time_to_live_seconds })
    }
}

/// Key, expiry in seconds, and 64 bytes.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSignature([u8; 32], u64, Vec<u8>);

impl StoredSignature {
    fn new(signature: &Signature) -> Self {
        let expires = signature.expires().get();
        Self(*signature.key().as_bytes(), expires, signature.as_bytes().to_vec())
    }

    fn into_signature(self) -> Option<Signature> {
        let key = PublicKey::new(self.0).ok()?;
        Some(Signature::new(key, UnixSeconds::new(self.1), self.2.try_into().ok()?))
    }
}

fn signatures(stored: Vec<StoredSignature>) -> Option<Vec<Signature>> {
    stored.into_iter().map(StoredSignature::into_signature).collect()
}

/// Specifications in the order of their first mention.
#[derive(Default)]
struct Mentioned {
    places: BTreeMap<[u8; 16], u32>,
    specifications: Vec<StoredSpecification>,
}

impl Mentioned {
    fn place(&mut self, specification: &Specification) -> u32 {
        let next = u32::try_from(self.specifications.len()).unwrap_or(u32::MAX);
        *self.places.entry(*specification.digest().as_bytes()).or_insert_with(|| {
            self.specifications.push(StoredSpecification::new(specification));
            next
        })
    }
}

impl StoredState {
    pub(crate) fn new(state: &State, number: u64, simulated: bool) -> Self {
        let mut mentioned = Mentioned::default();
        let held = state.held.values().map(|held| StoredHeld {
            specification: mentioned.place(&held.specification),
            signatures: held.signatures.iter().map(StoredSignature::new).collect(),
            policy: StoredPolicy::new(&held.policy),
            heard_at_ms: held.heard_at.unix_ms(),
        });
        let held = held.collect();
        let open = state.open.iter().map(|(id, open)| StoredOpen {
            id: id.get(),
            specification: mentioned.place(&open.specification),
            arm: open.arm.to_u32(),
            rewards_until_ms: open.rewards_until.unix_ms(),
            release_at_ms: open.release_at.unix_ms(),
        });
        let open = open.collect();
        let once = state.once.iter().map(|once| {
            let Epoch { days, number } = once.epoch;
            (once.experiment_id.to_string(), once.arm.to_u32(), days, number)
        });
        Self {
            number,
            simulated,
            opted_out: state.opted_out,
            ledger: LedgerRecord::new(&state.ledger),
            last_assignment: state.last_assignment,
            held,
            open,
            parcels: state.outbox.parcels.iter().map(StoredParcel::new).collect(),
            once: once.collect(),
            specifications: mentioned.specifications,
        }
    }

    /// The state and its number; `None` when it is not one.
    pub(super) fn into_state(self, simulated: bool) -> Option<(State, u64)> {
        if self.simulated != simulated {
            return None;
        }
        let specifications = self.specifications.into_iter();
        let specifications: Vec<Arc<Specification>> =
            specifications.map(|s| s.into_specification().map(Arc::new)).collect::<Option<_>>()?;
        let find = |place: u32| specifications.get(usize::try_from(place).ok()?).map(Arc::clone);
        let mut state = State {
            ledger: self.ledger.into_ledger(),
            last_assignment: self.last_assignment,
            opted_out: self.opted_out,
            ..State::default()
        };
        for held in self.held {
            let specification = find(held.specification)?;
            let id = specification.experiment_id().clone();
            let held = Held {
                specification,
                signatures: signatures(held.signatures)?,
                policy: held.policy.into_policy()?,
                heard_at: Timestamp::from_unix_ms(held.heard_at_ms),
            };
            state.held.insert(id, held);
        }
        for open in self.open {
            let specification = find(open.specification)?;
            let arm = arm_index(open.arm)?;
            if arm.get() >= specification.arms().len() || open.id > self.last_assignment {
                return None;
            }
            let until = Timestamp::from_unix_ms(open.rewards_until_ms);
            let release = Timestamp::from_unix_ms(open.release_at_ms);
            let assignment = OpenAssignment::new(specification, arm, until, release);
            state.open.insert(AssignmentId::new(open.id), assignment);
        }
        let parcels = self.parcels.into_iter().map(StoredParcel::into_parcel);
        state.outbox = Outbox { parcels: parcels.collect::<Option<_>>()? };
        for (experiment_id, arm, days, number) in self.once {
            let experiment_id = ExperimentId::new(experiment_id).ok()?;
            let epoch = Epoch { days, number };
            state.once.insert(Once { experiment_id, arm: arm_index(arm)?, epoch });
        }
        Some((state, self.number))
    }
}

fn arm_index(arm: u32) -> Option<ArmIndex> {
    ArmIndex::new(usize::try_from(arm).ok()?).ok()
}

impl StoredParcel {
    fn new((id, parcel): (&AssignmentId, &Parcel)) -> Self {
        let sealed = parcel.sealed.as_ref();
        Self {
            id: id.get(),
            experiment_id: parcel.experiment_id.to_string(),
            digest: *parcel.digest.as_bytes(),
            arm: parcel.arm.to_u32(),
            bit: parcel.bit.get(),
            release_at_ms: parcel.release_at.unix_ms(),
            reach_ms: u64::try_from(parcel.reach.as_millis()).unwrap_or(u64::MAX),
            sealed: sealed.map(|task| (*task.id().as_bytes(), task.bytes().to_vec())),
        }
    }

    fn into_parcel(self) -> Option<(AssignmentId, Parcel)> {
        let sealed =
            self.sealed.map(|(id, bytes)| UploadTask::from_parts(UploadId::new(id), bytes));
        let parcel = Parcel {
            experiment_id: ExperimentId::new(self.experiment_id).ok()?,
            digest: Digest::new(self.digest),
            arm: arm_index(self.arm)?,
            bit: PrivateBit::restored(self.bit),
            release_at: Timestamp::from_unix_ms(self.release_at_ms),
            reach: Duration::from_millis(self.reach_ms),
            sealed,
            changed: 0,
            attempts: Attempts::default(),
        };
        Some((AssignmentId::new(self.id), parcel))
    }
}

/// The changes of one write.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredChanges {
    number: u64,
    changes: Vec<StoredChange>,
}

impl Stored for StoredChanges {
    const MAGIC: [u8; 4] = *b"BDch";
    const VERSION: u16 = 1;
}

#[derive(Debug, Serialize, Deserialize)]
enum StoredChange {
    Heard {
        experiment_id: String,
        /// `None`: as before, and so are the signatures.
        specification: Option<(StoredSpecification, Vec<StoredSignature>)>,
        policy: StoredPolicy,
        heard_at_ms: u64,
    },
    Drawn {
        id: u64,
        digest: [u8; 16],
        experiment_id: String,
        arm: u32,
        chosen_at_ms: u64,
        rewards_until_ms: u64,
        release_at_ms: u64,
        price: u64,
        once: Option<(u32, u32)>,
    },
    Privatized {
        id: u64,
        bit: bool,
    },
    Sealed {
        id: u64,
        upload_id: [u8; 16],
        bytes: Vec<u8>,
    },
    Settled {
        id: u64,
    },
}

impl StoredChanges {
    pub(super) fn new(number: u64, changes: &[Change]) -> Self {
        Self { number, changes: changes.iter().map(StoredChange::new).collect() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Takes the changes in turn; `None` when one does not follow from the state.
    pub(super) fn apply(self, state: &mut State) -> Option<()> {
        for change in self.changes {
            let change = change.into_change(state)?;
            // Whatever was stored is durable.
            state.apply(&change, 0).ok()?;
        }
        Some(())
    }
}

impl StoredChange {
    fn new(change: &Change) -> Self {
        match change {
            Change::Heard { held, anew } => Self::Heard {
                experiment_id: held.specification.experiment_id().to_string(),
                specification: anew.then(|| {
                    let signatures = held.signatures.iter().map(StoredSignature::new);
                    (StoredSpecification::new(&held.specification), signatures.collect())
                }),
                policy: StoredPolicy::new(&held.policy),
                heard_at_ms: held.heard_at.unix_ms(),
            },
            Change::Drawn(draw) => Self::Drawn {
                id: draw.id.get(),
                digest: *draw.digest.as_bytes(),
                experiment_id: draw.experiment_id.to_string(),
                arm: draw.arm.to_u32(),
                chosen_at_ms: draw.chosen_at.unix_ms(),
                rewards_until_ms: draw.rewards_until.unix_ms(),
                release_at_ms: draw.release_at.unix_ms(),
                price: draw.price.get(),
                once: draw.once.map(|epoch| (epoch.days, epoch.number)),
            },
            Change::Privatized { id, bit } => Self::Privatized { id: id.get(), bit: bit.get() },
            Change::Sealed { id, task } => Self::Sealed {
                id: id.get(),
                upload_id: *task.id().as_bytes(),
                bytes: task.bytes().to_vec(),
            },
            Change::Settled { id } => Self::Settled { id: id.get() },
        }
    }

    /// The change, for the state that it is about to be applied to.
    fn into_change(self, state: &State) -> Option<Change> {
        Some(match self {
            Self::Heard { experiment_id, specification, policy, heard_at_ms } => {
                let experiment_id = ExperimentId::new(experiment_id).ok()?;
                let anew = specification.is_some();
                let (specification, signatures) = if let Some((stored, signed)) = specification {
                    (Arc::new(stored.into_specification()?), signatures(signed)?)
                } else {
                    let held = state.held.get(&experiment_id)?;
                    (Arc::clone(&held.specification), held.signatures.clone())
                };
                let policy = policy.into_policy()?;
                let heard_at = Timestamp::from_unix_ms(heard_at_ms);
                Change::Heard { held: Held { specification, signatures, policy, heard_at }, anew }
            }
            Self::Drawn {
                id,
                digest,
                experiment_id,
                arm,
                chosen_at_ms,
                rewards_until_ms,
                release_at_ms,
                price,
                once,
            } => Change::Drawn(Draw {
                id: AssignmentId::new(id),
                digest: Digest::new(digest),
                experiment_id: ExperimentId::new(experiment_id).ok()?,
                arm: arm_index(arm)?,
                chosen_at: Timestamp::from_unix_ms(chosen_at_ms),
                rewards_until: Timestamp::from_unix_ms(rewards_until_ms),
                release_at: Timestamp::from_unix_ms(release_at_ms),
                price: NanoNats::new(price),
                once: once.map(|(days, number)| Epoch { days, number }),
            }),
            Self::Privatized { id, bit } => {
                Change::Privatized { id: AssignmentId::new(id), bit: PrivateBit::restored(bit) }
            }
            Self::Sealed { id, upload_id, bytes } => {
                let task = UploadTask::from_parts(UploadId::new(upload_id), bytes);
                Change::Sealed { id: AssignmentId::new(id), task }
            }
            Self::Settled { id } => Change::Settled { id: AssignmentId::new(id) },
        })
    }
}

/// Sums of open assignments: the only raw values that ever rest on a disk, in the
/// app's own directory and only if the app asks for it. Neither printed nor compared.
#[derive(Serialize, Deserialize)]
pub(crate) struct PendingRewards(Vec<PendingReward>);

#[derive(Serialize, Deserialize)]
struct PendingReward {
    assignment: u64,
    sum: f64,
}

impl std::fmt::Debug for PendingRewards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingRewards(<private>)")
    }
}

impl Stored for PendingRewards {
    const MAGIC: [u8; 4] = *b"BDrw";
    const VERSION: u16 = 1;
}

impl PendingRewards {
    pub(crate) fn of(state: &State) -> Self {
        let sums = state.open.iter().filter_map(|(id, open)| {
            Some(PendingReward { assignment: id.get(), sum: open.sum()? })
        });
        Self(sums.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the sums back to the assignments that are still open.
    pub(super) fn restore(self, state: &mut State) {
        for PendingReward { assignment, sum } in self.0 {
            if let Some(open) = state.open.get_mut(&AssignmentId::new(assignment)) {
                open.restore_sum(sum);
            }
        }
    }
}

/// A specification by its parts.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSpecification {
    digest: [u8; 16],
    experiment_id: String,
    revision: u32,
    simulation: bool,
    epsilon: f64,
    floor: u64,
    binary: bool,
    range: (f64, f64),
    clamps: bool,
    default_reward: f64,
    mechanism: StoredMechanism,
    arms: Vec<(String, bool)>,
    attribution_window_seconds: u32,
    release_delay_seconds_max: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum StoredMechanism {
    Linear,
    Quadratic(i32),
    Exponential,
    RandomizedResponse,
}

impl StoredSpecification {
    fn new(specification: &Specification) -> Self {
        let rewards = specification.rewards();
        let timing = specification.timing();
        let arms = specification.arms().iter();
        Self {
            digest: *specification.digest().as_bytes(),
            experiment_id: specification.experiment_id().to_string(),
            revision: specification.revision().get(),
            simulation: specification.is_simulation(),
            epsilon: specification.epsilon().get(),
            floor: specification.floor().get(),
            binary: rewards.kind() == RewardKind::Binary,
            range: (rewards.range().low(), rewards.range().high()),
            clamps: rewards.out_of_range() == OutOfRange::Clamp,
            default_reward: rewards.default_reward(),
            mechanism: match specification.mechanism() {
                Mechanism::Linear => StoredMechanism::Linear,
                Mechanism::Quadratic(curvature) => StoredMechanism::Quadratic(curvature.units()),
                Mechanism::Exponential => StoredMechanism::Exponential,
                Mechanism::RandomizedResponse => StoredMechanism::RandomizedResponse,
            },
            arms: arms.map(|arm| (arm.label().to_owned(), arm.is_retired())).collect(),
            attribution_window_seconds: timing.attribution_window_seconds,
            release_delay_seconds_max: timing.release_delay_seconds_max,
        }
    }

    /// The specification, if it is valid and has the digest that it had.
    fn into_specification(self) -> Option<Specification> {
        let kind = if self.binary { RewardKind::Binary } else { RewardKind::Bounded };
        let out_of_range = if self.clamps { OutOfRange::Clamp } else { OutOfRange::Refuse };
        let range = RewardRange::new(self.range.0, self.range.1).ok()?;
        let arms = self.arms.into_iter().map(|(label, retired)| {
            let arm = Arm::new(label).ok()?;
            Some(if retired { arm.retired() } else { arm })
        });
        let specification = Specification::new(SpecificationParts {
            experiment_id: ExperimentId::new(self.experiment_id).ok()?,
            revision: Revision::new(self.revision).ok()?,
            simulation: self.simulation,
            epsilon: Epsilon::new(self.epsilon).ok()?,
            floor: self.floor,
            rewards: Rewards::new(kind, range, out_of_range, self.default_reward).ok()?,
            mechanism: match self.mechanism {
                StoredMechanism::Linear => Mechanism::Linear,
                StoredMechanism::Quadratic(units) => {
                    Mechanism::Quadratic(Curvature::from_units(units).ok()?)
                }
                StoredMechanism::Exponential => Mechanism::Exponential,
                StoredMechanism::RandomizedResponse => Mechanism::RandomizedResponse,
            },
            arms: arms.collect::<Option<_>>()?,
            timing: ReleaseTiming {
                attribution_window_seconds: self.attribution_window_seconds,
                release_delay_seconds_max: self.release_delay_seconds_max,
            },
        });
        specification.ok().filter(|s| *s.digest().as_bytes() == self.digest)
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::channel::Floor;
    use bandana_shared::stored;

    use super::*;

    type Failure = Box<dyn std::error::Error>;

    /// Bytes of version 1. They stay as they are for ever: what a later version can't read
    /// any more is lost on every device that has it.
    const LEDGER: &str = "\
        42446c6701001e3169aa07fc009435770200fc00ca9a3b01fc00ca9a3bfc005c2605";
    const REWARDS: &str = "\
        424472770100ac3b04fd01fb2c01000000000000e83f";
    const STATE: &str = "\
        42447374010061cabbe4040100fc002f68590100fc002f6859640301f2cd47e6e48cf3435ff11d3c\
        b79bb5bb06676f6c64656e0201000000000000e03ffd8591e3655981a66000000000000000f0bf00\
        0000000000084001000000000000d03f01fc0000100002036f6c6401036e6577003c09010001d75a\
        980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511afc00f153654007070707\
        07070707070707070707070707070707070707070707070707070707070707070707070707070707\
        0707070707070707070707070707070707070707030200fd00000000010000003c6301020001fbc4\
        eafb48ee010106676f6c64656ef2cd47e6e48cf3435ff11d3cb79bb5bb0101fb48eefc880d010001\
        090909090909090909090909090909090201020106676f6c64656e011e04";
    const CHANGES: &str = "\
        4244636801006f7da49305090006676f6c64656e01f2cd47e6e48cf3435ff11d3cb79bb5bb06676f\
        6c64656e0201000000000000e03ffd8591e3655981a66000000000000000f0bf0000000000000840\
        01000000000000d03f01fc0000100002036f6c6401036e6577003c0901d75a980182b10ab7d54bfe\
        d3c964073a0ee172f3daa62325af021a68f707511afc00f153654007070707070707070707070707\
        07070707070707070707070707070707070707070707070707070707070707070707070707070707\
        0707070707070707070707030200fd00000000010000003c4d0101f2cd47e6e48cf3435ff11d3cb7\
        9bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d000102f2cd47e6e48cf3435ff11d3cb79b\
        b5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d011e040103f2cd47e6e48cf3435ff11d3cb7\
        9bb5bb06676f6c64656e0164fbc4eafb48eefc0065cd1d0002010103010909090909090909090909\
        090909090902010202030004030006676f6c64656e00030200fd00000000010000003c63";

    fn hex(bytes: &[u8]) -> String {
        use std::fmt::Write as _;
        bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").ok();
            hex
        })
    }

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(milliseconds)
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.debit(NanoNats::new(1_000_000_000), at(5));
        ledger.debit(NanoNats::new(1_000_000_000), at(86_400_000));
        ledger
    }

    fn held(signed: bool) -> Result<Held, Failure> {
        let epsilon = Epsilon::new(0.5)?;
        let specification = Specification::new(SpecificationParts {
            experiment_id: ExperimentId::new("golden")?,
            revision: Revision::new(2)?,
            simulation: true,
            epsilon,
            floor: Floor::for_epsilon(epsilon).get(),
            rewards: Rewards::new(
                RewardKind::Bounded,
                RewardRange::new(-1.0, 3.0)?,
                OutOfRange::Clamp,
                0.25,
            )?,
            mechanism: Mechanism::Quadratic(Curvature::new(0.5)?),
            arms: vec![Arm::new("old")?.retired(), Arm::new("new")?],
            timing: ReleaseTiming { attribution_window_seconds: 60, release_delay_seconds_max: 9 },
        })?;
        // The public key of RFC 8032's first test; the signature need not fit.
        let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".parse()?;
        let signature = Signature::new(key, UnixSeconds::new(1_700_000_000), [7; 64]);
        let weights = Weights::new(&[0, 1 << 32])?;
        Ok(Held {
            specification: Arc::new(specification),
            signatures: if signed { vec![signature] } else { Vec::new() },
            policy: Policy { version: 3, weights, time_to_live_seconds: 60 },
            heard_at: at(77),
        })
    }

    /// Every kind of change, from an empty state on.
    fn changes() -> Result<Vec<Change>, Failure> {
        let held = held(true)?;
        let digest = held.specification.digest();
        let experiment_id = held.specification.experiment_id().clone();
        let draw = |id: u64, once| -> Result<Change, Failure> {
            Ok(Change::Drawn(Draw {
                id: AssignmentId::new(id),
                digest,
                experiment_id: experiment_id.clone(),
                arm: ArmIndex::new(1)?,
                chosen_at: at(100),
                rewards_until: at(60_100),
                release_at: at(61_000),
                price: NanoNats::new(500_000_000),
                once,
            }))
        };
        let id = AssignmentId::new(1);
        let again = Held { heard_at: at(99), ..held.clone() };
        Ok(vec![
            Change::Heard { held, anew: true },
            draw(1, None)?,
            draw(2, Some(Epoch { days: 30, number: 4 }))?,
            draw(3, None)?,
            Change::Privatized { id, bit: PrivateBit::restored(true) },
            Change::Sealed { id, task: UploadTask::from_parts(UploadId::new([9; 16]), vec![1, 2]) },
            Change::Privatized { id: AssignmentId::new(3), bit: PrivateBit::restored(false) },
            Change::Settled { id: AssignmentId::new(3) },
            Change::Heard { held: again, anew: false },
        ])
    }

    fn state() -> Result<State, Failure> {
        let mut state = State::default();
        for change in changes()? {
            state.apply(&change, 0).map_err(|_| format!("{change:?}"))?;
        }
        Ok(state)
    }

    #[test]
    fn golden_bytes() -> Result<(), Failure> {
        let ledger = stored::to_bytes(&StoredLedger::new(7, &ledger()))?;
        let rewards = PendingRewards(vec![PendingReward { assignment: 300, sum: 0.75 }]);
        let state = stored::to_bytes(&StoredState::new(&state()?, 4, true))?;
        let changes = stored::to_bytes(&StoredChanges::new(5, &changes()?))?;
        assert_eq!(hex(&ledger), LEDGER);
        assert_eq!(hex(&stored::to_bytes(&rewards)?), REWARDS);
        assert_eq!(hex(&state), STATE);
        assert_eq!(hex(&changes), CHANGES);
        Ok(())
    }

    #[test]
    fn what_is_read_back_is_what_was_written() -> Result<(), Failure> {
        let written = state()?;
        let bytes = stored::to_bytes(&StoredState::new(&written, 4, true))?;
        let read: StoredState = stored::from_bytes(&bytes)?;
        let (read, number) = read.into_state(true).ok_or("not a state")?;
        assert_eq!(number, 4);
        assert_eq!(stored::to_bytes(&StoredState::new(&read, 4, true))?, bytes);
        assert!(stored::from_bytes::<StoredState>(&bytes)?.into_state(false).is_none());

        let mut replayed = State::default();
        let changes = stored::to_bytes(&StoredChanges::new(5, &changes()?))?;
        let changes: StoredChanges = stored::from_bytes(&changes)?;
        changes.apply(&mut replayed).ok_or("changes that do not apply")?;
        assert_eq!(stored::to_bytes(&StoredState::new(&replayed, 4, true))?, bytes);
        Ok(())
    }

    #[test]
    fn changes_that_do_not_follow_are_refused() -> Result<(), Failure> {
        let all = changes()?;
        for left_out in 0..7 {
            let mut some = all.clone();
            some.remove(left_out);
            let stored = StoredChanges::new(1, &some);
            let applied = stored.apply(&mut State::default());
            // Only sealing and a later assignment can be left out.
            assert_eq!(applied.is_some(), [2, 5].contains(&left_out), "without {left_out}");
        }
        let twice = StoredChanges::new(1, &[&all[..2], &all[1..2]].concat());
        assert!(twice.apply(&mut State::default()).is_none());
        Ok(())
    }
}
