//! Every store keeps its guarantees on trusted experiments, which writers of disclosures rely on.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use bandana_aggregator::trusted::TrustedExperiment;
use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::stored;
use bandana_store::{
    AuditAction, ExperimentState, Outcome, Store, StoreError, StoreRefusal, TrustedChange,
    TrustedCommit, TrustedRecord, TrustedRefusal, TrustedVersion,
};
use bandana_zcdp::adac_ucb::{Memory, UcbSettings};
use bandana_zcdp::state::{NoiseKey, SecretState};
use bandana_zcdp::{AlgorithmSettings, Played, Protection, RewardRange};
use prost::Message as _;

use super::Case;
use super::places::{Place, WINDOW, create, entry, specification};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_trusted_change_is_made_from_the_version_it_names_or_not_at_all", versions),
    ("an_id_is_one_of_a_single_kind", ids),
    ("stopping_a_trusted_experiment_erases_its_rewards", erased),
    ("a_trusted_window_moves_forward_and_forgets_by_and_by", forgotten),
];

/// Today, by the clock of the writers here.
pub(super) const TODAY: Day = Day::new(100);

pub(super) fn name(text: &str) -> anyhow::Result<ExperimentId> {
    Ok(ExperimentId::new(text)?)
}

pub(super) fn plan() -> anyhow::Result<AlgorithmSettings> {
    let protection = Protection::concentrated(0.5)?;
    let (exploration, memory) = (1.0, Memory::Forgetting);
    Ok(AlgorithmSettings::Ucb(UcbSettings { arms: 3, protection, exploration, memory }))
}

pub(super) fn id(number: u128) -> UploadId {
    UploadId::new(number.to_be_bytes())
}

/// The stored record of a new experiment.
pub(super) fn record(text: &str) -> anyhow::Result<TrustedRecord> {
    let secret = SecretState::new(plan()?, NoiseKey::insecure([1; 32]))?;
    Ok(TrustedRecord {
        is_archived: false,
        id: name(text)?,
        specification: plan()?.message(&name(text)?).encode_to_vec(),
        state: ExperimentState::Running,
        version: TrustedVersion { sequence: 0, stamp: 7 },
        oldest: Day::new(0),
        private: Some(stored::to_bytes(&secret)?),
        released: stored::to_bytes(&secret.released())?,
    })
}

pub(crate) fn add(store: &mut dyn Store, text: &str) -> anyhow::Result<TrustedRecord> {
    let record = record(text)?;
    store.apply_trusted_change(&TrustedChange::Create(
        record.clone(),
        entry(text, AuditAction::Create)?,
    ))?;
    Ok(record)
}

/// The only trusted experiment.
pub(super) fn only(place: &Place) -> anyhow::Result<TrustedRecord> {
    place.reader()?.trusted(None)?.pop().context("there is none")
}

/// The next state after a reward of arm 0, or after the release that is due.
pub(crate) fn next(
    record: &TrustedRecord,
    disclosures: Vec<(Day, UploadId)>,
) -> anyhow::Result<TrustedCommit> {
    let experiment = TrustedExperiment::try_from(record)?;
    let mut secret = experiment.secret.context("it was stopped")?;
    for _ in &disclosures {
        secret.observe(&Played::Arm(2), RewardRange::Unit.reward(1.0)?)?;
    }
    Ok(TrustedCommit {
        id: record.id.clone(),
        from: record.version,
        to: record.version.next()?,
        private: stored::to_bytes(&secret)?,
        released: stored::to_bytes(&secret.released())?,
        disclosures,
    })
}

/// The reason for a refusal by the store, without any change.
pub(super) fn refusal(outcome: Result<(), StoreError>) -> anyhow::Result<TrustedRefusal> {
    let error = outcome.err().context("the store made the change")?;
    ensure!(error.outcome() == Outcome::Declined, "{error}");
    match error {
        StoreError::Refused(StoreRefusal::Trusted(refusal)) => Ok(*refusal),
        other => Err(other.into()),
    }
}

