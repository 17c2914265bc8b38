//! Writers of disclosures: crashes, full queues, and several of them at once.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, ensure};
use bandana_aggregator::disclosures::{Creation, DisclosureWriter, DisclosureWriterHandle, Step};
use bandana_aggregator::ingest::IngestMetrics;
use bandana_aggregator::ingest::{ExperimentChangeError, Ingest, IngestError, Writer, WriterError};
use bandana_aggregator::registry::Registry;
use bandana_aggregator::trusted::{Disclosure, DisclosureVerdict, TrustedExperiment};
use bandana_edge::clock::{Clock, ManualClock};
use bandana_shared::identity::Day;
use bandana_shared::stored;
use bandana_store::{
    AuditAction, DatabaseError, Outcome, Store, StoreError, Transition, TrustedChange,
    TrustedRefusal,
};
use bandana_tests::postgres::{Postgres, query};
use bandana_zcdp::state::{NoiseKey, SecretState};
use bandana_zcdp::{Played, RewardRange};
use futures_util::FutureExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::Case;
use super::crashes::{Fault, Faulty};
use super::places::{Place, WINDOW, entry};
use super::replicas::Raw;
use super::trusted::{TODAY, add, id, name, next, only, plan, record, refusal};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_crash_at_any_commit_of_a_keeper_loses_and_doubles_nothing", crash_at_every_commit),
    ("a_keeper_with_a_full_queue_takes_no_more", full),
    ("a_keeper_that_is_started_again_releases_what_is_due", due_at_the_start),
];

pub(crate) const OF_REPLICAS: &[(&str, super::replicas::Case)] = &[
    ("two_keepers_take_disclosures_to_one_experiment_at_once", at_once),
    ("a_database_that_has_gone_back_is_followed_by_keepers", gone_back),
    ("a_row_that_somebody_holds_turns_disclosures_away_and_nothing_else", held),
    ("a_clock_that_is_ahead_moves_no_trusted_window", clock_ahead),
];

/// A server's disclosure writer and upload writer.
struct Office {
    registry: Arc<Registry>,
    keeper: DisclosureWriterHandle,
    ingest: Ingest,
    writer: JoinHandle<Result<(), WriterError>>,
    keeping: JoinHandle<()>,
}

impl Office {
    fn open(place: &Place, store: Box<dyn Store>) -> anyhow::Result<Self> {
        let (keeper, mut office) = Self::without_keeper(place, store)?;
        office.keeping = thread::spawn(move || keeper.run());
        Ok(office)
    }

