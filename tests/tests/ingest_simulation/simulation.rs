//! Runs a simulated world step by step.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use anyhow::{Context as _, ensure};
use bandana_aggregator::ingest::IngestMetrics;
use bandana_aggregator::ingest::{ExperimentChange, Revise, Writer};
use bandana_aggregator::registry::Registry;
use bandana_edge::clock::Clock;
use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{ArmIndex, Day, ExperimentId};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_store::{Transition, WatermarkError};
use futures_util::FutureExt as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::Counts;
use super::callers::Moment;
use super::life::{Fault, Life, Point};
use super::model::Model;
use super::place::Place;
use super::time::SimulatedClock;
use super::watched_store::WatchedStore;
use super::world::World;

/// The first day of a world.
const FIRST_DAY: u32 = 100;

/// Number of events in a world.
const STEPS: u32 = 150;

const CONFIG: LearnerConfig =
    LearnerConfig { floor_weight: 0.125, ..LearnerConfig::new(Learner::LdpUcb) };

const TRANSITIONS: [Transition; 4] =
    [Transition::Start, Transition::Pause, Transition::Resume, Transition::Resume];

/// A finished world.
pub(crate) struct Ended {
    pub(crate) outcome: anyhow::Result<()>,
    pub(crate) log: Vec<String>,
    pub(crate) counts: Counts,
}

/// The world and its servers.
pub(crate) struct Simulation {
    world: Arc<Mutex<World>>,
    place: Arc<Place>,
    writers: Vec<Option<Writer>>,
    /// Whether clocks may jump.
    has_jumps: bool,
}

impl Simulation {
    /// Runs the world of a seed to its end.
    pub(crate) fn run(seed: u64, place: Place) -> Ended {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let is_embedded = place.is_embedded();
        let ids_max = if is_embedded && random.random_range(0..4_u32) == 0 { 25 } else { 100_000 };
        let queue_max = if random.random_range(0..3_u32) == 0 { 6 } else { 64 };
        let has_jumps = is_embedded && random.random_range(0..3_u32) == 0;
        let servers = (0..place.replicas()).map(|_| {
            // Replicas may disagree about the time.
            let skew = if is_embedded { 0 } else { random.random_range(0..2_u32) };
            (Arc::new(SimulatedClock::at(Day::new(FIRST_DAY + skew))), None)
        });
        let servers: Vec<_> = servers.collect();
        let writers = servers.iter().map(|_| None).collect();
        let world = World {
            random,
            model: Model::new(ids_max),
            servers,
            made: Vec::new(),
            known: Vec::new(),
            log: Vec::new(),
            counts: Counts::new(),
            wrong: None,
            is_embedded,
            queue_max,
            is_calm: false,
        };
        let world = Arc::new(Mutex::new(world));
        let mut simulation = Self { world, place: Arc::new(place), writers, has_jumps };
        let outcome = simulation.live();
        simulation.writers.clear();
        let mut world = simulation.world();
        // A failure found inside a store precedes its consequences.
        let outcome = world.wrong.take().map_or(outcome, Err);
        let (log, counts) = (std::mem::take(&mut world.log), std::mem::take(&mut world.counts));
        Ended { outcome, log, counts }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&mut self) -> anyhow::Result<()> {
        for server in 0..self.writers.len() {
            self.open(server)?;
        }
        self.create(0)?;
        self.turn(0, usize::MAX)?;
        for _ in 0..STEPS {
            let server = self.world().random.random_range(0..self.writers.len());
            self.step(server)?;
        }
        self.finish()
    }

