//! The stored state as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::cells::Measurement;
use bandana_shared::identity::{Day, Digest, ExperimentId, StoreId, UploadId};
use bandana_shared::participation::Participation;
use bandana_shared::shuffling::BatchSize;
use bandana_shared::specification::Specification;
use bandana_shared::stored::{Older, Stored, StoredError};
use serde::{Deserialize, Serialize};

use super::super::stored_specification::{
    Beside, StoredMeasurement, StoredMeasurement6, StoredParticipation, StoredSpecification,
};
use super::super::{BatchCode, BatchReports, CachedExperiment, OwnReports, State};
use super::ledger::{LedgerRecord, LedgerRecord1, LedgerRecord2, StoredDebit};
use super::{
    StoredPolicy, StoredSignature, arm_index, batch_size, cell_index, last_day, signatures,
};
use crate::assignment::{AssignmentId, OpenAssignment};
use crate::debit::Debit;
use crate::membership::Secret;
use crate::outbox::{Attempts, Outbox, PendingReport, Sealed, UploadTask};
use crate::privatizer::PrivateReport;
use crate::time::Timestamp;

/// A whole state.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredState {
    parts: StoredParts<LedgerRecord>,
    stores: StoredStores,
    /// The price of each parcel in the local account, in nano-nats. Versions 1 and 2 had none.
    prices: Vec<u64>,
    shuffling: StoredShuffling,
    membership: StoredMembership,
    /// What each specification measures beside the rewards of all; `None`: nothing. Before version 6
    /// there was nothing.
    measurements: Vec<Option<StoredMeasurement>>,
    /// The shuffled reports of each batch, and the price of the first. Before version 8 nobody counted
    /// them, so the ledger's δ has more than they explain.
    counts: Vec<(BatchCode, u32, StoredDebit)>,
}

/// What the installation takes part in, and the arms that it keeps. Before version 5 all took part,
/// and none were kept.
#[derive(Debug, Serialize, Deserialize)]
struct StoredMembership {
    /// Who takes part under each specification; `None`: everyone.
    participations: Vec<Option<StoredParticipation>>,
    secret: Option<[u8; 32]>,
    /// Experiments and arms.
    kept: Vec<(String, u32)>,
}

impl StoredMembership {
    fn new(participations: Vec<Option<StoredParticipation>>, state: &State) -> Self {
        let kept = state.kept.iter().map(|(id, arm)| (id.to_string(), arm.to_u32()));
        let secret = state.secret.as_ref().map(|secret| *secret.as_bytes());
        Self { participations, secret, kept: kept.collect() }
    }

    fn none(parts: &StoredParts<LedgerRecord>) -> Self {
        let participations = parts.specifications.iter().map(|_| None).collect();
        Self { participations, secret: None, kept: Vec::new() }
    }

    /// Restores the secret and the arms; `None`: an arm of no experiment that the state holds.
    fn restore(self, state: &mut State) -> Option<()> {
        state.secret = self.secret.map(Secret::from_bytes);
        for (id, arm) in self.kept {
            let (id, arm) = (ExperimentId::new(id).ok()?, arm_index(arm)?);
            let held = state.cached.get(&id)?;
            if arm.get() >= held.specification.arms().len() {
                return None;
            }
            state.kept.insert(id, arm);
        }
        Some(())
    }
}

/// What is shuffled. Before version 4 nothing was.
#[derive(Debug, Serialize, Deserialize)]
struct StoredShuffling {
    /// The batch of each specification; 0: none.
    batches: Vec<u32>,
    /// The price of each open assignment, where it is not the same in both accounts.
    open: Vec<Option<StoredDebit>>,
    /// What is different of each parcel, if it is shuffled.
    parcels: Vec<Option<StoredShuffledParcel>>,
}

/// A parcel that is shuffled: it has no bytes of an upload.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct StoredShuffledParcel {
    batch: u32,
    price: StoredDebit,
    /// Id and day of the upload.
    sealed: Option<([u8; 16], u32)>,
}

impl StoredShuffling {
    fn new(specifications: &[u32], state: &State) -> Self {
        let open = state.open.values().map(|open| {
            let is_same = open.price == Debit::unshuffled(open.price.local);
            (!is_same).then(|| StoredDebit::new(open.price))
        });
        let parcels = state.outbox.parcels.values().map(StoredShuffledParcel::new);
        Self { batches: specifications.to_vec(), open: open.collect(), parcels: parcels.collect() }
    }

