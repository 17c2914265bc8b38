//! A replica: one of several servers on one database.
//!
//! A thread, the [`Follower`], polls the database several times a second for changes by other
//! replicas, and applies them to the registry. One replica at a time holds a lease, by the
//! database's clock. Its follower computes the policies that all replicas serve.

mod cells;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_edge::explain::explain;
use bandana_shared::identity::StoreId;
use bandana_store::{
    ChangeFeed, Connectivity, DatabaseError, ExperimentRecord, Generation, Outcome, PgConnection,
    PostgresSettings, Routes, Settled, StoreCells, StoreError, Tallies, Target, Waits,
};
use cells::CellPolls;
use tokio::sync::{oneshot, watch};

use crate::ingest::HarmWatch;
use crate::registry::{Experiment, PublishedExperiment, Registry};
use crate::registry::{FollowerHandle, FollowerQuestion as Question};

/// The poll interval while the database answers quickly.
const INTERVAL: Duration = Duration::from_millis(250);

/// The least poll interval, however many questions there are.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The greatest share of a follower's time that polls may take, as one in this many.
/// [`INTERVAL_MAX`] takes precedence.
const SHARE: u32 = 20;

/// The greatest poll interval, however slow the database is: the holder of the lease must renew it
/// in time.
const INTERVAL_MAX: Duration = Duration::from_secs(2);

/// The pause after the database could not be reached.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time until a report is included in a policy.
const POLICY_AGE_MAX: Duration = Duration::from_secs(1);

/// Most attempts to compute a policy, when other replicas are first.
const ATTEMPTS: usize = 5;

/// Keeps a registry up to date with the database, and writes policies while it holds the lease.
#[derive(Debug)]
pub struct Follower {
    link: PgConnection,
    registry: Weak<Registry>,
    questions: Receiver<Question>,
    clock: Arc<dyn Clock>,
    /// The follower's name as the holder of the lease.
    name: String,
    settled: Settled,
    /// Polls of store cells, if the store has any.
    cells: Option<CellPolls>,
    /// The time at which every experiment was last observed, and those with new reports got a
    /// policy.
    swept: Duration,
    /// The duration of the last successful poll.
    heard_in: Duration,
    holds_lease: bool,
    /// Whether a database has lost reports since the store cells were last polled.
    has_lost: bool,
    reachable: watch::Sender<bool>,
    /// `None` if arms that do harm are looked for elsewhere, or not at all.
    harm: Option<HarmWatch>,
}

/// An experiment, and the channel of a caller that waits for its policy.
type PolicyWanted = (Arc<Experiment>, oneshot::Sender<Arc<PublishedExperiment>>);

impl Follower {
    /// A follower for this registry, which sends it its questions from now on. Also returns a watch
    /// of whether the database can be reached.
    ///
    /// # Errors
    /// [`StoreError`] when a file or the operating system's randomness can't be used.
    pub fn new(
        settings: &PostgresSettings,
        registry: &Arc<Registry>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, watch::Receiver<bool>), StoreError> {
        Self::of_target(Arc::new(Target::new(settings)?), None, registry, clock)
    }

    /// As [`Self::new`], over a connection to this target that uses this connectivity.
    pub(crate) fn of_target(
        target: Arc<Target>,
        connectivity: Option<Connectivity>,
        registry: &Arc<Registry>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, watch::Receiver<bool>), StoreError> {
        let link = PgConnection::new(target, Waits::FOLLOWING)?.with_connectivity(connectivity);
        let random = getrandom::u64()
            .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
        let (handle, questions) = FollowerHandle::channel();
        registry.follow(handle);
        let (reachable, is_reachable) = watch::channel(true);
        let follower = Self {
            link,
            registry: Arc::downgrade(registry),
            questions,
            swept: clock.monotonic(),
            clock,
            name: format!("{random:016x}"),
            settled: Settled::default(),
            cells: None,
            heard_in: Duration::ZERO,
            holds_lease: false,
            has_lost: false,
            reachable,
            harm: None,
        };
        Ok((follower, is_reachable))
    }