    fn step(&mut self, server: usize) -> anyhow::Result<()> {
        let which = self.world().random.random_range(0..100_u32);
        match which {
            0..=21 => {
                let mut world = self.world();
                if let Some(made) = world.make(server, false)? {
                    world.send(server, &made)?;
                }
            }
            22..=25 => self.gateway(server)?,
            26..=37 => self.world().resend(server)?,
            38..=41 => self.world().cancel(server),
            42..=66 => {
                let few = self.world().random.random_range(1..6);
                let most = if self.world().one_in(3) { few } else { usize::MAX };
                self.turn(server, most)?;
            }
            67..=74 => self.change(server)?,
            75..=81 => {
                let mut world = self.world();
                let most = if world.one_in(12) { 2 * 86_400 } else { 7200 };
                let seconds = world.random.random_range(1..most);
                world.pass(seconds);
            }
            82..=83 if self.has_jumps => self.jump(server)?,
            82..=89 => self.arm(server)?,
            90..=92 => self.crash(server)?,
            93..=94 => self.stop(server)?,
            95..=97 => self.follow(server)?,
            _ => self.compute(server)?,
        }
        Ok(())
    }

    /// Starts a server as `bandana serve` does.
    fn open(&mut self, server: usize) -> anyhow::Result<()> {
        let (clock, queue_max, ids_max) = {
            let world = self.world();
            (world.clock(server), world.queue_max, world.model.ids_max)
        };
        let (place, world) = (Arc::clone(&self.place), Arc::clone(&self.world));
        let store = place.open(clock.day(), ids_max)?;
        let store = Box::new(WatchedStore { store, place, world, server });
        let registry = Arc::new(Registry::new(1, clock.clone()));
        let (sender, due) = mpsc::channel();
        let metrics = IngestMetrics::new(clock.clone());
        let (writer, ingest) = Writer::open_with_queue(
            queue_max,
            store,
            Arc::clone(&registry),
            clock.clone(),
            sender,
            metrics,
        )?;
        let mut life = Life::new(registry, ingest, due, &clock);
        let mut world = self.world();
        life.shown_min = life.shown();
        ensure!(life.shown_min == *world.model.sums(), "not all tallies are shown after a start");
        world.servers[server].1 = Some(life);
        world.log.push(format!("{server} starts on day {}", clock.day()));
        drop(world);
        self.writers[server] = Some(writer);
        Ok(())
    }

    /// Lets a server process part of its queue.
    fn turn(&mut self, server: usize, most: usize) -> anyhow::Result<()> {
        let writer = self.writers[server].as_mut().context("no writer")?;
        self.world.lock().unwrap_or_else(PoisonError::into_inner).life(server)?.callers.take(most);
        let outcome = writer.turn(most);
        let mut world = self.world();
        if let Some(wrong) = world.wrong.take() {
            return Err(wrong);
        }
        match outcome {
            Ok(ControlFlow::Continue(())) => {
                world.hear(server, Moment::Rest)?;
                let life = world.servers[server].1.as_ref().context("no server")?;
                life.check_shown(&world.model)?;
                let (made, heard) = life.changes;
                ensure!(made == heard, "{made} changes were made and {heard} heard of");
                Ok(())
            }
            Ok(ControlFlow::Break(())) => {
                drop(world);
                let writer = self.writers[server].take().context("no writer")?;
                writer.close()?;
                self.end(server, Moment::Close)
            }
            Err(_) => {
                world.note("crash", "in a write");
                drop(world);
                self.restart(server)
            }
        }
    }

    /// Ends a server, and checks that every caller learns of it.
    fn end(&mut self, server: usize, moment: Moment) -> anyhow::Result<()> {
        self.writers[server] = None;
        let mut world = self.world();
        world.hear(server, moment)?;
        world.servers[server].1 = None;
        Ok(())
    }

    fn restart(&mut self, server: usize) -> anyhow::Result<()> {
        self.end(server, Moment::Death)?;
        let is_moved = self.place.is_embedded() && self.world().one_in(3);
        if is_moved {
            self.move_watermark()?;
        }
        self.open(server)
    }