    /// Nothing is shuffled.
    fn none(parts: &StoredParts<LedgerRecord>) -> Self {
        Self {
            batches: vec![0; parts.specifications.len()],
            open: vec![None; parts.open.len()],
            parcels: vec![None; parts.parcels.len()],
        }
    }

    /// Whether there is one entry for each.
    fn fits(&self, parts: &StoredParts<LedgerRecord>) -> bool {
        self.batches.len() == parts.specifications.len()
            && self.open.len() == parts.open.len()
            && self.parcels.len() == parts.parcels.len()
    }
}

impl StoredShuffledParcel {
    fn new(parcel: &PendingReport) -> Option<Self> {
        let sealed = match &parcel.sealed {
            Some(Sealed::Shuffled { id, day }) => Some((*id.as_bytes(), day.get())),
            Some(Sealed::Direct(_)) | None => None,
        };
        let (batch, price) = (parcel.batch?.get(), StoredDebit::new(parcel.price));
        Some(Self { batch, price, sealed })
    }
}

/// The stores of held specifications, open assignments and parcels, in that order. A place is 0 for
/// an unknown store, and otherwise one more than the store's index in `all`. Version 1 had none.
#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredStores {
    all: Vec<[u8; 16]>,
    places: Vec<u32>,
}

impl StoredStores {
    fn new(stores: impl Iterator<Item = Option<StoreId>>) -> Self {
        let mut known: BTreeMap<StoreId, u32> = BTreeMap::new();
        let mut all = Vec::new();
        let mut place = |store: StoreId| {
            *known.entry(store).or_insert_with(|| {
                all.push(*store.as_bytes());
                u32::try_from(all.len()).unwrap_or(0)
            })
        };
        let places = stores.map(|store| store.map_or(0, &mut place)).collect();
        Self { all, places }
    }

    /// One store for each of `count` items; `None`: the number of stores differs.
    fn into_stores(self, count: usize) -> Option<impl Iterator<Item = Option<StoreId>>> {
        let Self { all, mut places } = self;
        if places.is_empty() {
            places = vec![0; count];
        }
        let store = |place: u32| match place.checked_sub(1) {
            None => Some(None),
            Some(place) => all.get(usize::try_from(place).ok()?).map(|id| Some(StoreId::new(*id))),
        };
        let stores: Vec<_> = places.into_iter().map(store).collect::<Option<_>>()?;
        (stores.len() == count).then(|| stores.into_iter())
    }
}

/// The whole content of version 1, but for the ledger.
#[derive(Debug, Serialize, Deserialize)]
struct StoredParts<L> {
    number: u64,
    simulated: bool,
    opted_out: bool,
    ledger: L,
    last_assignment: u64,
    /// The specifications, which other fields name by their index here.
    specifications: Vec<StoredSpecification>,
    held: Vec<StoredHeld>,
    open: Vec<StoredOpen>,
    parcels: Vec<StoredParcel>,
    /// Experiments with the period of their last draw: its days, and its number. The second number
    /// was an arm before version 5; since then it is 0, and periods have one day.
    once: Vec<(String, u32, u32, u32)>,
}

impl Stored for StoredState {
    const MAGIC: [u8; 4] = *b"BDst";
    const VERSION: u16 = 8;

    fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
        type Parts<L> = StoredParts<L>;
        let (parts, stores, prices) = match older.version() {
            1 => {
                let parts: Parts<LedgerRecord1> = older.decode()?;
                (parts.with_ledger(), StoredStores::default(), Vec::new())
            }
            2 => {
                let (parts, stores): (Parts<LedgerRecord1>, _) = older.decode()?;
                (parts.with_ledger(), stores, Vec::new())
            }
            3 => {
                let (parts, stores, prices): (Parts<LedgerRecord2>, _, _) = older.decode()?;
                (parts.with_ledger(), stores, prices)
            }
            4 => {
                let (parts, stores, prices, shuffling): (Parts<LedgerRecord>, _, _, _) =
                    older.decode()?;
                return Ok(Some(Self { shuffling, ..Self::plain(parts, stores, prices) }));
            }
            5 => {
                let (first, membership): (Version4, _) = older.decode()?;
                let (parts, stores, prices, shuffling) = first;
                let plain = Self::plain(parts, stores, prices);
                return Ok(Some(Self { shuffling, membership, ..plain }));
            }
            6 => {
                type Measurements = Vec<Option<StoredMeasurement6>>;
                let (first, membership, measurements): (Version4, _, Measurements) =
                    older.decode()?;
                let (parts, stores, prices, shuffling) = first;
                let measurements = measurements.into_iter().map(|one| one.map(Into::into));
                let measurements = measurements.collect();
                let plain = Self::plain(parts, stores, prices);
                return Ok(Some(Self { shuffling, membership, measurements, ..plain }));
            }
            7 => {
                let (first, membership, measurements): (Version4, _, _) = older.decode()?;
                let (parts, stores, prices, shuffling) = first;
                let plain = Self::plain(parts, stores, prices);
                return Ok(Some(Self { shuffling, membership, measurements, ..plain }));
            }
            _ => return Ok(None),
        };
        Ok(Some(Self::plain(parts, stores, prices)))
    }
}

/// The content of version 4. A tuple of tuples has the bytes of one tuple.
type Version4 = (StoredParts<LedgerRecord>, StoredStores, Vec<u64>, StoredShuffling);

impl StoredState {
    /// A state of specifications that are for all, not shuffled, and measure their rewards only.
    fn plain(parts: StoredParts<LedgerRecord>, stores: StoredStores, prices: Vec<u64>) -> Self {
        let shuffling = StoredShuffling::none(&parts);
        let membership = StoredMembership::none(&parts);
        let measurements = parts.specifications.iter().map(|_| None).collect();
        let counts = Vec::new();
        Self { parts, stores, prices, shuffling, membership, measurements, counts }
    }
}

impl<L> StoredParts<L> {
    /// The same parts, with a ledger of this version.
    fn with_ledger(self) -> StoredParts<LedgerRecord>
    where
        LedgerRecord: From<L>,
    {
        let parts = self;
        let StoredParts { number, simulated, opted_out, ledger, last_assignment, .. } = parts;
        let StoredParts { specifications, held, open, parcels, once, .. } = parts;
        StoredParts {
            number,
            simulated,
            opted_out,
            ledger: ledger.into(),
            last_assignment,
            specifications,
            held,
            open,
            parcels,
            once,
        }
    }
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
    /// The cell, as in a draw.
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
    /// The report's symbol. A bit is the same byte as a `bool`.
    symbol: u8,
    release_at_ms: u64,
    reach_ms: u64,
    sealed: Option<([u8; 16], Vec<u8>)>,
}

/// Specifications in the order of their first mention.
#[derive(Default)]
struct Mentioned {
    places: BTreeMap<[u8; 16], u32>,
    specifications: Vec<StoredSpecification>,
    /// The batch of each; 0: none.
    batches: Vec<u32>,
    /// Who takes part under each; `None`: everyone.
    participations: Vec<Option<StoredParticipation>>,
    /// What each measures beside the rewards of all; `None`: nothing.
    measurements: Vec<Option<StoredMeasurement>>,
}

impl Mentioned {
    fn place(&mut self, specification: &Specification) -> u32 {
        let next = u32::try_from(self.specifications.len()).unwrap_or(u32::MAX);
        *self.places.entry(*specification.digest().as_bytes()).or_insert_with(|| {
            self.specifications.push(StoredSpecification::new(specification));
            self.batches.push(specification.batch().map_or(0, BatchSize::get));
            let part = specification.participation();
            let is_partial = *part != Participation::EVERYONE;
            self.participations.push(is_partial.then(|| StoredParticipation::new(part)));
            self.measurements.push(StoredMeasurement::of(specification.measurement()));
            next
        })
    }
}