    fn without_keeper(
        place: &Place,
        store: Box<dyn Store>,
    ) -> anyhow::Result<(DisclosureWriter, Self)> {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_day(TODAY));
        let registry = Arc::new(Registry::new(1, Arc::clone(&clock)));
        let metrics = IngestMetrics::new(Arc::clone(&clock));
        let (due, _) = mpsc::channel();
        let (writer, ingest) =
            Writer::open(store, Arc::clone(&registry), Arc::clone(&clock), due, metrics)?;
        let reader = place.reader()?;
        for record in reader.trusted(None)? {
            registry.trusted().publish_record(&record)?;
        }
        let (keeper, handle) =
            DisclosureWriter::new(Arc::clone(&registry), ingest.clone(), reader, clock, WINDOW);
        let writer = thread::spawn(move || writer.run());
        let keeping = thread::spawn(|| ());
        Ok((keeper, Self { registry, keeper: handle, ingest, writer, keeping }))
    }

    async fn create(&self, text: &str) -> anyhow::Result<()> {
        let secret = SecretState::new(plan()?, NoiseKey::insecure([1; 32]))?;
        let (caller, id, plan) = ("anna".to_owned(), name(text)?, plan()?);
        self.keeper.create(Creation { caller, id, plan, secret }).await?;
        Ok(())
    }

    /// Plays the recommended arm and discloses the reward; arm 1 pays.
    async fn disclose(&self, text: &str, number: u128) -> anyhow::Result<DisclosureVerdict> {
        let shown = self.registry.trusted().get(&name(text)?).context("there is none")?;
        let arm = shown.released.recommend(&[], &mut ChaCha8Rng::seed_from_u64(0))?;
        let reward = RewardRange::Unit.reward(f64::from(u8::from(arm == 1)))?;
        let (id, played) = (id(number), Played::Arm(arm));
        let disclosure = Disclosure { id, day: TODAY, played, reward };
        Ok(self.keeper.disclose(name(text)?, disclosure).await?)
    }

    async fn close(self) -> anyhow::Result<()> {
        let Self { keeper, ingest, writer, keeping, .. } = self;
        drop(keeper);
        keeping.join().map_err(|_| anyhow::anyhow!("the keeper panicked"))?;
        ingest.stop().await;
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        Ok(())
    }
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn crash_at_every_commit(place: &Place) -> anyhow::Result<()> {
    // It is created, its window is moved, and six disclosures lead to at least three releases.
    const COMMITS: usize = 10;
    for number in 1..=COMMITS {
        for fault in [Fault::Before(number), Fault::After(number)] {
            let text = format!("{fault:?}").to_lowercase().replace(['(', ')'], "-");
            let faulty = Box::new(Faulty::new(place.open()?, fault));
            let office = Office::open(place, faulty)?;
            block_on(async {
                if office.create(&text).await.is_err() {
                    ensure!(number == 1 && matches!(fault, Fault::Before(_)), "{fault:?}");
                    office.create(&text).await?;
                }
                for number in 0..6 {
                    // An unknown outcome is resolved, and no disclosure is lost.
                    let told = office.disclose(&text, number).await?;
                    ensure!(told == DisclosureVerdict::Counted, "{fault:?}: {told:?}");
                    let told = office.disclose(&text, number).await?;
                    ensure!(told == DisclosureVerdict::Duplicate, "{fault:?}: {told:?}");
                }
                office.close().await
            })?;
            let stored = place.reader()?.trusted(Some(&name(&text)?))?;
            let stored = TrustedExperiment::try_from(stored.first().context("it is gone")?)?;
            let (rewards, releases) = (stored.released.rewards(), stored.released.releases());
            ensure!(rewards == 6 && releases >= 3, "{fault:?}: {rewards}, {releases}");
        }
    }
    Ok(())
}

fn full(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    add(&mut *store, "headlines")?;
    let (keeper, mut office) = Office::without_keeper(place, store)?;
    let reward = RewardRange::Unit.reward(0.5)?;
    let mut waiting = Vec::new();
    let refused = loop {
        let (id, played) = (id(waiting.len() as u128), Played::Arm(2));
        let disclosure = Disclosure { id, day: TODAY, played, reward };
        let mut call = Box::pin(office.keeper.disclose(name("headlines")?, disclosure));
        match call.as_mut().now_or_never() {
            None => waiting.push(call),
            Some(told) => break told,
        }
        ensure!(waiting.len() < 100_000, "it takes without end");
    };
    ensure!(refused == Err(IngestError::QueueFull), "{refused:?}");
    // Once the store works, all waiting disclosures are answered, in groups.
    office.keeping = thread::spawn(move || keeper.run());
    let told = block_on(async { Ok(futures_util::future::try_join_all(waiting).await?) })?;
    ensure!(told.iter().all(|told| *told == DisclosureVerdict::Counted));
    let groups = only(place)?.version.sequence;
    ensure!(groups < 20, "{} disclosures were {groups} commits", told.len());
    block_on(office.close())
}