    /// An operator moves the replay window back as far as allowed, and tries to move it further.
    fn move_watermark(&mut self) -> anyhow::Result<()> {
        let mut store = self.place.sqlite()?;
        let mark = store.watermark()?;
        let days = mark.oldest.get().saturating_sub(mark.earliest.get()).min(5);
        let to = mark.oldest.back(self.world().random.random_range(0..=days));
        if mark.earliest.get() > 0 {
            let further = store.move_watermark_back(mark.earliest.back(1));
            let is_refused = matches!(further, Err(WatermarkError::Forgotten { .. }));
            ensure!(is_refused, "the window goes over counted days: {further:?}");
        }
        store.move_watermark_back(to)?;
        store.close()?;
        let mut world = self.world();
        world.model.move_back(to);
        if to < mark.oldest {
            world.note("watermark back", &format!("from {} to {to}", mark.oldest));
        }
        Ok(())
    }

    /// A crash of the process or a power cut between two commits.
    fn crash(&mut self, server: usize) -> anyhow::Result<()> {
        self.place.crash(self.place.log_length()?)?;
        self.world().note("crash", &format!("of {server}"));
        self.restart(server)
    }

    /// SIGTERM: the queue is processed first.
    fn stop(&mut self, server: usize) -> anyhow::Result<()> {
        let mut world = self.world();
        let queue_max = world.queue_max;
        let life = world.life(server)?;
        if life.callers.queued() >= queue_max {
            return Ok(());
        }
        let ingest = life.ingest.clone();
        ensure!(ingest.stop().now_or_never().is_some(), "there was room in the queue");
        world.note("closed", &server.to_string());
        drop(world);
        self.turn(server, usize::MAX)?;
        // A crash has already restarted the server.
        if self.writers[server].is_none() { self.open(server) } else { Ok(()) }
    }

    /// Uploads that arrive together, some of them twice.
    fn gateway(&self, server: usize) -> anyhow::Result<()> {
        let mut world = self.world();
        world.note("gateway", "");
        for _ in 0..world.random.random_range(2..12_u32) {
            if let Some(made) = world.make(server, true)? {
                world.send(server, &made)?;
                if world.one_in(5) {
                    world.send(server, &made)?;
                }
            }
        }
        Ok(())
    }

    fn create(&self, server: usize) -> anyhow::Result<()> {
        let mut world = self.world();
        let name = format!("e{}", world.random.random_range(0..4_u32));
        let specification = Box::new(Specification::first(
            ExperimentId::new(name)?,
            Epsilon::new(1.0)?,
            Rewards::binary(),
            Mechanism::Linear,
            vec![Arm::new("a")?, Arm::new("b")?],
            ReleaseTiming::IMMEDIATE,
        )?);
        let is_draft = world.one_in(4);
        let config = CONFIG;
        world.order(
            server,
            ExperimentChange::Create { specification, config, record: Box::default(), is_draft },
        )
    }

    /// An operator requests a change, which may be invalid.
    fn change(&self, server: usize) -> anyhow::Result<()> {
        let mut world = self.world();
        let which = world.random.random_range(0..12_u32);
        let all = world.life(server)?.registry.all();
        if all.is_empty() || which < 2 {
            drop(world);
            return self.create(server);
        }
        let experiment = Arc::clone(&all[world.random.random_range(0..all.len())]);
        let administration = match which {
            2 | 3 if world.model.standing(experiment.id().as_str()).is_some_and(|s| s.1 < 4) => {
                let arms = experiment.serving().specification.arms().len();
                let label = format!("arm {arms} {}", world.random.random_range(0..100_u32));
                ExperimentChange::Revise { experiment, change: Revise::Add(Arm::new(label)?) }
            }
            4 => ExperimentChange::Revise { experiment, change: Revise::Retire(ArmIndex::new(1)?) },
            5 if world.one_in(3) => {
                ExperimentChange::Move { experiment, transition: Transition::Stop }
            }
            _ => {
                let transition = TRANSITIONS[world.random.random_range(0..TRANSITIONS.len())];
                ExperimentChange::Move { experiment, transition }
            }
        };
        world.order(server, administration)
    }

