//! Random work, compared with a simple model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bandana_aggregator::registry::{Experiment, Registry};
use bandana_shared::alphabet::Symbol;
use bandana_shared::identity::{CellIndex, Day};
use bandana_shared::tally::Tally;
use bandana_store::{AuditAction, ExperimentState, Store, ValidUpload, Verdict};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::Case;
use super::places::{Place, WINDOW, commit, create, entry, registry, upload};

pub(crate) const ALL: &[(&str, Case)] = &[("random_work_agrees_with_a_model", model)];

const SEED: u64 = 7;
const STEPS: u32 = 150;

/// The expected state of a store. No run is longer than the memory of the experiments, so the
/// tallies of all days are known by day.
struct Model {
    counted: BTreeSet<(u32, u128)>,
    /// Tallies by experiment, day and arm.
    tallies: BTreeMap<(usize, u32, usize), Tally>,
    running: Vec<bool>,
    oldest: u32,
}

impl Model {
    fn verdict(&mut self, upload: &ValidUpload, id: u128, place: usize, today: u32) -> Verdict {
        let day = upload.day.get();
        if day > today {
            return Verdict::FutureDay { today: Day::new(today) };
        }
        if day < self.oldest {
            return Verdict::Expired { oldest: Day::new(self.oldest) };
        }
        if self.counted.contains(&(day, id)) {
            return Verdict::Duplicate;
        }
        if !self.running[place] {
            return Verdict::Paused;
        }
        self.counted.insert((day, id));
        for (arm, tally) in &upload.tallies {
            *self.tallies.entry((place, day, arm.get())).or_default() += *tally;
        }
        Verdict::Accepted
    }
}

fn model(place: &Place) -> anyhow::Result<()> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut store = place.open()?;
    let registry = registry();
    let mut experiments: Vec<Arc<Experiment>> = Vec::new();
    for name in ["a", "b", "c"] {
        experiments.push(registry.publish(create(&mut *store, name)?)?);
    }
    let mut model = Model {
        counted: BTreeSet::new(),
        tallies: BTreeMap::new(),
        running: vec![true; 3],
        oldest: 0,
    };
    let mut today = 100;
    for step in 0..STEPS {
        match random.random_range(0..20_u32) {
            0 => today += random.random_range(1..3),
            1 => {
                drop(store);
                store = place.open()?;
            }
            2 | 3 => {
                let place = random.random_range(0..3);
                turn(&mut *store, &registry, &experiments[place])?;
                model.running[place] = !model.running[place];
            }
            _ => {}
        }
        let mut group = Vec::new();
        let mut expected = Vec::new();
        model.oldest = model.oldest.max(today - (WINDOW - 1));
        for _ in 0..random.random_range(1..20) {
            let (id, place) = (random.random_range(0..200), random.random_range(0..3));
            let day = today + 1 - random.random_range(0..6);
            let mut upload = upload(&experiments[place], id, day, 1)?;
            let (reports, arm) = (random.random_range(1..9), random.random_range(0..2));
            // The last experiment has 16 symbols, the others have bits.
            let symbols = if place == 2 { 16 } else { 2 };
            let said = (0..reports).map(|_| {
                let symbol = Symbol::new(random.random_range(0..symbols));
                symbol.map(Tally::of_symbol).context("a symbol beyond 15")
            });
            let tally = said.sum::<anyhow::Result<Tally>>()?;
            upload.tallies = vec![(CellIndex::new(arm)?, tally)];
            expected.push(model.verdict(&upload, id, place, today));
            group.push(upload);
        }
        let verdicts = commit(&mut *store, &group, today)?;
        ensure!(verdicts == expected, "seed {SEED}, step {step}: {verdicts:?}, not {expected:?}");
    }
    for (place, record) in store.load()?.iter().enumerate() {
        let mine = || model.tallies.iter().filter(|((owner, ..), _)| *owner == place);
        for (arm, tally) in record.tallies.iter().enumerate() {
            let expected: Tally =
                mine().filter(|((.., a), _)| *a == arm).map(|(_, tally)| *tally).sum();
            ensure!(*tally == expected, "seed {SEED}: arm {arm} of {place}: {tally:?}");
        }
        let daily = record.days.iter().flat_map(|(day, tallies)| {
            let arms = tallies.iter().enumerate().filter(|(_, tally)| tally.reports() > 0);
            arms.map(|(arm, tally)| ((place, day.get(), arm), *tally))
        });
        let expected = mine().map(|(key, tally)| (*key, *tally));
        ensure!(daily.eq(expected), "seed {SEED}: {place}: {:?}", record.days);
    }
    Ok(())
}

/// Pauses an experiment, or resumes it.
fn turn(store: &mut dyn Store, registry: &Registry, experiment: &Experiment) -> anyhow::Result<()> {
    let records = store.load()?.into_iter();
    let mut of_this = records.filter(|record| record.key == experiment.key());
    let expected = of_this.next().and_then(|r| r.expected()).context("no experiment")?;
    let state = match expected.state {
        ExperimentState::Running => ExperimentState::Paused,
        _ => ExperimentState::Running,
    };
    let entry = entry(experiment.id().as_str(), AuditAction::Pause)?;
    registry.publish(store.set_state(expected, state, &entry)?)?;
    Ok(())
}