impl StoredState {
    pub(crate) fn new(state: &State, number: u64, simulated: bool) -> Self {
        let mut mentioned = Mentioned::default();
        let held = state.cached.values().map(|held| StoredHeld {
            specification: mentioned.place(&held.specification),
            signatures: held.signatures.iter().map(StoredSignature::new).collect(),
            policy: StoredPolicy::new(&held.policy),
            heard_at_ms: held.heard_at.unix_ms(),
        });
        let held = held.collect();
        let open = state.open.iter().map(|(id, open)| StoredOpen {
            id: id.get(),
            specification: mentioned.place(&open.specification),
            arm: open.cell.to_u32(),
            rewards_until_ms: open.rewards_until.unix_ms(),
            release_at_ms: open.release_at.unix_ms(),
        });
        let open = open.collect();
        let once = state.last_draws.iter().map(|(id, day)| (id.to_string(), 0, 1, day.get()));
        let stores = state.cached.values().map(|held| held.store);
        let stores = stores.chain(state.open.values().map(|open| open.store));
        let stores = stores.chain(state.outbox.parcels.values().map(|parcel| parcel.store));
        let stores = StoredStores::new(stores);
        let parts = StoredParts {
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
        };
        let prices = state.outbox.parcels.values().map(|parcel| parcel.price.local.get());
        let shuffling = StoredShuffling::new(&mentioned.batches, state);
        let membership = StoredMembership::new(mentioned.participations, state);
        let measurements = mentioned.measurements;
        let own = |(code, own): (&BatchCode, &BatchReports)| {
            (*code, own.reports, StoredDebit::new(own.first))
        };
        let (prices, counts) = (prices.collect(), state.own_reports.all().map(own).collect());
        Self { parts, stores, prices, shuffling, membership, measurements, counts }
    }

    /// The state and its number; `None` when the content is not valid.
    pub(crate) fn into_state(self, simulated: bool) -> Option<(State, u64)> {
        let Self { parts, stores, prices, shuffling, mut membership, measurements, counts } = self;
        let fits = membership.participations.len() == parts.specifications.len()
            && measurements.len() == parts.specifications.len();
        if parts.simulated != simulated || !fits || !shuffling.fits(&parts) {
            return None;
        }
        let count = parts.held.len() + parts.open.len() + parts.parcels.len();
        let mut stores = stores.into_stores(count)?;
        let participations = std::mem::take(&mut membership.participations);
        let beside = shuffling.batches.into_iter().zip(participations).zip(measurements);
        let specifications = parts.specifications.into_iter().zip(beside);
        let specifications: Vec<Arc<Specification>> =
            specifications.map(specification).collect::<Option<_>>()?;
        let find = |place: u32| specifications.get(usize::try_from(place).ok()?).map(Arc::clone);
        let mut state = State {
            ledger: parts.ledger.into_ledger(),
            last_assignment: parts.last_assignment,
            opted_out: parts.opted_out,
            ..State::default()
        };
        for held in parts.held {
            let specification = find(held.specification)?;
            let id = specification.experiment_id().clone();
            let held = CachedExperiment {
                specification,
                signatures: signatures(held.signatures)?,
                policy: held.policy.into_policy()?,
                heard_at: Timestamp::from_unix_ms(held.heard_at_ms),
                store: stores.next()?,
            };
            state.cached.insert(id, held);
        }
        for (open, price) in parts.open.into_iter().zip(shuffling.open) {
            let specification = find(open.specification)?;
            let cell = cell_index(open.arm)?;
            if cell.get() >= specification.cells().len() || open.id > parts.last_assignment {
                return None;
            }
            let until = Timestamp::from_unix_ms(open.rewards_until_ms);
            let release = Timestamp::from_unix_ms(open.release_at_ms);
            // Only a batch makes a report cost less in the central account.
            if price.is_some() && specification.batch().is_none() {
                return None;
            }
            let assignment = OpenAssignment::new(specification, cell, until, release);
            let price = price.map_or(assignment.price, StoredDebit::into_debit);
            let assignment = assignment.of_store(stores.next()?).at_price(price);
            state.open.insert(AssignmentId::new(open.id), assignment);
        }
        let parcels = StoredParcels { parcels: parts.parcels, prices, shuffled: shuffling.parcels };
        let parcels = parcels.with_prices()?.into_iter().zip(stores);
        let parcels = parcels
            .map(|((parcel, price, shuffled), store)| parcel.into_parcel(store, price, shuffled));
        state.outbox = Outbox { parcels: parcels.collect::<Option<_>>()? };
        let open = state.open.values().map(|open| open.specification.experiment_id());
        let waiting = state.outbox.parcels.values().map(|parcel| &parcel.experiment_id);
        for experiment_id in open.chain(waiting) {
            *state.reports.entry(experiment_id.clone()).or_default() += 1;
        }
        for (experiment_id, _, days, number) in parts.once {
            let day = last_day(days, number);
            let experiment_id = ExperimentId::new(experiment_id).ok()?;
            let last = state.last_draws.entry(experiment_id).or_insert(day);
            *last = day.max(*last);
        }
        membership.restore(&mut state)?;
        let counts = counts.into_iter().map(|(code, reports, first)| {
            (code, BatchReports { reports, first: first.into_debit() })
        });
        state.own_reports = OwnReports::from_parts(counts);
        Some((state, parts.number))
    }
}