    /// Makes a clock wrong, or right again.
    fn jump(&self, server: usize) -> anyhow::Result<()> {
        let mut world = self.world();
        let clock = world.clock(server);
        let day = match world.random.random_range(0..5_u32) {
            0 => clock.day().back(world.random.random_range(1..5)),
            1 => clock.day().forward(world.random.random_range(2..9)),
            2 => clock.day().forward(400),
            // The monotonic time has advanced normally.
            _ => {
                let passed = clock.monotonic().as_secs() / 86_400;
                Day::new(FIRST_DAY).forward(u32::try_from(passed)?)
            }
        };
        clock.set(day);
        world.life(server)?.has_jumped = true;
        world.note("clock jump", &format!("to day {day}"));
        Ok(())
    }

    /// Arms a fault for the next write.
    fn arm(&self, server: usize) -> anyhow::Result<()> {
        let mut world = self.world();
        let points = [Point::Before, Point::Within, Point::After];
        let point = points[world.random.random_range(0..points.len())];
        // A connection may survive, and a database loses nothing with its client.
        let is_crash = (world.is_embedded && point == Point::Within) || world.one_in(2);
        let point = if world.is_embedded || point != Point::Within { point } else { Point::After };
        world.life(server)?.fault = Some(Fault { point, is_crash });
        Ok(())
    }

    /// A replica follows the changes of others.
    fn follow(&mut self, server: usize) -> anyhow::Result<()> {
        if self.place.is_embedded() {
            return Ok(());
        }
        let (clock, ids_max) = {
            let world = self.world();
            (world.clock(server), world.model.ids_max)
        };
        let records = self.place.open(clock.day(), ids_max)?.load()?;
        let mut world = self.world();
        let sums = world.model.sums().clone();
        let life = world.life(server)?;
        for record in records {
            life.registry.publish(record)?;
        }
        life.shown_min = life.shown();
        ensure!(life.shown_min == sums, "a follower does not show what is stored");
        world.log.push(format!("{server} follows"));
        Ok(())
    }

    /// Computes policies from the counted reports.
    fn compute(&mut self, server: usize) -> anyhow::Result<()> {
        let mut world = self.world();
        let life = world.life(server)?;
        let due: Vec<_> = life.due.try_iter().collect();
        for experiment in due {
            let reports = experiment.recompute()?.policy_reports;
            let name = experiment.id().as_str();
            let counted = world.model.sums().iter().filter(|((of, _), _)| of == name);
            let counted: u64 = counted.map(|(_, (reports, _))| reports).sum();
            ensure!(reports <= counted, "a policy knows {reports} reports of {counted}");
            world.note("policy", "");
        }
        Ok(())
    }

    /// Ends all faults, sends everything once more, checks that every call is answered, and checks
    /// the store's content.
    fn finish(&mut self) -> anyhow::Result<()> {
        for server in 0..self.writers.len() {
            let mut world = self.world();
            world.log.push("the end".to_owned());
            world.is_calm = true;
            world.life(server)?.fault = None;
            drop(world);
            self.turn(server, usize::MAX)?;
            self.crash(server)?;
        }
        self.set_clocks_right()?;
        let (all, queue_max) = {
            let world = self.world();
            (world.made.clone(), world.queue_max)
        };
        let servers = self.writers.len();
        for (place, some) in all.chunks(queue_max).enumerate() {
            let server = place % servers;
            self.follow(server)?;
            for made in some {
                self.world().send(server, made)?;
            }
            self.turn(server, usize::MAX)?;
        }
        for server in 0..servers {
            self.stop(server)?;
        }
        self.world().model.check_end()
    }

    /// Restarts servers with a wrong clock, on a day in the window.
    fn set_clocks_right(&mut self) -> anyhow::Result<()> {
        let world = self.world();
        let days = world.servers.iter().map(|(clock, _)| clock.day());
        let latest = days.max().context("no server")?.max(world.model.begin_max());
        world.servers.iter().for_each(|(clock, _)| clock.set(latest));
        drop(world);
        for server in 0..self.writers.len() {
            self.crash(server)?;
        }
        Ok(())
    }
}
