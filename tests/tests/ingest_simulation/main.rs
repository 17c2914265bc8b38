//! Ingest in a simulated world derived from a seed: simulated time, devices and gateways, faults
//! and interleavings, around the server's own queue, writer, planner, registry and store.
//!
//! Failures are:
//! - an upload that was acknowledged and is not counted, also after a crash;
//! - an upload that is counted twice, for any repetitions;
//! - an upload that is counted although it was refused, or refused without a reason;
//! - an answer or a published tally before its commit, or one that differs from the store's;
//! - a caller who gets no answer, or another caller's answer;
//! - tallies, published or stored, that are not the sums of the counted uploads;
//! - a change of an experiment that was acknowledged and did not happen, or was refused and did;
//! - a day by which uploads are judged that goes back, or follows a clock that jumps ahead.
//!
//! The simulation is one thread. It polls callers as futures, and gives writers their turns. During
//! a commit it checks that no answer was given yet, and lets other callers call or leave, or a day
//! begin. Crashes of the embedded store open a copy of its files as they are at that moment, or
//! with the log cut anywhere within the last commit. With PostgreSQL, up to three replicas take
//! turns on one database.
//!
//! `BANDANA_SIMULATION_SEEDS` is the number of seeds, `BANDANA_SIMULATION_SEED` replays one and
//! prints all events.

#![expect(clippy::print_stderr, reason = "a harness of its own says what it skips")]

mod callers;
mod life;
mod model;
mod place;
mod simulation;
mod time;
mod watched_store;
mod world;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, ensure};
use bandana_aggregator::ingest::WriterError;
use bandana_store::{Outcome, StoreError};
use bandana_tests::postgres::Shared;
use bandana_tests::suite::Suite;

use place::Place;
use simulation::Simulation;

/// Default number of seeds.
const SEEDS: u64 = 120;

/// The inverse of the share of seeds with a database, which are slower.
const SEEDS_PER_DATABASE: u64 = 15;

/// Maximum number of attempts for a world in which a database was too slow.
const ATTEMPTS: u32 = 3;

/// Number of lines shown of a failed world.
const LINES: usize = 60;

/// Events that must occur in some world; otherwise the simulation has become too weak.
const EMBEDDED: &[&str] = &[
    "accepted",
    "answer lost",
    "cancelled",
    "change",
    "clock jump",
    "closed",
    "clock behind",
    "crash",
    "duplicate",
    "expired",
    "full",
    "future day",
    "gateway",
    "lost with the crash",
    "midnight",
    "paused",
    "policy",
    "queue full",
    "revised",
    "slow commit",
    "stopped",
    "survived the crash",
    "unknown outcome",
    "watermark back",
];
const REPLICAS: &[&str] = &[
    "accepted",
    "cancelled",
    "change",
    "crash",
    "duplicate",
    "expired",
    "future day",
    "paused",
    "queue full",
    "revised",
    "slow commit",
    "stopped",
    "unknown outcome",
];

/// The count of each event.
type Counts = BTreeMap<&'static str, u64>;

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::from_args();
    let number = |name: &str| -> anyhow::Result<Option<u64>> {
        let text = std::env::var(name).ok();
        text.map(|text| text.parse().with_context(|| format!("{name}={text}"))).transpose()
    };
    let only = number("BANDANA_SIMULATION_SEED")?;
    let seeds = number("BANDANA_SIMULATION_SEEDS")?.unwrap_or(SEEDS);
    let postgres = Shared::default();
    suite
        .add("embedded", move || worlds("embedded", only, seeds, EMBEDDED, &|_| Place::embedded()));
    let server = postgres.clone();
    suite.add("replicas", move || {
        let (server, seeds) = (server.server()?, seeds / SEEDS_PER_DATABASE);
        worlds("replicas", only, seeds, REPLICAS, &|seed| Place::postgres(server, seed))
    });
    suite.add("a_seed_replays_to_the_same_history", same_history);
    let conclusion = suite.run();
    // The database server must end before the process does.
    drop(postgres);
    Ok(conclusion.exit_code())
}

/// Runs the world of every seed, on all processors.
fn worlds(
    kind: &str,
    only: Option<u64>,
    seeds: u64,
    expected: &[&str],
    place: &(impl Fn(u64) -> anyhow::Result<Place> + Sync),
) -> anyhow::Result<()> {
    if let Some(seed) = only {
        let world = Simulation::run(seed, place(seed)?);
        world.log.iter().for_each(|line| eprintln!("{line}"));
        return world.outcome;
    }
    let counts = Mutex::new(Counts::new());
    let next = AtomicU64::new(0);
    let work = || -> anyhow::Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return Ok(());
            }
            let mut world = Simulation::run(seed, place(seed)?);
            for _ in 1..ATTEMPTS {
                if world.outcome.as_ref().err().is_some_and(is_passing) {
                    world = Simulation::run(seed, place(seed)?);
                }
            }
            if let Err(error) = world.outcome {
                next.store(seeds, Ordering::Relaxed);
                let last = &world.log[world.log.len().saturating_sub(LINES)..];
                return Err(error.context(format!(
                    "seed {seed} fails. To replay it:\n\n    BANDANA_SIMULATION_SEED={seed} cargo \
                     test -p bandana-tests --test ingest_simulation -- --exact {kind}\n\nThe last \
                     of what happened:\n{}\n",
                    last.join("\n")
                )));
            }
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            world.counts.iter().for_each(|(what, n)| *counts.entry(what).or_default() += n);
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let working: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        working.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a world panicked"))?
        })
    })?;
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    eprintln!("{kind}, {seeds} worlds: {counts:?}");
    for what in expected {
        // With few seeds the rarer events may be missing.
        let is_there = seeds < SEEDS / SEEDS_PER_DATABASE || counts.contains_key(what);
        ensure!(is_there, "in none of {seeds} worlds: {what}");
    }
    Ok(())
}

/// Whether a database was too slow on this machine, which does not depend on the seed.
fn is_passing(error: &anyhow::Error) -> bool {
    let (writer, store) = (error.downcast_ref(), error.downcast_ref());
    let ((Some(WriterError::Store(store)), _) | (_, Some(store))) = (writer, store) else {
        return false;
    };
    StoreError::outcome(store) == Outcome::Unknown
}

fn same_history() -> anyhow::Result<()> {
    for seed in [1, 2, 3] {
        let run = || -> anyhow::Result<Vec<String>> {
            let world = Simulation::run(seed, Place::embedded()?);
            world.outcome?;
            Ok(world.log)
        };
        let (once, again) = (run()?, run()?);
        ensure!(once == again && once.len() > 100, "seed {seed} has two histories");
    }
    Ok(())
}