/// Batch, participation and measurement, as they are stored.
type StoredBeside = ((u32, Option<StoredParticipation>), Option<StoredMeasurement>);

/// A stored specification; `None`: it is not valid.
fn specification(
    (stored, ((batch, part), measurement)): (StoredSpecification, StoredBeside),
) -> Option<Arc<Specification>> {
    let participation = match part {
        Some(part) => part.into_participation()?,
        None => Participation::EVERYONE,
    };
    let measurement = match measurement {
        Some(measurement) => measurement.into_measurement()?,
        None => Measurement::REWARDS_ONLY,
    };
    let beside = Beside { batch: batch_size(batch)?, participation, measurement };
    stored.into_specification(beside).map(Arc::new)
}

/// Parcels, and what is stored beside each of them.
struct StoredParcels {
    parcels: Vec<StoredParcel>,
    prices: Vec<u64>,
    shuffled: Vec<Option<StoredShuffledParcel>>,
}

impl StoredParcels {
    /// Each with its price in the local account; `None`: the number of prices differs.
    fn with_prices(self) -> Option<Vec<(StoredParcel, NanoNats, Option<StoredShuffledParcel>)>> {
        let Self { parcels, mut prices, shuffled } = self;
        if prices.is_empty() {
            // Counts in every window until the report is settled.
            prices = vec![u64::MAX; parcels.len()];
        }
        let prices = (prices.len() == parcels.len()).then_some(prices)?;
        let parcels = parcels.into_iter().zip(prices).zip(shuffled);
        let parcels =
            parcels.map(|((parcel, price), shuffled)| (parcel, NanoNats::new(price), shuffled));
        Some(parcels.collect())
    }
}

impl StoredParcel {
    fn new((id, parcel): (&AssignmentId, &PendingReport)) -> Self {
        let sealed = match &parcel.sealed {
            Some(Sealed::Direct(task)) => Some(task),
            Some(Sealed::Shuffled { .. }) | None => None,
        };
        Self {
            id: id.get(),
            experiment_id: parcel.experiment_id.to_string(),
            digest: *parcel.digest.as_bytes(),
            arm: parcel.cell.to_u32(),
            symbol: parcel.report.get().get(),
            release_at_ms: parcel.release_at.unix_ms(),
            reach_ms: u64::try_from(parcel.reach.as_millis()).unwrap_or(u64::MAX),
            sealed: sealed.map(|task| (*task.id().as_bytes(), task.bytes().to_vec())),
        }
    }

    fn into_parcel(
        self,
        store: Option<StoreId>,
        price: NanoNats,
        shuffled: Option<StoredShuffledParcel>,
    ) -> Option<(AssignmentId, PendingReport)> {
        let direct = self
            .sealed
            .map(|(id, bytes)| Sealed::Direct(UploadTask::from_parts(UploadId::new(id), bytes)));
        let (batch, price, sealed) = match shuffled {
            None => (None, Debit::unshuffled(price), direct),
            // Nothing that says so sends a shuffled report to the aggregator itself.
            Some(_) if direct.is_some() => return None,
            Some(StoredShuffledParcel { batch, price, sealed }) => {
                let sealed = sealed.map(|(id, day)| Sealed::Shuffled {
                    id: UploadId::new(id),
                    day: Day::new(day),
                });
                (Some(BatchSize::new(batch).ok()?), price.into_debit(), sealed)
            }
        };
        let parcel = PendingReport {
            experiment_id: ExperimentId::new(self.experiment_id).ok()?,
            digest: Digest::new(self.digest),
            cell: cell_index(self.arm)?,
            report: PrivateReport::restored(self.symbol)?,
            price,
            batch,
            release_at: Timestamp::from_unix_ms(self.release_at_ms),
            reach: Duration::from_millis(self.reach_ms),
            store,
            sealed,
            changed: State::AS_READ,
            attempts: Attempts::default(),
        };
        Some((AssignmentId::new(self.id), parcel))
    }
}
