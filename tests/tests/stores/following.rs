//! A replica that follows its database through failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_aggregator::registry::{Experiment, Registry};
use bandana_aggregator::replica::Follower;
use bandana_edge::clock::{Clock, SystemClock};
use bandana_shared::identity::ExperimentId;
use bandana_store::{AuditAction, ExperimentState, PostgresSettings, StoreError};
use bandana_tests::postgres::{Postgres, query};
use tokio::sync::watch;

use super::places::{Place, commit, create, entry, experiment, settings, upload};
use super::proxy::through;
use super::replicas::{Case, until};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_slow_or_absent_database_is_followed_again_within_seconds", slow_or_absent),
    ("a_database_that_has_lost_its_last_changes_is_followed", lost_changes),
];

/// A clock that runs a minute in less than a second.
#[derive(Debug)]
struct Hurried(SystemClock);

impl Clock for Hurried {
    fn unix_seconds(&self) -> u64 {
        self.0.unix_seconds()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic() * 100
    }
}

/// A replica's view of its database.
pub(super) struct Replica {
    pub(super) registry: Arc<Registry>,
    is_reachable: watch::Receiver<bool>,
    follower: JoinHandle<Result<(), StoreError>>,
}

impl Replica {
    /// A replica that follows at once, by this host's clock.
    pub(super) fn quick(settings: &PostgresSettings) -> anyhow::Result<Self> {
        Self::start(settings, Arc::new(SystemClock::new()))
    }

    fn start(settings: &PostgresSettings, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let registry = Arc::new(Registry::new(1, Arc::clone(&clock)));
        let (follower, is_reachable) = Follower::new(settings, &registry, clock)?;
        let follower = thread::spawn(move || follower.run());
        Ok(Self { registry, is_reachable, follower })
    }

    pub(super) fn knows(&self, name: &str) -> anyhow::Result<Arc<Experiment>> {
        let id = ExperimentId::new(name)?;
        until(name, || self.registry.by_id(&id).is_some())?;
        self.registry.by_id(&id).context("it is forgotten")
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        drop(self.registry);
        Ok(self.follower.join().map_err(|_| anyhow::anyhow!("the follower panicked"))??)
    }
}

fn slow_or_absent(server: &Postgres) -> anyhow::Result<()> {
    const QUICK: u8 = 0;
    const SLOW: u8 = 1;
    const ABSENT: u8 = 2;
    let place = Place::postgres(server)?;
    let mut other = place.open()?;
    let way = Arc::new(AtomicU8::new(QUICK));
    let rule = Arc::clone(&way);
    let rule = Arc::new(move || {
        if rule.load(Ordering::SeqCst) != QUICK {
            thread::sleep(Duration::from_millis(20));
        }
        rule.load(Ordering::SeqCst) != ABSENT
    });
    let clock = Arc::new(Hurried(SystemClock::new()));
    let replica = Replica::start(&through(server, &place, rule)?, clock)?;
    create(&mut *other, "quick")?;
    replica.knows("quick")?;
    // Now each poll takes most of a minute by the replica's clock, and polling continues.
    way.store(SLOW, Ordering::SeqCst);
    for name in ["slow", "slow-still"] {
        create(&mut *other, name)?;
        replica.knows(name)?;
    }
    // Failed attempts take as long, and the replica keeps retrying.
    way.store(ABSENT, Ordering::SeqCst);
    until("it is told that the database is gone", || !*replica.is_reachable.borrow())?;
    way.store(QUICK, Ordering::SeqCst);
    until("it is told that the database is back", || *replica.is_reachable.borrow())?;
    create(&mut *other, "back")?;
    replica.knows("back")?;
    replica.stop()
}

fn lost_changes(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let mut store = place.open()?;
    let record = create(&mut *store, "lost")?;
    let replicas = [(); 2].map(|()| Replica::start(&settings(url)?, Arc::new(SystemClock::new())));
    let [one, two] = replicas;
    let (one, two) = (one?, two?);
    let all = [one.knows("lost")?, two.knows("lost")?];
    let is_everywhere = |what: &str, state, reports| {
        until(what, || {
            all.iter().all(|experiment| {
                let counted: u64 = experiment.tallies().iter().map(|tally| tally.reports()).sum();
                experiment.serving().state == state && counted == reports
            })
        })
    };
    let only = experiment(&record)?;
    commit(&mut *store, &[upload(&only, 1, 100, 5)?], 100)?;
    is_everywhere("an upload", ExperimentState::Running, 5)?;
    query(url, "CREATE TABLE standby AS SELECT version FROM experiment")?;
    commit(&mut *store, &[upload(&only, 2, 100, 7)?], 100)?;
    let expected = record.expected().context("no revision")?;
    store.set_state(expected, ExperimentState::Stopped, &entry("lost", AuditAction::Stop)?)?;
    is_everywhere("a stop", ExperimentState::Stopped, 12)?;
    let served: Vec<u64> = all.iter().map(|e| e.serving().policy.version).collect();
    // The state of a standby that has received the first upload only.
    query(
        url,
        "BEGIN; DELETE FROM upload WHERE id = '00000000-0000-0000-0000-000000000002';
         UPDATE tally SET reports = 5, ones = 5;
         UPDATE experiment SET state = 'running', policy_reports = 5,
             version = (SELECT version FROM standby);
         COMMIT",
    )?;
    is_everywhere("a failover", ExperimentState::Running, 5)?;
    for (experiment, served) in all.iter().zip(served) {
        let version = experiment.serving().policy.version;
        ensure!(version > served, "{version} came after {served}");
    }
    // The lost upload can be submitted again.
    commit(&mut *store, &[upload(&only, 2, 100, 7)?], 100)?;
    is_everywhere("the upload again", ExperimentState::Running, 12)?;
    until("one policy for all", || {
        let versions: Vec<u64> = all.iter().map(|e| e.serving().policy.version).collect();
        versions[0] == versions[1]
    })?;
    one.stop()?;
    two.stop()
}