fn due_at_the_start(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = record("headlines")?;
    store.apply_trusted_change(&TrustedChange::Create(
        first.clone(),
        entry("headlines", AuditAction::Create)?,
    ))?;
    let mut commit = next(&first, Vec::new())?;
    let mut secret = SecretState::new(plan()?, NoiseKey::insecure([1; 32]))?;
    secret.observe(&Played::Arm(0), RewardRange::Unit.reward(0.5)?)?;
    ensure!(secret.is_due());
    commit.private = stored::to_bytes(&secret)?;
    commit.released = stored::to_bytes(&secret.released())?;
    commit.disclosures = vec![(TODAY, id(1))];
    store.apply_trusted_change(&TrustedChange::Commit(commit))?;
    drop(store);
    let mut expected = secret.clone();
    expected.release(NoiseKey::insecure([2; 32]))?;

    let office = Office::open(place, place.open()?)?;
    block_on(async {
        let told = office.disclose("headlines", 1).await?;
        ensure!(told == DisclosureVerdict::Duplicate, "{told:?}");
        let shown = office.registry.trusted().get(&name("headlines")?).context("it is gone")?;
        // With the noise from the key that was durable before the crash.
        ensure!(shown.released.shown() == expected.released().shown());
        let moved = office.keeper.change(
            "anna".to_owned(),
            name("headlines")?,
            Step::Move(Transition::Stop),
        );
        ensure!(moved.await?.is_some_and(|moved| moved.secret.is_none()));
        // A counted disclosure is a success, and a new one is finally refused.
        let told = [office.disclose("headlines", 1).await?, office.disclose("headlines", 2).await?];
        ensure!(told == [DisclosureVerdict::Duplicate, DisclosureVerdict::Stopped], "{told:?}");
        office.close().await
    })
}

/// Discloses as devices do, which retry when a server was too slow to store; also returns the
/// number of retries.
async fn disclose_until_decided(
    office: &Office,
    number: u128,
) -> anyhow::Result<(DisclosureVerdict, u128)> {
    for unanswered in 0..100 {
        match office.disclose("headlines", number).await {
            Err(error) if error.downcast_ref() == Some(&IngestError::Store) => {}
            told => return Ok((told?, unanswered)),
        }
    }
    anyhow::bail!("nobody decides about {number}")
}

fn at_once(server: &Postgres) -> anyhow::Result<()> {
    const EACH: u128 = 150;
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let offices = [Office::open(&place, place.open()?)?, Office::open(&place, place.open()?)?];
    block_on(offices[0].create("headlines"))?;
    offices[1].registry.trusted().publish_record(&only(&place)?)?;
    block_on(async {
        // Each disclosure is sent to both replicas.
        let (one, two) = (&offices[0], &offices[1]);
        let numbers: Vec<u128> = (0..EACH).collect();
        let mut told = Vec::new();
        for part in numbers.chunks(30) {
            let calls = part.iter().flat_map(|number| {
                [one, two].map(|office| disclose_until_decided(office, *number))
            });
            told.extend(futures_util::future::try_join_all(calls).await?);
        }
        let count = |verdict| told.iter().filter(|(told, _)| *told == verdict).count() as u128;
        let (counted, duplicates) =
            (count(DisclosureVerdict::Counted), count(DisclosureVerdict::Duplicate));
        // Unanswered disclosures may have been counted.
        let unanswered: u128 = told.iter().map(|(_, unanswered)| unanswered).sum();
        ensure!(counted <= EACH && counted + unanswered >= EACH, "{told:?}");
        ensure!(counted + duplicates == 2 * EACH, "{told:?}");
        let [one, two] = offices;
        one.close().await?;
        two.close().await
    })?;
    let stored = TrustedExperiment::try_from(&only(&place)?)?;
    ensure!(u128::from(stored.released.rewards()) == EACH);
    let rows = query(url, "SELECT count(*) FROM trusted_disclosure")?;
    ensure!(rows == [[EACH.to_string()]], "{rows:?}");
    ensure!(place.verify()?.is_sound());
    Ok(())
}