fn versions(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = add(&mut *store, "headlines")?;
    ensure!(only(place)? == first);
    let names: Vec<(Day, UploadId)> = (0..3).map(|number| (TODAY, id(number))).collect();
    let commit = next(&first, names.clone())?;
    store.apply_trusted_change(&TrustedChange::Commit(commit.clone()))?;
    let second = only(place)?;
    ensure!(second.version == commit.to && second.private.as_ref() == Some(&commit.private));
    // From the old version, and from a version with the same number in a diverged store.
    let stamp = second.version.stamp ^ 1;
    for from in [first.version, TrustedVersion { stamp, ..second.version }] {
        let late = TrustedCommit { from, ..next(&second, vec![(TODAY, id(9))])? };
        ensure!(
            refusal(store.apply_trusted_change(&TrustedChange::Commit(late)))?
                == TrustedRefusal::Moved
        );
    }
    // Names that count already are reported, and nothing else changes.
    let again = next(&second, vec![(TODAY, id(9)), names[1], names[2], (Day::new(99), id(1))])?;
    let TrustedRefusal::Known(known) =
        refusal(store.apply_trusted_change(&TrustedChange::Commit(again)))?
    else {
        anyhow::bail!("it was not known")
    };
    let known: BTreeSet<_> = known.into_iter().collect();
    ensure!(known == BTreeSet::from([names[1], names[2]]), "{known:?}");
    ensure!(only(place)? == second);
    let looked_up = [names[0], (TODAY, id(9)), (Day::new(99), id(0))];
    ensure!(place.reader()?.disclosed(&first.id, &looked_up)? == [names[0]]);
    let unknown = TrustedCommit { id: name("nobody")?, ..next(&second, Vec::new())? };
    ensure!(
        refusal(store.apply_trusted_change(&TrustedChange::Commit(unknown)))?
            == TrustedRefusal::Moved
    );
    // A paused experiment accepts nothing.
    let (from, to) = (second.version, second.version.next()?);
    let (id, state) = (first.id.clone(), ExperimentState::Paused);
    let pause = entry("headlines", AuditAction::Pause)?;
    store.apply_trusted_change(&TrustedChange::Move {
        id,
        from,
        to,
        state,
        entry: pause.clone(),
    })?;
    let paused = only(place)?;
    let refused = store.apply_trusted_change(&TrustedChange::Commit(next(&paused, Vec::new())?));
    ensure!(refusal(refused)? == TrustedRefusal::Moved);
    drop(store);

    let store = place.open()?;
    ensure!(only(place)? == paused && paused.state == ExperimentState::Paused);
    let entries: Vec<_> = place.audit()?.into_iter().map(|record| record.entry).collect();
    ensure!(entries == [pause, entry("headlines", AuditAction::Create)?]);
    Ok(store.close()?)
}

fn ids(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    create(&mut *store, "bits")?;
    add(&mut *store, "rewards")?;
    for taken in ["bits", "rewards"] {
        let change = TrustedChange::Create(record(taken)?, entry(taken, AuditAction::Create)?);
        let error = store.apply_trusted_change(&change).err().context("the id was taken")?;
        ensure!(matches!(error, StoreError::Refused(StoreRefusal::ExperimentExists(_))), "{error}");
    }
    let create = entry("rewards", AuditAction::Create)?;
    let state = ExperimentState::Draft;
    let config = super::places::CONFIG;
    let refused = store.create_experiment(&specification("rewards")?, config, state, &create);
    ensure!(
        matches!(refused, Err(StoreError::Refused(StoreRefusal::ExperimentExists(_)))),
        "{refused:?}"
    );
    ensure!(place.audit()?.len() == 2 && store.load()?.len() == 1);
    Ok(store.close()?)
}

/// Bytes that no file may contain after their erasure. The same holds for sums of rewards.
const KEY: &[u8; 32] = b"a key of a release that is due!!";