    /// Follows this store only, even if the database is replaced by another store.
    #[must_use]
    pub fn expecting(self, store: StoreId) -> Self {
        self.link.expect(store);
        self
    }

    /// Has this watch look for arms that do harm while the lease is held.
    #[must_use]
    pub fn watching(self, harm: HarmWatch) -> Self {
        Self { harm: Some(harm), ..self }
    }

    /// Follows these store cells too.
    ///
    /// # Errors
    /// [`StoreError`] when the operating system refuses a thread.
    pub(crate) fn over(self, cells: Arc<StoreCells>) -> Result<Self, StoreError> {
        Ok(Self { cells: Some(CellPolls::start(cells)?), ..self })
    }

    /// Hears of the store once before anything is served, so that the tallies of store cells are
    /// there from the start.
    ///
    /// # Errors
    /// [`StoreError`] when the database must not be used any further.
    pub(crate) fn begin(&mut self, registry: &Registry) -> Result<(), StoreError> {
        match self.hear(registry, true) {
            Err(error) if error.outcome() == Outcome::Fatal => Err(error),
            Err(error) => {
                self.tell(false, Some(&error));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Follows until told to end, or until the registry is gone.
    ///
    /// # Errors
    /// [`StoreError`] when the database must not be used any further.
    pub fn run(mut self) -> Result<(), StoreError> {
        let mut interval = Duration::ZERO;
        let mut asked = Vec::new();
        let mut begin = self.clock.monotonic();
        loop {
            if !self.wait(begin, interval, &mut asked) {
                break;
            }
            let Some(registry) = self.registry.upgrade() else { break };
            begin = self.clock.monotonic();
            let outcome = self.follow(&registry, std::mem::take(&mut asked));
            match &outcome {
                Err(error) if error.outcome() == Outcome::Fatal => return outcome,
                Err(error) => {
                    self.tell(false, Some(error));
                    // A known-silent database was not queried.
                    let pause = if matches!(error, StoreError::Database(DatabaseError::Silent)) {
                        INTERVAL
                    } else {
                        PAUSE
                    };
                    (begin, interval) = (self.clock.monotonic(), pause);
                }
                Ok(()) => {
                    self.tell(true, None);
                    interval = self.heard_in.saturating_mul(SHARE).clamp(INTERVAL, INTERVAL_MAX);
                }
            }
        }
        if self.holds_lease {
            // Otherwise the next holder would have to wait until the lease expires.
            self.link.resign(&self.name).ok();
        }
        Ok(())
    }

    /// Collects questions until the next poll is due. `false`: no sender is left.
    fn wait(&mut self, begin: Duration, interval: Duration, asked: &mut Vec<Question>) -> bool {
        loop {
            let pause = if asked.is_empty() { interval } else { interval.min(INTERVAL_MIN) };
            let passed = self.clock.monotonic().saturating_sub(begin);
            match self.questions.recv_timeout(pause.saturating_sub(passed)) {
                Ok(Question::End) | Err(RecvTimeoutError::Disconnected) => return false,
                Ok(question) => asked.push(question),
                Err(RecvTimeoutError::Timeout) => return true,
            }
        }
    }

    fn tell(&self, is_reachable: bool, error: Option<&StoreError>) {
        let changed = self.reachable.send_if_modified(|told| {
            let differs = *told != is_reachable;
            *told = is_reachable;
            differs
        });
        match error {
            Some(error) if changed => {
                let error = explain(error);
                tracing::error!(error, "the database can't be reached; policies stay as they are");
            }
            None if changed => tracing::info!("the database is reached again"),
            _ => {}
        }
    }

    /// Polls the database once, and answers the questions that can then be answered. The other
    /// callers notice that their channel is dropped.
    fn follow(&mut self, registry: &Registry, asked: Vec<Question>) -> Result<(), StoreError> {
        let is_wanted = !asked.is_empty();
        if let Err(error) = self.hear(registry, is_wanted) {
            if error.outcome() == Outcome::Fatal {
                return Err(error);
            }
            // The connection may have been lost long ago while the database is back.
            self.hear(registry, is_wanted)?;
        }
        let mut wanted = Vec::new();
        for question in asked {
            match question {
                // The caller may be gone.
                Question::ChangeFeed(answer) => drop(answer.send(())),
                Question::Policy(experiment, answer) => wanted.push((experiment, answer)),
                Question::End => {}
            }
        }
        self.answer_policies(registry, wanted)?;
        let now = self.clock.monotonic();
        let sweep = now.saturating_sub(self.swept) >= POLICY_AGE_MAX;
        if sweep {
            self.swept = now;
            // Also without the lease, so that the next holder can estimate pending reports.
            for experiment in registry.all() {
                experiment.observe(now);
            }
        }
        if self.holds_lease {
            self.write_due_policies(registry, sweep)?;
            if let Some(harm) = self.harm.as_mut().filter(|_| sweep) {
                harm.look(registry);
            }
        }
        Ok(())
    }

    /// Polls the database, and the store cells before it. `is_wanted`: somebody waits for the result.
    fn hear(&mut self, registry: &Registry, is_wanted: bool) -> Result<(), StoreError> {
        let experiments = registry.all().into_iter();
        let experiments: Vec<_> = experiments.map(|e| (e.reports(), e.acknowledged(), e)).collect();
        let version = |e: &Experiment| (e.key(), e.serving().policy.version);
        let known: HashMap<_, _> = experiments.iter().map(|(.., e)| version(e)).collect();
        let known_trusted = registry.trusted().versions();
        let is_complete = self.hear_cells(&experiments, is_wanted);
        let elsewhere = self.elsewhere();
        let begin = self.clock.monotonic();
        let news =
            self.link.news(&self.name, &known, &known_trusted, &mut self.settled, &elsewhere)?;
        self.heard_in = self.clock.monotonic().saturating_sub(begin);
        let ChangeFeed { changed, all, mut tallies, trusted, trusted_ids, .. } = news;
        let ChangeFeed { holds_lease, generations, .. } = news;
        self.route(generations)?;
        // An experiment known before the poll came from the database; one that is missing now is
        // gone.
        for (.., experiment) in experiments.iter().filter(|(.., e)| !all.contains(&e.key())) {
            registry.remove(experiment);
        }
        for (id, version) in &known_trusted {
            if !trusted_ids.contains(id) {
                registry.trusted().remove(id, *version);
            }
        }
        for record in trusted {
            let known = known_trusted.get(&record.id).copied();
            if let Err(error) = registry.trusted().follow(record, known) {
                tracing::error!(error = explain(&error), "a trusted experiment can't be run");
            }
        }
        if holds_lease != self.holds_lease {
            self.holds_lease = holds_lease;
            let what = if holds_lease {
                "this replica now computes the policies of all"
            } else {
                "another replica computes the policies"
            };
            tracing::info!("{what}");
        }
        for (reports, acknowledged, experiment) in experiments {
            let mut heard = tallies.remove(&experiment.key()).unwrap_or_default();
            // The days of an unlimited memory come with the next policy.
            if !experiment.config().memory.is_everything() {
                heard.remember(experiment.config().memory);
            }
            // Reports known before the poll came from the database; fewer now means that it has
            // lost some.
            if heard.tallies.iter().map(|tally| tally.reports()).sum::<u64>() < reports {
                self.settled = Settled::default();
                self.has_lost = true;
                experiment.reduce_counted(reports, heard);
            } else {
                experiment.set_counted(heard);
            }
            if is_complete {
                experiment.heard_of(acknowledged);
            }
        }
        for record in changed {
            let stored = record.policy.as_ref().map(|stored| stored.policy.version);
            let served = known.get(&record.key).copied();
            if let Some(served) = served.filter(|served| stored.is_some_and(|s| s < *served)) {
                self.supersede(&record, served)?;
            } else if let Err(error) = registry.publish(record) {
                tracing::error!(error = explain(&error), "an experiment can't be run");
            }
        }
        Ok(())
    }

    /// Polls the store cells. Returns whether all have answered that do.
    fn hear_cells(&mut self, experiments: &[(u64, u64, Arc<Experiment>)], is_wanted: bool) -> bool {
        let Some(cells) = &mut self.cells else { return true };
        let states = experiments.iter().map(|(.., one)| (one.key(), one.serving().state));
        cells.hear(states.collect(), std::mem::take(&mut self.has_lost), is_wanted)
    }

    /// Routes uploads by these generations from now on, up to the day after today.
    fn route(&mut self, generations: Vec<Generation>) -> Result<(), StoreError> {
        let Some(cells) = &self.cells else { return Ok(()) };
        let (routing, today) = (cells.cells().routing(), self.clock.day());
        let known = routing.get();
        if let Some(lost) = known.at_home_with(&generations) {
            if *known != lost {
                let from = lost.lost().map(tracing::field::display);
                tracing::error!(
                    from,
                    "the home has lost a change of store cells: it was set back; uploads from that day on \
                     are turned away until a newer home is back"
                );
                routing.set(lost);
            }
            return Ok(());
        }
        let is_celled = !cells.cells().all().is_empty();
        let routes = match known.until() {
            Some(until) if until > today => Routes::new(generations, Some(until)),
            _ if is_celled => self.link.route_until(today)?,
            _ => Routes::new(generations, None),
        };
        if *known != routes {
            let is_new = |new: &&Generation| !known.generations().contains(new);
            for new in routes.generations().iter().filter(is_new) {
                tracing::info!(from = %new.from, cells = ?new.cells, "store cells change");
            }
            routing.set(routes);
        }
        Ok(())
    }

    /// The tallies in store cells, as last read.
    fn elsewhere(&self) -> Tallies {
        self.cells.as_ref().map(|cells| cells.cells().counted()).unwrap_or_default()
    }

    /// Adapts to a database that is older than its earlier answers, after a failover to a lagging
    /// standby or a restored backup.
    fn supersede(&mut self, record: &ExperimentRecord, served: u64) -> Result<(), StoreError> {
        let experiment = record.revisions.last().map(|newest| newest.experiment_id().as_str());
        tracing::error!(
            experiment,
            "the database has lost changes that it had committed; what it has now counts"
        );
        // The next poll returns it with a version that replicas take for a newer one.
        self.link.supersede(record.key, served)
    }

    /// Answers all callers that want a policy of the same experiment with one policy.
    fn answer_policies(
        &mut self,
        registry: &Registry,
        wanted: Vec<PolicyWanted>,
    ) -> Result<(), StoreError> {
        for (experiment, answer) in wanted {
            for _ in 0..ATTEMPTS {
                if !experiment.has_news() || self.write_policy(&experiment, None)? {
                    // The caller may be gone.
                    answer.send(experiment.serving()).ok();
                    break;
                }
                // Another replica was first, perhaps without all of the reports.
                self.hear(registry, true)?;
            }
        }
        Ok(())
    }

    /// Writes the policies that are due, and in a `sweep` those of all experiments with new
    /// reports.
    fn write_due_policies(&mut self, registry: &Registry, sweep: bool) -> Result<(), StoreError> {
        let name = self.name.clone();
        for experiment in registry.all() {
            if experiment.is_due() || (sweep && experiment.has_news()) {
                self.write_policy(&experiment, Some(&name))?;
            }
        }
        Ok(())
    }

    /// Computes the next policy, writes it unless another replica has written one, and serves it.
    fn write_policy(
        &mut self,
        experiment: &Experiment,
        holder: Option<&str>,
    ) -> Result<bool, StoreError> {
        let before = experiment.serving();
        let (weights, reports) = match experiment.weigh(&before.specification) {
            Ok(computed) => computed,
            Err(error) => {
                let experiment = experiment.id();
                tracing::error!(%experiment, %error, "the policy can't be recomputed");
                return Ok(false);
            }
        };
        let version = before.policy.version;
        let numbers: Vec<u64> = weights.iter().collect();
        let written =
            self.link.write_policy(experiment.key(), version, &numbers, reports, holder)?;
        if let Some(next) = written {
            experiment.apply_policy(version, next, weights, reports);
        }
        Ok(written.is_some())
    }
}
