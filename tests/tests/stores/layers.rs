//! Experiments of one layer share no installation, whoever creates them when.

use std::sync::Barrier;
use std::thread;

use anyhow::ensure;
use bandana_shared::participation::Participation;
use bandana_shared::specification::Specification;
use bandana_store::{
    AuditAction, ExperimentRecord, ExperimentState, Store, StoreError, StoreRefusal, seal_directory,
};
use bandana_tests::postgres::{Postgres, query};

use super::Case;
use super::places::{CONFIG, Place, entry, specification};
use super::replicas::Case as DatabaseCase;

pub(crate) const ALL: &[(&str, Case)] = &[("overlaps_of_earlier_versions_are_told", told)];

pub(crate) const OF_DATABASES: &[(&str, DatabaseCase)] = &[
    ("of_replicas_that_create_overlapping_layers_at_once_one_does", at_once),
    ("a_replica_that_has_not_heard_of_an_overlap_is_refused", unheard),
];

/// Creates an experiment in a part of a layer.
fn create(store: &mut dyn Store, id: &str, part: &str) -> Result<ExperimentRecord, anyhow::Error> {
    let participation = Participation { layer: Some(part.parse()?), ..Participation::EVERYONE };
    let specification: Specification = specification(id)?.for_part(participation)?;
    let entry = entry(id, AuditAction::Create)?;
    Ok(store.create_experiment(&specification, CONFIG, ExperimentState::Running, &entry)?)
}

/// Whether an experiment was created; false: its layer overlaps.
fn was_created(created: anyhow::Result<ExperimentRecord>) -> anyhow::Result<bool> {
    let Err(error) = created else { return Ok(true) };
    match error.downcast_ref() {
        Some(StoreError::Refused(StoreRefusal::LayerOverlap { .. })) => Ok(false),
        _ => Err(error),
    }
}

fn told(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = create(&mut *store, "first", "page:0-0.5")?;
    let expected = first.expected().ok_or_else(|| anyhow::anyhow!("no revision"))?;
    store.set_state(expected, ExperimentState::Stopped, &entry("first", AuditAction::Stop)?)?;
    create(&mut *store, "second", "page:0.4-1")?;
    create(&mut *store, "third", "search:0-1")?;
    ensure!(place.verify()?.warnings.is_empty(), "{:?}", place.verify()?.warnings);
    // As an earlier version could leave them.
    let resume = "UPDATE experiment SET state = 'running' WHERE id = 'first'";
    match place {
        Place::Postgres(url) => drop(query(url, resume)?),
        Place::Embedded(folder) => {
            store.close()?;
            let database = folder.path().join("bandana.sqlite3");
            rusqlite::Connection::open(database)?.execute_batch(resume)?;
            seal_directory(folder.path())?;
        }
    }
    let verification = place.verify()?;
    let [warning] = &verification.warnings[..] else {
        anyhow::bail!("{:?}", verification.warnings)
    };
    ensure!(warning.contains("first, of page:0-0.5, and second, of page:0.4-1"), "{warning}");
    // It is as it was written.
    ensure!(verification.is_sound(), "{:?}", verification.findings);
    Ok(())
}

fn at_once(server: &Postgres) -> anyhow::Result<()> {
    const ROUNDS: usize = 20;
    let place = Place::postgres(server)?;
    let mut stores = [place.open()?, place.open()?];
    let barrier = Barrier::new(stores.len());
    let created = thread::scope(|scope| {
        let replicas = stores.iter_mut().enumerate().map(|(replica, store)| {
            let barrier = &barrier;
            scope.spawn(move || {
                let round = |round: usize| {
                    barrier.wait();
                    let part = format!("layer-{round}:0.{replica}-0.9");
                    was_created(create(&mut **store, &format!("e{round}-{replica}"), &part))
                };
                (0..ROUNDS).map(round).collect::<Vec<_>>()
            })
        });
        let replicas: Vec<_> = replicas.collect();
        replicas.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let mut sums = vec![0; ROUNDS];
    for replica in created {
        let replica = replica.map_err(|_| anyhow::anyhow!("a replica panicked"))?;
        for (sum, created) in sums.iter_mut().zip(replica) {
            *sum += usize::from(created?);
        }
    }
    ensure!(sums == [1; ROUNDS], "experiments of each layer: {sums:?}");
    ensure!(place.verify()?.warnings.is_empty(), "{:?}", place.verify()?.warnings);
    Ok(())
}

fn unheard(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let [mut one, mut other] = [place.open()?, place.open()?];
    let first = create(&mut *one, "first", "page:0-0.5")?;
    ensure!(!was_created(create(&mut *other, "second", "page:0.25-1"))?);
    // What was refused has left nothing behind, and its name is free.
    ensure!(was_created(create(&mut *other, "second", "page:0.5-1"))?);
    ensure!(!was_created(create(&mut *one, "third", "page:0.9-1"))?);
    let expected = first.expected().ok_or_else(|| anyhow::anyhow!("no revision"))?;
    one.set_state(expected, ExperimentState::Stopped, &entry("first", AuditAction::Stop)?)?;
    ensure!(was_created(create(&mut *other, "third", "page:0-0.5"))?);
    Ok(())
}