fn erased(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = add(&mut *store, "headlines")?;
    let secret = SecretState::new(plan()?, NoiseKey::insecure(*KEY))?;
    let mut commit = next(&first, Vec::new())?;
    commit.private = stored::to_bytes(&secret)?;
    store.apply_trusted_change(&TrustedChange::Commit(commit.clone()))?;
    let (id, from, to) = (first.id.clone(), commit.to, commit.to.next()?);
    let (state, stop) = (ExperimentState::Stopped, entry("headlines", AuditAction::Stop)?);
    // While a reader uses the old state, that state can't be erased.
    let readers: Vec<rusqlite::Connection> = match place {
        Place::Embedded(folder) => {
            let reader = rusqlite::Connection::open(folder.path().join("bandana.sqlite3"))?;
            reader.execute_batch("BEGIN; SELECT count(*) FROM trusted_experiment")?;
            vec![reader]
        }
        Place::Postgres(_) => Vec::new(),
    };
    store.apply_trusted_change(&TrustedChange::Move { id, from, to, state, entry: stop })?;
    drop(readers);
    // The next change erases it.
    add(&mut *store, "sidebar")?;
    let reader = place.reader()?;
    let stopped = reader.trusted(Some(&first.id))?.pop().context("it is gone")?;
    ensure!(stopped.private.is_none() && stopped.released == commit.released);
    let experiment = TrustedExperiment::try_from(&stopped)?;
    ensure!(experiment.secret.is_none());
    if let Place::Embedded(folder) = place {
        for file in ["bandana.sqlite3", "bandana.sqlite3-wal"] {
            let bytes = std::fs::read(folder.path().join(file)).unwrap_or_default();
            ensure!(!bytes.windows(KEY.len()).any(|part| part == KEY), "{file} has the key");
        }
    }
    Ok(store.close()?)
}

fn forgotten(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let mut current = add(&mut *store, "headlines")?;
    for group in 0..5_u128 {
        // Buffers of an arm that is not played in the episode can grow without a release.
        let names = (0..1000).map(|number| (Day::new(50), id(group * 1000 + number))).collect();
        store.apply_trusted_change(&TrustedChange::Commit(next(&current, names)?))?;
        current = only(place)?;
    }
    let mut moved = |today: u32| -> anyhow::Result<TrustedRecord> {
        let (id, from) = (current.id.clone(), current.version);
        let (to, today, back) = (from.next()?, Day::new(today), WINDOW - 1);
        store.apply_trusted_change(&TrustedChange::Window { id, from, to, today, back })?;
        current = only(place)?;
        Ok(current.clone())
    };
    let left = || {
        place
            .reader()?
            .disclosed(&name("headlines")?, &all_of_day_50())
            .map_err(anyhow::Error::from)
    };
    ensure!(left()?.len() == 5000);
    let first = moved(100)?;
    ensure!(first.oldest == Day::new(98) && left()?.len() == 2952);
    // A window that already begins there is unchanged, but expired names are removed.
    ensure!(moved(60)? == first && left()?.len() == 904);
    let late = next(&first, Vec::new())?;
    store.apply_trusted_change(&TrustedChange::Commit(late.clone()))?;
    ensure!(left()?.is_empty());
    // Expired names are also removed at the end and during a pause.
    current = only(place)?;
    for number in 0..3 {
        let names = (0..1000).map(|n| (Day::new(99), id(number * 1000 + n))).collect();
        store.apply_trusted_change(&TrustedChange::Commit(next(&current, names)?))?;
        current = only(place)?;
    }
    let (id, from) = (current.id.clone(), current.version);
    let (to, today, back) = (from.next()?, Day::new(102), WINDOW - 1);
    store.apply_trusted_change(&TrustedChange::Window { id, from, to, today, back })?;
    current = only(place)?;
    let of_day_99: Vec<_> = (0..3000).map(|number| (Day::new(99), self::id(number))).collect();
    let left = || place.reader()?.disclosed(&first.id, &of_day_99).map_err(anyhow::Error::from);
    ensure!(left()?.len() == 952);
    let (id, from, to) = (current.id.clone(), current.version, current.version.next()?);
    let (state, pause) = (ExperimentState::Paused, entry("headlines", AuditAction::Pause)?);
    store.apply_trusted_change(&TrustedChange::Move { id, from, to, state, entry: pause })?;
    ensure!(left()?.is_empty());
    let again = TrustedChange::Window {
        id: first.id.clone(),
        from: first.version,
        to: first.version.next()?,
        today,
        back,
    };
    ensure!(refusal(store.apply_trusted_change(&again))? == TrustedRefusal::Moved);
    Ok(store.close()?)
}

fn all_of_day_50() -> Vec<(Day, UploadId)> {
    (0..5000).map(|number| (Day::new(50), id(number))).collect()
}