fn gone_back(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let office = Office::open(&place, place.open()?)?;
    let counted = |numbers: std::ops::Range<u128>| {
        block_on(async {
            for number in numbers {
                let told = office.disclose("headlines", number).await?;
                ensure!(told == DisclosureVerdict::Counted, "{number}: {told:?}");
            }
            Ok(())
        })
    };
    block_on(office.create("headlines"))?;
    counted(0..5)?;
    // The state of a standby that lags behind by three disclosures when it takes over.
    query(url, "CREATE TABLE saved AS SELECT * FROM trusted_experiment")?;
    query(url, "CREATE TABLE saved_names AS SELECT * FROM trusted_disclosure")?;
    counted(5..8)?;
    let back = "UPDATE trusted_experiment e SET private = s.private, released = s.released,
        sequence = s.sequence, stamp = s.stamp FROM saved s";
    query(url, back)?;
    query(url, "DELETE FROM trusted_disclosure")?;
    query(
        url,
        "INSERT INTO trusted_disclosure (experiment, day, id)
        SELECT experiment, day, id FROM saved_names",
    )?;
    // Stored disclosures count once, and lost ones count anew.
    counted(5..9)?;
    let told = block_on(office.disclose("headlines", 4))?;
    ensure!(told == DisclosureVerdict::Duplicate, "{told:?}");
    block_on(office.close())?;
    ensure!(TrustedExperiment::try_from(&only(&place)?)?.released.rewards() == 9);
    Ok(())
}

fn held(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let mut store = place.open()?;
    let current = add(&mut *store, "headlines")?;
    let office = Office::open(&place, store)?;
    let frozen = Raw::connect(&place)?;
    frozen.run("BEGIN; SELECT FROM trusted_experiment FOR UPDATE")?;
    // The commit is known to have failed, and is not retried repeatedly.
    let refused =
        place.open()?.apply_trusted_change(&TrustedChange::Commit(next(&current, Vec::new())?));
    let outcome = refused.err().map(|error| error.outcome());
    ensure!(outcome == Some(Outcome::Unmade), "{outcome:?}");
    block_on(async {
        let told = office.disclose("headlines", 1).await;
        let error = told.err().context("the row is held")?;
        ensure!(error.downcast_ref() == Some(&IngestError::Store), "{error}");
        let stop = office.keeper.change(
            "anna".to_owned(),
            name("headlines")?,
            Step::Move(Transition::Stop),
        );
        let error = stop.await.err().context("the row is held")?;
        ensure!(
            matches!(
                error,
                ExperimentChangeError::Store(StoreError::Database(DatabaseError::Unmade { .. }))
            ),
            "{error}"
        );
        Ok(())
    })?;
    frozen.run("ROLLBACK")?;
    let told = block_on(office.disclose("headlines", 1))?;
    ensure!(told == DisclosureVerdict::Counted, "{told:?}");
    block_on(office.close())
}

fn clock_ahead(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let mut store = place.open()?;
    let mut current = add(&mut *store, "headlines")?;
    let day = "SELECT floor(extract(epoch FROM now()) / 86400)::integer::text";
    let day: u32 = query(url, day)?[0][0].parse()?;
    // A replica whose clock is a year ahead neither accepts such days nor moves the window there.
    let ahead = Day::new(day + 365);
    let names = vec![(Day::new(day), id(1)), (ahead, id(2))];
    let refused =
        refusal(store.apply_trusted_change(&TrustedChange::Commit(next(&current, names)?)))?;
    let TrustedRefusal::Future { latest } = refused else { anyhow::bail!("{refused}") };
    ensure!((day + 1..=day + 2).contains(&latest.get()), "{latest}");
    ensure!(only(&place)? == current);
    let (id, from, to) = (current.id.clone(), current.version, current.version.next()?);
    store.apply_trusted_change(&TrustedChange::Window {
        id,
        from,
        to,
        today: ahead,
        back: WINDOW - 1,
    })?;
    current = only(&place)?;
    let begin = day + 1 - WINDOW;
    ensure!((begin..=begin + 1).contains(&current.oldest.get()), "{}", current.oldest);
    Ok(store.close()?)
}
